"""Each way to a site's own model is the loop that its paper prints, and tells what it says."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

import several
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.models import losses
from fedcohort.models.mcvae import Mcvae
from fedcohort.models.network import Mlp, initial
from fedcohort.models.vae import Vae
from fedcohort.protocol import (
    NothingToLearn,
    Refused,
    SettingError,
    SiteUnavailable,
    VerbRefused,
)
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training import personal
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg
from fedcohort.training.networks.strategies import train_here
from fedcohort.training.personal import Way, clusters, last_layer, of_columns, personalise, steps
from fedcohort.training.personal.steps import Alone, Told

SEED, ROUNDS, EPOCHS, RATE, L2 = 5, 6, 3, 0.4, 0.01
PLAN = Plan(
    network=Mlp(inputs=3, hidden=()).spec, loss="logistic", epochs=EPOCHS, optimiser="sgd", l2=L2
)
BATCHES = replace(PLAN, batch_size=16)
EFFECTS = {"a": 1.0, "b": 1.0, "c": -1.0, "d": 0.6, "e": -1.0, "f": -0.8}
ROWS = {"a": 40, "b": 70, "c": 23, "d": 55, "e": 61, "f": 48}
#: Everything that a way is told, but for its name.
GIVEN = {
    "local": {}, "global": {}, "cluster": {},
    "finetune": {"epochs": 4},
    "ditto": {"pull": 0.7},
    "apfl": {"alpha": 0.3, "adapt": True},
    "fedper": {"own": ((0, 1), (3, 4))},
    "fedrep": {"own": ((0, 1), (3, 4)), "epochs": 2},
}  # fmt: skip
OWN = np.array([True, False, False, True])


def tables(names="abc"):
    """Return sites, of which c, e and f have an effect the other way round."""
    made = {}
    for name in names:
        rng = np.random.default_rng(ord(name))
        x = rng.normal(size=(ROWS[name], 3))
        p = expit(EFFECTS[name] * (x @ [1.5, -1.0, 0.5] + 0.3))
        made[name] = LabelledTable(x, (rng.random(len(x)) < p).astype(float))
    return made


def federation(data, **options):
    known = (train_here, personal.tell_alone, *personal.STEPS)
    return local([Host(n, t, known, SEED) for n, t in data.items()], **options)


def trained(data, way, plan=PLAN, start=None, keep=(), rounds=ROUNDS, user="a", fed=None, **more):
    theta = np.zeros(len(initial(plan.network, 0))) if start is None else start
    given = {**GIVEN[way], **{k: more.pop(k) for k in list(more) if k in Way.__annotations__}}
    clustered = {k: more.pop(k) for k in ("n_clusters", "warm", "least") if k in more}
    return personalise(
        fed or federation(data, **more), plan,
        Schedule(rounds=rounds, learning_rate=RATE, lr_rule="constant", keep=keep), fedavg,
        Server.at(theta, rate=1, beta1=0, beta2=0, tau=1), Way(name=way, user=user, **given),
        min_cell=5, seed=SEED, **clustered,
    )  # fmt: skip


# the papers' loops, in NumPy ------------------------------------------------------------


def gradient(theta, table):
    """(p − y) x averaged, and λW: the intercept stands last."""
    x = np.c_[table.x, np.ones(len(table.x))]
    return x.T @ (expit(x @ theta) - table.y) / len(x) + L2 * np.r_[theta[:-1], 0.0]


def class_gradient(theta, table):
    """(p_k − 1(y = k)) x averaged, for each of three classes, and λW: intercepts stand last."""
    w, b = theta[:9].reshape(3, 3), theta[9:]
    scores = np.exp(table.x @ w.T + b)
    over = scores / scores.sum(axis=1, keepdims=True) - (table.y[:, None] == np.arange(3))
    return np.r_[(over.T @ table.x / len(over) + L2 * w).ravel(), over.mean(axis=0)]


def cox_gradient(theta, table):
    """Of Breslow's partial likelihood, death by death, without tricks."""
    total = np.zeros(len(theta))
    for j in np.flatnonzero(table.event):
        at_risk = table.x[table.time >= table.time[j]]
        w = np.exp(at_risk @ theta)
        total += w @ at_risk / w.sum() - table.x[j]
    return total / len(table.x) + L2 * theta


def descend(theta, table, epochs=EPOCHS, free=True, slope=gradient):
    for _ in range(epochs):
        theta = theta - RATE * free * slope(theta, table)
    return theta


def mean_of(parts, data, here=None):
    n = {s: len(data[s].x) for s in here or data}
    return sum(n[s] * parts[s] for s in n) / sum(n.values())


def common(data, size=4, slope=gradient, here=lambda r: None):
    """FedAvg: w_0, …, w_R."""
    w = [np.zeros(size)]
    for r in range(ROUNDS):
        there = here(r) or list(data)
        parts = {s: descend(w[-1], data[s], slope=slope) for s in there}
        w.append(mean_of(parts, data, there))
    return w


def by_ditto(data, user="a", pull=0.7, size=4, slope=gradient, **given):
    v = np.zeros(size)
    for w in common(data, size, slope, **given)[1:]:
        for _ in range(EPOCHS):
            v = (v - RATE * slope(v, data[user]) + RATE * pull * w) / (1 + RATE * pull)
    return v


def by_apfl(data, alpha=0.3, adapt=True, size=4, slope=gradient):
    w_all = common(data, size, slope)
    v = np.zeros(size)
    for w in w_all[1:]:
        u = w
        used = alpha
        for e in range(EPOCHS):
            g = slope(used * v + (1 - used) * u, data["a"])
            before = used
            if adapt and not e:
                used = float(np.clip(used - RATE * (v - u) @ g, 0, 1))
            v, u = v - RATE * before * g, u - RATE * slope(u, data["a"])
        alpha = used
    return alpha * v + (1 - alpha) * w_all[-1], alpha


def by_parts(data, representation, epochs=2, size=4, slope=gradient, held=OWN):
    w, own = np.zeros(size), {s: np.zeros(size) for s in data}
    for _ in range(ROUNDS):
        parts = {}
        for s in data:
            theta = np.where(held, own[s], w)
            if representation:
                theta = descend(theta, data[s], epochs, held, slope)
                theta = descend(theta, data[s], free=~held, slope=slope)
            else:
                theta = descend(theta, data[s], slope=slope)
            own[s], parts[s] = theta, theta
        w = np.where(held, 0.0, mean_of(parts, data))
    found = np.where(held, own["a"], w)
    return descend(found, data["a"], epochs, held, slope) if representation else found


EXPECTED = {
    "local": lambda d, n=4, f=gradient: descend(np.zeros(n), d["a"], ROUNDS * EPOCHS, slope=f),
    "global": lambda d, n=4, f=gradient: common(d, n, f)[-1],
    "finetune": lambda d, n=4, f=gradient: descend(common(d, n, f)[-1], d["a"], 4, slope=f),
    "ditto": lambda d, n=4, f=gradient: by_ditto(d, size=n, slope=f),
    "apfl": lambda d, n=4, f=gradient: by_apfl(d, size=n, slope=f)[0],
    "fedper": lambda d, *of: by_parts(d, False, 2, *of),
    "fedrep": lambda d, *of: by_parts(d, True, 2, *of),
}


@pytest.mark.parametrize("way", EXPECTED)
def test_it_is_the_papers_loop_in_plain_numpy(way):
    data = tables("abcd")
    found = trained(data, way)
    assert_allclose(found.theta, EXPECTED[way](data), rtol=1e-10, atol=1e-12)
    if way not in ("local", "fedper", "fedrep"):
        assert_allclose(found.common, common(data)[-1], rtol=1e-10)


SEVERAL = replace(PLAN, network=Mlp(inputs=3, hidden=(), outputs=3).spec, loss=losses.several(3))
#: Of three classes, the first column's coefficients and the intercepts.
OWN_OF_EACH = np.r_[np.tile([True, False, False], 3), np.ones(3, bool)]


@pytest.mark.parametrize("way", EXPECTED)
def test_of_three_classes_it_is_the_same_loop_with_coefficients_for_each(way):
    data, given = several.graded(), {}
    more = (12, class_gradient)
    if way in personal.PARTED:
        given, more = {"own": of_columns(SEVERAL.network, [0])}, (*more, OWN_OF_EACH)
    found = trained(data, way, SEVERAL, **given)
    assert_allclose(found.theta, EXPECTED[way](data, *more), rtol=1e-10, atol=1e-12)
    if way not in ("local", *personal.PARTED):
        assert_allclose(found.common, common(data, 12, class_gradient)[-1], rtol=1e-10, atol=1e-12)


def test_the_own_part_of_three_classes_is_a_columns_coefficients_or_the_last_layer():
    mask = Way(name="fedper", user="a", own=of_columns(SEVERAL.network, [0])).mask(12)
    assert_array_equal(mask, OWN_OF_EACH)
    assert last_layer(SEVERAL.network) == ((9, 12),)
    assert last_layer(Mlp(inputs=3, hidden=(4,), outputs=3).spec) == ((16, 28), (28, 31))


@pytest.mark.parametrize("way", ["local", "finetune"])
def test_a_user_with_few_rows_of_a_class_tells_no_model(way):
    data = several.graded()
    few = np.flatnonzero(data["a"].y == 2)[3:]
    kept = np.setdiff1d(np.arange(len(data["a"].y)), few)
    data["a"] = LabelledTable(data["a"].x[kept], data["a"].y[kept])
    with pytest.raises(NothingToLearn, match="fewer than 5 rows, or of one of several classes"):
        trained(data, way, SEVERAL)
    none = data["a"].y < 2  # without any it has something to tell, and nobody to tell of
    data["a"] = LabelledTable(data["a"].x[none], data["a"].y[none])
    assert np.isfinite(trained(data, way, SEVERAL).theta).all()


def test_apfls_share_is_learnt_as_in_its_paper_and_fixed_where_it_is_asked():
    data = tables("abc")
    assert trained(data, "apfl").alpha == pytest.approx(by_apfl(data)[1], rel=1e-10)
    fixed = trained(data, "apfl", adapt=False)
    assert fixed.alpha == 0.3
    assert_allclose(fixed.theta, by_apfl(data, adapt=False)[0], rtol=1e-10)


def survivors(names="abcd"):
    made = {}
    for name in names:
        rng = np.random.default_rng(ord(name))
        x = rng.normal(size=(ROWS[name], 2))
        time = rng.exponential(np.exp(-EFFECTS[name] * (x @ [1.0, -0.5]))).round(2) + 0.01
        made[name] = SurvivalTable(x, time, rng.random(len(x)) < 0.7)
    return made


COX = replace(PLAN, network=Mlp(inputs=2, hidden=(), intercept=False).spec, loss="cox")


def test_of_cox_s_partial_likelihood_it_is_the_same_loop():
    data = survivors()
    wanted = by_ditto(data, size=2, slope=cox_gradient)
    assert_allclose(trained(data, "ditto", COX).theta, wanted, rtol=1e-9)
    tuned = descend(common(data, 2, cox_gradient)[-1], data["a"], 4, slope=cox_gradient)
    assert_allclose(trained(data, "finetune", COX).theta, tuned, rtol=1e-9)


def test_fedrep_of_a_network_by_adam_is_torchs_own_with_layers_that_stand_still():
    data = tables("abc")
    spec = Mlp(inputs=3, hidden=(4,)).spec
    plan = Plan(network=spec, loss="logistic", epochs=2, optimiser="adam")
    start = initial(spec, 1)
    own = last_layer(spec)
    assert own == ((16, 20), (20, 21))

    def module(theta):
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        net = net.double()
        torch.nn.utils.vector_to_parameters(torch.from_numpy(theta), net.parameters())
        return net

    def learn(theta, table, epochs, layer):
        net = module(theta.copy())
        optimiser = torch.optim.Adam(net[layer].parameters(), lr=RATE)
        x, y = torch.from_numpy(table.x), torch.from_numpy(table.y)
        for _ in range(epochs):
            optimiser.zero_grad()
            f = net(x)[:, 0]
            torch.nn.functional.binary_cross_entropy_with_logits(f, y).backward()
            optimiser.step()
        return torch.nn.utils.parameters_to_vector(net.parameters()).detach().numpy()

    w, heads = start, dict.fromkeys(data, start[16:])
    for _ in range(2):
        parts = {}
        for s, table in data.items():
            theta = learn(np.r_[w[:16], heads[s]], table, 3, 2)
            parts[s] = learn(theta, table, 2, 0)
            heads[s] = parts[s][16:]
        w = mean_of(parts, data)
    wanted = learn(np.r_[w[:16], heads["a"]], data["a"], 3, 2)
    found = trained(data, "fedrep", plan, start, own=own, epochs=3, rounds=2)
    assert_allclose(found.theta, wanted, rtol=1e-7, atol=1e-9)


# the two ends -------------------------------------------------------------------------

ENDS = [
    ("ditto", {"pull": 0.0}, "local"),
    ("ditto", {"pull": 1e300}, "global"),
    ("apfl", {"alpha": 0.0, "adapt": False}, "global"),
    ("apfl", {"alpha": 1.0, "adapt": False}, "local"),
    ("finetune", {"epochs": 0}, "global"),
    ("fedper", {"own": ((0, 4),)}, "local"),
    ("fedper", {"own": ()}, "global"),
    ("cluster", {"n_clusters": 1}, "global"),
]


@pytest.mark.parametrize(("way", "given", "end"), ENDS, ids=[f"{w} {g}" for w, g, _ in ENDS])
@pytest.mark.parametrize("plan", [PLAN, BATCHES], ids=["full", "batches"])
def test_at_its_limit_a_way_is_local_or_global_to_the_bit(way, given, end, plan):
    if (way, given) == ("fedper", {"own": ()}) and plan is BATCHES:
        return  # a site's own batches are drawn by its visits, not by the call
    data = tables("abc")
    found, wanted = trained(data, way, plan, **given).theta, trained(data, end, plan).theta
    if way in ("ditto", "apfl") and (end, plan) == ("local", PLAN):
        # Their own steps add the rows as they are; a plain visit, rows filled up to a length.
        assert_allclose(found, wanted, rtol=1e-12)
    else:
        assert_array_equal(found, wanted)


@pytest.mark.parametrize("way", ["finetune", "ditto", "apfl"])
@pytest.mark.parametrize("plan", [PLAN, BATCHES], ids=["full", "batches"])
def test_the_common_model_is_that_of_a_training_without_a_user_to_the_bit(way, plan):
    data = tables("abc")
    assert_array_equal(trained(data, way, plan).common, trained(data, "global", plan).theta)


def test_between_its_limits_ditto_lies_between_them_and_its_pull_shortens_the_way_to_the_common():
    data = tables("abcd")
    pulls = (0.0, 0.1, 1.0, 10.0)
    far = [
        np.linalg.norm(found.theta - found.common)
        for found in (trained(data, "ditto", rounds=12, pull=p) for p in pulls)
    ]
    assert far == sorted(far, reverse=True)


def test_dittos_fixed_point_is_that_of_its_objective():
    """∇F(v) + λ(v − w) = 0."""
    data = tables("abcd")
    found = trained(data, "ditto", rounds=120)
    slope = gradient(found.theta, data["a"]) + 0.7 * (found.theta - found.common)
    assert np.abs(slope).max() < 1e-7
    assert np.abs(gradient(found.theta, data["a"])).max() > 1e-2


# who is there -------------------------------------------------------------------------


@pytest.mark.parametrize("way", GIVEN)
def test_the_order_of_sites_changes_no_bit(way):
    data = tables("abcdef")
    one, other = (trained(d, way, BATCHES) for d in (data, dict(reversed(data.items()))))
    assert_array_equal(one.theta, other.theta)


@pytest.mark.parametrize("way", ["local", "global", "finetune", "ditto", "apfl"])
def test_how_the_others_rows_are_split_does_not_matter_where_each_visit_is_one_step(way):
    data = tables("abcd")
    plan = replace(PLAN, epochs=1)
    rows = [np.concatenate([getattr(data[s], k) for s in "bcd"]) for k in ("x", "y")]
    cuts = [10, 100]
    parts = zip(np.split(rows[0], cuts), np.split(rows[1], cuts), strict=True)
    split = {"a": data["a"]} | {f"o{k}": LabelledTable(*p) for k, p in enumerate(parts)}
    assert_allclose(trained(split, way, plan).theta, trained(data, way, plan).theta, rtol=1e-9)


def test_a_site_that_is_away_is_not_in_the_mean_of_those_rounds():
    data, away = tables("abcd"), (2, 3)
    found = trained(
        data, "ditto", quorum=0.0, absent=lambda call, site: site == "b" and call in away
    )
    wanted = by_ditto(data, here=lambda r: [s for s in data if not (s == "b" and r in away)])
    assert_allclose(found.theta, wanted, rtol=1e-10)


def test_a_site_that_was_away_goes_on_from_its_own_part():
    data = tables("abcd")
    found = trained(data, "fedper", rounds=3, quorum=0.0,
                    absent=lambda call, site: site == "a" and call == 1)  # fmt: skip
    w, own = np.zeros(4), {s: np.zeros(4) for s in data}
    for r in range(3):
        there = [s for s in data if not (s == "a" and r == 1)]
        parts = {s: descend(np.where(OWN, own[s], w), data[s]) for s in there}
        own |= parts
        w = mean_of(parts, data, there)
    assert_allclose(found.theta, np.where(OWN, own["a"], w), rtol=1e-10)


def test_without_the_users_site_there_is_no_model_at_the_end():
    with pytest.raises(SiteUnavailable):
        trained(tables("abcd"), "finetune", quorum=0.0,
                absent=lambda call, site: site == "a" and call >= ROUNDS)  # fmt: skip


def test_after_a_sum_over_two_sites_the_user_is_not_asked():
    fed = federation(tables("abc"), quorum=0.0, absent=lambda call, site: (call, site) == (3, "c"))
    with pytest.raises(SiteUnavailable, match="only a, b answered; the sum over them and the"):
        trained({}, "ditto", fed=fed)
    assert not [line for line in map(json.loads, fed.ledger.lines) if line["verb"] == "gather"]


def gathered(fed):
    return [line for line in map(json.loads, fed.ledger.lines) if line["verb"] == "gather"]


@pytest.mark.parametrize("way", sorted(set(personal.TOLD) - {"local"}))
def test_a_sum_that_two_sites_teach_is_not_hidden_by_a_third_without_a_death(way):
    """It replies what it was sent: the others' sum is as if it were away."""
    plan = replace(PLAN, loss="cox", network=Mlp(inputs=2, hidden=(), intercept=False).spec)
    data, own = survivors("abcd"), {"own": ((0, 1),)} if way in personal.PARTED else {}
    data["c"] = data["c"]._replace(event=np.zeros(len(data["c"].x), bool))
    assert np.isfinite(trained(data, way, plan, **own).theta).all()
    three = federation({s: data[s] for s in "abc"})
    with pytest.raises(
        NothingToLearn, match="at most 2 sites had rows to learn from; 3 are needed"
    ):
        trained({}, way, plan, fed=three, **own)
    away = federation(data, quorum=0.0, absent=lambda call, site: (call, site) == (2, "d"))
    with pytest.raises(
        NothingToLearn, match="at most 2 sites had rows to learn from; 3 are needed"
    ):
        trained({}, way, plan, fed=away, **own)
    assert not gathered(three)
    assert not gathered(away)


def test_a_user_of_few_rows_tells_no_side():
    data = tables("abcdef")
    data["a"] = LabelledTable(data["a"].x[:4], data["a"].y[:4])
    fed = federation(data)
    with pytest.raises(NothingToLearn, match="'a' has nothing to learn from: it has fewer than 5"):
        trained({}, "cluster", fed=fed, warm=2)
    assert gathered(fed)  # it was asked, and said no more than that
    assert len(trained(data, "cluster", user="b", warm=2).counts) == 2


@pytest.mark.parametrize("way", sorted(set(GIVEN) - {"local", "global"}))
def test_two_sites_are_refused_and_one_is_not(way):
    with pytest.raises(SettingError, match="needs 3 sites or more"):
        trained(tables("ab"), way)
    assert np.isfinite(trained(tables("a"), way, user="").theta).all()


def test_of_two_sites_local_and_global_are_as_ever():
    data = tables("ab")
    assert_allclose(trained(data, "global").theta, common(data)[-1], rtol=1e-10)
    assert_array_equal(trained(data, "local").theta, trained(tables("abcd"), "local").theta)


@pytest.mark.parametrize("user", ["", "z"])
@pytest.mark.parametrize("way", GIVEN)
def test_a_user_that_is_no_site_is_named_with_those_there_are(way, user):
    with pytest.raises(SettingError, match=r"setting 'user' .*the model is for: a, b, c"):
        trained(tables(), way, user=user)


@pytest.mark.parametrize("way", ["local", "finetune", "ditto", "fedrep"])
def test_a_user_of_few_rows_tells_nothing(way):
    data = tables()
    data["a"] = LabelledTable(data["a"].x[:4], data["a"].y[:4])
    with pytest.raises(NothingToLearn, match="'a' has nothing to learn from: it has fewer than 5"):
        trained(data, way)


def test_models_of_earlier_rounds_are_those_of_fits_that_ended_there():
    data = tables("abcdef")
    for way in GIVEN:
        kept = trained(data, way, keep=(2, 5), warm=1, least=2).kept
        assert set(kept) == {2, 5}
        for r, theta in kept.items():
            ended = trained(data, way, rounds=r, warm=1, least=2)
            assert_array_equal(theta, ended.theta, err_msg=way)


# what is seen -------------------------------------------------------------------------


@pytest.mark.parametrize("way", GIVEN)
def test_only_the_user_tells_a_model_and_all_else_is_sums(way):
    fed = federation(tables("abcdef"))
    trained({}, way, fed=fed, keep=(2,))
    lines = [json.loads(line) for line in fed.ledger.lines]
    told = [line for line in lines if line["verb"] == "gather" and line["step"] != "tell_takes"]
    sides = [line for line in lines if line["step"] == "tell_takes"]
    assert bool(sides) == (way == "cluster")
    assert all(not f["shape"] for line in sides for f in line["fields"].values())
    assert {line["site"] for line in told} == (set() if way == "global" else {"a"})
    steps_told = {line["step"] for line in told}
    assert steps_told <= {"tell_personal", "tell_alone", "tell_side"}
    if way == "local":
        assert lines == told
    if way == "cluster":
        assert all(not f["shape"] for line in told for f in line["fields"].values())


@pytest.mark.parametrize("way", ["fedper", "fedrep"])
def test_a_sites_own_part_is_not_in_its_reply(way, monkeypatch):
    """What it gives to the sum has in its place what was sent."""
    seen = []
    inner = steps.with_own_part

    def spied(*asked):
        found = inner(*asked)
        seen.append((asked[1], found[0], found[1].theta))
        return found

    monkeypatch.setattr(steps, "with_own_part", spied)
    trained(tables("abc"), way)
    assert len(seen) == 3 * ROUNDS
    for sent, reply, own in seen:
        assert_array_equal(reply[OWN], sent[OWN])
        assert (reply[~OWN] != sent[~OWN]).all()
        assert (own != sent[OWN]).all()


def test_a_site_that_is_not_the_user_tells_nothing_to_nobody():
    fed, way = federation(tables()), Way(name="ditto", user="a", pull=1.0).text
    asked = {"theta": np.zeros(4), "plan": PLAN.text, "rate": RATE, "way": way}
    with pytest.raises(Refused, match="'b' does not tell its own model: the model is for 'a'"):
        fed.only("b").gather(steps.tell_personal, **asked, min_cell=5)
    with pytest.raises(Refused, match="'b' does not tell its own model"):
        fed.only("b").gather(steps.tell_alone, **asked, rounds=1, keep=np.zeros(0, int), min_cell=5)
    with pytest.raises(Refused, match="'b' does not tell its model"):
        fed.only("b").gather(
            clusters.tell_side, thetas=np.zeros((2, 4)), plan=PLAN.text, way=way,
            open_=np.ones(2, bool), min_cell=5,
        )  # fmt: skip
    with pytest.raises(VerbRefused):
        fed.gather(steps.train_with_own, **asked)


def test_a_reply_that_cannot_be_is_not_believed():
    one, asked = np.array(1.0), {"theta": np.zeros(4), "rounds": 2, "keep": np.array([1])}
    assert Told(np.ones(4), one, one, one).fault(asked) == ""
    assert "shape" in Told(np.ones(3), one, one, one).fault(asked)
    assert "other than 0 or 1" in Told(np.ones(4), one, 2 * one, one).fault(asked)
    assert Alone(np.ones((2, 4)), np.ones(2), one).fault(asked) == ""
    assert "shape" in Alone(np.ones((1, 4)), np.ones(2), one).fault(asked)
    assert "losses" in Alone(np.ones((2, 4)), np.ones(3), one).fault(asked)
    two = {"thetas": np.zeros((2, 4)), "open_": np.array([False, True])}
    assert [clusters.Side(np.array(j)).fault(two) for j in (-1, 1)] == ["", ""]
    for odd in (np.array(0), np.array(2), np.array(1.5), np.array([1])):
        assert "may not be chosen" in clusters.Side(odd).fault(two)
    assert [steps.Learners(np.array(k)).fault({}) for k in (0, 1)] == ["", ""]
    for odd in (np.array(2), np.array(-1), np.array(0.5), np.ones(2)):
        assert "a number of sites other than 0 or 1" in steps.Learners(odd).fault({})


# clusters -----------------------------------------------------------------------------


def log_loss(theta, table):
    f = table.x @ theta[:-1] + theta[-1]
    return np.mean(np.logaddexp(0, f) - table.y * f) + L2 / 2 * theta[:-1] @ theta[:-1]


def by_ifca(data, warm, least):
    """Ghosh et al.'s Algorithm 1 from the split that the module's header has."""
    w = common(data)[warm]
    z = np.random.default_rng((SEED, 0x736964)).standard_normal((clusters.TRIES, 2, 4))
    z[:, 1] = -z[:, 0]
    z *= clusters.APART * np.linalg.norm(w) / np.linalg.norm(z, axis=2, keepdims=True)
    scores = []
    for pair in w + z:
        losses = {s: [log_loss(theta, t) for theta in pair] for s, t in data.items()}
        sides = np.bincount([np.argmin(both) for both in losses.values()], minlength=2)
        score = sum(len(data[s].x) * min(both) for s, both in losses.items())
        scores.append(score if sides.min() >= least else np.inf)
    models = list((w + z)[int(np.argmin(scores))])
    for _ in range(warm, ROUNDS):
        took = {s: int(np.argmin([log_loss(m, t) for m in models])) for s, t in data.items()}
        before = list(models)
        for j in set(took.values()):
            group = [s for s in data if took[s] == j]
            models[j] = mean_of({s: descend(before[j], data[s]) for s in group}, data, group)
    side = int(np.argmin([log_loss(m, data["a"]) for m in models]))
    return models[side], np.bincount(list(took.values()), minlength=2)


def test_clusters_are_ifca_from_the_split_that_is_described():
    data = tables("abcdef")
    found = trained(data, "cluster", warm=3)
    theta, sides = by_ifca(data, 3, 3)
    assert_allclose(found.theta, theta, rtol=1e-9)
    assert found.counts.tolist() == sides.tolist() == [3, 3]


def test_sites_with_opposite_effects_part_and_the_users_model_is_that_of_its_kind():
    data = tables("abcdef")
    found, whole = trained(data, "cluster", rounds=12, warm=4), trained(data, "global", rounds=12)
    alike = trained({s: data[s] for s in "abd"}, "global", rounds=30)
    away = np.linalg.norm(found.theta - alike.theta)
    assert away < 0.2 * np.linalg.norm(whole.theta - alike.theta)


def test_a_cluster_of_few_is_closed_and_its_sites_take_another():
    """Of five sites one is apart: alone it would tell its model."""
    data = tables("abcd") | {"e": tables("b")["b"]}
    fed = federation(data)
    found = trained({}, "cluster", fed=fed, n_clusters=2, least=2, warm=2)
    assert found.counts.sum() == 5 and set(found.counts.tolist()) <= {0, 2, 3, 5}
    for row in fed.history:
        assert all(v == 0 or v >= 2 for k, v in row.items() if k.startswith("sites"))


def test_a_split_in_which_too_few_take_a_side_is_not_taken():
    """Five sites of the same rows are on one side, whatever is drawn; the sixth would be alone."""
    data = dict.fromkeys("abdef", tables("b")["b"]) | tables("c")
    start, w = np.zeros(4), common(data)[2]
    held = clusters.Clusters([Server.at(w, rate=1, beta1=0, beta2=0, tau=1)])
    assert clusters._split(federation(data), held, start, PLAN, 2, 3, SEED) is held
    apart = clusters._split(federation(data), held, start, PLAN, 2, 1, SEED)
    assert sorted(apart.counts.tolist()) == [1, 5]


def test_where_too_few_sites_could_part_nothing_is_split():
    fed = federation(tables("abcde"))
    found = trained({}, "cluster", fed=fed)
    assert len(found.counts) == 0
    assert {json.loads(line)["step"] for line in fed.ledger.lines} == {"train_here"}


def test_a_site_gives_nothing_to_a_model_that_it_does_not_take():
    """Sites that take another one add nothing, so that a lie about their number hid nobody."""
    models = np.array([[1.5, -1.0, 0.5, 0.3], [-1.5, 1.0, -0.5, -0.3]])
    told = {"thetas": models, "plan": PLAN.text, "open_": np.ones(2, bool)}
    fed = federation(tables())
    takes = {s: int(t.takes) for s, t in fed.gather(clusters.tell_takes, **told).items()}
    assert len(set(takes.values())) == 2
    for side in (0, 1):
        with pytest.raises(Refused, match="chose another model than this one"):
            fed.sum(clusters.train_taken, **told, theta=models[side], side=side, rate=RATE, least=3)
    with pytest.raises(Refused, match="chose another model"):
        fed.only("c").sum(
            clusters.train_taken, **told, theta=models[0] + 1, side=takes["c"], rate=RATE, least=3
        )


def test_a_site_gives_nothing_to_a_model_that_too_few_take():
    models = np.array([[1.5, -1.0, 0.5, 0.3]])
    told = {"thetas": models, "plan": PLAN.text, "open_": np.ones(1, bool), "rate": RATE}
    with pytest.raises(Refused, match="would be one of 3 in the sum of models; 6 are needed"):
        federation(tables()).sum(clusters.train_taken, **told, theta=models[0], side=0, least=6)


def test_a_site_that_can_learn_nothing_takes_no_side_and_is_in_no_count():
    data = survivors("abc")
    data["c"] = data["c"]._replace(event=np.zeros(ROWS["c"], bool))
    models = np.array([[1.0, -0.5], [-1.0, 0.5]])
    taken = federation(data).gather(
        clusters.tell_takes, thetas=models, plan=COX.text, open_=np.ones(2, bool)
    )
    assert taken["c"].takes == -1
    assert all(taken[s].takes >= 0 for s in "ab")


# which part is a site's own -----------------------------------------------------------


def test_the_last_layer_is_found_in_every_kind_of_network():
    assert last_layer(Mlp(inputs=3, hidden=(4, 2)).spec) == ((26, 28), (28, 29))
    assert last_layer(Mlp(inputs=3, hidden=(4,), intercept=False).spec) == ((16, 20),)
    assert last_layer(Mlp(inputs=3, hidden=()).spec) == ((3, 4),)
    assert last_layer(Mlp(inputs=3, hidden=(), intercept=False).spec) == ()
    assert of_columns(Mlp(inputs=3, hidden=()).spec, [2, 0]) == ((0, 1), (2, 3), (3, 4))
    net = Vae(inputs=5, latent=2, hidden=(3,))
    assert last_layer(net.spec) == ((net.size - 20, net.size - 5), (net.size - 5, net.size))
    views = Mcvae(views=(0, 0, 1), latent=2)
    parts = [part.size for part in views.parts]
    first, second = parts[0], sum(parts)
    assert last_layer(views.spec) == (
        (first - 6, first - 2), (first - 2, first), (second - 3, second - 1), (second - 1, second),
    )  # fmt: skip


def test_a_way_is_the_same_after_its_text():
    for name, given in GIVEN.items():
        way = Way(name=name, user="a", **given)
        assert Way.of(way.text) == way
