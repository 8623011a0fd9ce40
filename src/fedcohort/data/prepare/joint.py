"""Missing values filled jointly: every column given all others, by a multivariate normal.

The normal is over the columns of numbers, the binary ones as 0 and 1, and an indicator of each
level but the first. A missing number becomes its conditional mean; a missing binary value 1 if
that is above 1/2; a missing level the one whose indicator has the largest conditional mean, the
first level's being one minus the sum of the others'. Equations in `numerics.gaussian`.

Allison, "Missing Data", 2001, and Schafer, "Analysis of Incomplete Multivariate Data", 1997, treat
categories so. The outcome takes no part, so that a new row is filled in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.prepare.columns import Column
from fedcohort.numerics.gaussian import filled


@dataclass(frozen=True)
class Joint:
    """The normal distribution that fills missing values.

    Attributes
    ----------
    mean : μ (d,), in the columns' units, in the order of `raw`.
    covariance : Σ (d, d).
    rounds : of the EM algorithm.
    change : the last round's largest change of a mean or a covariance, in standard deviations.
    """

    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    rounds: int
    change: float

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Rebuild it from `dataclasses.asdict`, also after a way through JSON."""
        rows = tuple(tuple(row) for row in plain["covariance"])
        return cls(tuple(plain["mean"]), rows, plain["rounds"], plain["change"])


def raw(columns: Sequence[Column], values: Sequence[Array]) -> Array:
    """Return columns' values as the normal sees them, (n, d), NaN where missing."""
    return np.column_stack([c.raw(v) for c, v in zip(columns, values, strict=True)])


def completed(joint: Joint, columns: Sequence[Column], values: Sequence[Array]) -> list[Array]:
    """Return columns' values with every missing one filled by what is probable given the rest."""
    holes = [c.missing(v) for c, v in zip(columns, values, strict=True)]
    rows = np.flatnonzero(np.any(holes, axis=0))
    if not len(rows):
        return list(values)
    given = raw(columns, [v[rows] for v in values])
    expected = filled(given, np.array(joint.mean), np.array(joint.covariance))
    ends = np.cumsum([c.raw_width for c in columns])
    out: list[Array] = []
    for c, v, hole, end in zip(columns, values, holes, ends.tolist(), strict=True):
        guess = c.likeliest(expected[:, end - c.raw_width : end])
        whole = v.copy()
        whole[rows] = np.where(hole[rows], guess, v[rows])
        out.append(whole)
    return out
