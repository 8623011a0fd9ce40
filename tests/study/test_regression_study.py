"""A study of a value or a count, from file to report."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

import fedcohort as fc
from fedcohort.data.describe.shown_number import ShownNumber
from fedcohort.data.outcome import Continuous, Count
from fedcohort.data.read import sources
from fedcohort.metrics.heterogeneity import pooled_r2
from fedcohort.protocol import DataError, StudyError, registry
from fedcohort.report import page
from fedcohort.report.comparison import Comparison, text_table
from fedcohort.report.run import read
from fedcohort.report.tripod.items import checklist
from fedcohort.report.verdict import HELPED, answer, judge
from fedcohort.study.file import plan, yamlfile
from fedcohort.study.file.arms import Arm
from fedcohort.study.judge.leading import R2, Outcomes
from fedcohort.study.judge.pooled.regression import grouped
from fedcohort.study.run import tune
from fedcohort.study.run.engine import Problem, fit_once
from fedcohort.study.run.pieces import JUDGED
from fedcohort.study.sites import layout
from fedcohort.study.sites.splits import strata, stratified
from toys import toy_method

METRICS = {"r2", "rmse", "mae", "calibration_slope", "calibration_intercept"}
STUDY = """\
study: progress
question: How far?
task: regression
data:
  source: sample:diabetes
  sites: {split: iid, n: 3}
preprocess: {scale: standard}
scenarios: [iid, by-outcome]
arms:
  - {method: ridge, penalty: 0.1}
  - {method: lasso, penalty: 2}
bounds: [isolated, centralised]
evaluate: {repeats: 3, draws: 20}
"""


def run(folder: Path, text: str) -> fc.Results:
    """Run a study in a folder."""
    (folder / "study.yaml").write_text(text)
    return fc.Study.from_file(folder / "study.yaml").run(folder / "out")


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> fc.Results:
    return run(tmp_path_factory.mktemp("progress"), STUDY)


def stays(n=240, seed=0):
    """Return wards whose patients' days in hospital, a count, depend on age and smoking."""
    rng = np.random.default_rng(seed)
    age, smoker = rng.normal(60, 12, n).round(), rng.choice(["no", "yes"], n)
    mean = np.exp(1.5 + 0.03 * (age - 60) + 0.5 * (smoker == "yes"))
    ward = rng.choice(["east", "north", "west"], n)
    return pd.DataFrame({"ward": ward, "age": age, "smoker": smoker, "days": rng.poisson(mean)})


COUNTS = """\
study: stays
task: regression
data: {source: t.csv, outcome: {y: days, type: count}, sites: {column: ward, min_rows: 2}}
preprocess: {scale: standard}
arms: [{method: glm, family: poisson, title: Poisson regression}, {method: ridge}]
bounds: [isolated]
evaluate: {repeats: 1, draws: 10}
"""


@pytest.fixture(scope="module")
def counted(tmp_path_factory) -> fc.Results:
    folder = tmp_path_factory.mktemp("stays")
    few = pd.DataFrame({"ward": "south", "age": [50.0] * 4, "smoker": "no", "days": [30, 1, 2, 1]})
    pd.concat([stays(), few]).to_csv(folder / "t.csv", index=False)
    return run(folder, COUNTS)


# from file to results ---------------------------------------------------------------------


def test_every_arm_and_bound_is_judged_by_the_metrics_of_values(done):
    assert done.failures == []
    summary = done.summary.set_index(["scenario", "arm", "metric"]).sort_index()
    for scenario in ("iid", "by-outcome"):
        for arm in ("isolated", "ridge", "lasso", "centralised"):
            found = summary.loc[scenario, arm]
            assert set(found.index) == METRICS
            assert (found["low"] <= found["mean"]).all()
            assert (found["mean"] <= found["high"]).all()
    assert summary.loc["by-outcome", "ridge", "r2"]["mean"] > 0.4
    assert summary.loc["by-outcome", "isolated", "r2"]["mean"] < 0
    assert {c["metric"] for c in done.content["comparisons"]} == METRICS


def test_the_federated_fit_is_the_fit_of_the_pooled_table(done):
    summary = done.summary.set_index(["arm", "scenario", "metric"])["mean"].sort_index()
    for scenario in ("iid", "by-outcome"):
        ours, pooled = summary["ridge", scenario], summary["centralised", scenario]
        assert ours.to_numpy() == pytest.approx(pooled[ours.index].to_numpy(), rel=1e-8)


def test_metrics_are_those_of_the_saved_model_on_the_blind_rows(done):
    study = fc.Study.from_file(done.folder.parent / "study.yaml")
    blind = study.table.frame[layout.test_rows(study.plan, study.table, 0)]
    y, f = (
        blind["target"].to_numpy(),
        fc.load(done.folder / "models" / "ridge" / JUDGED).predict(blind),
    )
    row = next(
        r["metrics"]
        for r in done.content["arms"]
        if (r["arm"], r["scenario"], r["repeat"]) == ("ridge", "iid", 0)
    )
    assert row["r2"] == pytest.approx(reference.r2_score(y, f))
    assert row["rmse"] == pytest.approx(reference.root_mean_squared_error(y, f))
    assert row["mae"] == pytest.approx(reference.mean_absolute_error(y, f))
    shown = next(r for r in done.content["residuals"] if r["arm"] == "ridge")
    known = ShownNumber.of(y - f, 5)
    assert (shown["mean"], shown["sd"]) == (known.mean, known.sd)
    assert (shown["q1"], shown["median"], shown["q3"]) == known.quartiles


def test_importance_is_the_loss_of_r2(done):
    rows = [r for r in done.content["importance"] if r["arm"] == "ridge"]
    assert {r["metric"] for r in rows} == {"r2"}
    drops = {r["feature"]: r for r in rows}
    assert drops["bmi"]["low"] > 0
    assert drops["age"]["low"] < 0 < drops["age"]["high"]


def test_results_name_the_outcome_s_type_and_unit_and_hold_plain_numbers(done):
    text = (done.folder / "results.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["outcome"] == {
        "kind": "regression", "columns": ["target"], "type": "continuous", "unit": "points",
    }  # fmt: skip
    assert json.loads(text)["data"]["events"] is None


# counts and natural sites -----------------------------------------------------------------


def test_a_count_is_also_judged_by_poisson_s_deviance(counted):
    assert counted.failures == []
    assert set(counted.summary.metric) == METRICS | {"poisson_deviance"}
    ours = counted.summary.set_index(["arm", "metric"])["mean"]
    assert ours["glm", "poisson_deviance"] < ours["isolated", "poisson_deviance"]
    assert ours["glm", "r2"] > ours["ridge", "r2"], "the rate is multiplied, not added to"
    assert counted.content["outcome"]["type"] == "count"


def test_each_ward_has_its_own_r2_and_one_of_few_rows_has_none(counted):
    rows = {r["site"]: r for r in counted.content["by_centre"] if r["arm"] == "glm"}
    assert set(rows) == {"east", "north", "south", "west"}
    assert (rows["south"]["value"], rows["south"]["note"]) == (None, "fewer than 5 rows")
    assert rows["south"]["n"] is None
    usable = [rows[s] for s in ("east", "north", "west")]
    assert all(r["low"] < r["value"] < r["high"] and r["metric"] == "r2" for r in usable)
    want = pooled_r2([r["value"] for r in usable], [r["se"] for r in usable])
    pooled = next(r for r in counted.content["heterogeneity"] if r["arm"] == "glm")
    assert pooled["pooled"] == pytest.approx(want.mean)
    own = {
        r["site"]: r["metrics"]["r2_own"]
        for r in counted.content["arms"]
        if r["arm"] == "glm" and r["site"]
    }
    assert own["south"] is None
    assert own["east"] == pytest.approx(rows["east"]["value"])


def test_a_ward_of_fewer_rows_than_min_cell_counts_as_one_that_says_the_mean(counted):
    study = fc.Study.from_file(counted.folder.parent / "study.yaml")
    blind = layout.test_rows(study.plan, study.table, 0)
    days = study.table.frame["days"].to_numpy(float)
    usual = np.full(blind.sum(), days[~blind].mean())
    rows = {r["site"]: r for r in counted.content["arms"] if r["arm"] == "isolated" and r["site"]}
    south = rows["south"]
    assert south["note"] == "its own rows give no model"
    assert south["metrics"]["r2"] == pytest.approx(reference.r2_score(days[blind], usual))
    rmse = reference.root_mean_squared_error(days[blind], usual)
    assert south["metrics"]["rmse"] == pytest.approx(rmse)
    assert south["metrics"]["calibration_slope"] is None
    assert all("note" not in rows[s] for s in ("east", "north", "west"))


def test_calibration_groups_are_of_many_and_rounded_as_table_1_is(counted, done):
    for result in (counted, done):
        groups = result.content["calibration"]
        assert groups
        assert all(g["n"] >= 10 for g in groups)
    for g in counted.content["calibration"]:
        tenths = g["observed"] * 20
        assert tenths == pytest.approx(round(tenths)), "a mean of days to 0.05 at best"
    ridge = [g for g in done.content["calibration"] if g["arm"] == "ridge" and not g["repeat"]]
    assert ridge[0]["observed"] < ridge[-1]["observed"]


# the report -------------------------------------------------------------------------------


def test_the_report_says_the_unit_and_whom_training_together_helped(done):
    found = read(done.folder)
    html = page.render(found)
    for text in (
        "RMSE, points", "Mean absolute error, points", "How far are predictions from what happened",
        "observed minus predicted, points", "predicted, points", "Coefficient, points",
        "Hospitals differ in the outcome", "loss of R²", "There are no classes",
        "A number, in points: column target",
    ):  # fmt: skip
        assert text in html
    for text in ("hazard", "Kaplan-Meier", "Discrimination", "probability of"):
        assert text not in html
    ridge = next(a for a in found.arms if a.name == "ridge")
    assert judge(found, ridge, "by-outcome").kind == HELPED
    assert {line.number for line in checklist(found) if line.state == "filled"} >= {"13", "15"}


def test_led_by_an_error_that_is_smaller_the_same_arm_helps(done, tmp_path):
    content = json.loads((done.folder / "results.json").read_text())
    content["evaluate"]["metrics"] = ["rmse", "r2"]
    (tmp_path / "results.json").write_text(json.dumps(content))
    found = read(tmp_path)
    assert found.metric == "rmse"
    ridge = next(a for a in found.arms if a.name == "ridge")
    verdict = judge(found, ridge, "by-outcome")
    assert verdict.kind == HELPED
    assert verdict.share.value == pytest.approx(1.0, rel=1e-6)
    assert found.difference("ridge", "isolated", "by-outcome").value > 0
    html = page.render(found)
    assert "further left is better" in html
    assert re.search(r"between a hospital alone \(RMSE [\d.–]+ points\)", answer(found))
    assert "loss of R²" in html, "importance is of R² whatever leads"


def test_rate_ratios_and_coefficients_each_have_their_own_axis_and_words(counted):
    html = page.render(read(counted.folder))
    for text in ("Rate ratio, log scale", "RR (95 % CI)", "where a bar crosses 1 or 0"):
        assert text in html
    assert "Poisson deviance" in html
    assert "| rate ratio |" in (counted.folder / "models" / "glm" / "card.md").read_text()


def test_the_card_has_the_unit_and_coefficients_without_a_ratio(done):
    text = (done.folder / "models" / "ridge" / "card.md").read_text()
    assert "- Outcome: target (points)" in text
    assert "| rmse (points) |" in text
    assert "| covariate | shrunken coefficient | ± 1.96 SE, no CI |" in text
    assert "no estimates of the effects" in text
    assert "writes a predicted value for each row" in text


def test_two_runs_are_compared_with_smaller_errors_as_better(done, tmp_path):
    worse = run(tmp_path, STUDY.replace("penalty: 0.1", "penalty: 50"))
    compared = Comparison.of([done.folder, worse.folder])
    assert compared.same_patients == (True, True)
    lines = {(x.metric, x.arm, x.scenario): x for x in compared.lines()}
    for metric in ("r2", "rmse"):
        assert lines[metric, "ridge", "iid"].against[1].value < 0
    assert compared.known("rmse").axis == "RMSE, points"
    assert text_table(compared)[0][0] == "R²"


# what the pieces do -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem() -> Problem:
    source = sources.load("sample:diabetes", Path())
    frames = {f"s{i}": source.frames.iloc[i::3].reset_index(drop=True) for i in range(3)}
    return Problem(frames, source.dictionary, source.outcome)


def test_centre_kfold_scores_by_the_r2_of_sites_left_out(problem, tmp_path):
    method, scale = registry.find("ridge"), {"scale": "standard"}
    arm = Arm("a", "a", "ridge", {}, scale, "sites", {}, "centre-kfold")
    tuner = tune.Tuner(problem, arm, 1, tmp_path, lambda done, of: None)
    (score,) = tuner.scores({"penalty": 0.1}, ())
    said, seen = [], []
    for left in problem.frames:
        others = {n: f for n, f in problem.frames.items() if n != left}
        fitted = fit_once(problem.on(others), method, {"penalty": 0.1}, scale, 1)
        said.append(fitted.model.predict(fitted.design.matrix(problem.frames[left])))
        seen.append(problem.frames[left]["target"])
    assert score == pytest.approx(reference.r2_score(np.concatenate(seen), np.concatenate(said)))


def test_tuning_takes_the_larger_r2_and_a_prediction_beyond_any_number_is_the_worst(
    problem, tmp_path
):
    arm = Arm("a", "a", "ridge", {}, {"scale": "standard"}, "sites", {}, "row-kfold")
    tuner = tune.Tuner(problem, arm, 1, tmp_path, lambda done, of: None)
    tuned = tune.grid_search(tuner, {"penalty": [1e6, 0.1, 1e3]})
    assert tuned.chosen == {"penalty": 0.1}
    flat, good, _ = (score for _, score in tuned.tried)
    assert flat == pytest.approx(0.0, abs=0.02), "everybody is told about the mean"
    assert tuned.score == good > 0.4
    y = problem.frames["s0"]["target"].to_numpy(float)
    nobody = np.zeros(len(y))
    assert R2.score_of(np.full(len(y), np.inf), Outcomes(nobody, y)) == -np.inf
    assert R2.score_of(np.ones(len(y)), Outcomes(nobody, np.ones(len(y)))) == 0.0


def test_a_problem_of_one_value_cannot_teach(problem):
    assert problem.can_teach
    one = {n: f.assign(target=3.0) for n, f in problem.frames.items()}
    assert not problem.on(one).can_teach


@given(n=st.integers(0, 120), most=st.integers(1, 12), least=st.integers(1, 20),
       digits=st.integers(0, 3))  # fmt: skip
@settings(max_examples=60)
def test_groups_hold_every_row_once_in_order_and_are_never_small(n, most, least, digits):
    said = np.random.default_rng(n).normal(size=n).round(digits)
    groups = grouped(said, most, least)
    assert len(groups) <= most
    if n < least:
        assert groups == []
        return
    assert (np.sum(groups, axis=0) == 1).all()
    assert all(g.sum() >= least for g in groups)
    ends = [(said[g].min(), said[g].max()) for g in groups]
    assert all(a[1] < b[0] for a, b in itertools.pairwise(ends))


@pytest.mark.parametrize("outcome", [Continuous("days"), Count("days")])
def test_blind_rows_are_a_quarter_of_each_fifth_of_the_values_at_each_site(outcome):
    for _, mine in stays(400).groupby("ward"):
        taken = stratified(strata(mine, outcome), 0.25, np.random.default_rng(0))
        fifth = np.searchsorted(np.quantile(mine["days"], (0.2, 0.4, 0.6, 0.8)), mine["days"])
        for part in range(5):
            here = fifth == part
            assert abs(taken[here].sum() - 0.25 * here.sum()) <= 1


def test_the_packaged_sample_has_a_dictionary_with_units():
    source = sources.load("sample:diabetes", Path())
    assert source.outcome == Continuous("target")
    assert set(source.dictionary.variables) == set(source.frames.columns)
    assert source.dictionary["target"].unit == "points"
    assert source.dictionary["bp"].unit == "mmHg"
    assert source.dictionary["sex"].levels == ("1", "2")


# what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("draws: 20", "draws: 20, metrics: [r2, poisson_deviance]",
         "s.yaml, line 13, evaluate.metrics.1: 'poisson_deviance' needs an outcome of type count "
         "(data.outcome.type)."),
        ("draws: 20", "draws: 20, metrics: [auc]",
         "s.yaml, line 13, evaluate.metrics.0: 'auc' is not possible in a study of regression, it "
         "evaluates classification; known are r2, rmse, mae, calibration_slope, "
         "calibration_intercept, pcc, nrmse."),
        ("method: lasso, penalty: 2", "method: cox",
         "s.yaml, line 11, arms.1.method: 'cox' serves survival, not regression."),
    ],
)  # fmt: skip
def test_what_belongs_to_another_task_is_refused_with_its_place(old, new, said):
    with pytest.raises(StudyError) as caught:
        plan.check(yamlfile.parse(STUDY.replace(old, new), "s.yaml"), Path())
    assert str(caught.value) == said


def test_an_arm_that_predicts_nothing_is_refused_with_its_place(monkeypatch):
    method = replace(toy_method(), name="lasso", tasks=("regression",))
    find = registry.find
    monkeypatch.setattr(registry, "find", lambda name: method if name == "lasso" else find(name))
    with pytest.raises(StudyError) as caught:
        plan.check(yamlfile.parse(STUDY, "s.yaml"), Path())
    assert str(caught.value).startswith("s.yaml, line 11, arms.1.method: 'lasso' predicts nothing")


@pytest.mark.parametrize(
    ("change", "more", "said"),
    [
        ({"days": 3}, "", "t.csv: column 'days' has one value in all 240 rows, so there is nothing "
         "to predict. Name another 'outcome'."),
        ({}, ", test_fraction: 0.01", "t.csv: 1% of 240 rows are fewer than 5 test rows, too few "
         "to evaluate predictions. Raise evaluate.test_fraction."),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_judged_is_refused_before_anything_runs(
    tmp_path, change, more, said
):
    stays().assign(**change).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "s.yaml").write_text(COUNTS.replace("draws: 10", f"draws: 10{more}"))
    with pytest.raises((StudyError, DataError)) as caught:
        fc.Study.from_file(tmp_path / "s.yaml")
    assert said in str(caught.value)
