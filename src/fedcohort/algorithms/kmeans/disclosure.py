"""Rules that keep clusters from telling about few rows (`program`).

Every cluster has m rows or more. For a feature with two values, such as a level, a cluster's mean
times its rows is a count. It is published as a multiple of m, and so is the number of rows that
were held back. `training.clusters.lloyd` guards the rounds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.counts import base
from fedcohort.protocol import DataError, Federation, SettingError, SiteUnavailable, Task
from fedcohort.training.clusters.lloyd import Found
from fedcohort.training.clusters.partition import Cells, count
from fedcohort.training.clusters.points import PLAIN
from fedcohort.training.clusters.seeding import Cloud

#: Most counts of rows about rounded means.
TRIES = 8


def least_of(fed: Federation, task: Task) -> int:
    """Return m; 1 for a fit of one site, but not if one of several sites is left."""
    return task.min_cell if len(fed.sites) > 1 else 1


def check_features(task: Task) -> None:
    """Refuse a task without features."""
    if not task.features:
        raise DataError("there are no columns to cluster by; name at least one.")


def check_number(k: int, pooled: Cloud, least: int) -> None:
    """Refuse more clusters than the rows allow."""
    if k * least > pooled.rows:
        raise SettingError(
            f"setting 'n_clusters' is {k}, and {pooled.rows} rows make at most "
            f"{pooled.rows // least} clusters of {least}. Give fewer."
        )


def settled(found: Found, task: Task, pooled: Cloud, least: int) -> Found:
    """Return clusters whose means tell no small count, with the rows nearest to these means.

    Rows and means are updated in turn until both agree; after `TRIES` the counts are those of the
    previous means. It ends early if a cluster would be small, or a site is absent.
    """
    if least <= 1:
        return found
    clusters = published(_rounded_moves(found, least), task, pooled, least)
    if found.left or (clusters.centroids == found.centroids).all():
        return clusters
    for left in reversed(range(TRIES)):
        try:
            fed = pooled.fed.only(found.sites)
            counts = count(fed, Cells.around(clusters.centroids), None, PLAIN).counts
        except SiteUnavailable:
            return clusters
        if (counts < least).any() or (counts == clusters.counts).all():
            return clusters
        clusters = replace(
            clusters, centroids=found.centroids if left else clusters.centroids, counts=counts
        )
        clusters = published(clusters, task, pooled, least) if left else clusters
    return clusters


def _rounded_moves(found: Found, least: int) -> Found:
    """Return clusters with the number of held-back rows rounded to a multiple of m."""
    moving = base(np.array(found.moving), found.counts.sum(), least)
    return replace(found, moving=int(moving))


def published(found: Found, task: Task, pooled: Cloud, least: int) -> Found:
    """Return clusters whose means tell no small count.

    For a feature with two values a cluster's mean times its rows is rounded to a multiple of m
    (`privacy.disclosure.counts.base`); variance and inertia follow.
    """
    pairs = np.array(task.pairs or [(np.nan, np.nan)] * len(task.features), float)
    pairs[pooled.binary & np.isnan(pairs[:, 0])] = (0.0, 1.0)
    two, low, wide = np.isfinite(pairs).all(axis=1), pairs[:, 0], pairs[:, 1] - pairs[:, 0]
    two &= wide != 0
    if not two.any():
        return found
    of, low, wide = found.counts[:, None], low[two], wide[two]
    share = base(of * (found.centroids[:, two] - low) / wide, of, least) / of
    centroids, variance = found.centroids.copy(), found.variance.copy()
    centroids[:, two], variance[:, two] = low + wide * share, wide**2 * share * (1.0 - share)
    inertia = float(found.counts @ variance.sum(axis=1))
    return replace(found, centroids=centroids, variance=variance, inertia=inertia)


def published_levels(found: Found, variance: Array, least: int) -> tuple[Found, Array]:
    """Return the clusters of levels, and variances (k, p), from which no small count follows."""
    if least <= 1:
        return found, variance
    of = found.counts[:, None]
    rarer = base(of * (1.0 - np.sqrt(np.maximum(1.0 - 4.0 * variance, 0.0))) / 2.0, of, least)
    return _rounded_moves(found, least), rarer / of * (1.0 - rarer / of)
