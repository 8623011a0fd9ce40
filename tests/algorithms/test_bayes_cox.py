"""`bayes_cox` over sites has the posterior of the pooled table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import chi2, multivariate_t, norm
from statsmodels.duration.hazard_regression import PHReg

from algorithms.cox_cases import Overheard, public, simulated, split
from algorithms.cox_cases import fit as fit_cox
from fedcohort.algorithms.cox import BAYES, BayesCoxModel
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import (
    DataError,
    NotConverged,
    NotSupported,
    SettingError,
    SingularInformation,
    Task,
)
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local


def fit(parts, *, last_is_offset=False, watch=None, **options):
    names = tuple(f"x{j}" for j in range(parts[0].x.shape[1]))
    strata = 0 if parts[0].stratum is None else 1 + max(p.stratum.max() for p in parts)
    levels = tuple(f"level-{k}" for k in range(strata))
    task = Task(kind="survival", features=names, offset=last_is_offset, strata=levels)
    fed = local([Host(f"site-{k}", part, BAYES.steps) for k, part in enumerate(parts)])
    return BAYES.fit(watch(fed) if watch else fed, BAYES.configure(options), task)


def scattered(table, sites, seed=0):
    return split(table, np.random.default_rng(seed).integers(0, sites, len(table.x)))


def by_statsmodels(table, ties, scale, strata=None):
    """Mode and covariance of statsmodels' partial likelihood times the prior, by SciPy."""
    model = PHReg(table.time, table.x, table.event.astype(int), ties=ties, strata=strata)
    precision = (table.x.std(axis=0) / scale) ** 2
    unit = 1 / table.x.std(axis=0)

    def value(g):
        b = g * unit
        return -model.loglike(b) + 0.5 * precision @ b**2

    def slope(g):
        return unit * (-model.score(g * unit) + precision * g * unit)

    def curve(g):
        return np.outer(unit, unit) * (-model.hessian(g * unit) + np.diag(precision))

    found = minimize(value, np.zeros(len(unit)), jac=slope, hess=curve, method="trust-exact",
                     options={"gtol": 1e-10})  # fmt: skip
    beta = found.x * unit
    return beta, np.linalg.inv(-model.hessian(beta) + np.diag(precision))


@pytest.mark.parametrize(
    ("name", "scale", "ties"),
    [("rossi", 0.1, "efron"), ("rossi", 2.5, "breslow"), ("gbsg2", 2.5, "efron")],
)
def test_mode_and_covariance_are_those_of_statsmodels_likelihood_times_the_prior(name, scale, ties):
    table, _ = public(name)
    ours = fit(scattered(table, 3), time_grid="exact", ties=ties, prior_scale=scale)
    mode, covariance = by_statsmodels(table, ties, scale)
    sd = table.x.std(axis=0)
    assert_allclose(ours.coefficients * sd, mode * sd, atol=1e-6)
    assert_allclose(ours.covariance * np.outer(sd, sd), covariance * np.outer(sd, sd), atol=1e-6)
    row = ours.summary()[0]
    law = norm(mode[0], np.sqrt(covariance[0, 0]))
    assert_allclose([row["low"], row["high"]], law.interval(0.95), rtol=1e-4)
    assert_allclose(row["hazard_ratio"], np.exp(mode[0]), rtol=1e-5)
    assert_allclose(row["above_0"], law.sf(0), rtol=1e-4)


def test_a_stratified_posterior_is_that_of_the_product_of_the_sites_likelihoods():
    table, _ = public("rossi")
    site = np.arange(len(table.x)) % 3
    ours = fit(split(table, site), baseline="stratified", prior_scale=0.5)
    mode, covariance = by_statsmodels(table, "efron", 0.5, strata=site)
    sd = table.x.std(axis=0)
    assert_allclose(ours.coefficients * sd, mode * sd, atol=1e-6)
    assert_allclose(ours.covariance * np.outer(sd, sd), covariance * np.outer(sd, sd), atol=1e-6)


def test_a_wide_prior_gives_the_coefficients_and_errors_of_cox():
    table = simulated(200, 3, 2)
    ours = fit(scattered(table, 2), time_grid="exact", prior_scale=1000.0)
    plain = fit_cox([table])
    assert_allclose(ours.coefficients, plain.coefficients, rtol=1e-5)
    assert_allclose(ours.covariance, plain.covariance, rtol=1e-5)


# the posterior ----------------------------------------------------------------------------


def log_likelihoods(table, betas):
    """Return the partial likelihood of a table without ties at each of betas (S, p), by its
    definition: each death's risk over the sum of those who leave with it or later.
    """
    order = np.argsort(-table.time)
    f = betas @ table.x[order].T
    at_risk = np.logaddexp.accumulate(f, axis=1)
    return (f - at_risk)[:, table.event[order]].sum(axis=1)


def sampled(table, scale, around, draws=20_000):
    """Return mean, sd and evidence of likelihood × prior by importance sampling."""
    wide = multivariate_t(around.coefficients, 1.5 * around.covariance, df=5, seed=1)
    betas = wide.rvs(draws)
    logs = log_likelihoods(table, betas) - wide.logpdf(betas)
    logs += norm(0, scale / table.x.std(axis=0)).logpdf(betas).sum(axis=1)
    w = np.exp(logs - logsumexp(logs))
    mean = w @ betas
    return mean, np.sqrt(w @ (betas - mean) ** 2), logsumexp(logs) - np.log(draws)


def test_mean_sd_and_evidence_are_near_those_of_likelihood_times_prior():
    """Ten tables of 60 rows, half censored, by importance sampling.

    Apart on average by 0.024 standard deviations (at most 0.087), 0.8 % (2.0 %) and 0.007 (0.011);
    of 150 rows by 0.016, 0.4 % and 0.001.
    """
    for seed in range(10):
        table = simulated(60, 2, seed, tied=False)
        ours = fit([table], time_grid="exact", prior_scale=1.0)
        mean, sd, log = sampled(table, 1.0, ours)
        assert_allclose(ours.coefficients, mean, atol=0.15 * sd.min(), rtol=0)
        assert_allclose(ours.standard_errors, sd, rtol=0.04)
        assert_allclose(ours.log_evidence, log, atol=0.02, rtol=0)


def test_90_percent_intervals_hold_90_percent_of_coefficients_drawn_from_the_prior():
    """400 tables gave 0.9075 of 1200 coefficients."""
    inside = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(80, 3))
        beta = 0.8 * rng.normal(size=3) / x.std(axis=0)
        death, leave = rng.exponential(np.exp(-x @ beta)), rng.exponential(2.0, 80)
        table = SurvivalTable(x, np.minimum(death, leave), death <= leave)
        ours = fit([table], time_grid="exact", prior_scale=0.8, level=0.9, ph_check="none")
        inside += [r["low"] < b < r["high"] for r, b in zip(ours.summary(), beta, strict=True)]
    assert abs(np.mean(inside) - 0.9) < 3 * 0.3 / np.sqrt(len(inside))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), sites=st.integers(2, 5))
def test_any_split_gives_the_posterior_of_one_site(seed, sites):
    table = simulated(120, 2, seed)
    one, several = fit([table]), fit(scattered(table, sites, seed))
    assert_allclose(several.coefficients, one.coefficients, rtol=1e-6, atol=1e-7)
    assert_allclose(several.covariance, one.covariance, rtol=1e-6, atol=1e-10)
    assert_allclose(several.log_evidence, one.log_evidence, rtol=1e-8)
    assert_allclose(several.unlike_training(table.x), one.unlike_training(table.x), rtol=1e-7)


def separated(n=200, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    x[:, 0] = x[:, 0] > 0
    return SurvivalTable(x, rng.exponential(size=n) + 0.01, x[:, 0] > 0)


@pytest.mark.parametrize("options", [{}, {"baseline": "stratified"}], ids=str)
def test_a_covariate_that_separates_who_dies_has_a_finite_coefficient(options):
    parts = scattered(separated(), 3)
    ours = fit(parts, **options)
    mode, _ = by_statsmodels(separated(), "efron", 2.5)
    assert abs(ours.coefficients[0] - mode[0]) < 0.1 * ours.standard_errors[0]
    with pytest.raises(NotConverged, match="give a smaller prior_scale"):
        fit(parts, prior_scale=1000.0)


# rows -------------------------------------------------------------------------------------


def test_a_rows_interval_is_that_of_its_log_risk_and_its_distance_that_from_the_mean():
    table, rng = simulated(150, 3, 4), np.random.default_rng(0)
    ours = fit(scattered(table, 2))
    draws = rng.multivariate_normal(ours.coefficients, ours.covariance, 200_000)
    risks = (table.x[:3] - ours.centre) @ draws.T
    # 200,000 draws give the ends of a 90 % interval to 0.004 standard deviations.
    found = np.quantile(risks, [0.05, 0.95], axis=1).T
    assert_allclose(ours.intervals(table.x[:3], 0.9), found, atol=0.02 * risks.std(axis=1).max())
    away = table.x - table.x.mean(axis=0)
    distance = np.einsum("ij,jk,ik->i", away, np.linalg.inv(away.T @ away / len(away)), away)
    assert_allclose(ours.unlike_training(table.x), chi2(3).cdf(distance), rtol=1e-8)


def test_offset_strata_and_weights_count_as_in_cox():
    table = simulated(160, 3, 5)
    level = np.arange(160) % 2
    options = {"prior_scale": 1000.0, "time_grid": "exact", "strata": "s", "offset": "x2"}
    parts = split(table._replace(stratum=level, weight=1.0 + level), np.arange(160) % 3)
    ours = fit(parts, last_is_offset=True, **options)
    plain = fit_cox(parts, last_is_offset=True)
    assert_allclose(ours.coefficients, plain.coefficients, rtol=1e-5)
    x = np.column_stack([table.x, level])
    assert_allclose(ours.intervals(x, 0.5).mean(axis=1), ours.predict(x))
    assert_allclose(ours.predict(x), plain.predict(x), rtol=1e-4)


def test_a_model_is_saved_and_read():
    table = simulated(150, 2, 6)
    ours = fit(scattered(table, 2))
    again = BayesCoxModel.restore(ours.arrays(), ours.meta())
    assert again.summary() == ours.summary()
    assert (again.intervals(table.x, 0.8) == ours.intervals(table.x, 0.8)).all()
    assert (again.unlike_training(table.x) == ours.unlike_training(table.x)).all()
    assert again.log_evidence == ours.log_evidence
    times = np.array([0.1, 0.5])
    assert (again.predict_survival(table.x, times) == ours.predict_survival(table.x, times)).all()


# bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", ["protected", "exact"])
def test_a_constant_covariate_is_named(grid):
    table = simulated(90, 3, 0)
    table.x[:, 1] = 7.0
    with pytest.raises(SingularInformation, match=r"^'x1' has the same value") as error:
        fit(scattered(table, 2), time_grid=grid)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"prior_scale": 0.0}, {"prior_scale": -1.0}, {"l2": 0.1}, {"penalty": "auto"},
        {"l1_ratio": 0.5}, {"ties": "exact"}, {"level": 1.0},
    ],
    ids=str,
)  # fmt: skip
def test_an_improper_prior_and_the_penalties_of_cox_are_refused(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))) as error:
        BAYES.configure(wrong)
    assert "\n" not in str(error.value)


def test_no_covariates_are_refused():
    table = simulated(40, 1, 0)
    with pytest.raises(DataError, match="no covariates"):
        fit([table._replace(x=table.x[:, :0])])


# what is revealed -------------------------------------------------------------------------


def test_a_fit_at_exact_times_keeps_no_moments_of_the_covariates():
    table = simulated(90, 2, 0)
    ours = fit([table], time_grid="exact")
    assert not ours.arrays()["scatter"].size
    assert not ours.arrays()["mean"].size
    with pytest.raises(NotSupported, match="time_grid 'exact'") as error:
        ours.unlike_training(table.x)
    assert "\n" not in str(error.value)


def test_sites_tell_products_of_covariates_once_and_no_offset():
    seen = {}
    table = simulated(120, 3, 0)
    fit(scattered(table, 2), last_is_offset=True, watch=lambda fed: Overheard(fed, seen))
    ((question, reply),) = seen["squares"]
    assert question["centre"].shape == (2,)
    away = table.x[:, :2] - table.x[:, :2].mean(axis=0)
    assert_allclose(reply.inner, away.T @ away, rtol=1e-9)
