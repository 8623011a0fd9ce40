"""`meta_analysis` equals statsmodels and lifelines site by site, and published meta-analyses."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from lifelines import CoxPHFitter
from numpy.testing import assert_allclose
from scipy.linalg import block_diag
from scipy.optimize import minimize_scalar
from scipy.stats import chi2, norm, t
from statsmodels.stats.meta_analysis import combine_effects

from algorithms.meta_cases import SIZES, fit, rossi, tables
from algorithms.mixed_cases import simulated
from fedcohort.algorithms.meta_analysis import MetaModel
from fedcohort.data.tables import LabelledTable

LINKS = sm.families.links
REFERENCES = [
    ("gaussian", "identity", sm.families.Gaussian()),
    ("binomial", "logit", sm.families.Binomial()),
    ("binomial", "probit", sm.families.Binomial(LINKS.Probit())),
    ("binomial", "cloglog", sm.families.Binomial(LINKS.CLogLog())),
    ("poisson", "log", sm.families.Poisson()),
    ("gamma", "log", sm.families.Gamma(LINKS.Log())),
]


@pytest.mark.parametrize(("family", "link", "theirs"), REFERENCES)
def test_each_sites_coefficients_are_those_of_statsmodels(family, link, theirs):
    rng = np.random.default_rng(0)
    for weighted in (False, True):
        parts = tables(family)
        if weighted and family != "binomial":
            parts = [p._replace(weight=rng.uniform(0.5, 2, len(p.y))) for p in parts]
        ours = fit(parts, family, link=link)
        assert ours.names == tuple(f"site-{k}" for k in range(4))
        for part, estimate, error in zip(parts, ours.estimates, ours.errors, strict=True):
            design = sm.add_constant(part.x)
            model = sm.GLM(part.y, design, family=theirs, var_weights=part.weight)
            found = model.fit(tol=1e-13, maxiter=200)
            assert_allclose(estimate, found.params, rtol=1e-6, atol=1e-8)
            assert_allclose(error, found.bse, rtol=1e-6)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_each_sites_cox_model_has_the_score_zero_and_is_lifelines(ties):
    parts = rossi(3)
    ours = fit(parts, "cox", features=("fin", "age", "prio"), ties=ties)
    assert ours.intercept is None
    for part, estimate, error in zip(parts, ours.estimates, ours.errors, strict=True):
        frame = pd.DataFrame(part.x, columns=list("fap")).assign(t=part.time, e=part.event)
        if ties == "efron":
            theirs = CoxPHFitter().fit(frame, "t", "e", fit_options={"precision": 1e-12})
            assert_allclose(estimate, theirs.params_, rtol=1e-6)
            assert_allclose(error, theirs.standard_errors_, rtol=1e-6)
        else:
            theirs = sm.PHReg(part.time, part.x, status=part.event, ties="breslow").fit(
                method="newton", tol=1e-12
            )
            assert_allclose(estimate, theirs.params, rtol=1e-6)
            assert_allclose(error, theirs.bse, rtol=1e-6)


def test_an_offset_is_added_to_every_sites_linear_predictor():
    rng = np.random.default_rng(1)
    parts = []
    for part in simulated(SIZES, 0.5, 3, "poisson"):
        shift = rng.normal(1, 0.5, len(part.y))
        x = np.column_stack([part.x, shift])
        parts.append(
            LabelledTable(x, rng.poisson(np.exp(0.3 * part.x[:, 0] + shift)).astype(float))
        )
    ours = fit(parts, "poisson", features=("a", "b", "years"), task={"offset": True})
    for part, estimate in zip(parts, ours.estimates, strict=True):
        design = sm.add_constant(part.x[:, :2])
        kind = sm.families.Poisson()
        theirs = sm.GLM(part.y, design, family=kind, offset=part.x[:, 2]).fit(tol=1e-13)
        assert_allclose(estimate, theirs.params, rtol=1e-6, atol=1e-9)
    eta = ours.intercept.mean + parts[0].x[:, :2] @ ours.coefficients + parts[0].x[:, 2]
    assert_allclose(ours.predict(parts[0].x), np.exp(eta))


def restricted_tau2(y, v):
    """Return τ² where the restricted likelihood of random effects is highest."""

    def loss(tau2):
        w = 1 / (v + tau2)
        mean = w @ y / w.sum()
        return np.log(v + tau2).sum() + np.log(w.sum()) + w @ (y - mean) ** 2

    return minimize_scalar(loss, bounds=(0, 10 * y.var()), options={"xatol": 1e-12}).x


def test_random_effects_are_reml_with_hartung_and_knapps_interval():
    ours = fit(simulated((80, 60, 100, 70, 90, 60), 0.5, 3), "gaussian", level=0.9)
    for j, row in enumerate(ours.summary(), 1):
        y, v = ours.estimates[:, j], ours.errors[:, j] ** 2
        tau2 = restricted_tau2(y, v)
        # statsmodels' weighted least squares of a constant scales its variance as they do
        wls = sm.WLS(y, np.ones(6), weights=1 / (v + tau2)).fit()
        error = max(wls.bse[0], np.sqrt(1 / (1 / (v + tau2)).sum()))
        fixed = combine_effects(y, v)
        mean = wls.params[0]
        assert_allclose(row["tau2"], tau2, rtol=1e-4, atol=1e-6)
        assert_allclose([row["coefficient"], row["standard_error"]], [mean, error], rtol=1e-5)
        ends = mean + t.ppf([0.05, 0.95], 5) * error
        assert_allclose([row["low"], row["high"]], ends, rtol=1e-4)
        new = mean + t.ppf([0.05, 0.95], 4) * np.hypot(error, np.sqrt(tau2))
        assert_allclose([row["prediction_low"], row["prediction_high"]], new, rtol=1e-4)
        assert_allclose(row["p"], 2 * t.sf(abs(mean / error), 5), rtol=1e-3)
        assert_allclose([row["q"], row["i2"]], [fixed.q, max(0, fixed.i2)], rtol=1e-9)
        assert row["sites"] == 6


def test_fixed_effects_are_those_of_statsmodels():
    ours = fit(simulated(SIZES, 0.5, 3, "binomial"), "binomial", pool="fixed")
    for j, row in enumerate(ours.summary(), 1):
        theirs = combine_effects(ours.estimates[:, j], ours.errors[:, j] ** 2)
        z = theirs.mean_effect_fe / theirs.sd_eff_w_fe
        assert_allclose(row["coefficient"], theirs.mean_effect_fe, rtol=1e-12)
        assert_allclose(row["standard_error"], theirs.sd_eff_w_fe, rtol=1e-12)
        assert_allclose(row["p"], 2 * norm.sf(abs(z)), rtol=1e-9)
        assert_allclose(row["q"], theirs.q, rtol=1e-9)
        ratios = [row["odds_ratio"], row["or_low"], row["or_high"]]
        assert_allclose(ratios, np.exp([row["coefficient"], row["low"], row["high"]]))
        assert row["tau2"] == 0.0


def test_all_coefficients_together_are_generalised_least_squares():
    parts = simulated(SIZES, 0.0, 3)
    ours = fit(parts, pool="multivariate")
    beta, blocks = [], []
    for part in parts:
        found = sm.OLS(part.y, sm.add_constant(part.x)).fit()
        beta.append(found.params)
        blocks.append(found.cov_params())
    gls = sm.GLS(np.concatenate(beta), np.tile(np.eye(3), (4, 1)), sigma=block_diag(*blocks)).fit()
    assert_allclose([ours.intercept.mean, *ours.coefficients], gls.params, rtol=1e-9)
    assert_allclose(ours.covariance, gls.normalized_cov_params, rtol=1e-9, atol=1e-15)
    assert_allclose(ours.standard_errors, np.sqrt(np.diag(gls.normalized_cov_params))[1:])
    q, df, p = ours.heterogeneity
    assert_allclose([q, df, p], [gls.ssr, 9, chi2.sf(q, 9)], rtol=1e-9)


def test_the_pooled_gaussian_fit_is_the_multivariate_one_where_noise_is_the_same_everywhere():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(40, 2))
    y = x @ [1.0, -1.0] + rng.normal(size=40)
    same = [LabelledTable(x, y), LabelledTable(-x, y), LabelledTable(x, -y)]
    ours = fit(same, pool="multivariate")
    pooled = sm.OLS(np.r_[y, y, -y], sm.add_constant(np.vstack([x, -x, x]))).fit()
    assert_allclose(ours.coefficients, pooled.params[1:], rtol=1e-9)


# Trials of the BCG vaccine, cases and others, vaccinated then not: Colditz et al., JAMA 271, 1994.
BCG = np.array(
    """4 119 11 128   6 300 29 274   3 228 11 209   62 13536 248 12619   33 5036 47 5761
    180 1361 372 1079   8 2537 10 619   505 87886 499 87892   29 7470 45 7232   17 1699 65 1600
    186 50448 141 27197   5 2493 3 2338   27 16886 29 17825""".split(),
    float,
).reshape(13, 4)


def test_trials_of_the_bcg_vaccine_as_sites_give_the_published_odds_ratio():
    # metafor's rma(measure = "OR", method = "REML", data = dat.bcg): τ² 0.3378, Q 163.1649,
    # estimate −0.7452 with standard error 0.1860 by the normal distribution
    x, y = np.array([[1.0], [1.0], [0.0], [0.0]]), np.array([1.0, 0.0, 1.0, 0.0])
    trials = [LabelledTable(x, y, cells) for cells in BCG]
    ours = fit(trials, "binomial", task={"min_cell": 1})
    (row,) = ours.summary()
    assert_allclose([row["tau2"], row["q"]], [0.3378, 163.1649], atol=5e-5)
    assert_allclose(row["coefficient"], -0.7452, atol=5e-5)
    plain = 1 / np.sqrt((1 / (ours.errors[:, 1] ** 2 + row["tau2"])).sum())
    assert_allclose(plain, 0.1860, atol=5e-5)
    order = [int(name.removeprefix("site-")) for name in ours.names]
    assert_allclose(ours.errors[:, 1], np.sqrt((1 / BCG[order]).sum(axis=1)), rtol=1e-8)  # Woolf's


def test_rates_weighted_by_exposure_give_the_fit_of_counts_with_an_offset():
    rng = np.random.default_rng(2)
    counted, rated = [], []
    for part in simulated((90, 110, 70), 0.3, 7, "poisson"):
        years = rng.uniform(0.5, 3.0, len(part.y))
        counted.append(part._replace(x=np.column_stack([part.x, np.log(years)])))
        rated.append(part._replace(y=part.y / years, weight=years))
    ours = fit(rated, "poisson")
    theirs = fit(counted, "poisson", features="abc", task={"offset": True})
    assert_allclose(ours.coefficients, theirs.coefficients, rtol=1e-7)
    assert_allclose(ours.standard_errors, theirs.standard_errors, rtol=1e-7)


# prediction and what else a fit has -------------------------------------------------------


def test_predictions_are_of_the_pooled_linear_predictor_counted_from_the_origin():
    parts, origin = simulated(SIZES, 0.5, 3, "binomial"), np.array([0.4, -0.2])
    ours = fit(parts, "binomial", task={"origin": origin})
    plain = fit(parts, "binomial")
    assert_allclose(ours.coefficients, plain.coefficients, rtol=1e-7)
    eta = ours.intercept.mean + (parts[0].x - origin) @ ours.coefficients
    assert_allclose(ours.predict(parts[0].x), 1 / (1 + np.exp(-eta)))
    risk = fit(rossi(3), "cox")
    assert_allclose(risk.predict(rossi(3)[0].x), rossi(3)[0].x @ risk.coefficients)


def test_rows_for_a_forest_plot_have_each_sites_interval():
    ours = fit(simulated(SIZES, 0.5, 3), level=0.9)
    rows = pd.DataFrame(ours.sites)
    assert list(rows.covariate) == ["x0"] * 4 + ["x1"] * 4
    assert list(rows.site[:4]) == list(ours.names)
    assert_allclose(rows.coefficient[4:], ours.estimates[:, 2])
    assert_allclose(rows.high - rows.coefficient, norm.ppf(0.95) * rows.standard_error)
    assert_allclose(rows.coefficient - rows.low, norm.ppf(0.95) * rows.standard_error)


@pytest.mark.parametrize("pool", ["random", "fixed", "multivariate"])
def test_a_model_survives_saving(pool):
    parts = [*simulated(SIZES, 0.5, 3), simulated((4,), 0, 1)[0]]
    model = fit(parts, pool=pool)
    again = MetaModel.restore(model.arrays(), json.loads(json.dumps(model.meta())))
    assert repr(again.summary()) == repr(model.summary())
    assert again.sites == model.sites
    assert again.left_out == model.left_out
    assert repr(again.heterogeneity) == repr(model.heterogeneity)
    assert (again.predict(parts[0].x) == model.predict(parts[0].x)).all()


def test_one_table_gives_its_own_fit_with_fixed_effects():
    parts = simulated((80,), 0.5, 3)
    ours = fit(parts, pool="fixed")
    theirs = sm.OLS(parts[0].y, sm.add_constant(parts[0].x)).fit()
    assert_allclose(ours.coefficients, theirs.params[1:], rtol=1e-9)
    assert_allclose(ours.standard_errors, theirs.bse[1:], rtol=1e-9)


def test_two_sites_have_an_interval_and_no_prediction_interval():
    for row in fit(simulated((60, 70), 0.5, 3)).summary():
        assert np.isfinite([row["low"], row["high"], row["p"]]).all()
        assert np.isnan([row["prediction_low"], row["prediction_high"]]).all()
