"""A value or a count: distance and calibration of predicted values.

Published means of groups of predictions are rounded as in Table 1, since the exact mean of whole
numbers reveals their count. A group has at least 2 `min_cell` rows, and no mean that reveals few of
them (`ShownNumber`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import pandas as pd
from scipy.special import ndtri

from fedcohort.arrays import Array
from fedcohort.data.describe.shown_number import ShownNumber
from fedcohort.metrics import regression
from fedcohort.privacy.disclosure.rounding import rounded, step, unit
from fedcohort.protocol import Row
from fedcohort.study.judge.leading import R2, Outcomes
from fedcohort.study.judge.pooled.base import Metrics, Untaught, constant, observed, usual_rows
from fedcohort.study.run.engine import Problem, Run

#: Most groups of similar predictions.
GROUPS = 10
#: Metrics that are not defined for equal predictions, and their value for an uninformative model.
CHANCE = {"pcc": 0.0}
_Z = float(ndtri(0.975))


@dataclass(frozen=True)
class Values(Untaught):
    """The outcomes of the test rows.

    Attributes
    ----------
    usual : mean outcome of all training rows (in a private study: of the test rows); the prediction
        without a model.
    min_cell : nothing is published of fewer rows.
    """

    test: pd.DataFrame
    y: Array
    usual: float
    min_cell: int

    leading: ClassVar[str] = R2.metric

    @classmethod
    def of(
        cls, problem: Problem, test: pd.DataFrame, seed: int = 0, horizon: float | None = None
    ) -> Self:
        """See `Judge`."""
        rows = usual_rows(problem, test), test
        known, seen = (Outcomes.of(r, problem.outcome, problem.dictionary).y for r in rows)
        return cls(test, seen, float(known.mean()), problem.min_cell)

    @property
    def can_rank(self) -> bool:
        """Whether there are enough rows to publish R²."""
        return R2.may_be_shown(Outcomes(np.zeros(len(self.y)), self.y), self.min_cell)

    def on(self, rows: Array) -> Values:
        """See `Judge`."""
        some = self.test[rows].reset_index(drop=True)
        return Values(some, self.y[rows], self.usual, self.min_cell)

    def predicted(self, run: Run, wanted: tuple[str, ...]) -> Array:
        """Return the predicted values (n,)."""
        return run.model.predict(run.design.matrix(self.test))

    def metrics(self, said: Array, wanted: tuple[str, ...]) -> Metrics:
        """Return the wanted metrics of values; None if not defined."""
        found = self.draws(said, np.ones((1, len(said))), wanted)
        return {k: (float(v[0]) if np.isfinite(v[0]) else None) for k, v in found.items()}

    def draws(self, said: Array, weights: Array, wanted: tuple[str, ...]) -> dict[str, Array]:
        """See `Judge`."""
        with np.errstate(over="ignore", invalid="ignore"):  # predictions may overflow
            return {
                name: metric(self.y, said, weights)
                for name, metric in regression.METRICS.items()
                if name in wanted
            }

    def unlearnt(self, weights: Array, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the draws (B,) of the mean outcome as prediction for all rows."""
        found = self.draws(np.full(len(self.y), self.usual), weights, wanted)
        return found | {m: v for m, v in constant(CHANCE, weights).items() if m in wanted}

    def groups(self, run: Run) -> list[Row]:
        """Return mean prediction and mean outcome, by group of similar predictions."""
        said = self.predicted(run, ())
        if not np.isfinite(said).all():
            return []
        found: list[Row] = []
        for i, rows in enumerate(grouped(said, GROUPS, 2 * self.min_cell)):
            shown = ShownNumber.of(self.y[rows], self.min_cell)
            if shown.mean is None or shown.sd is None:
                continue
            n = int(np.count_nonzero(rows))
            s = step(float(self.y[rows].std(ddof=1)), n, unit(self.y[rows]))
            predicted = rounded(float(said[rows].mean()), s)
            half = _Z * shown.sd / math.sqrt(n)
            found.append(
                {"time": None, "group": i, "predicted": predicted, "n": n}
                | observed(shown.mean, shown.mean - half, shown.mean + half)
            )
        return found

    def decision(self, run: Run) -> list[Row]:
        """Return nothing: a value is no risk."""
        return []


def grouped(said: Array, most: int, least: int) -> list[Array]:
    """Return masks (n,) of groups of neighbouring predictions, each of `least` rows or more.

    Equal predictions stay in one group. Few rows give one group; fewer than `least` rows give none.
    """
    n = len(said)
    groups = min(most, n // max(least, 1))
    if groups < 1:
        return []
    edges = np.unique(np.quantile(said, np.arange(1, groups) / groups))
    group = np.searchsorted(edges, said, side="right")
    sizes = np.bincount(group, minlength=len(edges) + 1)
    name = np.zeros(len(sizes), np.int64)
    held = current = 0
    for i, size in enumerate(sizes):
        name[i] = current
        held += size
        if held >= least:
            current, held = current + 1, 0
    if held:  # the remaining rows join the last group
        name[name == current] = max(current - 1, 0)
    return [name[group] == i for i in range(int(name.max()) + 1)]
