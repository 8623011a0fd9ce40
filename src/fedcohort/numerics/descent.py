"""Coordinate descent on cross-products: lasso and elastic net, without the rows.

Friedman, Hastie, Tibshirani, "Regularization paths for generalized linear models via coordinate
descent", J. Stat. Software 33(1), 2010: covariance updates, a working set, warm starts. It finds

    min q(β) = ½ βᵀGβ − cᵀβ + Σ λ₁|β_j| + ½ Σ λ₂ β_j²                                      (1)
    β_j ← soft(r_j + G_jj β_j, λ₁) / (G_jj + λ₂),   r = c − Gβ                             (2)

It is done when no coordinate breaks the conditions of the optimum, with g = r − λ₂β,

    g_j = λ₁ sign(β_j) where β_j ≠ 0,   |g_j| ≤ λ₁ where β_j = 0                           (3)

Between sweeps, the coefficients A that are not 0, of signs s, go towards the solution of

    (G_AA + λ₂ I) β_A = c_A − λ₁ s                                                         (4)

as far as none changes its sign (feature-sign search: Lee et al., NIPS 2006). So correlated
covariates, at which sweeps alone are slow, cost a few solves. Where G_AA is singular, as with more
coordinates than rows, they go along a flat direction until one is 0: the others suffice.
Coordinates are scaled by √G_jj on the way, which leaves (1) the same and makes (3) a statement
about correlations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from fedcohort.arrays import Array

#: Largest breach of eq. (3) at the end, as a share of the largest |c_j|/√G_jj.
TOL = 1e-9
#: Pivots of a matrix with a unit diagonal that are smaller than this make it singular.
PIVOT = 1e-7
#: Sweeps for one pair of penalties, before it is given up.
MOST_SWEEPS = 5000


class Descent(NamedTuple):
    """Solutions along a path.

    Attributes
    ----------
    coefficients : (L, p).
    sweeps : (L,) of eq. (2).
    breach : (L,) of eq. (3), in the unit of `TOL`; the solution stands where it is at most that.
    """

    coefficients: Array
    sweeps: Array
    breach: Array


def descend(gram: Array, cross: Array, l1: Array, l2: Array) -> Descent:
    """Minimise eq. (1) for one pair of penalties after another, each from the last solution.

    Parameters
    ----------
    gram : G (p, p), positive semidefinite; a coordinate with G_jj = 0 keeps β_j = 0.
    cross : c (p,).
    l1, l2 : (L,) ≥ 0, best in falling order.
    """
    unit = np.sqrt(np.maximum(np.diag(gram), 0.0))
    free = unit > 0
    unit = unit[free]
    g, c = gram[np.ix_(free, free)] / np.outer(unit, unit), cross[free] / unit
    size = float(np.abs(c).max(initial=0.0)) or 1.0
    out = np.zeros((len(l1), len(cross)))
    sweeps, breach = np.zeros(len(l1), int), np.zeros(len(l1))
    beta = np.zeros(len(c))
    for k, (a, b) in enumerate(zip(l1.tolist(), l2.tolist(), strict=True)):
        lasso, ridge = a / unit, b / unit**2
        beta, sweeps[k], worst = _minimum(g, c, lasso, ridge, beta, TOL * size)
        out[k, free], breach[k] = beta / unit, worst / size
    return Descent(out, sweeps, breach)


def _minimum(
    g: Array, c: Array, l1: Array, l2: Array, beta: Array, tol: float
) -> tuple[Array, int, float]:
    """Return the minimum (p,), the sweeps it took and the breach that is left.

    G has a unit diagonal; `l1` and `l2` (p,) are each coordinate's own.
    """
    beta = beta.copy()
    sweeps = 0
    while True:
        breach = _breach(c - g @ beta - l2 * beta, beta, l1)
        worst = float(breach.max(initial=0.0))
        if worst <= tol or sweeps == MOST_SWEEPS:
            return beta, sweeps, worst
        _sweep(g, c, l1, l2, beta, np.flatnonzero((beta != 0) | (breach > tol)))
        _settle(g, c, l1, l2, beta)
        sweeps += 1


def _breach(slope: Array, beta: Array, l1: Array) -> Array:
    """Return by how much each coordinate breaks eq. (3), given g (p,)."""
    return np.where(
        beta != 0, np.abs(slope - l1 * np.sign(beta)), np.maximum(np.abs(slope) - l1, 0.0)
    )


def _sweep(g: Array, c: Array, l1: Array, l2: Array, beta: Array, working: Array) -> None:
    """Do eq. (2) once for each coordinate of `working` (k,), in place."""
    inner = g[np.ix_(working, working)]
    left = (c - g @ beta)[working]
    lasso, below = l1[working].tolist(), (inner.diagonal() + l2[working]).tolist()
    now = beta[working].tolist()
    for j, was in enumerate(now):
        pull = float(left[j]) + float(inner[j, j]) * was
        moved = max(abs(pull) - lasso[j], 0.0) / below[j]
        moved = moved if pull > 0 else -moved
        if moved != was:
            left -= (moved - was) * inner[j]
            now[j] = moved
    beta[working] = now


def _settle(g: Array, c: Array, l1: Array, l2: Array, beta: Array) -> None:
    """Go to eq. (4), in place; where a coefficient comes to 0 on the way, go on without it."""
    while (held := np.flatnonzero(beta)).size:
        now, sign = beta[held], np.sign(beta[held])
        found, flat = _factored(g[np.ix_(held, held)] + np.diag(l2[held]))
        if flat:
            aim, limit = now - np.copysign(1.0, l1[held] * sign @ found) * found, np.inf
        else:
            aim, limit = cho_solve((found, True), c[held] - l1[held] * sign), 1.0
        crossing = np.flatnonzero((aim * sign < now * sign) & (l1[held] > 0))
        share = now[crossing] / (now[crossing] - aim[crossing])
        first = float(share.min(initial=limit))
        if first == np.inf:
            return
        beta[held] = now + first * (aim - now)
        if first == limit:
            return
        beta[held[crossing[share == first]]] = 0.0


def _factored(inner: Array) -> tuple[Array, bool]:
    """Return a matrix's Cholesky factor (k, k), or a direction (k,) in which it is flat, and which.

    In that direction only the absolute values of eq. (1) change.
    """
    try:
        root = np.linalg.cholesky(inner)
        if root.diagonal().min() > PIVOT:
            return root, False
    except np.linalg.LinAlgError:
        root = None
    values, vectors = np.linalg.eigh(inner)
    if root is None or values[0] < PIVOT**2 * values[-1]:
        return vectors[:, 0], True
    return root, False
