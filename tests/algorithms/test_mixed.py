"""`mixed` equals dense algebra, statsmodels, and brute quadrature on the pooled table."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose
from scipy.stats import chi2, norm
from statsmodels.regression.mixed_linear_model import MixedLM

from algorithms.mixed_cases import (
    brute_log_likelihood,
    brute_slopes,
    dense,
    federation,
    fit,
    simulated,
    stacked,
)
from fedcohort.algorithms.mixed import MixedModel
from fedcohort.data.tables import LabelledTable

SIZES = (5, 40, 1, 70, 33, 50, 12)
both = pytest.mark.parametrize("likelihood", ["reml", "ml"])
#: τ and the seed of its table; the estimates of 0.1 and seed 3 lie at τ² = 0.
LINEAR = [(0.1, 3), (0.3, 1), (1.0, 2), (5.0, 4)]


@both
@pytest.mark.parametrize(("tau", "seed"), LINEAR)
def test_a_linear_fit_is_the_maximum_of_the_likelihood_of_all_rows(tau, seed, likelihood):
    parts = simulated(SIZES, tau, seed)
    ours, theirs = fit(parts, likelihood=likelihood), dense(parts, likelihood)
    assert_allclose(ours.tau2, theirs.tau2, rtol=1e-8)
    assert_allclose(ours.sigma2, theirs.sigma2, rtol=1e-8)
    assert_allclose([ours.intercept, *ours.coefficients], theirs.coefficients, rtol=1e-8)
    assert_allclose(ours.standard_errors, theirs.errors, rtol=1e-8)
    assert_allclose(ours.log_likelihood, theirs.log_likelihood, rtol=1e-11)


@both
@pytest.mark.parametrize(("tau", "seed"), LINEAR[1:])
def test_a_linear_fit_equals_statsmodels(tau, seed, likelihood):
    parts = simulated(SIZES, tau, seed)
    ours = fit(parts, likelihood=likelihood)
    x, y, site = stacked(parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own optimiser
        model = MixedLM(y, np.column_stack([np.ones(len(y)), x]), site)
        theirs = model.fit(reml=likelihood == "reml", method="bfgs", gtol=1e-9)
    assert_allclose(ours.tau2, theirs.cov_re[0, 0], rtol=1e-5)
    assert_allclose(ours.sigma2, theirs.scale, rtol=1e-5)
    assert_allclose([ours.intercept, *ours.coefficients], theirs.fe_params, rtol=1e-5)
    assert_allclose(ours.log_likelihood, theirs.llf, rtol=1e-9)
    # its standard errors are of (β, τ²) together; ours are those given θ, as lme4's and nlme's


def test_one_mean_of_balanced_sites_gives_the_textbook_analysis_of_variance():
    # Searle, Casella & McCulloch, Variance Components, 1992, section 3.5: with m records at each of
    # J sites, REML has σ² = MSW and τ² = (MSB − MSW)/m, and the mean the variance MSB/(J m).
    rng = np.random.default_rng(5)
    sites, m = 8, 12
    x = np.tile(rng.permutation(np.repeat([-1.0, 1.0], m // 2)), (sites, 1))
    y = rng.normal(size=(sites, m)) + rng.normal(size=(sites, 1))
    half = x == 1
    y -= np.where(half, (y * half).sum(1, keepdims=True), (y * ~half).sum(1, keepdims=True)) / 6
    y += rng.normal(size=(sites, 1))  # so that x has no effect at all, at any site
    noise = rng.normal(size=(sites, m))
    y += noise - (noise * x).mean(axis=1, keepdims=True) * x
    within = ((y - y.mean(axis=1, keepdims=True)) ** 2).sum() / (sites * (m - 1) - 1)
    between = m * y.mean(axis=1).var(ddof=1)
    ours = fit([LabelledTable(a[:, None], b) for a, b in zip(x, y, strict=True)])
    assert_allclose(ours.sigma2, within, rtol=1e-9)
    assert_allclose(ours.tau2, (between - within) / m, rtol=1e-8)
    assert_allclose(ours.icc, ours.tau2 / (ours.tau2 + ours.sigma2), rtol=1e-12)
    assert_allclose(ours.standard_errors[0] ** 2, between / sites / m, rtol=1e-8)
    assert abs(ours.coefficients[0]) < 1e-12


def test_the_interval_of_tau2_is_walds_by_the_likelihoods_second_derivative():
    parts = simulated(SIZES, 1.0, 2)
    ours = fit(parts, likelihood="ml")
    x, y, site = stacked(parts)
    same = (site[:, None] == site[None, :]).astype(float)
    design = np.column_stack([np.ones(len(y)), x])

    def value(logs):
        tau2, sigma2 = np.exp(logs)
        cov = sigma2 * np.eye(len(y)) + tau2 * same
        inverse = np.linalg.inv(cov)
        beta = np.linalg.solve(design.T @ inverse @ design, design.T @ inverse @ y)
        rest = y - design @ beta
        return -0.5 * (np.linalg.slogdet(cov)[1] + rest @ inverse @ rest)

    at, h = np.log([ours.tau2, ours.sigma2]), 1e-3
    axes = h * np.eye(2)
    bend = [
        [
            (value(at + a + b) - value(at + a - b) - value(at - a + b) + value(at - a - b))
            / (4 * h**2)
            for b in axes
        ]
        for a in axes
    ]
    error = np.sqrt(np.linalg.inv(-np.array(bend))[0, 0])
    ends = ours.tau2 * np.exp(norm.ppf([0.025, 0.975]) * error)
    assert_allclose([ours.tau2_low, ours.tau2_high], ends, rtol=1e-4)


@both
def test_the_test_of_no_difference_between_sites_compares_with_the_ordinary_regression(likelihood):
    parts = simulated(SIZES, 0.3, 1)
    ours = fit(parts, likelihood=likelihood)
    alone = fit([_pooled(parts)])
    if likelihood == "reml":
        assert_allclose(ours.null_log_likelihood, alone.log_likelihood, rtol=1e-12)
    x, y, _ = stacked(parts)
    design = np.column_stack([np.ones(len(y)), x])
    rest = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    if likelihood == "ml":
        by_hand = norm.logpdf(rest, scale=np.sqrt(np.mean(rest**2))).sum()
        assert_allclose(ours.null_log_likelihood, by_hand, rtol=1e-12)
    statistic, p = ours.heterogeneity
    assert_allclose(statistic, 2 * (ours.log_likelihood - ours.null_log_likelihood))
    assert_allclose(p, chi2.sf(statistic, 1) / 2, rtol=1e-9)


def _pooled(parts):
    x, y, _ = stacked(parts)
    return LabelledTable(x, y)


def test_sites_that_do_not_differ_give_the_ordinary_regression_exactly():
    parts = simulated(SIZES, 0.1, 3)
    ours = fit(parts)
    x, y, _ = stacked(parts)
    design = np.column_stack([np.ones(len(y)), x])
    beta, (rest,), *_ = np.linalg.lstsq(design, y, rcond=None)
    assert ours.tau2 == ours.tau2_low == ours.icc == 0.0
    assert np.isnan(ours.tau2_high)
    assert ours.heterogeneity == (0.0, 1.0)
    assert_allclose([ours.intercept, *ours.coefficients], beta, rtol=1e-9)
    assert_allclose(ours.sigma2, rest / (len(y) - 3), rtol=1e-12)


GENERAL = [("binomial", 1.0, 3), ("binomial", 3.0, 2), ("poisson", 0.5, 2), ("poisson", 2.0, 1)]


@pytest.mark.parametrize(("family", "tau", "seed"), GENERAL)
def test_the_likelihood_is_the_integral_and_has_its_maximum_at_the_fit(family, tau, seed):
    parts = simulated((1, 8, 30, 12, 20), tau, seed, family)
    ours = fit(parts, family)
    point = np.r_[ours.intercept, ours.coefficients, np.sqrt(ours.tau2)]
    value = brute_log_likelihood(parts, family, point[:-1], point[-1])
    assert ours.tau2 > 0.01
    assert_allclose(ours.log_likelihood, value, rtol=1e-9)
    slope, bend = brute_slopes(parts, family, point)
    assert_allclose(slope, 0, atol=1e-6)
    covariance = np.linalg.inv(-bend)
    assert_allclose(ours.covariance, covariance[:-1, :-1], rtol=1e-3, atol=1e-5)
    error = 2 * np.sqrt(covariance[-1, -1] / ours.tau2)
    ends = ours.tau2 * np.exp(norm.ppf([0.025, 0.975]) * error)
    assert_allclose([ours.tau2_low, ours.tau2_high], ends, rtol=1e-3)


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_without_a_difference_between_sites_a_generalised_fit_is_the_ordinary_one(family):
    parts = simulated((30, 40, 50), 0.0, 4, family)
    ours, alone = fit(parts, family), fit([_pooled(parts)], family)
    assert ours.tau2 == 0.0
    assert_allclose(ours.coefficients, alone.coefficients, rtol=1e-8)
    assert_allclose(ours.covariance, alone.covariance, rtol=1e-6)
    assert ours.log_likelihood == ours.null_log_likelihood


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_one_site_gives_the_generalised_linear_model_of_statsmodels(family):
    table = simulated((150,), 0.0, 4, family)[0]
    kind = sm.families.Binomial() if family == "binomial" else sm.families.Poisson()
    theirs = sm.GLM(table.y, sm.add_constant(table.x), family=kind).fit(tol=1e-12)
    ours = fit([table], family)
    assert_allclose([ours.intercept, *ours.coefficients], theirs.params, rtol=1e-8)
    assert_allclose(ours.standard_errors, theirs.bse, rtol=1e-6)
    assert_allclose(ours.log_likelihood, theirs.llf, rtol=1e-10)


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_a_fit_takes_ten_rounds_at_most(family):
    for seed, tau in enumerate([0.0, 0.1, 0.3, 0.7, 1.0, 3.0]):
        parts = simulated((60, 40, 80, 20, 100, 50), tau, seed, family)
        fed = federation(parts)
        fit(parts, family, fed=fed)
        assert len(fed.history) <= 10


def test_a_count_has_an_offset_with_the_coefficient_one():
    parts = simulated((40, 60, 50), 0.6, 8, "poisson")
    rng = np.random.default_rng(0)
    longer = [
        LabelledTable(np.column_stack([p.x, shift]), rng.poisson(np.exp(0.4 * p.x[:, 0] + shift)))
        for p in parts
        for shift in [rng.normal(3, 1, len(p.y))]
    ]
    ours = fit(longer, "poisson", features=("a", "b", "log_years"), offset=True)
    by_hand = ours.intercept + longer[0].x[:, :2] @ ours.coefficients + longer[0].x[:, 2]
    assert_allclose(ours.predict(longer[0].x), np.exp(by_hand))
    by_constant = [p._replace(x=np.column_stack([p.x[:, :2], p.x[:, 2] + 2])) for p in longer]
    moved = fit(by_constant, "poisson", features=("a", "b", "log_years"), offset=True)
    assert_allclose(moved.intercept, ours.intercept - 2, rtol=1e-7)
    alone = sm.GLM(
        np.concatenate([p.y for p in longer]),
        sm.add_constant(np.vstack([p.x[:, :2] for p in longer])),
        family=sm.families.Poisson(),
        offset=np.concatenate([p.x[:, 2] for p in longer]),
    ).fit(tol=1e-13)
    assert_allclose(ours.null_log_likelihood, alone.llf, rtol=1e-9)


def test_an_offset_of_a_linear_fit_is_taken_off_the_outcome():
    parts = simulated(SIZES, 1.0, 2)
    shift = [np.linspace(-3, 4, len(p.y)) for p in parts]
    moved = [
        LabelledTable(np.column_stack([p.x, s]), p.y + s) for p, s in zip(parts, shift, strict=True)
    ]
    ours, plain = fit(moved, offset=True), fit(parts)
    assert_allclose(ours.coefficients, plain.coefficients, rtol=1e-8)
    assert_allclose([ours.tau2, ours.intercept], [plain.tau2, plain.intercept], rtol=1e-7)
    assert_allclose(ours.predict(moved[1].x), plain.predict(parts[1].x) + shift[1])


def test_the_summary_is_walds():
    parts = simulated((40, 60, 50, 30, 30), 1.0, 8, "binomial")
    model = fit(parts, "binomial", level=0.9)
    rows = pd.DataFrame(model.summary())
    errors = model.standard_errors[1:]
    assert_allclose(rows.standard_error, errors)
    assert_allclose(rows.p, 2 * norm.sf(np.abs(model.coefficients / errors)), rtol=1e-9)
    ends = model.coefficients + norm.ppf([[0.05], [0.95]]) * errors
    assert_allclose([rows.low, rows.high], ends)
    ratios, logs = ["odds_ratio", "or_low", "or_high"], ["coefficient", "low", "high"]
    assert_allclose(rows[ratios], np.exp(rows[logs]))
    assert "rate_ratio" in fit(simulated((40, 60), 0, 1, "poisson"), "poisson").summary()[0]
    assert set(fit(simulated((40, 60), 0, 1)).summary()[0]) == {
        "covariate", "coefficient", "standard_error", "z", "p", "low", "high",
    }  # fmt: skip


def test_site_effects_are_the_best_linear_predictors():
    parts = simulated(SIZES[:2] + SIZES[3:], 1.0, 2)
    ours = fit(parts, site_effects=True, min_cell=5)
    x, y, site = stacked(parts)
    cov = ours.sigma2 * np.eye(len(y)) + ours.tau2 * (site[:, None] == site[None, :])
    rest = np.linalg.solve(cov, y - ours.intercept - x @ ours.coefficients)
    expected = {f"site-{k}": ours.tau2 * rest[site == k].sum() for k in range(len(parts))}
    assert ours.site_effects.keys() == expected.keys()
    for name, value in expected.items():
        assert_allclose(ours.site_effects[name], value, rtol=1e-6)
    assert fit(parts).site_effects == {}


def test_a_count_sites_effect_is_the_mode_given_its_records():
    parts = simulated((40, 60, 50), 0.8, 8, "poisson")
    ours = fit(parts, "poisson", site_effects=True)
    for k, part in enumerate(parts):
        u = ours.site_effects[f"site-{k}"]
        slope = (part.y - np.exp(ours.linear(part.x, u))).sum() - u / ours.tau2
        assert abs(slope) < 1e-4


def test_a_model_survives_saving():
    model = fit(simulated((40, 60, 50), 1.0, 8), site_effects=True)
    again = MixedModel.restore(model.arrays(), model.meta())
    assert again.meta() == model.meta()
    assert (again.icc, again.tau2_high) == (model.icc, model.tau2_high)
