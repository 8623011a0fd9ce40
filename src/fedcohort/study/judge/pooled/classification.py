"""Binary outcomes: discrimination, Brier score and calibration of predicted probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.metrics import classification, decision
from fedcohort.protocol import Row
from fedcohort.study.judge.leading import AUC, Outcomes
from fedcohort.study.judge.pooled.base import Metrics, Untaught, constant, decision_rows, observed
from fedcohort.study.run.engine import Problem, Run

#: Groups of similar predictions.
GROUPS = 5
#: Metrics of probability 1/2 for every row.
CHANCE = {"auc": 0.5, "accuracy": 0.5, "brier": 0.25, "log_loss": math.log(2.0)}


@dataclass(frozen=True)
class Labels(Untaught):
    """The classes of the test rows.

    Attributes
    ----------
    y : (n,) 1.0 for the level that sorts last, else 0.0.
    min_cell : smallest published count of a class, except 0.
    """

    test: pd.DataFrame
    y: Array
    min_cell: int

    leading: ClassVar[str] = AUC.metric

    @classmethod
    def of(
        cls, problem: Problem, test: pd.DataFrame, seed: int = 0, horizon: float | None = None
    ) -> Self:
        """See `Judge`."""
        seen = Outcomes.of(test, problem.outcome, problem.dictionary)
        return cls(test, seen.y, problem.min_cell)

    @property
    def can_rank(self) -> bool:
        """Whether both classes have enough rows to publish the AUC."""
        return AUC.may_be_shown(self.y, self.min_cell)

    def on(self, rows: Array) -> Labels:
        """See `Judge`."""
        return Labels(self.test[rows].reset_index(drop=True), self.y[rows], self.min_cell)

    def predicted(self, run: Run, wanted: tuple[str, ...]) -> Array:
        """Return the probabilities (n,) of class 1."""
        return run.model.predict(run.design.matrix(self.test))

    def metrics(self, said: Array, wanted: tuple[str, ...]) -> Metrics:
        """Return the wanted metrics of probabilities; None if not defined."""
        found = self.draws(said, np.ones((1, len(said))), wanted)
        return {k: (float(v[0]) if np.isfinite(v[0]) else None) for k, v in found.items()}

    def draws(self, said: Array, weights: Array, wanted: tuple[str, ...]) -> dict[str, Array]:
        """See `Judge`."""
        return {
            name: metric(self.y, said, weights)
            for name, metric in classification.METRICS.items()
            if name in wanted
        }

    def unlearnt(self, weights: Array, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the draws (B,) of probability 1/2 for every row."""
        return constant(CHANCE, weights)

    def groups(self, run: Run) -> list[Row]:
        """Return mean prediction and share of class 1, by group of similar predictions."""
        groups = classification.calibration_groups(
            self.y, self.predicted(run, ()), GROUPS, self.min_cell
        )
        return [
            {"time": None, "group": i, "predicted": float(p), "n": int(n)} | observed(o, low, high)
            for i, (p, o, n, low, high) in enumerate(zip(*groups, strict=True))
        ]

    def decision(self, run: Run) -> list[Row]:
        """Return the decision curve of the predicted probability of class 1."""
        said = self.predicted(run, ())
        return decision_rows(decision.of_classes(self.y, said, self.min_cell), None)
