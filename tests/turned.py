"""Rows of sites whose every outcome follows the same effects, or at some the opposite ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

import fedcohort as fc

#: An outcome of each model of `models.predictor`.
OUTCOMES = {
    "logistic": fc.Binary("yes"),
    "linear": fc.Continuous("value"),
    "poisson": fc.Count("count"),
    "cox": fc.Survival("time", "event"),
    "softmax": fc.Category("grade"),
}


def drawn(seed: int, n: int, flip: float = 1.0) -> pd.DataFrame:
    """Return rows whose every outcome follows a + b, or its opposite."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    f = flip * (x @ [1.0, -0.8])
    time = np.round(rng.exponential(np.exp(-f)), 4) + 0.001
    return pd.DataFrame(x, columns=["a", "b"]).assign(
        yes=(rng.random(n) < expit(1.5 * f)).astype(int),
        value=f + 0.5 * rng.normal(size=n),
        count=rng.poisson(np.exp(0.6 * f)),
        time=time,
        event=(rng.random(n) < 0.8).astype(int),
        grade=(1.5 * np.outer(f, [-1, 0, 1]) + rng.gumbel(size=(n, 3))).argmax(axis=1),
    )


def seen(fit: Any, rows: pd.DataFrame) -> Any:
    """Return predictions (n,); of three classes the expected number of the class."""
    said = np.asarray(fit.predict(rows))
    return said @ [0, 1, 2] if said.ndim > 1 else said


def target(model: str, rows: pd.DataFrame) -> pd.Series:
    """Return the outcome (n,) of a model, with longer times being lower."""
    if model == "cox":
        return rows["time"].rank(ascending=False)
    return rows[OUTCOMES[model].columns[0]]


def frames(sizes: Mapping[str, int], flipped: Collection[str]) -> dict[str, pd.DataFrame]:
    """Return a table of so many rows for each site, some with the opposite effects."""
    return {s: drawn(k, n, -1.0 if s in flipped else 1.0) for k, (s, n) in enumerate(sizes.items())}


def cohort(model: str, tables: Mapping[str, pd.DataFrame]) -> Any:
    """Return sites with these tables, and the outcome of a model."""
    outcome = OUTCOMES[model]
    columns = ["a", "b", *outcome.columns]
    return fc.simulate({s: f[columns] for s, f in tables.items()}, outcome=outcome)
