"""Latent normals of a row: one for a number, one for a binary column, K − 1 for K levels.

A number has the score z = Φ⁻¹(F), F its share of rows below (a quantile scale). A binary value is 1
if its normal is above a threshold. Levels are nested: level k, in the order of x, is taken if its
normal is above its threshold and no earlier one was; so normal k is seen only in rows without an
earlier level, and the reference level is the rest. So no order of levels is assumed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import ndtri

from fedcohort.arrays import Array
from fedcohort.protocol import SettingError

#: Scores are those of shares this far from 0 and 1.
EDGE = 1e-3


@dataclass(frozen=True, eq=False)
class Layout:
    """Places of latent normals.

    Attributes
    ----------
    place : of each latent normal's column of x (d,).
    first : first place of the levels it belongs to (d,); its own for others.
    number : whether it is a number's score (d,).
    """

    place: Array
    first: Array
    number: Array

    @classmethod
    def of(cls, heads: Sequence[Any], *, ranks: bool) -> Layout:
        """Return the layout of a task's heads.

        Parameters
        ----------
        ranks : whether numbers are shares of rows; otherwise x has them within ±1.

        Raises
        ------
        SettingError : a number has another scale.
        """
        place: list[int] = []
        first: list[int] = []
        number: list[bool] = []
        for head in heads:
            if head.kind in ("bernoulli", "categorical", "ordinal"):
                place += head.at
                first += [head.at[0]] * len(head.at)
                number += [False] * len(head.at)
                continue
            if ranks and (head.low, head.high, head.scale) != (0.0, 1.0, 1.0):
                raise SettingError(
                    "method 'copula' reads numbers as shares of rows. Leave out 'scale', or set "
                    "it to 'quantile'."
                )
            place += head.at
            first += head.at
            number.append(True)
        return cls(np.array(place, np.int64), np.array(first, np.int64), np.array(number, bool))

    @property
    def text(self) -> str:
        """JSON text of the layout, which a site compares with that of its study.

        With places of its choice a coordinator could ask for sums over rows that two columns cut
        out, and find single rows by the difference of two.
        """
        return json.dumps([self.place.tolist(), self.first.tolist(), self.number.tolist()])

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the layout of a text."""
        place, first, number = json.loads(text)
        return cls(np.array(place, np.int64), np.array(first, np.int64), np.array(number, bool))

    @property
    def binary(self) -> Array:
        """Whether it is a binary column or a level (d,)."""
        return ~self.number

    def seen(self, x: Array) -> Array:
        """Return F of numbers, and 0 or 1 of others, of rows x (n, p): (n, d); NaN if not seen."""
        found = x[:, self.place].astype(float)
        for j in np.flatnonzero(self.place > self.first).tolist():
            before = x[:, self.first[j] : self.place[j]]
            found[(before > 0.5).any(axis=1), j] = np.nan
        return found

    def scores(self, x: Array) -> Array:
        """Return Φ⁻¹ of the shares of numbers, and 0 or 1 of others (n, d); NaN if not seen."""
        found = self.seen(x)
        number = self.number
        found[:, number] = ndtri(np.clip(found[:, number], EDGE, 1.0 - EDGE))
        return found

    def same(self) -> Array:
        """Return the pairs of normals of the same column (d, d)."""
        return self.first[:, None] == self.first[None, :]
