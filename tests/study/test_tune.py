"""Tuning sees training sites only, pools held-out predictions, and gets `rounds` for nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedcohort.data.outcome import Survival
from fedcohort.data.read import sources
from fedcohort.data.read.drafting import draft
from fedcohort.metrics.survival.concordance import harrell
from fedcohort.protocol import SettingError, registry
from fedcohort.study.file.plan import Arm
from fedcohort.study.run import tune
from fedcohort.study.run.engine import Problem, fit_once

OUTCOME = Survival("time", "cens")


@pytest.fixture(scope="module")
def problem() -> Problem:
    frame = sources.load("sample:gbsg2", Path()).frames
    assert isinstance(frame, pd.DataFrame)
    frames = {f"s{i}": frame.iloc[i::4].reset_index(drop=True) for i in range(4)}
    return Problem(frames, draft(frames, OUTCOME), OUTCOME)


def arm(method: str, scope: str = "sites", **settings: object) -> Arm:
    table = dict(registry.find(method).preprocess)
    folds = "centre-kfold" if scope == "sites" else "row-kfold"
    return Arm("a", "a", method, settings, table, scope, {}, folds)


def silent(done: int, of: int) -> None:
    """Stand in for a progress display."""


def test_centre_kfold_pools_the_predictions_of_sites_left_out(problem, tmp_path):
    tuner = tune.Tuner(problem, arm("cox"), 1, tmp_path, silent)
    (score,) = tuner.scores({"l2": 0.1}, ())
    method = registry.find("cox")
    risks, rows = [], []
    for left in problem.frames:
        others = {n: f for n, f in problem.frames.items() if n != left}
        run = fit_once(problem.on(others), method, {"l2": 0.1}, method.preprocess, 1)
        risks.append(run.model.predict(run.design.matrix(problem.frames[left])))
        rows.append(problem.frames[left])
    truth = pd.concat(rows)
    assert score == harrell(np.concatenate(risks), truth.time.to_numpy(), truth.cens.to_numpy())


def test_rounds_in_the_grid_cost_one_fit_and_give_what_separate_fits_give(problem, tmp_path):
    deep = arm("deepcox", strategy="fedavg", internal_epochs=1)
    together = tune.Tuner(problem, deep, 1, tmp_path / "a", silent)
    best = tune.grid_search(together, {"rounds": [2, 5], "learning_rate": [0.02]})
    assert [t[0]["rounds"] for t in best.tried] == [2, 5]
    for i, (settings, score) in enumerate(best.tried):
        one = tune.Tuner(problem, deep, 1, tmp_path / f"b{i}", silent)
        (alone,) = one.scores(settings, ())
        assert alone == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize("scope", ["isolated", "centralised"])
def test_bounds_are_tuned_on_folds_of_rows(problem, tmp_path, scope):
    best = tune.grid_search(
        tune.Tuner(problem, arm("cox", scope), 1, tmp_path, silent), {"l2": [0.01, 1.0]}
    )
    assert len(best.tried) == 2
    assert 0.5 < best.score < 0.8
    assert best.score == max(s for _, s in best.tried)


def test_optuna_proposes_within_its_space_and_repeats_itself(problem, tmp_path):
    def search(name: str) -> tune.Tuned:
        tuner = tune.Tuner(problem, arm("cox"), 1, tmp_path / name, silent)
        return tune.optuna_search(tuner, {"l2": [0.001, 1.0, "log"]}, 4, seed=2)

    a, b = search("a"), search("b")
    assert a.tried == b.tried
    assert all(0.001 <= settings["l2"] <= 1.0 for settings, _ in a.tried)


def test_a_space_of_another_shape_is_named(problem, tmp_path):
    tuner = tune.Tuner(problem, arm("cox"), 1, tmp_path, silent)
    with pytest.raises(SettingError, match=r"tune\.space\.l2"):
        tune.optuna_search(tuner, {"l2": [3, 1]}, 2, seed=0)


def test_row_folds_hold_out_every_row_once_and_some_of_each_site(problem, tmp_path):
    by_rows = replace(arm("cox"), folds="row-kfold")
    ((*made,),) = tune._groups(problem, by_rows, seed=3)
    assert len(made) == tune.ROW_FOLDS
    held = pd.concat([rows for _, left in made for rows in left.values()])
    whole = pd.concat(problem.frames.values())
    assert sorted(map(tuple, held.to_numpy().tolist())) == sorted(
        map(tuple, whole.to_numpy().tolist())
    )
    for part, left in made:
        assert set(part.frames) == set(left) == set(problem.frames)
        assert sum(map(len, left.values())) + sum(map(len, part.frames.values())) == len(whole)
        for site, frame in part.frames.items():
            assert 0.7 < len(frame) / len(problem.frames[site]) < 0.9


def test_row_folds_are_the_same_however_rows_lie_over_sites(problem):
    by_rows = replace(arm("cox"), folds="row-kfold")
    ((*over_sites,),) = tune._groups(problem, by_rows, seed=3)
    ((*pooled,),) = tune._groups(problem, arm("cox", "centralised"), seed=3)
    for (_, ours), (_, theirs) in zip(over_sites, pooled, strict=True):
        a, b = pd.concat(list(ours.values())), pd.concat(list(theirs.values()))
        assert sorted(map(tuple, a.to_numpy().tolist())) == sorted(
            map(tuple, b.to_numpy().tolist())
        )
