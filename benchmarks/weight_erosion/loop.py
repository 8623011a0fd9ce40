"""Algorithm 1 in plain NumPy, for many settings and folds at a time.

It is what `fedcohort.algorithms.weight_erosion.erosion` does with `visit: full`, or `batch` and
distances against the gradient (`run.py --check` holds them against each other), without sites,
messages and rules of disclosure but that of the last site that has a weight. 30 fits of folds and
settings take as long as one there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from fedcohort.algorithms.weight_erosion import erosion, gradient
from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol.step import entropy

L2 = 1e-3
#: Of the user's training rows, to choose settings by.
FOLDS = 5


@dataclass(frozen=True)
class Paths:
    """θ (R, M, P) and α (R, M, K) after each of R rounds, of M fits over K sites."""

    theta: Array
    alpha: Array


class _Site:
    """One site's rows with an intercept, in the parts of eq. (4)."""

    def __init__(self, name: str, table: LabelledTable, used: Array, seed: int):
        self.x = np.column_stack([table.x, np.ones(len(table.x))])
        self.y, self.used = table.y[:, None], used
        self.rows, self.masked = used.sum(axis=0), not used.all()
        draw = (*entropy(seed, name, 0)[:2], gradient.PARTS_TAG)
        order = np.random.default_rng(draw).permutation(len(table.x))
        self.parts = np.array_split(order, min(gradient.PARTS, len(order)))
        self.counts = [np.maximum(used[p].sum(axis=0), 1) for p in self.parts]

    def batch_slope(self, theta: Array, size: int, entropy: tuple[int, ...]) -> Array:
        """Return g (P, M), without a penalty, of a round's batch."""
        rows = gradient.batch_of(len(self.y), size, entropy)
        return self.x[rows].T @ (expit(self.x[rows] @ theta.T) - self.y[rows]) / size

    def slope(self, theta: Array) -> tuple[Array, Array]:
        """Return g (P, M), without a penalty, at θ (M, P); and slopes of single rows (n, M)."""
        wrong = 0.5 * np.tanh(0.5 * (self.x @ theta.T))
        wrong += 0.5 - self.y
        if self.masked:
            wrong *= self.used
        return self.x.T @ wrong / self.rows, wrong

    def spread(self, wrong: Array) -> Array:
        """Return v (M,) of eq. (4)."""
        k = len(self.parts)
        means = np.array([
            self.x[p].T @ wrong[p] / n for p, n in zip(self.parts, self.counts, strict=True)
        ])  # fmt: skip
        return ((means - means.mean(axis=0)) ** 2).sum(axis=(0, 1)) / (k * (k - 1))


def erode(
    sites: dict[str, LabelledTable], user: str, p_d: Array, p_s: float, against: str, rate: float,
    rounds: int, seed: int, used: Array | None = None, batch: int = 0,
) -> Paths:  # fmt: skip
    """Descend from θ = 0 with each p_d (M,), the user's rows being those `used` (n, M), 0 or 1.

    batch : rows of one, or of a smaller site all; 0 for all.
    """
    names, m = list(sites), len(p_d)
    u = names.index(user)
    held = [
        _Site(s, t, used if s == user and used is not None else np.ones((len(t.x), m)), seed)
        for s, t in sites.items()
    ]
    theta, alpha = np.zeros((m, held[0].x.shape[1])), np.ones((m, len(names)))
    others = [k for k in range(len(names)) if k != u]
    found = Paths(np.zeros((rounds, *theta.shape)), np.zeros((rounds, *alpha.shape)))
    steepest, v = np.zeros(m), []
    for r in range(rounds):
        penalty = L2 * theta.T
        penalty[-1] = 0.0
        if batch:
            draws = [(*entropy(seed, s, 0)[:2], r, gradient.TAG) for s in names]
            told = [
                (site.batch_slope(theta, batch, draw), None) if batch < len(site.y)
                else site.slope(theta)
                for site, draw in zip(held, draws, strict=True)
            ]  # fmt: skip
        else:
            told = [site.slope(theta) for site in held]
        g = np.array([slope + penalty for slope, _ in told])
        norm = np.sqrt((g[u] ** 2).sum(axis=0))
        steepest = np.maximum(steepest, norm)
        steep = norm > np.maximum(erosion.FLAT * steepest, erosion.ROUNDING)
        if against == "noise":
            v = [site.spread(w) for site, (_, w) in zip(held, told, strict=True) if w is not None]
        for k in others:
            far = ((g[k] - g[u]) ** 2).sum(axis=0)
            if against == "noise":
                own = np.maximum(v[u], erosion.SILENT * norm**2)
                d = np.maximum(0.0, far - erosion.CHANCE * (own + v[k])) / own
            else:
                d = np.sqrt(far) / np.maximum(norm, erosion.ROUNDING)
            n = len(held[k].y)
            lost = (1.0 + p_s * (r * min(batch or n, n) // n)) * p_d * d
            alpha[:, k] = np.where(steep, np.maximum(0.0, alpha[:, k] - lost), alpha[:, k])
        weight = alpha.copy()
        largest = alpha[:, others].max(axis=1, initial=0.0)
        heavy = alpha[:, others] >= erosion.HEAVY * largest[:, None]
        hidden = (largest > 0) & (heavy.sum(axis=1) >= erosion.HIDDEN)
        for k in others:
            weight[:, k] = np.where(hidden, alpha[:, k], 0.0)
        step = np.einsum("mk,kpm->mp", weight, g) / weight.sum(axis=1)[:, None]
        theta = theta - rate * step * steep[:, None]
        found.theta[r], found.alpha[r] = theta, alpha
    return found


@dataclass(frozen=True)
class Judged:
    """Of each candidate (C,): rows held out that were right, their log loss; and its path with all.

    theta (R, C, P), alpha (R, C, K).
    """

    right: Array
    loss: Array
    theta: Array
    alpha: Array


def judged(
    sites: dict[str, LabelledTable], user: str, candidates: Sequence[float], p_s: float,
    against: str, rate: float, rounds: int, seed: int, folds: int = FOLDS,
) -> Judged:  # fmt: skip
    """Fit with each p_d: all rows, and those without each fold of the user's training rows."""
    x = np.column_stack([sites[user].x, np.ones(len(sites[user].x))])
    y, n, c = sites[user].y, len(x), len(candidates)
    fold = fold_of(n, folds, seed)
    used = np.ones((n, c * (folds + 1)))
    for f in range(folds):
        used[np.ix_(fold == f, np.arange(c) + c * (f + 1))] = 0.0
    paths = erode(
        sites, user, np.tile(candidates, folds + 1), p_s, against, rate, rounds, seed, used
    )
    last = paths.theta[-1].reshape(folds + 1, c, -1)
    right, loss = np.zeros(c), np.zeros(c)
    for f in range(folds):
        own = fold == f
        z = x[own] @ last[f + 1].T
        right += ((z > 0) == (y[own, None] > 0)).sum(axis=0)
        loss += np.logaddexp(0.0, np.where(y[own, None] > 0, -z, z)).sum(axis=0)
    return Judged(right, loss, paths.theta[:, :c], paths.alpha[:, :c])


def fold_of(n: int, folds: int, seed: int) -> Array:
    """Return the fold of each of n rows (n,)."""
    return np.random.default_rng((seed, 0x666F6C64)).permutation(n) % max(folds, 1)


def optimum(tables: Sequence[LabelledTable]) -> Array:
    """Return θ (P,) at the least penalised log loss of all rows of these tables, by Newton."""
    x = np.concatenate([t.x for t in tables])
    x, y = np.column_stack([x, np.ones(len(x))]), np.concatenate([t.y for t in tables])
    ridge = np.full(x.shape[1], L2)
    ridge[-1] = 1e-9  # of rows of one class, the intercept has no optimum
    theta = np.zeros(x.shape[1])
    for _ in range(40):
        p = expit(x @ theta)
        slope = x.T @ (p - y) / len(y) + ridge * theta
        curve = (x.T * (p * (1 - p))) @ x / len(y) + np.diag(ridge)
        step = np.linalg.solve(curve, slope)
        theta = theta - step * min(1.0, 5.0 / max(np.abs(step).max(), 1e-300))
        if np.abs(step).max() < 1e-10:
            break
    return theta
