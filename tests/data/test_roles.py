"""An offset and weights: columns that are no features, from the table to a saved model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose

import fedcohort as fc
from fedcohort.apps import predictions
from fedcohort.data.prepare.design import Design
from fedcohort.protocol import DataError, SettingError

SETTINGS = {"family": "poisson", "offset": "log_years", "weights": "share"}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(4)
    n = 240
    age, sex = rng.normal(60, 10, n), rng.integers(0, 2, n)
    years = rng.uniform(0.5, 6, n)
    falls = rng.poisson(years * np.exp(-4 + 0.05 * age + 0.3 * sex))
    return pd.DataFrame(
        {
            "age": age, "sex": sex, "log_years": np.log(years), "share": rng.uniform(0.5, 2, n),
            "falls": falls, "ward": rng.integers(0, 3, n).astype(str),
        }
    )  # fmt: skip


def fitted(frame, **settings):
    fed = fc.simulate(frame, sites="ward", outcome=fc.Count("falls"))
    return fc.fit("glm", fed, **{**SETTINGS, **settings})


def test_offset_and_weights_leave_the_features_and_the_fit_equals_statsmodels(frame):
    fit = fitted(frame)
    x = sm.add_constant(frame[["age", "sex"]].astype(float))
    theirs = sm.GLM(
        frame.falls, x, family=sm.families.Poisson(), offset=frame.log_years,
        var_weights=frame["share"],
    ).fit(tol=1e-14)  # fmt: skip
    assert fit.summary.covariate.tolist() == ["age", "sex"]
    assert fit.parts.design.features == ("age", "sex", "log_years")
    assert_allclose(fit.summary.coefficient, theirs.params.iloc[1:], rtol=1e-7)
    assert_allclose(fit.summary.standard_error, theirs.bse.iloc[1:], rtol=1e-6)
    assert_allclose(fit.predict(frame), theirs.fittedvalues, rtol=1e-7)


def test_an_offset_is_not_scaled(frame):
    plain, scaled = fitted(frame), fitted(frame, scale="standard")
    assert_allclose(scaled.predict(frame), plain.predict(frame), rtol=1e-6)
    for scale in ("standard", "minmax", "quantile"):
        x = fitted(frame, scale=scale).parts.design.matrix(frame)
        assert (x[:, -1] == frame.log_years).all()


def test_an_offset_that_is_missing_is_an_error_and_is_not_filled_in(frame):
    gap = frame.copy()
    gap.loc[gap.index[gap.ward == "1"][2], "log_years"] = np.nan
    with pytest.raises(DataError) as caught:
        fitted(gap)
    assert "column 'log_years', the offset, is missing or infinite in row 3" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", [0.0, -1.25, np.nan])
def test_a_weight_that_is_not_above_zero_is_named_by_row(frame, bad):
    wrong = frame.copy()
    wrong.loc[wrong.index[wrong.ward == "2"][4], "share"] = bad
    with pytest.raises(DataError) as caught:
        fitted(wrong)
    assert "column 'share' is " in str(caught.value)
    assert "row 5" in str(caught.value)
    assert "1.25" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"offset": "log_year"}, "offset names a column, and the dictionary has no column 'log_y"),
        ({"offset": "falls"}, "offset is 'falls', which is the outcome. Name another column."),
        ({"weights": "place"}, "weights is 'place', which the dictionary says is of type 'categ"),
    ],
)
def test_a_column_that_cannot_be_an_offset_or_weight_is_named(frame, settings, said):
    with pytest.raises(SettingError) as caught:
        fitted(frame.assign(place=np.where(frame.age > 60, "a", "b")), **settings)
    assert str(caught.value).startswith(said)


def test_a_saved_model_asks_for_the_offset_and_not_for_the_weights(frame, tmp_path):
    fit = fitted(frame)
    fit.save(tmp_path / "model")
    again = fc.load(tmp_path / "model")
    table = frame.drop(columns=["share", "falls", "ward"])
    assert_allclose(again.predict(table), fit.predict(frame), rtol=0)
    assert Design.from_json(again.parts.design.to_json()) == fit.parts.design
    table.to_csv(tmp_path / "new.csv", index=False)
    found = predictions.predict(tmp_path / "model", str(tmp_path / "new.csv"))
    assert_allclose(found.table["value"], fit.predict(frame), rtol=1e-12)
    table.drop(columns="log_years").to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(DataError, match="there is no column 'log_years' among 2 columns"):
        predictions.predict(tmp_path / "model", str(tmp_path / "new.csv"))
    table.assign(log_years=["long", *table.log_years[1:]]).to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(DataError, match="column 'log_years' holds no number in row 1"):
        predictions.predict(tmp_path / "model", str(tmp_path / "new.csv"))


def test_a_design_without_roles_that_was_saved_before_is_read(frame):
    fed = fc.simulate(frame, sites="ward", outcome=fc.Count("falls"))
    design = fc.fit("glm", fed).parts.design
    text = design.to_json().replace(',"offset":"","weights":""', "")
    assert "weights" not in text
    assert Design.from_json(text) == design


def test_a_study_checks_the_columns_that_its_arms_name(frame, tmp_path):
    frame.astype({"falls": bool}).astype({"falls": int}).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "study.yaml").write_text(
        "study: falls\ntask: classification\n"
        "data: {source: t.csv, outcome: {y: falls}, sites: {column: ward}}\n"
        "arms: [{method: logistic, offset: log_year}]\n"
    )
    with pytest.raises(DataError) as caught:
        fc.Study.from_file(tmp_path / "study.yaml").run(out=tmp_path / "out")
    said = "arm 'logistic': offset names a column, and the dictionary has no column 'log_year'."
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("weights", [np.ones(240), np.arange(240) % 2 + 0.0])
def test_columns_that_a_draft_takes_for_yes_and_no_may_be_offset_or_weights(frame, weights):
    table = frame.assign(share=1.0, log_years=weights)
    drafted = fc.simulate(table, sites="ward").dictionary
    assert {drafted[name].type for name in ("share", "log_years")} == {"binary"}
    x = sm.add_constant(table[["age", "sex"]].astype(float))
    theirs = sm.GLM(table.falls, x, family=sm.families.Poisson(), offset=weights).fit(tol=1e-14)
    assert_allclose(fitted(table).summary.coefficient, theirs.params.iloc[1:], rtol=1e-7)


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        (1, "has 1 level; it needs two. Name an outcome that varies, or list both levels in the"),
        (
            3,
            "has 3 levels; it needs two. Set its type to category or ordinal, or recode it to two.",
        ),
    ],
)
def test_a_binary_outcome_of_other_than_two_levels_comes_with_a_remedy(frame, levels, said):
    listed = {"falls": {"type": "category", "levels": ["0", "1", "2"][:levels]}}
    listed |= {"age": "number", "ward": {"type": "category", "identifier": True}}
    table = frame[["age", "ward"]].assign(falls=np.arange(240) % min(levels, 2))
    fed = fc.simulate(table, sites="ward", outcome=fc.Binary("falls"), dictionary=listed)
    with pytest.raises(DataError) as caught:
        fc.fit("logistic", fed)
    assert str(caught.value).startswith(f"the binary outcome 'falls' {said}")
