"""Inputs of a site's rules: its own columns, and the other sites' votes.

A column's place a and log spread b are in the other sites' sd, eq. (1) of `others`, with the
squared error of the site's own number added.

Revealed: see `steps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedcohort.algorithms.feedback import others, own
from fedcohort.algorithms.feedback.others import Usual
from fedcohort.arrays import Array
from fedcohort.data.encode import Encoded

#: Fewest rows and sites, of the others, from which a pair of columns is known.
ROWS, SITES = 50, 2
#: Least missing share of an empty column.
NONE = 0.9
#: Least eigenvalue of a matrix of correlations.
LEAST = 0.02


@dataclass(frozen=True)
class Here:
    """A site's own columns; p variables, numbers first, then codes; d columns of associations.

    Attributes
    ----------
    rows : number of rows.
    known : number of values of each variable (p,).
    numbers : place and spread of each number.
    distinct : whether each variable has more than one value.
    counts : rows by level of each code.
    pairs, x : see `own`.
    two : whether the label has two kinds.
    copies, expected : rows that are copies, and their number expected by chance.
    """

    rows: int
    min_cell: int
    known: Array
    numbers: list[own.Known]
    distinct: Array
    counts: list[Array]
    pairs: own.Pairs
    x: Array
    two: bool
    copies: int
    expected: float

    @classmethod
    def of(cls, data: Encoded, x: Array, n_levels: Array, label: Array, min_cell: int) -> Self:
        """Return the summaries of a site's rows; x (n, d) are the columns of `own.columns_of`."""
        seen = [v[~np.isnan(v)] for v in data.numbers] + [c[c >= 0] for c in data.codes]
        return cls(
            rows=own.rows_of(data),
            min_cell=min_cell,
            known=np.array([len(v) for v in seen], np.int64),
            numbers=[own.shown(v, min_cell) for v in data.numbers],
            distinct=np.array([bool((v != v[:1]).any()) for v in seen], bool),
            counts=[
                np.bincount(c[c >= 0], minlength=k)
                for c, k in zip(data.codes, n_levels.tolist(), strict=True)
            ],
            pairs=own.pairs(x, min_cell, own.events_of(data, label)),
            x=x,
            two=int(label[0]) == own.CODES,
            copies=own.copies(data),
            expected=own.by_chance(data),
        )


class Around:
    """Votes of the other sites, without the site's own.

    Parameters
    ----------
    votes : the fields of `steps.Votes`; the rest as in `steps.compare`.
    """

    def __init__(
        self,
        votes: Mapping[str, Array],
        centre: Array,
        unit: Array,
        n_levels: Array,
        label: Array,
        feature: Array,
        factors: Array,
        far: float,
    ) -> None:
        self.votes, self.centre, self.unit = votes, centre, unit
        self.far, self.factors, self.labelled = far, factors, int(label[0]) != own.NO_LABEL
        cells = range(len(centre))
        self.place = [others.usual(self._values("place", j), others.PLACE) for j in cells]
        self.spread = [others.usual(self._values("spread", j), others.SPREAD) for j in cells]
        spans = [range(j, j + 1) for j in cells]
        at = len(spans)
        for k in n_levels.tolist():
            spans.append(range(at, at + len(own.levels_of(k))))
            at = spans[-1].stop
        #: Columns of associations of each variable.
        self.spans = spans
        #: Variables that a model may use.
        self.feature = feature

    def _values(self, name: str, j: int) -> Array:
        return others.value_of(others.cast(self.votes[name][j]))

    def shares(self, name: str, j: int) -> Array:
        """Return the other sites' shares (k,) of a variable, ascending."""
        return others.cast(self.votes[name][j]) / others.SHARES

    def off(self, j: int, place: float, spread: float, n: int) -> tuple[float, float]:
        """Return a and b for number j, given a place and a spread."""
        wide = spread / self.unit[j]
        return (
            _in_sd((place - self.centre[j]) / self.unit[j], self.place[j], 1.6 * wide / np.sqrt(n)),
            _in_sd(float(np.log(wide)), self.spread[j], 1.2 / np.sqrt(n)),
        )

    def middle(self, j: int) -> tuple[float, float]:
        """Return the other sites' median place and spread of number j, in its unit."""
        place = self.centre[j] + self.unit[j] * self.place[j].middle
        return float(place), float(self.unit[j] * np.exp(self.spread[j].middle))

    @property
    def links(self) -> tuple[Array, Array]:
        """Mean and variance between sites of atanh r (d, d), NaN with fewer than two sites."""
        k = self.votes["k"].astype(float)
        few = k < 2
        safe = np.where(few, 2.0, k)
        mean = self.votes["z"] / safe
        own_part = np.maximum(self.votes["z2"] - safe * mean**2, 0.0)
        variance = (others.PRIOR * others.LINK**2 + own_part) / (others.PRIOR + safe - 1)
        return np.where(few, np.nan, mean), variance

    @property
    def tells(self) -> Array:
        """Columns (d,) whose association with the label is known from enough rows and sites."""
        return (self.votes["n"][-1] >= ROWS) & (self.votes["k"][-1] >= SITES)

    @property
    def r(self) -> Array:
        """Correlations within the other sites, (d, d); 0 if unknown."""
        n = self.votes["n"]
        found = np.divide(self.votes["nr"], n, out=np.zeros(n.shape), where=n > 0)
        np.fill_diagonal(found, 1.0)
        return found


def _in_sd(value: float, among: Usual, error: float) -> float:
    return float((value - among.middle) / np.hypot(among.sd, error))


def proper(r: Array, used: list[int]) -> Array:
    """Return the correlations of the `used` columns, made positive definite.

    Each is from other rows and sites, so together they may belong to no table: eigenvalues below
    `LEAST` are raised to it.
    """
    value, vector = np.linalg.eigh(r[np.ix_(used, used)])
    if value[0] >= LEAST:
        return r[np.ix_(used, used)]
    found = (vector * np.maximum(value, LEAST)) @ vector.T
    sd = np.sqrt(np.diag(found))
    return found / np.outer(sd, sd)
