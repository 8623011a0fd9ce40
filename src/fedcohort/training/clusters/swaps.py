"""Swaps after Lloyd's rounds have settled: merge two clusters and split a third.

Rounds end in a local optimum, which may hold two centroids in one group and one between two groups.
Moving a centroid from one to the other helps (random swaps: Fränti, J. Big Data 5:13, 2018; split
and merge: Ueda et al., Neural Computation 12, 2000). With n_j rows, means μ_j and variances v_j
(d,) of each cluster, the expected change of W is

    merging j with the nearest l    + n_j n_l / (n_j + n_l) ‖μ_j − μ_l‖²                    (1)
    splitting i along coordinate c  − n_i v_ic 2/π                                          (2)

(1) is Ward's criterion and exact. (2) is exact for a normal cut at its mean, and too small for two
groups in one. Further rounds show whether W has fallen.

Revealed: nothing new.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.centroids import squared_distances


def swaps(centroids: Array, variance: Array, counts: Array) -> list[tuple[int, int, int]]:
    """Return (j, l, i), by increasing expected W: merge j with l, split i.

    Parameters
    ----------
    centroids, variance : μ and v (k, d). counts : n (k,) above 0.
    """
    k, n = len(centroids), np.asarray(counts, float)
    cost = squared_distances(centroids, centroids) * n[:, None] * n / (n[:, None] + n)
    np.fill_diagonal(cost, np.inf)
    near, gain = cost.argmin(axis=1), n * variance.max(axis=1) * 2 / np.pi
    found = [
        (cost[j, near[j]] - gain[i], j, int(near[j]), i)
        for j in range(k)
        for i in range(k)
        if i not in (j, near[j])
    ]
    return [(j, partner, i) for _, j, partner, i in sorted(found)]


def swapped(centroids: Array, variance: Array, counts: Array, swap: tuple[int, int, int]) -> Array:
    """Return centroids (k, d) after a swap: l at the mean of j and l; i and j at i's halves."""
    j, partner, i = swap
    at, n = centroids.copy(), np.asarray(counts, float)
    at[partner] = (n[j] * at[j] + n[partner] * at[partner]) / (n[j] + n[partner])
    widest = int(variance[i].argmax())
    half = np.zeros(at.shape[1])
    half[widest] = math.sqrt(2 / math.pi * variance[i, widest])
    at[j], at[i] = at[i] - half, at[i] + half
    return at
