"""R of a training is that of the sites' gradients on parts of their rows, and needs sums alone."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

from fedcohort.data.tables import FeatureTable, LabelledTable, SurvivalTable
from fedcohort.metrics.trajectories import Contribution
from fedcohort.models.network import Mlp, initial
from fedcohort.models.objectives import Elbo
from fedcohort.models.vae import Vae
from fedcohort.protocol import VerbRefused
from fedcohort.protocol.host import Host
from fedcohort.protocol.step import entropy
from fedcohort.runtime.local import local
from fedcohort.training import heterogeneity
from fedcohort.training.heterogeneity import Watch, watch_here
from fedcohort.training.networks import strategies
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg
from fedcohort.training.rows import known_rows
from mixing import mixing_of

SEED, PARTS, ROWS = 4, 4, {"a": 40, "b": 67, "c": 52}
PLAN = Plan(network=Mlp(inputs=2, hidden=()).spec, loss="logistic", epochs=2, optimiser="sgd")
STEPS = (*strategies.STEPS, *heterogeneity.STEPS)


def tables(sign=1.0, rows=ROWS):
    made = {}
    for name, n in rows.items():
        rng = np.random.default_rng(ord(name))
        x = rng.normal(size=(n, 2))
        eta = (sign if name == "c" else 1.0) * (x @ [1.5, -1.0]) + 0.2
        made[name] = LabelledTable(x, (rng.random(n) < expit(eta)).astype(float))
    return made


def federation(data, **options):
    return local([Host(n, t, STEPS, SEED) for n, t in data.items()], **options)


def trained(fed, seen=None, rounds=PARTS, plan=PLAN, theta=None):
    theta = np.zeros(3) if theta is None else theta
    server = Server.at(theta, rate=1.0, beta1=0.9, beta2=0.99, tau=1e-3)
    schedule = Schedule(rounds=rounds, learning_rate=0.3, lr_rule="constant")
    return strategies.averaging(fed, plan, schedule, fedavg, server, lambda _: 0.0, watch=seen)


def own_parts(name, n):
    drawn = np.random.default_rng((*entropy(SEED, name, 0)[:2], 0x77617463, 0)).permutation(n)
    return np.array_split(drawn, PARTS)


def gradient(table, rows, theta):
    x = np.c_[table.x[rows], np.ones(len(rows))]
    return x.T @ (expit(x @ theta) - table.y[rows]) / len(rows)


def averaged(data, theta):
    """One round: two steps at each site, then the mean by rows."""
    total, n = np.zeros(3), 0
    for table in data.values():
        own = theta.copy()
        for _ in range(PLAN.epochs):
            own -= 0.3 * gradient(table, np.arange(len(table.y)), own)
        total, n = total + len(table.y) * own, n + len(table.y)
    return total / n


@pytest.mark.parametrize("kind", ["gradient", "loss"])
def test_r_is_of_each_sites_own_points_written_out(kind):
    data, fed = tables(), None
    points, theta = [], np.zeros(3)
    for t in range(PARTS):
        row = []
        for name, table in data.items():
            rows = own_parts(name, len(table.y))[t]
            if kind == "gradient":
                row.append(gradient(table, rows, theta))
            else:
                eta = np.c_[table.x[rows], np.ones(len(rows))] @ theta
                row.append([np.mean(np.logaddexp(0, eta) - table.y[rows] * eta)])
        points.append(row)
        theta = averaged(data, theta)
    fed = federation(data)
    seen = Watch(fed, PLAN, kind, parts=(PARTS,))
    trained(fed, seen)
    weights = np.array(list(ROWS.values())) / PARTS
    expected = mixing_of(np.swapaxes(np.array(points), 0, 1), weights, level=0.05 / 4)
    assert_allclose(seen.found, expected, rtol=1e-6)
    assert fed.history[-1]["R"] == pytest.approx(expected.r)
    assert fed.history[-1]["R_alarm"] == pytest.approx(expected.alarm)
    assert "R" not in fed.history[0]


def test_watching_changes_no_model():
    plain = trained(federation(tables()))
    fed = federation(tables())
    assert_allclose(trained(fed, Watch(fed, PLAN, "gradient")).theta, plain.theta, rtol=0, atol=0)


def test_effects_of_the_other_sign_alarm_and_sites_that_are_alike_do_not():
    found = {}
    for sign in (1.0, -1.0):
        fed = federation(tables(sign, dict.fromkeys("abc", 300)))
        seen = Watch(fed, PLAN, "gradient", parts=(10,))
        trained(fed, seen, rounds=10)
        found[sign] = seen.fired
    assert found[1.0] is None
    assert found[-1.0] is not None


def test_a_training_can_end_at_the_alarm_and_its_model_is_that_of_the_rounds_before():
    data = tables(-1.0, dict.fromkeys("abc", 300))
    fed = federation(data)
    seen = Watch(fed, PLAN, "gradient", ends=True)
    course = trained(fed, seen, rounds=10)
    assert 1 < course.rounds < 10
    assert course.rounds == seen.fired
    assert_allclose(course.theta, trained(federation(data), rounds=course.rounds).theta)


def test_no_site_tells_its_own_point():
    fed = federation(tables())
    given = {
        "theta": np.zeros(3), "plan": PLAN.text, "watch": "loss", "parts": 4, "lap": 0, "turn": 0,
        "min_cell": 5, "columns": np.ones(2, bool),
    }  # fmt: skip
    with pytest.raises(VerbRefused):
        fed.gather(watch_here, **given)
    fed.sum(watch_here, **given)


def test_masks_and_the_order_of_sites_change_no_bit():
    data, histories = tables(), []
    for given in ({}, {"secure": "true"}, {"turned": True}):
        turned = given.pop("turned", False)
        fed = federation(dict(reversed(data.items())) if turned else data, **given)
        trained(fed, Watch(fed, PLAN, "gradient", parts=(PARTS,)))
        histories.append(fed.history)
    assert histories[0] == histories[1] == histories[2]
    assert "R" in histories[0][-1]


def test_a_site_whose_parts_are_too_small_takes_no_part():
    data = tables(rows={"a": 60, "b": 60, "c": 18, "d": 60})
    fed, rest = federation(data), federation({k: data[k] for k in "abd"})
    seen, less = (Watch(f, PLAN, "gradient", parts=(PARTS,), least=5) for f in (fed, rest))
    for theta in (np.zeros(3), np.ones(3), np.zeros(3)):
        seen(theta)
        less(theta)
    assert_allclose(seen.found, less.found)


def test_where_a_site_stays_away_the_lap_starts_again_without_it():
    data = tables(rows={**ROWS, "d": 44})
    fed = federation(data, quorum=0.5, absent=lambda call, site: call > 3 and site == "b")
    seen = Watch(fed, PLAN, "gradient", parts=(10,))
    rounds = []
    for _ in range(6):
        seen(np.zeros(3))
        rounds.append(None if seen.found is None else (seen.found.rounds, seen.found.sites))
    assert rounds == [None, (2, 4), (3, 4), None, (2, 3), (3, 3)]


def test_after_a_lap_rows_are_dealt_anew():
    fed = federation(tables())
    seen = Watch(fed, PLAN, "gradient", parts=(3,))
    rs = []
    for _ in range(6):
        seen(np.zeros(3))
        rs.append(None if seen.found is None else seen.found.r)
    assert rs[0] is None
    assert rs[3] is None
    assert rs[5] != rs[2]


def test_a_long_gradient_is_watched_by_a_sketch_of_the_same_length_on_average():
    g = np.random.default_rng(0).normal(size=500)
    lengths = [np.sum(heterogeneity.sketch(g, seed) ** 2) for seed in range(300)]
    assert np.mean(lengths) == pytest.approx(g @ g, rel=0.1)
    assert heterogeneity.sketch(g, 1).shape == (heterogeneity.WIDTH,)
    assert_allclose(heterogeneity.sketch(g[:5], 1), g[:5])


COX = Plan(network=Mlp(inputs=2, hidden=(), intercept=False).spec, loss="cox")


def survivors(deaths):
    """Return 40 rows of each site, of which the first so many died."""
    rng = np.random.default_rng(1)
    return {
        n: SurvivalTable(rng.normal(size=(40, 2)), rng.exponential(size=40), np.arange(40) < d)
        for n, d in deaths.items()
    }


def asked_of(fed):
    return [json.loads(line)["step"] for line in fed.ledger.lines]


def test_a_part_without_a_death_is_no_obstacle_where_others_hide_it():
    fed = federation(survivors({"a": 3, "b": 40, "c": 40, "d": 40}))
    seen = Watch(fed, COX, "gradient")
    for _ in range(3):
        seen(np.zeros(2))
    assert seen.found is not None
    assert seen.found.sites == 4


@pytest.mark.parametrize(
    ("deaths", "least"),
    [({"a": 3, "b": 40}, 1), ({"a": 40}, 1), ({"a": 12, "b": 12}, 10), ({"a": 3, "b": 3}, 1)],
    ids=str,
)
def test_a_sum_that_is_of_one_site_or_of_few_deaths_is_not_asked_for(deaths, least):
    """Of a part without a death the point is 0, so that the sum would be the other site's own."""
    fed = federation(survivors(deaths))
    seen = Watch(fed, COX, "gradient", parts=(4,) if least > 1 else (10,), least=least)
    for _ in range(3):
        assert not seen(np.zeros(2))
    assert seen.found is None
    assert set(asked_of(fed)) == {"count_watched"}


def test_of_two_sites_in_a_sum_each_points_follow_so_that_two_of_more_are_not_asked():
    """x = x̄ + (w of the other) d/(w in all), where d dᵀ is what is left of Σ w x xᵀ about x̄."""
    data = tables(rows={"a": 100, "b": 140, "c": 30})
    fed = federation(data)
    given = {
        "theta": np.full(3, 0.3), "plan": PLAN.text, "watch": "gradient", "parts": 10, "lap": 0,
        "turn": 0, "min_cell": 5, "columns": np.ones(2, bool),
    }  # fmt: skip
    told = fed.sum(watch_here, **given)
    mean, w, v = told.first / told.weight, 10.0, 14.0
    rest = (told.products / told.weight - np.outer(mean, mean)) * told.weight**2 / (w * v)
    value, vector = np.linalg.eigh(rest)
    own = federation({"a": data["a"]}).sum(watch_here, **given).first / w
    both = [mean + sign * v / (w + v) * np.sqrt(value[-1]) * vector[:, -1] for sign in (1, -1)]
    assert min(np.abs(own - x).max() for x in both) < 1e-7
    fed = federation(data)
    trained(fed, Watch(fed, PLAN, "gradient", least=5))
    assert "watch_here" not in asked_of(fed)
    assert "R" not in fed.history[-1]


def test_the_only_site_that_is_large_enough_is_not_asked_for_its_gradient():
    fed = federation(tables(rows={"a": 200, "b": 30, "c": 30}))
    seen = Watch(fed, PLAN, "gradient", parts=(10,), least=5)
    trained(fed, seen)
    assert "watch_here" not in asked_of(fed)
    assert "R" not in fed.history[-1]


@pytest.mark.parametrize(
    ("change", "said"),
    [({"sites": np.array(5.0)}, "a number of sites"), ({"weight": np.array(-1.0)}, "a weight"),
     ({"weight": np.array(0.0)}, "a weight"), ({"sites": np.ones(2)}, "not one number"),
     ({"past": np.eye(3)}, "another shape")],
    ids=str,
)  # fmt: skip
def test_a_part_in_a_trajectory_that_cannot_be_is_refused(change, said):
    fine = Contribution.of(np.ones(2), np.ones(2), 10.0)
    assert fine.fault({}) == Contribution.nothing(2).fault({}) == ""
    assert said in replace(fine, **change).fault({})


def classes(ones, n=40):
    """Return n rows of each site, of which the first so many, dealt anew, are 1."""
    rng = np.random.default_rng(2)
    return {
        name: LabelledTable(rng.normal(size=(n, 2)), (rng.permutation(n) < k).astype(float))
        for name, k in ones.items()
    }


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("ones", "least", "asked"), [(2, 2, False), (20, 5, True), (6, 4, False)])
def test_a_part_in_which_few_are_of_one_class_is_not_asked_for(ones, least, asked, turned):
    data = classes(dict.fromkeys("ab", 40 - ones if turned else ones))
    fed = federation(data)
    Watch(fed, PLAN, "gradient", parts=(PARTS,), least=least)(np.zeros(3))
    assert ("watch_here" in asked_of(fed)) == asked
    drawn = {n: own_parts(n, 40) for n in data}
    ones = np.array([[data[n].y[drawn[n][t]].sum() for t in range(PARTS)] for n in data])
    of_both = ones.sum(axis=0)
    assert asked == (min(of_both.min(), (20 - of_both).min()) >= least)


def test_of_a_column_in_which_few_differ_no_weight_is_told():
    """At θ = 0 the weight of a level that one patient has would tell that patient's outcome."""
    rng = np.random.default_rng(3)
    data = {
        n: LabelledTable(np.c_[rng.normal(size=60), np.arange(60) < 6, rng.random(60) < 0.5],
                         (rng.random(60) < 0.5).astype(float))
        for n in "ab"
    }  # fmt: skip
    plan = replace(PLAN, network=Mlp(inputs=3, hidden=()).spec)
    fed = federation(data)
    asked = []

    def listening(step, **given):
        asked.append((step, given))
        return type(fed).sum(fed, step, **given)

    fed.sum = listening
    Watch(fed, plan, "gradient", parts=(PARTS,), least=3)(np.zeros(4))
    _, (step, given) = asked
    assert step is watch_here
    assert given["columns"].tolist() == [True, False, True]
    told = fed.sum(watch_here, **given)
    whole = fed.sum(watch_here, **{**given, "columns": np.ones(3, bool)})
    assert told.first[1] == 0.0 != whole.first[1]
    assert_allclose(told.first[[0, 2, 3]], whole.first[[0, 2, 3]])


def blank(n, seed, missing=0.2):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    x[rng.random(x.shape) < missing] = np.nan
    x[0] = np.nan  # a row that knows nothing
    return FeatureTable(x)


def test_an_autoencoder_is_watched_with_noise_drawn_anew_and_few_numbers_of_a_small_one():
    """Noise that all rounds and sites share would be a difference of sites of other sizes."""
    net = Vae(inputs=3, latent=1, hidden=(), activation="tanh", sees_mask=False)
    plan = Plan(network=net.spec, loss=Elbo(beta=1.0).spec, epochs=1, optimiser="sgd")
    rows = known_rows(blank(41, 1), plan, (0, 1))
    assert len(rows.x) == 40
    theta = initial(plan.network, 0)
    one, same, other = (
        heterogeneity.point_of(theta, rows, plan, "gradient", np.zeros(0, bool), (0, 1, call))
        for call in (7, 7, 8)
    )
    assert len(one) == len(theta) // heterogeneity.MIXED < heterogeneity.WIDTH
    assert_allclose(one, same, rtol=0, atol=0)
    assert (one != other).all()
    fed = federation({n: blank(61, k) for k, n in enumerate("ab")})
    seen = Watch(fed, plan, "gradient", parts=(PARTS,), least=5)
    for _ in range(PARTS):
        seen(theta)
    assert seen.found is not None
    assert seen.found.sites == 2


def test_where_ten_parts_have_too_few_a_lap_has_five():
    data = classes({"a": 14, "b": 14}, n=100)
    ones = {}
    for parts in (10, 5):
        dealt = {n: np.array_split(np.concatenate(own_parts(n, 100)), parts) for n in data}
        ones[parts] = min(sum(data[n].y[dealt[n][t]].sum() for n in data) for t in range(parts))
    least = int(ones[5])
    assert ones[10] < least
    fed = federation(data)
    seen = Watch(fed, PLAN, "gradient", parts=(10, 5), least=least)
    for _ in range(6):
        seen(np.zeros(3))
    lines = [json.loads(line) for line in fed.ledger.lines]
    asked = [line["step"] for line in lines if line["site"] == "a"]
    lap = ["count_watched"] * 2 + ["watch_here"] * 5
    assert asked[:7] == lap
    assert asked[7:9] == ["count_watched"] * 2 or asked[7:9] == ["count_watched", "watch_here"]


def counted(fed, parts, least):
    return fed.sum(heterogeneity.count_watched, plan=PLAN.text, parts=parts, lap=0, min_cell=least)


def test_counts_in_tenths_and_in_fifths_are_of_the_same_sites():
    """Else a site with rows enough for one of them alone would tell its ones by the difference."""
    data = {**classes({"a": 30, "b": 30}, n=100), **classes({"c": 2}, n=60)}
    fed = federation(data)
    tenths, fifths = (counted(fed, parts, 8) for parts in (10, 5))
    assert tenths.sites == fifths.sites == 2
    assert tenths.kinds.sum(axis=0).tolist() == fifths.kinds.sum(axis=0).tolist() == [60, 140]


@pytest.mark.parametrize("n", [40, 63, 67, 109])
def test_a_fifth_is_two_tenths(n):
    """Else what both tell of would differ by single rows."""
    fed = federation(classes({"a": 20, "b": 20}, n=n))
    tenths, fifths = (counted(fed, parts, 1).kinds for parts in (10, 5))
    assert (tenths[::2] + tenths[1::2]).tolist() == fifths.tolist()
