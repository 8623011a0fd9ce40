"""Anderson acceleration of a fixed-point iteration that is spread over sites, from sums alone.

Fu, Zhang & Boyd, "Anderson accelerated Douglas–Rachford splitting", SIAM J. Sci. Comput. 42(6),
2020. Round i at the point s_i has the residual f_i and the target g_i = s_i + α f_i. With Φ_ab = Σ
ω_j f_{j,a}ᵀ f_{j,b}, a sum over sites, the next point is

    s = Σ_i c_i g_i,   c = argmin_{Σc = 1} cᵀΦc                                            (1)

solved in differences f_{i+1} − f_i with a small ridge, so that c falls back on the plain step. A
plain step never lengthens the residual. So a point with a longer residual than all of the latest
accepted ones is rejected, and the next round takes the plain step from the last accepted point.

With a piecewise linear loss many rounds can have equal residuals: z stands, and every s_j moves by
α f_j until a row changes sides. There (1) has no solution, so the step is

    s = g_m + k (g_m − g_{m−1})                                                            (2)

with k such that it is r + 1 plain steps long. Each time that residuals stay alike, r grows
`LONGER` times; each time that such a step is rejected, it shrinks as much.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedcohort.arrays import Array

#: Ridge of eq. (1), on differences of Φ scaled to unit diagonal.
RIDGE = 1e-10
#: Number of accepted residuals that a new one is compared with, and allowed increase (rounding).
WINDOW, SLACK = 5, 1.001
#: Residuals are alike if their difference is at most this part of one; factor of r in eq. (2).
ALIKE, LONGER = 0.02, 10.0


@dataclass
class Anderson:
    """Inner products of the latest rounds, at the coordinator.

    Attributes
    ----------
    memory : number of earlier rounds that are combined; 0 gives plain steps.
    linear : whether the loss is piecewise linear, so that eq. (2) is taken.
    """

    memory: int
    linear: bool = False
    _gram: Array = field(default_factory=lambda: np.zeros((0, 0)))
    _accepted: list[float] = field(default_factory=list[float])
    #: r of eq. (2); length of the last step along equal residuals, in plain steps.
    _reach: float = 1.0
    _length: float = 1.0

    def forget(self) -> None:
        """Start again, because the iteration changed or a site was absent."""
        self._gram = np.zeros((0, 0))
        self._accepted = []

    def next(self, inner: Array) -> Array:
        """Add a round's inner products with earlier rounds and itself (last); return c (m,).

        The weights are for the latest m targets, the latest last.
        """
        old = min(len(self._gram), self.memory)
        row = inner[len(inner) - old - 1 :]
        gram = np.empty((old + 1, old + 1))
        gram[:-1, :-1] = self._gram[len(self._gram) - old :, len(self._gram) - old :]
        gram[-1] = gram[:, -1] = row
        self._gram = gram
        if old and row[-1] > SLACK * max(self._accepted):
            if self._length > 1.0:
                self._reach, self._length = max(self._reach / LONGER, 1.0), 1.0
            return np.r_[np.zeros(old - 1), 1.0, 0.0]
        self._accepted = [*self._accepted[1 - WINDOW :], float(row[-1])]
        return self._combination()

    def _combination(self) -> Array:
        """Return c of eq. (1), or of eq. (2) after residuals that are alike."""
        m = len(self._gram)
        plain = np.r_[np.zeros(m - 1), 1.0]
        if m == 1:
            self._length = 1.0
            return plain
        (one, both), (_, other) = self._gram[-2:, -2:]
        if self.linear and one - 2.0 * both + other <= ALIKE**2 * other:
            self._reach *= LONGER if self._length > 1.0 else 1.0
            k, self._length = self._reach / self._length, 1.0 + self._reach
            return np.r_[np.zeros(m - 2), -k, 1.0 + k]
        self._length = 1.0
        difference = np.diff(np.eye(m), axis=0)
        matrix = difference @ self._gram @ difference.T
        rounding = np.finfo(float).eps * self._gram.max() + np.finfo(float).tiny
        size = np.sqrt(np.maximum(np.diag(matrix), rounding))
        scaled = matrix / np.outer(size, size) + RIDGE * m * np.eye(m - 1)
        theta = np.linalg.lstsq(scaled, (difference @ self._gram[-1]) / size)[0] / size
        return plain - difference.T @ theta
