"""Settings of clusters and latent variables, chosen by scores of left-out rows without an outcome.

Scores are computed again from the rows by scikit-learn and by pairs counted one by one.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import adjusted_rand_score, silhouette_score

import latent_studies
from cluster_studies import study
from deployed_cases import frames_of, run_local, tables_of, terms_of
from fedcohort.protocol import StudyError, registry
from fedcohort.study.at_site.coding import Coding
from fedcohort.study.at_site.judging import Rows
from fedcohort.study.at_site.placing import Placed
from fedcohort.study.at_site.table import Halves
from fedcohort.study.at_site.unlabelled import SUMS, score, sums_of
from fedcohort.study.run.engine import Problem, fit_once
from fedcohort.study.run.tune import ROW_FOLDS, Tuner, folds_of, phase_search, search
from fedcohort.study.sites.layout import seed_of

KMEANS = "[{method: kmeans, restarts: 2}]"


def folds(terms, tables):
    """Yield, by fold of rows, each site's rows for the fit, and those left out."""
    seed = seed_of(terms.plan, 0)
    train = {t.site: t.halves(0).train for t in tables}
    fold = {s: folds_of(f, terms.dictionary, seed) for s, f in train.items()}
    for k in range(ROW_FOLDS):
        yield (
            {s: f[fold[s] != k].reset_index(drop=True) for s, f in train.items()},
            {s: f[fold[s] == k].reset_index(drop=True) for s, f in train.items()},
        )


def fits(terms, tables, settings):
    """Yield a fit without each fold, with the rows that it left out."""
    arm = terms.plan.arms[0]
    for kept, left in folds(terms, tables):
        problem = Problem(kept, terms.seen, None, terms.plan.min_cell, task=terms.plan.task)
        yield fit_once(
            problem, registry.find(arm.method), arm.configured(settings), arm.preprocess,
            seed_of(terms.plan, 0),
        ), left  # fmt: skip


def silhouette(terms, tables, settings):
    total = rows = 0.0
    for run, left in fits(terms, tables, settings):
        for frame in left.values():
            x = run.design.matrix(frame)
            total += silhouette_score(x, run.model.predict(x)) * len(x)
            rows += len(x)
    return total / rows


def stability(terms, tables, settings):
    """Return the adjusted Rand index of pairs of one site and fold, by the pairs themselves."""
    counts, before = np.zeros(4), None
    for run, left in fits(terms, tables, settings):
        for frame in left.values() if before else ():
            pairs = np.triu_indices(len(frame), 1)
            old, new = (
                np.equal.outer(labels, labels)[pairs]
                for labels in (r.model.predict(r.design.matrix(frame)) for r in (before, run))
            )
            counts += [(old & new).sum(), old.sum(), new.sum(), len(old)]
        before = run
    both, a, b, n = counts
    return (both - a * b / n) / ((a + b) / 2 - a * b / n)


@pytest.mark.parametrize("by", [silhouette, stability], ids=lambda f: f.__name__)
def test_clusters_are_scored_by_left_out_rows_and_a_network_chooses_as_one_process(tmp_path, by):
    tune = f"{{by: row-kfold, score: {by.__name__}, grid: {{n_clusters: [2, 4]}}}}"
    terms = study(tmp_path, arms=KMEANS, bounds="[]", tune=tune)
    tables = tables_of(terms, frames_of("gbsg2"))
    (tuned,) = run_local(terms, tables, tmp_path / "out")["tuning"]
    assert tuned["status"] == "done"
    for row in tuned["tried"]:
        assert row["score"] == pytest.approx(by(terms, tables, row["settings"]), abs=1e-9)
    assert tuned["score"] == max(row["score"] for row in tuned["tried"])
    train = {t.site: t.halves(0).train for t in tables}
    problem = Problem(train, terms.dictionary, None, terms.plan.min_cell, task="clustering")
    arm, seed = terms.plan.arms[0], seed_of(terms.plan, 0)
    tuner = Tuner(problem, arm, seed, tmp_path, lambda done, of: None, natural=True)
    found = search(tuner, arm, terms.plan)
    assert found.chosen == tuned["chosen"]
    assert_allclose([s for _, s in found.tried], [t["score"] for t in tuned["tried"]], atol=1e-9)


@pytest.mark.parametrize("by", ["reconstruction", "imputation"])
def test_latent_variables_are_scored_by_errors_of_left_out_rows(tmp_path, by):
    arms = [{"method": "multiview_ppca", "rounds": 2, "draws": 0}]
    tune = {"by": "row-kfold", "score": by, "grid": {"q": [1, 2]}}
    terms = latent_studies.study(tmp_path, arms=arms, bounds=[], tune=tune)
    tables = tables_of(terms, latent_studies.shares())
    (tuned,) = run_local(terms, tables, tmp_path / "out")["tuning"]
    for row in tuned["tried"]:
        errors = []
        for run, left in fits(terms, tables, row["settings"]):
            for frame in left.values():
                errors += by_row(run, run.design.matrix(whole(frame)), by)
        assert row["score"] == pytest.approx(-np.mean(errors), rel=1e-7)
    assert tuned["chosen"] == {"q": 2}


def whole(frame):
    """Return a table with all columns, where a site lacks a view."""
    return frame.reindex(columns=latent_studies.FRAME.columns)


def by_row(run, x, by):
    """Return each row's mean squared error, of entries or of views hidden in turn."""
    views, found = np.array(run.design.views), []
    for row in x:
        there = [v for v in dict.fromkeys(views) if not np.isnan(row[views == v]).all()]
        if by == "reconstruction":
            said, asked = run.model.reconstruct(row[None])[0], ~np.isnan(row)
        else:
            said, asked = np.full(len(row), np.nan), np.zeros(len(row), bool)
            for view in there if len(there) > 1 else ():
                given = np.where(views == view, np.nan, row)
                mine = (views == view) & ~np.isnan(row)
                said[mine], asked[mine] = run.model.impute(given[None])[0][mine], True
        if asked.any():
            found.append(np.mean((row[asked] - said[asked]) ** 2))
    return found


# phases -----------------------------------------------------------------------------------


class Heard:
    """Scores that are the learning rate, or the number of clusters; notes what is asked."""

    ledger = ()
    keeps_rounds = False

    def __init__(self):
        self.asked = []

    def scores(self, settings, rounds, by=""):
        self.asked.append((settings, by))
        return [settings["learning_rate" if by == "reconstruction" else "n_clusters"]]


def plan_of(tmp_path, tune):
    arms = "[{method: deep_clustering, architecture: [6, 3]}]"
    return study(tmp_path, arms=arms, bounds="[]", tune=f"{{{tune}}}").plan


def test_the_autoencoder_is_tuned_first_and_alone_then_the_clusters(tmp_path):
    plan = plan_of(tmp_path, "grid: {learning_rate: [0.1, 0.3, 0.2], n_clusters: [3, 5]}")
    heard = Heard()
    found = phase_search(heard, plan.arms[0], plan)
    first, second = heard.asked[:3], heard.asked[3:]
    assert {by for _, by in first} == {"reconstruction"}
    assert all(s["cluster_rounds"] == 0 for s, _ in first), "the first phase alone"
    assert [s["learning_rate"] for s, _ in first] == [0.1, 0.3, 0.2]
    assert [(s["n_clusters"], by) for s, by in second] == [(3, "silhouette"), (5, "silhouette")]
    assert all(s["learning_rate"] == 0.3 and "cluster_rounds" not in s for s, _ in second)
    assert (found.chosen, found.score) == ({"learning_rate": 0.3, "n_clusters": 5}, 5)


@pytest.mark.parametrize(("grid", "scores"), [
    ("{n_clusters: [3, 5]}", ["silhouette"] * 2), ("{learning_rate: [0.1, 0.2]}",
    ["reconstruction"] * 2),
])  # fmt: skip
def test_a_phase_without_a_choice_is_not_tried(tmp_path, grid, scores):
    heard, plan = Heard(), plan_of(tmp_path, f"grid: {grid}")
    phase_search(heard, plan.arms[0], plan)
    assert [by for _, by in heard.asked] == scores


def test_in_each_phase_as_many_settings_are_proposed_as_there_are_trials(tmp_path):
    space = "{learning_rate: [0.01, 0.5, log], n_clusters: {choose: [2, 3, 5]}}"
    plan = plan_of(tmp_path, f"trials: 4, space: {space}")
    heard = Heard()
    found = phase_search(heard, plan.arms[0], plan)
    first, second = heard.asked[:4], heard.asked[4:]
    assert [by for _, by in heard.asked] == ["reconstruction"] * 4 + ["silhouette"] * 4
    assert all({*s} >= {"learning_rate", "cluster_rounds"} for s, _ in first)
    assert {s["n_clusters"] for s, _ in first} == {2}, "one that the study names"
    rates = [s["learning_rate"] for s, _ in first]
    assert len({*rates}) == 4
    assert all(0.01 <= rate <= 0.5 for rate in rates)
    assert {s["learning_rate"] for s, _ in second} == {max(rates)}, "the best of the first phase"
    assert {s["n_clusters"] for s, _ in second} <= {2, 3, 5}
    assert found.chosen == {
        "learning_rate": max(rates), "n_clusters": max(s["n_clusters"] for s, _ in second)
    }  # fmt: skip
    again = Heard()
    phase_search(again, plan.arms[0], plan)
    assert again.asked == heard.asked, "the same proposals for the same seed"


@pytest.mark.parametrize("spec", ["[2, 4]", "{choose: [2, 4]}"])
def test_proposed_numbers_of_clusters_are_scored_and_a_network_chooses_as_one_process(
    tmp_path, spec
):
    tune = f"{{by: row-kfold, trials: 2, space: {{n_clusters: {spec}}}}}"
    terms = study(tmp_path, arms=KMEANS, bounds="[]", tune=tune)
    tables = tables_of(terms, frames_of("gbsg2"))
    (tuned,) = run_local(terms, tables, tmp_path / "out")["tuning"]
    assert tuned["status"] == "done"
    assert len(tuned["tried"]) == 2
    for row in tuned["tried"]:
        assert row["score"] == pytest.approx(silhouette(terms, tables, row["settings"]), abs=1e-9)
    train = {t.site: t.halves(0).train for t in tables}
    problem = Problem(train, terms.dictionary, None, terms.plan.min_cell, task="clustering")
    arm, seed = terms.plan.arms[0], seed_of(terms.plan, 0)
    tuner = Tuner(problem, arm, seed, tmp_path, lambda done, of: None, natural=True)
    assert search(tuner, arm, terms.plan).chosen == tuned["chosen"]


def test_phases_over_a_network_may_be_proposed(tmp_path):
    arms = (
        "[{method: deep_clustering, architecture: [6, 3], rounds: 2, cluster_rounds: 1, "
        "restarts: 1}]"
    )
    space = "{learning_rate: [0.001, 0.05, log], n_clusters: {choose: [2, 3]}}"
    tune = f"{{by: row-kfold, trials: 2, space: {space}}}"
    terms = study(tmp_path, arms=arms, bounds="[]", tune=tune)
    found = run_local(terms, tables_of(terms, frames_of("gbsg2")), tmp_path / "out")
    assert {a["status"] for a in found["arms"]} == {"done"}
    assert len(found["tuning"][0]["tried"]) == 4, "two in each phase, and no site refuses one"


def test_phases_of_a_network_are_tuned_in_order_by_the_rows_left_out(tmp_path):
    arms = (
        "[{method: deep_clustering, architecture: [6, 3], rounds: 2, cluster_rounds: 1, "
        "restarts: 1}]"
    )
    tune = "{by: row-kfold, grid: {learning_rate: [0.001, 0.05], n_clusters: [2, 3]}}"
    terms = study(tmp_path, arms=arms, bounds="[]", tune=tune)
    tables = tables_of(terms, frames_of("gbsg2"))
    found = run_local(terms, tables, tmp_path / "out")
    assert {a["status"] for a in found["arms"]} == {"done"}
    (tuned,) = found["tuning"]
    first, second = tuned["tried"][:2], tuned["tried"][2:]
    for row in first:
        alone = row["settings"] | {"n_clusters": 2, "cluster_rounds": 0}
        errors = [
            np.mean((run.model.reconstruct(x) - x) ** 2, axis=1)
            for run, left in fits(terms, tables, alone)
            for x in map(run.design.matrix, left.values())
        ]
        assert row["score"] == pytest.approx(-np.concatenate(errors).mean(), rel=1e-5)
    for row in second:
        want = silhouette(terms, tables, tuned["chosen"] | row["settings"])
        assert row["score"] == pytest.approx(want, abs=1e-5)  # float32


# scores -----------------------------------------------------------------------------------


def test_what_tells_nothing_has_no_score_and_a_failed_row_the_worst():
    nothing = np.zeros(len(SUMS))
    for by in ("silhouette", "stability", "reconstruction", "imputation"):
        assert np.isnan(score(by, nothing, 0.0))
        assert score(by, nothing, 1.0) == -np.inf
    pairs = {"both", "before", "now", "pairs"}  # one cluster of all rows, by both models
    one = np.array([10.0 * (name in pairs) for name in SUMS])
    assert np.isnan(score("stability", one, 0.0))


def small(frame, dictionary, task, method, **settings):
    problem = Problem({"here": frame}, dictionary, None, 1, task=task)
    found = registry.find(method)
    return fit_once(problem, found, settings, dict(found.preprocess), 0)


def test_of_one_site_and_fold_they_are_those_of_scikit_learn(tmp_path):
    terms = study(tmp_path, arms=KMEANS)
    frame = frames_of("gbsg2")["oslo"]
    half, left = frame[:60].reset_index(drop=True), frame[60:140].reset_index(drop=True)
    now = small(half, terms.seen, "clustering", "kmeans", n_clusters=3, restarts=1)
    before = small(frame[:30], terms.seen, "clustering", "kmeans", n_clusters=2, restarts=1)
    rows = Rows(Halves(left, left), None, terms.seen, "kmeans", 1)
    found = sums_of(Placed(rows, left, now, before, ()), np.arange(len(left)))
    x = now.design.matrix(left)
    labels, old = now.model.predict(x), before.model.predict(before.design.matrix(left))
    assert score("silhouette", found, 0.0) == pytest.approx(silhouette_score(x, labels))
    assert score("stability", found, 0.0) == pytest.approx(adjusted_rand_score(old, labels))
    assert np.isnan(score("reconstruction", found, 0.0)), "k-means reconstructs no rows"


@pytest.mark.parametrize("by", ["reconstruction", "imputation"])
def test_errors_are_means_by_row(by):
    known, frame = latent_studies.dictionary_of(latent_studies.VIEWS), latent_studies.FRAME
    run = small(frame[:100], known, "latent", "multiview_ppca", q=2, rounds=2, draws=0)
    left = frame[100:160].reset_index(drop=True)
    left.loc[::7, "v1_02"], left.loc[3::11, latent_studies.VIEWS["v2"]] = np.nan, np.nan
    rows = Rows(Halves(left, left), None, known, "multiview_ppca", 1)
    found = sums_of(Coding(rows, rows.halves.blind, run), np.arange(len(left)))
    want = -np.mean(by_row(run, run.design.matrix(left), by))
    assert score(by, found, 0.0) == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize(("tune", "said"), [
    ("{score: auc, grid: {n_clusters: [2, 3]}}", "'auc' is not possible"),
    ("{trials: 3, space: {n_groups: [2, 3]}}", "n_groups"),
])  # fmt: skip
def test_what_cannot_be_tuned_is_said_when_the_study_is_read(tmp_path, tune, said):
    with pytest.raises(StudyError, match=said):
        study(tmp_path, arms=KMEANS, tune=tune)


def test_an_outcome_leaves_no_choice_of_a_score(tmp_path):
    with pytest.raises(StudyError, match="the outcome scores settings of survival"):
        terms_of(
            tmp_path, "gbsg2", "[{method: cox}]",
            tune="{score: silhouette, grid: {l2: [0.0, 1.0]}}",
        )  # fmt: skip
