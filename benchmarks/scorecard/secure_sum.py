"""Masked sums over 3 to 7 sites that drop out at any of five stages: exact, or cleanly given up.

    python benchmarks/scorecard/secure_sum.py

Each case draws n, up to n sites that go away, each from a stage on (keys, shares, masked reply,
signature, unmasking), and replies of four types with numbers of 1e-20 to 1e20. The expected sum is
that of exact fractions over those whose masked reply came, and must be met to the stated bound. A
case counts as wrong as well when a sum was given up that had the sites it needs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sheet import main

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from fedcohort.secure.exchange.rehearse import STAGES
from secure_cases import outcome

ITEM = "secure sum, property-based: n 3 to 7, dropouts at 5 stages"
TARGET = "1000 cases, 0 wrong sums, the rest clean aborts"
CASES = 1000


def measure() -> tuple[str, bool]:
    rng = np.random.default_rng(20)
    found = {"sum": 0, "abort": 0, "wrong": 0}
    stages = dict.fromkeys(STAGES, 0)
    for seed in range(CASES):
        n = int(rng.integers(3, 8))
        gone = rng.choice(n, int(rng.integers(0, n // 2 + 1)), replace=False)
        away = {f"site{i}": str(rng.choice(STAGES)) for i in gone}
        for stage in away.values():
            stages[stage] += 1
        found[outcome(n, seed, away)] += 1
    drops = ", ".join(f"{count} at {stage}" for stage, count in stages.items())
    text = (
        f"{CASES} cases: {found['sum']} exact sums, {found['abort']} clean aborts, "
        f"{found['wrong']} wrong; sites away: {drops}"
    )
    return text, found["wrong"] == 0 and found["sum"] > CASES // 4 and min(stages.values()) > 50


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure)
