"""`radialgan` against a program that holds all networks and rows, and what its parts promise."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

import fedcohort as fc
from fedcohort.algorithms.radialgan import METHOD, RadialModel, reveals_with
from fedcohort.algorithms.radialgan.records import drawn, groups_of, records_of, rounded
from fedcohort.apps.synthesising import synthesise
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
    **{
        c: {"type": "number", "range": [-6, 6], "view": v}
        for c, v in zip("abcd", "llrr", strict=True)
    },
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


def test_virtual_rows_have_the_classes_moments_of_the_target():
    """Two sites of one population without a common column, turned by 57°."""
    for seed in range(3):
        fit = fc.fit("radialgan", two_sites(seed), q=2, carry="outcome")
        (mean, sd), (true_mean, true_sd) = by_class(fit, seed)
        assert np.abs(mean - true_mean).mean() < MEAN_OFF
        assert np.abs(np.log(sd / true_sd)).mean() < LOG_SD_OFF
        assert fit.history["cycle"].iloc[-1] < CYCLE
        # the classes' means are 1.2 and 1.6 standard deviations apart
        assert (np.sign(mean) == np.sign(true_mean)).all()


#: Over seeds 0 to 2 the mean distances of means are 0.053, 0.055, 0.031, of ln sd 0.13, 0.13, 0.07,
#: and the last cycle loss 0.04, 0.06, 0.04: margins of three standard deviations above their mean.
MEAN_OFF, LOG_SD_OFF, CYCLE = 0.2, 0.25, 0.1


def quick(cohort, **settings):
    return fc.fit("radialgan", cohort, q=2, rounds=1, internal_epochs=1, **settings)


def test_a_site_draws_rows_in_its_own_columns_and_predicts_by_its_own_model(tmp_path):
    cohort = two_sites(0, 40)
    fit = quick(cohort)
    rows = fit.of("north").sample(7)
    assert rows[["a", "b"]].notna().all(axis=None)
    assert rows[["c", "d"]].isna().all(axis=None)
    with pytest.raises(fc.NotSupported, match="each site keeps its own model"):
        fit.predict(cohort.frames["north"])
    model = fit.of("north").model
    again = RadialModel.restore(model.arrays(), model.meta())
    x = np.array([[0.3, -0.2, np.nan, np.nan], [0.3, -0.2, 5.0, 5.0]])
    assert_array_equal(again.predict(x), model.predict(x))
    assert again.predict(x)[0] == again.predict(x)[1]  # columns that north lacks say nothing
    draws = [m.sample_outcome(5, np.random.default_rng(1)) for m in (model, again)]
    assert_array_equal(draws[0][0], draws[1][0])
    assert set(draws[0][1].ravel()) <= {0.0, 1.0}


def test_without_virtual_rows_the_predictor_is_that_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    x, y = related(80, 0, 0.5)
    host = Host("north", LabelledTable(x, y.astype(float)), METHOD.steps)
    task = Task(kind="classification", features=("a", "b"), outcome="binary")
    found = METHOD.fit(local([host]), METHOD.configure({"virtual": 0, "l2": 0.1}), task)
    # mean loss + ½ λ |β|² is scikit-learn's with C = 1/(n λ)
    wanted = LogisticRegression(C=1 / (len(x) * 0.1), tol=1e-10).fit(x, y)
    assert_allclose(found.predict(x), wanted.predict_proba(x)[:, 1], atol=1e-5)


def test_one_site_and_virtual_0_at_several_are_refused_in_one_line():
    cohort = two_sites(0, 40)
    one = fc.simulate({"north": cohort.frames["north"]}, outcome=fc.Binary("y"))
    with pytest.raises(fc.FedcohortError, match=r"there is 1 site. Add a site"):
        quick(one)
    with pytest.raises(fc.FedcohortError, match=r"virtual: 0.* there are 2 sites"):
        fc.fit("radialgan", cohort, virtual=0)


def test_a_site_of_few_rows_and_a_cohort_without_outcome_are_refused():
    frames = dict(two_sites(0, 40).frames)
    views = {"left": ["a", "b"], "right": ["c", "d"]}
    frames["south"] = frames["south"].iloc[:3]
    with pytest.raises(fc.FedcohortError, match=r"'south' has fewer than 5 rows"):
        quick(fc.simulate(frames, outcome=fc.Binary("y"), views=views))
    with pytest.raises(fc.FedcohortError, match=r"serves classification, survival, not regression"):
        quick(fc.simulate(frames, outcome=fc.Continuous("y"), views=views))


def test_shares_codes_says_that_each_patients_code_leaves():
    mixture = reveals_with(METHOD.configure({}))
    codes = reveals_with(METHOD.configure({"shares": "codes"}))
    assert "latent code of each patient" not in mixture
    assert "latent code of each patient" in codes
    assert METHOD.configure({"shares": "codes"}).visible == "shares: codes"


def test_a_private_fit_shows_one_noisy_sum_a_site_and_leaves_a_model_there():
    # a seed other than 0: the guard once took another seed than 0 for one that the study lacks
    fit = quick(two_sites(1, 300, dictionary=RANGES), dp={"epsilon": 4, "delta": 1e-4})
    assert (
        list(fit.ledger["step"]) == ["tell_groups_privately"] * 2 + ["keep_predictor_privately"] * 2
    )
    assert fit.ledger["epsilon"].max() <= 4
    assert fit.of("south").sample(3)[["c", "d"]].notna().all(axis=None)


@given(seed=st.integers(0, 1000))
def test_a_record_more_changes_the_private_sums_by_at_most_their_sensitivity(seed):
    from fedcohort.algorithms.radialgan import private
    from fedcohort.protocol.step import Site

    rng = np.random.default_rng(seed)
    task = Task(kind="classification", features=("a", "b"), outcome="binary")
    plan = private.plan_of(METHOD.configure({"q": 2}), task).text
    x = rng.uniform(-1, 1, size=(6, 2)) * rng.choice([1, 50])
    y = rng.integers(0, 2, 6).astype(float)

    def told(n):
        site = Site("a", LabelledTable(x[:n], y[:n]), None, (0,))
        return private.tell_groups_privately.run(site, plan=plan, unit=1.0, seed=0, clip=1.5)

    more, less = told(6), told(5)
    change = np.linalg.norm(more.reply.upper - less.reply.upper)
    assert change <= more.sensitivity["upper"] * (1 + 1e-12)


def test_a_private_fit_of_codes_is_refused():
    with pytest.raises(fc.FedcohortError, match="shows the code of each patient"):
        quick(
            two_sites(0, 40, dictionary=RANGES), shares="codes",
            dp={"epsilon": 4, "delta": 1e-4},
        )  # fmt: skip


def test_a_drawn_time_is_in_the_unit_of_the_table():
    rng = np.random.default_rng(0)

    def frame(columns):
        x = rng.normal(size=(40, len(columns)))
        days = 1000.0 * rng.uniform(0.5, 1.5, 40)
        return pd.DataFrame(x, columns=columns).assign(days=days, died=rng.integers(0, 2, 40))

    frames = {"north": frame(["a"]), "south": frame(["c"])}
    fed = fc.simulate(
        frames, outcome=fc.Survival("days", "died"), views={"left": ["a"], "right": ["c"]}
    )
    times = quick(fed).of("north").model.sample_outcome(400, rng)[1][:, 0]
    assert 800 < np.median(times) < 1200  # the middle of the times, by carry: shared


def test_task_synthesis_is_refused_and_the_line_says_why_and_what_draws_instead():
    with pytest.raises(fc.FedcohortError, match=r"model of its own, of its own columns.*draws"):
        fc.fit("radialgan", two_sites(0, 40), task="synthesis")


def test_rows_of_a_site_of_a_private_fit_have_no_guarantee_and_the_file_says_so(tmp_path):
    """Its decoder was trained on the site's rows without noise."""
    fit = quick(two_sites(0, 300, dictionary=RANGES), dp={"epsilon": 4, "delta": 1e-4})
    fit.of("north").save(tmp_path / "north")
    done = synthesise(tmp_path / "north", 50, tmp_path / "rows.csv")
    told = json.loads((tmp_path / "rows.json").read_text())
    assert not told["differential_privacy"]
    assert told["epsilon"] is None
    assert any("without noise on the hospital's own patients" in line for line in done.warnings)
    assert any("draws no c, d" in line for line in done.warnings)
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert rows[["a", "b", "y"]].notna().all(axis=None)
    assert rows[["c", "d"]].isna().all(axis=None)


def test_rows_of_the_common_model_are_refused_and_the_line_names_the_sites_models(tmp_path):
    quick(two_sites(0, 40)).save(tmp_path / "all")
    with pytest.raises(fc.FedcohortError, match=r"each site keeps its own model.*sites/SITE"):
        synthesise(tmp_path / "all", 5, tmp_path / "rows.csv")
