"""How many clusters there are: by the gap statistic, or by agreement when sites are left out.

Tibshirani, Walther, Hastie, JRSS B 63(2), 2001. With W_k of k clusters of all sites' points, and
W*_kb of the b-th of B reference tables without clusters,

    Gap(k) = (1/B) Σ_b log W*_kb − log W_k,   s_k = sd_b(log W*_kb) √(1 + 1/B)               (1)

the number is the least k with Gap(k) ≥ Gap(l) − s_l, where l is that of the largest gap: Dudoit
and Fridlyand, Genome Biology 3(7), 2002. Tibshirani's own, l = k + 1, ends at 1 where clusters lie
in groups. The coordinator draws reference tables: uniform in a box along the principal axes,
which has the variances of the points (and not their range, which would tell extreme records; this
moves all gaps alike); or, where all values are 0 and 1, independent columns with the frequencies of
ones. Products of rare columns would be single patients, so the axes are those of

    (1/n) Σ_G (Σ_{z∈G} z − |G| μ)(Σ_{z∈G} z − |G| μ)ᵀ                                       (2)

over groups G of `least` rows or more that each site draws at random: in the mean the covariance,
with the precision of so many rows as there are groups. A column of which half of a site's rows have
one value, such as any of two values, has no part there: in a sum over a group it still shows the
few rows that have another. Such columns are independent in the tables.

Consensus: for each k, and each site left out, all rows are labelled by the centroids of all sites
and by those of the others. The number is the largest k, 2 or more, of which the mean adjusted Rand
index is within `MARGIN` of the best: where clusters are clear, fewer agree as well. That there is
one cluster it cannot find.

Revealed: what each fit reveals, for each number. For gaps, but of zeros and ones, `Products` once,
as a sum over all sites. For a consensus `Moments` and the sums of each round over all sites but one
as well, from which that one's sums follow; a site with fewer rows than `least` is never left out.
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

#: Reference tables B, the most rows of one, and the starts of k-means on it.
REFERENCES, ROWS, STARTS = 20, 1000, 3

#: Mean adjusted Rand indices that differ by no more than this agree as well.
MARGIN = 0.01


@message
class Products:
    """Σ over groups of rows of the products of their sums, inner (d, d), see eq. (2)."""

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
    """Draw groups of `least` rows or more, sum the points in each, and add up products of sums.

    A column has no part where half of the rows have one value.
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
    """Return in which columns of z (n, d) no value is that of half of the rows: bool (d,)."""
    middles = np.sort(z, axis=0)[[(len(z) - 1) // 2, len(z) // 2]]
    return (2 * (z == middles[:, None]).sum(axis=1) < len(z)).all(axis=0)


#: (points of some sites, k) → the clusters found.
Fit = Callable[[Cloud, int], Found]


@dataclass(frozen=True)
class Choice:
    """The number of clusters, how each did, and its clusters.

    Attributes
    ----------
    k : the number chosen.
    table : a row per number, with k and what it was judged by.
    found : the clusters by number.
    """

    k: int
    table: list[Row]
    found: dict[int, Found]


def by_gap(
    whole: Cloud,
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
    fit : asked for each of them, with `whole`.
    least : rows of a group of eq. (2).

    Raises
    ------
    SiteUnavailable : one of the sites is away.
    """
    covariance = np.diag(whole.variance) if whole.binary.all() else _covariance(whole, least, space)
    tables = [_reference(whole, covariance, rng) for _ in range(REFERENCES)]
    draws = [int(rng.integers(2**31)) for _ in tables]
    found: dict[int, Found] = {}
    table: list[Row] = []
    for k in numbers:
        found[k] = fit(whole, k)
        drawn = np.array([_within(t, k, seed) for t, seed in zip(tables, draws, strict=True)])
        own = math.log(max(found[k].inertia / whole.rows, math.ulp(0.0)))
        error = float(drawn.std()) * math.sqrt(1.0 + 1.0 / REFERENCES)
        table.append({"k": k, "gap": float(drawn.mean()) - own, "error": error})
    best = max(table, key=lambda row: row["gap"])
    k = next(row["k"] for row in table if row["gap"] >= best["gap"] - best["error"])
    return Choice(k, table, found)


def _covariance(whole: Cloud, least: int, space: Space) -> Array:
    """Return eq. (2) (d, d), with the variances that all points have."""
    told = whole.fed.sum(multiply_sums, middle=whole.mean, least=least, **space.given)
    check_all_answered(whole.fed)
    own = told.inner.diagonal()
    scale = np.sqrt(np.divide(whole.variance, own, out=np.zeros_like(own), where=own > 0))
    found = told.inner * np.outer(scale, scale)
    np.fill_diagonal(found, whole.variance)
    return found


def _reference(whole: Cloud, covariance: Array, rng: np.random.Generator) -> Array:
    """Return a table without clusters (n, d)."""
    n, d = min(whole.rows, ROWS), len(whole.mean)
    if whole.binary.all():
        return (rng.random((n, d)) < whole.mean).astype(float)
    variances, axes = np.linalg.eigh(covariance)
    sides = np.sqrt(3.0 * np.maximum(variances, 0.0))
    return whole.mean + (rng.uniform(-1.0, 1.0, (n, d)) * sides) @ axes.T


def _within(x: Array, k: int, seed: int) -> float:
    """Return log (W_k / n) of a reference table."""
    k = min(k, len(np.unique(x, axis=0)))
    _, inertia = kmeans(x, k, starts=STARTS, seed=seed)
    return math.log(max(inertia / len(x), math.ulp(0.0)))


def by_consensus(
    whole: Cloud, numbers: Sequence[int], fit: Fit, *, least: int, space: Space = PLAIN
) -> Choice:
    """Return the number of clusters on which sites agree most, as each is left out.

    Raises
    ------
    SettingError : fewer than three sites have `least` rows or more, or no number is above 1.
    """
    fed = whole.fed
    left: list[Cloud] = []
    for site in fed.sites if len(fed.sites) > 2 else ():
        rest = fed.only(s for s in fed.sites if s != site)
        rows = int(count(rest, Cells.around(whole.mean[None]), None, space).rows)
        if whole.rows - rows >= least and rows >= least:
            left.append(cloud(rest, space, least=least))
    numbers = [k for k in numbers if k > 1]
    if len(left) < 3 or not numbers:
        raise SettingError(
            f"a consensus needs three sites of {least} rows or more, and numbers of clusters above "
            f"1; {len(left)} sites have these. Choose by 'gap', or give n_clusters."
        )
    found: dict[int, Found] = {}
    table: list[Row] = []
    for k in numbers:
        found[k] = fit(whole, k)
        all_in = Cells.around(found[k].centroids)
        agreed: list[float] = []
        for rest in left:
            cells = Cells.around(fit(rest, k).centroids)
            agreed.append(float(adjusted_rand(count(fed, cells, all_in, space).flow)))
        table.append({"k": k, "agreement": float(np.mean(agreed)), "least": min(agreed)})
    best = max(row["agreement"] for row in table)
    k = max(row["k"] for row in table if row["agreement"] >= best - MARGIN)
    return Choice(k, table, found)
