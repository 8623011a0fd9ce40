"""Partition of all sites' rows into clusters, as sent to sites: a path of centroids.

The path (t, k, d) has the centroids of a few rounds, with the moves that were allowed between them,
so sites keep no state. A row starts in the cluster of its nearest centroid of the first round. In
each later round it moves to its nearest centroid if that move is allowed.

Revealed: `Near`, `Flows` or `Sums`, as a sum over all sites. The caller checks that no sum, and no
difference of sums, is over few rows (`training.clusters.lloyd`). Counts come without W: its
difference from earlier rounds would be one row's distances if a single row moves.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.centroids import nearest
from fedcohort.protocol import Federation, Site, check_all_answered, message, summed
from fedcohort.training.clusters.points import Kept, Space, points_at

#: Most bytes of remembered searches of one table.
REMEMBERED = 2**25


@message
class Near:
    """Rows (), rows of each cluster, counts (k,), and by earlier and new cluster, flow (b, k)."""

    rows: Array
    counts: Array
    flow: Array


@message
class Flows:
    """Rows by cluster in each of r earlier partitions and now, flow (r, b, k)."""

    flow: Array


@message
class Sums:
    """For each cluster: rows, counts (k,); Σ (z − μ), drift (k, d); Σ (z − μ)², squares (k, d)."""

    counts: Array
    drift: Array
    squares: Array


class Labels:
    """Clusters of points z (n, d); paths that begin with the same rounds share their clusters."""

    def __init__(self, z: Array):
        self._z = z
        self._nearest_of = _searches(z)
        self._found: dict[bytes, Array] = {}

    def __call__(self, path: Array, moves: Array) -> Array:
        """Return the cluster (n,) of each point.

        Parameters
        ----------
        path : (t, k, d) centroids of t rounds.
        moves : (t − 1, k, k), whether a row may move from one cluster to another, for each later
            round.
        """
        key = path[0].tobytes()
        label = self._nearest(path[0])
        for at, may in zip(path[1:], moves, strict=True):
            if not may.any():  # as in rounds that only fill up a path
                continue
            key = _mark(key, at.tobytes(), may.tobytes())
            if key not in self._found:
                new = self._nearest(at)
                self._found[key] = np.where(may[label, new], new, label)
            label = self._found[key]
        return label

    def _nearest(self, centroids: Array) -> Array:
        key, held = _mark(centroids.tobytes()), self._nearest_of
        if key not in held:
            found = nearest(self._z, centroids).astype(np.min_scalar_type(len(centroids)))
            while held and (len(held) + 1) * found.nbytes > REMEMBERED:
                del held[next(iter(held))]
            held[key] = found
        return held[key].astype(np.intp)


#: By table, the nearest centroids found in it, as long as it lives: rounds ask for earlier ones.
_memories: dict[int, tuple[weakref.ref[Array], dict[bytes, Array]]] = {}


def _searches(z: Array) -> dict[bytes, Array]:
    """Return what was found among the points z (n, d) so far, by digest of the centroids."""
    number = id(z)
    known = _memories.get(number)
    if known is None or known[0]() is not z:
        gone = weakref.ref(z, lambda _: _memories.pop(number, None))
        known = _memories[number] = gone, {}
    return known[1]


def _mark(*parts: bytes) -> bytes:
    """Return a digest of a path: of the rounds before, and of the latest."""
    return hashlib.blake2b(b"".join(hashlib.blake2b(p).digest() for p in parts)).digest()


def _flow(before: Array, now: Array, b: int, k: int) -> Array:
    """Return the rows by cluster before and now, (b, k)."""
    return np.bincount(before * k + now, minlength=b * k).reshape(b, k)


def labels(z: Array, path: Array, moves: Array) -> Array:
    """Return the cluster (n,) of each point z (n, d); see `Labels`."""
    return Labels(z)(path, moves)


@summed(blocks="rows")
def count_near(
    site: Site[Any, Kept | None],
    *,
    path: Array,
    moves: Array,
    before: Array,
    moves_before: Array,
    space: str,
    theta: Array,
    frame: Array,
    groups: Array,
) -> Near:
    """Count the rows of each cluster, and the moves since an earlier round."""
    z = points_at(site, space, theta, frame, groups)
    of = Labels(z)
    label = of(path, moves)
    k, b = path.shape[1], before.shape[1] if len(before) else 0
    flow = np.zeros((b, k), np.int64)
    if b:
        flow = _flow(of(before, moves_before), label, b, k)
    counts = np.bincount(label, minlength=k).astype(np.int64)
    return Near(np.array(len(z)), counts, flow)


@summed(blocks="rows")
def count_flows(
    site: Site[Any, Kept | None],
    *,
    path: Array,
    moves: Array,
    before: Array,
    moves_before: Array,
    space: str,
    theta: Array,
    frame: Array,
    groups: Array,
) -> Flows:
    """Count the rows of each cluster, by their clusters in several earlier rounds.

    Parameters
    ----------
    before, moves_before : (r, t, b, d) and (r, t − 1, b, b), r paths with their moves.
    """
    z = points_at(site, space, theta, frame, groups)
    of = Labels(z)
    label = of(path, moves)
    b, k = before.shape[2], path.shape[1]
    pairs = zip(before, moves_before, strict=True)
    return Flows(np.array([_flow(of(then, may), label, b, k) for then, may in pairs]))


@summed(blocks="rows")
def sum_near(
    site: Site[Any, Kept | None],
    *,
    path: Array,
    moves: Array,
    about: Array,
    unscaled: bool,
    space: str,
    theta: Array,
    frame: Array,
    groups: Array,
) -> Sums:
    """Sum the points of each cluster, and their squares, relative to given centres.

    about : the centres (k, d). unscaled : sum the points before the space's scale, which still
    determines the nearest centroid.
    """
    z = points_at(site, space, theta, frame, groups)
    label = labels(z, path, moves)
    if unscaled:
        plain = replace(Space.of(space, theta, frame, groups), scale="none", frame=np.zeros((0, 0)))
        z = points_at(site, **plain.given)
    drift, squares = np.zeros(about.shape), np.zeros(about.shape)
    for j, at in enumerate(about):
        own = z[label == j] - at
        drift[j], squares[j] = own.sum(axis=0), (own**2).sum(axis=0)
    counts = np.bincount(label, minlength=len(about)).astype(np.int64)
    return Sums(counts, drift, squares)


STEPS = (count_near, count_flows, sum_near)


@dataclass(frozen=True)
class Cells:
    """Partition of all rows: a path of centroids and the allowed moves, see `labels`."""

    path: Array
    moves: Array

    @property
    def clusters(self) -> int:
        """Number of clusters, k."""
        return self.path.shape[1]

    @classmethod
    def around(cls, centroids: Array) -> Cells:
        """Return the partition by the nearest of centroids (k, d)."""
        k = len(centroids)
        return cls(centroids[None], np.zeros((0, k, k), np.bool_))

    def then(self, centroids: Array, may: Array) -> Cells:
        """Return the partition after moves (k, k) to the nearest of centroids (k, d)."""
        return Cells(
            np.concatenate([self.path, centroids[None]]), np.concatenate([self.moves, may[None]])
        )

    def padded(self, rounds: int, clusters: int) -> Cells:
        """Return the same partition with a path of at least its own `rounds` and `clusters`.

        The first round is repeated, and added clusters repeat the first cluster, which wins ties.
        """
        early, more = rounds - len(self.path), clusters - self.clusters
        path = np.concatenate([np.repeat(self.path[:1], early, axis=0), self.path])
        path = np.concatenate([path, np.repeat(path[:, :1], more, axis=1)], axis=1)
        return Cells(path, np.pad(self.moves, ((early, 0), (0, more), (0, more))))


def count_since(fed: Federation, now: Cells, before: Sequence[Cells], space: Space) -> Array:
    """Count the rows by cluster now and in each earlier partition (r, b, k).

    Raises
    ------
    SiteUnavailable : a site is absent.
    """
    long, wide = (max(n) for n in zip(*((len(c.path), c.clusters) for c in before), strict=True))
    cells = [c.padded(long, wide) for c in before]
    reply = fed.sum(
        count_flows, path=now.path, moves=now.moves, before=np.stack([c.path for c in cells]),
        moves_before=np.stack([c.moves for c in cells]), **space.given,
    )  # fmt: skip
    check_all_answered(fed)
    return reply.flow


def count(fed: Federation, now: Cells, before: Cells | None, space: Space) -> Near:
    """Count the rows of each cluster.

    Raises
    ------
    SiteUnavailable : a site is absent.
    """
    then = now if before is None else before
    t = 0 if before is None else len(then.path)
    near = fed.sum(
        count_near, path=now.path, moves=now.moves, before=then.path[:t],
        moves_before=then.moves[:t], **space.given,
    )  # fmt: skip
    check_all_answered(fed)
    return near
