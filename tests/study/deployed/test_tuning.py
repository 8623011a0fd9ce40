"""Settings that are chosen over a network, by left-out sites or rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sksurv.metrics import concordance_index_censored

from deployed_cases import files_of, frames_of, results_of, run_local, tables_of, terms_of
from fedcohort.protocol import registry
from fedcohort.study.run.engine import Problem, fit_once
from fedcohort.study.run.tune import ROW_FOLDS
from fedcohort.study.sites.layout import seed_of
from fedcohort.study.sites.splits import hashed

GRID = "{by: %s, grid: {l2: [0.0, 30.0]}}"


class Kill(BaseException):
    """A process that ends in the middle."""


def cross_validated(terms, tables, by, l2):
    """Return the C-index over pairs within a site and fold, by fits of frames in this process."""
    seed, method = seed_of(terms.plan, 0), registry.find("cox")
    train = {t.site: t.halves(0).train for t in tables}
    fold = {s: hashed(f, seed) % ROW_FOLDS for s, f in train.items()}
    right = pairs = 0.0
    for k in sorted(train) if by == "centre-kfold" else range(ROW_FOLDS):
        if by == "centre-kfold":
            kept, held = {s: f for s, f in train.items() if s != k}, {k: train[k]}
        else:
            kept = {s: f[fold[s] != k].reset_index(drop=True) for s, f in train.items()}
            held = {s: f[fold[s] == k] for s, f in train.items()}
        problem = Problem(kept, terms.dictionary, terms.outcome)
        run = fit_once(problem, method, {"l2": l2}, terms.plan.arms[1].preprocess, seed)
        for rows in held.values():
            said = run.model.predict(run.design.matrix(rows))
            event = rows[terms.outcome.event].to_numpy() > 0
            _, yes, no, tied, _ = concordance_index_censored(event, rows["time"], said)
            right, pairs = right + yes + 0.5 * tied, pairs + yes + no + tied
    return right / pairs


@pytest.mark.parametrize("by", ["centre-kfold", "row-kfold"])
def test_candidates_are_scored_by_what_is_left_out(tmp_path, by):
    terms = terms_of(tmp_path, "gbsg2", "[{method: cox}]", tune=GRID % by)
    tables = tables_of(terms, frames_of("gbsg2"))
    found = run_local(terms, tables, tmp_path / "out")
    (tuned,) = found["tuning"]
    assert {a["status"] for a in found["arms"]} == {"done"}
    for row in tuned["tried"]:
        want = cross_validated(terms, tables, by, row["settings"]["l2"])
        assert row["score"] == pytest.approx(want, abs=1e-9)
    assert tuned["score"] == max(row["score"] for row in tuned["tried"])
    best = max(tuned["tried"], key=lambda row: row["score"])
    assert tuned["chosen"] == best["settings"]


def test_a_tuning_that_was_killed_goes_on_to_the_same_bytes(tmp_path):
    more = {"tune": GRID % "centre-kfold", "bounds": "[]"}
    terms = terms_of(tmp_path, "gbsg2", "[{method: cox}]", **more)
    tables = tables_of(terms, frames_of("gbsg2"))
    run_local(terms, tables, tmp_path / "want")
    calls = [0]

    def tell(event):
        calls[0] += event.call is not None
        if calls[0] == 100:
            assert event.name.startswith("tune")
            raise Kill

    with pytest.raises(Kill):
        run_local(terms, tables, tmp_path / "out", tell=tell)
    run_local(terms, tables, tmp_path / "out", resume=True)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "want")
    assert '"phase":"tune"' in (tmp_path / "out" / "ledger.jsonl").read_text()


@pytest.mark.parametrize(
    ("sample", "task", "arm", "grid"),
    [
        ("diabetes", "regression", "ridge", "{penalty: [0.01, 1000.0]}"),
        ("breast_cancer", "classification", "logistic, scale: standard", "{l2: [1.0, 100000.0]}"),
    ],
)
def test_settings_that_smother_a_model_are_not_chosen(tmp_path, sample, task, arm, grid):
    tune = f"{{by: row-kfold, grid: {grid}}}"
    terms = terms_of(tmp_path, sample, f"[{{method: {arm}}}]", task=task, tune=tune)
    tables = tables_of(terms, frames_of(sample))
    run_local(terms, tables, tmp_path / "out")
    (tuned,) = results_of(tmp_path / "out")["tuning"]
    scores = [row["score"] for row in tuned["tried"]]
    assert tuned["chosen"] == tuned["tried"][int(np.argmax(scores))]["settings"]
    assert all(s is not None for s in scores)
    if task == "regression":
        train = pd.concat([t.halves(0).train for t in tables])["target"]
        assert 0.3 < scores[0] < 0.6 and scores[1] < scores[0] and len(train) > 300
