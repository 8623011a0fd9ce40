"""The attack of tests/linked.py on many random cohorts: counts that columns missing together tell.

    OMP_NUM_THREADS=1 python benchmarks/disclosure/linked.py [--cohorts 100] [--first 0]

Four to eight hospitals of 6 to 160 patients who lack whole panels of columns. The attacker has all
of Table 1, and each hidden count of missing values that is the commonest one its hospital tells.
Leaves with 1 where a count of 1 to 4 is recovered.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from linked import attack, panels, table_one


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cohorts", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    options = parser.parse_args()
    found = np.zeros((2, 2), int)
    for seed in range(options.first, options.first + options.cohorts):
        frames, variables = panels(seed)
        found += attack(frames, variables, table_one(frames, variables))
    for kind, n, told in zip(("levels", "missing values"), *found.tolist(), strict=True):
        print(f"{kind}: {n} counts of 1 to 4, {told} recovered")
    return int(found[1].sum() > 0)


if __name__ == "__main__":
    sys.exit(main())
