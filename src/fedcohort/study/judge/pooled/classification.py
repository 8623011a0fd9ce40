"""Classes: discrimination, Brier score and calibration of predicted probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.outcome import levels_of
from fedcohort.metrics import classes, classification, decision
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
    seen : of a binary outcome y is 1.0 for the level that sorts last, else 0.0.
    levels : names of the classes, in the order of their numbers.
    min_cell : smallest published count of a class, except 0.
    """

    test: pd.DataFrame
    seen: Outcomes
    levels: tuple[str, ...]
    min_cell: int

    leading: ClassVar[str] = AUC.metric

    @classmethod
    def of(
        cls, problem: Problem, test: pd.DataFrame, seed: int = 0, horizon: float | None = None
    ) -> Labels:
        """See `Judge`."""
        seen = Outcomes.of(test, problem.outcome, problem.dictionary)
        kind = Classes if seen.several else Labels
        return kind(test, seen, levels_of(problem.outcome, problem.dictionary), problem.min_cell)

    @property
    def y(self) -> Array:
        """The class of each row (n,)."""
        return self.seen.y

    @property
    def can_rank(self) -> bool:
        """Whether all classes have enough rows to publish the AUC."""
        return AUC.may_be_shown(self.seen, self.min_cell)

    def on(self, rows: Array) -> Self:
        """See `Judge`."""
        some = self.test[rows].reset_index(drop=True)
        return replace(self, test=some, seen=self.seen.at(rows))

    def predicted(self, run: Run, wanted: tuple[str, ...]) -> Array:
        """Return the probabilities of class 1 (n,), or of several classes of each (n, K)."""
        return self.seen.fits(run.model.predict(run.design.matrix(self.test)))

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
        said = self.predicted(run, ())
        return group_rows(classification.calibration_groups(self.y, said, GROUPS, self.min_cell))

    def decision(self, run: Run) -> list[Row]:
        """Return the decision curve of the predicted probability of class 1."""
        said = self.predicted(run, ())
        return decision_rows(decision.of_classes(self.y, said, self.min_cell), None)


class Classes(Labels):
    """More than two classes: probabilities are (n, K)."""

    def draws(self, said: Array, weights: Array, wanted: tuple[str, ...]) -> dict[str, Array]:
        """See `Judge`."""
        y = np.asarray(self.y, np.int64)
        return {
            name: metric(y, said, weights)
            for name, metric in classes.METRICS.items()
            if name in wanted
        }

    def unlearnt(self, weights: Array, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the draws (B,) of probability 1/K for every class of every row."""
        return constant(classes.chance(len(self.levels)), weights)

    def groups(self, run: Run) -> list[Row]:
        """Return mean prediction and share of each class, by group of similar predictions."""
        said = self.predicted(run, ())
        found: list[Row] = []
        for k, level in enumerate(self.levels):
            groups = classification.calibration_groups(
                (self.y == k).astype(float), said[:, k], GROUPS, self.min_cell
            )
            found += group_rows(groups, level)
        return found

    def decision(self, run: Run) -> list[Row]:
        """Return the decision curve of each class against the rest."""
        said = self.predicted(run, ())
        found: list[Row] = []
        for k, level in enumerate(self.levels):
            one = decision.of_classes(self.y == k, said[:, k], self.min_cell)
            found += decision_rows(one, None, level)
        return found


def group_rows(groups: classification.Groups, level: str | None = None) -> list[Row]:
    """Return groups of similar predictions as rows of results.json.

    Parameters
    ----------
    level : the class that is judged against the rest; None of a yes/no outcome.
    """
    head = {} if level is None else {"class": level}
    return [
        {**head, "time": None, "group": i, "predicted": float(p), "n": int(n)}
        | observed(o, low, high)
        for i, (p, o, n, low, high) in enumerate(zip(*groups, strict=True))
    ]
