"""`boosting` beside central XGBoost, isolated sites and linear predictors, in several parts.

    python benchmarks/boosting/run.py PART [--data FOLDER] [--seeds 5] [--only NAME ...]
        [--left N] [--book FILE] [--out FILE]

    strategies   strategies over sites
    central      the target of 0.001 of AUC beside XGBoost, and where a difference comes from
    held-out     judged at a hospital that took no part
    missing      missing values: learned directions beside values that are filled
    bins         16 to 256 bins: metric, bytes, seconds

Each part is a file of this folder; its header has the arms and the claims, `cases.py` the tables.
The exit code is 1 if a claim does not hold. A seed of a table is a line of the book, and is not
measured again.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
import bins
import central
import held_out
import missing
import strategies
from book import Book, asks_out

PARTS = {
    "strategies": strategies.run, "central": central.run, "held-out": held_out.run,
    "missing": missing.run, "bins": bins.run,
}  # fmt: skip


def main() -> int:
    """Run a part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--data", type=Path, help="folder with heart/, uci/, survival/ and mds/")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--left", type=int, help="held-out: number of sites to leave out; all")
    parser.add_argument("--book", type=Path, default=Path("runs/boosting.jsonl"))
    asks_out(parser)
    given = parser.parse_args()
    given.book.parent.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")  # small sites, filled values
    broken = PARTS[given.part](given, Book(given.book))
    print("all claims hold" if not broken else f"{broken} claims do not hold")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
