"""The rows that a study publishes write its models down: predictions follow from them alone."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose
from scipy.special import expit

import fedcohort as fc
from fedcohort.study.results.kept import parameters

INVERSE = {"identity": lambda f: f, "logit": expit, "log": np.exp}
VALUES, CLASSES = fc.Continuous("score"), fc.Binary("fell")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(11)
    n = 360
    ward = rng.integers(0, 6, n)
    age, sex = rng.normal(60, 10, n), rng.integers(0, 2, n)
    eta = 0.06 * (age - 60) + 0.5 * sex + np.array([-0.9, 0.7, 0.2, -0.3, 0.5, 0.0])[ward]
    return pd.DataFrame(
        {
            "ward": ward.astype(str), "age": age, "sex": sex,
            "score": 20 + 3 * eta + rng.normal(0, 2, n),
            "fell": (rng.uniform(size=n) < expit(eta)).astype(int),
            "falls": rng.poisson(np.exp(eta / 2)), "log_years": rng.normal(0, 0.3, n),
            "time": rng.exponential(np.exp(-eta)).round(3) + 0.001,
            "event": (rng.uniform(size=n) < 0.7).astype(int),
        }
    )  # fmt: skip


def fitted(frame, method, outcome, **settings):
    used = {"ward", "age", "sex", *outcome.columns, settings.get("offset", "ward")}
    fed = fc.simulate(frame[sorted(used)], sites="ward", outcome=outcome)
    return fc.fit(method, fed, **settings)


def published(fit, kept=True):
    """Return the rows of a fit, as results.json has them."""
    return parameters(fit.parts, fit.parts.dictionary, kept)


def value(rows, name):
    return next(r["value"] for r in rows if r["name"] == name)


def scaled(frame, rows):
    """Return the covariates as the rows say."""
    notes = {r["name"].removeprefix("covariate "): r["note"] for r in rows if "note" in r}
    out = {}
    for name in ("age", "sex"):
        x = frame[name].to_numpy(float)
        how = re.fullmatch(rf"\({name} − ([\d.e+-]+)\) / ([\d.e+-]+)", notes.get(name, ""))
        out[name] = (x - float(how[1])) / float(how[2]) if how else x
    return out


def score(fit, frame, constant):
    """Return constant + sum of coefficient × covariate, plus an offset."""
    x = scaled(frame, published(fit))
    found = fit.summary
    f = constant + sum(
        b * x[c] for c, b in zip(found.covariate, found.coefficient, strict=True)
    )  # fmt: skip
    offset = fit.parts.design.offset
    return f + frame[offset].to_numpy() if offset else f


@pytest.mark.parametrize(
    ("method", "outcome", "link", "settings"),
    [
        ("ridge", VALUES, "identity", {"penalty": 0.1, "scale": "standard"}),
        ("lasso", VALUES, "identity", {"penalty": 0.1}),
        ("elastic_net", VALUES, "identity", {"l1": 0.1, "l2": 0.1, "solver": "admm"}),
        ("glm", fc.Count("falls"), "log", {"family": "poisson", "offset": "log_years"}),
        ("logistic", CLASSES, "logit", {}),
        ("logistic", CLASSES, "logit", {"solver": "admm", "penalty": 0.1}),
        ("mixed", VALUES, "identity", {}),
        ("mixed", fc.Count("falls"), "log", {"offset": "log_years"}),
        ("meta_analysis", VALUES, "identity", {}),
        ("meta_analysis", CLASSES, "logit", {"scale": "standard"}),
    ],
)
def test_predictions_follow_from_the_published_rows(frame, method, outcome, link, settings):
    fit = fitted(frame, method, outcome, **settings)
    f = score(fit, frame, value(published(fit), "intercept"))
    assert_allclose(fit.predict(frame), INVERSE[link](f), rtol=1e-9)


def test_a_support_vector_machine_is_written_down_with_its_shift_and_slope(frame):
    fit = fitted(frame, "svm", CLASSES, scale="standard")
    rows = published(fit)
    f = score(fit, frame, value(rows, "intercept"))
    assert_allclose(
        fit.predict(frame), expit(value(rows, "shift") + value(rows, "slope") * f), rtol=1e-9
    )


@pytest.mark.parametrize(
    ("method", "outcome"), [("lasso", VALUES), ("cox", fc.Survival("time", "event"))]
)
def test_the_penalty_that_was_chosen_is_published(frame, method, outcome):
    fit = fitted(frame, method, outcome, penalty="auto", scale="standard", path=5, n_folds=2)
    assert value(published(fit), "penalty") == fit.model.path_.penalty
    given = fitted(frame, method, outcome, penalty=0.1, scale="standard")
    assert "penalty" not in [row["name"] for row in published(given)]


def test_survival_follows_from_the_constant_and_the_baseline(frame):
    fit = fitted(frame, "cox", fc.Survival("time", "event"))
    rows = published(fit)
    times = np.array([r["time"] for r in rows if "time" in r])
    alive = np.array([r["value"] for r in rows if "time" in r])
    assert len(times) == 3
    f = score(fit, frame, value(rows, "constant"))
    theirs = fit.parts.model.predict_survival(fit.parts.design.matrix(frame), times)
    assert_allclose(alive ** np.exp(f)[:, None], theirs, rtol=1e-9)


def test_each_stratum_has_its_own_baseline(frame):
    table = frame.assign(stage=np.where(frame.age > 60, "II", "I"))
    used = ["ward", "sex", "stage", "time", "event"]
    fed = fc.simulate(table[used], sites="ward", outcome=fc.Survival("time", "event"))
    rows = published(fc.fit("cox", fed, strata="stage"))
    assert {r["name"] for r in rows} == {
        "constant", "baseline survival, I", "baseline survival, II",
    }  # fmt: skip


def test_the_bound_with_all_rows_in_one_place_keeps_its_baseline_and_scaling(frame):
    fit = fitted(frame, "cox", fc.Survival("time", "event"), scale="standard")
    assert [r["name"] for r in published(fit, kept=False)] == ["constant"]


@pytest.mark.parametrize(
    ("method", "outcome", "family", "settings"),
    [
        ("ridge", VALUES, sm.families.Gaussian(), {"penalty": 0.0}),
        ("glm", VALUES, sm.families.Gaussian(), {}),
        ("glm", fc.Count("falls"), sm.families.Poisson(), {}),
        ("logistic", CLASSES, sm.families.Binomial(), {}),
    ],
)
def test_the_intercept_has_statsmodels_error_interval_and_p(
    frame, method, outcome, family, settings
):
    x = sm.add_constant(frame[["age", "sex"]].astype(float))
    t = family.__class__.__name__ == "Gaussian"
    theirs = sm.GLM(frame[outcome.y], x, family=family).fit(tol=1e-13, use_t=t)
    rows = published(fitted(frame, method, outcome, level=0.9, **settings))
    ours = rows[0]
    low, high = theirs.conf_int(0.1).loc["const"]
    assert_allclose(
        [ours[k] for k in ("value", "standard_error", "low", "high", "p")],
        [theirs.params.iloc[0], theirs.bse.iloc[0], low, high, theirs.pvalues.iloc[0]],
        rtol=1e-5,
    )
    if t:
        assert_allclose(rows[1]["value"], theirs.scale, rtol=1e-9)


def test_a_mixed_model_says_how_sites_differ(frame):
    fit = fitted(frame, "mixed", VALUES)
    rows = {r["name"]: r for r in published(fit)}
    theirs = sm.MixedLM(
        frame.score, sm.add_constant(frame[["age", "sex"]].astype(float)), frame.ward
    ).fit(reml=True)
    between, within = float(np.asarray(theirs.cov_re)[0, 0]), float(theirs.scale)
    tau2 = rows["variance between sites, τ²"]
    assert_allclose(tau2["value"], between, rtol=1e-3)
    assert tau2["low"] < between < tau2["high"]
    assert "note" not in tau2
    assert_allclose(rows["variance within sites, σ²"]["value"], within, rtol=1e-3)
    icc = rows["intraclass correlation"]["value"]
    assert_allclose(icc, between / (between + within), rtol=1e-3)
    assert rows["test of τ² = 0"]["p"] < 0.001
    few = published(fitted(frame[frame.ward < "3"], "mixed", VALUES))
    assert few[1]["note"].startswith("3 sites say little about how sites differ")


def test_a_meta_analysis_says_what_was_pooled_and_which_sites_were_left_out(frame):
    few = frame.head(6).assign(ward="tiny")
    fit = fitted(pd.concat([frame, few]), "meta_analysis", VALUES)
    rows = {r["name"]: r for r in published(fit)}
    pooled = rows["intercept at the origin"]
    assert pooled["low"] < pooled["value"] < pooled["high"]
    assert pooled["note"].startswith("f at age = ")
    assert rows["τ² of the intercept"]["value"] > 0
    assert 0 < rows["I² of the intercept"]["value"] < 1
    assert rows["sites left out"]["note"].startswith("tiny: fewer than 5 records more than")
    assert math.isfinite(rows["intercept"]["value"])


def test_one_test_tells_of_all_coefficients_that_were_pooled_together(frame):
    rows = published(fitted(frame, "meta_analysis", VALUES, pool="multivariate"))
    test = next(r for r in rows if r["name"] == "Q, sites alike")
    assert 0 <= test["p"] <= 1
    assert test["note"].startswith("χ² on ")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"scale": "none"}, None),
        ({"scale": "none", "winsorise": 0.1}, r"age is taken as at least \d.* and at most \d.*"),
        (
            {"scale": "minmax"},
            r"\(age − .*\) / .*, where age is taken as at least .* and at most .*",
        ),
        ({"scale": "quantile"}, r"the share of rows below it; model\.json has its \d+ knots"),
    ],
)
def test_how_numbers_enter_is_said_for_each_scale(frame, settings, said):
    rows = published(fitted(frame, "ridge", VALUES, **settings))
    found = [r["note"] for r in rows if r["name"] == "covariate age"]
    assert len(found) == (said is not None)
    assert all(re.fullmatch(said, note) for note in found)
