"""`radialgan` against a program that holds all networks and rows, and what its parts promise."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

import fedcohort as fc
from fedcohort.algorithms.radialgan import METHOD
from fedcohort.algorithms.radialgan.records import drawn, groups_of, records_of, rounded
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.models.network import initial
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

FEATURES = ("a", "b", "c")
TASK = Task(kind="classification", features=FEATURES, outcome="binary", seed=3)
#: Columns of the sites; 0 is shared.
HAS = {"north": [0, 1], "south": [0, 2], "west": [0, 1, 2]}
LAMBDA, RATE, BETAS = 0.7, 0.01, (0.5, 0.999)


def table(site, n, seed):
    rng = np.random.default_rng(seed)
    x = np.full((n, 3), np.nan)
    x[:, HAS[site]] = rng.normal(size=(n, len(HAS[site])))
    return LabelledTable(x, (np.nan_to_num(x).sum(axis=1) + rng.normal(size=n) > 0).astype(float))


def hosts_of(names, seed=0):
    sizes = {"north": 12, "south": 17, "west": 23}
    return [
        Host(name, table(name, sizes[name], seed + k), METHOD.steps, seed=3)
        for k, name in enumerate(names)
    ]


def stack(inputs, widths, outputs):
    layers = []
    for width in widths:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs)).double()


def centralised(tables, theta, carried, latent, steps):
    """One program of eqs. (5.5) to (5.7): all networks, all rows, torch's own modules and Adam."""
    p = len(FEATURES)
    names, sites = list(tables), {}
    for name, t in tables.items():
        own = torch.tensor([*(float(j in HAS[name]) for j in range(p)), 1.0]).double()
        r = torch.from_numpy(np.column_stack([np.nan_to_num(t.x), t.y]))
        f, g, d = stack(p + 1, (6,), latent), stack(latent + len(carried), (6,), p + 1), None
        d = stack(p + 1, (6,), 1)
        all_parameters = [*f.parameters(), *g.parameters(), *d.parameters()]
        nn.utils.vector_to_parameters(torch.from_numpy(theta.copy()), all_parameters)
        fg = torch.optim.Adam([*f.parameters(), *g.parameters()], RATE, BETAS)
        sites[name] = (r, own, f, g, d, fg, torch.optim.Adam(d.parameters(), RATE, BETAS))

    def encode(name, r):
        return torch.cat([sites[name][2](r), r[:, carried]], dim=1)

    def decode(name, z):
        y = sites[name][3](z)
        y = torch.cat([y[:, :p], torch.sigmoid(y[:, p:])], dim=1)
        columns = [z[:, latent + carried.index(j)] if j in carried else y[:, j]
                   for j in range(p + 1)]  # fmt: skip
        return torch.stack(columns, dim=1) * sites[name][1]

    def adversarial(name, z, real):
        r, d = sites[name][0], sites[name][4]
        n = {j: len(sites[j][0]) for j in names if j != name}
        total = torch.sigmoid(d(r)).log().mean() if real else torch.zeros(()).double()
        for j, size in n.items():
            share = size / sum(n.values())
            total = total + share * (1 - torch.sigmoid(d(decode(name, z[j])))).log().mean()
        return total

    def cycle(name, z):
        r = sites[name][0]
        n = {j: len(sites[j][0]) for j in names if j != name}
        total = (r - decode(name, encode(name, r))).norm(dim=1).mean()
        for j, size in n.items():
            back = encode(name, decode(name, z[j]))
            total = total + size / sum(n.values()) * (z[j] - back).norm(dim=1).mean()
        return total

    for _ in range(steps):
        z = {name: encode(name, sites[name][0]) for name in names}
        fixed = {name: code.detach() for name, code in z.items()}
        for name in names:
            optimiser = sites[name][6]
            optimiser.zero_grad()
            (-adversarial(name, fixed, True)).backward()
            optimiser.step()
        for name in names:
            sites[name][5].zero_grad()
        sum(adversarial(name, z, False) + LAMBDA * cycle(name, z) for name in names).backward()
        for name in names:
            sites[name][5].step()
    return {
        name: torch.cat([w.detach().reshape(-1) for net in s[2:5] for w in net.parameters()])
        for name, s in sites.items()
    }


@pytest.mark.parametrize("names", [("north", "south"), ("north", "south", "west")])
@pytest.mark.parametrize(("carry", "carried"), [("none", []), ("shared", [0, 3])])
def test_codes_take_the_steps_of_one_program_with_all_networks_and_rows(names, carry, carried):
    hosts = hosts_of(names)
    config = METHOD.configure(
        {"shares": "codes", "carry": carry, "rounds": 6, "hidden": (6,), "q": 2, "cycle": LAMBDA,
         "learning_rate": RATE, "batch_size": 100}
    )  # fmt: skip
    METHOD.fit(local(hosts), config, TASK)
    theta = initial(config.plan(TASK).network([True, False, False]), TASK.seed)
    tables = {host.name: host._data for host in hosts}
    wanted = centralised(tables, theta, carried, 2, 6)
    for host in hosts:
        moved = np.abs(wanted[host.name].numpy() - theta).max()
        assert moved > 3 * RATE
        # the same sums in another order: rounding of 1e-16, times Adam's ratio of small slopes
        assert_allclose(host.state["theta"], wanted[host.name].numpy(), atol=1e-7 * moved)


def test_a_site_of_a_mixture_learns_from_others_by_their_share_of_rows():
    from fedcohort.algorithms.radialgan.steps import _given
    from fedcohort.protocol.step import Site, mark_of

    names = ["a", "b", "c"]
    marks = np.array([mark_of(n) for n in names], np.int64)
    site = Site("b", None, None, (0,))
    z, counts = np.arange(12.0).reshape(3, 4, 1), np.array([4.0, 3.0, 2.0])
    codes, weights, places = _given(site, marks, z, counts, np.array([30.0, 100.0, 10.0]))
    assert_array_equal(codes[:, 0], [0, 1, 2, 3, 8, 9])
    assert_allclose(weights, [0.75 / 4] * 4 + [0.25 / 2] * 2)
    assert_array_equal(places[0], [0, 0, 0, 0, 2, 2])


@given(seed=st.integers(0, 1000), least=st.integers(2, 12))
def test_nothing_is_told_of_a_group_of_few_codes(seed, least):
    rng = np.random.default_rng(seed)
    z, group = rng.normal(size=(30, 2)), rng.integers(0, 4, 30)
    told = groups_of(z, group, 4, least)
    for k in range(4):
        n = int((group == k).sum())
        assert told.rows[k] == (n if n >= least else 0)
        if n < least:
            assert not told.means[k].any()
            assert not told.covariances[k].any()
        elif n > 2:
            assert_allclose(told.covariances[k], np.cov(z[group == k].T))


def test_of_fewer_codes_than_dimensions_only_variances_are_told():
    z = np.random.default_rng(0).normal(size=(5, 6))
    told = groups_of(z, np.zeros(5, int), 1, 5).covariances[0]
    assert_array_equal(told, np.diag(np.diag(told)))
    assert_allclose(np.diag(told), z.var(axis=0, ddof=1))


def test_drawn_codes_have_the_moments_of_their_groups_and_keep_binary_shares():
    rng = np.random.default_rng(1)
    truth = rng.multivariate_normal([1.0, -2.0], [[2.0, 0.6], [0.6, 1.0]], 500)
    ones = (rng.random(500) < 0.15).astype(float)
    told = groups_of(np.column_stack([truth, ones]), np.zeros(500, int), 1, 5)
    z = drawn(told, 40_000, np.random.default_rng(2), [(2, 0.0, 1.0)])
    # 4 standard errors of 40 000 draws: sd 1.4 / 200, and 0.36 / 200
    assert_allclose(z[:, :2].mean(axis=0), told.means[0, :2], atol=0.03)
    assert_allclose(np.cov(z[:, :2].T), told.covariances[0, :2, :2], atol=0.06)
    assert set(np.unique(z[:, 2])) == {0.0, 1.0}
    assert_allclose(z[:, 2].mean(), ones.mean(), atol=0.008)


def test_rounded_levels_have_at_most_one_1_and_the_decoded_shares():
    task = Task(kind="classification", features=("a",), outcome="category", levels=("x", "y", "z"))
    plan = METHOD.configure({}).plan(task)
    r = np.tile([0.3, 0.2, 0.5], (20_000, 1))
    made = rounded(r, plan, np.random.default_rng(0))
    assert set(map(tuple, np.unique(made[:, 1:], axis=0))) == {(0, 0), (0, 1), (1, 0)}
    assert_allclose(made[:, 1:].mean(axis=0), [0.2, 0.5], atol=4 * 0.5 / np.sqrt(20_000))
    assert_array_equal(made[:, 0], r[:, 0])


def test_a_record_of_survival_is_event_and_log_time_and_returns():
    from fedcohort.algorithms.radialgan.records import table_of

    task = Task(kind="survival", features=("a", "b"), outcome="survival")
    plan = METHOD.configure({}).plan(task)
    x = np.column_stack([np.arange(6.0), np.full(6, np.nan)])
    given = SurvivalTable(x, np.arange(1.0, 7.0), np.arange(6) % 2 > 0)
    records = records_of(given, plan, 2.0, 5)
    assert_array_equal(records.own, [1, 0, 1, 1])
    back = table_of(records.r, plan, 2.0)
    assert_allclose(back.time, given.time)
    assert_array_equal(back.event, given.event)
    assert_array_equal(back.x[:, 1], np.zeros(6))


def related(n, seed, turn):
    """Rows of one population: two columns turned by an angle, with a class that moves both."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    u = rng.normal(size=(n, 2)) * [1.0, 0.4] + np.outer(y, [1.5, -1.0])
    c, s = np.cos(turn), np.sin(turn)
    return u @ np.array([[c, -s], [s, c]]), y


#: Ranges of the columns, which a private fit scales by.
RANGES = {
    **{c: {"type": "number", "range": [-6, 6], "view": v} for c, v in zip("abcd", "llrr")},
    "y": {"type": "binary"},
}


def two_sites(seed, n=150, **more):
    (one, y), (two, v) = related(n, seed, 0.0), related(n, seed + 500, 1.0)
    north = pd.DataFrame({"a": one[:, 0], "b": one[:, 1], "y": y})
    south = pd.DataFrame({"c": two[:, 0], "d": two[:, 1], "y": v})
    more = more or {"views": {"left": ["a", "b"], "right": ["c", "d"]}}
    tables = {"north": north, "south": south}
    return fc.simulate(tables, outcome=fc.Binary("y"), seed=seed, **more)


def by_class(fit, seed):
    """Return means (2, 2) and sds (2, 2) of virtual rows at north by class, and those of north.

    In units of the standardised columns of north, which it alone has.
    """
    x, outcome = fit.of("north").model.sample_outcome(4000, np.random.default_rng(seed))
    (truth, y) = related(40_000, 77, 0.0)
    sd = truth.std(axis=0)
    virtual = [(x[outcome[:, 0] == k][:, :2]) for k in (0, 1)]
    real = [(truth[y == k] - truth.mean(axis=0)) / sd for k in (0, 1)]

    def moments(parts):
        return np.array([v.mean(axis=0) for v in parts]), np.array([v.std(axis=0) for v in parts])

    return moments(virtual), moments(real)
