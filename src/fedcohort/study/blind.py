"""The blind rows and what a fit says of them, for the metric that leads each kind of task.

A yes/no outcome is judged as survival to time 1 of its cases and beyond it of the others: then the
C-index is the AUC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.outcome import Binary, Continuous, Count, Survival
from fedcohort.data.prepare.targets import survival_of, target_of
from fedcohort.metrics import regression
from fedcohort.metrics.concordance import Influence, influence
from fedcohort.metrics.heterogeneity import (
    Pooled,
    pooled_r2,
    pooled_share,
    r2_interval,
    share_interval,
)
from fedcohort.metrics.intervals import Interval
from fedcohort.privacy.disclosure.counts import can_rank, fewest
from fedcohort.study.engine import Run
from fedcohort.study.layout import Laid


@dataclass(frozen=True)
class Ranked:
    """Rows that are ranked.

    Attributes
    ----------
    metric : "c_index" or "auc", which `time` and `event` make the same.
    test : the rows' table.
    said, time, event : (n,), a higher risk is said of an earlier event.
    """

    metric: str
    test: pd.DataFrame
    said: Array
    time: Array
    event: Array

    @classmethod
    def of(cls, run: Run, laid: Laid, outcome: Survival | Binary) -> Ranked:
        """Return the blind rows of one fit.

        Raises
        ------
        NotSupported : the method does not predict.
        """
        test = laid.test.reset_index(drop=True)
        risk = run.model.predict(run.design.matrix(test))
        if isinstance(outcome, Survival):
            return cls("c_index", test, risk, *survival_of(test, outcome))
        case = target_of(test, outcome, run.design.classes) > 0
        return cls("auc", test, risk, np.where(case, 1.0, 2.0), case)

    @property
    def events(self) -> Array:
        """Which rows have the event, or are of class 1 (n,)."""
        return self.event

    def some(self, rows: Array) -> Ranked:
        """Return some of the rows, by their numbers (m,)."""
        test = self.test.iloc[rows].reset_index(drop=True)
        return Ranked(self.metric, test, self.said[rows], self.time[rows], self.event[rows])

    def influence(self, said: Array, rows: Array | slice = slice(None)) -> Influence:
        """Return the concordance of a risk (n,) on some of the rows."""
        if self.metric == "auc":
            said = np.unique(said, return_inverse=True)[1]
        return influence(said[rows], self.time[rows], self.event[rows])

    def lacking(self, rows: Array, min_cell: int) -> str | None:
        """Return why the concordance of some rows is not shown: few events, or of either class."""
        both = self.metric == "auc"
        if can_rank(self.event[rows], min_cell, both=both):
            return None
        return f"fewer than {fewest(min_cell)} {'rows of a class' if both else 'events'}"

    def interval(self, value: float, error: float) -> Interval:
        """Return the interval of a concordance, by its logit."""
        return share_interval(value, error)

    def pooled(self, values: Sequence[float], errors: Sequence[float]) -> Pooled:
        """Return the random-effects mean of centres' concordances (k,)."""
        return pooled_share(values, errors)


@dataclass(frozen=True)
class Valued:
    """Rows with a value.

    Attributes
    ----------
    test : the rows' table.
    said, y : (n,), what is predicted and what was seen.
    """

    test: pd.DataFrame
    said: Array
    y: Array

    metric: ClassVar[str] = "r2"
    events: ClassVar[None] = None

    @classmethod
    def of(cls, run: Run, laid: Laid, outcome: Continuous | Count) -> Valued:
        """Return the blind rows of one fit.

        Raises
        ------
        NotSupported : the method does not predict.
        """
        test = laid.test.reset_index(drop=True)
        said = run.model.predict(run.design.matrix(test))
        return cls(test, said, target_of(test, outcome, ()))

    def some(self, rows: Array) -> Valued:
        """Return some of the rows, by their numbers (m,)."""
        test = self.test.iloc[rows].reset_index(drop=True)
        return Valued(test, self.said[rows], self.y[rows])

    def influence(self, said: Array, rows: Array | slice = slice(None)) -> Influence:
        """Return R² of predictions (n,) on some of the rows."""
        return regression.influence(self.y[rows], said[rows])

    def lacking(self, rows: Array, min_cell: int) -> str | None:
        """Return why R² of some rows (n,) bool is not shown: they are few."""
        least = fewest(min_cell)
        return None if np.count_nonzero(rows) >= least else f"fewer than {least} rows"

    def interval(self, value: float, error: float) -> Interval:
        """Return the interval of an R², by the logarithm of what is not explained."""
        return r2_interval(value, error)

    def pooled(self, values: Sequence[float], errors: Sequence[float]) -> Pooled:
        """Return the random-effects mean of centres' R² (k,)."""
        return pooled_r2(values, errors)


Blind: TypeAlias = Ranked | Valued
