"""k-means and k-modes over sites: the clusters of the pooled table, from counts and sums.

k-means: Lloyd, 1982, by `training.clusters.lloyd`; the number of clusters by
`training.clusters.how_many`. k-modes: Huang, Data Mining and Knowledge Discovery 2, 1998, with
modes updated after each pass over all rows. The distance of a row to a mode is the number of
columns in which they differ, and

    mode of cluster j in column a = the most frequent level of its rows                     (1)

the first of several. This is Lloyd's with each level as a coordinate, and the nearest modes in
place of means: only counts of levels in clusters are summed.

Revealed, only as sums over all sites: `Moments`, once, for modes twice; `Weighed` candidates;
`Near`, `Flows` and `Sums` in each round, over clusters of `min_cell` rows or more, such that
differences of two rounds are not over fewer. With ``seeding: sites`` `OwnCentroids` of each site.
With ``n_clusters: auto`` all of this for each number, and see `how_many`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedcohort.algorithms.kmeans.disclosure import (
    check_features,
    check_number,
    least_of,
    published_levels,
    settled,
)
from fedcohort.algorithms.kmeans.levels import check_levels, first_levels, groups_of, modes_of
from fedcohort.algorithms.kmeans.model import Clusters
from fedcohort.algorithms.kmeans.settings import MeansSettings, ModesSettings
from fedcohort.arrays import Array
from fedcohort.protocol import Federation, Row, SettingError, Task, check_all_answered
from fedcohort.training.clusters.candidates import from_candidates
from fedcohort.training.clusters.how_many import by_consensus, by_gap
from fedcohort.training.clusters.lloyd import Found, lloyd
from fedcohort.training.clusters.points import PLAIN, Space
from fedcohort.training.clusters.seeding import Cloud, cloud, from_sites


def fit_means(fed: Federation, config: MeansSettings, task: Task) -> Clusters:
    """Cluster all sites' rows by k-means.

    Raises
    ------
    DataError : no features, or fewer rows than `min_cell`.
    SettingError : more clusters than the rows allow, or than sites' own centroids.
    SiteUnavailable : a site left after the first call and before the first round's sums, or between
        fits with ``n_clusters: auto``. A later leave ends the rounds (`training.clusters.lloyd`).
    """
    check_features(task)
    least = least_of(fed, task)
    pooled = cloud(fed, least=least, origin=task.origin)
    if config.n_clusters != "auto":
        found = settled(
            _clusters(pooled, config, int(config.n_clusters), task, PLAIN, least),
            task,
            pooled,
            least,
        )
        return _model(found, task.features, found.centroids, found.variance)
    rng = task.rng
    numbers = [k for k in config.numbers if k * least <= pooled.rows]

    def fit(part: Cloud, k: int) -> Found:
        start = from_candidates(part, k, rng=rng, least=least, restarts=config.restarts)
        return lloyd(
            part.fed, start, rng=rng, least=least, rounds=config.rounds, tol=config.tol,
            swaps=config.swaps,
        )  # fmt: skip

    if not numbers:
        raise SettingError(
            f"setting 'k_range' begins with {config.k_range[0]} clusters, and {pooled.rows} rows "
            f"are too few for these. Begin with fewer."
        )
    next(iter(fed.rounds(1)))
    if config.choose == "gap":
        choice = by_gap(pooled, numbers, fit, rng, least=least)
    else:
        choice = by_consensus(pooled, numbers, fit, least=least)
    for row in choice.table:
        fed.record(**{k: float(v) for k, v in row.items()})
    found = settled(choice.found[choice.k], task, pooled, least)
    return _model(found, task.features, found.centroids, found.variance, choice.table)


def fit_modes(fed: Federation, config: ModesSettings, task: Task) -> Clusters:
    """Cluster all sites' rows by k-modes.

    Raises
    ------
    DataError : a feature is a number, no features, or fewer rows than `min_cell`.
    SettingError, SiteUnavailable : as `fit_means`.
    """
    check_features(task)
    groups, least = groups_of(task.features), least_of(fed, task)
    pooled = cloud(fed, least=least)
    space = Space(groups=groups)
    points = cloud(pooled.fed, space, least=least)
    check_all_answered(pooled.fed)
    check_levels(pooled, points, groups, task.features)
    found = _clusters(points, config, config.n_clusters, task, space, least, modes_of(groups))
    first = first_levels(groups)
    keep = ~first
    modes = np.rint(found.centroids[:, keep] * np.sqrt(2.0))
    variance = found.variance[:, keep] * 2.0
    found, variance = published_levels(found, variance, least)
    return _model(found, task.features, modes, variance, groups=groups)


def _clusters(
    pooled: Cloud,
    config: MeansSettings | ModesSettings,
    k: int,
    task: Task,
    space: Space,
    least: int,
    centre: Callable[[Array], Array] | None = None,
) -> Found:
    fed, rng = pooled.fed, task.rng
    check_number(k, pooled, least)
    if config.seeding == "sites":
        start, _ = from_sites(
            fed, k, space, rng=rng, least=least, restarts=config.restarts,
            aggregation=config.aggregation,
        )  # fmt: skip
    else:
        start = from_candidates(pooled, k, space, rng=rng, least=least, restarts=config.restarts)
    found = lloyd(
        fed,
        start if centre is None else centre(start),
        space,
        rng=rng,
        least=least,
        rounds=config.rounds,
        tol=config.tol,
        centre=centre,
        counted=True,
        swaps=config.swaps,
    )
    return replace(found, dropped=k - len(found.centroids))


def _model(
    found: Found,
    features: tuple[str, ...],
    centroids: Array,
    variance: Array,
    numbers: list[Row] | None = None,
    groups: Array | None = None,
) -> Clusters:
    """Return the model, with clusters by size."""
    order = np.argsort(-found.counts, kind="stable")
    return Clusters(
        features=features,
        centroids=centroids[order],
        counts=found.counts[order],
        variance=variance[order],
        groups=np.zeros(0, np.int64) if groups is None else groups,
        inertia=found.inertia,
        rounds=found.rounds,
        converged=found.converged,
        moving=found.moving,
        dropped=found.dropped,
        numbers=tuple(numbers or ()),
        left=found.left,
        order=order,
    )
