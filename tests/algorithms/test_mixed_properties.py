"""What must not matter to `mixed`: order, units, empty sites; what must work; what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from algorithms.mixed_cases import (
    brute_log_likelihood,
    dense,
    federation,
    fit,
    simulated,
    stacked,
)
from fedcohort.algorithms.mixed import METHOD
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import (
    DataError,
    NotConverged,
    SettingError,
    SingularInformation,
    SiteUnavailable,
    Task,
)

FEW = settings(max_examples=12, deadline=None)
families = st.sampled_from(["gaussian", "binomial", "poisson"])
EMPTY = LabelledTable(np.zeros((0, 2)), np.zeros(0))


def assert_same_model(a, b, rtol=1e-6):
    assert_allclose(a.tau2, b.tau2, rtol=rtol, atol=1e-9)
    assert_allclose(a.coefficients, b.coefficients, rtol=rtol, atol=1e-8)
    assert_allclose(a.intercept, b.intercept, rtol=rtol, atol=1e-8)
    assert_allclose(a.standard_errors, b.standard_errors, rtol=rtol)
    assert_allclose(a.log_likelihood, b.log_likelihood, rtol=1e-9)


@FEW
@given(family=families, seed=st.integers(0, 2**16))
def test_order_of_sites_and_of_their_records_and_empty_sites_change_nothing(family, seed):
    parts = simulated((20, 35, 28, 40), 0.8, seed, family)
    rng = np.random.default_rng(seed)
    mixed = []
    for k in rng.permutation(4):
        order = rng.permutation(len(parts[k].y))
        mixed.append(LabelledTable(parts[k].x[order], parts[k].y[order]))
    assert_same_model(fit([EMPTY, *mixed, EMPTY], family), fit(parts, family))


@FEW
@given(
    family=families,
    seed=st.integers(0, 2**16),
    shift=st.floats(-1e3, 1e3),
    unit=st.sampled_from([1e-3, -1.0, 1e3]),
)
def test_a_covariates_unit_and_zero_change_its_coefficient_by_the_unit(family, seed, shift, unit):
    parts = simulated((30, 35, 28), 0.8, seed, family)
    moved = [p._replace(x=(p.x - [shift, 0]) / [unit, 1]) for p in parts]
    a, b = fit(parts, family), fit(moved, family)
    assert_allclose(b.coefficients, a.coefficients * [unit, 1], rtol=1e-5, atol=1e-9)
    assert_allclose(b.tau2, a.tau2, rtol=1e-5, atol=1e-9)
    assert_allclose(b.predict(moved[0].x), a.predict(parts[0].x), rtol=1e-5, atol=1e-9)
    by_unit = np.log(abs(unit)) if family == "gaussian" else 0.0  # REML knows the covariates' unit
    assert_allclose(b.log_likelihood, a.log_likelihood + by_unit, rtol=1e-7)


@FEW
@given(seed=st.integers(0, 2**16), tau=st.sampled_from([0.0, 0.2, 1.0, 4.0]))
def test_the_search_finds_the_maximum_of_any_linear_fit(seed, tau):
    rng = np.random.default_rng(seed)
    parts = simulated(rng.integers(1, 40, size=rng.integers(3, 9)), tau, seed)
    ours, theirs = fit(parts), dense(parts, "reml")
    assert_allclose(ours.tau2, theirs.tau2, rtol=1e-6, atol=1e-9)
    assert_allclose(ours.log_likelihood, theirs.log_likelihood, rtol=1e-9)


@FEW
@given(
    family=st.sampled_from(["binomial", "poisson"]),
    seed=st.integers(0, 2**16),
    tau=st.sampled_from([0.0, 0.2, 0.5]),
)
def test_no_other_variance_between_sites_has_a_higher_likelihood(family, seed, tau):
    parts = simulated((25, 30, 20, 40, 15), tau, seed, family)
    ours = fit(parts, family)
    beta = np.r_[ours.intercept, ours.coefficients]
    for other in (0.1, 0.3, 0.8):
        there = brute_log_likelihood(parts, family, beta, other)
        assert there <= ours.log_likelihood + 1e-8


@FEW
@given(seed=st.integers(0, 2**16))
def test_the_outcomes_unit_changes_variances_by_its_square(seed):
    parts = simulated((20, 35, 28), 0.8, seed)
    a, b = fit(parts), fit([p._replace(y=7 - 1e3 * p.y) for p in parts])
    assert_allclose([b.tau2, b.sigma2], [a.tau2 * 1e6, a.sigma2 * 1e6], rtol=1e-6)
    assert_allclose(b.coefficients, -1e3 * a.coefficients, rtol=1e-6)


# what must work ---------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_sites_of_one_record_of_one_class_and_with_a_constant_covariate_are_no_obstacle(family):
    parts = simulated((1, 12, 60, 50, 12), 0.8, 2, family)
    same = parts[1]._replace(y=np.full(12, 1.0))
    fixed = parts[4]._replace(x=np.column_stack([np.full(12, 0.7), parts[4].x[:, 1]]))
    ours = fit([parts[0], same, parts[2], parts[3], fixed], family)
    assert np.isfinite([ours.intercept, *ours.coefficients, *ours.standard_errors]).all()


def test_a_covariate_that_only_differs_between_sites_has_the_variance_of_a_mean_of_sites():
    parts = simulated((30,) * 8, 1.0, 3)
    level = [p._replace(x=np.column_stack([p.x, np.full(30, k % 2)])) for k, p in enumerate(parts)]
    ours, theirs = fit(level), dense(level, "reml")
    assert_allclose(ours.standard_errors, theirs.errors, rtol=1e-7)
    assert ours.standard_errors[3] > np.sqrt(ours.tau2 / 2)


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_one_site_gives_a_fit_without_site_effects_and_says_so(family):
    ours = fit(simulated((80,), 0.0, 1, family), family)
    assert ours.tau2 == 0.0
    assert ours.note.startswith("with one site, τ² cannot be estimated and is set to 0")


def test_sites_of_one_record_each_do_not_tell_linear_site_effects():
    x, y, _ = stacked(simulated((80,), 0.0, 1))
    ours = fit([LabelledTable(x[k : k + 1], y[k : k + 1]) for k in range(40)])
    assert ours.tau2 == 0.0
    assert ours.note.startswith("with sites of one record each, τ² cannot be estimated")


@pytest.mark.parametrize(("sites", "said"), [(2, True), (4, True), (5, False)])
def test_few_sites_are_said_to_tell_little(sites, said):
    ours = fit(simulated((20,) * sites, 1.0, 1))
    assert bool(ours.note) == said
    assert ours.note.startswith(f"{sites} sites say little" if said else "")


def test_the_fit_of_a_table_of_two_sites_is_dense_algebras():
    parts = simulated((20, 30), 2.0, 5)
    assert_allclose(fit(parts).tau2, dense(parts, "reml").tau2, rtol=1e-7)


# what is refused --------------------------------------------------------------------------


def refused(error, parts, family="gaussian", **options):
    with pytest.raises(error) as caught:
        fit(parts, family, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_collinear_and_constant_covariates_are_named(family):
    parts = simulated((60, 40, 50), 0.5, 1, family, p=3)
    double = [p._replace(x=np.column_stack([p.x, p.x[:, 0] - p.x[:, 1]])) for p in parts]
    said = refused(SingularInformation, double, family, features="abcd")
    assert said.startswith("covariates 'a', 'b', 'd' are collinear (eigenvalue ratio ")
    assert said.endswith("). Drop one of them.")
    constant = [p._replace(x=np.column_stack([p.x, np.full(len(p.y), 4.2)])) for p in parts]
    said = refused(SingularInformation, constant, family, features="abcd")
    assert said.startswith("covariate 'd' is constant")


def test_a_covariate_that_separates_the_classes_is_named_with_the_remedy():
    parts = simulated((60, 40, 50), 0.5, 1, "binomial")
    split = [p._replace(x=np.column_stack([p.x, 2 * p.y + 0.1 * p.x[:, 0] ** 2])) for p in parts]
    said = refused(NotConverged, split, "binomial", features=("age", "sex", "dose"))
    assert said.startswith("the likelihood rises without limit along 'dose': separation")
    assert "'logistic' with a ridge penalty" in said


def test_sites_that_each_have_one_class_are_refused():
    parts = simulated((60, 40, 50, 30), 0.5, 1, "binomial")
    sorted_ = [p._replace(y=np.full(len(p.y), float(k % 2))) for k, p in enumerate(parts)]
    assert refused(NotConverged, sorted_, "binomial").startswith(
        "τ grows without limit: nearly every"
    )


def test_an_outcome_that_is_one_value_a_site_is_refused():
    parts = simulated((60, 40, 50, 30), 0.5, 1)
    flat = [p._replace(y=np.full(len(p.y), float(k))) for k, p in enumerate(parts)]
    assert refused(NotConverged, flat).startswith("records of the same site hardly differ")


def test_an_outcome_that_is_a_covariate_is_refused():
    parts = [p._replace(y=p.x[:, 0] * 2 + 1) for p in simulated((60, 40), 0.5, 1)]
    assert refused(DataError, parts).startswith("the covariates explain the outcome without error")


@pytest.mark.parametrize("only", [0.0, 1.0])
def test_one_class_at_all_sites_is_refused(only):
    parts = [p._replace(y=np.full(len(p.y), only)) for p in simulated((30, 30), 0, 1)]
    said = refused(DataError, parts, "binomial")
    assert said.startswith(f"all 60 records are of class {only:.0f}, and a fit needs both.")


def test_outcomes_of_fewer_records_than_min_cell_are_refused_over_sites():
    parts = simulated((30, 30), 0, 1)
    rare = [p._replace(y=(np.arange(30) < 2).astype(float)) for p in parts]
    assert refused(DataError, rare, "binomial", min_cell=5).startswith(
        "class 1 has fewer than 5 records at"
    )
    assert refused(DataError, rare, "poisson", min_cell=5).startswith(
        "there are fewer than 5 counts above 0 at all sites together (min_cell)."
    )
    assert np.isfinite(fit(rare, "binomial", min_cell=2).tau2)


@pytest.mark.parametrize(
    ("family", "value", "said"),
    [("binomial", 2.0, "is neither 0 nor 1"), ("poisson", 0.5, "is no whole number from 0")],
)
def test_an_outcome_that_the_family_cannot_have_is_refused(family, value, said):
    parts = simulated((30, 30), 0, 1, family)
    parts[1].y[3] = value
    assert said in refused(DataError, parts, family)


def test_too_few_records_and_no_records_and_no_covariates_are_refused():
    assert refused(DataError, [EMPTY]) == "no site holds any record; check their selection."
    said = refused(DataError, simulated((2, 2), 0, 1, p=4))
    assert said.startswith("4 records are too few for 4 covariates.")
    fed = federation(simulated((30,), 0, 0))
    with pytest.raises(DataError, match="there are no covariates"):
        METHOD.fit(fed, METHOD.configure({}), Task(kind="regression", features=()))


@pytest.mark.parametrize(("family", "wanted"), [("gaussian", "binomial"), ("binomial", "poisson")])
def test_a_family_that_does_not_go_with_the_outcome_is_refused(family, wanted):
    parts = simulated((30, 30), 0, 1, family)
    with pytest.raises(SettingError, match=f"family '{wanted}' of method 'mixed' does not go"):
        METHOD.fit(
            federation(parts),
            METHOD.configure({"family": wanted}),
            Task(kind="classification" if family == "binomial" else "regression", features=("a",)),
        )


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_too_few_rounds_are_said_with_what_is_left(family):
    said = refused(NotConverged, simulated((30, 40, 35), 1.0, 3, family), family, max_rounds=2)
    assert "after 2 rounds (tol 1e-08). Raise max_rounds" in said


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"tol": 0.5}, "setting 'tol' of method 'mixed' is 0.5; give a number between"),
        ({"max_rounds": 0}, "setting 'max_rounds' of method 'mixed' is 0; give a whole"),
        ({"level": 1.0}, "setting 'level' of method 'mixed' is 1.0; give a number between"),
        ({"family": "gamma"}, "setting 'family' of method 'mixed' is 'gamma'; choose one of"),
    ],
)
def test_an_impossible_setting_is_named(given_, said):
    with pytest.raises(SettingError) as caught:
        METHOD.configure(given_)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_a_site_that_is_away_from_the_start_is_left_out_and_one_that_leaves_ends_the_fit(family):
    parts = simulated((60, 40, 50), 1.0, 1, family)
    away = federation(parts, quorum=0.5, absent=lambda call, site: site == "site-1")
    assert_same_model(fit(parts, family, fed=away), fit([parts[0], parts[2]], family))
    leaves = federation(parts, quorum=0.5, absent=lambda call, site: call > 2 and site == "site-1")
    with pytest.raises(SiteUnavailable, match="site-1 left during the fit"):
        fit(parts, family, fed=leaves)


def test_an_outcome_of_one_value_is_refused_and_not_blamed_on_covariates():
    parts = [p._replace(y=np.full(len(p.y), 123456.7)) for p in simulated((60, 40), 0.5, 1)]
    said = refused(DataError, parts)
    assert said.startswith("the outcome has the same value in all 100 records")


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_an_offset_that_is_no_logarithm_is_named_by_row(family):
    parts = simulated((60, 40), 0.5, 1, family)
    long = [p._replace(x=np.column_stack([p.x, np.full(len(p.y), 1.0)])) for p in parts]
    long[1].x[4, -1] = 365.25
    said = refused(DataError, long, family, offset=True)
    assert "'site-1': the offset is beyond ±300 in row 5;" in said


def test_a_level_without_counts_is_named_with_the_remedy_for_counts():
    parts = simulated((60, 40, 50), 0.5, 1, "poisson")
    level = [(p.x[:, 0] > 0.5).astype(float) for p in parts]
    none = [
        p._replace(x=np.column_stack([p.x, k]), y=p.y * (1 - k))
        for p, k in zip(parts, level, strict=True)
    ]
    said = refused(NotConverged, none, "poisson", features=("age", "sex", "grade=IV"))
    assert said.startswith(
        "the likelihood rises without limit along 'grade=IV': where these covariates"
    )
    assert said.endswith("or take 'glm' with a ridge penalty (l2 > 0).")
