"""Rounds of consensus ADMM on D6.2's two examples, and its distance from CVXPY's optimum.

    python benchmarks/convex/iterations.py FOLDER

FOLDER holds UCI's housing.csv (13 columns and the price, no header) and
banknote_authentication.csv (4 columns and the class). Rows are dealt at random to 1, 2, 5 and 10
sites. Claims: the pooled objective is Clarabel's to 1e-6; at most 50 rounds of ridge, lasso,
elastic net, logistic regression and support vector machine, its smoothed start counted. Of one that
starts at 0, or has a tenth of the penalty, rounds are told and nothing is claimed. Leaves with 1 if
a claim does not hold.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cvxpy as cp
import numpy as np
import pandas as pd

import fedcohort as fc

ROUNDS, CLOSE = 50, 1e-6
SITES = (1, 2, 5, 10)
REGRESSION = {
    "ridge": [{"penalty": 0.1}, {"penalty": 0.01}],
    "lasso": [{"penalty": 0.1}, {"penalty": 0.01}],
    "elastic_net": [{"l1": 0.05, "l2": 0.05}],
}
CLASSES = {
    "logistic": [{"penalty": 0.1}, {"penalty": 0.01}],
    "svm": [{"penalty": p, **start} for start in ({}, {"start": "zero"}) for p in (0.1, 0.01)]
    + [{"penalty": 0.001}],
}


def table(path: Path) -> pd.DataFrame:
    frame = pd.read_csv(path, header=None)
    frame.columns = [f"x{k}" for k in range(frame.shape[1] - 1)] + ["y"]
    return frame


def penalties(method: str, settings: dict[str, float]) -> tuple[float, float]:
    """Return l1 and l2 of D6.2, eqs. 3.4 to 3.7."""
    if "penalty" in settings:
        size = settings["penalty"]
        return (size, 0.0) if method == "lasso" else (0.0, size)
    return settings["l1"], settings["l2"]


def objective(
    method: str, x: np.ndarray, y: np.ndarray, b0: float, beta: np.ndarray, l1: float, l2: float
) -> float:
    f = b0 + x @ beta
    margin = (2 * y - 1) * f
    losses = {
        "logistic": lambda: np.logaddexp(0, -margin),
        "svm": lambda: np.maximum(1 - margin, 0),
    }
    loss = losses.get(method, lambda: (f - y) ** 2)().mean()
    return float(loss + l1 * np.abs(beta).sum() + l2 / 2 * beta @ beta)


def least(method: str, x: np.ndarray, y: np.ndarray, l1: float, l2: float) -> float:
    """Return the least objective on the pooled table, by Clarabel."""
    mean, sd = x.mean(axis=0), x.std(axis=0)
    gamma, b = cp.Variable(x.shape[1]), cp.Variable()
    f = ((x - mean) / sd) @ gamma + b
    margin = cp.multiply(2 * y - 1, f)
    losses = {
        "logistic": lambda: cp.sum(cp.logistic(-margin)),
        "svm": lambda: cp.sum(cp.pos(1 - margin)),
    }
    loss = losses.get(method, lambda: cp.sum_squares(f - y))()
    beta = cp.multiply(gamma, 1 / sd)
    penalty = l1 * cp.norm1(beta) + l2 / 2 * cp.sum_squares(beta)
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)
    cp.Problem(cp.Minimize(loss / len(y) + penalty)).solve("CLARABEL", **tight)
    found = gamma.value / sd
    return objective(method, x, y, b.value - mean @ found, found, l1, l2)


def check(frame: pd.DataFrame, outcome: fc.Continuous | fc.Binary, method: str, settings) -> bool:
    x, y = frame.drop(columns="y").to_numpy(float), frame.y.to_numpy(float)
    l1, l2 = penalties(method, settings)
    best = least(method, x, y, l1, l2)
    told = settings.get("start") == "zero" or settings.get("penalty") == 0.001
    allowed = np.inf if told else ROUNDS
    fine, rounds, gaps = True, [], []
    for k in SITES:
        order = np.array_split(np.random.default_rng(1).permutation(len(frame)), k)
        parts = {f"site-{j}": frame.iloc[rows] for j, rows in enumerate(order)}
        fed = fc.simulate(parts, outcome=outcome)
        solver = {} if method == "svm" else {"solver": "admm"}
        fit = fc.fit(method, fed, **solver, **settings)
        model = fit.model
        gap = objective(method, x, y, model.intercept, model.coefficients, l1, l2) / best - 1
        rounds.append(fit.run.rounds)
        gaps.append(gap)
        fine &= abs(gap) <= CLOSE and fit.run.rounds <= allowed
    asked = " ".join(f"{k}={v}" for k, v in settings.items())
    print(
        f"{method:12s}{asked:24s}" + "".join(f"{r:5d}" for r in rounds)
        + f"   at most {allowed:3.0f}   largest gap {max(map(abs, gaps)):.0e}"
        + ("" if fine else "   NOT AS CLAIMED"),
        flush=True,
    )  # fmt: skip
    return fine


def main(folder: Path) -> int:
    housing, notes = table(folder / "housing.csv"), table(folder / "banknote_authentication.csv")
    print(f"{'rounds over':36s}" + "".join(f"{k:5d}" for k in SITES) + " sites")
    fine = True
    for frame, outcome, methods in (
        (housing, fc.Continuous("y"), REGRESSION),
        (notes, fc.Binary("y"), CLASSES),
    ):
        for method, choices in methods.items():
            for settings in choices:
                fine &= check(frame, outcome, method, settings)
    return int(not fine)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
