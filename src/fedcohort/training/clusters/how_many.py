"""Number of clusters: by the gap statistic, or by agreement when each site is left out.

Gap statistic: Tibshirani, Walther, Hastie, JRSS B 63(2), 2001. With W_k of k clusters of all sites'
points, and W*_kb of the b-th of B reference tables without clusters,

    Gap(k) = (1/B) Σ_b log W*_kb − log W_k,   s_k = sd_b(log W*_kb) √(1 + 1/B)               (1)

the number is the least k with Gap(k) ≥ Gap(l) − s_l, where l has the largest gap: Dudoit and
Fridlyand, Genome Biology 3(7), 2002. Tibshirani's l = k + 1 stops at 1 if clusters lie in groups.

The coordinator draws the reference tables. They are uniform in a box along the principal axes with
the variances of the points; the range would tell extreme records, and the change moves all gaps
alike. If all values are 0 and 1, columns are independent with the frequencies of ones. Products of
rare columns would be single patients, so the axes are those of

    (1/n) Σ_G (Σ_{z∈G} z − |G| μ)(Σ_{z∈G} z − |G| μ)ᵀ                                       (2)

over groups G of `least` rows or more that each site draws at random. Its expectation is the
covariance, with the precision of as many rows as there are groups. A column in which half of a
site's rows have the same value, such as any column of two values, is left out there: a sum over a
group would still show the few rows with another value. Such columns are independent in the tables.

Consensus: for each k, and each site left out, all rows are labelled by the centroids of all sites
and by those of the others. The number is the largest k ≥ 2 whose mean adjusted Rand index is within
`MARGIN` of the best, because fewer clear clusters agree as well. It cannot find one cluster alone.

Revealed: what each fit reveals, for each k. For gaps, except with zeros and ones, `Products` once,
as a sum over all sites. For a consensus also `Moments` and the sums of each round over all sites
but one, from which that site's sums follow; a site with fewer than `least` rows is never left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.clusters import adjusted_rand
from fedcohort.numerics.centroids import kmeans
from fedcohort.protocol import Row, SettingError, Site, check_all_answered, message, summed
from fedcohort.training.clusters.lloyd import Found
from fedcohort.training.clusters.partition import Cells, count
from fedcohort.training.clusters.points import PLAIN, Kept, Space, points_at
from fedcohort.training.clusters.seeding import Cloud, cloud

#: Reference tables B, most rows of each, and starts of k-means on each.
REFERENCES, ROWS, STARTS = 20, 1000, 3

#: Mean adjusted Rand indices within this of each other count as equal.
MARGIN = 0.01


@message
class Products:
    """Sum over groups of rows of the products of their sums, inner (d, d), eq. (2)."""

    inner: Array


@summed
def multiply_sums(
    site: Site[Any, Kept | None],
    *,
    middle: Array,
    least: int,
    space: str,
    theta: Array,
    frame: Array,
    groups: Array,
) -> Products:
    """Sum the points in large random groups, and add the products of these sums.

    A group has `least` rows or more. A column in which half of the rows have one value is left out.
    """
    z = points_at(site, space, theta, frame, groups)
    many = len(z) // max(least, 1)
    if not many:
        return Products(np.zeros((len(middle), len(middle))))
    off = np.where(_varied(z), z - middle, 0.0)
    order = np.random.default_rng(site.seed).permutation(len(off))
    sizes = [len(part) for part in np.array_split(order, many)]
    sums = np.add.reduceat(off[order], np.cumsum([0, *sizes[:-1]]), axis=0)
    return Products(sums.T @ sums)


STEPS = (multiply_sums,)


def _varied(z: Array) -> Array:
    """Return the columns of z (n, d) in which no value is that of half of the rows: bool (d,)."""
    middles = np.sort(z, axis=0)[[(len(z) - 1) // 2, len(z) // 2]]
    return (2 * (z == middles[:, None]).sum(axis=1) < len(z)).all(axis=0)


#: (points of some sites, k) → the clusters found.
Fit = Callable[[Cloud, int], Found]


@dataclass(frozen=True)
class Choice:
    """The chosen number of clusters, with the criterion and the clusters of each number.

    Attributes
    ----------
    k : the number chosen.
    table : a row per number, with k and its criterion.
    found : the clusters by number.
    """

    k: int
    table: list[Row]
    found: dict[int, Found]


def by_gap(
    pooled: Cloud,
    numbers: Sequence[int],
    fit: Fit,
    rng: np.random.Generator,
    *,
    least: int,
    space: Space = PLAIN,
) -> Choice:
    """Return the number of clusters by eq. (1).

    Parameters
    ----------
    numbers : consecutive, ascending.
    fit : called for each of them, with `pooled`.
    least : rows of a group of eq. (2).

    Raises
    ------
    SiteUnavailable : a site is absent.
    """
    covariance = (
        np.diag(pooled.variance) if pooled.binary.all() else _covariance(pooled, least, space)
    )
    tables = [_reference(pooled, covariance, rng) for _ in range(REFERENCES)]
    draws = [int(rng.integers(2**31)) for _ in tables]
    found: dict[int, Found] = {}
    table: list[Row] = []
    for k in numbers:
        found[k] = fit(pooled, k)
        drawn = np.array([_within(t, k, seed) for t, seed in zip(tables, draws, strict=True)])
        own = math.log(max(found[k].inertia / pooled.rows, math.ulp(0.0)))
        error = float(drawn.std()) * math.sqrt(1.0 + 1.0 / REFERENCES)
        table.append({"k": k, "gap": float(drawn.mean()) - own, "error": error})
    best = max(table, key=lambda row: row["gap"])
    k = next(row["k"] for row in table if row["gap"] >= best["gap"] - best["error"])
    return Choice(k, table, found)


def _covariance(pooled: Cloud, least: int, space: Space) -> Array:
    """Return eq. (2) (d, d), rescaled to the variances of all points."""
    sums = pooled.fed.sum(multiply_sums, middle=pooled.mean, least=least, **space.given)
    check_all_answered(pooled.fed)
    own = sums.inner.diagonal()
    scale = np.sqrt(np.divide(pooled.variance, own, out=np.zeros_like(own), where=own > 0))
    found = sums.inner * np.outer(scale, scale)
    np.fill_diagonal(found, pooled.variance)
    return found


def _reference(pooled: Cloud, covariance: Array, rng: np.random.Generator) -> Array:
    """Return a table without clusters (n, d)."""
    n, d = min(pooled.rows, ROWS), len(pooled.mean)
    if pooled.binary.all():
        return (rng.random((n, d)) < pooled.mean).astype(float)
    variances, axes = np.linalg.eigh(covariance)
    sides = np.sqrt(3.0 * np.maximum(variances, 0.0))
    return pooled.mean + (rng.uniform(-1.0, 1.0, (n, d)) * sides) @ axes.T


def _within(x: Array, k: int, seed: int) -> float:
    """Return log (W_k / n) of a reference table."""
    k = min(k, len(np.unique(x, axis=0)))
    _, inertia = kmeans(x, k, starts=STARTS, seed=seed)
    return math.log(max(inertia / len(x), math.ulp(0.0)))


def by_consensus(
    pooled: Cloud, numbers: Sequence[int], fit: Fit, *, least: int, space: Space = PLAIN
) -> Choice:
    """Return the number of clusters with the best agreement when each site is left out.

    Raises
    ------
    SettingError : fewer than three sites have `least` rows or more, or no number is above 1.
    """
    fed = pooled.fed
    left: list[Cloud] = []
    for site in fed.sites if len(fed.sites) > 2 else ():
        rest = fed.only(s for s in fed.sites if s != site)
        rows = int(count(rest, Cells.around(pooled.mean[None]), None, space).rows)
        if pooled.rows - rows >= least and rows >= least:
            left.append(cloud(rest, space, least=least))
    numbers = [k for k in numbers if k > 1]
    if len(left) < 3 or not numbers:
        raise SettingError(
            f"a consensus needs three sites with {least} rows or more, and numbers of clusters "
            f"above 1; {len(left)} sites have enough rows. Choose by 'gap', or give n_clusters."
        )
    found: dict[int, Found] = {}
    table: list[Row] = []
    for k in numbers:
        found[k] = fit(pooled, k)
        all_in = Cells.around(found[k].centroids)
        agreed: list[float] = []
        for rest in left:
            cells = Cells.around(fit(rest, k).centroids)
            agreed.append(float(adjusted_rand(count(fed, cells, all_in, space).flow)))
        table.append({"k": k, "agreement": float(np.mean(agreed)), "least": min(agreed)})
    best = max(row["agreement"] for row in table)
    k = max(row["k"] for row in table if row["agreement"] >= best - MARGIN)
    return Choice(k, table, found)
