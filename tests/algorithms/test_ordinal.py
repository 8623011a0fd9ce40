"""`ordinal` against statsmodels, SciPy, SAS's published numbers, and its own symmetries."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import chi2

from algorithms import logistic_cases
from algorithms.multinomial_cases import (
    cheeses,
    election,
    fit,
    repeated,
    scattered,
    simulated,
    split,
    with_ordered_model,
)
from fedcohort.algorithms.multinomial import OrdinalModel
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import NotConverged, NothingToLearn, SingularInformation


@pytest.fixture(scope="module")
def pooled():
    return with_ordered_model(election())


@pytest.mark.parametrize("n_sites", [1, 3, 8])
def test_a_fit_is_that_of_statsmodels_on_the_pooled_table(n_sites, pooled):
    table = election()
    model = fit("ordinal", scattered(table, n_sites))
    thresholds, beta, errors, value = pooled
    assert_allclose(model.coefficients, beta, rtol=1e-6, atol=1e-9)
    assert_allclose(model.thresholds, thresholds, rtol=1e-6)
    assert_allclose(model.standard_errors[6:], errors, rtol=5e-6)  # by differences, there
    assert_allclose(model.log_likelihood, value, rtol=1e-10)
    share = np.bincount(table.y) / len(table.y)
    assert_allclose(model.null_log_likelihood, len(table.y) * share @ np.log(share), rtol=1e-10)
    assert model.rounds <= 6


def log_chances(table, parameters, thresholds, *, each=False):
    """Return log P(y) (n,) by differences of distribution functions; `each`: β by threshold."""
    if each:
        own = parameters.reshape(thresholds, -1)
        eta = own[:, 0] - table.x @ own[:, 1:].T
    else:
        eta = parameters[:thresholds] - (table.x @ parameters[thresholds:])[:, None]
    n = len(table.y)
    below = np.column_stack([np.zeros(n), expit(eta), np.ones(n)])
    return np.log(np.diff(below, axis=1))


def likelihood(table, parameters, thresholds, *, each=False):
    found = log_chances(table, parameters, thresholds, each=each)
    return found[np.arange(len(table.y)), table.y]


def test_the_covariance_is_the_inverse_of_the_second_derivative_by_pytorch():
    table = election()
    model = fit("ordinal", scattered(table, 3))
    x, y = torch.tensor(table.x), torch.tensor(table.y)

    def loss(g):
        ends = torch.cat([torch.tensor([-math.inf]), g[:6], torch.tensor([math.inf])])
        eta = x @ g[6:]
        chance = torch.special.expit(ends[y + 1] - eta) - torch.special.expit(ends[y] - eta)
        return -torch.log(chance).sum()

    at = torch.tensor(np.r_[model.thresholds, model.coefficients])
    curved = torch.autograd.functional.hessian(loss, at).numpy()
    errors = np.sqrt(np.diag(np.linalg.inv(curved)))
    assert_allclose(model.standard_errors, errors, rtol=1e-7)


def derivative(function, point, h=1e-5):
    """Return the derivative (k, ...) by central differences."""
    steps = h * np.eye(len(point))
    return np.array([(function(point + s) - function(point - s)) / (2 * h) for s in steps])


@pytest.mark.parametrize("l2", [0.001, 0.1])
def test_a_ridge_fit_and_its_covariance_are_those_of_a_general_optimiser(l2):
    table = simulated(classes=3)
    x = (table.x - table.x.mean(axis=0)) / table.x.std(axis=0)
    table = LabelledTable(x, table.y)
    model = fit("ordinal", scattered(table, 4), l2=l2)

    def loss(g):
        return -likelihood(table, g, 2).sum() + 0.5 * len(x) * l2 * g[2:] @ g[2:]

    best = minimize(loss, np.r_[-1.0, 1.0, 0.0, 0.0, 0.0], method="BFGS", options={"gtol": 1e-7}).x
    found = np.r_[model.thresholds, model.coefficients]
    assert_allclose(found, best, atol=2e-6)
    assert_allclose(derivative(loss, found), 0.0, atol=1e-5)
    curved = derivative(lambda g: derivative(loss, g, 1e-4), found, 1e-4)
    assert_allclose(model.covariance, np.linalg.inv(curved), rtol=1e-4, atol=1e-7)
    assert model.proportional_odds() == []


def test_a_weighted_fit_is_that_of_repeated_records_and_so_is_the_test():
    table = simulated(weights=True)
    model = fit("ordinal", scattered(table, 3), weights="w")
    _, beta, errors, value = with_ordered_model(repeated(table))
    assert_allclose(model.coefficients, beta, rtol=1e-6, atol=1e-9)
    assert_allclose(model.standard_errors[3:], errors, rtol=5e-6)
    assert_allclose(model.log_likelihood, value, rtol=1e-10)
    assert_allclose(model.tests, fit("ordinal", [repeated(table)]).tests, rtol=1e-7)


def test_with_two_classes_it_is_a_logistic_regression():
    table = logistic_cases.simulated(200, 3, seed=1)
    model = fit("ordinal", scattered(table, 3))
    other = logistic_cases.fit(logistic_cases.scattered(table, 3))
    assert_allclose(model.coefficients, other.coefficients, rtol=1e-7, atol=1e-12)
    assert_allclose(model.thresholds, -other.intercept, rtol=1e-7)
    assert_allclose(model.standard_errors, other.standard_errors, rtol=1e-6)
    assert model.proportional_odds() == []


def test_odds_ratios_thresholds_and_probabilities_go_together():
    table = simulated(classes=3)
    model = fit("ordinal", [table], levels=("mild", "severe", "fatal"))
    rows = model.summary()
    assert_allclose([r["odds_ratio"] for r in rows], np.exp(model.coefficients))
    assert [r["name"] for r in model.parameters(np.zeros(0))] == [
        "threshold, mild | severe", "threshold, severe | fatal",
    ]  # fmt: skip
    one, more = table.x[:5], table.x[:5] + np.array([0.0, 0.0, 1.0])
    odds = [(1 - np.cumsum(model.predict(x), axis=1)[:, :2]) for x in (one, more)]
    ratios = (odds[1] / (1 - odds[1])) / (odds[0] / (1 - odds[0]))
    assert_allclose(
        ratios, rows[2]["odds_ratio"], rtol=1e-9
    )  # of a higher class, at each threshold


def test_sas_s_example_of_four_cheeses():
    """SAS/STAT User's Guide 14.1, PROC LOGISTIC, example 72.3.

    SAS's test has the observed information, which is singular here, since no taster gave some
    cheeses some notes; its 17.287 follows from that. Ours has the expected information: 20.94. With
    standard errors it is the other way round: SAS's are by the expected information
    (`tests/numerics/test_classes.py`), ours by the observed one, as those of statsmodels and R.
    """
    table = cheeses()
    model = fit("ordinal", scattered(table, 3), min_cell=1)
    published = [-7.0801, -6.0249, -4.9254, -3.8568, -2.5205, -1.5685, -0.0669, 1.4930]
    assert_allclose(model.thresholds, published, atol=1.1e-4)
    assert_allclose(model.coefficients, [-1.6128, -4.9645, -3.3227], atol=2e-4)
    assert_allclose(model.deviance, 711.348, atol=1e-3)
    whole = np.column_stack([model.thresholds, np.tile(model.coefficients, (8, 1))]).ravel()

    def slope(g):
        return derivative(lambda a: likelihood(table, a, 8, each=True).sum(), g, 1e-4)

    observed = -derivative(slope, whole, 1e-4)
    score = slope(whole)
    assert_allclose(score @ np.linalg.pinv(observed, rcond=1e-7) @ score, 17.287, atol=2e-3)
    assert_allclose(model.proportional_odds()[-1]["chi2"], by_hand(table, model)[-1], rtol=1e-6)
    assert [r["df"] for r in model.proportional_odds()] == [7, 7, 7, 21]


def by_hand(table, model):
    """Return χ² of each covariate and of all, from derivatives of the wider model's log-likelihood.

    The expected information is the mean of the squared score of each record over all classes that
    it might have been of.
    """
    m, p = len(model.thresholds), table.x.shape[1]
    narrow = np.column_stack([model.thresholds, np.tile(model.coefficients, (m, 1))]).ravel()
    slopes = derivative(lambda a: log_chances(table, a, m, each=True), narrow)  # (k, n, K)
    chances = np.exp(log_chances(table, narrow, m, each=True))
    score = slopes[:, np.arange(len(table.y)), table.y].sum(axis=1)
    expected = np.einsum("inc,jnc,nc->ij", slopes, slopes, chances)
    found = []
    unit = np.eye(len(narrow)).reshape(m, 1 + p, -1)
    for freed in [*([i] for i in range(1, 1 + p)), [*range(1, 1 + p)]]:
        kept = [unit[:, i].sum(axis=0) for i in range(1, 1 + p) if i not in freed]
        wide = np.array([*unit[:, 0], *kept, *(u for i in freed for u in unit[:, i])])
        u = wide @ score
        found.append(u @ np.linalg.solve(wide @ expected @ wide.T, u))
    return found


@pytest.mark.parametrize("classes", [3, 5])
def test_the_test_of_proportional_odds_is_that_by_hand(classes):
    table = simulated(classes=classes)
    table = LabelledTable((table.x - table.x.mean(axis=0)) / table.x.std(axis=0), table.y)
    model = fit("ordinal", scattered(table, 3))
    rows = model.proportional_odds()
    assert_allclose([r["chi2"] for r in rows], by_hand(table, model), rtol=1e-6)
    assert [r["df"] for r in rows] == [classes - 2] * 3 + [3 * (classes - 2)]
    assert_allclose([r["p"] for r in rows], [chi2.sf(r["chi2"], r["df"]) for r in rows])
    assert [r["covariate"] for r in rows] == ["x0", "x1", "x2", "global"]


def test_the_test_has_its_size_where_odds_are_proportional_and_power_where_not():
    """χ² of 4 degrees over 40 tables: mean 4 ± 0.45, one standard error."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(40):
        x = rng.normal(size=(400, 2))
        score = x @ [0.8, -0.5] + rng.logistic(size=400)
        table = LabelledTable(x, np.searchsorted([-1.5, 0.0, 1.2], score))
        found.append(fit("ordinal", [table]).tests[-1, 0])
    assert abs(np.mean(found) - 4.0) < 1.4
    assert np.mean(np.array(found) > chi2.isf(0.05, 4)) < 0.16  # 0.05 and three errors
    x = rng.normal(size=(400, 2))
    above = rng.random((400, 2)) < expit(np.outer(x[:, 0], [1.5, -1.5]))
    rows = fit("ordinal", [LabelledTable(x, above[:, 0] * (1 + above[:, 1]))]).proportional_odds()
    assert rows[0]["p"] < 1e-4
    assert rows[1]["p"] > 0.01


@given(n_sites=st.integers(2, 6), seed=st.integers(0, 2**16), l2=st.sampled_from([0.0, 0.02]))
def test_a_fit_depends_neither_on_the_split_nor_on_the_direction_of_the_order(n_sites, seed, l2):
    table = simulated(n=150, seed=seed, spread=0.4)
    pooled = fit("ordinal", [table], l2=l2)
    turned = LabelledTable(table.x, 3 - table.y)
    over = fit("ordinal", scattered(turned, n_sites, seed), l2=l2, min_cell=1)
    assert_allclose(over.coefficients, -pooled.coefficients, rtol=1e-6, atol=1e-10)
    assert_allclose(over.thresholds, -pooled.thresholds[::-1], rtol=1e-6, atol=1e-8)
    assert_allclose(over.predict(table.x)[:, ::-1], pooled.predict(table.x), atol=1e-8)
    assert_allclose(over.tests, pooled.tests, rtol=1e-5, atol=1e-8)


def test_sites_may_lack_classes_have_twelve_records_one_or_none():
    table = simulated(classes=3)
    where = np.where(table.y == 2, 1, np.arange(300) % 2)
    where[:12], where[12] = 2, 3
    parts = [*split(table, where), LabelledTable(table.x[:0], table.y[:0])]
    model = fit("ordinal", parts)
    thresholds, beta, _, _ = with_ordered_model(table)
    assert_allclose(model.coefficients, beta, rtol=1e-6)
    assert_allclose(model.thresholds, thresholds, rtol=1e-6)


@pytest.mark.parametrize("absent", [0, 1, 2, 3])
def test_a_class_without_records_has_the_probability_0_and_changes_nothing_else(absent):
    table = simulated(classes=3)
    shifted = LabelledTable(table.x, table.y + (table.y >= absent))
    model = fit("ordinal", scattered(shifted, 3), levels=("a", "b", "c", "d"))
    expected = fit("ordinal", [table])
    chances = model.predict(table.x)
    assert_array_equal(chances[:, absent], 0.0)
    assert_allclose(np.delete(chances, absent, axis=1), expected.predict(table.x), rtol=1e-8)
    assert_allclose(model.covariance, expected.covariance, rtol=1e-6)
    assert_allclose(model.tests, expected.tests, rtol=1e-6)


def test_what_has_no_maximum_is_refused_with_the_covariates_that_are_to_blame():
    table = simulated(classes=3)
    apart = LabelledTable(np.column_stack([table.x, table.y == 2]), table.y)
    with pytest.raises(NotConverged, match=r"without limit along 'flag'.*tell the classes apart"):
        fit("ordinal", [apart], features=("a", "b", "c", "flag"))
    assert np.isfinite(fit("ordinal", [apart], l2=0.01).coefficients).all()
    twice = LabelledTable(np.column_stack([table.x, table.x[:, 1] + 1]), table.y)
    with pytest.raises(SingularInformation, match="'b', 'd' are collinear"):
        fit("ordinal", [twice], features=("a", "b", "c", "d"))
    with pytest.raises(NothingToLearn, match="all 300 records are of class 'b'"):
        fit("ordinal", [LabelledTable(table.x, np.ones(300, int))], levels=("a", "b"))


def test_a_model_that_was_saved_is_the_model():
    table = simulated(classes=3)
    model = fit("ordinal", [table])
    back = OrdinalModel.restore(model.arrays(), model.meta())
    assert back.summary() == model.summary()
    assert back.proportional_odds() == model.proportional_odds()
    assert_array_equal(back.predict(table.x), model.predict(table.x))
