"""k-means and k-modes over sites: the clusters of the pooled table, from counts and sums.

k-means: Lloyd, 1982, by `training.clusters.lloyd`; the number of clusters by
`training.clusters.how_many`. k-modes: Huang, Data Mining and Knowledge Discovery 2, 1998, with the
modes made anew after each pass over all rows: the distance of a row to a mode is the number of
columns in which they differ, and

    mode of cluster j in column a = the level that most of its rows have                    (1)

the first of several. That is Lloyd's with each level as a coordinate, and the nearest modes in the
place of means: counts of levels in clusters are all that is summed.

Revealed, only as sums over all sites: `Moments`, once, of modes twice; `Weighed` candidates;
`Near`, `Flows` and `Sums` in each round, over clusters of `min_cell` rows or more, and so that
differences of two rounds are not over fewer. With ``seeding: sites`` `OwnCentroids` of each site.
With ``n_clusters: auto`` all of this for each number that is tried, and what `how_many` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedcohort.algorithms.kmeans.model import Clusters
from fedcohort.algorithms.kmeans.settings import MeansSettings, ModesSettings
from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.counts import base
from fedcohort.protocol import (
    DataError,
    Federation,
    Row,
    SettingError,
    SiteUnavailable,
    Task,
    check_all_answered,
)
from fedcohort.training.clusters.candidates import from_candidates
from fedcohort.training.clusters.how_many import by_consensus, by_gap
from fedcohort.training.clusters.lloyd import Found, lloyd
from fedcohort.training.clusters.partition import Cells, count
from fedcohort.training.clusters.points import PLAIN, Space
from fedcohort.training.clusters.seeding import Cloud, cloud, from_sites

#: Shares of levels that differ by less than this are a tie.
EVEN = 1e-9
#: How often rows are counted about means that are told as multiples.
TRIES = 8


def fit_means(fed: Federation, config: MeansSettings, task: Task) -> Clusters:
    """Cluster all sites' rows by k-means.

    Raises
    ------
    DataError : no features, or fewer rows than `min_cell`.
    SettingError : more clusters than rows allow, or than sites' own centroids.
    SiteUnavailable : a site left after the first call and before the first round's sums, or between
        fits with ``n_clusters: auto``. One that leaves later ends the rounds
        (`training.clusters.lloyd`).
    """
    _check_features(task)
    least = _least(fed, task)
    whole = cloud(fed, least=least, origin=task.origin)
    if config.n_clusters != "auto":
        found = settled(
            _clusters(whole, config, int(config.n_clusters), task, PLAIN, least), task, whole, least
        )
        return _model(found, task.features, found.centroids, found.variance)
    rng = task.rng
    numbers = [k for k in config.numbers if k * least <= whole.rows]

    def fit(part: Cloud, k: int) -> Found:
        start = from_candidates(part, k, rng=rng, least=least, restarts=config.restarts)
        return lloyd(
            part.fed, start, rng=rng, least=least, rounds=config.rounds, tol=config.tol,
            swaps=config.swaps,
        )  # fmt: skip

    if not numbers:
        raise SettingError(
            f"setting 'k_range' begins with {config.k_range[0]} clusters, and {whole.rows} rows "
            f"are too few for these. Begin with fewer."
        )
    next(iter(fed.rounds(1)))
    if config.choose == "gap":
        choice = by_gap(whole, numbers, fit, rng, least=least)
    else:
        choice = by_consensus(whole, numbers, fit, least=least)
    for row in choice.table:
        fed.record(**{k: float(v) for k, v in row.items()})
    found = settled(choice.found[choice.k], task, whole, least)
    return _model(found, task.features, found.centroids, found.variance, choice.table)


def fit_modes(fed: Federation, config: ModesSettings, task: Task) -> Clusters:
    """Cluster all sites' rows by k-modes.

    Raises
    ------
    DataError : a feature that is a number, no features, or fewer rows than `min_cell`.
    SettingError, SiteUnavailable : as `fit_means`.
    """
    _check_features(task)
    groups, least = groups_of(task.features), _least(fed, task)
    whole = cloud(fed, least=least)
    space = Space(groups=groups)
    points = cloud(whole.fed, space, least=least)
    check_all_answered(whole.fed)
    check_levels(whole, points, groups, task.features)
    found = _clusters(points, config, config.n_clusters, task, space, least, modes_of(groups))
    first = first_levels(groups)
    keep = ~first
    modes = np.rint(found.centroids[:, keep] * np.sqrt(2.0))
    variance = found.variance[:, keep] * 2.0
    if least > 1:
        found = _steady(found, least)
        of = found.counts[:, None]
        rarer = base(of * (1.0 - np.sqrt(np.maximum(1.0 - 4.0 * variance, 0.0))) / 2.0, of, least)
        variance = rarer / of * (1.0 - rarer / of)
    return _model(found, task.features, modes, variance, groups=groups)


def settled(found: Found, task: Task, whole: Cloud, least: int) -> Found:
    """Return clusters whose means tell no count of few, with the rows nearest to these means.

    The rows are counted anew, and the means follow, until both agree; after `TRIES` the counts are
    those of the means before. A cluster that would be of few, or a site that is away, ends it.
    """
    if least <= 1:
        return found
    clusters = told(_steady(found, least), task, whole, least)
    if found.left or (clusters.centroids == found.centroids).all():
        return clusters
    for left in reversed(range(TRIES)):
        try:
            fed = whole.fed.only(found.sites)
            counts = count(fed, Cells.around(clusters.centroids), None, PLAIN).counts
        except SiteUnavailable:
            return clusters
        if (counts < least).any() or (counts == clusters.counts).all():
            return clusters
        clusters = replace(
            clusters, centroids=found.centroids if left else clusters.centroids, counts=counts
        )
        clusters = told(clusters, task, whole, least) if left else clusters
    return clusters


def _steady(found: Found, least: int) -> Found:
    """Return clusters of which the rows that were held back are a multiple of m."""
    moving = base(np.array(found.moving), found.counts.sum(), least)
    return replace(found, moving=int(moving))


def told(found: Found, task: Task, whole: Cloud, least: int) -> Found:
    """Return clusters whose means tell no count of few.

    Of a feature with two values, such as a level, a cluster's mean times its rows is a count. It is
    told as a multiple of m (`privacy.disclosure.counts.base`), and variance and inertia follow.
    """
    pairs = np.array(task.pairs or [(np.nan, np.nan)] * len(task.features), float)
    pairs[whole.binary & np.isnan(pairs[:, 0])] = (0.0, 1.0)
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


def groups_of(features: tuple[str, ...]) -> Array:
    """Return the number of the variable that each feature is a level of (p,).

    A design calls the column of a level "variable=level".
    """
    names = [name.partition("=")[0] for name in features]
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return np.array([place[name] for name in names], np.int64)


def check_levels(whole: Cloud, points: Cloud, groups: Array, features: tuple[str, ...]) -> None:
    """Refuse columns that are no levels: other values than 0 and 1, or two levels in one row.

    Raises
    ------
    DataError : the first such column, or variable.
    """
    for name, binary in zip(features, whole.binary, strict=True):
        if not binary:
            raise DataError(
                f"column {name!r} has other values than 0 and 1, and kmodes takes levels alone. "
                f"Leave it out, make classes of it, or use kmeans."
            )
    starts = np.flatnonzero(first_levels(groups))
    squares = np.add.reduceat(points.variance + points.mean**2, starts)
    if len(odd := np.flatnonzero(np.abs(squares - 0.5) * points.rows > 0.25)):
        name = features[int(np.flatnonzero(groups == odd[0])[0])].partition("=")[0]
        raise DataError(
            f"rows have two levels of {name!r} at once, as columns are named. Rename columns so "
            f"that '=' stands only between a variable and its level."
        )


def first_levels(groups: Array) -> Array:
    """Return which coordinates of the points stand for a variable's first level, (p + groups,)."""
    return np.concatenate([np.arange((groups == g).sum() + 1) == 0 for g in np.unique(groups)])


def modes_of(groups: Array) -> Callable[[Array], Array]:
    """Return the function from means (k, d) of points to modes (k, d), eq. (1)."""
    starts = np.flatnonzero(first_levels(groups))
    ends = [*starts[1:].tolist(), len(groups) + len(starts)]

    def modes(means: Array) -> Array:
        out = np.zeros(means.shape)
        for start, end in zip(starts, ends, strict=True):
            part = means[:, start:end]
            likeliest = (part >= part.max(axis=1, keepdims=True) - EVEN).argmax(axis=1)
            out[np.arange(len(means)), start + likeliest] = np.sqrt(0.5)
        return out

    return modes


def _clusters(
    whole: Cloud,
    config: MeansSettings | ModesSettings,
    k: int,
    task: Task,
    space: Space,
    least: int,
    centre: Callable[[Array], Array] | None = None,
) -> Found:
    fed, rng = whole.fed, task.rng
    if k * least > whole.rows:
        raise SettingError(
            f"setting 'n_clusters' is {k}, and {whole.rows} rows make at most "
            f"{whole.rows // least} clusters of {least}. Give fewer."
        )
    if config.seeding == "sites":
        start, _ = from_sites(
            fed, k, space, rng=rng, least=least, restarts=config.restarts,
            aggregation=config.aggregation,
        )  # fmt: skip
    else:
        start = from_candidates(whole, k, space, rng=rng, least=least, restarts=config.restarts)
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


def _least(fed: Federation, task: Task) -> int:
    """Return m: 1 where the fit has one site, but not where one of several is left."""
    return task.min_cell if len(fed.sites) > 1 else 1


def _check_features(task: Task) -> None:
    if not task.features:
        raise DataError("there are no columns to cluster by; name at least one.")


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
