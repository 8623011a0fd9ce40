"""Rows completed by chained equations: each missing column in turn, given all others.

Van Buuren, "Flexible Imputation of Missing Data", 2nd ed. 2018, section 4.5. With a draw of the
coefficients of every column's regression (`conditionals`), a sweep draws each missing entry of a
row from its column's distribution given the row's other entries, as known or last drawn. A chain
keeps its draws of several sweeps, and a row's sweeps take them in turn, as the chain did: the
regressions of one draw need not belong to any joint distribution, so that sweeps by one draw alone
may grow without end where columns are nearly collinear. After `SWEEPS` sweeps the entries are one
draw; the mean of conditional means over the later half of the sweeps, and over the chains, is the
point imputation.

Nothing is revealed here: rows are completed where they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.imputing import conditionals
from fedcohort.data.prepare import Head

#: Sweeps over a row's missing columns, with coefficients that are known.
SWEEPS = 60


@dataclass(frozen=True, eq=False)
class Chain:
    """Regressions of all columns, with draws of their coefficients by M chains in S sweeps.

    Attributes
    ----------
    heads : of the columns of x, in order.
    uses : by column the places in x that its regression uses.
    coefficients : by column (M, S, k).
    spread : of each draw and column (M, S, H).
    """

    heads: tuple[Head, ...]
    uses: tuple[Array, ...]
    coefficients: tuple[Array, ...]
    spread: Array

    @property
    def draws(self) -> int:
        """Number M of chains."""
        return len(self.spread)

    def only(self, m: int) -> Chain:
        """Return the regressions of chain m alone."""
        return Chain(
            self.heads,
            self.uses,
            tuple(c[m : m + 1] for c in self.coefficients),
            self.spread[m : m + 1],
        )

    def drawn(self, x: Array, rng: np.random.Generator) -> Array:
        """Return x (n, p) with one draw of its missing entries, by one chain."""
        m = int(rng.integers(self.draws))
        return np.where(
            np.isnan(x), conditionals.unscaled(self._swept(x, m, rng)[0], self.heads), x
        )

    def mean(self, x: Array, rng: np.random.Generator) -> Array:
        """Return x (n, p) with the mean of its missing entries, over all chains."""
        return np.where(np.isnan(x), self._moments(x, rng)[0], x)

    def sd(self, x: Array, rng: np.random.Generator) -> Array:
        """Return the standard deviation of the missing entries of x (n, p), 0 for known ones."""
        return np.where(np.isnan(x), self._moments(x, rng)[1], 0.0)

    def _moments(self, x: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return mean and standard deviation (n, p) of the missing entries."""
        total, squares = np.zeros(x.shape), np.zeros(x.shape)
        for m in range(self.draws):
            end, mean = self._swept(x, m, rng)
            total += mean
            squares += np.square(conditionals.unscaled(end, self.heads))
        mean = total / self.draws
        return mean, np.sqrt(np.maximum(squares / self.draws - mean**2, 0.0))

    def _swept(self, x: Array, m: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return u (n, p) after the last sweep, and the mean x (n, p) of the conditional means."""
        u = conditionals.scaled(x, self.heads)
        holes = [np.flatnonzero(np.isnan(u[:, head.at[0]])) for head in self.heads]
        for head, rows in zip(self.heads, holes, strict=True):
            u[np.ix_(rows, np.array(head.at))] = conditionals.guess(u[rows], head, rng)
        mean, kept = np.zeros(u.shape), 0
        for sweep in range(SWEEPS if any(map(len, holes)) else 0):
            late = sweep >= SWEEPS // 2
            kept += late
            turn = sweep % self.spread.shape[1]
            for j, (head, rows) in enumerate(zip(self.heads, holes, strict=True)):
                if not len(rows):
                    continue
                cells = np.ix_(rows, np.array(head.at))
                theta, spread = self.coefficients[j][m, turn], float(self.spread[m, turn, j])
                given = head, self.uses[j], theta, spread
                if late:
                    mean[cells] += conditionals.expected(u[rows], *given)
                u[cells] = conditionals.drawn(u[rows], *given, rng)
        return u, mean / max(kept, 1)
