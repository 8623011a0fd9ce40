"""Moments of all sites' points, and the start of Lloyd's rounds from each site's own centroids.

Each site clusters its own rows; the coordinator merges the sites' centroids by one of
`numerics.centroids.AGGREGATIONS` (thesis 003, section 2.1.2). `candidates` starts from counts
alone.

Revealed: `Moments` once, as a sum over all sites; and `OwnCentroids` of each site, once: means and
sizes of its clusters, each of `least` rows or more. A row of a smaller cluster is counted with the
nearest other one, so that the site's total less its clusters leaves no row. A site with fewer rows
in all sends no centroids but takes part in the later sums: without it they would differ from
`Moments` by its few rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.centroids import AGGREGATIONS, distinct, kmeans, nearest
from fedcohort.privacy.disclosure.counts import base
from fedcohort.protocol import (
    DataError,
    Federation,
    SettingError,
    Site,
    check_all_answered,
    gathered,
    message,
    summed,
)
from fedcohort.training.clusters.points import PLAIN, Kept, Space, points_at

#: Ratio of Σ (z − origin)² to Σ (z − mean)² above which sums are repeated about the mean.
LOST = 1e7


@message
class Moments:
    """Rows () of d coordinates: Σ (z − origin) (d,), and squares (d,).

    ``fractions`` (d,) counts the sites with a value other than 0 and 1.
    """

    rows: Array
    drift: Array
    squares: Array
    fractions: Array


@message
class OwnCentroids:
    """A site's own centroids (c, d), and the rows of each (c,)."""

    centroids: Array
    sizes: Array


@summed(blocks="rows")
def sum_points(
    site: Site[Any, Kept | None],
    *,
    origin: Array,
    space: str,
    theta: Array,
    frame: Array,
    groups: Array,
) -> Moments:
    """Sum all points, and their squares."""
    z = points_at(site, space, theta, frame, groups)
    fractions = ((z != 0.0) & (z != 1.0)).any(axis=0).astype(np.int64)
    off = z - (origin if len(origin) else np.zeros(z.shape[1]))
    return Moments(np.array(len(z)), off.sum(axis=0), (off**2).sum(axis=0), fractions)


@gathered
def own_centroids(
    site: Site[Any, Kept | None],
    *,
    k: int,
    restarts: int,
    least: int,
    space: str,
    theta: Array,
    frame: Array,
    groups: Array,
) -> OwnCentroids:
    """Cluster the site's own rows; return centroids of clusters that are not small.

    In a column of two values a centroid is a share of a multiple of `least` rows.
    """
    z = points_at(site, space, theta, frame, groups)
    if len(z) < max(least, 1):
        return OwnCentroids(np.zeros((0, z.shape[1])), np.zeros(0, np.int64))
    k = min(k, len(np.unique(z, axis=0)))
    at, _ = kmeans(z, k, starts=restarts, seed=site.seed % 2**32)
    while True:
        label = nearest(z, at)
        sizes = np.bincount(label, minlength=len(at))
        if sizes.min() >= least:
            break
        at = np.delete(at, int(sizes.argmin()), axis=0)
    means = np.array([z[label == j].mean(axis=0) for j in range(len(at))])
    if least > 1:
        low, high = z.min(axis=0), z.max(axis=0)
        two = ((z == low) | (z == high)).all(axis=0) & (high > low)
        of, wide = sizes[:, None], (high - low)[two]
        share = base(of * (means[:, two] - low[two]) / wide, of, least) / of
        means[:, two] = low[two] + wide * share
    return OwnCentroids(means, sizes.astype(np.int64))


STEPS = (sum_points, own_centroids)


@dataclass(frozen=True)
class Cloud:
    """Moments of all sites' points.

    Attributes
    ----------
    fed : the sites that answered.
    rows : n.
    mean, variance : (d,); the variance has the divisor n.
    binary : (d,) whether all values of a coordinate are 0 or 1.
    """

    fed: Federation
    rows: int
    mean: Array
    variance: Array
    binary: Array


def cloud(
    fed: Federation, space: Space = PLAIN, *, least: int, origin: Array | None = None
) -> Cloud:
    """Return the moments of all sites' points; ask twice if `origin` (d,) is far from the mean.

    Raises
    ------
    DataError : fewer than `least` rows in all, or none.
    SiteUnavailable : a site left between the two.
    """
    about = np.zeros(0) if origin is None else origin
    sums = fed.sum(sum_points, origin=about, **space.given)
    fed = fed.only(fed.answered).awaiting()
    n = int(sums.rows)
    if n < max(least, 1):
        raise DataError(
            f"{n} rows in all are too few to cluster; sums need {least}. Add sites or rows."
        )
    about = about if len(about) else np.zeros(len(sums.drift))
    shift = sums.drift / n
    if (sums.squares > LOST * np.maximum(sums.squares - n * shift**2, 0.0)).any() and shift.any():
        about = about + shift
        sums = fed.sum(sum_points, origin=about, **space.given)
        check_all_answered(fed)
        shift = sums.drift / n
    variance = np.maximum(sums.squares / n - shift**2, 0.0)
    return Cloud(fed, n, about + shift, variance, sums.fractions == 0)


def standard(fed: Federation, space: Space, *, least: int) -> tuple[Space, Cloud]:
    """Return the space with the standard scale from all sites' moments, and the scaled moments.

    A coordinate that does not vary keeps its unit.

    Raises
    ------
    DataError, SiteUnavailable : as `cloud`.
    """
    plain = replace(space, scale="none", frame=np.zeros((0, 0)))
    pooled = cloud(fed, plain, least=least)
    spread = np.sqrt(pooled.variance)
    spread = np.where(spread > 1e-12 * (1.0 + np.abs(pooled.mean)), spread, 1.0)
    there = replace(
        pooled, mean=np.zeros(len(spread)), variance=pooled.variance / spread**2,
        binary=np.zeros(len(spread), bool),
    )  # fmt: skip
    return replace(space, scale="standard", frame=np.stack([pooled.mean, spread])), there


def from_sites(
    fed: Federation,
    k: int,
    space: Space = PLAIN,
    *,
    rng: np.random.Generator,
    least: int,
    restarts: int = 25,
    aggregation: str = "double_kmeans",
) -> tuple[Array, Federation]:
    """Return centroids (k, d) from each site's own, and the sites that answered.

    Fewer than k are returned if the sites' centroids have fewer distinct positions.

    Parameters
    ----------
    aggregation : one of `AGGREGATIONS`.
    least : as in `lloyd`.

    Raises
    ------
    SettingError : the sites have fewer than k centroids together.
    """
    replies = fed.gather(own_centroids, k=k, restarts=restarts, least=least, **space.given)
    found = [own for _, own in sorted(replies.items()) if len(own.sizes)]
    many = sum(len(own.sizes) for own in found)
    if many < k:
        raise SettingError(
            f"setting 'n_clusters' is {k}, and the sites found {many} clusters of {least} rows or "
            f"more. Give fewer clusters, or add sites."
        )
    centroids = np.vstack([own.centroids for own in found])
    sizes = np.concatenate([own.sizes for own in found]).astype(float)
    dtype = space.dtype if space.network else "float64"
    centroids, sizes = distinct(centroids, sizes, dtype)
    k = min(k, len(centroids))
    return AGGREGATIONS[aggregation](centroids, sizes, k, rng), fed.only(replies)
