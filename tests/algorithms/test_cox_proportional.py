"""The check of proportional hazards is the score test of the model with x g(t) added."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifelines import CoxPHFitter
from lifelines.statistics import proportional_hazard_test
from numpy.testing import assert_allclose
from scipy.stats import chi2

from algorithms.cox_cases import Overheard, federation, fit, public, simulated, split
from fedcohort.algorithms.cox import CoxModel
from fedcohort.algorithms.cox.proportional import TRANSFORMS, clock
from fedcohort.data.tables import SurvivalTable

TIES = ["efron", "breslow"]


# the definition, with nothing of the package ----------------------------------------------------


def log_likelihood(strata, clocks, ties, beta):
    """Return the partial log-likelihood of x and x g(t), death by death; beta is (2p,).

    With "orders" all who leave at one time, dead or not, share it.
    """
    value = 0.0
    for (x, time, event, *_), g in zip(strata, clocks, strict=True):
        p = x.shape[1]
        for t in np.unique(time[event]):
            eta = x @ (beta[:p] + g[t] * beta[p:])
            dead, risk = (time == t) & event, time >= t
            sharing = time == t if ties == "orders" else dead
            tied = 0.0 if ties == "breslow" else np.exp(eta[sharing]).sum()
            value += eta[dead].sum()
            for rank in range(n := sharing.sum()):
                each = np.log(np.exp(eta[risk]).sum() - rank / n * tied)
                value -= dead.sum() / n * each
    return value


def derivatives(f, at, h):
    """Return gradient and Hessian of f by central differences of the fourth order."""
    n, eye = len(at), np.eye(len(at)) * h
    weight = {-2: 1 / 12, -1: -8 / 12, 1: 8 / 12, 2: -1 / 12}

    def slope(g, point):
        return np.array([sum(w * g(point + k * e) for k, w in weight.items()) for e in eye]) / h

    gradient = slope(f, at)
    hessian = np.array(
        [sum(w * slope(f, at + k * e) for k, w in weight.items()) / h for e in eye]
    ).reshape(n, n)
    return gradient, (hessian + hessian.T) / 2


def score_tests(strata, clocks, ties, beta, penalty=0.0):
    """Return χ² of each covariate and of all at β (p,), with the unpenalised x g(t)."""
    p = len(beta)
    ridge = np.r_[np.full(p, penalty), np.zeros(p)]

    def f(b):
        return log_likelihood(strata, clocks, ties, b) - 0.5 * ridge @ b**2

    score, hessian = derivatives(f, np.r_[beta, np.zeros(p)], 5e-3)
    out = []
    for some in [[p + j] for j in range(p)] + [list(range(p, 2 * p))]:
        keep = [*range(p), *some]
        u = np.r_[np.zeros(p), score[some]]
        out.append(u @ np.linalg.solve(-hessian[np.ix_(keep, keep)], u))
    return np.array(out)


def kaplan_meier_before(time, event):
    """Return 1 − S(t−) at each time of death, from the product over times before."""
    at = np.unique(time[event])
    left = [1 - ((time == t) & event).sum() / (time >= t).sum() for t in at]
    return {t: 1 - np.prod(left[:k]) for k, t in enumerate(at)}


def function_of_time(kind, time, event):
    """Return g by time of death, less its mean over deaths."""
    g = kaplan_meier_before(time, event)
    if kind == "rank":
        dead = np.sort(time[event])
        g = {t: np.mean(np.flatnonzero(dead == t) + 1) for t in g}
    elif kind != "km":
        g = {t: np.log(t) if kind == "log" else t for t in g}
    mean = np.mean([g[t] for t in time[event]])
    return {t: v - mean for t, v in g.items()}


def standardised(table):
    return table._replace(x=(table.x - table.x.mean(axis=0)) / table.x.std(axis=0))


def chi2_of(model):
    return np.array([row["chi2"] for row in model.proportional_hazards()])


# the claims -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("ties", TIES)
def test_the_check_is_the_score_test_of_the_pooled_table(ties, kind):
    table = standardised(simulated(90, 2, 4))
    g = function_of_time(kind, table.time, table.event)
    model = fit(split(table, np.arange(90) % 3), ties=ties, ph_check=kind)
    # differences of the definition are taken in units of g's spread
    unit = np.std(list(g.values()))
    expected = score_tests([table], [{t: v / unit for t, v in g.items()}], ties, model.coefficients)
    assert_allclose(chi2_of(model), expected, rtol=1e-6)


@pytest.mark.parametrize("ties", TIES)
def test_with_a_stratified_baseline_each_site_compares_its_own_risk_sets(ties):
    table = standardised(simulated(120, 2, 9))
    parts = split(table, np.arange(120) % 3)
    g = function_of_time("km", table.time, table.event)
    model = fit(parts, ties=ties, baseline="stratified")
    expected = score_tests(parts, [g] * 3, ties, model.coefficients)
    assert_allclose(chi2_of(model), expected, rtol=1e-6)


def test_a_ridge_penalty_holds_the_constant_effects_alone():
    table = standardised(simulated(80, 2, 3))
    g = function_of_time("km", table.time, table.event)
    model = fit([table], l2=0.1)
    expected = score_tests([table], [g], "efron", model.coefficients, penalty=8.0)
    assert_allclose(chi2_of(model), expected, rtol=1e-6)


@pytest.mark.parametrize("ties", TIES)
def test_on_a_grid_the_check_is_that_of_the_mean_over_orders(ties):
    table = standardised(simulated(160, 2, 5, tied=False))
    fed = Overheard(federation(split(table, np.arange(160) % 4)))
    model = fit([table], fed=fed, ties=ties, time_grid=8)
    times = fed.seen["deaths"][0][0]["times"]
    ends = table._replace(time=times[np.searchsorted(times, table.time)])
    g = function_of_time("km", ends.time, ends.event)
    expected = score_tests([ends], [g], "orders", model.coefficients)
    assert_allclose(chi2_of(model), expected, rtol=1e-6)


# futime, fustat, age, ecog.ps of 26 women; Edmunson et al. (1979), in R's package survival
OVARIAN = """
59 1 72.3315 1, 115 1 74.4932 1, 156 1 66.4658 2, 421 0 53.3644 1, 431 1 50.3397 1,
448 0 56.4301 2, 464 1 56.937 2, 475 1 59.8548 2, 477 0 64.1753 1, 563 1 55.1781 2,
638 1 56.7562 2, 744 0 50.1096 1, 769 0 59.6301 2, 770 0 57.0521 1, 803 0 39.2712 1,
855 0 43.1233 2, 1040 0 38.8932 2, 1106 0 44.6 1, 1129 0 53.9068 1, 1206 0 44.2055 1,
1227 0 59.589 2, 268 1 74.5041 2, 329 1 43.137 1, 353 1 63.2192 2, 365 1 64.4247 1,
377 0 58.3096 1
"""


def test_ovarian_equals_what_r_prints():
    # R, survival 3: cox.zph(coxph(Surv(futime, fustat) ~ age + ecog.ps, ovarian))
    time, event, *x = np.array([row.split() for row in OVARIAN.split(",")], float).T
    table = SurvivalTable(np.stack(x, axis=1), time, event > 0)
    model = fit(split(table, np.arange(26) % 2), ("age", "ecog.ps"))
    assert_allclose(chi2_of(model), [0.698, 2.371, 3.633], atol=6e-4)
    assert_allclose([r["p"] for r in model.proportional_hazards()], [0.40, 0.12, 0.16], atol=6e-3)


@pytest.mark.parametrize("name", ["rossi", "veteran", "gbsg2"])
def test_of_one_covariate_lifelines_older_approximation_is_near(name):
    # it takes the covariance of the covariate in the risk sets for constant
    table, features = public(name)
    for j, feature in enumerate(features):
        alone = table._replace(x=table.x[:, [j]])
        ours = chi2_of(fit(split(alone, np.arange(len(table.x)) % 3), [feature]))[0]
        frame = pd.DataFrame({feature: alone.x[:, 0], "T": table.time, "E": table.event})
        theirs = proportional_hazard_test(CoxPHFitter().fit(frame, "T", "E"), frame, "km")
        assert_allclose(np.sqrt(ours), np.sqrt(theirs.test_statistic), rtol=0.12, atol=0.25)


def test_p_values_are_those_of_the_chi_squared_distribution():
    table, features = public("veteran")
    rows = fit([table], features).proportional_hazards()
    for row in rows:
        assert row["df"] == (len(features) if row["covariate"] == "global" else 1)
        assert_allclose(row["p"], chi2.sf(row["chi2"], row["df"]), rtol=1e-12)


def test_an_effect_that_fades_is_found_and_a_constant_one_is_not():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1500, 2))
    # the first effect acts until t = 1 alone, the second always: piecewise exponential times
    early = rng.exponential(np.exp(-1.2 * x[:, 0] - 0.7 * x[:, 1]))
    late = 1 + rng.exponential(np.exp(-0.7 * x[:, 1]))
    time = np.where(early < 1, early, late)
    table = SurvivalTable(x, time, np.ones(1500, bool))
    for grid in ("protected", "exact"):
        fades, constant, joint = fit([table], time_grid=grid).proportional_hazards()
        assert fades["p"] < 1e-6
        assert joint["p"] < 1e-6
        assert constant["p"] > 0.01


@given(n_sites=st.integers(1, 5), seed=st.integers(0, 999), kind=st.sampled_from(TRANSFORMS))
def test_the_check_does_not_depend_on_how_records_are_split(n_sites, seed, kind):
    table = simulated(120, 3, seed)
    where = np.random.default_rng(seed).integers(0, n_sites, 120)
    over_sites, whole = (fit(parts, ph_check=kind) for parts in (split(table, where), [table]))
    assert_allclose(chi2_of(over_sites), chi2_of(whole), rtol=1e-7, atol=1e-9)


@given(seed=st.integers(0, 999), factor=st.floats(0.01, 100), shift=st.floats(-50, 50))
def test_units_of_covariates_and_of_time_change_nothing(seed, factor, shift):
    table = simulated(100, 2, seed)
    moved = table._replace(x=table.x * [factor, 1] + [shift, 0], time=table.time * factor)
    for kind in ("km", "identity"):
        ours, theirs = (chi2_of(fit([t], ph_check=kind)) for t in (table, moved))
        assert_allclose(theirs, ours, rtol=1e-5, atol=1e-7)


def test_deaths_at_one_time_tell_nothing_of_change():
    table = simulated(60, 2, 1)
    table = table._replace(time=np.ones(60))
    fed = federation([table])
    model = fit([table], fed=fed)
    assert np.isnan(chi2_of(model)).all()
    assert len(model.proportional_hazards()) == 3
    assert "trend_moments" not in {json.loads(line)["step"] for line in fed.ledger.lines}


def test_a_covariate_that_varies_at_one_time_of_death_alone_has_no_test():
    x = np.array([[0.1, 1], [0.9, 0], [0.3, 1], [0.8, 0], [0.5, 0], [0.2, 0], [0.7, 0], [0.4, 0]])
    time, event = np.array([1.0, 1, 1, 2, 3, 4, 5, 6]), np.array([1, 1, 0, 1, 1, 0, 1, 1]) > 0
    first, second, joint = fit([SurvivalTable(x, time, event)]).proportional_hazards()
    assert np.isfinite([first["chi2"], first["p"]]).all()
    assert np.isnan([second["chi2"], second["p"], joint["chi2"], joint["p"]]).all()


def test_without_the_check_nothing_is_asked_and_there_are_no_rows():
    table = simulated(80, 2, 1)
    for baseline in ("shared", "stratified"):
        fed = federation([table])
        model = fit([table], fed=fed, baseline=baseline, ph_check="none")
        assert model.proportional_hazards() == []
        asked = {json.loads(line)["step"] for line in fed.ledger.lines}
        assert not asked & {"trend_moments", "own_trend"}


@pytest.mark.parametrize(
    ("baseline", "step", "fields"),
    [
        ("shared", "trend_moments", {"dead": [3], "once": [3, 3], "twice": [3, 3]}),
        ("stratified", "own_trend", {"score": [3], "cross": [3, 3], "information": [3, 3]}),
    ],
)
def test_the_check_is_one_sum_over_all_records_and_none_by_time(baseline, step, fields):
    table = simulated(200, 3, 7)
    fed = federation(split(table, np.arange(200) % 4))
    fit([table], fed=fed, baseline=baseline, time_grid="protected")
    lines = [json.loads(line) for line in fed.ledger.lines]
    mine = [line for line in lines if line["step"] == step]
    assert len({line["call"] for line in mine}) == 1
    assert {line["verb"] for line in mine} == {"sum"}
    assert {k: f["shape"] for k, f in mine[0]["fields"].items()} == fields


def test_saved_and_restored_the_check_is_the_same():
    model = fit([simulated(80, 2, 1)], ph_check="log")
    back = CoxModel.restore(model.arrays(), json.loads(json.dumps(model.meta())))
    assert back.ph_transform == "log"
    assert back.proportional_hazards() == model.proportional_hazards()


def test_the_clock_has_mean_zero_over_deaths():
    times, deaths = np.array([1.0, 2.0, 5.0]), np.array([2.0, 1.0, 4.0])
    for kind in TRANSFORMS:
        g = clock(kind, times, deaths, deaths + np.array([1, 0, 2]))
        assert_allclose(deaths @ g, 0, atol=1e-12)
        assert (np.diff(g) > 0).all()
