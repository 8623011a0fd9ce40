"""`forest`: trees grown together from sums, the union of sites' own, and pooled forests.

    python benchmarks/forest/run.py [--folder FOLDER] [--repeats 5] [--only NAME ...] [--out FILE]

Of each table a quarter of the rows is held out, the rest is spread over sites by a rule. Metrics on
the rows held out, by repeats: AUC of classes, R² of values, Harrell's C of survival. Arms: `sums`
with its default share of rows, and with half of them; `union`; the method of a linear predictor
(`logistic`, `ridge`, `cox`); and on the pooled rows a random forest of scikit-learn or
scikit-survival, 100 trees (of survival 50) with leaves of 10.

Packaged: gbsg2, diabetes. With a folder also the heart data of four centres (heart/), and SUPPORT
and METABRIC (survival/), of which 2,000 rows are drawn.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import r2_score, roc_auc_score
from sksurv.ensemble import RandomSurvivalForest
from sksurv.util import Surv

import fedcohort as fc
from fedcohort.data.split import partition
from fedcohort.metrics.survival.concordance import harrell

sys.path += [str(Path(__file__).parents[1])]
from book import asks_out, keep

ROOT = Path(__file__).parents[2]
MOST = 2000
ARMS: dict[str, dict[str, Any]] = {
    "sums": {},
    "half": {"share": 0.5},
    "union": {"strategy": "union"},
}
LINEAR = {"survival": "cox", "binary": "logistic", "continuous": "ridge"}


@dataclass(frozen=True)
class Case:
    """A table, its outcome, and how its rows are spread."""

    name: str
    frame: pd.DataFrame
    outcome: Any
    rule: str
    sites: int

    @property
    def group(self) -> str:
        """Name of its figures."""
        return f"{self.name}_{self.rule}_{self.sites}".replace("-", "_")


def tables(folder: Path | None) -> Iterator[tuple[str, pd.DataFrame, Any]]:
    """Yield the tables by name, with their outcomes."""
    own = ROOT / "src" / "fedcohort" / "data" / "samples" / "gbsg2.csv"
    yield "gbsg2", pd.read_csv(own), fc.Survival("time", "cens")
    from sklearn.datasets import load_diabetes

    yield "diabetes", load_diabetes(as_frame=True).frame, fc.Continuous("target")
    if folder is None:
        return
    heart = pd.read_csv(folder / "heart" / "heart_4centres.csv")
    heart = heart.drop(columns=["num", "complete10", "flamby_split"])
    yield "heart", heart, fc.Binary("y")
    for name in ("metabric", "support"):
        frame = pd.read_csv(folder / "survival" / f"{name}_deepsurv.csv").drop(columns="split")
        frame = frame[frame["time"] > 0]
        yield (
            name,
            frame.sample(min(MOST, len(frame)), random_state=0),
            fc.Survival("time", "event"),
        )


def cases(folder: Path | None) -> Iterator[Case]:
    """Yield every table with its ways to spread it."""
    for name, frame, outcome in tables(folder):
        frame = frame.reset_index(drop=True)
        if name == "heart":
            yield Case(name, frame, outcome, "natural", 4)
            frame = frame.drop(columns="centre")
        for rule, sites in (("iid", 4), ("iid", 12), ("by-feature", 4), ("by-outcome", 4)):
            if (name, rule) != ("heart", "by-outcome"):  # sites of one class
                yield Case(name, frame, outcome, rule, sites)


def score(case: Case, test: pd.DataFrame, found: Any) -> float:
    """Return the metric of predictions (n,)."""
    if isinstance(case.outcome, fc.Survival):
        time_, event = (test[name].to_numpy(float) for name in case.outcome.columns[:2])
        return float(harrell(np.asarray(found), time_, event))
    y = test[case.outcome.columns[0]].to_numpy(float)
    return float((roc_auc_score if isinstance(case.outcome, fc.Binary) else r2_score)(y, found))


def pooled(case: Case, train: pd.DataFrame, test: pd.DataFrame, seed: int) -> float:
    """Return the metric of a forest of the pooled rows."""
    drop = [*case.outcome.columns, *(["centre"] if "centre" in train else [])]
    both = pd.get_dummies(pd.concat([train, test]).drop(columns=drop), dtype=float)
    x, z = both.iloc[: len(train)].to_numpy(float), both.iloc[len(train) :].to_numpy(float)
    options: dict[str, Any] = {
        "n_estimators": 100, "min_samples_leaf": 10, "random_state": seed, "max_features": "sqrt"
    }  # fmt: skip
    if isinstance(case.outcome, fc.Survival):
        time_, event = (train[name].to_numpy(float) for name in case.outcome.columns[:2])
        forest: Any = RandomSurvivalForest(**options | {"n_estimators": 50}, low_memory=True)
        forest.fit(x, Surv.from_arrays(event > 0, time_))
        return score(case, test, forest.predict(z))
    y = train[case.outcome.columns[0]].to_numpy(float)
    if isinstance(case.outcome, fc.Binary):
        forest = RandomForestClassifier(**options).fit(x, y)
        return score(case, test, forest.predict_proba(z)[:, 1])
    forest = RandomForestRegressor(**{**options, "max_features": 1 / 3}).fit(x, y)
    return score(case, test, forest.predict(z))


def measured(case: Case, seed: int) -> dict[str, float]:
    """Return the metric of each arm, of one draw of rows and sites."""
    order = np.random.default_rng(seed).permutation(len(case.frame))
    cut = len(order) // 4
    test, train = (
        case.frame.iloc[rows].reset_index(drop=True) for rows in (order[:cut], order[cut:])
    )
    found: dict[str, float] = {}
    if case.rule == "natural":
        sites = partition(train, "natural", column="centre")
    else:
        sites = partition(train, case.rule, case.sites, seed, case.outcome)
    fed = fc.simulate(sites, outcome=case.outcome, seed=seed)
    arms = {name: ("forest", given) for name, given in ARMS.items()}
    arms["linear"] = (LINEAR[case.outcome.type], {})
    for name, (method, given) in arms.items():
        try:
            found[name] = score(case, test, fc.fit(method, fed, **given).predict(test))
        except fc.FedcohortError as error:
            print(f"{case.group} {name}: {error}", flush=True)
    found["pooled"] = pooled(case, train, test, seed)
    return found


def main() -> int:
    """Print a row for each table and way to spread it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=())
    asks_out(parser)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # small sites, filled values
    for case in cases(given.folder):
        if given.only and case.group not in given.only and case.name not in given.only:
            continue
        began = time.perf_counter()
        rows = pd.DataFrame([measured(case, seed) for seed in range(given.repeats)])
        means = {name: round(float(value), 4) for name, value in rows.mean().items()}
        gap = rows["sums"] - rows["union"]
        means |= {"gap": round(float(gap.mean()), 4), "gap_sd": round(float(gap.std(ddof=1)), 4)}
        seconds = time.perf_counter() - began
        print(f"{case.group:24} {means} {seconds:.0f} s", flush=True)
        keep(given.out, {case.group: {"repeats": given.repeats, **means}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
