"""The benchmark of multi-view PPCA: parts run and go on where they stopped; claims can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "mv_ppca"


def script(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python beside the benchmark."""
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=FOLDER, capture_output=True, text=True,
        timeout=240, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


def test_a_part_writes_each_configuration_once_and_a_second_run_writes_nothing(tmp_path):
    words = ("run.py", "--out", tmp_path, "--repeats", 1, "--folds", 0, "--rounds", 2, "--parts",
             "table", "speed", "--rows", 120, "--methods", "ppca", "factor analysis")  # fmt: skip
    assert script(*words, "--parts", "speed").returncode == 0
    done = script(*words)
    assert done.returncode == 0, done.stderr
    rows = lines(tmp_path)
    # nine cells of the paper's table at two kinds of noise, factor analysis once of each, speed
    assert len(rows) == 2 * (9 + 1) + 1
    assert len({json.dumps(row["of"]) for row in rows}) == len(rows)
    for row in rows:
        if row["of"]["part"] == "table":
            assert 0 < row["test"] < 0.5
            assert 0 <= row["accuracy"] <= 1
    assert script(*words).returncode == 0
    assert lines(tmp_path) == rows


def test_what_a_fit_gives_is_put_back_in_the_units_of_the_table():
    code = (
        "import numpy as np; from fits import *\n"
        "data = simulated('quiet', 3); own = next(folds(400, 0, (1,)))[1]\n"
        "train, test = data.frame[~own], data.frame[own]\n"
        "fit, _ = fitted(data, sites_of(data, train, 'K', 3, 0), 0, 'multiview_ppca', q=2, "
        "rounds=1, draws=0)\n"
        "raw = test[data.columns].to_numpy(); x = fit.parts.design.matrix(test)\n"
        "print(np.allclose(imputed(fit, train, test)[data.columns], raw, atol=1e-9), "
        "np.allclose(x, raw, atol=1e-3))"
    )
    done = script("-c", code)
    # known entries stay as they are, which in the model's scale they are not
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_ridge_and_chained_equations_find_a_view_that_is_linear_in_another_and_the_mean_does_not():
    code = (
        "import numpy as np; from cohorts import AT_ONE_PLACE\n"
        "rng = np.random.default_rng(0); a = rng.normal(size=(220, 3))\n"
        "x = np.hstack([a, a @ rng.normal(size=(3, 2))]); of = np.repeat([0, 1], [3, 2])\n"
        "train, rows = x[:200].copy(), np.where(of == 1, np.nan, x[200:])\n"
        "train[:50, 3:] = np.nan\n"
        "for name, learn in AT_ONE_PLACE.items():\n"
        "    off = np.abs(learn(train, of)(rows, 1) - x[200:])[:, 3:].max()\n"
        "    print(name, off < 0.01)"
    )
    done = script("-c", code)
    assert done.stdout.split() == ["mean", "False", "ridge", "True", "mice", "True"], done.stderr


def cell(scenario: str, sites: int, method: str, test: float, accuracy: float) -> dict:
    of = {"part": "table", "noise": "paper", "scenario": scenario, "sites": sites,
          "method": method, "repeat": 0, "fold": 0}  # fmt: skip
    return {"of": of, "train": test, "test": test, "lacking": test, "accuracy": accuracy,
            "accuracy_lacking": accuracy, "rounds": 3, "cpu": 0.1}  # fmt: skip


def timed(n: int, one: float) -> dict:
    of = {"part": "speed", "n": n, "repeat": 0}
    return {"of": of, "look": n * 1e-8, "first": n * 1e-6, "round": one, "rounds": 9, "whole": 1.0}


def picked(q: int) -> dict:
    of = {"part": "waic", "noise": "quiet", "scale": "none", "shared": "view", "repeat": 0}
    return {"of": of, "q": q, "least": q, "waic": {}, "cpu": 1.0}


def filled(method: str, rmse: float) -> dict:
    of = {"part": "real", "data": "d", "scenario": "K", "sites": 3, "method": method, "repeat": 0,
          "fold": 0}  # fmt: skip
    return {"of": of, "mae a": rmse, "rmse a": rmse, "cpu": 0.1}


GOOD = {
    "one place": cell("IID", 1, "ppca", 0.040, 1.0),
    "G/K": cell("G/K", 3, "ppca", 0.055, 0.9),
    "vae": cell("IID", 1, "vae", 0.060, 1.0),
    "few rows": timed(1000, 0.01),
    "many rows": timed(1000000, 0.012),
    "q": picked(5),
    "ours": filled("ppca", 0.5),
    "mean": filled("mean", 1.0),
}


# 0.058 / 0.040 is above the paper's 0.0567 / 0.0405, and 0.055 / 0.040 below it
@pytest.mark.parametrize(
    ("name", "row", "said"),
    [
        ("", {}, "all claims hold"),
        ("G/K", cell("G/K", 3, "ppca", 0.058, 0.9), "ratio to one place 1.450, claimed 1.400"),
        ("G/K", cell("G/K", 3, "ppca", 0.055, 0.78), "G/K, 3 sites: accuracy 0.780"),
        ("vae", cell("IID", 1, "vae", 0.030, 1.0), "IID, 1 sites: test error 0.0400, vae 0.0300"),
        ("many rows", timed(1000000, 0.03), "takes 3.0 times as long"),
        ("few rows", {**timed(1000, 0.01), "first": 1e-5}, "the first call grows as n to the 1.5"),
        ("q", picked(6), "by view: q 5 in 0%"),
        ("ours", filled("ppca", 1.1), "RMSE 1.100 times that of mean"),
    ],
    ids=["none", "ratio", "accuracy", "vae", "rounds", "growth", "waic", "mean"],
)
def test_a_claim_that_is_broken_is_named_and_the_script_leaves_with_1(tmp_path, name, row, said):
    rows = {**GOOD, **({name: row} if name else {})}
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, rows.values())))
    done = script("show.py", "--out", tmp_path)
    assert said in done.stdout, done.stderr
    assert done.returncode == bool(name)
