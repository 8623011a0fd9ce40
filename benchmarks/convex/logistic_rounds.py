"""Rounds of `logistic` with Newton's steps, with Fisher's discriminant first, and as it is.

python benchmarks/convex/logistic_rounds.py [BANKNOTE.csv]

The file is UCI's banknote authentication: four numbers and the class, without or with a header.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression

from fedcohort.algorithms.glm import LOGISTIC, scoring
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

AS_IT_IS = scoring._farther
STEPS = {
    "newton": lambda seen, newton, ground: newton,
    "discriminant": lambda seen, newton, ground: (
        AS_IT_IS(seen, newton, ground) if len(seen) == 1 else newton
    ),
    "as it is": AS_IT_IS,
}


def tables(path: str | None) -> dict[str, LabelledTable]:
    x, score = load_diabetes(return_X_y=True, scaled=False)
    found = {"diabetes": LabelledTable(x, (score > np.median(score)).astype(float))}
    x, y = load_breast_cancer(return_X_y=True)
    found["breast cancer"] = LabelledTable(x[:, 1:9:2], y.astype(float))
    if path is not None:
        rows = pd.read_csv(path, header=None).apply(pd.to_numeric, errors="coerce").dropna()
        found["banknote"] = LabelledTable(rows.iloc[:, :-1].to_numpy(), rows.iloc[:, -1].to_numpy())
    return found


def fit(table: LabelledTable, l2: float) -> tuple[int, float]:
    """Return the rounds over five sites, and the largest difference from scikit-learn, relative."""
    where = np.random.default_rng(0).integers(0, 5, len(table.y))
    parts = [LabelledTable(table.x[where == k], table.y[where == k]) for k in range(5)]
    fed = local([Host(f"site-{k}", part, LOGISTIC.steps) for k, part in enumerate(parts)])
    names = tuple(f"x{j}" for j in range(table.x.shape[1]))
    task = Task(kind="classification", features=names)
    model = LOGISTIC.fit(fed, LOGISTIC.configure({"l2": l2}), task)
    c = 1 / (l2 * len(table.y)) if l2 else np.inf
    other = LogisticRegression(C=c, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    beta = other.fit(table.x, table.y).coef_[0]
    return len(fed.history), float(np.abs(model.coefficients - beta).max() / np.abs(beta).max())


def main() -> None:
    for name, table in tables(sys.argv[1] if len(sys.argv) > 1 else None).items():
        for l2 in (0.0, 0.001, 0.01):
            found = {}
            for kind, step in STEPS.items():
                scoring._farther = step
                found[kind] = fit(table, l2)
            rounds = ", ".join(f"{kind} {r}" for kind, (r, _) in found.items())
            print(f"{name}, l2 {l2:g}: {rounds}; from scikit-learn {found['as it is'][1]:.0e}")


if __name__ == "__main__":
    main()
