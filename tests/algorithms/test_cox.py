"""`cox` over sites equals lifelines and scikit-survival on the pooled table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from numpy.testing import assert_allclose
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.util import Surv

from algorithms.cox_cases import fit, public, simulated, split
from fedcohort.algorithms.cox import CoxModel
from fedcohort.numerics.coxph import Placed, pooled

DATASETS = ["rossi", "lung", "veteran", "gbsg2", "whas500"]
CLOSE = {"rtol": 0, "atol": 1e-6}
#: lifelines stops at a Newton decrement of 1e-7 unless told otherwise: some 4e-4 standard errors.
PRECISE = {"precision": 1e-16, "r_precision": 1e-16}


def scattered(table, n_sites, seed=0):
    return split(table, np.random.default_rng(seed).integers(0, n_sites, len(table.x)))


def with_lifelines(table, features):
    frame = pd.DataFrame(table.x, columns=list(features)).assign(T=table.time, E=table.event)
    return CoxPHFitter().fit(frame, "T", "E", fit_options=PRECISE)


def with_sksurv(table, ties, alpha=0.0):
    model = CoxPHSurvivalAnalysis(alpha=alpha, ties=ties, n_iter=200, tol=1e-13)
    return model.fit(table.x, Surv.from_arrays(table.event, table.time))


@pytest.mark.parametrize("n_sites", [1, 3, 8])
@pytest.mark.parametrize("name", DATASETS)
def test_efron_equals_lifelines_on_the_pooled_table(name, n_sites):
    table, features = public(name)
    ours, theirs = fit(scattered(table, n_sites), features), with_lifelines(table, features)
    assert_allclose(ours.coefficients, theirs.params_, **CLOSE)
    assert_allclose(ours.standard_errors, theirs.standard_errors_, **CLOSE)
    assert_allclose(ours.log_likelihood, theirs.log_likelihood_, **CLOSE)
    ratio = theirs.log_likelihood_ratio_test()
    assert_allclose(ours.likelihood_ratio, [ratio.test_statistic, ratio.p_value], **CLOSE)
    rows = pd.DataFrame(ours.summary()).set_index("covariate").loc[list(features)]
    for mine, other in {
        "hazard_ratio": "exp(coef)",
        "z": "z",
        "p": "p",
        "low": "coef lower 95%",
        "high": "coef upper 95%",
        "hr_low": "exp(coef) lower 95%",
        "hr_high": "exp(coef) upper 95%",
    }.items():
        assert_allclose(rows[mine], theirs.summary[other], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_sites", [1, 3, 8])
@pytest.mark.parametrize("ties", ["breslow", "efron"])
@pytest.mark.parametrize("name", DATASETS)
def test_both_tie_rules_equal_scikit_survival_on_the_pooled_table(name, ties, n_sites):
    table, features = public(name)
    ours, theirs = fit(scattered(table, n_sites), features, ties=ties), with_sksurv(table, ties)
    assert_allclose(ours.coefficients, theirs.coef_, **CLOSE)
    # scikit-survival gives no standard errors: those of the textbook's sums at its coefficients
    records = Placed.on(np.unique(table.time[table.event]), *table)
    there = pooled(records, theirs.coef_, ties)
    errors = np.sqrt(np.diag(np.linalg.inv(there.information)))
    assert_allclose(ours.standard_errors, errors, **CLOSE)
    assert_allclose(ours.log_likelihood, there.log_likelihood, **CLOSE)


def test_rossi_equals_what_fox_published():
    # R: coxph(Surv(week, arrest) ~ ., Rossi), as printed in Fox (2002), "Cox Proportional-Hazards
    # Regression for Survival Data", appendix to An R and S-PLUS Companion to Applied Regression
    table, features = public("rossi")
    model = fit(scattered(table, 4), features)
    printed = {
        "fin": (-0.3794, 0.1914),
        "age": (-0.0574, 0.0220),
        "race": (0.3139, 0.3080),
        "wexp": (-0.1498, 0.2122),
        "mar": (-0.4337, 0.3819),
        "paro": (-0.0849, 0.1958),
        "prio": (0.0915, 0.0286),
    }
    for row in model.summary():
        got = (row["coefficient"], row["standard_error"])
        assert_allclose(got, printed[row["covariate"]], atol=1e-4)
    assert_allclose(model.likelihood_ratio[0], 33.3, atol=0.05)


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_ridge_equals_scikit_survival(ties):
    table, features = public("gbsg2")
    l2 = 0.02
    ours = fit(scattered(table, 5), features, ties=ties, l2=l2)
    assert_allclose(ours.coefficients, with_sksurv(table, ties, l2 * len(table.x)).coef_, **CLOSE)


def test_stratified_equals_lifelines_stratified_by_site():
    table, features = public("rossi")
    where = table.x[:, features.index("race")].astype(int)
    rest = [f for f in features if f != "race"]
    table = table._replace(x=np.delete(table.x, features.index("race"), axis=1))
    ours = fit(split(table, where), rest, baseline="stratified")
    frame = pd.DataFrame(table.x, columns=rest).assign(T=table.time, E=table.event, S=where)
    theirs = CoxPHFitter(strata=["S"]).fit(frame, "T", "E", fit_options=PRECISE)
    assert_allclose(ours.coefficients, theirs.params_, **CLOSE)
    assert_allclose(ours.standard_errors, theirs.standard_errors_, **CLOSE)
    assert_allclose(ours.log_likelihood, theirs.log_likelihood_, **CLOSE)


@pytest.mark.parametrize("name", DATASETS)
def test_survival_curves_equal_lifelines(name):
    table, features = public(name)
    ours, theirs = fit(scattered(table, 3), features), with_lifelines(table, features)
    frame = pd.DataFrame(table.x[:20], columns=list(features))
    # at observed times: between them lifelines interpolates, and ours is the step function
    times = np.quantile(table.time, [0.0, 0.1, 0.37, 0.5, 0.8, 1.0], method="lower")
    expected = theirs.predict_survival_function(frame, times=times).T
    assert_allclose(ours.predict_survival(table.x[:20], times), expected, **CLOSE)
    # both count from an origin of their own: ours is a rounded mean, theirs the mean
    risk, expected = ours.predict(table.x[:20]), theirs.predict_log_partial_hazard(frame)
    assert_allclose(risk - risk[0], expected - expected[0], **CLOSE)


@pytest.mark.parametrize("baseline", ["shared", "stratified"])
def test_the_saved_origin_tells_no_count_of_few_rows_and_leaves_the_fit_as_it_was(baseline):
    # the exact mean of a level's 0/1 column, times the rows, is the number of its rows
    table = simulated(200, 2, 3)
    centres = set()
    for ones in range(1, 5):
        x = table.x.copy()
        x[:, 1] = np.isin(np.arange(200), np.flatnonzero(table.event)[:ones])
        rare = table._replace(x=x)
        model = fit(scattered(rare, 3), l2=0.01, baseline=baseline)
        centres.add(float(model.centre[1]))
        risk = (rare.x - rare.x.mean(axis=0)) @ model.coefficients
        assert_allclose(model.predict(rare.x) - model.predict(rare.x).mean(), risk, atol=1e-9)
    assert centres == {0.0}


def test_stratified_curves_come_from_the_pooled_hazard_at_the_stratified_coefficients():
    table = simulated(200, 2, 3)
    model = fit(scattered(table, 3), baseline="stratified")
    risk = np.exp(model.predict(table.x))
    hazard = 0.0
    for t in np.unique(table.time[table.event]):
        hazard += (table.event & (table.time == t)).sum() / risk[table.time >= t].sum()
        curve = model.predict_survival(model.centre[None], np.array([t]))
        assert_allclose(curve, np.exp(-hazard), rtol=1e-9)


def test_level_sets_the_width_of_the_intervals():
    table = simulated(150, 2, 4)
    narrow, wide = (pd.DataFrame(fit([table], level=v).summary()) for v in (0.5, 0.99))
    widths = (wide.high - wide.low) / (narrow.high - narrow.low)
    assert_allclose(widths, 2.5758293 / 0.6744898, rtol=1e-6)


def test_a_model_survives_saving():
    table = simulated(120, 3, 2)
    model = fit(scattered(table, 2), ("a", "b", "c"))
    again = CoxModel.restore(model.arrays(), model.meta())
    assert again.summary() == model.summary()
    assert again.meta() == model.meta()
    times = np.array([0.2, 1.0])
    assert (again.predict_survival(table.x, times) == model.predict_survival(table.x, times)).all()
