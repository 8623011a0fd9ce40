"""What must not matter to `logistic`: the split, units, labels; what must be refused, and how."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from algorithms.logistic_cases import federation, fit, scattered, simulated, split
from fedcohort.algorithms.glm import LOGISTIC as METHOD
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import (
    DataError,
    NotConverged,
    SettingError,
    SingularInformation,
    SiteUnavailable,
    Task,
)

FEW = settings(max_examples=15, deadline=None)


def assert_same_model(a, b):
    assert_allclose(a.coefficients, b.coefficients, rtol=1e-7, atol=1e-9)
    assert_allclose(a.intercept, b.intercept, rtol=1e-7, atol=1e-7)
    assert_allclose(a.standard_errors, b.standard_errors, rtol=1e-6)
    assert_allclose(a.log_likelihood, b.log_likelihood, rtol=1e-9)


@FEW
@given(n_sites=st.integers(1, 8), seed=st.integers(0, 2**16), l2=st.sampled_from([0.0, 0.05]))
def test_the_fit_does_not_depend_on_how_records_are_split(n_sites, seed, l2):
    table = simulated(120, 3, seed)
    assert_same_model(fit(scattered(table, n_sites, seed), l2=l2), fit([table], l2=l2))


@FEW
@given(seed=st.integers(0, 2**16), by=st.sampled_from(["class", "feature", "singles"]))
def test_the_fit_does_not_depend_on_how_unlike_the_sites_are(seed, by):
    table = simulated(90, 2, seed)
    where = {
        "class": table.y,
        "feature": table.x[:, 0] > np.median(table.x[:, 0]),
        "singles": np.arange(90),
    }[by]
    assert_same_model(fit(split(table, where)), fit([table]))


@FEW
@given(
    seed=st.integers(0, 2**16),
    shift=st.floats(-1e3, 1e3),
    unit=st.sampled_from([1e-4, -1.0, 1e3]),
)
def test_a_covariates_unit_and_zero_change_its_coefficient_by_the_unit(seed, shift, unit):
    table = simulated(150, 2, seed)
    moved = table._replace(x=(table.x - [shift, 0]) / [unit, 1])
    a, b = fit([table]), fit([moved])
    assert_allclose(b.coefficients, a.coefficients * [unit, 1], rtol=1e-6)
    assert_allclose(b.predict(moved.x), a.predict(table.x), rtol=1e-6)


@FEW
@given(seed=st.integers(0, 2**16))
def test_naming_the_other_class_one_turns_every_sign(seed):
    table = simulated(150, 3, seed)
    a, b = fit([table], l2=1e-3), fit([table._replace(y=1 - table.y)], l2=1e-3)
    assert_allclose(a.coefficients, -b.coefficients, rtol=1e-7, atol=1e-10)
    assert_allclose(a.standard_errors, b.standard_errors, rtol=1e-7)


def test_a_stronger_penalty_shrinks_the_coefficients_to_nothing_but_not_the_intercept():
    table = simulated(200, 3, 5)
    sizes = [np.abs(fit([table], l2=l2).coefficients[1:]).max() for l2 in (0, 0.01, 1, 1e6)]
    assert sizes == sorted(sizes, reverse=True)
    base = fit([table], l2=1e12)
    assert_allclose(base.predict(table.x), table.y.mean(), rtol=1e-4)


def test_no_reply_is_larger_than_the_information_and_all_are_summed():
    table = simulated(200, 4, 0)
    fed = federation(scattered(table, 3))
    fit([table], fed=fed)
    for line in map(json.loads, fed.ledger.lines):
        assert line["verb"] == "sum"
        sizes = {name: field["shape"] for name, field in line["fields"].items()}
        assert all(np.prod(shape, dtype=int) <= 25 for shape in sizes.values())


# what is refused --------------------------------------------------------------------------


def refused(error, parts, features=None, **settings_):
    with pytest.raises(error) as caught:
        fit(parts, features, **settings_)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_covariate_that_separates_the_classes_is_named_with_the_remedy():
    table = simulated(200, 3, 8)
    x = table.x.copy()
    x[:, 1] = table.y * 2 + np.random.default_rng(0).random(200)
    said = refused(NotConverged, scattered(table._replace(x=x), 3), ("age", "dose", "sex"))
    assert said == (
        "the likelihood rises without limit along 'dose': separation, these covariates tell the "
        "classes apart without error. Drop them, join rare levels, or refit with a ridge penalty "
        "(l2 > 0)."
    )
    assert np.isfinite(fit(scattered(table._replace(x=x), 3), l2=0.01).coefficients).all()


def test_a_rare_level_with_one_class_is_named():
    table = simulated(300, 3, 9)
    x, y = table.x.copy(), table.y.copy()
    x[:, 2] = np.arange(300) < 12
    y[:12] = 1.0
    said = refused(NotConverged, scattered(LabelledTable(x, y), 3), ("age", "dose", "grade=IV"))
    assert "rises without limit along 'grade=IV': separation" in said


def test_collinear_covariates_are_named():
    table = simulated(150, 4, 3)
    x = table.x.copy()
    x[:, 3] = 2 * x[:, 1] - x[:, 2]
    said = refused(SingularInformation, scattered(table._replace(x=x), 3), tuple("abcd"))
    assert said.startswith("covariates 'b', 'c', 'd' are collinear (eigenvalue ratio ")
    assert said.endswith("). Drop one of them, or refit with a ridge penalty (l2 > 0).")
    assert np.isfinite(fit(scattered(table._replace(x=x), 3), l2=0.01).coefficients).all()


def test_a_constant_covariate_is_named():
    table = simulated(150, 3, 3)
    x = table.x.copy()
    x[:, 2] = 7.3
    said = refused(SingularInformation, scattered(table._replace(x=x), 3), tuple("abc"))
    assert said.startswith("covariate 'c' is constant (eigenvalue ratio ")
    assert said.endswith("). Drop it, or refit with a ridge penalty (l2 > 0).")
    assert abs(fit([table._replace(x=x)], l2=0.1).coefficients[2]) < 1e-20


@pytest.mark.parametrize("only", [0.0, 1.0])
def test_one_class_at_all_sites_is_refused(only):
    table = simulated(60, 2, 1)
    said = refused(DataError, scattered(table._replace(y=np.full(60, only)), 3))
    assert said == (
        f"all 60 records are of class {only:.0f}, and a fit needs both. Add a site that has the "
        f"other one, or check how the outcome is coded."
    )


def test_a_class_below_min_cell_is_refused_over_sites_and_fitted_by_one_site_alone():
    table = simulated(80, 1, 1)
    table = table._replace(y=(np.arange(80) % 20 == 3).astype(float))
    said = refused(DataError, scattered(table, 3))
    assert said.startswith("class 1 has fewer than 5 records at all sites together (min_cell).")
    assert_same_model(fit(scattered(table, 3), min_cell=4), fit([table]))


def test_more_than_two_classes_are_refused():
    table = simulated(60, 2, 1)
    said = refused(DataError, [table._replace(y=np.arange(60) % 3)])
    assert said.startswith("the outcome has more than two classes, and method 'logistic' needs")


def test_more_covariates_than_records_are_refused_without_a_penalty():
    rng = np.random.default_rng(0)
    table = LabelledTable(rng.normal(size=(20, 24)), (np.arange(20) % 2).astype(float))
    said = refused(SingularInformation, scattered(table, 2))
    assert said.startswith("20 records are too few for 24 covariates.")
    assert np.isfinite(fit(scattered(table, 2), l2=0.1).coefficients).all()


def test_no_covariates_and_no_records_are_refused():
    empty = LabelledTable(np.zeros((0, 2)), np.zeros(0))
    assert refused(DataError, [empty]) == "no site holds any record; check their selection."
    fed = federation([simulated(30, 1, 0)])
    with pytest.raises(DataError, match="there are no covariates"):
        METHOD.fit(fed, METHOD.configure({}), Task(kind="classification", features=()))


def test_too_few_rounds_are_said_with_what_is_left():
    said = refused(NotConverged, [simulated(100, 2, 0)], max_rounds=2)
    assert "after 2 rounds (tol 1e-07). Raise max_rounds" in said


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"l2": -1.0}, "setting 'l2' of method 'logistic' is -1.0; give a number from 0."),
        ({"tol": 0.5}, "setting 'tol' of method 'logistic' is 0.5; give a number between"),
        ({"max_rounds": 0}, "setting 'max_rounds' of method 'logistic' is 0; give a whole"),
        ({"level": 1.0}, "setting 'level' of method 'logistic' is 1.0; give a number between"),
        ({"solver": "sgd"}, "setting 'solver' of method 'logistic' is 'sgd'; choose one of"),
        ({"penalty": -1.0}, "setting 'penalty' of method 'logistic' is -1.0; give a number"),
        ({"penalty": 1.0, "l2": 2.0}, "'penalty' and 'l2' are two names of one setting of method"),
    ],
)
def test_an_impossible_setting_is_named(given_, said):
    with pytest.raises(SettingError) as caught:
        METHOD.configure(given_)
    assert str(caught.value).startswith(said)


def test_a_site_that_is_away_from_the_start_is_left_out_and_one_that_leaves_ends_the_fit():
    parts = scattered(simulated(150, 2, 4), 3)
    away = federation(parts, quorum=0.5, absent=lambda call, site: site == "site-1")
    assert_same_model(fit(parts, fed=away), fit([parts[0], parts[2]]))
    leaves = federation(parts, quorum=0.5, absent=lambda call, site: call > 3 and site == "site-1")
    with pytest.raises(SiteUnavailable, match="site-1 left during the fit"):
        fit(parts, fed=leaves)
