"""Where Lloyd's rounds over sites start: from counts of rows alone.

The coordinator draws points from a normal about the mean of all sites' points. Sites count the rows
nearest to each. It draws the next ones beside these, in proportion to the counts, with a smaller
variance; and so on. All that have rows, weighed by their counts, are clustered by k-means
(`numerics.centroids.weighted_kmeans`). This is done for several sets of points at once, and those
centroids are taken that have the least W of all sets' points, weighed by their counts. W of the
rows would tell more than that: where one row alone is of another cluster than in Lloyd's first
rounds, W less what their sums give is its distances.

Points are drawn along r = k − 1 axes, or `AXES`: k clusters lie in a space of so many dimensions,
and its best guess are the first principal axes (Ding and He, ICML 2004). These need products of
columns, and products of rare columns are single patients. So they are guessed from counts, too. Of
points p that are drawn along all columns, n_p the rows nearest to each, the axes are the first of

    Σ_p n_p p pᵀ / Σ_p n_p − Σ_p p pᵀ / Σ_p 1                                               (1)

in which drawn points go where rows are; then of Σ n_p p pᵀ / Σ n_p of points drawn along these, and
so on, each time of fewer. The deviation along an axis is that of points, weighed by their counts.

Revealed: `Weighed` of each set, which is counts, as sums over all sites: no sum of values. A count
of 1 says that one row is near a point. Many points on few axes would place every row (300 of them,
drawn beside any that has a row, 30 rows in two columns within 0.01 standard deviations). So there
are no more than `DENSE` for `least` rows, and none is drawn beside a point that has fewer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.centroids import nearest, squared_distances, weighted_kmeans
from fedcohort.protocol import Site, check_all_answered, message, summed
from fedcohort.training.clusters.points import PLAIN, Kept, Space, points_at
from fedcohort.training.clusters.seeding import Cloud

#: Candidates for each cluster, the fewest of them, how often they are drawn, and the part of the
#: standard deviation that is left each time.
CANDIDATES, FEWEST, DRAWS, SHRINK = 10, 300, 4, 0.5

#: Sets of candidates; the start with the least W is taken.
TRIES = 10

#: The most candidates of a set that are drawn for `least` rows.
DENSE = 2

#: The fewest axes, and the most coordinates in which they are looked for.
AXES, WIDEST = 2, 1000


@message
class Weighed:
    """Rows nearest to each candidate of its set, counts (m,)."""

    counts: Array


@summed
def weigh_candidates(
    site: Site[Any, Kept | None],
    *,
    candidates: Array,
    sizes: Array,
    space: str,
    theta: Array,
    frame: Array,
    groups: Array,
) -> Weighed:
    """Count the rows nearest to each candidate (m, d), in t sets of so many, sizes (t,)."""
    z = points_at(site, space, theta, frame, groups)
    sets = np.split(candidates, np.cumsum(sizes)[:-1])
    counts = [np.bincount(nearest(z, at), minlength=len(at)) for at in sets]
    return Weighed(np.concatenate(counts).astype(np.int64))


STEPS = (weigh_candidates,)


def from_candidates(
    whole: Cloud,
    k: int,
    space: Space = PLAIN,
    *,
    rng: np.random.Generator,
    least: int,
    restarts: int = 25,
) -> Array:
    """Return centroids (k, d) to start from, by counts of rows nearest to points that are drawn.

    Parameters
    ----------
    whole : of the same space; its sites are asked. Of more than `WIDEST` coordinates every one is
        an axis, which finds less.
    least : rows of a point beside which others may be drawn; with 1 there are as many as can be.
    restarts : starts of the k-means of candidates, at the coordinator.

    Raises
    ------
    SiteUnavailable : one of the sites is away.
    """
    m, size = max(CANDIDATES * k, FEWEST), 1.0
    axes, spread = _axes(whole, k, m, space, rng)
    m = max(min(m, DENSE * whole.rows // least), k) if least > 1 else m

    def drawn(many: int, size: float) -> Array:
        return size * spread * rng.standard_normal((many, len(axes)))

    def weighed(sets: list[Array]) -> list[Array]:
        return _weighed(whole, [at @ axes for at in sets], space)

    sets = [drawn(m, size) for _ in range(TRIES)]
    counts = weighed(sets)
    for _ in range(DRAWS):
        size *= SHRINK
        for t, (at, n) in enumerate(zip(sets, counts, strict=True)):
            full = np.where(n >= least, n, 0)
            if full.any():
                beside = at[rng.choice(len(at), m, p=full / full.sum())]
                sets[t] = np.vstack([at[n > 0], beside + drawn(m, size)])
        counts = weighed(sets)
    held = [(at[n > 0], n[n > 0].astype(float)) for at, n in zip(sets, counts, strict=True)]
    starts: list[Array] = []
    for at, n in held:
        if len(at) < k:
            starts.append(np.vstack([at, drawn(k - len(at), 1.0)]))
        else:
            starts.append(weighted_kmeans(at, n, k, rng, restarts=restarts)[0])
    every, rows = (np.concatenate(part) for part in zip(*held, strict=True))
    best = min(starts, key=lambda start: float(rows @ squared_distances(every, start).min(axis=1)))
    return whole.mean + best @ axes


def _weighed(whole: Cloud, sets: list[Array], space: Space) -> list[Array]:
    """Return the rows nearest to each point about the mean, by set (m, d)."""
    sizes = np.array([len(at) for at in sets])
    told = whole.fed.sum(
        weigh_candidates, candidates=whole.mean + np.vstack(sets), sizes=sizes, **space.given
    )
    check_all_answered(whole.fed)
    return np.split(told.counts, np.cumsum(sizes)[:-1])


def _axes(
    whole: Cloud, k: int, m: int, space: Space, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return the axes (r, d) along which candidates are drawn, and the deviations there (r,).

    An axis points where its largest entry is positive: rounding cannot turn it.

    m : points of a set.
    """
    d, r = len(whole.mean), max(k - 1, AXES)
    widths = (3 * r + 2, 2 * r + 2, r + r // 2 + 2, r)
    axes, spread = np.eye(d), np.sqrt(whole.variance)
    if not r < d <= WIDEST:
        return axes, spread
    for n, wide in enumerate(widths):
        sets = [(spread * rng.standard_normal((m, len(axes)))) @ axes for _ in range(TRIES)]
        points, counts = np.vstack(sets), np.concatenate(_weighed(whole, sets, space))
        near = (points.T * (counts / counts.sum())) @ points
        moved = near if n else near - points.T @ points / len(points)
        axes = np.linalg.eigh(moved)[1][:, -min(wide, d) :].T
        largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
        axes = axes * np.sign(largest)
        spread = np.sqrt(np.maximum(((axes @ near) * axes).sum(axis=1), 0.0))
    return axes, spread
