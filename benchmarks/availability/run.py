"""What a federation loses whose sites are away at random, by strategy.

    python benchmarks/availability/run.py --out DIR [--repeats 10] [--away 0.3]

The same studies twice, with all sites and with `availability`, paired by repeat: the same split of
the rows, the same seed. Survival of the sample gbsg2 over 8 sites (alike, and divided by age):
DeepCox by each strategy of `training/`, and with means that withstand lies; whether a patient
relapsed, by Newton's method, ADMM and Weight Erosion (its user is never away); k-means.
Prints a table of the metric with all sites, of the mean difference and its 95 % interval (t, over
repeats), of the calls that sites missed and the rounds that were waited for them in a fit; and
leaves with 1 where a mean is lower by more than 0.01. Absences are by rounds, each drawn by itself;
and, with `--rounds 5`, for five rounds at a time.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.stats import t

import fedcohort as fc

#: The most that a run may lose on its metric.
LOST = 0.01
DEEP: dict[str, Any] = {"method": "deepcox", "rounds": 40, "internal_epochs": 2}
SURVIVAL = [
    DEEP | {"name": s, "strategy": s}
    for s in ("fedavg", "fedprox", "fedadam", "fedyogi", "sequential", "ensemble")
] + [DEEP | {"name": a, "aggregation": a} for a in ("trimmed_mean", "median", "norm_bound")]
STUDIES: dict[str, dict[str, Any]] = {
    "survival": {
        "task": "survival",
        "data": {"source": "sample:gbsg2", "sites": {"split": "iid", "n": 8}},
        "scenarios": ["iid", {"split": "by-feature", "feature": "age"}],
        "arms": SURVIVAL,
        "evaluate": {"metrics": ["c_index"]},
    },
    "same": {  # whose sums must all be of the same sites
        "task": "survival",
        "data": {"source": "sample:gbsg2", "sites": {"split": "iid", "n": 8}},
        "scenarios": ["iid", {"split": "by-feature", "feature": "age"}],
        "arms": [{"method": "cox"}, DEEP | {"name": "exact", "strategy": "exact"}],
        "evaluate": {"metrics": ["c_index"]},
    },
    "krum": {  # which needs five sites in every round
        "task": "survival",
        "data": {"source": "sample:gbsg2", "sites": {"split": "iid", "n": 8}},
        "scenarios": ["iid", {"split": "by-feature", "feature": "age"}],
        "arms": [DEEP | {"name": a, "aggregation": a} for a in ("krum", "multi_krum")],
        "evaluate": {"metrics": ["c_index"]},
    },
    "classification": {
        "task": "classification",
        "data": {
            "source": "sample:gbsg2",
            "outcome": {"y": "cens"},
            "sites": {"split": "iid", "n": 8},
        },
        "scenarios": ["iid", {"split": "by-feature", "feature": "age"}],
        "arms": [
            {"method": "logistic"},
            {"method": "logistic", "name": "admm", "solver": "admm", "l2": 0.01, "max_rounds": 200},
            {"method": "weight_erosion", "name": "erosion", "user": "site-1", "rounds": 60},
        ],
        "evaluate": {"metrics": ["auc"]},
    },
    "clustering": {
        "task": "clustering",
        "data": {"source": "sample:gbsg2", "sites": {"split": "iid", "n": 8}},
        "scenarios": ["iid", {"split": "by-feature", "feature": "age"}],
        "arms": [{"method": "kmeans", "n_clusters": 3}],
        "evaluate": {"metrics": ["silhouette"]},
    },
}


def run(out: Path, name: str, repeats: int, away: dict[str, Any] | None) -> dict[str, Any]:
    """Return the results of one study, run now unless they are there."""
    folder = out / f"{name}-{'away' if away else 'here'}"
    if not (folder / "results.json").exists():
        study = {"study": name, "seed": 11, "quorum": 0.4, "bounds": [], **STUDIES[name]}
        study["evaluate"] = {"test_fraction": 0.25, "draws": 2, **study["evaluate"]}
        study["evaluate"]["repeats"] = repeats
        if away:
            study["availability"] = away
        path = out / f"{folder.name}.yaml"
        path.write_text(yaml.safe_dump(study, sort_keys=False))
        fc.Study.from_file(path).run(folder, resume=folder.exists(), workers=1)
    return json.loads((folder / "results.json").read_text())


def values(results: dict[str, Any], arm: str, scenario: str) -> np.ndarray:
    """Return an arm's metric by repeat; NaN where it failed."""
    rows = [a for a in results["arms"] if a["site"] is None]
    rows = [a for a in rows if (a["arm"], a["scenario"]) == (arm, scenario)]
    rows.sort(key=lambda a: a["repeat"])
    return np.array([next(iter((a["metrics"] or {"": math.nan}).values())) for a in rows], float)


def main() -> None:
    """Run what is missing; print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--away", type=float, default=0.3)
    parser.add_argument("--rounds", type=float, help="mean length of an absence")
    parser.add_argument("--studies", nargs="+", default=list(STUDIES), choices=list(STUDIES))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    away: dict[str, Any] = {"away": given.away, "always": ["site-1"]}
    if given.rounds:
        away["rounds"] = given.rounds
    lost: list[str] = []
    print("| study | sites | arm | all sites | difference | 95 % interval | missed | waited |")
    print("|---|---|---|---|---|---|---|---|")
    for name in given.studies:
        here = run(given.out, name, given.repeats, None)
        gone = run(given.out, name, given.repeats, away)
        for arm in dict.fromkeys(a["arm"] for a in here["arms"]):
            for scenario in dict.fromkeys(a["scenario"] for a in here["arms"]):
                whole, part = values(here, arm, scenario), values(gone, arm, scenario)
                off = part - whole
                wide = t.ppf(0.975, len(off) - 1) * off.std(ddof=1) / math.sqrt(len(off))
                missed = sum(
                    m["calls"] for m in gone["missing"]
                    if (m["arm"], m["scenario"]) == (arm, scenario)
                )  # fmt: skip
                waited = sum(
                    w["rounds"] for w in gone["waited"]
                    if (w["arm"], w["scenario"]) == (arm, scenario)
                )  # fmt: skip
                print(
                    f"| {name} | {scenario} | {arm} | {whole.mean():.4f} | {off.mean():+.4f} | "
                    f"{off.mean() - wide:+.4f} to {off.mean() + wide:+.4f} | "
                    f"{missed / len(off):.0f} | {waited / len(off):.0f} |"
                )
                if not off.mean() >= -LOST:
                    lost.append(f"{name}, {scenario}, {arm}: {off.mean():+.4f}")
    for line in lost:
        print(line)
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
