"""The benchmark of deep clustering goes on where it stopped, and ranks nothing by one seed."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "dec_mds"))

from phases import Deep

FOLDER = Path(__file__).parents[2] / "benchmarks" / "dec_mds"


def module(name: str):
    """Load a script under a name of its own: several benchmarks have a `show.py`."""
    spec = importlib.util.spec_from_file_location(f"dec_mds_{name}", FOLDER / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_an_autoencoder_that_goes_on_after_four_rounds_equals_one_of_ten():
    """By full-batch steps, which draw nothing: a round depends on the model alone."""
    x = (np.random.default_rng(0).random((80, 12)) < 0.3).astype(float)
    settings = {
        "n_clusters": 3, "architecture": (8, 4, 2), "output": "relu", "optimiser": "momentum",
        "learning_rate": 0.05, "strategy": "fedavg", "batch_size": 0, "rounds": 10,
    }  # fmt: skip
    deep = Deep(x, np.array_split(np.arange(80), 4), 0, settings)
    theta, losses, _ = deep.first()
    part, some, _ = replace(deep, settings=settings | {"rounds": 4}).first()
    after, more, _ = deep.onward(part, 4, 6)
    np.testing.assert_array_equal(after, theta)
    assert some + more == losses
    model, _, _ = deep.second(theta)
    assert len(model.counts) <= 3


def test_a_configuration_has_the_mean_and_range_of_its_most_rounds_in_a_fixed_order(capsys):
    show = module("show")
    one = dict.fromkeys(show.SHOWN, 0.5) | {"c_index": 0.6, "p": 1e-9}
    one |= {"split": "uniform", "optimiser": "momentum", "target": "site", "strategy": "fedavg"}
    rows = [
        one | {"centroids": "random", "rounds": 500, "seed": 0, "silhouette": 0.1},
        one | {"centroids": "random", "rounds": 500, "seed": 1, "silhouette": 0.3},
        one | {"centroids": "random", "rounds": 60, "seed": 0, "silhouette": 0.9},
        one | {"centroids": "max_min", "rounds": 60, "seed": 0, "silhouette": 0.05},
    ]
    show.table(show.most_rounds(pd.DataFrame(rows)))
    said = [line for line in capsys.readouterr().out.splitlines() if "fedavg" in line]
    assert [line.split(" | ")[3:5] for line in said] == [["max_min", "1"], ["random", "2"]]
    assert "0.200 (0.100 to 0.300) / 0.081" in said[1]
    assert "0.050 / 0.045" in said[0]
