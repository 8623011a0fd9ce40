"""A study of a yes/no outcome, from file to report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import roc_auc_score

import fedcohort as fc
from fedcohort.data.read import sources
from fedcohort.data.read.drafting import draft
from fedcohort.protocol import SettingError, StudyError, registry
from fedcohort.study.file import plan, yamlfile
from fedcohort.study.file.arms import Arm
from fedcohort.study.judge import evaluate
from fedcohort.study.results import saved
from fedcohort.study.run import tune
from fedcohort.study.run.engine import Problem, fit_once
from fedcohort.study.run.pieces import JUDGED
from fedcohort.study.sites.layout import lay_out

METRICS = {"auc", "accuracy", "brier", "calibration_slope", "log_loss"}
STUDY = """\
study: masses
task: classification
data:
  source: sample:breast_cancer
  sites: {split: iid, n: 3}
preprocess: {scale: standard}
scenarios: [iid, by-outcome]
arms:
  - {method: logistic, l2: 0.01}
bounds: [isolated, centralised]
evaluate: {repeats: 2, draws: 20}
tune: {grid: {l2: [0.001, 0.1]}}
"""


def benign(frame):
    """Return 1 where the sample's target, a level as text, is 1."""
    return (frame.target.astype(str) == "1").astype(int)


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> fc.Results:
    folder = tmp_path_factory.mktemp("masses")
    (folder / "study.yaml").write_text(STUDY)
    return fc.Study.from_file(folder / "study.yaml").run(folder / "out")


def test_every_arm_and_bound_is_judged_by_the_metrics_of_classes(done):
    assert done.failures == []
    summary = done.summary.set_index(["scenario", "arm", "metric"]).sort_index()
    for scenario in ("iid", "by-outcome"):
        for arm in ("isolated", "logistic", "centralised"):
            assert set(summary.loc[scenario, arm].index) == METRICS
            auc = summary.loc[scenario, arm, "auc"]
            assert auc.low <= auc["mean"] <= auc.high
    assert (summary.loc["iid", "logistic", "auc"][["mean"]] > 0.95).all()


def test_the_federated_fit_is_the_fit_of_the_pooled_table(done):
    summary = done.summary.set_index(["arm", "scenario", "metric"])["mean"].sort_index()
    tuned = {(t["arm"], t["scenario"]): t["chosen"]["l2"] for t in done.content["tuning"]}
    same = [s for s in ("iid", "by-outcome") if tuned["logistic", s] == tuned["centralised", "iid"]]
    assert same
    for scenario in same:
        ours, pooled = summary["logistic", scenario], summary["centralised", scenario]
        assert_allclose(ours, pooled[ours.index], rtol=1e-6)


def test_sites_of_a_single_class_count_as_chance_in_the_lower_bound(done):
    rows = [r for r in done.content["arms"] if r["arm"] == "isolated" and r["site"]]
    without = [r for r in rows if "note" in r]
    assert {r["scenario"] for r in without} == {"by-outcome"}
    for row in without:
        assert row["note"] == "its own rows give no model", "not which class, of how many"
        assert row["metrics"]["auc"] == row["metrics"]["accuracy"] == 0.5
        assert row["metrics"]["brier"] == 0.25
        assert row["metrics"]["log_loss"] == pytest.approx(np.log(2))
        assert row["metrics"]["calibration_slope"] is None


def test_coefficients_and_calibration_groups_are_in_the_results(done):
    row = done.content["coefficients"][0]
    wanted = {"covariate", "coefficient", "standard_error", "odds_ratio", "low", "high", "p"}
    assert wanted <= set(row)
    for group in done.content["calibration"]:
        assert group["time"] is None
        assert 0 <= group["predicted"] <= 1
        assert 0 <= group["low"] <= group["observed"] <= group["high"] <= 1


def test_calibration_errors_and_brier_parts_follow_from_the_groups_of_each_repeat(done):
    found = pd.DataFrame(done.content["calibration"]).groupby(["arm", "scenario", "repeat"])
    judged = [r for r in done.content["arms"] if r["site"] is None and r["arm"] != "isolated"]
    brier = {(r["arm"], r["scenario"], r["repeat"]): r["metrics"]["brier"] for r in judged}
    rows = done.content["reliability"]
    assert {(r["arm"], r["scenario"], r["repeat"]) for r in rows} == set(brier) == set(found.groups)
    for r in rows:
        of = r["arm"], r["scenario"], r["repeat"]
        g = found.get_group(of)
        gap = (g.observed - g.predicted).abs()
        assert r["ece"] == pytest.approx(np.average(gap, weights=g.n))
        parts = r["reliability"] - r["resolution"] + r["uncertainty"] + r["within"]
        assert parts == pytest.approx(brier[of], abs=1e-12)


def test_decision_curves_of_the_first_repeat_are_in_the_results(done):
    found = done.content["decision"]
    assert {r["repeat"] for r in found} == {0}
    assert {r["arm"] for r in found} == {"logistic", "centralised"}
    for first in (r for r in found if r["threshold"] == 0):
        assert first["net_benefit"] == first["treat_all"]  # the share with the outcome
    for r in found:
        assert r["low"] <= r["net_benefit"] <= r["high"]
        assert r["net_benefit"] <= found[0]["treat_all"] + 1e-12


def test_the_study_has_a_report_and_a_model_that_predicts_probabilities(done):
    assert done.report().stat().st_size > 10_000
    fit = fc.load(done.folder / "models" / "logistic")
    frame = sources.load("sample:breast_cancer", Path()).frames
    p = fit.predict(frame.drop(columns=["target"]))
    assert ((p >= 0) & (p <= 1)).all()
    assert roc_auc_score(benign(frame), p) > 0.98
    assert "logistic" in (done.folder / "models" / "logistic" / "card.md").read_text()


def test_natural_sites_are_judged_by_the_auc_of_their_own_patients(tmp_path):
    frame = sources.load("sample:breast_cancer", Path()).frames
    columns = ["mean texture", "mean area", "target"]
    text = np.where(benign(frame), "benign", "malignant")
    frame[columns].assign(target=text, ward=np.arange(len(frame)) % 2).to_csv(
        tmp_path / "t.csv", index=False
    )
    (tmp_path / "study.yaml").write_text(
        "study: wards\ntask: classification\n"
        "data: {source: t.csv, outcome: {y: target}, sites: {column: ward}}\n"
        "preprocess: {scale: standard}\narms: [{method: logistic}]\n"
        "evaluate: {repeats: 1, draws: 5, metrics: [auc]}\n"
    )
    study = fc.Study.from_file(tmp_path / "study.yaml")
    done = study.run(tmp_path / "out")
    assert done.failures == []
    logistic = [r for r in done.content["arms"] if r["arm"] == "logistic" and r["site"]]
    own = {r["site"]: r["metrics"]["auc_own"] for r in logistic}
    laid = lay_out(study.plan, study.table, study.plan.scenarios[0], 0)
    judged = saved.read(done.folder / "models" / "logistic" / JUDGED)
    p = judged.model.predict(judged.design.matrix(laid.test))
    for ward in ("0", "1"):
        mine = laid.test_site == ward
        want = roc_auc_score(laid.test["target"][mine] == "malignant", p[mine])
        assert own.pop(ward) == pytest.approx(want, abs=1e-12)
    assert own == {}
    # the level that sorts last, malignant, counts as 1: a larger area raises its odds
    rows = {r["covariate"]: r for r in done.content["coefficients"]}
    assert rows["mean area"]["odds_ratio"] > 1


# what the pieces do -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem() -> Problem:
    source = sources.load("sample:breast_cancer", Path())
    frame = source.frames[["mean texture", "mean area", "mean smoothness", "target"]]
    frames = {f"s{i}": frame.iloc[i::3].reset_index(drop=True) for i in range(3)}
    return Problem(frames, draft(frames, source.outcome), source.outcome)


def test_centre_kfold_scores_by_the_auc_of_sites_left_out(problem, tmp_path):
    method = registry.find("logistic")
    arm = Arm("a", "a", "logistic", {}, {"scale": "standard"}, "sites", {}, "centre-kfold")
    tuner = tune.Tuner(problem, arm, 1, tmp_path, lambda done, of: None)
    (score,) = tuner.scores({"l2": 0.1}, ())
    said, held = [], []
    for left in problem.frames:
        others = {n: f for n, f in problem.frames.items() if n != left}
        run = fit_once(problem.on(others), method, {"l2": 0.1}, {"scale": "standard"}, 1)
        said.append(run.model.predict(run.design.matrix(problem.frames[left])))
        held.append(problem.frames[left])
    assert score == pytest.approx(roc_auc_score(benign(pd.concat(held)), np.concatenate(said)))


def test_a_problem_of_one_class_cannot_teach(problem):
    assert problem.can_teach
    one = {n: f[benign(f) == 1] for n, f in problem.frames.items()}
    assert not problem.on(one).can_teach


def test_a_judge_of_some_rows_judges_those_rows(problem):
    run = fit_once(problem, registry.find("logistic"), {}, {"scale": "standard"}, 1)
    test = problem.frames["s0"]
    judge = evaluate.judge_of(problem, test)
    assert isinstance(judge, evaluate.Labels)
    assert (judge.y == benign(test)).all()
    mask = np.arange(len(test)) % 2 == 0
    some = judge.on(mask)
    found = some.metrics(some.predicted(run, ("auc",)), ("auc",))
    p = run.model.predict(run.design.matrix(test))
    assert found == {"auc": pytest.approx(roc_auc_score(benign(test)[mask], p[mask]))}


# what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "draws: 20",
            "draws: 20, metrics: [auc, c_index]",
            "s.yaml, line 11, evaluate.metrics.1: 'c_index' is not possible in a study of "
            "classification, it evaluates survival; known are auc, accuracy, brier, "
            "calibration_slope, log_loss.",
        ),
        (
            "draws: 20",
            "draws: 20, metrics: [aucc]",
            "s.yaml, line 11, evaluate.metrics.0: 'aucc' is not possible; did you mean 'auc'?",
        ),
        (
            "task: classification",
            "task: forecast",
            "s.yaml, line 2, task: 'forecast' is not possible; known are classification, "
            "clustering, imputation, latent, regression, survival, synthesis.",
        ),
        (
            "method: logistic, l2: 0.01",
            "method: cox",
            "s.yaml, line 9, arms.0.method: 'cox' serves survival, not classification.",
        ),
    ],
)
def test_what_belongs_to_another_task_is_refused_with_its_place(old, new, said):
    with pytest.raises(StudyError) as caught:
        plan.check(yamlfile.parse(STUDY.replace(old, new), "s.yaml"), Path())
    assert str(caught.value) == said


def test_a_method_of_two_classes_is_refused_on_a_sample_of_ten_before_anything_runs(tmp_path):
    (tmp_path / "s.yaml").write_text(STUDY.replace("breast_cancer", "digits"))
    with pytest.raises(StudyError) as caught:
        fc.Study.from_file(tmp_path / "s.yaml")
    assert "arms.0.method: method 'logistic' learns no outcome of type category" in str(
        caught.value
    )


def test_a_notebook_fits_it_and_other_outcomes_are_refused(problem):
    cohort = fc.simulate(problem.frames, outcome=problem.outcome)
    fit = fc.fit("logistic", cohort, scale="standard")
    assert list(fit.summary.covariate) == ["mean texture", "mean area", "mean smoothness"]
    with pytest.raises(SettingError, match="'cox' serves survival, not classification"):
        fc.fit("cox", cohort)


def test_results_hold_plain_numbers(done):
    text = (done.folder / "results.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["task"] == "classification"
