"""Metrics of a clustering: by itself, and against known classes.

Against a reference, from the table of counts f_ij of rows in cluster i and class j, with row sums
a_i, column sums b_j and n rows (Hubert & Arabie, J. Classif. 2, 1985; Vinh, Epps & Bailey, JMLR 11,
2010):

    accuracy  Σ over the best matching of labels / n                                        (1)
    ARI       (S − E)/((A + B)/2 − E),  S = Σ C(f_ij, 2), A = Σ C(a_i, 2), B = Σ C(b_j, 2),
              E = A B / C(n, 2)                                                             (2)
    NMI       I(f) / ((H(a) + H(b))/2)                                                      (3)

By itself, with d the distance, μ_l a cluster's mean, n_l its rows and μ the mean of all
(Rousseeuw, J. Comput. Appl. Math. 20, 1987; Caliński & Harabasz, Commun. Stat. 3, 1974):

    silhouette         mean of (b_i − a_i)/max(a_i, b_i), where a_i is the mean distance to the
                       rest of the own cluster, b_i that to the next one; 0 in a cluster of one  (4)
    Calinski–Harabasz  (Σ n_l ‖μ_l − μ‖² / (k − 1)) / (Σ_l Σ_i ‖x_i − μ_l‖² / (n − k))          (5)
    simplified         as (4), with d(x_i, μ_l) for the mean distances (Hruschka, Campello & de
                       Castro, Inf. Sci. 176, 2006)                                             (6)
    cycle accuracy     share of rows whose label is that of their reconstruction (thesis 003, 4.2)

Counts, and the sums of (5) and (6), add up over sites. (4) compares rows of all sites and does not.
Every metric takes rows that count m times (bootstrap): it is that of the rows repeated. Except (4):
a row's own copies, at distance 0, are excluded from its cluster, because they would make every draw
look better than the original rows.

Revealed: nothing by itself; see the callers' sums.

The best matching (Hungarian method; Kuhn, Naval Res. Logist. Q. 2, 1955) is the one-to-one choice M
of cells with the largest Σ_{(i,j) ∈ M} f_ij, since labels have no order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from fedcohort.arrays import Array, ratio

#: Distances of (4).
DISTANCES = ("euclidean", "cosine")
#: Entries of a block of distances times draws.
BLOCK = 2**24


# against a reference --------------------------------------------------------------------


def contingency(labels: Array, reference: Array, weights: Array | None = None) -> Array:
    """Return f, rows by cluster and class: (k, l), or (B, k, l) of weights (B, n).

    Parameters
    ----------
    labels, reference : (n,) integers from 0.
    """
    labels, reference = np.asarray(labels, np.int64), np.asarray(reference, np.int64)
    k, width = int(labels.max(initial=-1)) + 1, int(reference.max(initial=-1)) + 1
    cell = labels * width + reference
    if weights is None:
        return np.bincount(cell, minlength=k * width).reshape(k, width)
    counts = np.stack([np.bincount(cell, w, minlength=k * width) for w in weights])
    return counts.reshape(len(weights), k, width)


def accuracy(table: Array) -> Array:
    """Return eq. (1) of tables (…, k, l): (…,); nan of a table without rows."""
    flat = np.asarray(table, float).reshape(-1, *np.shape(table)[-2:])
    found = np.array([matched(t) for t in flat]).reshape(np.shape(table)[:-2])
    return ratio(found, np.sum(table, axis=(-2, -1)))


def adjusted_rand(table: Array) -> Array:
    """Return eq. (2) of tables (…, k, l): (…,); 1 where both sides have one cluster."""
    f = np.asarray(table, float)
    pairs, own, other = (_pairs(part) for part in (f.reshape(*f.shape[:-2], -1), *_margins(f)))
    whole = f.sum(axis=(-2, -1))
    expected = ratio(own * other, whole * (whole - 1) / 2)
    most = (own + other) / 2
    same = most == expected  # both are one cluster, or all rows are alone
    return np.where(same, 1.0, (pairs - expected) / np.where(same, 1.0, most - expected))


def normalised_mutual_information(table: Array) -> Array:
    """Return eq. (3) of tables (…, k, l): (…,); 1 where both sides have one cluster."""
    f = np.asarray(table, float)
    whole = f.sum(axis=(-2, -1))
    rows, columns = (_entropy(part, whole) for part in _margins(f))
    joint = _entropy(f.reshape(*f.shape[:-2], -1), whole)
    usual = (rows + columns) / 2
    alone = usual <= 0
    shared = np.maximum(rows + columns - joint, 0.0)
    return np.where(np.isnan(usual), np.nan, np.where(alone, 1.0, ratio(shared, usual)))


def _margins(f: Array) -> tuple[Array, Array]:
    return f.sum(axis=-1), f.sum(axis=-2)


def _pairs(counts: Array) -> Array:
    return (counts * (counts - 1) / 2).sum(axis=-1)


def _entropy(counts: Array, whole: Array) -> Array:
    p = ratio(counts, np.asarray(whole)[..., None])
    return -xlogy(p, p).sum(axis=-1)


# by itself --------------------------------------------------------------------------------


def _distances(x: Array, distance: str, others: Array | None = None) -> Array:
    """Return the distances of rows (n, p) to each other (n, n), or to others (m, p): (n, m)."""
    from sklearn.metrics import pairwise_distances  # half of a program's start, so only here

    return pairwise_distances(x, others, metric=distance)


def silhouette(
    x: Array, labels: Array, distance: str = "euclidean", weights: Array | None = None
) -> Array:
    """Return eq. (4): (), or (B,) of weights (B, n); nan of fewer than two clusters. O(n²).

    Parameters
    ----------
    x : (n, p).
    labels : (n,) integers from 0.
    distance : one of `DISTANCES`.
    """
    n = len(labels)
    w = np.ones((1, n)) if weights is None else np.asarray(weights, float)
    found = np.full(len(w), np.nan)
    names, own = np.unique(labels, return_inverse=True)
    if n and len(names) > 1:
        apart = _distances(x, distance)
        np.fill_diagonal(apart, 0.0)
        each = max(1, BLOCK // max(1, n * len(names)))
        for start in range(0, len(w), each):
            part = slice(start, start + each)
            found[part] = _silhouettes(apart, own, len(names), w[part])
    return found[0] if weights is None else found


def _silhouettes(apart: Array, own: Array, k: int, weights: Array) -> Array:
    """Return eq. (4) of each weighting (B,), of distances (n, n) and clusters (n,) below k."""
    n, draws = len(own), len(weights)
    member = np.eye(k)[own]
    size = weights @ member
    to = (apart @ (weights[:, :, None] * member).transpose(1, 0, 2).reshape(n, -1)).reshape(
        n, draws, k
    )
    rows = np.arange(n)
    inside = to[rows, :, own].T
    among = size[:, own]
    others = among - weights
    a = np.divide(inside, others, out=np.zeros_like(inside), where=others > 0)
    mean = np.full(to.shape, np.inf)
    np.divide(to, size[None], out=mean, where=np.broadcast_to(size > 0, to.shape))
    mean[rows, :, own] = np.inf
    b = mean.min(axis=2).T
    most = np.maximum(a, b)
    defined = (others > 0) & np.isfinite(b) & (most > 0)
    s = np.divide(b - a, most, out=np.zeros_like(a), where=defined)
    several = (size > 0).sum(axis=1) > 1
    whole = np.where(several, weights.sum(axis=1), 0.0)
    return ratio((weights * s).sum(axis=1), whole)


@dataclass(frozen=True)
class Scatter:
    """Sums of eq. (5) about an origin: rows n (…, k), Σ x (…, k, p), Σ ‖x‖² (…,)."""

    rows: Array
    total: Array
    squares: Array


def scatter(
    x: Array, labels: Array, clusters: int, origin: Array, weights: Array | None = None
) -> Scatter:
    """Return the sums of eq. (5) of rows x (n, p); of weights (B, n), with B in front.

    Parameters
    ----------
    labels : (n,) integers in [0, clusters).
    origin : (p,), a point near the middle, the same at all sites: it keeps digits.
    """
    w = np.ones((1, len(labels))) if weights is None else np.asarray(weights, float)
    z = x - origin
    masks = [labels == c for c in range(clusters)]
    found = Scatter(
        np.stack([w[:, m].sum(axis=1) for m in masks], axis=1),
        np.stack([w[:, m] @ z[m] for m in masks], axis=1),
        w @ (z**2).sum(axis=1),
    )
    if weights is not None:
        return found
    return Scatter(found.rows[0], found.total[0], found.squares[0])


def calinski_harabasz(sums: Scatter) -> Array:
    """Return eq. (5) from sums (…): (…,); nan of fewer than two clusters, or of no spread."""
    rows = np.asarray(sums.rows, float)
    n, k = rows.sum(axis=-1), (rows > 0).sum(axis=-1)
    means = np.divide(
        sums.total, rows[..., None], out=np.zeros(np.shape(sums.total)), where=rows[..., None] > 0
    )
    held = (rows * (means**2).sum(axis=-1)).sum(axis=-1)
    middle = np.asarray(sums.total).sum(axis=-2) / np.maximum(n, 1.0)[..., None]
    between = held - n * (middle**2).sum(axis=-1)
    within = np.asarray(sums.squares) - held
    defined = (k > 1) & (n > k)
    return ratio(
        np.where(defined, between * (n - k), np.nan), np.where(defined, within * (k - 1), 0.0)
    )


def simplified_silhouette(
    x: Array, labels: Array, centroids: Array, distance: str = "euclidean"
) -> tuple[Array, Array]:
    """Return Σ of eq. (6) by cluster, and the rows: (k,) each, which add up over sites.

    Parameters
    ----------
    labels : (n,) integers in [0, k).
    centroids : μ (k, p) of all sites, k ≥ 2.
    """
    k, rows = len(centroids), np.arange(len(labels))
    apart = _distances(x, distance, centroids) if len(x) else np.zeros((0, k))
    a = apart[rows, labels]
    apart[rows, labels] = np.inf
    b = apart.min(axis=1, initial=np.inf)
    s = ratio(b - a, np.maximum(a, b))
    s = np.where(np.isnan(s), 0.0, s)
    return np.bincount(labels, s, k), np.bincount(labels, minlength=k)


def cycle_accuracy(labels: Array, again: Array, weights: Array | None = None) -> Array:
    """Return the share of rows (n,) whose label is that of their reconstruction: (), or (B,)."""
    same = (np.asarray(labels) == np.asarray(again)).astype(float)
    w = np.ones(len(same)) if weights is None else np.asarray(weights, float)
    return ratio(w @ same, w.sum(axis=-1))


# hazards of clusters -----------------------------------------------------------


def hazards(labels: Array, time: Array, event: Array, clusters: int) -> Array:
    """Return the hazard of each cluster, events per person-time: (clusters,).

    Both parts are sums over sites. A cluster without patients has the hazard of all patients.

    Parameters
    ----------
    labels : (n,) integers in [0, clusters).
    time, event : (n,).
    """
    died = np.bincount(labels, np.asarray(event, float), clusters)
    lived = np.bincount(labels, np.asarray(time, float), clusters)
    usual = died.sum() / lived.sum() if lived.sum() > 0 else 0.0
    return np.divide(died, lived, out=np.full(clusters, usual), where=lived > 0)


#: Stands for a label without a partner, where one side has more labels than the other.
NONE = -1


def matching(table: Array) -> Array:
    """Return the partner of each label, eq. (1): (k,) integers; `NONE` where there is none.

    Parameters
    ----------
    table : f (k, l), rows of each label in each class.
    """
    rows, columns = _assignment(np.asarray(table))
    partner = np.full(len(table), NONE)
    partner[rows] = columns
    return partner


def matched(table: Array) -> float:
    """Return the count of eq. (1), of rows that the best matching of a table (k, l) puts right."""
    table = np.asarray(table)
    return float(table[_assignment(table)].sum())


def _assignment(table: Array) -> tuple[Array, Array]:
    """Return the rows and the columns of the cells of M, eq. (1)."""
    from scipy.optimize import linear_sum_assignment  # slow to load, as all of scipy.optimize

    return linear_sum_assignment(table, maximize=True)
