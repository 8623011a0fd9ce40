"""Interface of judges of any kind of task, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome
from fedcohort.metrics.decision import Decision
from fedcohort.privacy.disclosure.counts import fewest
from fedcohort.protocol import Row
from fedcohort.study.run.engine import Problem, Run

#: A metric that is not defined for these rows is None.
Metrics = dict[str, float | None]


def constant(chance: Mapping[str, float], weights: Array) -> dict[str, Array]:
    """Return the chance value of each metric, B times (B,), for weights (B, n)."""
    return {name: np.full(len(weights), value) for name, value in chance.items()}


def observed(value: float, low: float, high: float) -> Row:
    """Return a group's observed value with its 95 % interval; None if not finite."""
    numbers = {"observed": value, "low": low, "high": high}
    return {k: float(v) if np.isfinite(v) else None for k, v in numbers.items()}


def decision_rows(found: Decision, time: float | None, level: str | None = None) -> list[Row]:
    """Return a decision curve as rows of results.json.

    Parameters
    ----------
    time : horizon of the risk; None for an outcome without time.
    level : the class that is judged against the rest; None unless there are several.
    """
    keys = ("threshold", "net_benefit", "low", "high", "treat_all")
    head: Row = {} if level is None else {"class": level}
    return [
        {**head, "time": time, **dict(zip(keys, map(float, row), strict=True))}
        for row in zip(*found, strict=True)
    ]


def usual_rows(problem: Problem, test: pd.DataFrame) -> pd.DataFrame:
    """Return the rows for typical values: training rows, or test rows in a private study."""
    return problem.rows if problem.dp is None else test


class Untaught:
    """A judge that uses no training rows of a model."""

    def taught(self, problem: Problem) -> Self:
        """See `Judge`."""
        return self


@dataclass(frozen=True)
class BesideTraining:
    """A judge that compares blind rows with training rows, and predicts no outcome.

    Attributes
    ----------
    train, test : training rows of the models, and blind rows.
    outcome, dictionary : outcome for evaluation, or None; types and levels of the columns.
    seed : of the judge's draws.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    outcome: Outcome | None
    dictionary: Dictionary
    min_cell: int
    seed: int

    @classmethod
    def of(
        cls, problem: Problem, test: pd.DataFrame, seed: int = 0, horizon: float | None = None
    ) -> Self:
        """See `Judge`."""
        return cls(problem.rows, test, problem.aside, problem.dictionary, problem.min_cell, seed)

    def taught(self, problem: Problem) -> Self:
        """See `Judge`."""
        return replace(self, train=problem.rows)

    @property
    def can_rank(self) -> bool:
        """Whether there are enough rows to publish `leading`."""
        return len(self.test) >= fewest(self.min_cell)

    def on(self, rows: Array) -> Self:
        """See `Judge`."""
        return replace(self, test=self.test[rows].reset_index(drop=True))


class Judge(Protocol):
    """The blind rows of one repeat, and all that their metrics need besides predictions."""

    #: The metric that is also reported for each natural site's own test rows, as `<metric>_own`.
    leading: ClassVar[str]

    @classmethod
    def of(
        cls, problem: Problem, test: pd.DataFrame, seed: int = 0, horizon: float | None = None
    ) -> Self:
        """Return the judge of test rows; see `judge.evaluate.judge_of`."""
        ...

    @property
    def test(self) -> pd.DataFrame:
        """The blind rows."""
        ...

    @property
    def can_rank(self) -> bool:
        """Whether the rows have enough events, or enough of each class, to publish `leading`."""
        ...

    def on(self, rows: Array) -> Self:
        """Return the judge of the test rows in a mask (n,)."""
        ...

    def taught(self, problem: Problem) -> Self:
        """Return the judge of a model of these training rows, such as those of one site."""
        ...

    def predicted(self, run: Run, wanted: tuple[str, ...]) -> Any:
        """Return a fit's predictions of the test rows, as far as the wanted metrics need them."""
        ...

    def metrics(self, said: Any, wanted: tuple[str, ...]) -> Metrics:
        """Return the wanted metrics of the result of `predicted`; None if not defined."""
        ...

    def draws(self, said: Any, weights: Array, wanted: tuple[str, ...]) -> dict[str, Array]:
        """Return the wanted metrics at each of B weightings (B, n) of the test rows: (B,) each."""
        ...

    def unlearnt(self, weights: Array, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the draws (B,) of a hospital without a model: one prediction for every patient.

        Metrics that are not defined for it are left out.
        """
        ...

    def groups(self, run: Run) -> list[Row]:
        """Return predicted against observed values, by group of similar predictions."""
        ...

    def decision(self, run: Run) -> list[Row]:
        """Return the decision curve of a predicted risk: a row for each threshold."""
        ...
