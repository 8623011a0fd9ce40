"""Permutation importance of columns in a ridge regression of the outcome.

With standardised columns x_j, one-hot for categories, a linear score f = Σ_j x_j β_j minimises

    survival     −(1/n) Σ_deaths [f − log Σ_{R(t)} e^f] + (λ/2)‖β‖²      (Cox, Breslow ties)
    otherwise    (1/2n) ‖y − f‖² + (λ/2)‖β‖²                              (y one-hot for classes)

and a column's importance is the mean rise of the first term over `SHUFFLES` permutations of its
rows. The permutations are always the same, so the result depends on the table alone.

It runs on one table, before there are sites: nothing is revealed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Variable
from fedcohort.data.encode import code_column, column_of, number_column
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.read.drafting import draft
from fedcohort.data.words import sorted_levels
from fedcohort.numerics.survival import risk_set_sums, slots
from fedcohort.protocol.errors import DataError

#: λ in the header; for standardised columns.
RIDGE = 0.01
#: Permutations of each column.
SHUFFLES = 10
#: Steps of the Cox fit.
STEPS = 12

#: A fit and its loss: x (n, p) → coefficients (p, k); scores (n, k) → loss.
_Fit = Callable[[Array], Array]
_Loss = Callable[[Array], float]


def most_predictive(frame: pd.DataFrame, outcome: Outcome) -> str:
    """Return the name of the most important column; the first of equals.

    Raises
    ------
    DataError : no column varies, or the outcome breaks a rule.
    """
    found = importance(frame, outcome)
    if not found:
        raise DataError("no column varies, so none predicts the outcome. Name a feature.")
    return max(found, key=lambda name: found[name])


def importance(frame: pd.DataFrame, outcome: Outcome) -> dict[str, float]:
    """Return the rise of the loss when a column is permuted, by column name."""
    blocks = {v.name: _block(frame, v) for v in draft(frame, outcome).features(outcome)}
    blocks = {name: x for name, x in blocks.items() if x.shape[1]}
    if not blocks:
        return {}
    fit, loss = (
        _survival(frame, outcome) if isinstance(outcome, Survival) else _target(frame, outcome)
    )
    beta = fit(np.column_stack(list(blocks.values())))
    parts: dict[str, Array] = {}
    start = 0
    for name, x in blocks.items():
        parts[name] = x @ beta[start : start + x.shape[1]]
        start += x.shape[1]
    score = np.sum(list(parts.values()), axis=0)
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(frame)) for _ in range(SHUFFLES)]
    base = loss(score)
    return {
        name: float(np.mean([loss(score - part + part[o]) for o in orders])) - base
        for name, part in parts.items()
    }


def sort_key(frame: pd.DataFrame, name: str) -> Array:
    """Return numbers (n,) that order the rows by a column: levels in their order, missing last."""
    column = column_of(frame, name)
    variable = draft(frame[[name]]).variables[name]
    if variable.type in ("number", "integer", "binary"):
        key = number_column(frame, Variable(name))
    else:
        levels = sorted_levels(column.dropna().unique())
        key = code_column(frame, Variable(name, "category", levels)).astype(float)
        key[key < 0] = np.nan
    return np.where(np.isnan(key), np.inf, key)


def _block(frame: pd.DataFrame, variable: Variable) -> Array:
    """Return one variable's standardised columns (n, 0 or more), missing values at the mean."""
    if variable.coded:
        codes = code_column(frame, variable)
        x = (codes[:, None] == np.arange(len(variable.levels))).astype(float)
    else:
        x = number_column(frame, variable)[:, None]
    if np.isnan(x).all():
        return x[:, :0]
    centred = np.nan_to_num(x - np.nanmean(x, axis=0))
    sd = centred.std(axis=0)
    varies = sd > 1e-12 * np.abs(np.nanmean(x, axis=0))
    return centred[:, varies] / sd[varies]


def _target(frame: pd.DataFrame, outcome: Outcome) -> tuple[_Fit, _Loss]:
    """Return fit and loss of ridge least squares of a standardised value, or of one-hot classes."""
    name = outcome.label
    classes = sorted_levels(column_of(frame, name).dropna().unique()) if outcome.has_classes else ()
    y = outcome.values(frame, classes)[:, None]
    y = (y == np.arange(len(classes))).astype(float) if classes else y
    y = y - y.mean(axis=0)
    y = y / (y.std() or 1.0)

    def fit(x: Array) -> Array:
        return np.linalg.solve(x.T @ x / len(x) + RIDGE * np.eye(x.shape[1]), x.T @ y / len(x))

    def loss(score: Array) -> float:
        return float(np.mean((y - score) ** 2) / 2)

    return fit, loss


def _survival(frame: pd.DataFrame, outcome: Survival) -> tuple[_Fit, _Loss]:
    """Return a ridge Cox fit, and the negative log partial likelihood divided by n."""
    time, event = outcome.arrays(frame)
    times, deaths = np.unique(time[event], return_counts=True)
    if not len(times):
        raise DataError(f"column {outcome.event!r} has no event, so no column predicts one.")
    slot = slots(time, event, times)

    def risk(score: Array) -> tuple[Array, Array]:
        r = np.exp(np.clip(score[:, 0], -50.0, 50.0))
        return r, risk_set_sums(slot, len(times), r)

    def fit(x: Array) -> Array:
        beta = np.zeros((x.shape[1], 1))
        for _ in range(STEPS):
            r, s0 = risk(x @ beta)
            w = r * np.concatenate([np.cumsum(deaths / s0), [0.0]])[slot]  # expected deaths
            gradient = x.T @ (w - event) / len(x) + RIDGE * beta[:, 0]
            information = (x.T * w) @ x / len(x) + RIDGE * np.eye(x.shape[1])
            beta -= np.linalg.solve(information, gradient)[:, None]
        return beta

    def loss(score: Array) -> float:
        clipped = np.clip(score[:, 0], -50.0, 50.0)
        return float((deaths @ np.log(risk(score)[1]) - clipped[event].sum()) / len(time))

    return fit, loss
