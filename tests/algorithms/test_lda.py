"""`lda` over sites equals scikit-learn's LinearDiscriminantAnalysis on the pooled table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from algorithms.logistic_cases import public, scattered, simulated
from fedcohort.algorithms.lda import METHOD, LdaModel
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import (
    DataError,
    NothingToLearn,
    SettingError,
    SingularInformation,
    Task,
)
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local


def fit(parts, min_cell=5, origin=None, **options):
    names = tuple(f"x{j}" for j in range(parts[0].x.shape[1]))
    fed = local([Host(f"site-{k}", part, METHOD.steps) for k, part in enumerate(parts)])
    task = Task(
        kind="classification", features=names, min_cell=min_cell, origin=origin, outcome="binary"
    )
    return METHOD.fit(fed, METHOD.configure(options), task)


def same(ours, table, shrinkage):
    """Coefficients by the spread of their covariate, so that 1e-9 means the same for each."""
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage or None)
    theirs.fit(table.x, table.y)
    spread = table.x.std(axis=0)
    assert_allclose(ours.coefficients * spread, theirs.coef_[0] * spread, rtol=1e-9, atol=1e-9)
    assert_allclose(ours.intercept, theirs.intercept_[0], rtol=1e-9)
    digits = 1e-9 + 1e-11 * abs(ours.intercept)  # the decision is what is left of b₀ and xᵀβ
    assert_allclose(ours.predict(table.x), theirs.predict_proba(table.x)[:, 1], atol=digits)
    assert_allclose(ours.decision(table.x), theirs.decision_function(table.x), atol=10 * digits)


@pytest.mark.parametrize("sites", [1, 2, 4])
@pytest.mark.parametrize("shrinkage", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("name", ["breast_cancer", "diabetes"])
def test_the_fit_is_scikit_learns_on_the_pooled_table(name, shrinkage, sites):
    table = public(name)
    ours = fit(scattered(table, sites), shrinkage=shrinkage)
    same(ours, table, shrinkage)
    assert ours.rows == len(table.y)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), p=st.integers(1, 4), shrinkage=st.sampled_from([0.0, 0.3]))
def test_any_table_gives_scikit_learns_fit_however_rows_are_split(seed, p, shrinkage):
    table = simulated(120, p, seed)
    ours = fit(scattered(table, 3, seed), origin=np.r_[1e4, np.zeros(p - 1)], shrinkage=shrinkage)
    same(ours, table, shrinkage)


def test_a_covariate_far_from_the_public_point_loses_no_digits():
    table = simulated(200, 2, 1)
    table = table._replace(x=table.x + np.array([1e7, 0.0]))
    same(fit(scattered(table, 3)), table, 0.0)


def test_collinear_covariates_are_named_and_shrinkage_is_what_helps():
    table = simulated(150, 2, 0)
    twice = table._replace(x=np.column_stack([table.x, 2 * table.x[:, 0]]))
    said = r"'x0', 'x2' are collinear .* Drop one of them, or set shrinkage above 0\.$"
    with pytest.raises(SingularInformation, match=said):
        fit(scattered(twice, 3))
    same(fit(scattered(twice, 3), shrinkage=0.2), twice, 0.2)


def test_a_constant_covariate_is_named_and_has_no_effect_where_it_is_shrunken():
    table = simulated(150, 2, 0)
    flat = table._replace(x=np.column_stack([table.x, np.full(150, 0.3)]))
    with pytest.raises(SingularInformation, match="'x2' is constant"):
        fit(scattered(flat, 3))
    assert abs(fit(scattered(flat, 3), shrinkage=0.2).coefficients[2]) < 1e-30


def test_covariates_that_give_the_class_without_error_are_refused():
    x = np.random.default_rng(0).normal(size=(90, 2))
    y = (x[:, 0] > 0) * 1.0
    table = LabelledTable(np.column_stack([x[:, 1], 3 * y + 2 * x[:, 1]]), y)
    with pytest.raises(NothingToLearn, match=r"follows from other columns|without error"):
        fit(scattered(table, 3))
    with pytest.raises(NothingToLearn, match="without error"):
        fit([table])


@pytest.mark.parametrize(
    ("y", "error", "said"),
    [
        (np.arange(60) % 3, DataError, "other values than 0 and 1"),
        (np.where(np.arange(60) % 2, 1.0, -1.0), DataError, "other values than 0 and 1"),
        (np.where(np.arange(60) % 2, 0.5, 0.0), DataError, "other values than 0 and 1"),
        (np.zeros(60), NothingToLearn, "all 60 records are of class 0"),
    ],
)
@pytest.mark.parametrize("sites", [1, 3])
def test_an_outcome_that_is_not_of_two_classes_is_refused(y, error, said, sites):
    x = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(error, match=said):
        fit(scattered(LabelledTable(x, y.astype(float)), sites))


def test_a_class_of_few_and_too_few_records_are_refused():
    x = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(NothingToLearn, match="class 1 has fewer than 5"):
        fit(scattered(LabelledTable(x, (np.arange(60) < 3) * 1.0), 3))
    wide = LabelledTable(np.random.default_rng(1).normal(size=(24, 20)), np.arange(24) % 2 * 1.0)
    with pytest.raises((SingularInformation, NothingToLearn)):
        fit(scattered(wide, 2))
    assert fit([wide], shrinkage=0.5).rows == 24


def test_no_covariates_are_refused():
    with pytest.raises(DataError, match="there are no covariates"):
        fit([LabelledTable(np.zeros((20, 0)), np.arange(20) % 2 * 1.0)])


@pytest.mark.parametrize("shrinkage", [-0.1, 1.1])
def test_a_shrinkage_is_a_share(shrinkage):
    with pytest.raises(SettingError, match="give a number from 0 to 1"):
        METHOD.configure({"shrinkage": shrinkage})


def test_the_model_holds_no_mean_of_a_class_and_is_read_back():
    table = public("breast_cancer")
    ours = fit(scattered(table, 3))
    assert set(ours.arrays()) == {"intercept", "coefficients"}
    again = LdaModel.restore(ours.arrays(), ours.meta())
    assert_allclose(again.predict(table.x), ours.predict(table.x), rtol=0)
    (row,) = ours.parameters(np.zeros(0))
    assert row["note"].endswith("the probability is 1/(1 + exp(−f))")
    assert [r["covariate"] for r in ours.summary()] == list(ours.features)
