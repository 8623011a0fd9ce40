"""A value or a count: distance and calibration of predicted values.

What is shown of groups of predictions is rounded as Table 1 is: a group is of 2 `min_cell` rows or
more, and shows no mean that tells of few of them (`ShownNumber`), since the exact mean of whole
numbers tells how many there are.
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
from fedcohort.study.judge.pooled.base import Metrics, Untaught, observed, usual_rows
from fedcohort.study.run.engine import Problem, Run

#: Most groups of similar predictions.
GROUPS = 10
_Z = float(ndtri(0.975))


@dataclass(frozen=True)
class Values(Untaught):
    """The outcomes of the test rows.

    Attributes
    ----------
    test : the blind rows.
    y : (n,).
    usual : mean outcome of all training rows, in a private study of the test rows: what is said of
        everybody where nothing is learnt.
    min_cell : of fewer rows nothing is shown.
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
        """Return the judge of test rows."""
        rows = usual_rows(problem, test), test
        known, seen = (Outcomes.of(r, problem.outcome, problem.dictionary).y for r in rows)
        return cls(test, seen, float(known.mean()), problem.min_cell)

    @property
    def can_rank(self) -> bool:
        """Whether there are so many rows that R² is shown."""
        return R2.may_be_shown(self.y, self.min_cell)

    def on(self, rows: Array) -> Values:
        """Return the judge of some of the test rows, by a mask (n,)."""
        some = self.test[rows].reset_index(drop=True)
        return Values(some, self.y[rows], self.usual, self.min_cell)

    def predicted(self, run: Run, wanted: tuple[str, ...]) -> Array:
        """Return the predicted values (n,)."""
        return run.model.predict(run.design.matrix(self.test))

    def metrics(self, said: Array, wanted: tuple[str, ...]) -> Metrics:
        """Return the wanted metrics of values; None where one is not defined."""
        found = self.draws(said, np.ones((1, len(said))), wanted)
        return {k: (float(v[0]) if np.isfinite(v[0]) else None) for k, v in found.items()}

    def draws(self, said: Array, weights: Array, wanted: tuple[str, ...]) -> dict[str, Array]:
        """Return the wanted metrics at each of B weightings (B, n) of the test rows: (B,) each."""
        with np.errstate(over="ignore", invalid="ignore"):  # a model may predict beyond any number
            return {
                name: metric(self.y, said, weights)
                for name, metric in regression.METRICS.items()
                if name in wanted
            }

    def unlearnt(self, weights: Array, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the draws (B,) of one who predicts the usual outcome for everybody."""
        return self.draws(np.full(len(self.y), self.usual), weights, wanted)

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

    Equal predictions are never parted; one group, where rows are few, and none of fewer rows.
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
    if held:  # what is left after the last whole group joins it
        name[name == current] = max(current - 1, 0)
    return [name[group] == i for i in range(int(name.max()) + 1)]
