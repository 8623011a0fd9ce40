"""Joint imputation: missing values from a multivariate normal distribution of all columns.

Its variables are the numbers, the binary columns as 0 and 1, and an indicator of each level but the
first. A missing number becomes its conditional mean. A missing binary value becomes 1 if its
conditional mean is above 1/2. A missing level becomes the level with the largest conditional mean
of its indicator; that of the first level is one minus the sum of the others. Equations in
`numerics.gaussian`.

Allison, "Missing Data", 2001, and Schafer, "Analysis of Incomplete Multivariate Data", 1997, treat
categories so. The outcome takes no part, so that new rows are filled in the same way.
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
    """Parameters of the normal distribution.

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
        """Rebuild it from `dataclasses.asdict`, also after JSON."""
        rows = tuple(tuple(row) for row in plain["covariance"])
        return cls(tuple(plain["mean"]), rows, plain["rounds"], plain["change"])


def raw(columns: Sequence[Column], values: Sequence[Array]) -> Array:
    """Return the variables (n, d) of the normal distribution, NaN if missing."""
    return np.column_stack([c.raw(v) for c, v in zip(columns, values, strict=True)])


def completed(joint: Joint, columns: Sequence[Column], values: Sequence[Array]) -> list[Array]:
    """Return the columns' values with each missing one filled in, given the others of its row."""
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
