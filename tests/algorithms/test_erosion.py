"""Weight Erosion is the paper's Algorithm 1, and no site's gradient but the user's is seen."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

import several
from fedcohort.algorithms.weight_erosion import erosion, gradient
from fedcohort.algorithms.weight_erosion.erosion import (
    Distance,
    Erosion,
    Slope,
    Weighed,
    Weights,
    tell_distance,
    train_eroding,
)
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.models import losses
from fedcohort.models.network import Mlp, initial
from fedcohort.protocol import Refused, ReplyRejected, SettingError, VerbRefused
from fedcohort.protocol.host import Host
from fedcohort.protocol.step import entropy
from fedcohort.runtime.local import local
from fedcohort.training.networks.plan import Plan

SEED, ROUNDS, RATE, L2, BATCH = 5, 12, 0.8, 0.01, 16
PLAN = Plan(
    network=Mlp(inputs=3, hidden=()).spec, loss="logistic", epochs=1, batch_size=BATCH,
    optimiser="sgd", l2=L2,
)  # fmt: skip
FULL = Plan(network=PLAN.network, loss="logistic", epochs=1, optimiser="sgd", l2=L2)
BY = Erosion(distance=0.03, size=0.2)
EFFECTS = {"a": 1.0, "b": 1.0, "c": -1.0, "d": 0.6}
ROWS = {"a": 40, "b": 70, "c": 23, "d": 55}


def tables(names="abc"):
    """Return sites of which c has its labels the other way round."""
    made = {}
    for name in names:
        rng = np.random.default_rng(ord(name))
        x = rng.normal(size=(ROWS[name], 3))
        p = expit(EFFECTS[name] * (x @ [1.5, -1.0, 0.5] + 0.3))
        made[name] = LabelledTable(x, (rng.random(len(x)) < p).astype(float))
    return made


def federation(data, **options):
    return local([Host(n, t, erosion.STEPS, SEED) for n, t in data.items()], **options)


def trained(data, plan=PLAN, visit="batch", by=BY, rounds=ROUNDS, user="a", **options):
    fed = federation(data, **options)
    theta = np.zeros(len(initial(plan.network, 0)))
    found = train_eroding(fed, user, theta, plan, rounds, RATE, visit=visit, by=by, min_cell=5)
    return found, fed


def mean_gradient(theta, table, rows):
    """(p − y) x averaged, and λW: the intercept stands last."""
    x = np.c_[table.x[rows], np.ones(len(rows))]
    return x.T @ (expit(x @ theta) - table.y[rows]) / len(rows) + L2 * np.r_[theta[:-1], 0.0]


def by_numpy(
    data, *, user="a", batch, by=BY, there=lambda r, site: True, size=4, slope=mean_gradient
):
    """Algorithm 1, with the rounds of each site and the start of late ones as in the errata."""
    theta, alpha, past, told = np.zeros(size), {}, dict.fromkeys(data, 0), []
    for r in range(ROUNDS):
        here = [s for s in data if s == user or there(r, s)]
        g = {}
        for s in here:
            n = len(data[s].x)
            rows = np.arange(n)
            if batch and batch < n:
                draw = (*entropy(SEED, s, 0)[:2], r, gradient.TAG)
                rows = np.sort(np.random.default_rng(draw).choice(n, batch, replace=False))
            g[s] = slope(theta, data[s], rows)
        late = np.median([1.0, *alpha.values()])
        for s in here:
            if s == user:
                continue
            n = len(data[s].x)
            d = np.linalg.norm(g[s] - g[user]) / np.linalg.norm(g[user])
            k = past[s] * min(batch or n, n) // n
            alpha[s] = max(0.0, alpha.get(s, late) - (1 + by.size * k) * by.distance * d)
            past[s] += 1
        weights = {user: 1.0} | {s: alpha[s] for s in here if s != user}
        if sum(w > 0 for w in weights.values()) < 3:
            weights = {user: 1.0}
        total = sum(w * g[s] for s, w in weights.items())
        theta = theta - RATE * total / sum(weights.values())
        told.append(dict(alpha))
    return theta, {user: 1.0, **alpha}, told


@pytest.mark.parametrize("visit", ["batch", "full"])
def test_it_is_algorithm_1_in_plain_numpy_every_weight_of_every_round(visit):
    data = tables("abcd")
    plan, batch = (PLAN, BATCH) if visit == "batch" else (FULL, 0)
    found, fed = trained(data, plan, visit)
    theta, alpha, told = by_numpy(data, batch=batch)
    assert_allclose(found.theta, theta, rtol=1e-11)
    assert found.alpha == pytest.approx(alpha, rel=1e-11)
    assert alpha["c"] == 0.0 < alpha["d"]  # so that both kinds of round are in it
    for row, wanted in zip(fed.history, told, strict=True):
        assert {s: row[f"alpha {s}"] for s in "bcd"} == pytest.approx(wanted, abs=1e-11)


def class_gradient(theta, table, rows):
    """(p_k − 1(y = k)) x averaged, for each of K classes, and λW: intercepts stand last."""
    x, y, k = table.x[rows], table.y[rows], len(theta) // 4
    w, b = theta[: 3 * k].reshape(k, 3), theta[3 * k :]
    scores = np.exp(x @ w.T + b)
    over = scores / scores.sum(axis=1, keepdims=True) - (y[:, None] == np.arange(k))
    return np.r_[(over.T @ x / len(x) + L2 * w).ravel(), over.mean(axis=0)]


def plan_of(classes, **more):
    net = Mlp(inputs=3, hidden=(), outputs=classes).spec
    return replace(PLAN, network=net, loss=losses.several(classes), **more)


@pytest.mark.parametrize("visit", ["batch", "full"])
def test_of_three_classes_it_is_algorithm_1_with_coefficients_for_each(visit):
    data = several.graded()
    batch = BATCH if visit == "batch" else 0
    found, fed = trained(data, plan_of(3, batch_size=batch), visit)
    theta, alpha, told = by_numpy(data, batch=batch, size=12, slope=class_gradient)
    assert_allclose(found.theta, theta, rtol=1e-10, atol=1e-13)
    assert found.alpha == pytest.approx(alpha, rel=1e-10)
    assert alpha["c"] < alpha["d"]
    for row, wanted in zip(fed.history, told, strict=True):
        assert {s: row[f"alpha {s}"] for s in "bcd"} == pytest.approx(wanted, abs=1e-10)


def test_two_outputs_are_the_papers_layer_with_log_softmax_by_torch():
    """Grimberg 2020, section 4.4; its penalty was also on the intercepts, and is 0 here."""
    data, plan, by = tables("abcd"), plan_of(2, l2=0.0, batch_size=0), Erosion(distance=0.01)
    found, fed = trained(data, plan, "full", by)
    theta, alpha = torch.zeros(8, dtype=torch.float64), dict.fromkeys("bcd", 1.0)
    for r in range(ROUNDS):
        g = {}
        for site, table in data.items():
            layer = torch.nn.Linear(3, 2).double()
            torch.nn.utils.vector_to_parameters(theta, layer.parameters())
            out = torch.log_softmax(layer(torch.from_numpy(table.x)), dim=1)
            loss = torch.nn.functional.nll_loss(out, torch.from_numpy(table.y).long())
            slopes = torch.autograd.grad(loss, [*layer.parameters()])
            g[site] = torch.cat([s.ravel() for s in slopes])
        for site in alpha:
            d = float((g[site] - g["a"]).norm() / g["a"].norm())
            alpha[site] = max(0.0, alpha[site] - (1 + by.size * r) * by.distance * d)
            assert fed.history[r][f"alpha {site}"] == pytest.approx(alpha[site], abs=1e-10)
        weights = {"a": 1.0, **alpha}
        step = sum(w * g[s] for s, w in weights.items()) / sum(weights.values())
        theta = theta - RATE * step
    assert_allclose(found.theta, theta.numpy(), rtol=1e-9, atol=1e-12)
    assert alpha["c"] < 0.1 < alpha["b"]
    # the difference of both outputs is a logistic model at twice the rate
    assert_allclose(found.theta[:3], -found.theta[3:6], rtol=1e-9, atol=1e-14)


def test_a_user_with_few_rows_of_a_class_tells_no_gradient():
    data = several.graded()
    few = np.flatnonzero(data["a"].y == 2)[3:]
    kept = np.setdiff1d(np.arange(len(data["a"].y)), few)
    data["a"] = LabelledTable(data["a"].x[kept], data["a"].y[kept])
    found, _ = trained(data, plan_of(3), "full")
    assert found.flat == ROUNDS
    assert not found.theta.any()


def spread(x, y, theta, site):
    """v of eq. (4), of all rows, a plain loop over the parts."""
    draw = (*entropy(SEED, site, 0)[:2], gradient.PARTS_TAG)
    order = np.random.default_rng(draw).permutation(len(y))
    means = []
    for part in np.array_split(order, 10):
        rows = np.c_[x[part], np.ones(len(part))]
        means.append(((expit(rows @ theta) - y[part])[:, None] * rows).mean(axis=0))
    return sum(((m - np.mean(means, axis=0)) ** 2).sum() for m in means) / (10 * 9)


def test_against_noise_weights_fall_by_what_chance_does_not_explain_in_plain_numpy():
    data, by = tables("abcd"), Erosion(distance=0.05, size=0.1, against="noise")
    found, fed = trained(data, FULL, "full", by)
    theta, alpha = np.zeros(4), dict.fromkeys("bcd", 1.0)
    for r in range(ROUNDS):
        g = {s: mean_gradient(theta, t, np.arange(len(t.y))) for s, t in data.items()}
        v = {s: spread(t.x, t.y, theta, s) for s, t in data.items()}
        for s in alpha:
            d = max(0.0, np.sum((g[s] - g["a"]) ** 2) - 2 * (v[s] + v["a"])) / v["a"]
            alpha[s] = max(0.0, alpha[s] - (1 + 0.1 * r) * 0.05 * d)
            assert fed.history[r][f"alpha {s}"] == pytest.approx(alpha[s], abs=1e-10)
        weights = {"a": 1.0, **alpha}
        theta = theta - RATE * sum(weights[s] * g[s] for s in g) / sum(weights.values())
    assert_allclose(found.theta, theta, rtol=1e-10)
    assert 0.0 < fed.history[0]["alpha c"] < 1.0
    assert found.alpha["c"] == 0.0 < found.alpha["d"]


def test_against_noise_a_site_of_the_users_population_keeps_its_weight_at_the_users_optimum():
    """Against the gradient, which goes to 0 there, every site loses all."""
    kept = {"gradient": [], "noise": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        data = {}
        for name, n in {"a": 60, "b": 40, "c": 300, "d": 300}.items():
            x = rng.normal(size=(n, 3))
            sign = -1.0 if name == "d" else 1.0
            data[name] = LabelledTable(x, (rng.random(n) < expit(sign * x[:, 0])).astype(float))
        for against, ends in kept.items():
            by = Erosion(distance=0.4, size=0.0, against=against)
            alpha = trained(data, FULL, "full", by, rounds=8)[0].alpha
            ends.append((alpha["b"], alpha["c"], alpha["d"]))
    assert np.mean(kept["gradient"], axis=0).max() < 0.1
    small, large, flipped = np.mean(kept["noise"], axis=0)
    assert min(small, large) > 0.6
    assert flipped == 0.0


@pytest.mark.parametrize("loss", ["logistic", "cox"])
def test_the_variance_of_a_gradient_is_what_many_tables_have(loss):
    """Cox's gradient is no mean over rows: that of parts has a third less variance."""
    rng, found = np.random.default_rng(1), []
    net = Mlp(inputs=3, hidden=(), intercept=loss == "logistic").spec
    plan, theta = Plan(network=net, loss=loss, epochs=1, optimiser="sgd"), np.full(3, 0.3)
    for _ in range(120):
        x = rng.normal(size=(60, 3))
        if loss == "cox":
            time = rng.exponential(np.exp(-x[:, 0]))
            table = SurvivalTable(x, time, (rng.random(60) < 0.8).astype(int))
        else:
            table = LabelledTable(x, (rng.random(60) < expit(x[:, 0])).astype(float))
        told = local([Host("a", table, erosion.STEPS, SEED)]).gather(
            erosion.tell_slope, theta=theta if loss == "cox" else np.r_[theta, 0.3],
            plan=plan.text, visit="full", rate=RATE, draw=0, against="noise", user="", min_cell=5,
        )  # fmt: skip
        found.append(told["a"])
    wanted = np.array([one.gradient for one in found]).var(axis=0, ddof=1).sum()
    assert np.mean([one.noise for one in found]) == pytest.approx(wanted, rel=0.25)


def test_who_is_away_pays_for_the_rounds_that_it_took_part_in_alone():
    """Site b lacks rounds 3 to 5: calls are three a round until one weight of two is gone."""
    data, away = tables("abd"), (3, 4, 5)
    by = Erosion(distance=0.01)
    calls = [3 * r + k for r in away for k in (1, 2)]
    found, fed = trained(
        data, by=by, quorum=0.0, absent=lambda call, site: site == "b" and call in gone(calls)
    )
    theta, alpha, _ = by_numpy(
        data, batch=BATCH, by=by, there=lambda r, s: not (s == "b" and r in away)
    )
    assert_allclose(found.theta, theta, rtol=1e-11)
    assert found.alpha == pytest.approx(alpha, rel=1e-11)
    assert ["alpha b" in row for row in fed.history] == [r not in away for r in range(ROUNDS)]
    assert found.alone == {"d": 3}


def gone(calls):
    """In rounds without b, d is alone, and no sum is asked: two calls a round."""
    first = calls[0] - 1
    return {first + 1, first + 3, first + 5}


def test_who_joins_late_starts_at_the_median_of_all_weights():
    told = {s: Distance(*map(np.array, (d, 0.0, 0.0, 1.0))) for s, d in DISTANCES.items()}
    weights = Weights()
    weights.erode({s: told[s] for s in "bc"}, Erosion(distance=0.1))
    assert weights.alpha == pytest.approx({"b": 0.8, "c": 0.5})
    weights.erode(told, Erosion(distance=0.1))
    # median of the user's 1, 0.8 and 0.5 is 0.8, less 0.1
    assert weights.alpha == pytest.approx({"b": 0.6, "c": 0.0, "d": 0.7})
    assert weights.past == {"b": 2, "c": 2, "d": 1}


DISTANCES = {"b": 2.0, "c": 5.0, "d": 1.0}


@pytest.mark.parametrize(("degrees", "lost"), [(45, 0.0383), (180, 0.1)])
def test_gradients_of_one_length_cost_what_the_errata_say(degrees, lost):
    """2 sin(22.5°) · 0.05 = 0.0383, where the paper prints 1/24."""
    angle = math.radians(degrees)
    d = math.dist((math.cos(angle), math.sin(angle)), (1.0, 0.0))
    assert 1.0 - Erosion(distance=0.05, size=0.0)(1.0, d, 7.0) == pytest.approx(lost, abs=5e-5)


def test_rows_used_again_cost_more_and_no_weight_falls_below_0():
    by = Erosion(distance=0.1, size=0.2)
    assert by(1.0, 2.0, 3.0) == pytest.approx(1.0 - (1 + 0.6) * 0.1 * 2.0)
    assert by(0.1, 2.0, 0.0) == 0.0


def test_the_order_of_sites_changes_no_bit():
    data = tables("abcd")
    one = trained(data)[0]
    other = trained(dict(reversed(data.items())))[0]
    assert_array_equal(one.theta, other.theta)
    assert one.alpha == other.alpha


def test_without_penalty_it_is_gradient_descent_on_the_mean_of_the_sites_losses():
    data = tables("abcd")
    found, _ = trained(data, FULL, "full", Erosion(distance=0.0))
    theta = np.zeros(4)
    for _ in range(ROUNDS):
        every = [mean_gradient(theta, t, np.arange(len(t.x))) for t in data.values()]
        theta = theta - RATE * np.mean(every, axis=0)
    assert_allclose(found.theta, theta, rtol=1e-11)
    assert set(found.alpha.values()) == {1.0}


def test_a_user_alone_descends_its_own_loss():
    data = tables("a")
    for user in ("", "a"):
        found, _ = trained(data, FULL, "full", user=user)
        theta = np.zeros(4)
        for _ in range(ROUNDS):
            theta = theta - RATE * mean_gradient(theta, data["a"], np.arange(ROWS["a"]))
        assert_allclose(found.theta, theta, rtol=1e-11)
        assert found.alpha == {"a": 1.0}


def test_a_local_visit_of_one_pass_over_all_rows_is_the_full_gradient():
    data = tables("abcd")
    one, other = trained(data, FULL, "full")[0], trained(data, FULL, "local")[0]
    assert_allclose(one.theta, other.theta, rtol=1e-9)
    assert one.alpha == pytest.approx(other.alpha, abs=1e-9)


def test_flipped_labels_end_at_0_and_the_likest_site_keeps_most():
    found, _ = trained(tables("abcd"))
    assert found.alpha["c"] == 0.0
    assert found.alpha["b"] > found.alpha["d"] > 0.0


#: Of each of two rows in turn, as many ones as zeros.
HALVES = np.tile([0.0, 0.0, 1.0, 1.0], 5)


def test_at_the_users_optimum_nothing_is_divided_by_0_and_weights_stay():
    """With as many ones as zeros of each row, θ = 0 has no slope."""
    data = tables("abd")
    data["a"] = LabelledTable(np.tile([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]], (10, 1)), HALVES)
    plan = Plan(network=PLAN.network, loss="logistic", epochs=1, optimiser="sgd")
    found, fed = trained(data, plan, "full", rounds=3)
    assert found.flat == 3
    assert_array_equal(found.theta, np.zeros(4))
    assert found.alpha == {"a": 1.0}
    assert max(row["gradient"] for row in fed.history) < 1e-15


def test_no_model_is_summed_twice_where_steps_are_too_small_to_change_it():
    """Weights fall on meanwhile: a second sum there would tell two sites' gradients apart."""
    fed = federation(tables("abd"))
    theta = np.ones(4)
    found = train_eroding(
        fed, "a", theta, FULL, ROUNDS, 1e-30, visit="full", by=BY, min_cell=5
    )  # fmt: skip
    sums = [line for line in map(json.loads, fed.ledger.lines) if line["step"] == "weigh_slope"]
    assert {line["round"] for line in sums} == {0}
    assert found.flat == ROUNDS - 1
    assert_array_equal(found.theta, theta)


def test_a_site_of_few_rows_takes_no_part():
    data = tables("abd") | {"few": LabelledTable(np.eye(3), np.array([0.0, 1.0, 1.0]))}
    found, fed = trained(data)
    without = trained(tables("abd"))[0]
    assert "few" not in found.alpha
    assert_allclose(found.theta, without.theta, rtol=1e-12)
    lines = [json.loads(line) for line in fed.ledger.lines]
    assert {line["step"] for line in lines if line["site"] == "few"} <= {
        "tell_distance", "weigh_slope",
    }  # fmt: skip


# what is seen -------------------------------------------------------------------------


def test_the_last_site_with_a_weight_is_left_out_and_said_so():
    found, fed = trained(tables("abc"))  # c goes to 0, and b would be alone
    assert found.alpha["c"] == 0.0 < found.alpha["b"]
    lines = [json.loads(line) for line in fed.ledger.lines]
    sums = {line["round"] for line in lines if line["step"] == "weigh_slope"}
    assert found.alone["b"] == ROUNDS - len(sums)
    assert max(sums) == len(sums) - 1


def test_only_the_user_shows_a_gradient():
    _, fed = trained(tables("abcd"))
    lines = [json.loads(line) for line in fed.ledger.lines]
    assert {x["site"] for x in lines if x["step"] == "tell_slope"} == {"a"}
    for line in lines:
        if line["step"] == "tell_distance":
            assert all(not f["shape"] for f in line["fields"].values())
        assert (line["verb"] == "sum") == (line["step"] == "weigh_slope")


ASKED = {
    "theta": np.zeros(4), "plan": PLAN.text, "visit": "batch", "rate": RATE, "draw": 0,
    "min_cell": 5,
}  # fmt: skip


def test_a_variance_that_is_no_number_is_refused_and_no_error_of_the_coordinator():
    one = np.array(1.0)
    fine = Slope(np.zeros(4), one, one, one)
    assert fine.fault(ASKED) == ""
    assert "not one real number" in replace(fine, noise=np.ones(2)).fault(ASKED)
    assert "a variance below 0" in replace(fine, noise=-one).fault(ASKED)
    assert "a variance below 0" in replace(fine, part=2 * one).fault(ASKED)


def test_where_a_study_measures_by_the_gradient_no_site_tells_what_chance_makes_of_its_own():
    fed = federation(tables("abc"))
    given = {**ASKED, "own": np.ones(4), "past": 0}
    told = [
        fed.only(["b"]).gather(tell_distance, noise=1e-9, against=against, **given)["b"]
        for against in ("gradient", "noise")
    ]
    assert told[0].excess == 0 < told[1].excess
    assert told[0].distance == told[1].distance


def test_a_site_that_is_not_the_user_tells_its_gradient_to_nobody():
    with pytest.raises(Refused, match="'b' does not tell its gradient: the model is for 'a'"):
        federation(tables()).only("b").gather(
            erosion.tell_slope, user="a", against="gradient", **ASKED
        )
    with pytest.raises(VerbRefused):
        federation(tables()).gather(erosion.weigh_slope, **ASKED)


@pytest.mark.parametrize(
    "alphas", [[1.0, 0.0], [1.0, 0.005], [1.0, -1.0], [2.0, 2.0], [1.0]], ids=str
)
def test_a_site_gives_nothing_where_it_would_be_alone(alphas):
    marks = np.array([erosion.mark_of(s) for s in "bc"][: len(alphas)])
    told = {"alphas": np.array(alphas), "longest": np.full(len(alphas), 9.0), "marks": marks}
    with pytest.raises(Refused, match="'b' would be alone in the sum"):
        federation(tables()).sum(erosion.weigh_slope, **told, **ASKED)


def test_a_gradient_longer_than_its_distance_allows_is_no_reply():
    """‖g_i‖ ≤ ‖g_0‖ + ‖g_i − g_0‖."""
    asked = {**ASKED, "alphas": np.array([0.5, 0.7]), "longest": np.array([2.0, 3.0])}
    long = np.array([1.0 + 1e-5, 0.0, 0.0, 0.0])
    assert Weighed(0.999 * long, np.array(0.5)).fault(asked) == ""
    assert "longer" in Weighed(long, np.array(0.5)).fault(asked)
    assert "a weight that was not sent" in Weighed(long, np.array(0.6)).fault(asked)
    assert "longer" in Weighed(long, np.array(0.0)).fault(asked)
    assert "shape" in Weighed(long[:2], np.array(0.5)).fault(asked)


def test_a_site_whose_answer_cannot_be_is_not_believed():
    asked = {"past": 2, "plan": PLAN.text}
    for d, e, k, part in (
        (-1.0, 0.0, 0.0, 1.0), (1.0, -1.0, 0.0, 1.0), (1.0, 0.0, 3.0, 1.0), (1.0, 0.0, 0.0, 0.5),
    ):  # fmt: skip
        assert "an impossible" in Distance(*map(np.array, (d, e, k, part))).fault(asked)
    numbers = map(np.array, (0.5, -1.0, 1.0))
    assert "variance" in Slope(np.zeros(4), *numbers).fault({"theta": np.zeros(4)})
    with pytest.raises(ReplyRejected):
        data = tables() | {"b": LabelledTable(np.full((9, 3), 1e200), np.ones(9))}
        trained(data, FULL, "full")


@pytest.mark.parametrize("user", ["", "e"])
def test_a_user_that_is_no_site_is_named_with_those_there_are(user):
    with pytest.raises(SettingError, match=r"setting 'user' .*the model is for: a, b, c"):
        trained(tables(), user=user)


def test_two_sites_are_refused():
    with pytest.raises(SettingError, match="needs 3 sites or more"):
        trained(tables("ab"))
