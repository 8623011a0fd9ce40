"""`boosting` by its strategies, beside isolated sites, pooled XGBoost and a linear predictor.

    python benchmarks/boosting/run.py strategies [--data FOLDER] [--seeds 5] [--only NAME ...]
        [--book FILE] [--out FILE]

Of each table a quarter of the rows is held out, the rest is spread over sites. Metrics on the rows
held out: AUC of classes, Harrell's C of survival, root mean squared error of values. All trees have
depth 4 and η 0.1, and 60 rounds. Arms:

    histogram, top-s, bagging, cyclic   strategies of `boosting`
    full        bagging with η times the number of sites: Flower's default, which adds trees in full
    turns       cyclic with as many rounds as sites times 60
    isolated    each site's own fit; mean over sites that can fit one
    pooled      `boosting` with all rows as one table
    xgboost     XGBoost with all rows as one table, 64 bins by its own sketch
    linear      `logistic`, `cox` or `ridge` over the sites

Of the strategies also: bytes that a site sends in mean, those of them that the coordinator sees
site by site (`seen`), and the number of calls. Claims: on each table `histogram` differs from
`pooled` and from `xgboost` by at most 0.01 (values: 5 %) in mean over seeds. A leaf has at least 10
rows over sites, and 1 in the pooled fits, so they are not equal. Leaves with 1 if a claim does not
hold.

Packaged: gbsg2, diabetes. With a folder also heart (four hospitals), banknote and housing (4
sites), METABRIC and SUPPORT (3,000 rows; 8 sites), and the MDS cohort (8 sites, four scenarios). A
seed of a table is a line of the book, and is not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
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
from fedcohort.metrics.survival.concordance import harrell

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "d62_survival")]
import tables
from book import Book, asks_out, keep

ROUNDS, RATE, DEPTH, MOST = 60, 0.1, 4, 3000
CLOSE, CLOSE_VALUE = 0.01, 0.05
SCENARIOS = ("iid", "unbalanced", "by-outcome", "by-feature")
STRATEGIES = ("histogram", "top-s", "bagging", "cyclic")
ARMS = (*STRATEGIES, "full", "turns", "isolated", "pooled", "xgboost", "linear")
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

    def over_sites(self, train: pd.DataFrame, seed: int) -> dict[str, pd.DataFrame]:
        """Return the sites' rows."""
        if self.site_column:
            return dict(partition(train, self.rule, column=self.site_column))
        return dict(partition(train, self.rule, self.sites, seed, self.outcome))

    def score(self, test: pd.DataFrame, found: Any) -> float:
        """Return the metric of predictions (n,)."""
        y = [test[name].to_numpy(float) for name in self.outcome.columns]
        if isinstance(self.outcome, fc.Survival):
            return float(harrell(np.asarray(found, float), y[0], y[1]))
        of = roc_auc_score if isinstance(self.outcome, fc.Binary) else root_mean_squared_error
        return float(of(y[0], found))


def cases(folder: Path | None) -> Iterator[Case]:
    """Yield every table with its ways to spread it."""
    gbsg2 = pd.read_csv(OWN / "gbsg2.csv")
    yield Case("gbsg2", gbsg2, fc.Survival("time", "cens"), "iid", 4)
    yield Case("diabetes", load_diabetes(as_frame=True).frame, fc.Continuous("target"), "iid", 4)
    if folder is None:
        return
    heart = pd.read_csv(folder / "heart" / "heart_4centres.csv")
    heart = heart.drop(columns=["num", "complete10", "flamby_split"])
    yield Case("heart", heart, fc.Binary("y"), "natural", 4, "centre")
    for name, outcome in (
        ("banknote_authentication", fc.Binary("y")), ("housing", fc.Continuous("y"))
    ):  # fmt: skip
        frame = pd.read_csv(folder / "uci" / f"{name}.csv", header=None)
        frame.columns = [*(f"x{j}" for j in range(frame.shape[1] - 1)), "y"]
        for rule in ("iid", "by-feature"):
            yield Case(name.partition("_")[0], frame, outcome, rule, 4)
    died = fc.Survival("time", "event")
    for name in ("metabric", "support"):
        frame = tables.deepsurv(folder / "survival" / f"{name}_deepsurv.csv")
        frame = frame.sample(min(MOST, len(frame)), random_state=0).reset_index(drop=True)
        yield Case(name, frame, died, "iid", 8)
    frame = tables.mds(folder / "mds" / "mds_iwgpm_clean.csv.gz")
    for rule in SCENARIOS:
        yield Case("mds", frame, died, rule, 8)


def by_xgboost(case: Case, train: pd.DataFrame, test: pd.DataFrame) -> Any:
    """Return the predictions of XGBoost on the pooled rows."""
    drop = [*case.outcome.columns, *([case.site_column] if case.site_column else [])]
    both = pd.get_dummies(pd.concat([train, test]).drop(columns=drop), dtype=float)
    x, z = (np.asarray(part, float) for part in (both[: len(train)], both[len(train) :]))
    y = [train[name].to_numpy(float) for name in case.outcome.columns]
    label = np.where(y[1] > 0, y[0], -y[0]) if len(y) > 1 else y[0]
    given = {
        "objective": TYPES[case.outcome.type][2], "max_depth": DEPTH, "learning_rate": RATE,
        "max_bin": 64, "tree_method": "hist", "nthread": 1,
    }  # fmt: skip
    made = xgboost.train(given, xgboost.DMatrix(x, label=label), ROUNDS)
    return made.predict(xgboost.DMatrix(z), output_margin=case.outcome.type == "survival")


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


def measured(case: Case, seed: int) -> dict[str, float]:
    """Return the figures of each arm, of one draw of rows and sites."""
    order = np.random.default_rng(seed).permutation(len(case.frame))
    cut = len(order) // 4
    test, train = (case.frame.iloc[r].reset_index(drop=True) for r in (order[:cut], order[cut:]))
    sites = case.over_sites(train, seed)
    fed = fc.simulate(sites, outcome=case.outcome, seed=seed)
    given: dict[str, Any] = {"rounds": ROUNDS, "learning_rate": RATE, "max_depth": DEPTH}
    found: dict[str, float] = {}
    others = {
        "full": {"strategy": "bagging", "learning_rate": min(RATE * len(sites), 1.0)},
        "turns": {"strategy": "cyclic", "rounds": ROUNDS * len(sites)},
    }
    for arm in (*STRATEGIES, *others):
        options = {**given, **others.get(arm, {"strategy": arm})}
        began = time.process_time()
        fit = fc.fit("boosting", fed, **options)
        found[arm] = case.score(test, fit.predict(test))
        found[f"{arm}_cpu_s"] = time.process_time() - began
        found |= {f"{arm}_{name}": value for name, value in sent(fit, len(sites)).items()}
    pooled = fc.fit("boosting", fed, strategy="centralised", **given)
    found["pooled"] = case.score(test, pooled.predict(test))
    found["xgboost"] = case.score(test, by_xgboost(case, train, test))
    linear = fc.fit(TYPES[case.outcome.type][0], fed)
    found["linear"] = case.score(test, linear.predict(test))
    alone: list[float] = []
    for site, own in sites.items():
        single = fc.simulate({site: own}, outcome=case.outcome, seed=seed)
        try:
            alone.append(case.score(test, fc.fit("boosting", single, **given).predict(test)))
        except fc.FedcohortError as error:
            print(f"{case.group} {site} alone: {error}", flush=True)
    found |= {"isolated": float(np.mean(alone)), "isolated_sites": float(len(alone))}
    return found


def figures(case: Case, rows: list[dict[str, float]]) -> dict[str, Any]:
    """Return means and standard deviations over seeds."""
    table = pd.DataFrame(rows)
    out: dict[str, Any] = {"metric": TYPES[case.outcome.type][1], "seeds": len(rows)}
    for name, values in table.items():
        arm = name in ARMS
        out[str(name)] = round(float(values.mean()), 4 if arm else 1)
        if arm:
            out[f"{name}_sd"] = round(float(values.std(ddof=1)), 4) if len(rows) > 1 else 0.0
    for other in ("pooled", "xgboost", "top-s", "bagging", "cyclic"):
        gap = table["histogram"] - table[other]
        out[f"gap_{other}"] = round(float(gap.mean()), 4)
    return out


def strategies(given: argparse.Namespace) -> int:
    """Print a row for each table; return the number of claims that do not hold."""
    book, broken = Book(given.book), 0
    print(" " * 22 + " ".join(f"{arm:>10}" for arm in ARMS))
    for case in cases(given.data):
        if given.only and case.name not in given.only and case.group not in given.only:
            continue
        for seed in range(given.seeds):
            of = {"part": "strategies", "case": case.group, "seed": seed}
            if book.lacks(of):
                book.write(of, measured(case, seed))
        lines = [json.loads(line) for line in given.book.read_text().splitlines()]
        rows = [
            {k: v for k, v in line.items() if k != "of"} for line in lines
            if line["of"]["case"] == case.group and line["of"]["seed"] < given.seeds
        ]  # fmt: skip
        found = figures(case, rows)
        print(f"{case.group:22}" + " ".join(f"{found[arm]:10.4f}" for arm in ARMS))
        for name in ("kb", "seen_kb", "calls"):
            shown = [found.get(f"{arm}_{name}", float("nan")) for arm in ARMS]
            print(f"{name:>22}" + " ".join(f"{value:10.1f}" for value in shown))
        limit = CLOSE_VALUE * found["pooled"] if found["metric"] == "rmse" else CLOSE
        for other in ("pooled", "xgboost"):
            if abs(found[f"gap_{other}"]) > limit:
                broken += 1
                print(f"{case.group}: histogram differs from {other} by {found[f'gap_{other}']}")
        keep(given.out, {case.group: found})
    print("all claims hold" if not broken else f"{broken} claims do not hold")
    return broken


def main() -> int:
    """Run a part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=["strategies"])
    parser.add_argument("--data", type=Path, help="folder with heart/, uci/, survival/ and mds/")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--book", type=Path, default=Path("runs/boosting.jsonl"))
    asks_out(parser)
    given = parser.parse_args()
    given.book.parent.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")  # small sites, filled values
    return int(strategies(given) > 0)


if __name__ == "__main__":
    sys.exit(main())
