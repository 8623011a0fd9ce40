"""`fedcohort predict` with a model that has a posterior."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from lifelines import CoxPHFitter
from numpy.testing import assert_allclose
from scipy.stats import chi2

import fedcohort as fc
from fedcohort.apps.predictions import predict
from fedcohort.protocol import NotSupported, SettingError

N = 240
RNG = np.random.default_rng(3)
X = pd.DataFrame({"age": RNG.normal(60.0, 9.0, N), "dose": RNG.gamma(4.0, 2.0, N)})
LINEAR = 0.1 * X["age"] - 0.5 * X["dose"]
SPREAD = X - X.mean()
NEW = pd.DataFrame({"age": [61.0, 75.0, 60.0], "dose": [7.0, 20.0, 300.0]})


def fitted(method, y, outcome, **settings):
    frame = X.assign(y=y, site=np.arange(N) % 3)
    return fc.fit(method, fc.simulate(frame, sites="site", outcome=outcome), **settings)


@pytest.fixture(scope="module")
def values():
    return (LINEAR + np.random.default_rng(4).normal(0.0, 2.0, N)).to_numpy()


@pytest.fixture(scope="module")
def linear(values):
    return fitted("bayes_linear", values, fc.Continuous("y"), prior_scale=0.7, level=0.8)


def written(fit, folder, frame=NEW):
    """Return the table and the warnings of `fedcohort predict`."""
    fit.save(folder / "model")
    frame.to_csv(folder / "t.csv", index=False)
    found = predict(folder / "model", str(folder / "t.csv"))
    return pd.read_csv(io.StringIO(found.csv)), found.warnings


def test_intervals_of_values_are_least_squares_intervals_with_the_prior_as_rows(
    linear, values, tmp_path
):
    table, notes = written(linear, tmp_path)
    # each covariate's prior is a row with the outcome 0
    prior = np.diag(X.std(ddof=0) / 0.7)
    rows = np.block([[np.ones((N, 1)), SPREAD.to_numpy()], [np.zeros((2, 1)), prior]])
    ols = sm.OLS(np.r_[values, 0.0, 0.0], rows).fit()
    new = np.column_stack([np.ones(3), NEW - X.mean()])
    said = ols.get_prediction(new)
    expected = said.summary_frame(alpha=0.2)
    assert_allclose(table["value"], expected["mean"], rtol=1e-5)
    assert_allclose(table["value_low"], expected["obs_ci_lower"], rtol=1e-5)
    assert_allclose(table["value_high"], expected["obs_ci_upper"], rtol=1e-5)
    share = said.var_pred_mean / (said.var_pred_mean + ols.mse_resid)
    assert_allclose(table["model_uncertainty"], share, rtol=1e-5)
    assert any("value_low and value_high" in note and "80 %" in note for note in notes)


def test_a_row_is_as_unlike_training_as_its_mahalanobis_distance(linear, tmp_path):
    table, _ = written(linear, tmp_path)
    inverse = np.linalg.inv(np.cov(X.T, bias=True))
    d = (NEW - X.mean()).to_numpy()
    expected = chi2.cdf(np.einsum("ij,jk,ik->i", d, inverse, d), 2)
    assert_allclose(table["unlike_training"], expected, rtol=1e-5)
    assert expected[0] < 0.2
    assert expected[2] > 0.999


def test_with_many_rows_intervals_of_a_probability_are_those_of_maximum_likelihood(tmp_path):
    n = 20_000
    rng = np.random.default_rng(1)
    x = rng.normal(60.0, 9.0, n)
    y = (rng.random(n) < 1 / (1 + np.exp(6.5 - 0.1 * x))) * 1
    frame = pd.DataFrame({"age": x, "y": y, "site": np.arange(n) % 3})
    fed = fc.simulate(frame, sites="site", outcome=fc.Binary("y"))
    table, _ = written(fc.fit("bayes_logistic", fed), tmp_path, NEW[["age"]])
    design = sm.add_constant(x)
    glm = sm.GLM(y, design, family=sm.families.Binomial()).fit()
    said = glm.get_prediction(sm.add_constant(NEW["age"].to_numpy())).summary_frame(alpha=0.05)
    for name, theirs in (("", "mean"), ("_low", "mean_ci_lower"), ("_high", "mean_ci_upper")):
        assert_allclose(table[f"risk{name}"], said[theirs], atol=5e-4)


@pytest.mark.parametrize("grid", ["protected", "exact"])
def test_an_interval_of_a_risk_is_that_of_cox_where_the_prior_is_wide(grid, tmp_path):
    """By lifelines on the pooled table at exact times; the grid moves a coefficient by 0.1 of its
    standard error.
    """
    rng = np.random.default_rng(5)
    death, leave = rng.exponential(np.exp(-LINEAR / 3)), rng.exponential(9.0, N)
    frame = X.assign(time=np.minimum(death, leave), died=death <= leave, site=np.arange(N) % 3)
    fed = fc.simulate(frame, sites="site", outcome=fc.Survival("time", "died"))
    fit = fc.fit("bayes_cox", fed, prior_scale=1000.0, level=0.9, time_grid=grid)
    table, notes = written(fit, tmp_path)
    cox = CoxPHFitter().fit(frame.drop(columns="site"), "time", "died")
    z = (NEW - fit.model.centre).to_numpy()
    risk, sd = z @ cox.params_, np.sqrt(np.diag(z @ cox.variance_matrix_ @ z.T))
    apart = (1e-4 if grid == "exact" else 0.2) * sd
    for name, theirs in (("", risk), ("_low", risk - 1.6449 * sd), ("_high", risk + 1.6449 * sd)):
        assert (np.abs(table[f"risk{name}"] - theirs) < apart + 1e-4 * np.abs(theirs)).all()
    assert ("unlike_training" in table) == (grid == "protected")
    assert any("90 % credible interval of the risk" in note for note in notes)


def test_a_skipped_row_has_no_interval(linear, tmp_path):
    linear.save(tmp_path / "model")
    NEW.astype(str).replace("75.0", "old").to_csv(tmp_path / "t.csv", index=False)
    table = predict(tmp_path / "model", str(tmp_path / "t.csv"), skip=True).table
    own = ["value_low", "value_high", "model_uncertainty", "unlike_training"]
    assert table[own].isna().all(axis=1).tolist() == [False, True, False]


def test_a_network_of_several_classes_has_a_share_of_the_model_and_no_interval(tmp_path):
    y = pd.cut(LINEAR, 3, labels=["a", "b", "c"]).astype(str)
    fit = fitted(
        "bayes_net", y, fc.Category("y"), rounds=1, internal_epochs=1, samples=4, hidden=[4]
    )
    table, notes = written(fit, tmp_path)
    assert table["model_uncertainty"].between(0, 1).all()
    assert table["unlike_training"].between(0, 1).all()
    assert not [c for c in table if c.endswith(("_low", "_high"))]
    assert not any("_low" in note for note in notes)


def test_intervals_of_a_fit_widen_with_their_level(linear):
    narrow, wide = linear.intervals(NEW, 0.5), linear.intervals(NEW, level=0.99)
    assert list(narrow) == ["low", "high"]
    assert (wide["low"] < narrow["low"]).all()
    assert (wide["high"] > narrow["high"]).all()
    with pytest.raises(SettingError, match="between 0 and 1"):
        linear.intervals(NEW, 95)


def test_a_model_without_a_posterior_has_the_same_columns_as_ever(values, tmp_path):
    fit = fitted("glm", values, fc.Continuous("y"))
    assert list(written(fit, tmp_path)[0]) == ["row", "value"]
    for asked in (fit.intervals, fit.uncertainty, fit.unlike_training):
        with pytest.raises(NotSupported, match="glm"):
            asked(NEW)
