"""Draws of five mechanisms from the operating system's generator, against their laws.

    python benchmarks/scorecard/noise.py

z is that of the mean square against the variance of the law, p that of a Kolmogorov–Smirnov test
(of the randomised probability transform where the law is discrete): tests/noise_cases.py. The draws
differ in every run: sound noise misses this target about once in 1200 runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from sheet import main

from fedcohort.privacy.noise import Source
from noise_cases import CASES

ITEM = "noise"
TARGET = "5 mechanisms × 1e5 draws: variance z < 4, KS p > 1e-4"
DRAWS = 100_000


def measure() -> tuple[str, bool]:
    judged = [(case.name, *case.judge(Source.system(), DRAWS)) for case in CASES]
    text = "; ".join(f"{name} z {z:+.2f}, p {p:.2g}" for name, z, p in judged)
    return text, len(judged) == 5 and all(abs(z) < 4 and p > 1e-4 for _, z, p in judged)


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure)
