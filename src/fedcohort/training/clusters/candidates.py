"""Start of Lloyd's rounds over sites, from counts of rows alone.

The coordinator draws candidates from a normal around the mean of all sites' points. Sites count the
rows nearest to each. The next candidates are drawn around these, in proportion to the counts, with
a smaller variance, and so on. All candidates with rows, weighted by counts, are clustered by
k-means (`numerics.centroids.weighted_kmeans`). This is done for several sets of candidates at once.
The start with the least W over all sets' candidates, weighted by counts, is taken. W of the rows
would reveal more: if a single row changes its cluster before Lloyd's first round, the difference of
W from its sums is that row's distances.

Candidates are drawn along r = k − 1 axes, at least `AXES`: the centroids of k clusters span k − 1
dimensions, best estimated by the first principal axes (Ding and He, ICML 2004). Principal axes need
products of columns, and products of rare columns are single patients. So the axes are estimated
from counts too. With candidates p drawn along all columns, and n_p rows nearest to each, they are
the first eigenvectors of

    Σ_p n_p p pᵀ / Σ_p n_p − Σ_p p pᵀ / Σ_p 1                                               (1)

then those of Σ_p n_p p pᵀ / Σ_p n_p with candidates drawn along these, each time fewer. The
standard deviation along an axis is that of the candidates, weighted by counts.

Revealed: `Weighed` of each set, only as sums over all sites: counts, no sum of values. A count of 1
says that one row is near a candidate. Many candidates on few axes would locate every row (300 of
them, drawn around each one with rows, locate 30 rows in two columns within 0.01 standard
deviations). So there are at most `DENSE` candidates for `least` rows, and none is drawn around a
candidate with fewer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.centroids import nearest, squared_distances, weighted_kmeans
from fedcohort.protocol import Site, check_all_answered, message, summed
from fedcohort.training.clusters.points import PLAIN, Kept, Space, points_at
from fedcohort.training.clusters.seeding import Cloud

#: Candidates per cluster, fewest candidates, number of further draws, and the factor of the
#: standard deviation in each.
CANDIDATES, FEWEST, DRAWS, SHRINK = 10, 300, 4, 0.5

#: Sets of candidates; the start with the least W is taken.
TRIES = 10

#: Most candidates of a set for `least` rows.
DENSE = 2

#: Fewest axes, and most coordinates for which axes are estimated.
AXES, WIDEST = 2, 1000


@message
class Weighed:
    """Rows nearest to each candidate of its set, counts (m,)."""

    counts: Array


@summed(blocks="rows")
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
    """Count the rows nearest to each candidate (m, d), within t sets of sizes (t,)."""
    z = points_at(site, space, theta, frame, groups)
    sets = np.split(candidates, np.cumsum(sizes)[:-1])
    counts = [np.bincount(nearest(z, at), minlength=len(at)) for at in sets]
    return Weighed(np.concatenate(counts).astype(np.int64))


STEPS = (weigh_candidates,)


def from_candidates(
    pooled: Cloud,
    k: int,
    space: Space = PLAIN,
    *,
    rng: np.random.Generator,
    least: int,
    restarts: int = 25,
) -> Array:
    """Return start centroids (k, d), from counts of rows nearest to drawn candidates.

    Parameters
    ----------
    pooled : moments in the same space. Above `WIDEST` coordinates each is an axis, which finds
        less.
    least : fewest rows of a candidate around which others are drawn; 1 sets no limit on candidates.
    restarts : starts of the coordinator's k-means of candidates.

    Raises
    ------
    SiteUnavailable : a site is absent.
    """
    m, size = max(CANDIDATES * k, FEWEST), 1.0
    axes, spread = _axes(pooled, k, m, space, rng)
    m = max(min(m, DENSE * pooled.rows // least), k) if least > 1 else m

    def drawn(many: int, size: float) -> Array:
        return size * spread * rng.standard_normal((many, len(axes)))

    def weighed(sets: list[Array]) -> list[Array]:
        return _weighed(pooled, [at @ axes for at in sets], space)

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
    return pooled.mean + best @ axes


def _weighed(pooled: Cloud, sets: list[Array], space: Space) -> list[Array]:
    """Return the rows nearest to each point, by set of points (m, d) relative to the mean."""
    sizes = np.array([len(at) for at in sets])
    reply = pooled.fed.sum(
        weigh_candidates, candidates=pooled.mean + np.vstack(sets), sizes=sizes, **space.given
    )
    check_all_answered(pooled.fed)
    return np.split(reply.counts, np.cumsum(sizes)[:-1])


def _axes(
    pooled: Cloud, k: int, m: int, space: Space, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return the axes (r, d) of the candidates, and the standard deviations along them (r,).

    An axis points where its largest entry is positive, so rounding cannot turn it.

    m : points of a set.
    """
    d, r = len(pooled.mean), max(k - 1, AXES)
    widths = (3 * r + 2, 2 * r + 2, r + r // 2 + 2, r)
    axes, spread = np.eye(d), np.sqrt(pooled.variance)
    if not r < d <= WIDEST:
        return axes, spread
    for n, wide in enumerate(widths):
        sets = [(spread * rng.standard_normal((m, len(axes)))) @ axes for _ in range(TRIES)]
        points, counts = np.vstack(sets), np.concatenate(_weighed(pooled, sets, space))
        near = (points.T * (counts / counts.sum())) @ points
        moved = near if n else near - points.T @ points / len(points)
        axes = np.linalg.eigh(moved)[1][:, -min(wide, d) :].T
        largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
        axes = axes * np.sign(largest)
        spread = np.sqrt(np.maximum(((axes @ near) * axes).sum(axis=1), 0.0))
    return axes, spread
