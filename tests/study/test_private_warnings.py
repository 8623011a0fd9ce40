"""A private fit whose noise all records together cannot outweigh says so, and what ε would do."""

from __future__ import annotations

import json
import logging
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import fedcohort as fc
from fedcohort.privacy import accounting
from fedcohort.protocol import Dp, Release, registry
from fedcohort.study.run.warnings import drowned, needed
from logs import Logs

NUMBERS = {name: {"type": "number", "usual": [-3, 3]} for name in "ab"}
DICTIONARY = {"variables": {**NUMBERS, "y": {"type": "number", "usual": [-5, 5]}}}


def table(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": x @ [1.0, -1.0] + rng.normal(size=n)})


def cohort(n: int) -> Any:
    frames = {s: table(n, i) for i, s in enumerate("pqr")}
    return fc.simulate(frames, outcome=fc.Continuous("y"), dictionary=DICTIONARY)


@pytest.mark.parametrize(("count", "noise", "sampling"), [(1, 50.0, 1.0), (16, 80.0, 0.5)])
def test_so_many_records_are_one_standard_deviation_of_the_mean_of_all_answers(
    count: int, noise: float, sampling: float
):
    """The mean of T answers: each record adds qΔ to its expectation, noise has zΔ/√T."""
    told = needed([Release(step="s", noise=noise, count=count, sampling=sampling)])
    rng = np.random.default_rng(1)
    answers = rng.normal(0.0, noise, (40_000, count)).mean(axis=1)
    assert told * sampling == pytest.approx(answers.std(), rel=0.02)


def test_laplace_noise_of_a_scale_has_root_two_times_its_standard_deviation():
    told = needed([Release(step="s", noise=10.0, mechanism="laplace")])
    drawn = np.random.default_rng(2).laplace(0.0, 10.0, 200_000)
    assert told == pytest.approx(drawn.std(), rel=0.01)


@pytest.mark.parametrize("units", [60, 300, 2000])
def test_the_epsilon_that_is_named_is_the_least_of_one_digit_by_the_gaussian_mechanism(units: int):
    """One release of sensitivity 1 over `units`: σ of Balle & Wang (2018), not above `units`."""
    ridge = registry.find("ridge")
    said = drowned(ridge, ridge.configure({}), Dp(epsilon=1e-4, delta=1e-5), units)
    assert said.startswith("epsilon 0.0001 needs noise above the signal of all records together")
    least = float(said.rsplit(" ", 1)[1])
    digit = 10.0 ** math.floor(math.log10(least))
    below = least - digit if least > 1.5 * digit else 0.9 * least
    assert accounting.gaussian_sigma(least, 1e-5) <= units * 1.01
    assert accounting.gaussian_sigma(below, 1e-5) >= units * 0.99


@pytest.mark.parametrize("method", ["ridge", "lasso"])
def test_in_python_a_tiny_epsilon_is_warned_of_in_one_line_and_a_usual_one_is_not(method: str):
    fed = cohort(100)
    with pytest.warns(UserWarning, match="epsilon 1e-09 needs noise above") as told:
        fc.fit(method, fed, dp={"epsilon": 1e-9, "delta": 1e-4}, penalty=1.0)
    assert all("\n" not in str(w.message) for w in told)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fc.fit(method, fed, dp={"epsilon": 1.0, "delta": 1e-4}, penalty=1.0)
        fc.fit(method, fed, penalty=1.0)


def test_sites_that_are_protected_are_counted_in_place_of_records():
    deepcox = registry.find("deepcox")
    config = deepcox.configure({"strategy": "fedavg", "rounds": 4})
    said = drowned(deepcox, config, Dp(epsilon=0.5, delta=1e-5, unit="site"), 3)
    assert "needs noise above the signal of all sites together" in said
    assert not drowned(deepcox, config, Dp(epsilon=8, delta=1e-5, unit="site"), 50)


@pytest.mark.parametrize(("epsilon", "says"), [(1e-9, True), (3.0, False)])
def test_a_study_says_it_in_its_log_its_results_and_its_report(
    tmp_path: Path, caplog: Logs, epsilon: float, says: bool
):
    rows = pd.concat([table(80, i).assign(site=s) for i, s in enumerate("pqr")])
    rows.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "d.yaml").write_text(yaml.safe_dump(DICTIONARY))
    study = {
        "study": "own",
        "task": "regression",
        "data": {
            "source": "t.csv", "dictionary": "d.yaml", "outcome": {"y": "y"},
            "sites": {"column": "site"},
        },
        "arms": [{"method": "ridge", "penalty": 0.1, "title": "Ridge"}],
        "bounds": ["centralised"],
        "evaluate": {"repeats": 2, "draws": 5},
        "privacy": {"dp": {"epsilon": epsilon, "delta": 1e-4}},
    }  # fmt: skip
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    with caplog.at_level(logging.WARNING, "fedcohort"):
        fc.Study.from_file(tmp_path / "study.yaml").run(tmp_path / "out")
    lines = [r.getMessage() for r in caplog.records if "needs noise above" in r.getMessage()]
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(lines) == len(results["drowned"]) == int(says)
    report = (tmp_path / "out" / "report.html").read_text()
    assert ("“Ridge” is no more than noise: epsilon 1e-09 needs noise above" in report) == says
