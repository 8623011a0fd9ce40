"""Start of EM, and rotation of W of several sites to one frame.

W is known only up to a rotation of the latent axes: W x = (W R)(Rᵀ x). So before the mean of W over
sites, each is turned as near as possible to one frame F, the orthogonal Procrustes problem: R = U
Vᵀ of the singular vectors of Wᵀ F = U S Vᵀ. If the sites' W differ only by a rotation, this makes
them equal for any F. The rotation must be found from columns that all sites have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.algorithms.multiview_ppca.maths.model import Theta, Views
from fedcohort.algorithms.multiview_ppca.maths.moments import Pattern
from fedcohort.arrays import Array

#: Least noise at the start, as a share of the largest eigenvalue.
LEAST = 1e-3


def principal(found: Sequence[Pattern], views: Views, w: Array | None = None) -> Theta:
    """Return principal components as parameters (Tipping and Bishop, 1999).

    Each pair of columns uses the rows that have both.

    Parameters
    ----------
    w : W (p, q) to use instead of components, in units of the columns' standard deviations.
    """
    p, q = len(views.of), views.q
    rows, total = np.zeros(p), np.zeros(p)
    for one in found:
        rows[one.columns] += one.rows
        total[one.columns] += one.rows * one.mean
    mu = np.divide(total, rows, out=np.zeros(p), where=rows > 0)
    both, cross = np.zeros((p, p)), np.zeros((p, p))
    for one in found:
        at, off = np.ix_(one.columns, one.columns), one.mean - mu[one.columns]
        both[at] += one.rows
        cross[at] += one.factor.T @ one.factor + one.rows * np.outer(off, off)
    cross = np.divide(cross, both, out=np.zeros((p, p)), where=both > 0)
    if w is not None:
        sd = np.sqrt(cross.diagonal())
        spread = views.pooled(np.square(sd)) / np.bincount(views.noise)
        return Theta(mu, w * sd[:, None], np.where(spread > 0, spread, 1.0))
    values, vectors = np.linalg.eigh(cross)
    values, vectors = values[::-1], vectors[:, ::-1]
    seen = int((rows > 0).sum())
    rest = values[q:seen]
    noise = max(float(rest.mean()) if len(rest) else 0.0, LEAST * float(values[0]))
    noise = noise if noise > 0 else 1.0
    k = min(q, p)
    loadings = np.zeros((p, q))
    loadings[:, :k] = vectors[:, :k] * np.sqrt(np.maximum(values[:k] - noise, LEAST * noise))
    return Theta(mu, loadings * views.free, np.full(views.noises, noise))


def turned(theta: Theta, frame: Array, columns: Array, views: Views) -> Theta:
    """Return θ with its latent axes turned towards a frame (p, q), by these columns.

    Nothing is turned if a view uses fewer latent dimensions than others: the axes are then fixed.
    """
    if not views.free.all() or not len(columns):
        return theta
    u, _, v = np.linalg.svd(theta.w[columns].T @ frame[columns])
    turn = u @ v
    centre = None if theta.centre is None else turn.T @ theta.centre
    return Theta(theta.mu, theta.w @ turn, theta.variance, centre)
