"""Several imputed tables as one fit: pooled, saved, and refused where it cannot be."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import fedcohort as fc
from fedcohort.algorithms.mice import MiceModel
from fedcohort.data.imputing.view import ImputedView

VARIABLES = {
    "x1": {"type": "number"}, "x2": {"type": "number"}, "b": {"type": "binary"},
    "y": {"type": "number"}, "ill": {"type": "binary"}, "visits": {"type": "integer"},
    "time": {"type": "time"}, "event": {"type": "event"},
}  # fmt: skip
OUTCOMES = {
    "ridge": fc.Continuous("y"), "logistic": fc.Binary("ill"), "glm": fc.Count("visits"),
    "cox": fc.Survival("time", "event"),
}  # fmt: skip
MULTIPLE = {"impute": "multiple", "imputations": 3}


def table(n: int = 210, seed: int = 0) -> pd.DataFrame:
    """Return rows of which 30 % lack x1 or b, by the outcome."""
    rng = np.random.default_rng(seed)
    x1, x2 = rng.standard_normal((2, n))
    b = (rng.random(n) < 0.4) * 1.0
    eta = 0.8 * x1 - 0.5 * x2 + 0.6 * b
    time = rng.exponential(np.exp(-eta))
    found = pd.DataFrame(
        {
            "x1": x1, "x2": x2, "b": b, "y": eta + rng.standard_normal(n),
            "ill": (rng.random(n) < 1 / (1 + np.exp(-eta))) * 1.0,
            "visits": rng.poisson(np.exp(0.5 * eta)) * 1.0,
            "time": np.minimum(time, 2.0) + 1e-3, "event": (time < 2.0) * 1.0,
        }
    )  # fmt: skip
    chance = 0.6 / (1 + np.exp(-eta))
    for name in ("x1", "b"):
        found.loc[rng.random(n) < chance, name] = np.nan
    return found


def cohort(frame: pd.DataFrame, method: str, sites: int = 3) -> fc.Cohort:
    parts = {f"s{k}": frame.iloc[k::sites].reset_index(drop=True) for k in range(sites)}
    outcome = OUTCOMES[method]
    kept = ["x1", "x2", "b", *outcome.columns]
    parts = {site: part[kept] for site, part in parts.items()}
    variables = {name: VARIABLES[name] for name in kept}
    return fc.simulate(parts, outcome=outcome, dictionary={"variables": variables})


@pytest.mark.parametrize("method", list(OUTCOMES))
@pytest.mark.filterwarnings("ignore")
def test_each_regression_is_pooled_and_a_saved_model_says_the_same(method, tmp_path):
    fit = fc.fit(method, cohort(table(), method), **MULTIPLE)
    rows = fit.summary.set_index("covariate")
    models = fit.model.models
    assert len(models) == 3 and fit.model.imputer == "mice"
    each = [m.inference() for m in models]
    place = each[0].names.index("x1")
    values = np.array([e.values[place] for e in each])
    within = np.mean([e.covariance[place, place] for e in each])
    total = within + (1 + 1 / 3) * values.var(ddof=1)
    assert_allclose(rows.loc["x1", "coefficient"], values.mean())
    assert_allclose(rows.loc["x1", "standard_error"], math.sqrt(total))
    assert rows.loc["x1", "fmi"] > 0 and values.std() > 0
    fit.save(tmp_path / "m")
    again = fc.load(tmp_path / "m")
    pd.testing.assert_frame_equal(again.summary, fit.summary)
    assert_allclose(again.predict(table()), fit.predict(table()))
    if method == "cox":
        x, at = fit.parts.design.matrix(table()), np.array([0.5])
        mean = np.mean([m.predict_survival(x, at) for m in models], axis=0)
        assert_allclose(fit.predict_survival(table(), at), mean)


def test_a_table_without_missing_values_gives_the_fit_of_one():
    full = table().fillna({"x1": 0.3, "b": 0.0})
    one = fc.fit("logistic", cohort(full, "logistic")).summary
    several = fc.fit("logistic", cohort(full, "logistic"), **MULTIPLE).summary
    for key in ("coefficient", "standard_error"):
        assert_allclose(several[key], one[key], rtol=1e-9)
    assert_allclose(several["fmi"], 0.0)


def test_the_outcome_takes_part_so_that_an_effect_is_not_diluted():
    """A covariate that is missing by the outcome: without it in the imputation β shrinks."""
    frame = table(900, 1)
    rows = fc.fit(
        "ridge", cohort(frame, "ridge"), penalty=0.0, imputer="joint_normal", **MULTIPLE
    ).summary.set_index("covariate")
    # β = 0.8 with a standard error of 0.05 over seeds, of which three
    assert abs(rows.loc["x1", "coefficient"] - 0.8) < 0.15


def test_what_the_imputer_cautions_of_is_kept_with_the_pooled_model(tmp_path, monkeypatch):
    monkeypatch.setattr(MiceModel, "cautions", lambda self: ("Set sweeps to 20.",))
    fit = fc.fit("ridge", cohort(table(90), "ridge"), impute="multiple", imputations=2)
    fit.save(tmp_path / "m")
    assert "Set sweeps to 20." in fit.model.cautions()
    assert fc.load(tmp_path / "m").model.cautions() == fit.model.cautions()


def test_sites_draw_the_same_again_and_differ_between_tables():
    frame = table()
    fit = fc.fit("ridge", cohort(frame, "ridge"), imputer="joint_normal", **MULTIPLE)
    again = fc.fit("ridge", cohort(frame, "ridge"), imputer="joint_normal", **MULTIPLE)
    assert_allclose(again.summary["coefficient"], fit.summary["coefficient"], rtol=0)
    first, second = (m.coefficients for m in fit.model.models[:2])
    assert not np.allclose(first, second)


@pytest.mark.filterwarnings("ignore")
def test_a_view_of_a_drawn_table_is_rebuilt_from_its_text(monkeypatch):
    made: list[ImputedView] = []
    begin = ImputedView.__call__
    monkeypatch.setattr(ImputedView, "__call__", lambda v, f: made.append((v, f)) or begin(v, f))
    for imputer in ("mice", "joint_normal"):
        fc.fit("ridge", cohort(table(), "ridge"), imputer=imputer, **MULTIPLE)
        view, frame = made[-1]
        other = ImputedView.from_spec(view.spec)
        assert other.spec == view.spec
        assert (begin(other, frame).x == begin(view, frame).x).all()
        assert not np.isnan(begin(view, frame).x).any()


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        ("kmeans", {"impute": "multiple"}, "'multiple', which pools coefficients"),
        (
            "logistic",
            {"impute": "multiple", "imputations": 1},
            "imputations is 1; expected",
        ),
        ("logistic", {"impute": "multiple", "imputer": "vae"}, "imputer is 'vae'"),
        ("cox", {"impute": "multiple", "strata": "b"}, "does not support the setting 'strata'"),
    ],
)
def test_what_cannot_be_pooled_is_refused_by_name(method, settings, said):
    fed = cohort(table(), method if method in OUTCOMES else "ridge")
    with pytest.raises(fc.FedcohortError, match=said):
        fc.fit(method, fed, **settings)
