"""Eight attacks of an active coordinator on masked sums, each in several forms, against real sites.

    python benchmarks/scorecard/secure_attacks.py

The attacks are those of tests/secure_attacks.py. One counts as refused when every form of it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sheet import main

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from secure_attacks import ATTACKS, NotRefused

ITEM = "attacks on the secure sum: " + ", ".join(ATTACKS)
TARGET = "8 of 8 refused"


def measure() -> tuple[str, bool]:
    forms, through = 0, []
    for name, attack in ATTACKS.items():
        try:
            forms += len(attack())
        except NotRefused as form:
            through.append(f"{name}: {form}")
    refused = len(ATTACKS) - len(through)
    text = f"{refused} of {len(ATTACKS)} refused, in {forms} forms"
    return text + "".join(f"; NOT REFUSED {t}" for t in through), refused == 8


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure)
