"""The benchmark of Weight Erosion: its loop is the method's, and a claim of it can fail."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

from fedcohort.algorithms.weight_erosion import erosion
from fedcohort.data.tables import LabelledTable
from fedcohort.models.network import Mlp
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training.networks.plan import Plan

FOLDER = Path(__file__).parents[2] / "benchmarks" / "weight_erosion"
SPEC = importlib.util.spec_from_file_location("erosion_loop", FOLDER / "loop.py")
loop = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = loop
SPEC.loader.exec_module(loop)
SEED = 3


def tables():
    """Return four sites of one population, but that the last has its labels flipped."""
    found = {}
    for k, (name, n) in enumerate({"a": 40, "b": 90, "c": 30, "d": 60}.items()):
        rng = np.random.default_rng(k)
        x = rng.normal(size=(n, 3))
        p = expit((-1.0 if name == "d" else 1.0) * x[:, 0])
        found[name] = LabelledTable(x, (rng.random(n) < p).astype(float))
    return found


@pytest.mark.parametrize(
    ("against", "p_d", "p_s", "batch"),
    [("gradient", 0.02, 0.2, 0), ("gradient", 0.02, 0.2, 35), ("noise", 0.05, 0.0, 0)],
)
def test_its_loop_is_training_by_the_method(against, p_d, p_s, batch):
    data = tables()
    plan = Plan(
        network=Mlp(inputs=3, hidden=()).spec, loss="logistic", epochs=1, batch_size=batch,
        optimiser="sgd", l2=loop.L2,
    )  # fmt: skip
    found = erosion.train_eroding(
        local([Host(s, t, erosion.STEPS, SEED) for s, t in data.items()]), "a", np.zeros(4), plan,
        10, 1.0, visit="batch" if batch else "full", min_cell=5,
        by=erosion.Erosion(distance=p_d, size=p_s, against=against),
    )  # fmt: skip
    path = loop.erode(
        data, "a", np.array([0.5, p_d]), p_s, against, 1.0, 10, SEED, batch=batch
    )  # fmt: skip
    assert_allclose(path.theta[-1, 1], found.theta, rtol=1e-10)
    assert_allclose(path.alpha[-1, 1], [found.alpha[s] for s in data], atol=1e-10)
    assert 0.0 <= path.alpha[-1, 1, 3] < path.alpha[-1, 1, 1]


def test_rows_that_are_held_out_are_in_no_fit():
    data = tables()
    used = np.ones((40, 2))
    used[25:, 1] = 0.0
    path = loop.erode(data, "a", np.full(2, 0.02), 0.0, "gradient", 1.0, 20, SEED, used)
    short = {**data, "a": LabelledTable(data["a"].x[:25], data["a"].y[:25])}
    alone = loop.erode(short, "a", np.array([0.02]), 0.0, "gradient", 1.0, 20, SEED)
    assert_allclose(path.theta[:, 1], alone.theta[:, 0], rtol=1e-10)
    assert np.abs(path.theta[-1, 0] - path.theta[-1, 1]).max() > 0.01


def program(name, *given):
    """Run one of the benchmark's programs."""
    return subprocess.run(
        [sys.executable, name, *given], cwd=FOLDER, capture_output=True, text=True, timeout=240,
        check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_figures_are_drawn_of_what_there_is(tmp_path):
    rounds = [1, 2, 5, 10, 20, 30, 60]
    rows = [
        {"of": {"split": "BATCH", "user": user, "seed": seed, "arm": way},
         "last": 0.7, "accuracy": [0.6 + 0.01 * k + 0.02 * seed for k in range(len(rounds))]}
        for seed in range(2) for user in "ab" for way in ("local", "global", "cluster")
    ]  # fmt: skip
    rows[0] = {"of": rows[0]["of"], "failed": "NotConverged: no"}
    (tmp_path / "survival.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    done = program("figures.py", "--out", str(tmp_path), "--figures", str(tmp_path / "drawn"))
    assert done.returncode == 0, done.stderr
    (drawn,) = (tmp_path / "drawn").iterdir()
    text = drawn.read_text("utf-8")
    assert text.startswith("<svg") and all(f">{word}<" in text for word in ("a", "b", "cluster"))


@pytest.mark.parametrize(("accuracy", "code"), [(0.8, 0), (0.7, 1)])
def test_show_leaves_with_1_where_a_claim_fails(tmp_path, accuracy, code):
    rows = []
    for seed in range(2):
        for user in ("a", "b", "c"):
            of = {"split": "FLamby", "user": user, "seed": seed}
            for arm in ("Global", "Local"):
                rows.append({"of": {**of, "arm": arm}, "last": 0.7, "right": 7, "rows": 10})
            for arm in ("Erosion, gradient", "flipped, gradient", "Erosion, noise",
                        "flipped, noise"):  # fmt: skip
                p_d = [0.0, 0.1] if arm.endswith("gradient") else [0.1, 0.2]
                rows.append({
                    "of": {**of, "arm": arm}, "p_d": p_d, "rows": 10, "right": [7, 7],
                    "loss": [6.0, 5.0], "accuracy": [[accuracy] * 10] * 2,
                    "alpha": [[[1.0, 0.5, 0.0]] * 10] * 2, "mean_alpha": [[1.0, 0.5, 0.0]] * 2,
                    "theta": [[0.0]] * 2,
                })  # fmt: skip
    (tmp_path / "heart.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    done = program("show.py", "--out", str(tmp_path))
    assert done.returncode == code, done.stderr
    said = "holds" if code == 0 else "FAILS"
    assert f"{said}  5. heart: best personalised arm at least 0.735" in done.stdout
