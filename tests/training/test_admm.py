"""What must not matter to consensus ADMM, what it tells, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge

from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import (
    DataError,
    NotConverged,
    NothingToLearn,
    SettingError,
    SiteUnavailable,
)
from fedcohort.training.admm import AdmmSettings
from training.admm_cases import (
    PROBLEMS,
    Spy,
    clarabel,
    federation,
    gap,
    objective,
    optimum,
    simulated,
    solve,
    split,
)

FEW = settings(max_examples=8, deadline=None)
SMOOTH = ["ridge", "lasso", "elastic_net", "logistic"]
TIGHT = {"abs_tol": 1e-9, "rel_tol": 1e-9}
every_problem = pytest.mark.parametrize("name", PROBLEMS)


def assert_same(a, b, tol=1e-5):
    assert_allclose(a.coefficients, b.coefficients, rtol=tol, atol=tol)
    assert_allclose(a.intercept, b.intercept, rtol=tol, atol=10 * tol)


# against scikit-learn ---------------------------------------------------------------------


def test_ridge_lasso_and_elastic_net_are_scikit_learns():
    # its losses: Σ(y−f)² + α‖β‖², and Σ(y−f)²/2n + α(r‖β‖₁ + (1−r)/2 ‖β‖²)
    x, y, _ = table = simulated("squared")
    ours = solve(split(table, 4, "balanced"), PROBLEMS["ridge"], **TIGHT)
    theirs = Ridge(alpha=0.1 * len(y) / 2, solver="cholesky").fit(x, y)
    assert_allclose(ours.coefficients, theirs.coef_, rtol=1e-7)
    assert_allclose(ours.intercept, theirs.intercept_, rtol=1e-7)
    for name, alpha, share in (("lasso", 0.05, 1.0), ("elastic_net", 0.05, 0.5)):
        ours = solve(split(table, 4, "balanced"), PROBLEMS[name], **TIGHT)
        theirs = ElasticNet(alpha=alpha, l1_ratio=share, tol=1e-12, max_iter=100_000).fit(x, y)
        assert_allclose(ours.coefficients, theirs.coef_, rtol=1e-5, atol=1e-7)
        assert_allclose(ours.intercept, theirs.intercept_, rtol=1e-5)


def test_logistic_is_scikit_learns():
    x, y, _ = table = simulated("logistic")
    ours = solve(split(table, 4, "balanced"), PROBLEMS["logistic"], **TIGHT)
    model = LogisticRegression(C=1 / (0.01 * len(y)), tol=1e-10, solver="newton-cholesky")
    theirs = model.fit(x, y)
    assert_allclose(ours.coefficients, theirs.coef_[0], rtol=1e-5)
    assert_allclose(ours.intercept, theirs.intercept_[0], rtol=1e-5)


# what must not matter ---------------------------------------------------------------------


@FEW
@given(seed=st.integers(0, 2**16), sites=st.integers(2, 7), name=st.sampled_from(SMOOTH))
def test_distributed_is_centralised_however_records_are_split(seed, sites, name):
    problem = PROBLEMS[name]
    table = simulated(problem.loss, n=80, p=3, seed=seed % 50)
    where = np.random.default_rng(seed).integers(0, sites, 80)
    parts = [LabelledTable(table.x[where == k], table.y[where == k]) for k in range(sites)]
    assert_same(solve(parts, problem, **TIGHT), solve([table], problem, **TIGHT))


@pytest.mark.parametrize("name", ["lasso", "svm"])
@pytest.mark.parametrize(
    "given_",
    [
        {"over_relaxation": 1.0},
        {"rho": 0.05},
        {"rho": 5.0},
        {"adapt_rho": False},
        {"acceleration": 3},
        {"smoothed": False},
    ],
)
def test_settings_of_the_way_do_not_change_the_end(name, given_):
    problem = PROBLEMS[name]
    table = simulated(problem.loss)
    found = solve(split(table, 3, "balanced"), problem, **{"max_rounds": 5000, **given_})
    assert abs(gap(found, table, problem, optimum(name))) <= 1e-6


@every_problem
def test_plain_admm_ends_at_the_same_optimum(name):
    problem = PROBLEMS[name]
    table = simulated(problem.loss)
    found = solve(split(table, 2, "balanced"), problem, acceleration=0, max_rounds=5000)
    assert abs(gap(found, table, problem, optimum(name))) <= 1e-6


@pytest.mark.parametrize("name", ["ridge", "lasso", "logistic"])
def test_a_covariates_unit_and_zero_change_the_way_only(name):
    problem = PROBLEMS[name]._replace(l1=0.0, l2=0.0)
    table = simulated(problem.loss)
    moved = table._replace(x=(table.x - 7.0) * 1e3)
    a, b = (solve(split(t, 3, "balanced"), problem, **TIGHT) for t in (table, moved))
    assert_allclose(b.coefficients * 1e3, a.coefficients, rtol=1e-5, atol=1e-7)
    assert_allclose(a.rounds, b.rounds, atol=1)


@every_problem
def test_a_site_without_rows_changes_nothing(name):
    problem = PROBLEMS[name]
    parts = split(simulated(problem.loss), 2, "balanced")
    none = LabelledTable(np.zeros((0, 5)), np.zeros(0))
    assert_same(solve([*parts, none], problem), solve(parts, problem), tol=1e-9)


@pytest.mark.parametrize("name", ["ridge", "logistic", "svm"])
def test_a_weight_of_two_is_a_row_given_twice(name):
    problem = PROBLEMS[name]
    x, y, _ = simulated(problem.loss, n=60)
    twice = np.arange(60) < 20
    weighted = LabelledTable(x, y, 1.0 + twice)
    repeated = LabelledTable(np.r_[x, x[twice]], np.r_[y, y[twice]])
    one, other = solve([weighted], problem), solve([repeated], problem)
    assert (one.rows, one.weight, other.weight) == (60, 80.0, 80.0)
    assert_allclose(one.objective, other.objective, rtol=1e-6)
    assert_allclose(gap(one, repeated, problem, other.objective), 0, atol=2e-6)


@pytest.mark.parametrize("name", ["ridge", "logistic", "svm"])
def test_an_offset_is_added_to_every_row_and_has_no_coefficient(name):
    problem = PROBLEMS[name]
    x, y, _ = simulated(problem.loss, n=80)
    known = 0.02 * (x[:, 0] - 50)
    table = LabelledTable(np.column_stack([x[:, 1:], known]), y)
    found = solve(split(table, 2, "balanced"), problem, offset=True)
    assert found.coefficients.shape == (4,)
    beta = np.r_[found.coefficients, 1.0]
    here = objective(table, problem, found.intercept, beta) - problem.l2 / 2
    assert_allclose(found.objective, here, rtol=1e-9)
    for step in 1e-2 * np.vstack([np.eye(5), -np.eye(5)]):
        b = np.r_[found.intercept, found.coefficients] + step
        moved = objective(table, problem, b[0], np.r_[b[1:], 1.0]) - problem.l2 / 2
        assert moved >= here * (1 - 1e-6)


def test_weighting_by_sites_minimises_the_mean_of_the_sites_means():
    # the paper's sum of local means, divided by the number of sites
    problem = PROBLEMS["logistic"]
    parts = split(simulated("logistic"), 3, "unbalanced")
    found = solve(parts, problem, weighting="sites", **TIGHT)
    assert max(len(p.y) for p in parts) > 1.5 * min(len(p.y) for p in parts)
    weight = np.concatenate([np.full(len(p.y), 50 / len(p.y)) for p in parts])
    pooled = LabelledTable(*(np.concatenate([p[k] for p in parts]) for k in (0, 1)), weight)
    assert_same(found, solve([pooled], problem, **TIGHT))


# sites that are away ----------------------------------------------------------------------


@every_problem
def test_a_site_that_misses_rounds_and_returns_changes_only_the_way(name):
    problem = PROBLEMS[name]
    table = simulated(problem.loss)
    parts = split(table, 4, "class")
    away = federation(
        parts, quorum=0.5, absent=lambda call, site: call in (2, 5, 6, 9) and site == "site-01"
    )
    found = solve(parts, problem, fed=away)
    assert abs(gap(found, table, problem, optimum(name))) <= 1e-6


def test_a_site_that_never_returns_is_missed_at_the_end():
    parts = split(simulated("squared"), 3, "balanced")
    away = federation(parts, quorum=0.5, absent=lambda call, site: call > 3 and site == "site-01")
    with pytest.raises(SiteUnavailable, match=r"^site-01 was absent in the last of 60 rounds"):
        solve(parts, PROBLEMS["ridge"], fed=away, max_rounds=60)


def test_a_site_that_is_away_from_the_start_is_left_out():
    parts = split(simulated("squared"), 3, "balanced")
    away = federation(parts, quorum=0.5, absent=lambda call, site: site == "site-01")
    found = solve(parts, PROBLEMS["ridge"], fed=away)
    assert found.sites == ("site-00", "site-02")
    assert_same(found, solve([parts[0], parts[2]], PROBLEMS["ridge"]), tol=1e-9)
    left = federation(parts, quorum=0.5, absent=lambda call, site: call == 1 and site == "site-01")
    with pytest.raises(SiteUnavailable, match="site-01 left before the first round"):
        solve(parts, PROBLEMS["ridge"], fed=left)


def test_a_second_fit_over_the_same_sites_starts_afresh():
    parts = split(simulated("squared"), 3, "balanced")
    fed = federation(parts)
    solve(parts, PROBLEMS["lasso"], fed=fed)
    again = solve(parts, PROBLEMS["ridge"], fed=fed)
    assert_same(again, solve(parts, PROBLEMS["ridge"]), tol=1e-14)


# what is told -----------------------------------------------------------------------------


def test_the_history_tells_objective_residuals_and_rho_of_each_round():
    table = simulated("squared")
    fed = federation(split(table, 3, "balanced"))
    found = solve([table], PROBLEMS["lasso"], fed=fed)
    history = pd.DataFrame(fed.history)
    assert list(history) == ["round", "objective", "primal", "dual", "rho"]
    assert len(history) == found.rounds
    last = history.iloc[-1]
    assert (last.objective, last.primal, last.dual) == (found.objective, found.primal, found.dual)
    here = objective(table, PROBLEMS["lasso"], found.intercept, found.coefficients)
    assert_allclose(found.objective, here, rtol=1e-12)


@pytest.mark.parametrize("smoothed", [True, False])
def test_only_sums_leave_and_none_is_longer_than_the_coefficients_but_a_curvature(smoothed):
    parts = split(simulated("hinge"), 3, "balanced")
    fed = federation(parts)
    solve(parts, PROBLEMS["svm"], fed=fed, smoothed=smoothed)
    assert smoothed == any("curvature" in json.loads(line)["fields"] for line in fed.ledger.lines)
    for line in map(json.loads, fed.ledger.lines):
        assert line["verb"] == "sum"
        sizes = {name: np.prod(f["shape"], dtype=int) for name, f in line["fields"].items()}
        assert all(size <= 6 for name, size in sizes.items() if name not in ("inner", "curvature"))


@pytest.mark.parametrize("smoothed", [True, False])
def test_differences_of_consecutive_slopes_lie_along_no_patients_row(smoothed):
    # the sums give Σ ω_j y_j = −ρ Σ ω_j M_j (s_j − z + f_j); had a single row entered or left it,
    # the change between two rounds would be a multiple of that row
    problem, table = PROBLEMS["svm"], simulated("hinge")
    notes = []
    spy = Spy(federation(split(table, 4, "balanced")), "admm_round", notes)
    solve([table], problem, fed=spy, smoothed=smoothed)
    seen = [
        -given_["rho"] * (reply.target + (1 - given_["relax"]) * reply.residual)
        for given_, reply in notes
    ]
    rows = np.column_stack([np.ones(150), (table.x - table.x.mean(axis=0)) / table.x.std(axis=0)])
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    changes = np.diff(np.array(seen), axis=0)
    size = np.linalg.norm(changes, axis=1)
    changes = changes[size > 1e-9] / size[size > 1e-9, None]
    assert len(changes) > 10
    assert np.abs(changes @ rows.T).max() < 1 - 1e-6


# the paper's variant ----------------------------------------------------------------------


def test_fixed_subgradient_steps_come_near_and_stay_off_the_optimum_of_hinge_loss():
    problem, table = PROBLEMS["svm"], simulated("hinge")
    parts = split(table, 3, "balanced")
    found = solve(parts, problem, local="subgradient", max_rounds=300)
    assert not found.converged
    assert 1e-6 < gap(found, table, problem, optimum("svm")) < 0.05
    assert solve(parts, problem).converged


def test_fixed_subgradient_steps_end_at_the_optimum_of_a_smooth_loss():
    problem, table = PROBLEMS["logistic"], simulated("logistic")
    found = solve(
        split(table, 3, "balanced"), problem, local="subgradient", local_steps=50,
        local_step_size=1.0, max_rounds=2000,
    )  # fmt: skip
    assert found.converged
    assert abs(gap(found, table, problem, optimum("logistic"))) <= 1e-6


# what is refused --------------------------------------------------------------------------


def refused(error, parts, problem, **given_):
    with pytest.raises(error) as caught:
        solve(parts, problem, **given_)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_tables_that_teach_nothing_are_refused():
    svm, ridge = PROBLEMS["svm"], PROBLEMS["ridge"]
    x, y, _ = simulated("hinge")
    none = LabelledTable(x[:0], y[:0])
    assert refused(NothingToLearn, [none], ridge) == (
        "no site holds any record; check their selection."
    )
    said = refused(DataError, [LabelledTable(x, np.arange(150) % 3)], svm)
    assert said.startswith("the outcome has more than two classes")
    said = refused(NothingToLearn, [LabelledTable(x, np.ones(150))], svm)
    assert said.startswith("all 150 records are of class 1, and a fit needs both.")
    rare = LabelledTable(x, (np.arange(150) % 50 == 3).astype(float))
    said = refused(NothingToLearn, split(rare, 3, "balanced"), svm)
    assert said.startswith("class 1 has fewer than 5 records at all sites together (min_cell).")
    assert solve([rare], svm).rows == 150
    few = LabelledTable(x[:4], y[:4])
    said = refused(NothingToLearn, split(few, 2, "balanced"), ridge)
    assert said.startswith("fewer than 5 records at all sites together (min_cell).")


def test_no_covariates_are_refused():
    none = LabelledTable(np.zeros((9, 0)), np.zeros(9))
    assert refused(DataError, [none], PROBLEMS["ridge"]).startswith("there are no covariates;")


def test_separated_classes_without_a_penalty_do_not_converge_and_the_remedy_is_named():
    x, y, _ = simulated("hinge")
    x = x.copy()
    x[:, 2] = 3 * y + np.random.default_rng(0).random(150)
    free = PROBLEMS["logistic"]._replace(l2=0.0)
    said = refused(NotConverged, [LabelledTable(x, y)], free, max_rounds=100)
    assert "after 100 rounds. Raise max_rounds, or the penalty: without one, classes that" in said
    assert said.endswith("Longest is 'x2': drop it if it does so, or join rare levels.")
    assert solve([LabelledTable(x, y)], PROBLEMS["logistic"]).converged


@pytest.mark.parametrize("name", ["lasso", "svm"])
def test_where_a_penalty_gives_an_optimum_no_separation_is_blamed(name):
    parts = split(simulated(PROBLEMS[name].loss), 2, "balanced")
    said = refused(NotConverged, parts, PROBLEMS[name], max_rounds=2)
    assert said.endswith("after 2 rounds. Raise max_rounds, or the penalty.")


def test_a_constant_covariate_has_no_coefficient_and_changes_nothing():
    x, y, _ = simulated("squared")
    constant = LabelledTable(np.column_stack([x, np.full(150, 7.3)]), y)
    found = solve(split(constant, 3, "balanced"), PROBLEMS["lasso"])
    assert found.coefficients[5] == 0
    table = simulated("squared")
    assert abs(gap(found, constant, PROBLEMS["lasso"], optimum("lasso"))) <= 1e-6
    assert_allclose(found.coefficients[:5], solve([table], PROBLEMS["lasso"]).coefficients, 1e-3)


def test_collinear_covariates_have_the_optimum_that_cvxpy_finds():
    x, y, _ = simulated("squared")
    table = LabelledTable(np.column_stack([x, 2 * x[:, 1] - x[:, 2]]), y)
    problem = PROBLEMS["lasso"]
    found = solve(split(table, 3, "balanced"), problem)
    assert abs(gap(found, table, problem, clarabel(table, problem))) <= 1e-6


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"rho": 0.0}, "setting 'rho' is 0.0; give a number above 0, or null."),
        ({"over_relaxation": 2.0}, "setting 'over_relaxation' is 2.0; give a number from 1"),
        ({"acceleration": -1}, "setting 'acceleration' is -1; give a whole number from 0 to 50."),
        ({"abs_tol": 0.0}, "setting 'abs_tol' is 0.0; give a number between 0 and 1."),
        ({"max_rounds": 0}, "setting 'max_rounds' is 0; give a whole number from 1."),
        ({"local_step_size": -1.0}, "setting 'local_step_size' is -1.0; give a number above 0."),
    ],
)
def test_an_impossible_setting_is_named(given_, said):
    with pytest.raises(SettingError) as caught:
        AdmmSettings(**given_)
    assert str(caught.value).startswith(said)
