"""Rows of results.json about models with a posterior."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

import fedcohort as fc
from fedcohort.data.dictionary import Dictionary
from fedcohort.protocol import NothingToLearn, NotSupported, StudyError
from fedcohort.study.judge.shown.posterior import posterior_rows, unlike_rows
from fedcohort.study.run.engine import Problem

N = 60
VALUE = fc.Continuous("y")


def run_of(outcome, epistemic=1.0):
    """Return a fit whose intervals are 0 to 1, with an aleatoric variance of 3."""

    def uncertainty(x):
        if epistemic is None:
            raise NotSupported("parts of a time's uncertainty")
        return np.full(len(x), epistemic), np.full(len(x), 3.0)

    def intervals(x, level):
        if epistemic is None:
            raise NotSupported("intervals")
        return np.tile([0.0, 1.0], (len(x), 1))

    def log_density(x, y, event):
        if epistemic is None:
            raise NotSupported("log_density")
        return np.where(y > 1, -3.0, -1.0)

    model = SimpleNamespace(intervals=intervals, uncertainty=uncertainty, log_density=log_density)
    design = SimpleNamespace(outcome=outcome, matrix=lambda test: test[["x"]].to_numpy())
    made: Any = SimpleNamespace(model=model, design=design)
    return made


def rows(outside, n=N, outcome: Any = VALUE, min_cell=5, epistemic: float | None = 1.0):
    y = np.r_[np.full(n - outside, 1.0), np.full(outside, 2.0)]
    test = pd.DataFrame({"x": np.zeros(n), "y": y})
    known = {"variables": {"y": {"type": "number"}, "x": {"type": "number"}}}
    problem: Any = SimpleNamespace(min_cell=min_cell, dictionary=Dictionary.from_dict(known))
    return posterior_rows(run_of(outcome, epistemic), problem, test).get("posterior", [])


def test_coverage_is_the_share_of_outcomes_inside_with_scipys_exact_interval():
    (row,) = rows(9)
    low, high = binomtest(51, N).proportion_ci(0.95, "exact")
    assert_allclose([row["covered"], row["low"], row["high"]], [51 / 60, low, high], rtol=1e-10)
    assert (row["n"], row["level"], row["epistemic"]) == (N, 0.9, 0.25)
    assert row["nlpd"] == pytest.approx((51 * 1 + 9 * 3) / 60)


@pytest.mark.parametrize("outside", [1, 4, 56, 59])
def test_no_coverage_tells_of_fewer_patients_than_min_cell(outside):
    (row,) = rows(outside)
    assert row["covered"] is None
    assert "low" not in row


def test_few_blind_rows_have_no_row():
    assert rows(0, n=9) == []
    assert len(rows(0, n=10)) == 1


def test_an_interval_of_a_mean_count_is_not_compared_with_outcomes():
    (row,) = rows(20, outcome=fc.Count("y"))
    assert row["covered"] is None


def test_a_model_without_a_posterior_of_this_outcome_has_no_row():
    assert rows(9, epistemic=None) == []


# a hospital left out -----------------------------------------------------------------------


def left_out(fails="", min_cell=5):
    """Return the rows of a score that is x, and the sites of each fit."""
    rng = np.random.default_rng(0)
    test = pd.DataFrame({"x": rng.normal(size=90), "site": np.repeat(["a", "b", "c"], [40, 46, 4])})
    test.loc[test.site == "b", "x"] += 1.0
    frames = {s: pd.DataFrame({"x": [0.0]}) for s in ("a", "b", "c")}
    problem = Problem(frames, Dictionary.from_dict({"variables": {"x": "number"}}), None, min_cell)
    laid: Any = SimpleNamespace(test=test, test_site=test.site.to_numpy(), problem=problem)
    fitted: list[list[str]] = []

    def fit(part):
        fitted.append(sorted(part.frames))
        if fails and fails not in part.frames:
            raise NothingToLearn("nothing to learn.")
        model = SimpleNamespace(unlike_training=lambda x: x[:, 0])
        made: Any = SimpleNamespace(
            model=model, design=SimpleNamespace(matrix=lambda test: test[["x"]].to_numpy())
        )
        return made

    return unlike_rows(laid, fit), fitted, test


def test_each_hospital_is_told_from_the_others_by_a_fit_without_it():
    rows, fitted, test = left_out()
    assert fitted == [["b", "c"], ["a", "c"]]  # c has too few blind rows
    for row in rows[:2]:
        assert row["value"] == pytest.approx(roc_auc_score(test.site == row["site"], test.x))
        assert row["low"] < row["value"] < row["high"]
    assert rows[2]["value"] is None
    assert "fewer than" in rows[2]["note"]


def test_without_a_fit_there_is_a_note_in_place_of_the_number():
    rows, _, _ = left_out(fails="a")
    assert [row["value"] is None for row in rows] == [True, False, True]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("arms: [{method: glm}]", "no arm tells how unlike a patient is"),
        (
            "data: {source: t.csv, outcome: {y: y}, sites: {split: iid, n: 3}}",
            "column in data.sites",
        ),
        ("privacy: {dp: {epsilon: 3, delta: 1e-5}}", "each further fit would cost its epsilon"),
    ],
)
def test_a_study_that_cannot_leave_hospitals_out_says_why_in_one_line(tmp_path, change, said):
    lines = {
        "data": "data: {source: t.csv, outcome: {y: y}, sites: {column: site}}",
        "scenarios": "scenarios: [natural]" if "split" not in change else "scenarios: [iid]",
        "arms": "arms: [{method: bayes_linear}]",
        "evaluate": "evaluate: {left_out: true}",
    }
    if "dp" in change:
        lines["arms"] = "arms: [{method: ridge}]"
    lines[change.split(":")[0]] = change
    (tmp_path / "s.yaml").write_text("\n".join(["study: s", "task: regression", *lines.values()]))
    with pytest.raises(StudyError) as error:
        fc.Study.from_file(tmp_path / "s.yaml")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
