"""Rows drawn from a model, in the units of its dictionary.

Rows are drawn `CHUNK` at a time, so that a file of any length needs the memory of one chunk. A row
with an impossible survival time, or without the condition, is drawn again (rejection sampling): the
rows are those of the model given the condition. Drawing ends with an error if fewer than one row in
`RAREST` satisfies it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from fedcohort.data.condition import Condition
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import (
    Binary,
    Category,
    Continuous,
    Count,
    Ordered,
    Outcome,
    Survival,
)
from fedcohort.data.prepare import Design
from fedcohort.data.restored import possible, restored
from fedcohort.protocol import Fitted, NothingToLearn, registry
from fedcohort.study.results.saved import OUTCOME, Saved

#: Rows that are drawn at a time.
CHUNK = 8192
#: A condition that fewer than one row in so many satisfies is given up.
RAREST = 2_000
#: So many rows are drawn at least before that.
LEAST = 100_000

_TYPES: dict[str, type[Any]] = {
    c.type: c for c in (Binary, Category, Ordered, Continuous, Count)
}  # fmt: skip


@dataclass(frozen=True)
class Drawing:
    """What rows are drawn from.

    Attributes
    ----------
    dictionary : of the table; columns that the model does not know are empty.
    outcome : among the columns, or None.
    """

    model: Fitted
    design: Design
    dictionary: Dictionary
    outcome: Outcome | None = None

    @classmethod
    def of(cls, saved: Saved) -> Drawing:
        """Return the drawing of a saved model.

        Raises
        ------
        NotSupported : its method draws no rows; the message names those that do.
        """
        method = registry.find(saved.method)
        if not method.overrides("sample"):
            raise registry.not_supported("sample", saved.method)
        outcome = saved.design.outcome or outcome_of(saved.notes.get(OUTCOME))
        return cls(saved.model, saved.design, saved.dictionary, outcome)

    @property
    def drawn(self) -> Outcome | None:
        """The outcome of the drawn rows; None if they have none."""
        known = {c.name for c in self.design.columns}
        outcome = self.outcome
        if outcome is None or self._inside or known.issuperset(outcome.columns):
            return outcome
        return None

    @property
    def filled(self) -> tuple[str, ...]:
        """Names of the columns that have values; the others are empty."""
        empty = {*self.model.undrawn()}
        columns = [c for c in self.design.columns if not empty.issuperset(c.features)]
        names = [n for c in columns for n in (c.variable.since, c.name)]
        drawn = self.drawn
        names += [self.design.offset, *(drawn.columns if drawn is not None else ())]
        return tuple(name for name in dict.fromkeys(names) if name in self.dictionary)

    @property
    def _inside(self) -> bool:
        """Whether the model has the outcome beside x."""
        own = type(self.model).sample_outcome is not Fitted.sample_outcome
        return self.design.outcome is not None and own

    def rows(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        """Return n rows as the model draws them, also with impossible outcomes."""
        if self._inside:
            x, y = self.model.sample_outcome(n, rng)
            return restored(self.design, self.dictionary, x, y, rng)
        x = self.model.sample(n, rng)
        return restored(self.design, self.dictionary, x, None, rng)

    def chunks(
        self, n: int, seed: int, condition: Condition | None = None
    ) -> Iterator[pd.DataFrame]:
        """Yield n rows, at most `CHUNK` at a time.

        Raises
        ------
        NothingToLearn : hardly any row satisfies the condition, or has a possible outcome.
        """
        rng = np.random.default_rng((seed, 0x7669727475616C))
        left, asked = n, 0
        while left:
            frame = self.rows(min(CHUNK, left if condition is None and not asked else CHUNK), rng)
            asked += len(frame)
            fine = possible(frame, self.drawn)
            if condition is not None:
                fine &= condition.holds(frame)
            found = frame.loc[fine].iloc[:left].reset_index(drop=True)
            left -= len(found)
            if asked >= LEAST and (n - left) * RAREST < asked:
                raise _rare(n - left, asked, condition)
            if len(found):
                yield found

    def table(self, n: int, seed: int, condition: Condition | None = None) -> pd.DataFrame:
        """Return n rows as one table; see `chunks`."""
        return pd.concat([*self.chunks(n, seed, condition)], ignore_index=True)


def outcome_of(spoken: Any) -> Outcome | None:
    """Return the outcome of a model's note, as `Outcome.to_dict`; None without a valid one."""
    if not isinstance(spoken, dict):
        return None
    given = {str(k): str(v) for k, v in cast("dict[Any, Any]", spoken).items()}
    if {"time", "event"} <= given.keys():
        return Survival(given["time"], given["event"], given.get("entry", ""))
    kind = _TYPES.get(given.get("type", ""))
    return None if kind is None or "y" not in given else kind(given["y"])


def _rare(found: int, asked: int, condition: Condition | None) -> NothingToLearn:
    if condition is None:
        return NothingToLearn(
            f"{found:,} of {asked:,} drawn rows have a possible outcome, such as a survival "
            f"time above 0. Train the model longer, or take another one."
        )
    return NothingToLearn(
        f"--where: {found:,} of {asked:,} drawn rows satisfy it, fewer than one in {RAREST:,}. "
        f"Weaken the condition, or check it against the dictionary's ranges."
    )
