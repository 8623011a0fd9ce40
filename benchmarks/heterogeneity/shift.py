"""How often `shift` calls sites clearly different: splits of real patients, at random and not.

python benchmarks/heterogeneity/shift.py [--runs N]

The 686 patients of sample:gbsg2 with death or recurrence as a yes/no outcome, dealt to five sites.
Accepted: a clear difference in at most 5 % of the iid splits (up to 11 % of 100, which chance gives
in one of a hundred), as p-values are adjusted over all comparisons; in all that are by the outcome
or by a feature.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

import fedcohort as fc
from fedcohort.data.read.sources import load
from fedcohort.data.split import partition

SITES = 5


def main() -> None:
    """Print, for each split, the share of runs with a clear difference, by kind."""
    ask = argparse.ArgumentParser()
    ask.add_argument("--runs", type=int, default=100)
    runs = ask.parse_args().runs
    patients = cast("pd.DataFrame", load("sample:gbsg2", Path()).frames)
    table = patients.drop(columns=["time"]).assign(cens=patients["cens"].astype(int))
    outcome = fc.Binary("cens")
    held = True
    for split in ("iid", "by-outcome", "by-feature"):
        options: dict[str, Any] = {"feature": "age"} if split == "by-feature" else {}
        found: dict[str, list[bool]] = {}
        for seed in range(runs if split == "iid" else max(1, runs // 10)):
            frames = partition(table, split, SITES, seed=seed, outcome=outcome, **options)
            rows = fc.fit("shift", fc.simulate(frames, outcome=outcome, seed=seed)).model.rows
            for kind in ("any", "feature", "label", "conditional"):
                clear = any(r["clear"] for r in rows if kind in ("any", r["kind"]))
                found.setdefault(kind, []).append(clear)
        n, share = len(found["any"]), float(np.mean(found["any"]))
        held = held and (share <= 0.11 if split == "iid" else share == 1)
        print(split, n, *(f"{k} {np.mean(v):.2f}" for k, v in found.items()), sep="\t", flush=True)
    sys.exit(not held)


if __name__ == "__main__":
    main()
