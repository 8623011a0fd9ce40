"""The benchmark of private multi-view PPCA: what is run, what budgets come to, claims can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "mv_ppca"


def script(*words: str | Path | float) -> subprocess.CompletedProcess[str]:
    """Run Python beside the benchmark."""
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=FOLDER, capture_output=True, text=True,
        timeout=240, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


CODE = """
import numpy as np; from private import *
from fedcohort.algorithms.multiview_ppca.differences import changes_privately
paper = paper_budget('classic_beyond_proof', 0.01, 1)
print(paper['basic'], paper['pld'] < paper['rdp'] < 90, paper_budget.cache_info().misses)
made, own = releases(2, Dp(epsilon=100, delta=1e-3)), own_budget(100, 1e-3, 2)
# three fields, each with sqrt(3) times its noise: what the sum has over what one view's part is
alone = Release(step='one', noise=np.sqrt(3) * made[0].noise * 2 * np.sqrt(VIEWS) / 2)
print(np.isclose(own['gaussian'], accounting.epsilon([alone], 0.01)))
data = bounded(CASES['breast cancer'].make(0), CASES['breast cancer'], breast_cancer().frame)
outside = 0
for c in data.columns:
    low, high = data.dictionary.variables[c].usual
    outside += ((data.frame[c] < low) | (data.frame[c] > high)).sum()
print(outside, len(data.columns))
"""


def test_budgets_of_a_parameter_are_what_its_noise_gives_and_bounds_cut_one_value_of_the_table():
    done = script("-c", CODE)
    assert done.stdout.split() == ["90.0", "True", "1", "True", "1", "30"], done.stderr


def test_private_fits_are_written_with_what_they_spent_beside_what_they_must_beat(tmp_path):
    words = ("run.py", "--out", tmp_path, "--parts", "private", "--repeats", 1, "--cases",
             "breast cancer", "--epsilons", 10, "--routes")  # fmt: skip
    done = script(*words, "no noise", "means", "random plane", "moments")
    assert done.returncode == 0, done.stderr
    found = map(json.loads, (tmp_path / "runs.jsonl").read_text().splitlines())
    rows = {(r["of"]["scenario"], r["of"]["route"], r["of"]["epsilon"]): r for r in found}
    assert len(rows) == 2 * (3 + 3)
    for scenario in ("IID", "G/K"):
        noisy = rows[scenario, "moments", 10.0]
        assert 0 < noisy["spent"] <= 10
        assert noisy["test"] < rows[scenario, "means", None]["test"]
        assert noisy["test"] > rows[scenario, "no noise", None]["test"]
    done = script("show.py", "--out", tmp_path)
    assert "breast cancer, G/K, 3 sites" in done.stdout
    assert "all claims hold" in done.stdout, done.stderr


def row(route: str, epsilon: float | None, test: float, accuracy: float, **more: str) -> dict:
    of = {
        "part": "private", "data": "d", "scenario": "IID", "sites": 3, "route": route,
        "epsilon": epsilon, "dp_rounds": 1, "clip": None, "secure": "auto", "repeat": 0,
    }  # fmt: skip
    if more:
        return {"of": of, **more}
    return {"of": of, "test": test, "lacking": test, "accuracy": accuracy, "sd": {}}


@pytest.mark.parametrize(
    ("noisy", "said"),
    [
        (row("moments", 2.0, 0.1, 0.88), "all claims hold"),
        (row("moments", 2.0, 0.1, 0.86), "ε 2: accuracy 0.860, without noise 0.900"),
        (row("moments", 2.0, 0.3, 0.90), "ε 2: error 0.3000, columns' means 0.2000"),
        (row("moments", 1.0, 0.3, 0.90), "all claims hold"),
        (row("moments", 1.0, 0.1, 0.9, refused="too few"), "ε 1: 1 fits refused"),
        (row("differences", 2.0, 0.1, 0.1), "all claims hold"),
    ],
    ids=["none", "accuracy", "error", "small", "refused", "other route"],
)
def test_the_claim_about_private_fits_can_fail(tmp_path, noisy, said):
    rows = [row("no noise", None, 0.05, 0.9), row("means", None, 0.2, 0.0), noisy]
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = script("show.py", "--out", tmp_path)
    assert said in done.stdout, done.stderr
    assert done.returncode == (said != "all claims hold")
