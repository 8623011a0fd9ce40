"""The benchmark of thesis 003 on MNIST goes on where it stopped, and chooses without labels."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "dec_mnist"


@pytest.fixture
def module(monkeypatch):
    """Load a script under a name of its own: several benchmarks have a `run.py` and `show.py`."""

    def load(name: str):
        for other in ("run", "phases"):
            monkeypatch.delitem(sys.modules, other, raising=False)
        monkeypatch.syspath_prepend(str(FOLDER))
        spec = importlib.util.spec_from_file_location(f"dec_mnist_{name}", FOLDER / f"{name}.py")
        made = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, made)
        spec.loader.exec_module(made)
        return made

    return load


@pytest.mark.parametrize("name", ["momentum", "adam", "yogi"])
def test_phase_1_that_goes_on_from_its_file_equals_one_without_a_break(module, tmp_path, name):
    thesis = module("thesis")
    x = np.random.default_rng(0).random((60, 12))
    settings = thesis.COMMON | {
        "architecture": (6, 3), "optimiser": thesis.ARMS[name].optimiser, "batch_size": 16,
        "learning_rate": thesis.ARMS[name].rates["mnist"],
    }  # fmt: skip
    whole = thesis.reconstruct(x, settings, 1, 8, tmp_path / "whole")
    thesis.reconstruct(x, settings, 1, 3, tmp_path / "part")
    thesis.reconstruct(x, settings, 2, 8, tmp_path / "part-fast")
    part = thesis.reconstruct(x, settings, 1, 8, tmp_path / "part")
    np.testing.assert_array_equal(part.theta, whole.theta)
    np.testing.assert_array_equal(part.memory.moments, whole.memory.moments)
    assert part.losses == whole.losses
    assert part.memory.taken == whole.memory.taken == 8 * 4


def test_the_thesis_table_has_best_and_median_and_chooses_by_silhouette_and_agreement(
    module, capsys, tmp_path
):
    show = module("show")
    assert max(show.PUBLISHED["mnist"]) == show.PUBLISHED["mnist"][show.OF.index(("yogi", 9, "l1"))]
    for data, best, median in (("mnist", 0.882, 0.847), ("bmnist", 0.893, 0.812)):
        assert len(show.PUBLISHED[data]) == len(show.OF) == 24
        assert max(show.PUBLISHED[data]) == pytest.approx(best, abs=5e-4)
        assert np.median(show.PUBLISHED[data]) == pytest.approx(median, abs=5e-4)
    labels = {"a0": [0, 0, 1, 1], "a1": [1, 1, 0, 0], "b0": [0, 0, 1, 1], "b1": [0, 1, 0, 1]}
    for name, of in labels.items():
        np.save(tmp_path / f"{name}.npy", np.array(of, np.int8))
    same = {"data": "mnist", "epochs": 10, "cluster_epochs": 2, "ae_loss": 0.01, "k_means": 0.6}
    same |= {"alpha": 1.0, "scale": "l1"}
    rows = [
        same | {"optimiser": o, "seed": seed, "labels": f"{name}{seed}"} | {
            "accuracy": accuracy + 0.1 * seed, "silhouette": silhouette,
        }
        for o, name, accuracy, silhouette in (("adam", "a", 0.5, 0.2), ("yogi", "b", 0.7, 0.3))
        for seed in (0, 1)
    ]  # fmt: skip
    found = show.with_agreement(pd.DataFrame(rows), tmp_path)
    assert found[found.optimiser == "adam"].agreement.tolist() == [1.0, 1.0]
    show.of_thesis(found)
    lines = capsys.readouterr().out.splitlines()
    assert "| 0 | 2 | 0.700 (yogi, 1, l1) | 0.600 | 0.700 (yogi, 1, l1) | – |" in lines
    mean = "| mean | 2 | 0.750 (yogi, 1, l1) | 0.650 | 0.750 (yogi, 1, l1) | 0.550 (adam, 1, l1) |"
    assert mean in lines
