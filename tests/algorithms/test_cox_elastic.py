"""The elastic net of `cox` is that of scikit-survival and of CVXPY on the pooled table."""

from __future__ import annotations

import json
from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sksurv.linear_model import CoxnetSurvivalAnalysis
from sksurv.util import Surv

from algorithms.cox_cases import federation, fit, public, simulated, split, take
from fedcohort.algorithms.cox import METHOD, CoxModel
from fedcohort.algorithms.cox.own_steps import folds_of
from fedcohort.data.split.folds import BY_ROW
from fedcohort.numerics.coxph import Placed, pooled
from fedcohort.protocol import NothingToLearn, SettingError

TIES = ["efron", "breslow"]


def standardised(name):
    table, features = public(name)
    return table._replace(x=(table.x - table.x.mean(axis=0)) / table.x.std(axis=0)), features


def scattered(table, n_sites, seed=0):
    return split(table, np.random.default_rng(seed).integers(0, n_sites, len(table.x)))


def coxnet(table, ratio, **options):
    model = CoxnetSurvivalAnalysis(l1_ratio=ratio, tol=1e-15, max_iter=10**7, **options)
    return model.fit(table.x, Surv.from_arrays(table.event, table.time))


@pytest.mark.parametrize("ratio", [1.0, 0.4])
@pytest.mark.parametrize("name", ["gbsg2", "whas500", "veteran"])
def test_the_path_equals_scikit_survivals(name, ratio):
    # whose objective is −ℓ/n + α (ratio ‖β‖₁ + (1 − ratio)/2 ‖β‖²), with Breslow's ties
    table, features = standardised(name)
    theirs = coxnet(table, ratio, n_alphas=8, alpha_min_ratio=0.02)
    ours = fit(
        scattered(table, 4), features, ties="breslow",
        penalty="auto", l1_ratio=ratio, path=8, path_ratio=0.02,
    )  # fmt: skip
    assert_allclose(ours.path_.penalties, theirs.alphas_, rtol=1e-9)
    assert_allclose(ours.path_.coefficients, theirs.coef_.T, rtol=0, atol=1e-5)
    chosen = ours.path_.chosen
    assert_allclose(ours.coefficients, theirs.coef_[:, chosen], rtol=0, atol=1e-5)


def convex(table, l1, l2, ties):
    """Return β of the same objective, written out death by death for CVXPY and Clarabel."""
    beta = cp.Variable(table.x.shape[1])
    eta, value = table.x @ beta, 0
    for t in np.unique(table.time[table.event]):
        dead = np.flatnonzero((table.time == t) & table.event)
        rest = np.flatnonzero((table.time >= t) & ~((table.time == t) & table.event))
        for rank in range(len(dead)):
            f = rank / len(dead) if ties == "efron" else 0.0
            at = np.r_[rest, dead]
            shift = np.r_[np.zeros(len(rest)), np.full(len(dead), np.log1p(-f))]
            value += eta[dead[rank]] - cp.log_sum_exp(eta[at] + shift)
    penalty = l1 * cp.norm1(beta) + l2 / 2 * cp.sum_squares(beta)
    cp.Problem(cp.Minimize(-value / len(table.x) + penalty)).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10
    )
    return beta.value


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize(("l1", "l2"), [(0.02, 0.0), (0.01, 0.1)])
def test_both_tie_rules_equal_the_convex_programme(ties, l1, l2):
    table = simulated(70, 4, 3)
    ours = fit(scattered(table, 3), ties=ties, l1=l1, l2=l2)
    assert_allclose(ours.coefficients, convex(table, l1, l2, ties), rtol=0, atol=1e-5)
    assert (ours.coefficients == 0).any()


@settings(max_examples=25, deadline=None)
@given(
    n_sites=st.integers(1, 5),
    p=st.integers(1, 12),
    seed=st.integers(0, 2**16),
    ties=st.sampled_from(TIES),
    baseline=st.sampled_from(["shared", "stratified"]),
    l1=st.sampled_from([1e-3, 0.02, 0.1, 1.0]),
    l2=st.sampled_from([0.0, 0.05]),
    unit=st.sampled_from([1.0, 1e-6, 1e5]),
)
def test_the_end_meets_the_conditions_of_the_optimum(
    n_sites, p, seed, ties, baseline, l1, l2, unit
):
    table = simulated(100, p, seed)
    parts = scattered(table._replace(x=table.x * unit), n_sites, seed)
    model = fit(parts, ties=ties, baseline=baseline, l1=l1 * unit, l2=l2 * unit**2)
    b, score = model.coefficients * unit, 0.0
    groups = parts if baseline == "stratified" else [table._replace(x=table.x * unit)]
    for part in groups:
        at = np.unique(part.time[part.event])
        records = Placed.on(at, part.x / unit, part.time, part.event)
        score = score + pooled(records, b, ties).score
    slope = score / 100 - l2 * b
    assert (b == model.coefficients * unit).all()
    assert_allclose(slope[b != 0], l1 * np.sign(b[b != 0]), rtol=0, atol=1e-6)
    assert (np.abs(slope[b == 0]) <= l1 + 1e-9).all()


def test_penalty_and_l1_ratio_are_another_way_to_say_l1_and_l2():
    table = simulated(120, 3, 1)
    one = fit([table], penalty=0.04, l1_ratio=0.25)
    assert (one.coefficients == fit([table], l1=0.01, l2=0.03).coefficients).all()
    ridge = fit([table], penalty=0.04, l1_ratio=0.0)
    assert (ridge.coefficients == fit([table], l2=0.04).coefficients).all()


def test_a_lasso_leaves_no_standard_errors_and_says_what_is_zero():
    table, features = standardised("gbsg2")
    fed = federation(scattered(table, 3))
    model = fit([table], features, fed=fed, l1=0.05, time_grid="protected")
    rows = model.summary()
    assert all(set(r) == {"covariate", "coefficient", "hazard_ratio", "zero"} for r in rows)
    assert [r["zero"] for r in rows] == (model.coefficients == 0).tolist()
    assert np.isnan(model.standard_errors).all()
    assert model.proportional_hazards() == []
    assert len(model.grid_error) == 0
    asked = {json.loads(line)["step"] for line in fed.ledger.lines}
    assert not asked & {"risk_moments", "trend_moments", "disorder"}


def test_collinear_and_constant_covariates_do_not_stop_a_lasso():
    table = simulated(120, 3, 1)
    x = np.c_[table.x, table.x[:, 0] + table.x[:, 1], np.full(120, 3.0)]
    model = fit(scattered(table._replace(x=x), 3), l1=0.02)
    assert model.coefficients[4] == 0
    expected = convex(table._replace(x=x), 0.02, 0.0, "efron")
    assert_allclose(np.abs(model.coefficients).sum(), np.abs(expected).sum(), atol=1e-5)
    assert_allclose(x @ model.coefficients, x @ expected, atol=1e-4 + 3 * abs(expected[4]))


# how λ is chosen ------------------------------------------------------------------------------


def own_value(parts, beta, ties):
    """Return Σ ℓ(β) over tables, each under its own baseline hazard."""
    return sum(
        pooled(Placed.on(np.unique(t.time[t.event]), *t[:3]), beta, ties).log_likelihood
        for t in parts
        if t.event.any()
    )


@pytest.mark.parametrize("ties", TIES)
def test_the_score_of_a_penalty_is_van_houwelingens_over_groups_of_sites(ties):
    table, features = standardised("whas500")
    parts = scattered(table, 6)
    model = fit(
        parts, features, ties=ties, baseline="stratified",
        penalty="auto", path=4, path_ratio=0.1, n_folds=3,
    )  # fmt: skip
    groups = np.random.default_rng((0, 0x636F6F7264)).permutation(6) % 3
    expected = np.zeros(4)
    for k in range(3):
        rest = [part for part, g in zip(parts, groups, strict=True) if g != k]
        for i, penalty in enumerate(model.path_.penalties):
            beta = fit(rest, features, ties=ties, baseline="stratified", l1=penalty).coefficients
            expected[i] += own_value(parts, beta, ties) - own_value(rest, beta, ties)
    assert_allclose(model.path_.held_out, expected / table.event.sum(), rtol=1e-6)
    assert model.path_.chosen == np.argmax(expected)
    chosen = model.path_.penalties[model.path_.chosen]
    assert model.path_.penalty == chosen
    alone = fit(parts, features, ties=ties, baseline="stratified", l1=chosen)
    assert_allclose(model.coefficients, alone.coefficients, rtol=0, atol=1e-7)


def test_where_a_group_would_be_one_site_rows_are_held_out():
    table, features = standardised("veteran")
    asked = {"penalty": "auto", "path": 3, "path_ratio": 0.1, "n_folds": 3}
    model = fit([table], features, **asked)
    at = folds_of(table, BY_ROW, 3)
    expected = np.zeros(3)
    for k in range(3):
        rest = take(table, at != k)
        for i, penalty in enumerate(model.path_.penalties):
            beta = fit([rest], features, l1=penalty).coefficients
            whole, less = (own_value([t], beta, "efron") for t in (table, rest))
            expected[i] += whole - less
    assert_allclose(model.path_.held_out, expected / table.event.sum(), rtol=1e-6)


@given(seed=st.integers(0, 999), folds=st.integers(2, 6))
def test_folds_of_rows_are_even_and_do_not_depend_on_their_order(seed, folds):
    table = simulated(50, 2, seed)
    order = np.random.default_rng(seed).permutation(50)
    at = folds_of(table, BY_ROW, folds)
    assert (folds_of(take(table, order), BY_ROW, folds) == at[order]).all()
    assert np.ptp(np.bincount(at)) <= 1


def test_too_few_deaths_for_folds_are_named():
    table = simulated(60, 2, 1)
    table = table._replace(event=table.event & (np.arange(60) < 20))
    with pytest.raises(NothingToLearn, match=r"hold too few of the .* events"):
        fit([table], penalty="auto")


def test_nothing_is_left_at_the_largest_penalty_and_most_at_the_smallest():
    table = simulated(300, 5, 2)
    path = fit(scattered(table, 4), penalty="auto").path_
    left = (path.coefficients != 0).sum(axis=1)
    assert left[0] == 0
    assert left[-1] >= 4
    assert all(a > b for a, b in pairwise(path.penalties))
    assert_allclose(path.penalties[-1] / path.penalties[0], 0.01)


def test_weights_count_in_the_path_and_whole_ones_are_repeated_rows():
    table = simulated(150, 3, 5)
    weight = np.random.default_rng(0).integers(1, 4, 150)
    copies = np.repeat(np.arange(150), weight)
    weighted = table._replace(weight=weight.astype(float))
    a, b = (
        fit([t], ties="breslow", penalty=0.03, l1_ratio=0.8)
        for t in (weighted, take(table, copies))
    )
    assert_allclose(a.coefficients, b.coefficients, rtol=1e-6, atol=1e-8)


def test_a_path_survives_saving_and_a_fit_of_one_penalty_has_none():
    model = fit(scattered(simulated(200, 3, 2), 4), penalty="auto", path=3)
    again = CoxModel.restore(model.arrays(), json.loads(json.dumps(model.meta())))
    assert (again.path_.coefficients == model.path_.coefficients).all()
    assert again.path_.chosen == model.path_.chosen
    assert again.summary() == model.summary()
    with pytest.raises(Exception, match="penalty 'auto' has"):
        _ = fit([simulated(80, 2, 2)], l1=0.1).path_


@pytest.mark.parametrize(
    ("given_", "what"),
    [
        ({"l1": -1.0}, "'l1'"),
        ({"penalty": -0.1}, "'penalty'"),
        ({"penalty": "best"}, "penalty"),
        ({"penalty": 0.1, "l2": 0.1}, "either penalty"),
        ({"penalty": "auto", "l1": 0.1}, "either penalty"),
        ({"penalty": "auto", "l1_ratio": 0.0}, "'l1_ratio'"),
        ({"path": 1}, "'path'"),
        ({"n_folds": 1}, "'n_folds'"),
    ],
)
def test_impossible_penalties_are_refused(given_, what):
    with pytest.raises(SettingError, match=what):
        METHOD.configure(given_)
