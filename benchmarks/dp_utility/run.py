"""What differential privacy costs: how well models of the MDS cohort predict, by ε.

    python benchmarks/dp_utility/run.py --data FILE [--seeds 10] [--epsilons 0.5 1 3 8]

Three simulated sites, four fifths of the rows for training. C-index of overall survival on the rest
for `deepcox` (linear and with hidden units, strategies "exact" and "fedavg"), AUC of death within
two years for `logistic`. Columns are the clinical ones, sex, and all cytogenetic and gene flags
that at least 1 % of the rows carry. "inf" is the same fit without noise and with measured scales;
the mean over seeds has a 95 % interval by Student's t: each seed draws the split, the sites and the
noise anew.

What is usual of the clinical columns is from haematology, not from the cohort. All settings are
the methods' own; rounds, learning rate, groups and clip of private fits were chosen on seeds 0 to
5, which are not used here.

With (ε, δ) = (ε, 1e-5), record level, each site's noise as in a sum that at least two thirds of the
sites take part in; of "fedavg" each site's own, whole.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student
from sklearn.metrics import roc_auc_score

import fedcohort as fc
from fedcohort.data.split import partition
from fedcohort.metrics.survival.concordance import harrell

sys.path.append(str(Path(__file__).parents[1] / "d62_survival"))
import tables

USUAL = {
    "age": (20, 100),
    "bm_blast_pct": (0, 20),
    "hb": (5, 16),
    "plt": (0, 400),
    "anc": (0, 8),
    "wbc": (0, 15),
    "monocytes": (0, 2),
}
SITES, HELD_OUT, FIRST_SEED = 3, 0.2, 100
DELTA = 1e-5
SURVIVAL, DEATH = fc.Survival("time", "event"), fc.Binary("died")
EXACT, FEDAVG = {"strategy": "exact"}, {"strategy": "fedavg"}
PLAIN = {"lr_rule": "constant"}
#: Name → method, settings with noise, and those without.
FITS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "exact, linear": ("deepcox", EXACT | {"hidden": ()}, EXACT | PLAIN | {"hidden": ()}),
    "exact, 8-4": ("deepcox", EXACT, EXACT | PLAIN),
    "fedavg, linear": ("deepcox", FEDAVG | {"hidden": ()}, FEDAVG | PLAIN | {"hidden": ()}),
    "fedavg, 8-4": ("deepcox", FEDAVG, FEDAVG | PLAIN),
    "logistic": ("logistic", {}, {"scale": "standard", "l2": 0.01}),
}


def cohort(path: Path) -> pd.DataFrame:
    """Return the cohort with flags as 0/1."""
    table = tables.mds_all(path)
    for c in table:
        if c not in (*USUAL, "sex", "time", "event"):
            table[c] = (table[c] != 0).astype(float).where(table[c].notna())
    return table


def deaths(table: pd.DataFrame, years: float = 2.0) -> pd.DataFrame:
    """Return the rows of which it is known whether they died within some years."""
    died = (table.time <= years) & (table.event == 1)
    known = died | (table.time > years)
    return table.assign(died=died.astype(int))[known].drop(columns=["time", "event"])


def dictionary(table: pd.DataFrame) -> dict[str, Any]:
    """Return what the sites agree on beforehand."""
    found: dict[str, Any] = {}
    for c in table:
        if c in ("time", "event"):
            found[c] = {"type": c}
        elif c in USUAL:
            found[c] = {"type": "number", "usual": list(USUAL[c])}
        elif c == "sex":
            levels = sorted(map(str, table[c].dropna().unique()))
            found[c] = {"type": "category", "levels": levels}
        else:
            found[c] = {"type": "binary"}
    return {"variables": found}


def score(table: pd.DataFrame, name: str, epsilon: float, seed: int) -> float:
    """Return one fit's C-index or AUC on the rows held out."""
    method, noisy, plain = FITS[name]
    survival = method == "deepcox"
    order = np.random.default_rng(seed).permutation(len(table))
    n = int(HELD_OUT * len(table))
    test = table.iloc[order[:n]].reset_index(drop=True)
    train = table.iloc[order[n:]].reset_index(drop=True)
    outcome: Any = SURVIVAL if survival else DEATH
    sites = partition(train, "iid", SITES, seed, outcome)
    fed = fc.simulate(sites, outcome=outcome, seed=seed, dictionary=dictionary(table))
    dp, given = {"epsilon": epsilon, "delta": DELTA}, noisy
    if np.isinf(epsilon):
        dp, given = None, plain
    found = fc.fit(method, fed, dp=dp, seed=seed, **given).predict(test)
    if survival:
        return harrell(found, test.time.to_numpy(), test.event.to_numpy())
    return float(roc_auc_score(test.died, found))


def interval(values: list[float]) -> tuple[float, float]:
    """Return mean and half width of its 95 % interval."""
    spread = np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(student.ppf(0.975, len(values) - 1) * spread)


def main(path: Path, seeds: int, epsilons: list[float], tell: Callable[[str], None]) -> None:
    """Fit, judge, and tell one line for each method and ε; the last line is JSON."""
    whole = cohort(path)
    rows = {"deepcox": whole, "logistic": deaths(whole).reset_index(drop=True)}
    found: dict[str, dict[str, list[float]]] = {}
    for name, (method, *_) in FITS.items():
        found[name] = {}
        for epsilon in [*epsilons, np.inf]:
            scores = [
                score(rows[method], name, epsilon, FIRST_SEED + seed) for seed in range(seeds)
            ]
            mean, half = interval(scores)
            found[name][f"{epsilon:g}"] = [round(mean, 4), round(half, 4)]
            tell(f"{name:<16} ε {epsilon:>4g}  {mean:.3f} ± {half:.3f}")
    tell(json.dumps(found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the MDS cohort's CSV file")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 3.0, 8.0])
    given = parser.parse_args()
    main(given.data, given.seeds, given.epsilons, print)
