"""Curves in a results file: what can be computed back from survival at double precision.

The attack knows the size of a group, S and its 95 % limits. Greenwood's variance follows from the
limits, and with S it determines the deaths and the censored between two steps of Kaplan–Meier.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from fedcohort.metrics.calibration import calibration_groups
from fedcohort.metrics.survival.kaplan_meier import kaplan_meier, leavers
from fedcohort.metrics.survival.log_rank import risk_groups
from fedcohort.report.clock import Clock
from fedcohort.study.judge.details import _risk_groups

Z = 1.959963984540054


def solutions(risk: int, ratio: float, variance: float | None) -> set[tuple[int, int]]:
    """Return all (censored, deaths) after which survival and variance are those of exact curves."""
    found: set[tuple[int, int]] = set()

    def search(at: int, s: float, v: float, lost: int, died: int, depth: int) -> None:
        if died and abs(s / ratio - 1) < 1e-10:
            if variance is None or abs(v - variance) < 1e-9 * max(1, variance):
                found.add((lost, died))
            return
        if depth == 8 or (variance is not None and v > variance * (1 + 1e-9)):
            return
        for c in range(9 if at > 9 else at):
            if c == 0 and died:
                continue
            left = at - c
            for d in range(1, left):
                if s * (left - d) / left < ratio * (1 - 1e-10):
                    break
                more = d / (left * (left - d))
                search(
                    left - d, s * (left - d) / left, v + more, lost + c, died + d, depth + 1
                )  # fmt: skip

    search(risk, 1.0, 0.0, 0, 0, 0)
    return found


def variance_of(s: float, low: float, high: float) -> float:
    between = math.log(-math.log(low)) - math.log(-math.log(high))
    return (between / 2 / Z * math.log(s)) ** 2


def factored(curve: list[list[float]], n: int) -> list[tuple[float, float, int, int]]:
    """Return (from, to, censored, deaths) of steps that have one solution, as far as there is."""
    told, risk, s, v, before = [], n, 1.0, 0.0, -1.0
    for time, value, low, high in curve[1:]:
        if abs(value - s) < 1e-12:
            continue
        if not 0 < value < 1:
            break
        total = variance_of(value, low, high)
        ways = solutions(risk, value / s, total - v)
        if len(ways) != 1:
            break
        (lost, died) = ways.pop()
        told.append((before, time, lost, died))
        risk, s, v, before = risk - lost - died, value, total, time
    return told


def few_told(time, event, curve) -> int:
    """Return how many steps tell one to four censored patients, rightly."""
    n = 0
    for before, until, lost, died in factored(curve, len(time)):
        deaths = time[event & (time > before) & (time <= until + 1e-9)]
        first = time[event & (time <= before + 1e-9)].max(initial=-1.0)
        last = deaths.max(initial=-1.0)
        really = (~event & (time >= first) & (time < last)).sum()
        n += 1 <= lost <= 4 and (lost, died) == (really, len(deaths))
    return n


def patients(seed: int):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 110))
    f = rng.normal(size=n)
    died, left = rng.exponential(np.exp(-f)), rng.uniform(0.2, 6, n)
    time, event = np.ceil(np.minimum(died, left) * 365) / 365.25, died <= left
    return f, f + rng.normal(size=n) * 0.5, time, event


@pytest.mark.parametrize("seed", range(3))
def test_no_small_number_of_censored_follows_from_the_curves_of_risk_groups(seed):
    _, said, time, event = patients(seed)
    (row,) = _risk_groups(
        SimpleNamespace(said=said, time=time, event=event), 5, Clock.of("days", 365.0), said
    )
    group = risk_groups(said, len(row["groups"]))
    assert sum(len(g["curve"]) for g in row["groups"]) > 4
    for g in row["groups"]:
        mine = group == g["group"]
        assert mine.sum() == g["n"]
        assert few_told(time[mine], event[mine], g["curve"]) == 0


def test_the_attack_solves_a_curve_of_all_records():
    _, _, time, event = patients(0)
    at = np.sort(time[event])[4:40:5]
    every = np.unique(time)
    exact = np.stack(kaplan_meier(every, leavers(time, event, every)), axis=1)
    curve = [[0.0, 1.0, 1.0, 1.0], *exact[np.searchsorted(every, at)].tolist()]
    assert few_told(time, event, curve) >= 2


@pytest.mark.parametrize("seed", range(30))
def test_no_number_at_risk_and_step_of_a_curve_are_apart_by_few(seed):
    """A life table of the shown steps, solved for its counts, beside the numbers at risk."""
    _, said, time, event = patients(seed)
    (row,) = _risk_groups(
        SimpleNamespace(said=said, time=time, event=event), 5, Clock.of("days", 365.0), said
    )
    for g in row["groups"]:
        n, s, v, known = g["n"], 1.0, 0.0, [m for _, m in g["at_risk"]]
        for _, value, low, high in g["curve"][1:]:
            if not 0 < value < s:
                continue
            ratio, more = value / s, variance_of(value, low, high) - v
            # of d/r = 1 − ratio and d/(r(r − d)) = more, with r = n − c/2
            risk = (1 - ratio) / (ratio * more)
            died, lost = (1 - ratio) * risk, 2 * (n - risk)
            assert abs(died - round(died)) < 1e-4 and abs(lost - round(lost)) < 1e-3
            assert round(died) >= 5
            assert round(lost) == 0 or round(lost) >= 5
            n, s, v = n - round(died) - round(lost), value, variance_of(value, low, high)
            known.append(n)
        apart = np.abs(np.subtract.outer(known, known))
        assert ((apart == 0) | (apart >= 5)).all()


@pytest.mark.parametrize("seed", range(6))
def test_observed_survival_of_a_calibration_group_depends_on_no_few(seed):
    """Four who are censored before the horizon leave at other times, and nothing changes."""
    rng = np.random.default_rng(seed)
    predicted = rng.uniform(size=100)
    time, event = rng.uniform(0.5, 2.0, 100), np.ones(100, bool)
    few = np.flatnonzero(predicted < 0.2)[:4]
    event[few] = False
    found = set()
    for _ in range(8):
        time[few] = rng.uniform(0.01, 0.99, len(few))
        got = calibration_groups(predicted, time, event, 1.0, 5, 5)
        assert len(got.n)
        found.add((got.observed.tobytes(), got.n.tobytes()))
    assert len(found) == 1
