"""`multinomial` against statsmodels, scikit-learn, and its own symmetries."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression

import fedcohort as fc
from algorithms import logistic_cases
from algorithms.multinomial_cases import (
    election,
    fit,
    repeated,
    scattered,
    simulated,
    split,
    with_mnlogit,
)
from fedcohort.algorithms.multinomial import MultinomialModel
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics.wald import ratio_rows
from fedcohort.protocol import (
    DataError,
    NotConverged,
    NothingToLearn,
    SettingError,
    SingularInformation,
)


def parameters(model):
    return np.column_stack([model.intercepts, model.coefficients])


@pytest.mark.parametrize("n_sites", [1, 3, 8])
def test_a_fit_is_that_of_statsmodels_on_the_pooled_table(n_sites):
    table = election()
    model = fit("multinomial", scattered(table, n_sites))
    beta, covariance, value = with_mnlogit(table)
    assert_allclose(parameters(model), beta, rtol=1e-6, atol=1e-9)
    assert_allclose(model.standard_errors, np.sqrt(np.diag(covariance)), rtol=1e-6)
    assert_allclose(model.covariance, covariance, rtol=1e-6, atol=1e-9)
    assert_allclose(model.log_likelihood, value, rtol=1e-10)
    share = np.bincount(table.y) / len(table.y)
    assert_allclose(model.null_log_likelihood, len(table.y) * share @ np.log(share), rtol=1e-10)
    assert model.rounds <= 7


@pytest.mark.parametrize("l2", [1e-4, 0.01, 0.5])
def test_a_ridge_fit_is_that_of_scikit_learn(l2):
    table = simulated(classes=3)
    z = LabelledTable((table.x - table.x.mean(axis=0)) / table.x.std(axis=0), table.y)
    model = fit("multinomial", scattered(z, 4), l2=l2)
    other = LogisticRegression(C=1 / (len(z.y) * l2), tol=1e-13, max_iter=5000, solver="newton-cg")
    other.fit(z.x, z.y)
    assert_allclose(model.coef_, other.coef_, rtol=1e-6, atol=1e-9)
    assert_allclose(model.intercept_, other.intercept_, rtol=1e-6, atol=1e-9)
    assert_allclose(model.predict(z.x), other.predict_proba(z.x), rtol=1e-6, atol=1e-9)


def test_a_weighted_fit_is_that_of_repeated_records():
    table = simulated(weights=True)
    model = fit("multinomial", scattered(table, 3), weights="w")
    beta, covariance, value = with_mnlogit(repeated(table))
    assert_allclose(parameters(model), beta, rtol=1e-6, atol=1e-9)
    assert_allclose(model.standard_errors, np.sqrt(np.diag(covariance)), rtol=1e-6)
    assert_allclose(model.log_likelihood, value, rtol=1e-10)
    assert model.rows == len(table.y)


@pytest.mark.parametrize("l2", [0.0, 0.01])
def test_with_two_classes_it_is_a_logistic_regression(l2):
    table = logistic_cases.simulated(200, 3, seed=1)
    model = fit("multinomial", scattered(table, 3), l2=l2)
    other = logistic_cases.fit(logistic_cases.scattered(table, 3), l2=l2)
    assert_allclose(model.coefficients[0], other.coefficients, rtol=1e-7, atol=1e-12)
    assert_allclose(model.standard_errors, other.standard_errors, rtol=1e-6)
    assert_allclose(model.log_likelihood, other.log_likelihood, rtol=1e-9)
    assert_allclose(model.coef_, other.coef_, rtol=1e-7)


def test_relative_risk_ratios_and_their_intervals_are_of_the_reference_that_is_asked():
    table = simulated(classes=3)
    levels = ("mild", "severe", "fatal")
    plain = fit("multinomial", [table], levels=levels)
    model = fit("multinomial", [table], levels=levels, reference="severe")
    beta, covariance, _ = with_mnlogit(table)
    fatal = beta[1] - beta[0]  # statsmodels compares with class 0
    k = len(fatal)
    turn = np.hstack([-np.eye(k), np.eye(k)])
    error = np.sqrt(np.diag(turn @ covariance @ turn.T))
    rows = pd.DataFrame(model.summary()).set_index(["class", "covariate"])
    assert set(rows["reference"]) == {"severe"}
    assert_allclose(rows.loc["fatal", "coefficient"], fatal[1:], rtol=1e-6)
    assert_allclose(rows.loc["fatal", "relative_risk_ratio"], np.exp(fatal[1:]), rtol=1e-6)
    expected = pd.DataFrame(ratio_rows(model.features, fatal[1:], error[1:], 0.95))
    assert_allclose(rows.loc["fatal", "rrr_low"], np.exp(expected["low"]), rtol=1e-6)
    assert_allclose(rows.loc["fatal", "p"], expected["p"], rtol=1e-5)
    assert_allclose(rows.loc["mild", "coefficient"], -beta[0, 1:], rtol=1e-6)
    assert_allclose(model.predict(table.x), plain.predict(table.x), rtol=1e-12)
    assert [r["name"] for r in model.parameters(np.zeros(0))] == [
        "intercept, mild", "intercept, fatal",
    ]  # fmt: skip


@given(n_sites=st.integers(2, 6), seed=st.integers(0, 2**16), l2=st.sampled_from([0.0, 0.02]))
def test_a_fit_depends_neither_on_the_split_nor_on_the_numbering_of_classes(n_sites, seed, l2):
    table = simulated(n=150, seed=seed, classes=3, spread=0.4)
    pooled = fit("multinomial", [table], l2=l2)
    turned = LabelledTable(table.x, (table.y + 1) % 3)
    over = fit("multinomial", scattered(turned, n_sites, seed), l2=l2, min_cell=1)
    chances = pooled.predict(table.x)
    assert_allclose(over.predict(table.x)[:, [1, 2, 0]], chances, rtol=1e-7, atol=1e-9)
    assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    if not l2:  # the scores of the intercepts are 0
        assert_allclose(chances.mean(axis=0), np.bincount(table.y) / 150, atol=1e-9)


def test_sites_may_lack_classes_have_twelve_records_one_or_none():
    table = simulated(classes=3)
    where = np.where(table.y == 2, 1, np.arange(300) % 2)
    where[:12], where[12] = 2, 3
    parts = [*split(table, where), LabelledTable(table.x[:0], table.y[:0])]
    assert 2 not in parts[0].y
    assert [len(p.y) for p in parts[2:]] == [12, 1, 0]
    model = fit("multinomial", parts)
    assert_allclose(parameters(model), with_mnlogit(table)[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("absent", [0, 1, 3])
def test_a_class_without_records_has_the_probability_0_and_changes_nothing_else(absent):
    table = simulated(classes=3)
    shifted = LabelledTable(table.x, table.y + (table.y >= absent))
    model = fit("multinomial", scattered(shifted, 3), levels=("a", "b", "c", "d"))
    expected = fit("multinomial", [table])
    chances = model.predict(table.x)
    assert_array_equal(chances[:, absent], 0.0)
    assert_allclose(np.delete(chances, absent, axis=1), expected.predict(table.x), rtol=1e-8)
    assert_allclose(model.covariance, expected.covariance, rtol=1e-6)
    assert f"no record is of class '{'abcd'[absent]}'" in model.cautions()[0]


def test_what_has_no_maximum_is_refused_with_the_covariates_that_are_to_blame():
    table = simulated(classes=3)
    apart = LabelledTable(np.column_stack([table.x, table.y == 2]), table.y)
    with pytest.raises(NotConverged, match=r"without limit along 'flag'.*tell the classes apart"):
        fit("multinomial", [apart], features=("a", "b", "c", "flag"))
    held = fit("multinomial", [apart], l2=0.01)
    assert np.isfinite(held.coefficients).all()
    twice = LabelledTable(np.column_stack([table.x, table.x[:, 1] + 1]), table.y)
    with pytest.raises(SingularInformation, match="'b', 'd' are collinear"):
        fit("multinomial", [twice], features=("a", "b", "c", "d"))
    still = LabelledTable(np.column_stack([table.x, np.full(300, 7.0)]), table.y)
    with pytest.raises(SingularInformation, match="'d' is constant"):
        fit("multinomial", [still], features=("a", "b", "c", "d"))
    few = LabelledTable(table.x[:3], table.y[:3])
    with pytest.raises(SingularInformation, match="3 records are too few for 3"):
        fit("multinomial", [few], levels=("a", "b", "c"))


def test_outcomes_without_two_classes_and_unknown_ones_are_refused():
    table = simulated(classes=3)
    same = LabelledTable(table.x, np.ones(300, int))
    for parts in ([same], scattered(same, 2)):
        with pytest.raises(NothingToLearn, match="all 300 records are of class 'b'"):
            fit("multinomial", parts, levels=("a", "b", "c"))
    with pytest.raises(DataError, match=r"other classes than 'a', 'b'. List all"):
        fit("multinomial", [table], levels=("a", "b"))
    with pytest.raises(SettingError, match=r"'reference'.*is 'd', which is no class"):
        fit("multinomial", [table], levels=("a", "b", "c"), reference="d")
    with pytest.raises(NothingToLearn, match="class 'a' has fewer than 200 records"):
        fit("multinomial", scattered(table, 2), levels=("a", "b", "c"), min_cell=200)


def test_a_model_that_was_saved_is_the_model():
    table = simulated(classes=3)
    model = fit("multinomial", [table], reference="c1")
    back = MultinomialModel.restore(model.arrays(), model.meta())
    assert back.summary() == model.summary()
    assert_array_equal(back.predict(table.x), model.predict(table.x))
    assert back.likelihood_ratio == model.likelihood_ratio


def test_a_user_fits_three_classes_of_a_messy_table():
    """Missing values, a text column of classes, a site without a class and one of 12 rows."""
    rng = np.random.default_rng(5)
    table = simulated(n=260, classes=3, seed=5)
    frame = pd.DataFrame(table.x, columns=["dose", "score", "smoker"])
    frame["course"] = np.array(["mild", "severe", "fatal"])[table.y]
    frame["site"] = np.where(np.arange(260) < 12, "tiny", rng.choice(["north", "south"], 260))
    frame.loc[(frame.site == "north") & (frame.course == "fatal"), "site"] = "south"
    frame.loc[rng.random(260) < 0.1, "score"] = np.nan
    known = {"variables": {c: {"type": "number"} for c in ("dose", "score", "smoker")}}
    known["variables"]["course"] = {"type": "category", "levels": ["mild", "severe", "fatal"]}
    fed = fc.simulate(frame, sites="site", outcome=fc.Category("course"), dictionary=known)
    done = fc.fit("multinomial", fed, reference="mild")
    filled = frame.score.fillna(done.parts.design.columns[1].fill)
    own = LabelledTable(np.column_stack([frame.dose, filled, frame.smoker]), table.y)
    beta, covariance, value = with_mnlogit(own)
    rows = done.summary.set_index(["class", "covariate"])
    for number, name in ((1, "severe"), (2, "fatal")):
        assert_allclose(rows.loc[name, "coefficient"], beta[number - 1, 1:], rtol=1e-6)
        errors = np.sqrt(np.diag(covariance)).reshape(2, -1)[number - 1, 1:]
        assert_allclose(rows.loc[name, "standard_error"], errors, rtol=1e-6)
    assert_allclose(done.model.log_likelihood, value, rtol=1e-9)
    assert_allclose(done.predict(frame).sum(axis=1), 1.0)
