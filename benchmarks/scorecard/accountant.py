"""What the accountants say of settings whose cost others have published.

    python benchmarks/scorecard/accountant.py

The table, with its sources, is tests/accountant_vectors.py. Differences are relative.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from sheet import main

from accountant_vectors import UPPER, VECTORS
from fedcohort.privacy.accounting import epsilon
from fedcohort.protocol.private import Release

ITEM = "accountant vectors"
TARGET = (
    "≥ 40, within 1e-3 of dp-accounting; RDP 0.942200, PLD 0.853030 (σ 1.3, q 250/60000, 3600 "
    "steps, δ 1e-5), Gaussian σ 1: 4.377178"
)


def measure() -> tuple[str, bool]:
    sampled = [Release(step="s", noise=1.3, count=3600, sampling=250 / 60000)]
    three = (
        epsilon(sampled, 1e-5, "rdp"),
        epsilon(sampled, 1e-5),
        epsilon([Release(step="s", noise=1.0)], 1e-5),
    )
    expected = (0.942200, 0.853030, 4.377178)
    exact = all(abs(a - b) < 1e-6 for a, b in zip(three, expected, strict=True))
    worst = max(VECTORS, key=_off)
    within = sum(_off(vector) <= 1e-3 for vector in VECTORS)
    upper = sum(v.expected - 0.02 < v.measured() < v.expected for v in UPPER)
    text = (
        f"{within} of {len(VECTORS)} within 1e-3, worst {_off(worst):.1e} ({worst.source}, "
        f"{worst.what}); {upper} of {len(UPPER)} inside the PRV accountant's interval; "
        f"RDP {three[0]:.6f}, PLD {three[1]:.6f}, Gaussian {three[2]:.6f}"
    )
    met = within == len(VECTORS) >= 40 and upper == len(UPPER) and exact
    return text, met


def _off(vector) -> float:
    return abs(vector.measured() / vector.expected - 1)


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure)
