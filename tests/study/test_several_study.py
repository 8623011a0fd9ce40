"""A study of three classes, from file to predictions, against scikit-learn on its blind rows."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn import metrics as sklearn

import fedcohort as fc
import several
from fedcohort import report
from fedcohort.apps.predictions import predict
from fedcohort.report.run import Run
from fedcohort.report.sections.classes import means
from fedcohort.study.results import saved
from fedcohort.study.run.pieces import JUDGED
from fedcohort.study.sites.layout import lay_out
from in_process import command

STUDY = """\
study: grades
task: classification
data:
  source: t.csv
  dictionary: d.yaml
  outcome: {y: grade, type: ordinal}
  sites: {column: site}
arms:
  - {method: nearest}
bounds: [isolated, centralised]
evaluate: {repeats: 1, draws: 40}
tune: {grid: {sharp: [0.3, 1.0]}}
"""
METRICS = {"auc", "accuracy", "balanced_accuracy", "brier", "log_loss"}


@pytest.fixture(scope="module", autouse=True)
def method() -> Iterator[None]:
    with several.installed():
        yield


def written(folder: Path, text: str = STUDY, frame: pd.DataFrame | None = None) -> Path:
    """Write a study, its table and its dictionary."""
    (several.patients() if frame is None else frame).to_csv(folder / "t.csv", index=False)
    known = {"variables": several.DICTIONARY}
    (folder / "d.yaml").write_text(yaml.safe_dump(known, sort_keys=False))
    (folder / "study.yaml").write_text(text)
    return folder / "study.yaml"


@pytest.fixture(scope="module")
def done(tmp_path_factory, method) -> fc.Results:
    path = written(tmp_path_factory.mktemp("several"))
    return fc.Study.from_file(path).run(path.parent / "out", debug=True)


@pytest.fixture(scope="module")
def blind(done):
    """Return the classes and the predictions of the blind rows."""
    study = fc.Study.from_file(done.folder.parent / "study.yaml")
    laid = lay_out(study.plan, study.table, study.plan.scenarios[0], 0)
    parts = saved.read(done.folder / "models" / "nearest" / JUDGED)
    said = parts.model.predict(parts.design.matrix(laid.test))
    return study.table.outcome.values(laid.test, several.LEVELS), said, laid.test_site


def test_every_arm_and_bound_has_the_metrics_of_classes_with_intervals(done, blind):
    y, said, _ = blind
    assert done.failures == []
    summary = done.summary.set_index(["arm", "metric"]).sort_index()
    for arm in ("isolated", "nearest", "centralised"):
        assert set(summary.loc[arm].index) == METRICS
    ours, guess = summary.loc["nearest"], said.argmax(axis=1)
    want = {
        "auc": sklearn.roc_auc_score(y, said, multi_class="ovr"),
        "accuracy": sklearn.accuracy_score(y, guess),
        "balanced_accuracy": sklearn.balanced_accuracy_score(y, guess),
        "brier": np.mean(((said - np.eye(3)[y]) ** 2).sum(axis=1)),
        "log_loss": sklearn.log_loss(y, said),
    }
    assert ours["mean"].to_dict() == pytest.approx(want)
    assert (ours.low < ours["mean"]).all()
    assert (ours["mean"] < ours.high).all()


def test_each_class_is_judged_against_the_rest(done, blind):
    y, said, _ = blind
    rows = [r for r in done.content["by_class"] if r["arm"] == "nearest"]
    assert [r["class"] for r in rows] == [*several.LEVELS]
    for k, row in enumerate(rows):
        assert row["auc"] == pytest.approx(sklearn.roc_auc_score(y == k, said[:, k]))
        assert row["low"] < row["auc"] < row["high"]
        assert row["observed"] == pytest.approx(np.mean(y == k))
        assert row["predicted"] == pytest.approx(said[:, k].mean())
        groups = [
            r
            for r in done.content["calibration"]
            if r["arm"] == "nearest" and r["class"] == row["class"]
        ]
        assert sum(r["n"] for r in groups) == len(y)
        assert sum(r["n"] * r["observed"] for r in groups) == pytest.approx((y == k).sum())
    assert {r["class"] for r in done.content["roc"] if r["arm"] == "nearest"} <= {*several.LEVELS}


def test_the_decision_curve_of_each_class_is_the_net_benefit_against_the_rest(done, blind):
    y, said, _ = blind
    rows = [r for r in done.content["decision"] if r["arm"] == "nearest"]
    assert {r["class"] for r in rows} == {*several.LEVELS}
    for r in rows:
        want = several.net_benefit(y, said, several.LEVELS.index(r["class"]), r["threshold"])
        assert (r["net_benefit"], r["treat_all"]) == pytest.approx(want)


def test_the_report_has_means_over_repeats_by_class(tmp_path):
    text = STUDY[: STUDY.index("bounds")] + "bounds: []\nevaluate: {repeats: 2}\n"
    out = fc.Study.from_file(written(tmp_path, text)).run(tmp_path / "out", debug=True)
    found = pd.DataFrame(out.content["by_class"])
    assert list(found["repeat"]) == [0, 0, 0, 1, 1, 1]
    shown = means(Run(out.content, out.folder), "nearest", found["scenario"][0])
    rows = {r["class"]: r for r in shown}
    wanted = found.groupby("class")[["auc", "low", "high", "observed", "slope"]].mean()
    for level, row in wanted.iterrows():
        assert {k: rows[level][k] for k in row.index} == pytest.approx(row.to_dict())
    page = (out.folder / "report.html").read_text()
    assert "Each class against the rest, blind patients, mean of 2 repeats" in page
    assert "blind patients of the first repeat by class and by likeliest class" in page


def test_the_table_of_classes_has_no_small_count(done, blind):
    y, said, _ = blind
    want = sklearn.confusion_matrix(y, said.argmax(axis=1))
    rows = [r for r in done.content["confusion"] if r["arm"] == "nearest"]
    got = np.array([r["n"] for r in rows], float).reshape(3, 3)
    assert np.isfinite(got).any()
    assert (got[np.isfinite(got)] == want[np.isfinite(got)]).all()
    assert np.isnan(got[(want > 0) & (want < 5)]).all()


def test_each_site_has_its_own_mean_auc_and_columns_have_their_importance(done, blind):
    y, said, site = blind
    rows = {r["site"]: r for r in done.content["by_centre"] if r["arm"] == "nearest"}
    for name in np.unique(site):
        at = site == name
        want = sklearn.roc_auc_score(y[at], said[at], multi_class="ovr")
        assert rows[name]["value"] == pytest.approx(want)
        assert rows[name]["low"] < want < rows[name]["high"]
    drops = {r["feature"]: r["drop"] for r in done.content["importance"] if r["arm"] == "nearest"}
    assert drops["a"] > drops["b"]
    assert done.content["heterogeneity"]


def test_predictions_have_a_column_for_each_class_and_the_likeliest(done, tmp_path):
    frame = several.patients(6, seed=3)
    frame["a"] = frame["a"].astype(object)
    frame.loc[1, "a"] = "high"
    frame.to_csv(tmp_path / "new.csv", index=False)
    found = predict(done.folder / "models" / "nearest", str(tmp_path / "new.csv"), skip=True)
    names = ["class", *(f"probability of {level}" for level in several.LEVELS)]
    assert list(found.table.columns) == ["row", *names]
    p = found.table[names[1:]].to_numpy()
    assert np.isnan(p[1]).all()
    assert found.table["class"][1] == ""
    rest = np.delete(np.arange(6), 1)
    assert p[rest].sum(axis=1) == pytest.approx(np.ones(5))
    assert [several.LEVELS[k] for k in p[rest].argmax(axis=1)] == found.table["class"][
        rest
    ].tolist()
    again = pd.read_csv(io.StringIO(found.csv))
    assert list(again.columns) == list(found.table.columns)


def test_the_report_shows_each_class_and_the_card_lists_them(done):
    page = " ".join(done.report().read_text().split())
    for said in (
        "Which classes does the model tell apart?",
        "Classes are in their order, low the lowest.",
        "ROC curves of each class against the rest",
        "nearest: blind patients of the first repeat by class and by likeliest class",
        "1/3 for every class gives 0.667",
        "One of 3 ordered classes (low, mid and high, the lowest first)",
        "A probability of each class for each patient",
        "Balanced accuracy",
        "Net benefit by threshold of each class",
        "Each class is taken alone",
    ):
        assert said in page, said
    card = (done.folder / "models" / "nearest" / "card.md").read_text()
    assert "grade: 3 classes, in this order: low, mid, high" in card
    assert "## By class" in card
    assert "writes a class and a probability of every class for each row" in card


def test_a_report_with_one_class_hidden_or_not_shown_is_still_a_report(done, tmp_path):
    content = json.loads((done.folder / "results.json").read_text())
    for row in content["by_class"]:
        row |= dict.fromkeys(("n", "observed", "auc", "low", "high", "slope"))
    for row in content["confusion"]:
        row["n"] = None
    (tmp_path / "results.json").write_text(json.dumps(content))
    assert "Small counts are hidden" in report.write(tmp_path).read_text()


def test_the_example_study_of_grades_is_one_that_runs():
    study = fc.Study.from_file(Path(__file__).parents[2] / "studies" / "grades.yaml")
    assert study.table.outcome == fc.Ordered("tgrade")
    assert study.plan.metrics == ("auc", "accuracy", "balanced_accuracy", "brier", "log_loss")
    assert [v.name for v in study.table.dictionary.features(study.table.outcome)] == [
        "age", "menostat", "tsize", "pnodes", "progrec", "estrec",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["category", "ordinal"])
def test_a_study_by_a_method_of_two_classes_is_refused_before_a_file_is_written(tmp_path, kind):
    text = STUDY.replace("method: nearest", "method: logistic").replace("ordinal", kind)
    path = written(tmp_path, text.replace("tune: {grid: {sharp: [0.3, 1.0]}}\n", ""))
    before = sorted(tmp_path.iterdir())
    code, _, said = command("run", path, "--out", tmp_path / "out")
    assert code == 2
    assert f"method 'logistic' learns no outcome of type {kind}; these methods can:" in said
    assert "nearest" in said
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (lambda t: t[t.grade != "mid"], "1 of the 3 classes of 'grade' in the dictionary have no"),
        (lambda t: pd.concat([t[t.grade != "mid"], t[t.grade == "mid"].head(2)]),
         "2 rows of one level of 'grade' are too few"),
    ],
)  # fmt: skip
def test_a_class_that_cannot_be_learnt_is_refused_before_a_file_is_written(tmp_path, frame, said):
    path = written(tmp_path, frame=frame(several.patients()))
    with pytest.raises(fc.DataError, match=said):
        fc.Study.from_file(path)


def test_an_outcome_of_two_levels_is_no_outcome_of_several(tmp_path):
    path = written(tmp_path, frame=several.patients().query("grade != 'mid'"))
    known = {**several.DICTIONARY, "grade": {"type": "category", "levels": ["low", "high"]}}
    (tmp_path / "d.yaml").write_text(yaml.safe_dump({"variables": known}))
    with pytest.raises(fc.DataError, match="of type ordinal, and has 2 levels"):
        fc.Study.from_file(path)


def test_the_order_of_classes_is_written_by_a_person():
    frame = several.patients()
    with pytest.raises(fc.DataError, match="their order is not known"):
        fc.simulate(frame, sites="site", outcome=fc.Ordered("grade"))
    numbered = frame.assign(grade=frame.grade.map({"low": 1, "mid": 2, "high": 3}))
    fit = fc.fit("nearest", fc.simulate(numbered, sites="site", outcome=fc.Ordered("grade")))
    assert fit.classes == ("1", "2", "3")
    assert fit.predict(numbered.drop(columns="grade")).shape == (len(frame), 3)


def test_a_check_of_three_classes_names_the_class_that_a_site_lacks(tmp_path):
    frame = several.patients()
    gone = (frame.site == "east") & (frame.grade == "mid")
    path = written(tmp_path, frame=frame[~gone])
    code, said, _ = command("data", "check", path, "--json")
    assert code == 0
    told = {f["rule"]: f["message"] for f in json.loads(said)["findings"]}
    assert "class 'mid' of column 'grade' has no row at site 'east'." in told["site class"]
    args = (tmp_path / "t.csv", "--dictionary", tmp_path / "d.yaml", "--outcome", "grade")
    code, said, _ = command("data", "check", *args, "--sites", "site")
    assert code == 0
    assert "nothing found" not in said
    assert "class 'mid' of column 'grade' has no row at site" in " ".join(said.split())


def test_a_notebook_is_told_which_methods_learn_several_classes():
    fed = fc.simulate(several.patients(), sites="site", outcome=fc.Category("grade"))
    with pytest.raises(fc.SettingError, match="'logistic' learns no outcome of type category"):
        fc.fit("logistic", fed)
