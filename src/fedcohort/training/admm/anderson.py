"""Anderson acceleration of a fixed-point iteration that is spread over sites, from sums alone.

Fu, Zhang & Boyd, "Anderson accelerated Douglas–Rachford splitting", SIAM J. Sci. Comput. 42(6),
2020. Round i at the point s_i has the residual f_i and the target g_i = s_i + α f_i. With Φ_ab = Σ
ω_j f_{j,a}ᵀ f_{j,b}, a sum over sites, the next point is

    s = Σ_i c_i g_i,   c = argmin_{Σc = 1} cᵀΦc                                            (1)

solved in differences f_{i+1} − f_i with a small ridge, so that c falls back on the plain step. A
plain step never lengthens the residual. So a point with a longer residual than all of the latest
accepted ones is rejected, and the next round takes the plain step from the last accepted point.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedcohort.arrays import Array

#: Ridge of eq. (1), on differences of Φ scaled to unit diagonal.
RIDGE = 1e-10
#: Number of accepted residuals that a new one is compared with.
WINDOW = 5


@dataclass
class Anderson:
    """Inner products of the latest rounds, at the coordinator.

    Attributes
    ----------
    memory : number of earlier rounds that are combined; 0 gives plain steps.
    """

    memory: int
    _gram: Array = field(default_factory=lambda: np.zeros((0, 0)))
    _accepted: list[float] = field(default_factory=list[float])

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
        if old and row[-1] > max(self._accepted):
            return np.r_[np.zeros(old - 1), 1.0, 0.0]
        self._accepted = [*self._accepted[1 - WINDOW :], float(row[-1])]
        return self._combination()

    def _combination(self) -> Array:
        """Return c of eq. (1)."""
        m = len(self._gram)
        plain = np.r_[np.zeros(m - 1), 1.0]
        if m == 1:
            return plain
        difference = np.diff(np.eye(m), axis=0)
        matrix = difference @ self._gram @ difference.T
        rounding = np.finfo(float).eps * self._gram.max() + np.finfo(float).tiny
        size = np.sqrt(np.maximum(np.diag(matrix), rounding))
        scaled = matrix / np.outer(size, size) + RIDGE * m * np.eye(m - 1)
        theta = np.linalg.lstsq(scaled, (difference @ self._gram[-1]) / size)[0] / size
        return plain - difference.T @ theta
