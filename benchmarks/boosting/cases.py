"""Tables of the benchmark, their sites and metrics, and XGBoost on pooled rows.

Packaged: gbsg2, diabetes. With a folder also heart (four hospitals), banknote and housing (4
sites), METABRIC and SUPPORT (3,000 rows; 8 sites), and the MDS cohort (8 sites, four scenarios).
Metrics on rows held out: AUC of classes, Harrell's C of survival, root mean squared error of
values. All trees have depth 4 and η 0.1, and 60 rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xgboost
from sklearn.datasets import load_diabetes
from sklearn.metrics import roc_auc_score, root_mean_squared_error

import fedcohort as fc
from fedcohort.data.split import partition
from fedcohort.metrics.intervals import Comparison, paired
from fedcohort.metrics.survival.concordance import harrell

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "d62_survival")]
import tables

ROUNDS, RATE, DEPTH, MOST = 60, 0.1, 4, 3000
GIVEN: dict[str, Any] = {"rounds": ROUNDS, "learning_rate": RATE, "max_depth": DEPTH}
SCENARIOS = ("iid", "unbalanced", "by-outcome", "by-feature")
#: Method of a linear predictor, metric, and XGBoost's objective, by type of outcome.
TYPES = {
    "survival": ("cox", "c_index", "survival:cox"),
    "binary": ("logistic", "auc", "binary:logistic"),
    "continuous": ("ridge", "rmse", "reg:squarederror"),
}
OWN = Path(__file__).parents[2] / "src" / "fedcohort" / "data" / "samples"


@dataclass(frozen=True)
class Case:
    """A table, its outcome, and how its rows are spread."""

    name: str
    frame: pd.DataFrame
    outcome: Any
    rule: str
    sites: int
    site_column: str = ""

    @property
    def group(self) -> str:
        """Name of its figures."""
        return f"{self.name}_{self.rule}".replace("-", "_")

    @property
    def linear(self) -> str:
        """Method of a linear predictor."""
        return TYPES[self.outcome.type][0]

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return TYPES[self.outcome.type][1]

    @property
    def ratio(self) -> float:
        """Rows held out over training rows, which draws of one table share; 0 for fresh rows."""
        return 1 / 3

    def drawn(self, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return training rows, and a quarter of all rows that is held out."""
        order = np.random.default_rng(seed).permutation(len(self.frame))
        cut = len(order) // 4
        test, train = (self.frame.iloc[r].reset_index(drop=True) for r in np.split(order, [cut]))
        return train, test

    def over_sites(self, train: pd.DataFrame, seed: int) -> dict[str, pd.DataFrame]:
        """Return the sites' rows."""
        if self.site_column:
            return dict(partition(train, self.rule, column=self.site_column))
        return dict(partition(train, self.rule, self.sites, seed, self.outcome))

    def over_two(self, train: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Return the rows at two sites: trees from sums are the same bits over any sites."""
        train = train.drop(columns=self.site_column) if self.site_column else train
        half = len(train) // 2
        return {"site-1": train[:half], "site-2": train[half:].reset_index(drop=True)}

    def features(self, *frames: pd.DataFrame) -> list[np.ndarray]:
        """Return the features of tables as numbers (n, p), NaN where missing; levels apart."""
        drop = [*self.outcome.columns, *([self.site_column] if self.site_column else [])]
        both = pd.concat(frames).drop(columns=drop, errors="ignore")
        x = np.asarray(pd.get_dummies(both, dtype=float), float)
        return np.split(x, np.cumsum([len(frame) for frame in frames])[:-1])

    def outcomes(self, frame: pd.DataFrame) -> list[np.ndarray]:
        """Return the columns of the outcome."""
        return [frame[name].to_numpy(float) for name in self.outcome.columns]

    def score(self, test: pd.DataFrame, found: Any) -> float:
        """Return the metric of predictions (n,)."""
        y = self.outcomes(test)
        if isinstance(self.outcome, fc.Survival):
            return float(harrell(np.asarray(found, float), y[0], y[1]))
        of = roc_auc_score if isinstance(self.outcome, fc.Binary) else root_mean_squared_error
        return float(of(y[0], found))

    def by_xgboost(
        self, x: np.ndarray, train: pd.DataFrame, z: np.ndarray, bins: int = 64,
        base: float | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Return the predictions of XGBoost for rows z (m, p), trained on the pooled rows x.

        bins : its `max_bin`. base : the margin that it starts from; None: its own.
        """
        y = self.outcomes(train)
        data, new = xgboost.DMatrix(x), xgboost.DMatrix(z)
        data.set_info(label=np.where(y[1] > 0, y[0], -y[0]) if len(y) > 1 else y[0])
        if base is not None:
            data.set_info(base_margin=np.full(len(x), base))
            new.set_info(base_margin=np.full(len(z), base))
        given = {
            "objective": TYPES[self.outcome.type][2], "max_depth": DEPTH, "learning_rate": RATE,
            "max_bin": bins, "tree_method": "hist", "nthread": 1,
        }  # fmt: skip
        made = xgboost.train(given, data, ROUNDS)
        margin = isinstance(self.outcome, fc.Survival) or base is not None
        return made.predict(new, output_margin=margin)


def uci(folder: Path, name: str, outcome: Any, rule: str) -> Case:
    """Return a table of the folder uci, whose last column is the outcome y."""
    frame = pd.read_csv(folder / "uci" / f"{name}.csv", header=None)
    frame.columns = [*(f"x{j}" for j in range(frame.shape[1] - 1)), "y"]
    return Case(name.partition("_")[0], frame, outcome, rule, 4)


def heart(folder: Path) -> Case:
    """Return the heart data of four hospitals."""
    frame = pd.read_csv(folder / "heart" / "heart_4centres.csv")
    frame = frame.drop(columns=["num", "complete10", "flamby_split"])
    return Case("heart", frame, fc.Binary("y"), "natural", 4, "centre")


def deepsurv(folder: Path, name: str, rule: str) -> Case:
    """Return METABRIC or SUPPORT, at most `MOST` rows."""
    frame = tables.deepsurv(folder / "survival" / f"{name}_deepsurv.csv")
    frame = frame.sample(min(MOST, len(frame)), random_state=0).reset_index(drop=True)
    return Case(name, frame, fc.Survival("time", "event"), rule, 8)


def mds(folder: Path, rule: str) -> Case:
    """Return the MDS cohort."""
    frame = tables.mds(folder / "mds" / "mds_iwgpm_clean.csv.gz")
    return Case("mds", frame, fc.Survival("time", "event"), rule, 8)


def packaged() -> Iterator[Case]:
    """Yield the tables that need no folder."""
    gbsg2 = pd.read_csv(OWN / "gbsg2.csv")
    yield Case("gbsg2", gbsg2, fc.Survival("time", "cens"), "iid", 4)
    yield Case("diabetes", load_diabetes(as_frame=True).frame, fc.Continuous("target"), "iid", 4)


def cases(folder: Path | None) -> Iterator[Case]:
    """Yield every table with its ways to spread it."""
    yield from packaged()
    if folder is None:
        return
    yield heart(folder)
    for rule in ("iid", "by-feature"):
        yield uci(folder, "banknote_authentication", fc.Binary("y"), rule)
    for rule in ("iid", "by-feature"):
        yield uci(folder, "housing", fc.Continuous("y"), rule)
    for name in ("metabric", "support"):
        yield deepsurv(folder, name, "iid")
    for rule in SCENARIOS:
        yield mds(folder, rule)


def asked(case: Case, only: Sequence[str]) -> bool:
    """Return whether a table is asked for: all, if none is named."""
    return not only or case.name in only or case.group in only


def linear(case: Case, fed: fc.Cohort, **settings: Any) -> tuple[fc.Fit, bool]:
    """Return a linear fit, and whether it needed a min_cell of 1, or a small ridge penalty too.

    Such a fit refuses a column with few values that differ, and separated classes; where whole
    columns are missing at a site both occur.
    """
    ways: list[dict[str, Any]] = [{}, {"min_cell": 1}, {"min_cell": 1, "l2": 0.01}]
    for more in ways[:-1]:
        try:
            return fc.fit(case.linear, fed, **settings, **more), bool(more)
        except fc.FedcohortError:
            continue
    return fc.fit(case.linear, fed, **settings, **ways[-1]), True


def sent(fit: fc.Fit, sites: int) -> dict[str, float]:
    """Return kilobytes of a site in mean, those seen site by site, and the calls."""
    ledger = fit.ledger
    size = ledger.fields.map(lambda fields: sum(f["bytes"] for f in fields.values()))
    seen = ledger.verb == "gather"
    return {
        "kb": float(size.sum() / sites / 1e3),
        "seen_kb": float(size[seen].sum() / sites / 1e3),
        "calls": float(ledger.call.nunique()),
    }


def means(rows: list[dict[str, Any]], arms: Sequence[str]) -> dict[str, float]:
    """Return the mean of each arm over rows, and its standard deviation, `ARM_sd`."""
    table = pd.DataFrame(rows)
    out: dict[str, float] = {}
    for arm in arms:
        out[arm] = round(float(table[arm].mean()), 4)
        out[f"{arm}_sd"] = round(float(table[arm].std(ddof=1)), 4) if len(table) > 1 else 0.0
    return out


def gap(rows: list[dict[str, Any]], one: str, other: str, ratio: float) -> Comparison:
    """Return the mean difference of two arms over rows, with its 95 % interval."""
    table = pd.DataFrame(rows)
    return paired(table[one], table[other], ratio)


def worse(found: Comparison, metric: str) -> bool:
    """Return whether the first arm is worse, with an interval that excludes 0."""
    return found.low > 0 if metric == "rmse" else found.high < 0


def told(name: str, found: Comparison, digits: int = 4) -> dict[str, float]:
    """Return a comparison as figures: NAME, NAME_low and NAME_high."""
    of = {"": found.difference, "_low": found.low, "_high": found.high}
    return {f"{name}{end}": round(value, digits) for end, value in of.items()}
