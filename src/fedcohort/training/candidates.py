"""Where Lloyd's rounds over sites start: from counts of rows alone.

The coordinator draws points from a normal about the mean of all sites' points. Sites count the rows
nearest to each. It draws the next ones beside these, in proportion to the counts, with a smaller
variance; and so on. All that have rows, weighed by their counts, are clustered by k-means
(`numerics.centroids.weighted_kmeans`). This is done for several sets of points at once, and the
centroids of the least W are taken.

Points are drawn along r = k − 1 axes, or `AXES`: k clusters lie in a space of so many dimensions,
and its best guess are the first principal axes (Ding and He, ICML 2004). These need products of
columns, and products of rare columns are single patients. So they are guessed from counts, too. Of
points p that are drawn along all columns, n_p the rows nearest to each, the axes are the first of

    Σ_p n_p p pᵀ / Σ_p n_p − Σ_p p pᵀ / Σ_p 1                                               (1)

in which drawn points go where rows are; then of Σ n_p p pᵀ / Σ n_p of points drawn along these, and
so on, each time of fewer. The deviation along an axis is that of points, weighed by their counts.

Revealed: `Weighed` of each set, which is counts and W, as sums over all sites: no value of a row
and no sum of values. Who is nearest to points that are drawn at random says little of few rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.centroids import nearest, weighted_kmeans
from fedcohort.protocol import Site, check_all_answered, message, summed
from fedcohort.training.points import PLAIN, Kept, Space, points_at
from fedcohort.training.seeding import Cloud

#: Candidates for each cluster, the fewest of them, how often they are drawn, and the part of the
#: standard deviation that is left each time.
CANDIDATES, FEWEST, DRAWS, SHRINK = 10, 300, 4, 0.5

#: Sets of candidates; the start with the least W is taken.
TRIES = 10

#: The fewest axes, and the most coordinates in which they are looked for.
AXES, WIDEST = 2, 1000


@message
class Weighed:
    """Rows nearest to each candidate of its set, counts (m,); and W of each set, within (t,)."""

    counts: Array
    within: Array


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
    counts: list[Array] = []
    within: list[float] = []
    for at in np.split(candidates, np.cumsum(sizes)[:-1]):
        label = nearest(z, at)
        counts.append(np.bincount(label, minlength=len(at)))
        within.append(float(((z - at[label]) ** 2).sum()))
    return Weighed(np.concatenate(counts).astype(np.int64), np.array(within))


STEPS = (weigh_candidates,)


def from_candidates(
    whole: Cloud,
    k: int,
    space: Space = PLAIN,
    *,
    rng: np.random.Generator,
    restarts: int = 25,
) -> Array:
    """Return centroids (k, d) to start from, by counts of rows nearest to points that are drawn.

    Parameters
    ----------
    whole : of the same space; its sites are asked. Of more than `WIDEST` coordinates every one is
        an axis, which finds less.
    restarts : starts of the k-means of candidates, at the coordinator.

    Raises
    ------
    SiteUnavailable : one of the sites is away.
    """
    m, size = max(CANDIDATES * k, FEWEST), 1.0
    axes, spread = _axes(whole, k, m, space, rng)

    def drawn(many: int, size: float) -> Array:
        return size * spread * rng.standard_normal((many, len(axes)))

    def weighed(sets: list[Array]) -> tuple[list[Array], Array]:
        return _weighed(whole, [at @ axes for at in sets], space)

    sets = [drawn(m, size) for _ in range(TRIES)]
    counts, _ = weighed(sets)
    for _ in range(DRAWS):
        size *= SHRINK
        for t, (at, n) in enumerate(zip(sets, counts, strict=True)):
            beside = at[rng.choice(len(at), m, p=n / n.sum())]
            sets[t] = np.vstack([at[n > 0], beside + drawn(m, size)])
        counts, _ = weighed(sets)
    starts: list[Array] = []
    for at, n in zip(sets, counts, strict=True):
        held = at[n > 0]
        if len(held) < k:
            starts.append(np.vstack([held, drawn(k - len(held), 1.0)]))
        else:
            weights = n[n > 0].astype(float)
            starts.append(weighted_kmeans(held, weights, k, rng, restarts=restarts)[0])
    return whole.mean + starts[int(weighed(starts)[1].argmin())] @ axes


def _weighed(whole: Cloud, sets: list[Array], space: Space) -> tuple[list[Array], Array]:
    """Return the rows nearest to each point about the mean, by set (m, d), and W of each set."""
    sizes = np.array([len(at) for at in sets])
    told = whole.fed.sum(
        weigh_candidates, candidates=whole.mean + np.vstack(sets), sizes=sizes, **space.given
    )
    check_all_answered(whole.fed)
    return np.split(told.counts, np.cumsum(sizes)[:-1]), told.within


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
        points, counts = np.vstack(sets), np.concatenate(_weighed(whole, sets, space)[0])
        near = (points.T * (counts / counts.sum())) @ points
        moved = near if n else near - points.T @ points / len(points)
        axes = np.linalg.eigh(moved)[1][:, -min(wide, d) :].T
        largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
        axes = axes * np.sign(largest)
        spread = np.sqrt(np.maximum(((axes @ near) * axes).sum(axis=1), 0.0))
    return axes, spread
