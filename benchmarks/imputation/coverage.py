"""Coverage of 95 % intervals over simulated tables with values missing at random.

Three hospitals, two numbers and a binary covariate; 30 % of one number and of the binary column are
missing, by the outcome and the other number. Multiple imputation is compared with complete cases,
with single (iterative) imputation, and with the table before values were removed. A coverage over n
tables has a standard error of √(0.95 · 0.05/n).
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedcohort as fc

sys.path.append(str(Path(__file__).parents[1]))
import book

TRUTH = {"x1": 0.7, "x2": -0.5, "b": 0.6}
MI = {"impute": "multiple", "imputations": 10}
WAYS: dict[str, dict[str, Any]] = {
    "complete table": {},
    "mice": {**MI, "imputer": "mice"},
    "joint_normal": {**MI, "imputer": "joint_normal"},
    "complete cases": {},
    "single": {"impute": "iterative"},
}
VARIABLES = {"x1": {"type": "number"}, "x2": {"type": "number"}, "b": {"type": "binary"}}
OUTCOMES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "linear": ("ridge", fc.Continuous("y"), {"y": {"type": "number"}}),
    "logistic": ("logistic", fc.Binary("y"), {"y": {"type": "binary"}}),
    "cox": (
        "cox", fc.Survival("time", "event"), {"time": {"type": "time"}, "event": {"type": "event"}},
    ),
}  # fmt: skip


def table(kind: str, n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a table, and the same with missing values."""
    x1 = rng.standard_normal(n)
    x2 = 0.5 * x1 + math.sqrt(0.75) * rng.standard_normal(n)
    b = (rng.random(n) < 1 / (1 + np.exp(-0.8 * x1))) * 1.0
    eta = TRUTH["x1"] * x1 + TRUTH["x2"] * x2 + TRUTH["b"] * b
    found = pd.DataFrame({"x1": x1, "x2": x2, "b": b})
    if kind == "linear":
        found["y"] = eta + rng.standard_normal(n)
        late = (found["y"] - found["y"].mean()) / found["y"].std()
    elif kind == "logistic":
        found["y"] = (rng.random(n) < 1 / (1 + np.exp(-(eta - 0.3)))) * 1.0
        late = 2 * found["y"] - 1
    else:
        time = rng.exponential(np.exp(-eta))
        end = rng.exponential(2.0, n)
        found["time"], found["event"] = np.minimum(time, end) + 1e-6, (time <= end) * 1.0
        late = (np.log(found["time"]) - np.log(found["time"]).mean()) / np.log(found["time"]).std()
    chance = 1 / (1 + np.exp(-(1.5 * late + 0.5 * x2)))
    holes = found.copy()
    for name in ("x1", "b"):
        holes.loc[rng.random(n) < chance * 0.3 / chance.mean(), name] = np.nan
    return found, holes


def rows_of(way: str, kind: str, full: pd.DataFrame, holes: pd.DataFrame) -> pd.DataFrame:
    """Return the coefficients of one way, by covariate."""
    method, outcome, more = OUTCOMES[kind]
    frame = (
        full if way == "complete table" else holes.dropna() if way == "complete cases" else holes
    )
    parts = {f"h{k}": frame.iloc[k::3].reset_index(drop=True) for k in range(3)}
    fed = fc.simulate(parts, outcome=outcome, dictionary={"variables": {**VARIABLES, **more}})
    settings = dict(WAYS[way]) | ({"penalty": 0.0} if method == "ridge" else {})
    return fc.fit(method, fed, **settings).summary.set_index("covariate")


def found_of(way: str, kind: str, rows: int, seed: int) -> dict[str, float]:
    """Return coefficient, ends of the interval and fmi of each covariate, of one table."""
    full, holes = table(kind, rows, np.random.default_rng((seed, len(kind))))
    one = rows_of(way, kind, full, holes).loc[list(TRUTH)]
    kept = [name for name in ("coefficient", "low", "high", "df", "fmi") if name in one]
    return {f"{key}_{name}": float(one.loc[name, key]) for name in TRUTH for key in kept}


def summary(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return coverage, bias and width of each covariate over tables."""
    frame = pd.DataFrame(rows)
    figures = {"tables": float(len(frame))}
    for name, truth in TRUTH.items():
        low, high = frame[f"low_{name}"], frame[f"high_{name}"]
        value = frame[f"coefficient_{name}"]
        figures |= {
            f"cover_{name}": round(float(((low <= truth) & (truth <= high)).mean()), 3),
            f"bias_{name}": round(float(value.mean() - truth), 3),
            f"bias_error_{name}": round(float(value.std() / math.sqrt(len(value))), 4),
            f"width_{name}": round(float((high - low).mean()), 3),
        }
        if f"fmi_{name}" in frame:
            figures[f"fmi_{name}"] = round(float(frame[f"fmi_{name}"].mean()), 3)
    return figures


def main() -> None:
    """Print coverage, bias and width, by outcome and way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--only", nargs="*", default=list(OUTCOMES), choices=list(OUTCOMES))
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--lines", type=Path, required=True, help="finished tables, to go on from")
    book.asks_out(parser)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = book.Book(asked.lines)
    for seed in range(asked.tables):
        for kind in asked.only:
            for way in asked.ways:
                of = {"outcome": kind, "way": way, "rows": asked.rows, "seed": seed}
                if not lines.lacks(of):
                    continue
                try:
                    lines.write(of, found_of(way, kind, asked.rows, seed))
                except fc.FedcohortError as error:
                    print(of, error, flush=True)
    figures = {
        f"{kind} {way}".replace(" ", "_"): summary(rows)
        for kind in asked.only
        for way in asked.ways
        if (rows := lines.rows(outcome=kind, way=way, rows=asked.rows))
    }
    for group, found in figures.items():
        print(group, found, flush=True)
    book.keep(asked.out, figures)


if __name__ == "__main__":
    main()
