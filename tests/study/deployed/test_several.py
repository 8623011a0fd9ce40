"""Several classes over a network: sums over sites give what the pooled blind rows give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn import metrics as sklearn

import several
from deployed_cases import results_of, run_local
from fedcohort.metrics.sums.classes import sum_classes
from fedcohort.metrics.sums.values import count_labels
from fedcohort.protocol import DataError, FedcohortError
from fedcohort.protocol.ledger import Ledger
from fedcohort.study.at_site.judging import Own, Said
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.results import saved
from fedcohort.study.run.engine import Run
from fedcohort.study.run.pieces import JUDGED
from fedcohort.study.sites.sites import LocalSites
from several import Nearest

HALF = np.array([0.5])
STUDY = """\
study: grades
task: classification
data: {dictionary: d.yaml, outcome: {y: grade, type: ordinal}}
arms: [{method: nearest}]
bounds: [isolated]
evaluate: {repeats: 1}
tune: {by: row-kfold, grid: {sharp: [0.3, 1.0]}}
"""


@pytest.fixture(scope="module", autouse=True)
def method() -> Iterator[None]:
    with several.installed():
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory, method):
    """Return terms, tables, results, the model, and the pooled blind rows with its predictions."""
    folder = tmp_path_factory.mktemp("several")
    (folder / "d.yaml").write_text(yaml.safe_dump({"variables": several.DICTIONARY}))
    (folder / "s.yaml").write_text(STUDY)
    terms = Terms.of(folder / "s.yaml")
    frame = several.patients(420)
    tables = [
        SiteTable.of(terms, str(s), rows.drop(columns="site").reset_index(drop=True))
        for s, rows in frame.groupby("site")
    ]
    run_local(terms, tables, folder / "out")
    parts = saved.read(folder / "out" / "models" / "nearest" / JUDGED)
    blind = pd.concat([t.halves(0).blind for t in tables], ignore_index=True)
    said = parts.model.predict(parts.design.matrix(blind))
    y = terms.outcome.values(blind, several.LEVELS)
    return terms, tables, results_of(folder / "out"), parts, y, said


def test_sums_over_sites_give_the_metrics_of_the_pooled_rows(run):
    _, _, found, _, y, said = run
    (got,) = [r["metrics"] for r in found["arms"] if r["arm"] == "nearest" and r["site"] is None]
    guess = said.argmax(axis=1)
    assert got["accuracy"] == pytest.approx(sklearn.accuracy_score(y, guess))
    assert got["balanced_accuracy"] == pytest.approx(sklearn.balanced_accuracy_score(y, guess))
    assert got["log_loss"] == pytest.approx(sklearn.log_loss(y, said))
    assert got["brier"] == pytest.approx(np.mean(((said - np.eye(3)[y]) ** 2).sum(axis=1)))
    assert got["auc"] == pytest.approx(sklearn.roc_auc_score(y, said, multi_class="ovr"), abs=0.004)
    assert "calibration_slope" not in got


def test_each_class_has_its_auc_its_calibration_and_its_roc_curve(run):
    _, _, found, _, y, said = run
    assert [r["class"] for r in found["by_class"]] == [*several.LEVELS]
    for k, row in enumerate(found["by_class"]):
        assert row["auc"] == pytest.approx(sklearn.roc_auc_score(y == k, said[:, k]), abs=0.006)
        assert row["n"] == (y == k).sum()
        assert row["observed"] == pytest.approx(np.mean(y == k))
        assert row["predicted"] == pytest.approx(said[:, k].mean())
        assert row["slope"] > 0
        assert row["low"] is None
        groups = [r for r in found["calibration"] if r["class"] == row["class"]]
        assert sum(r["n"] for r in groups) == len(y)
        total = sum(r["n"] * r["predicted"] for r in groups)
        assert total == pytest.approx(said[:, k].sum())
    for k, row in enumerate(found["reliability"]):
        assert (row["class"], row["n"]) == (several.LEVELS[k], len(y))
        parts = row["reliability"] - row["resolution"] + row["uncertainty"] + row["within"]
        assert parts == pytest.approx(sklearn.brier_score_loss(y == k, said[:, k]))
    assert len(found["reliability"]) == 3
    assert {r["class"] for r in found["roc"]} == {*several.LEVELS}
    assert {r["class"] for r in found["decision"]} == {*several.LEVELS}
    for r in found["decision"]:
        want = several.net_benefit(y, said, several.LEVELS.index(r["class"]), r["threshold"])
        assert (r["net_benefit"], r["treat_all"]) == pytest.approx(want)


def test_the_table_of_classes_is_that_of_the_pooled_rows_without_small_counts(run):
    _, _, found, _, y, said = run
    want = sklearn.confusion_matrix(y, said.argmax(axis=1))
    got = np.array([r["n"] for r in found["confusion"]], float).reshape(3, 3)
    shown = np.isfinite(got)
    assert shown.any()
    np.testing.assert_array_equal(got[shown], want[shown])
    assert not ((got > 0) & (got < 5)).any()


def test_settings_are_chosen_by_the_mean_auc_over_classes_within_sites(run):
    found = run[2]
    (chosen,) = [t for t in found["tuning"] if t["arm"] == "nearest"]
    scores = {t["settings"]["sharp"]: t["score"] for t in chosen["tried"]}
    assert set(scores) == {0.3, 1.0}
    assert all(0.5 < s < 1 for s in scores.values())
    assert chosen["score"] == max(scores.values())


def test_isolated_models_are_judged_within_their_sites(run):
    _, tables, found, *_ = run
    rows = {r["site"]: r["metrics"] for r in found["arms"] if r["arm"] == "isolated"}
    assert set(rows) == {None, *(t.site for t in tables)}
    assert 0.5 < rows[None]["auc"] < 1
    assert rows[None]["brier"] < 2 / 3


def test_what_stands_for_a_class_is_said_in_the_results(run):
    found = run[2]
    assert found["outcome"]["levels"] == [*several.LEVELS]
    assert found["outcome"]["type"] == "ordinal"
    assert {r["part"] for r in found["left_out"] if "part" in r} >= {"importance", "draws"}


def judging(run):
    """Return the sites of the arm's evaluation, and the view of its model."""
    terms, tables, _, parts = run[:4]
    fed = LocalSites(terms, tables).federation(
        "judge-r0000-a01", quorum=1.0, ledger=Ledger(5), journal=None, observer=None
    )
    return fed, Said.by(Run(parts.model, parts.design, [], Ledger(5), None), "nearest")


@pytest.mark.parametrize("view", ["said", "own"])
def test_a_class_against_the_rest_is_one_that_the_study_has(run, view):
    fed, said = judging(run)
    with pytest.raises(FedcohortError):
        fed.through(replace(said if view == "said" else Own(), one=3)).sum(count_labels, edges=HALF)
    for text in ('{"times":[],"one":-1}', '{"times":[],"one":true}', '{"times":[],"one":1.0}'):
        with pytest.raises(ValueError, match="one"):
            Own.from_spec(text)
    assert Said.from_spec(replace(said, one=2).spec) == replace(said, one=2)
    assert '"one"' not in said.spec


def test_a_site_counts_the_rows_of_a_class_between_edges_for_one_model_and_two_sets_of_edges(run):
    fed, said = judging(run)
    for k in range(3):
        for edges in (HALF, np.array([0.4])):
            fed.through(replace(said, one=k)).sum(count_labels, edges=edges)
    with pytest.raises(FedcohortError, match="edges of count_labels of class 1"):
        fed.through(replace(said, one=1)).sum(count_labels, edges=np.array([0.3]))


def test_a_model_whose_predictions_have_another_form_is_refused_at_the_site(run):
    fed, said = judging(run)
    method, model, design = said.restored
    other = Nearest(model.intercept[:2], model.coefficients[:2])
    two = Said.by(Run(other, design, [], Ledger(5), None), method)
    with pytest.raises(FedcohortError, match="and this outcome needs"):
        fed.through(two).sum(sum_classes)


def test_a_class_that_no_site_has_ends_the_run_before_the_first_fit(run, tmp_path):
    tables = run[1]
    known = several.DICTIONARY | {
        "grade": {"type": "category", "levels": [*several.LEVELS, "highest"]}
    }
    (tmp_path / "d.yaml").write_text(yaml.safe_dump({"variables": known}))
    (tmp_path / "s.yaml").write_text(STUDY)
    other = Terms.of(tmp_path / "s.yaml")
    again = [SiteTable.of(other, t.site, t.frame) for t in tables]
    with pytest.raises(DataError, match="no site has a row of class 'highest' of 'grade'"):
        run_local(other, again, tmp_path / "out")
    assert not (tmp_path / "out" / "results.json").exists()
