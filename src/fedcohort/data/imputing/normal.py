"""Rows completed by a multivariate normal distribution of their features.

Equations in `numerics.gaussian`. Levels and binary columns take part as 0/1 features, as in
Schafer, "Analysis of Incomplete Multivariate Data", 1997. A draw of a normal is neither 0 nor 1:
so a column's levels are drawn with their conditional means, cut to [0, 1], as probabilities, given
the known entries and the drawn numbers of the row.

Nothing is revealed here: rows are completed where they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.imputing import conditionals
from fedcohort.data.prepare import Head
from fedcohort.numerics import gaussian


@dataclass(frozen=True, eq=False)
class Normals:
    """M normal distributions of x: draws of one whose parameters are unknown.

    Attributes
    ----------
    heads : of the columns of x, in order.
    mean, covariance : (M, p) and (M, p, p).
    """

    heads: tuple[Head, ...]
    mean: Array
    covariance: Array

    @property
    def draws(self) -> int:
        """Number M of draws."""
        return len(self.mean)

    def only(self, m: int) -> Normals:
        """Return distribution m alone."""
        return Normals(self.heads, self.mean[m : m + 1], self.covariance[m : m + 1])

    def drawn(self, x: Array, rng: np.random.Generator) -> Array:
        """Return x (n, p) with a draw of its missing entries, by one of the distributions."""
        m = int(rng.integers(self.draws))
        mean, covariance = self.mean[m], self.covariance[m]
        out = np.array(x, float)
        leveled = [h for h in self.heads if conditionals.family(h) == "levels"]
        numbers = np.setdiff1d(np.arange(x.shape[1]), [j for h in leveled for j in h.at])
        if len(numbers):
            whole = gaussian.filled(out, mean, covariance, rng)
            out[:, numbers] = whole[:, numbers]
        for head in leveled:
            rows = np.flatnonzero(np.isnan(out[:, head.at[0]]))
            if len(rows):
                own = gaussian.filled(out[rows], mean, covariance)[:, head.at]
                out[np.ix_(rows, np.array(head.at))] = conditionals.levels_drawn(head, own, rng)
        for head in self.heads:
            if conditionals.family(head) != "levels":
                j = head.at[0]
                value = conditionals.into_range(head, head.shift + head.scale * out[:, j])
                out[:, j] = np.where(np.isnan(x[:, j]), (value - head.shift) / head.scale, x[:, j])
        return out
