"""Centroids: nearest one, k-means of weighted points, aggregation of sites' centroids.

Lloyd, IEEE Trans. Inf. Theory 28(2), 1982; Arthur and Vassilvitskii, SODA 2007 (k-means++). With
points x_i of weight w_i, centroids μ_j and l(i) the nearest of them,

    W = Σ_i w_i ‖x_i − μ_l(i)‖²,   μ_j ← Σ_{i: l(i)=j} w_i x_i / Σ_{i: l(i)=j} w_i          (1)

Aggregations of m centroids of all sites to k: thesis 003, section 2.1.2.

Two partitions of the same rows are compared by their table f_ij, rows in cluster i of one and j of
the other: adjusted Rand index (Hubert and Arabie, J. Classification 2, 1985), and the smallest
positive number of rows in the difference of a union of clusters of each. With clusters as nodes and
f as edge weights, two unions are two sides of a graph and these rows the cut between them: the
number is the least cut of a connected part (Stoer and Wagner, J. ACM 44(4), 1997). Any difference
of sums over clusters of both is of at least so many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

import numpy as np
from threadpoolctl import ThreadpoolController

from fedcohort.arrays import Array

#: Squared distances that differ by less than this part of their terms are a tie.
TIE = 1e-12

#: Part of the largest distance from the middle, along a coordinate, by which centroids differ that
#: are not one; or these units of rounding at the largest coordinate, where that is more.
APART, ROUNDED = 1e-6, 8.0

#: Rows per block of distances.
PART = 8192


def nearest(x: Array, centroids: Array) -> Array:
    """Return the nearest of centroids (k, d) to each row of x (n, d): (n,); of a tie the first.

    Ties have a tolerance, so the order and the number of rows decide none.
    """
    found = np.empty(len(x), np.intp)
    about = np.add.reduce(centroids, 0) / len(centroids)
    c = centroids - about
    own = np.einsum("kd,kd->k", c, c)
    twice, most = 2.0 * c.T, TIE * own.max()
    for start in range(0, len(x), PART):
        z = x[start : start + PART] - about
        d = own - z @ twice
        slack = TIE * np.einsum("nd,nd->n", z, z) + most
        found[start : start + PART] = (d <= (d.min(axis=1) + slack)[:, None]).argmax(axis=1)
    return found


def squared_distances(x: Array, centroids: Array) -> Array:
    """Return the squared distance of each row of x (n, d) to each centroid (k, d): (n, k)."""
    return np.stack([((x - c) ** 2).sum(axis=1) for c in centroids], axis=1)


def spread_out(points: Array, weights: Array, k: int, rng: np.random.Generator) -> Array:
    """Return k of points (m, d) drawn by k-means++, with weights (m,): (k, d).

    A point's probability is its weight times its squared distance to those drawn before.
    """
    chosen = [int(rng.choice(len(points), p=weights / weights.sum()))]
    left = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < k:
        mass = weights * left
        mass[chosen] = 0.0
        if not mass.any():
            mass = np.ones(len(points))
            mass[chosen] = 0.0
        chosen.append(int(rng.choice(len(points), p=mass / mass.sum())))
        left = np.minimum(left, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return points[chosen]


def kmeans(x: Array, k: int, *, starts: int, seed: int) -> tuple[Array, float]:
    """Return the centroids (k, d) of the best of some starts of scikit-learn's k-means, and W.

    It uses one thread: several add up in the order in which they end, so the last digits would
    differ
    between runs and machines.
    """
    from sklearn.cluster import KMeans  # half of a program's start; its threads are known after it

    with _threads().limit(limits=1):
        found = KMeans(k, n_init=cast("Any", starts), random_state=seed).fit(x)
    return found.cluster_centers_, float(cast("Any", found.inertia_))


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def weighted_kmeans(
    points: Array,
    weights: Array,
    k: int,
    rng: np.random.Generator,
    *,
    restarts: int = 25,
    rounds: int = 100,
) -> tuple[Array, float]:
    """Return centroids (k, d) of the least W, eq. (1), of several starts, and W.

    Parameters
    ----------
    points, weights : (m, d) and (m,) > 0, with m ≥ k.

    Raises
    ------
    ValueError : fewer points than clusters.
    """
    _enough(len(points), k)
    best, least = points[:k], np.inf
    for _ in range(restarts):
        at = spread_out(points, weights, k, rng)
        for _ in range(rounds):
            own = nearest(points, at)[:, None] == np.arange(k)
            mass = weights @ own
            means = own.T @ (weights[:, None] * points) / np.where(mass > 0, mass, 1.0)[:, None]
            before, at = at, np.where(mass[:, None] > 0, means, at)
            if np.array_equal(at, before):
                break
        value = float(weights @ squared_distances(points, at).min(axis=1))
        if value < least:
            best, least = at, value
    return best, least


def distinct(centroids: Array, sizes: Array, dtype: str = "float32") -> tuple[Array, Array]:
    """Return the different ones of centroids (m, d), in order, and the sizes (m,) of each place.

    Rows that are equal at all sites, as of patients without any mutation, form one cluster of every
    site in one place. Drawn twice, it would leave one cluster too few.

    dtype : type in which the points were computed.
    """
    spread, size = (np.abs(c).max(initial=0.0) for c in (centroids - centroids.mean(0), centroids))
    unit = max(APART * float(spread), ROUNDED * float(np.finfo(dtype).eps * size)) or 1.0
    places = np.round(centroids / unit) + 0.0
    _, first, own = np.unique(places, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return centroids[first[order]], np.bincount(own.ravel(), weights=sizes)[order]


def max_min(centroids: Array, sizes: Array, k: int, rng: np.random.Generator) -> Array:
    """Return k of centroids (m, d): one at random, then repeatedly the farthest from those chosen.

    The thesis starts with a random site's first centroid; k-means clusters have no order, so this
    is
    any centroid.
    """
    _enough(len(centroids), k)
    chosen = [int(rng.integers(len(centroids)))]
    while len(chosen) < k:
        far = squared_distances(centroids, centroids[chosen]).min(axis=1)
        far[chosen] = -1.0
        chosen.append(int(far.argmax()))
    return centroids[chosen]


def random(centroids: Array, sizes: Array, k: int, rng: np.random.Generator) -> Array:
    """Return k of centroids (m, d) at random, none twice."""
    _enough(len(centroids), k)
    return centroids[rng.choice(len(centroids), k, replace=False)]


def random_weighted(centroids: Array, sizes: Array, k: int, rng: np.random.Generator) -> Array:
    """Return k of centroids (m, d), drawn in proportion to their rows, sizes (m,), none twice."""
    _enough(len(centroids), k)
    return centroids[rng.choice(len(centroids), k, replace=False, p=sizes / sizes.sum())]


def double_kmeans(centroids: Array, sizes: Array, k: int, rng: np.random.Generator) -> Array:
    """Return k-means of centroids (m, d), each as often as it has rows, sizes (m,): (k, d)."""
    return weighted_kmeans(centroids, np.asarray(sizes, float), k, rng)[0]


#: Aggregations by name: (centroids (m, d), their rows (m,), k, rng) → (k, d).
AGGREGATIONS: Mapping[str, Callable[[Array, Array, int, np.random.Generator], Array]] = {
    "max_min": max_min,
    "random": random,
    "random_weighted": random_weighted,
    "double_kmeans": double_kmeans,
}


def _enough(points: int, k: int) -> None:
    if points < k:
        raise ValueError(f"{points} centroids give no {k} clusters.")


def least_difference(table: Array) -> float:
    """Return the smallest positive number of rows between unions of clusters of two partitions.

    table : f (a, b) ≥ 0, rows by cluster of the one and the other; infinite if all are 0.
    """
    a, b = table.shape
    graph = np.zeros((a + b, a + b))
    graph[:a, a:], graph[a:, :a] = table, table.T
    parts, part = _connected(graph > 0)
    cuts = (_least_cut(graph[np.ix_(own, own)])[0] for own in (part == p for p in range(parts)))
    return min(cuts, default=np.inf)


def allowed(flow: Array, least: int) -> Array:
    """Return the allowed moves between clusters, so that no few rows are singled out: (k, k).

    Moves across the least cut are withheld if it has fewer than `least` rows, then within its two
    sides, until every remaining cut has that many or none.

    flow : (k, k) ≥ 0, rows by cluster before and after; those that stay are never cut.
    """
    k = len(flow)
    graph = (flow + flow.T).astype(float)
    np.fill_diagonal(graph, 0.0)
    side, parts = np.zeros(k, np.int64), [np.arange(k)]
    while parts:
        own = parts.pop()
        count, part = _connected(graph[np.ix_(own, own)] > 0)
        if count > 1:
            parts += [own[part == p] for p in range(count)]
            continue
        weight, one = _least_cut(graph[np.ix_(own, own)])
        if weight < least:
            cut = np.isin(np.arange(len(own)), one)
            parts += [own[cut], own[~cut]]
        else:
            side[own] = side.max() + 1
    return side[:, None] == side


def _connected(joined: Array) -> tuple[int, Array]:
    """Return the number of connected parts of a graph (v, v), and each node's part: (v,)."""
    from scipy.sparse.csgraph import connected_components  # slow to load, as all of scipy.sparse

    return connected_components(joined, directed=False)


def _least_cut(graph: Array) -> tuple[float, list[int]]:
    """Return the least weight between two sides of a connected graph (v, v), and one side."""
    g, least, best = graph.copy(), np.inf, list[int]()
    merged = [[node] for node in range(len(g))]
    while len(g) > 1:
        tied, added = g[0].copy(), [0]
        outside = np.ones(len(g), bool)
        outside[0] = False
        while outside.any():
            new = int(np.where(outside, tied, -1.0).argmax())
            outside[new] = False
            added.append(new)
            if outside.any():
                tied = tied + g[new]
        before, last = added[-2], added[-1]
        if (weight := float(g[last].sum() - g[last, last])) < least:
            least, best = weight, list(merged[last])
        g[before] += g[last]
        g[:, before] += g[:, last]
        g[before, before] = 0.0
        g = np.delete(np.delete(g, last, axis=0), last, axis=1)
        merged[before] = merged[before] + merged[last]
        del merged[last]
    return least, best


def dropped_note(found: int, asked: int) -> str:
    """Return a clause on the number of clusters asked for and not available."""
    gone = asked - found
    return (
        f"{gone} of {asked} clusters {'was' if gone == 1 else 'were'} dropped, as too few rows, or "
        f"rows that differ, are left for {'it' if gone == 1 else 'them'}"
    )
