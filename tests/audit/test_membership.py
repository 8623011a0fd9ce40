"""Membership inference: a planted network that learnt rows by heart is caught, chance is not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.audit.membership import attacks
from fedcohort.data.dictionary import Dictionary
from fedcohort.protocol import registry
from fedcohort.study.run.engine import Problem, Run, fit_once


def patients(n: int, p: int) -> pd.DataFrame:
    rng = np.random.default_rng(n)
    x = rng.random((n, p))
    time = rng.exponential(1000.0 * np.exp(-2.0 * (x[:, 0] - 0.5)))
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(p)])
    return frame.assign(time=time.round() + 1.0, dead=(rng.random(n) < 0.7).astype(int))


def attacked(method: str, n: int, p: int, shadows: int, **settings: object):
    rows = patients(n, p)
    variables = {f"x{i}": {"type": "number"} for i in range(p)}
    variables |= {"time": {"type": "time", "unit": "days"}, "dead": {"type": "event"}}
    frames = {f"s{k}": rows.iloc[k : n // 2 : 3].reset_index(drop=True) for k in range(3)}
    problem = Problem(
        frames, Dictionary.from_dict({"variables": variables}, "test"), fc.Survival("time", "dead")
    )

    def again(problem: Problem, seed: int) -> Run:
        return fit_once(problem, registry.find(method), settings, {"scale": "minmax"}, seed)

    run = again(problem, 0)
    held_out = rows.iloc[n // 2 :].reset_index(drop=True)
    return attacks(run.model, run.design, problem, held_out, again, shadows)


def test_planted_overfit_is_caught():
    lines, _ = attacked(
        "deepcox", 160, 12, 0, strategy="exact", rounds=200, hidden=(64, 32), lr_rule="constant"
    )
    assert lines[0]["auc"] > 0.6
    assert lines[0]["low"] > 0.5


def test_a_small_model_of_many_rows_is_not():
    """One coefficient for a thousand rows remembers nobody."""
    lines, made = attacked("cox", 2000, 1, 5)
    assert made == 5
    assert len(lines) == 2
    for line in lines:
        assert line["auc"] == pytest.approx(0.5, abs=0.05)
        assert line["members"] == line["others"] == 1000
