"""One site's subproblem in consensus ADMM, solved exactly: a loss with a quadratic anchor.

With rows a_i of A (n, d), targets, offsets o_i and weights c_i ≥ 0 that sum to one (all 0 where
there is no row), each class gives

    x = argmin Σ c_i φ(a_iᵀx + o_i, y_i) + ρ/2 ‖x − v‖²                                    (1)

squared   φ = (f − y)²: one eigendecomposition of AᵀCA, or of ACAᵀ where n < d, serves any ρ and v
logistic  φ = log(1 + exp(−y f)): Newton's method, each step halved until the objective falls
hinge     φ = max(1 − y f, 0): active sets, else an interior point method (`prox_hinge`)

Labels y of the last two are ±1. `InMetric` takes ‖x − v‖²_M = (x − v)ᵀM(x − v) for ‖x − v‖², and
`Hinge.smoothed` τ log(1 + exp((1 − y f)/τ)) for φ, which is above it by at most τ log 2. Nothing
here knows of sites.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import expit

from fedcohort.arrays import Array
from fedcohort.numerics.prox_hinge import hinge_prox

#: Newton's steps of a logistic subproblem, and how often one is halved.
STEPS, HALVINGS = 50, 40
#: A Newton step is the last where it promises to lower the objective by no more than this.
DECREMENT = 1e-18


class Local(Protocol):
    """A site's part of the objective, and its proximal operator."""

    def loss(self, x: Array) -> float:
        """Return Σ c_i φ at x (d,)."""
        ...

    def slope(self, x: Array) -> Array:
        """Return a subgradient of the loss at x (d,)."""
        ...

    def prox(self, v: Array, rho: float, start: Array) -> Array:
        """Return the minimiser (d,) of eq. (1), from a first guess."""
        ...


class Squared:
    """φ = (f − y)², in its eigenvectors: H = 2 AᵀCA, b = 2 AᵀC(y − o)."""

    def __init__(self, a: Array, y: Array, offset: Array, weight: Array):
        self._a, self._target, self._weight = a, y - offset, weight
        root = np.sqrt(weight)[:, None] * a
        if len(a) < a.shape[1]:
            _, sd, rows = np.linalg.svd(root, full_matrices=False)
            self._values, self._vectors = 2.0 * sd**2, rows.T
        else:
            values, self._vectors = np.linalg.eigh(2.0 * root.T @ root)
            self._values = np.maximum(values, 0.0)
        self._b = 2.0 * a.T @ (weight * self._target)

    def loss(self, x: Array) -> float:
        """Return Σ c_i (f_i − y_i)²."""
        return float(self._weight @ (self._a @ x - self._target) ** 2)

    def slope(self, x: Array) -> Array:
        """Return the gradient."""
        return 2.0 * self._a.T @ (self._weight * (self._a @ x - self._target))

    def prox(self, v: Array, rho: float, start: Array) -> Array:
        """Return (H + ρI)⁻¹ (b + ρv) = v + V (Λ + ρ)⁻¹ Vᵀ(b − Hv)."""
        q = self._vectors
        return v + q @ ((q.T @ self._b - self._values * (q.T @ v)) / (self._values + rho))


class Logistic:
    """φ = log(1 + exp(−y f)), y = ±1."""

    def __init__(self, a: Array, y: Array, offset: Array, weight: Array):
        self._signed, self._shift, self._weight = y[:, None] * a, y * offset, weight

    def loss(self, x: Array) -> float:
        """Return Σ c_i log(1 + exp(−y_i f_i))."""
        return float(self._weight @ np.logaddexp(0.0, -(self._signed @ x + self._shift)))

    def slope(self, x: Array) -> Array:
        """Return the gradient."""
        return -self._signed.T @ (self._weight * expit(-(self._signed @ x + self._shift)))

    def prox(self, v: Array, rho: float, start: Array) -> Array:
        """Return the minimiser by Newton's method."""
        x, eye = start, rho * np.eye(len(v))
        value = self.loss(x) + 0.5 * rho * float((x - v) @ (x - v))
        for _ in range(STEPS):
            wrong = expit(-(self._signed @ x + self._shift))
            slope = rho * (x - v) - self._signed.T @ (self._weight * wrong)
            bend = (self._signed.T * (self._weight * wrong * (1.0 - wrong))) @ self._signed + eye
            step = -cho_solve(cho_factor(bend), slope)
            gain = -float(slope @ step)
            if gain <= DECREMENT * (1.0 + abs(value)):
                return x + step
            tried, reached = x, math.inf
            for _ in range(HALVINGS):
                tried = x + step
                reached = self.loss(tried) + 0.5 * rho * float((tried - v) @ (tried - v))
                if reached <= value - 1e-4 * gain or gain <= 1e-14 * (1.0 + abs(value)):
                    break
                step, gain = step / 2, gain / 2
            x, value = tried, reached
        return x


class Hinge:
    """φ = max(1 − y f, 0), y = ±1."""

    def __init__(self, a: Array, y: Array, offset: Array, weight: Array):
        self._signed, self._margin, self._weight = y[:, None] * a, 1.0 - y * offset, weight

    def loss(self, x: Array) -> float:
        """Return Σ c_i max(1 − y_i f_i, 0)."""
        return float(self._weight @ np.maximum(self._margin - self._signed @ x, 0.0))

    def slope(self, x: Array) -> Array:
        """Return a subgradient: 0 for a row on the margin."""
        return -self._signed.T @ (self._weight * (self._signed @ x < self._margin))

    def prox(self, v: Array, rho: float, start: Array) -> Array:
        """Return the minimiser by active sets, else by an interior point method."""
        return hinge_prox(self._signed, self._margin, self._weight, v, rho, start)

    def smoothed(self, x: Array, tau: float) -> tuple[float, Array, Array, Array]:
        """Return the smoothed loss at x (d,), its slope (d,), curvature (d, d), and weights (n,).

        Parameters
        ----------
        tau : τ > 0, in margins; the weights, by which rows enter the curvature, are 4 c p(1 − p)
            with p = 1/(1 + exp(−(1 − y f)/τ)).
        """
        short = (self._margin - self._signed @ x) / tau
        p = expit(short)
        value = tau * float(self._weight @ np.logaddexp(0.0, short))
        bend = self._weight * p * (1.0 - p)
        curvature = (self._signed.T * (bend / tau)) @ self._signed
        return value, -self._signed.T @ (self._weight * p), curvature, 4.0 * bend


class InMetric:
    """A site's part in the coordinates u = Lᵀx, in which ‖x‖²_M with M = LLᵀ is ‖u‖²."""

    def __init__(self, loss: str, a: Array, y: Array, offset: Array, weight: Array, metric: Array):
        self._root = np.linalg.cholesky(metric)
        rows = solve_triangular(self._root, a.T, lower=True).T
        self._turned = LOCAL[loss](rows, y, offset, weight)

    def loss(self, x: Array) -> float:
        """Return Σ c_i φ at x (d,)."""
        return self._turned.loss(self._root.T @ x)

    def slope(self, x: Array) -> Array:
        """Return a subgradient of the loss at x (d,)."""
        return self._root @ self._turned.slope(self._root.T @ x)

    def prox(self, v: Array, rho: float, start: Array) -> Array:
        """Return the minimiser of eq. (1) with ‖x − v‖²_M, from a first guess."""
        u = self._turned.prox(self._root.T @ v, rho, self._root.T @ start)
        return solve_triangular(self._root, u, lower=True, trans="T")


LOCAL: dict[str, type[Squared] | type[Logistic] | type[Hinge]] = {
    "squared": Squared,
    "logistic": Logistic,
    "hinge": Hinge,
}
