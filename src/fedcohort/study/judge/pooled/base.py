"""What every judge can do, whatever the kind of task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.metrics.decision import Decision
from fedcohort.protocol import Row
from fedcohort.study.run.engine import Problem, Run

#: A metric that is not defined for these rows is None.
Metrics = dict[str, float | None]


def constant(chance: Mapping[str, float], weights: Array) -> dict[str, Array]:
    """Return each metric's value by chance as so many draws as there are weights (B, n): (B,)."""
    return {name: np.full(len(weights), value) for name, value in chance.items()}


def observed(value: float, low: float, high: float) -> Row:
    """Return what was observed in a group with its 95 % interval; None where one is not known."""
    numbers = {"observed": value, "low": low, "high": high}
    return {k: float(v) if np.isfinite(v) else None for k, v in numbers.items()}


def decision_rows(found: Decision, time: float | None) -> list[Row]:
    """Return a decision curve as rows of results.json.

    Parameters
    ----------
    time : the horizon of the risk; None of an outcome without time.
    """
    keys = ("threshold", "net_benefit", "low", "high", "treat_all")
    return [
        {"time": time, **dict(zip(keys, map(float, row), strict=True))}
        for row in zip(*found, strict=True)
    ]


def usual_rows(problem: Problem, test: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that say what is usual: of a private study the test rows."""
    return problem.pooled().frames["pooled"] if problem.dp is None else test


class Untaught:
    """A judge that takes nothing of a model's training rows."""

    def taught(self, problem: Problem) -> Self:
        """See `Judge`."""
        return self


class Judge(Protocol):
    """The blind rows of one repeat, and all that their metrics need besides predictions."""

    #: The metric that is also reported of each natural site's own test rows, as `<metric>_own`.
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
        """Whether the rows have so many events, or of either class, that `leading` is shown."""
        ...

    def on(self, rows: Array) -> Self:
        """Return the judge of some of the test rows, by a mask (n,)."""
        ...

    def taught(self, problem: Problem) -> Self:
        """Return the judge of a model of these training rows, such as those of one site alone."""
        ...

    def predicted(self, run: Run, wanted: tuple[str, ...]) -> Any:
        """Return what a fit says of the test rows, as far as the wanted metrics need it."""
        ...

    def metrics(self, said: Any, wanted: tuple[str, ...]) -> Metrics:
        """Return the wanted metrics of what `predicted` returned."""
        ...

    def draws(self, said: Any, weights: Array, wanted: tuple[str, ...]) -> dict[str, Array]:
        """Return the wanted metrics at each of B weightings (B, n) of the test rows: (B,) each."""
        ...

    def unlearnt(self, weights: Array, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        """Return the draws (B,) of a hospital whose rows give no model: every patient looks alike.

        A metric that says nothing of such a hospital is left out.
        """
        ...

    def groups(self, run: Run) -> list[Row]:
        """Return predicted against observed, by group of similar predictions."""
        ...

    def decision(self, run: Run) -> list[Row]:
        """Return the decision curve, where a risk is predicted: a row for each threshold."""
        ...
