"""Sums over sites about clusters: sizes, tightness, and associated columns.

A site's rows are `Grouped`: cluster by a model, features x (n, p), and perhaps an outcome. For rows
in clusters l = 1 … k:

    scatter   n_l, Σ (x − o), Σ ‖x − o‖²   about an origin o: exact Calinski–Harabasz           (1)
    nearness  Σ s_i of the simplified silhouette about given centroids, `metrics.clusters` (6)  (2)
    powers    n_l, Σ v, Σ v², Σ v³, Σ v⁴   of v = value − centre, to detect dominated means     (3)
    hazards   events and person-time by cluster                                                 (4)

All others are counts. (1) to (4) are sums of values: over few rows they reveal these rows, as does
the difference of two sums. So the coordinator counts first. It asks for them only if no cluster
has 1 … m − 1 rows and no unions of clusters differ by as few from those of an earlier judged model
(`flow`); see `study.judge.summed.clusters`. (3) gives four numbers of a column, which determine
four or five whole values, such as ages. So it needs at least 2 m *known* values of a column
(`known`).

Revealed: the messages below, only as sums over all sites.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics import clusters
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed


class Grouped(Protocol):
    """A site's rows (n,) of one half, with a model's clusters.

    ``labels`` integers in [0, ``clusters``), those of ``before`` by an earlier model; ``reference``
    classes in [0, ``classes``); ``codes`` a column of levels each, with its number of levels, −1 if
    missing; ``numbers`` (n, q), NaN if missing; ``z`` (n, d) in the model's own space; ``again``
    labels and errors of rebuilt rows, ``agreed`` the terms of eqs. (1) and (2) of `metrics.latent`.
    """

    x: Array
    z: Array
    labels: Array
    clusters: int
    before: tuple[Array, int]
    reference: Array
    classes: int
    time: Array
    event: Array
    codes: tuple[tuple[Array, int], ...]
    numbers: Array
    again: tuple[Array, Array] | None
    agreed: tuple[Array, Array] | None


# messages -----------------------------------------------------------------------------------


@message
class Sizes:
    """Rows by cluster, ``counts`` (k,)."""

    counts: Array


@message
class Flow:
    """Rows by cluster of an earlier model and of this one, ``counts`` (b, k)."""

    counts: Array


@message
class Known:
    """Rows whose number is known, by number and cluster of both models, ``counts`` (q, b, k)."""

    counts: Array


@message
class ClassTable:
    """Rows by cluster and class, ``counts`` (k, l)."""

    counts: Array


@message
class LevelTable:
    """Rows by cluster and level, ``counts`` (k, c): the levels of each column, then its missing."""

    counts: Array


@message
class Frame:
    """Rows (), Σ x (p,); number of sites with values other than 0 and 1, and outside [0, 1]: ()."""

    rows: Array
    total: Array
    fractions: Array
    outside: Array


@message
class ScatterSums:
    """Eq. (1): ``rows`` (k,), ``total`` (k, p), ``squares`` ()."""

    rows: Array
    total: Array
    squares: Array


@message
class Nearness:
    """Eq. (2): ``total`` and ``rows`` ()."""

    total: Array
    rows: Array


@message
class Cycle:
    """Rebuilt rows (), those with the same label (), Σ of their mean error ()."""

    rows: Array
    same: Array
    error: Array


@message
class TwoValued:
    """Known entries of each two-valued feature, ``known`` (p,), 0 of other features."""

    known: Array


@message
class Agreement:
    """Eqs. (1) and (2) of `metrics.latent` over ``entries`` (): ``expected`` and ``rounded`` ()."""

    entries: Array
    expected: Array
    rounded: Array


@message
class RebuildError:
    """Σ of rows' mean squared error after reconstruction: ``error`` ()."""

    error: Array


@message
class Exposure:
    """Eq. (4): ``events`` and ``time`` (k,)."""

    events: Array
    time: Array


@message
class Powers:
    """Eq. (3): ``rows`` (k, q), and ``powers`` (4, k, q)."""

    rows: Array
    powers: Array


@message
class Spread:
    """Of all rows in the model's space: ``rows`` (), Σ (z − o) (d,), their products (d, d)."""

    rows: Array
    total: Array
    products: Array


@message
class Places:
    """Eq. (3) on two axes: ``rows`` (k, 2), ``powers`` (4, k, 2); Σ of products ``cross`` (k,)."""

    rows: Array
    powers: Array
    cross: Array


# steps ----------------------------------------------------------------------------------------


@summed
def count_clusters(site: Site[Any, None]) -> Sizes:
    """Count the rows of each cluster."""
    d: Grouped = site.data
    return Sizes(np.bincount(d.labels, minlength=d.clusters))


@summed
def count_flow(site: Site[Any, None]) -> Flow:
    """Count the rows of each cluster of an earlier judged model, by cluster of this one."""
    d: Grouped = site.data
    old, b = d.before
    flow = np.zeros((b, d.clusters), np.int64)
    np.add.at(flow, (old, d.labels), 1)
    return Flow(flow)


@summed
def count_known(site: Site[Any, None]) -> Known:
    """Count blind rows whose number is known, by cluster of both models, for each number."""
    d: Grouped = site.data
    old, b = d.before
    known = np.zeros((d.numbers.shape[1], b, d.clusters), np.int64)
    row, number = np.nonzero(~np.isnan(d.numbers))
    np.add.at(known, (number, old[row], d.labels[row]), 1)
    return Known(known)


@summed
def count_classes(site: Site[Any, None]) -> ClassTable:
    """Count the blind rows of each cluster, by known class."""
    d: Grouped = site.data
    table = np.zeros((d.clusters, d.classes), np.int64)
    np.add.at(table, (d.labels, d.reference), 1)
    return ClassTable(table)


@summed
def count_levels(site: Site[Any, None]) -> LevelTable:
    """Count the blind rows of each cluster, by level of each column."""
    d: Grouped = site.data
    parts = [np.zeros((d.clusters, 0), np.int64)]
    for code, levels in d.codes:
        part = np.zeros((d.clusters, levels + 1), np.int64)
        np.add.at(part, (d.labels, code), 1)  # −1, a missing level, is the last
        parts.append(part)
    return LevelTable(np.hstack(parts))


@summed
def sum_frame(site: Site[Any, None]) -> Frame:
    """Count blind rows, and sum their features."""
    x = site.data.x
    fractions, outside = not np.isin(x, (0.0, 1.0)).all(), bool(((x < 0) | (x > 1)).any())
    return Frame(
        np.array(len(x)), x.sum(axis=0), np.array(int(fractions)), np.array(int(outside))
    )  # fmt: skip


@summed
def sum_scatter(site: Site[Any, None], *, origin: Array) -> ScatterSums:
    """Sum the features of each cluster's blind rows, and all squares."""
    d: Grouped = site.data
    s = clusters.scatter(d.x, d.labels, d.clusters, origin)
    return ScatterSums(s.rows, s.total, np.array(s.squares))


@summed
def sum_nearness(site: Site[Any, None], *, centroids: Array, used: Array, cosine: bool) -> Nearness:
    """Sum how much nearer blind rows are to their own cluster's mean than to the next one."""
    d: Grouped = site.data
    place = np.where(used, np.cumsum(used) - 1, -1)[d.labels]
    here = place >= 0
    distance = "cosine" if cosine else "euclidean"
    found = clusters.simplified_silhouette(
        d.x[here], place[here], centroids[np.asarray(used, bool)], distance
    )
    total, rows = (float(part.sum()) for part in found)
    return Nearness(np.array(total), np.array(rows))


@summed
def sum_cycle(site: Site[Any, None]) -> Cycle:
    """Count blind rows that keep their cluster when the model reconstructs them, and sum its
    squared error.
    """
    d: Grouped = site.data
    if d.again is None:
        return Cycle(np.array(0), np.array(0), np.array(0.0))
    labels, error = d.again
    same = int((labels == d.labels).sum())
    return Cycle(np.array(len(labels)), np.array(same), np.array(error.sum()))


@summed
def count_two_valued(site: Site[Any, None]) -> TwoValued:
    """Known entries of blind rows, of each feature with two values."""
    d: Grouped = site.data
    if d.agreed is None:
        return TwoValued(np.zeros(d.x.shape[1], np.int64))
    return TwoValued((~np.isnan(d.agreed[0])).sum(axis=0))


@summed
def sum_agreement(site: Site[Any, None], *, asked: Array) -> Agreement:
    """How often entries of blind rows with two values come back when rebuilt by the model.

    asked : (p,) bool, of which features.
    """
    d: Grouped = site.data
    if d.agreed is None:
        return Agreement(*(np.array(0.0) for _ in range(3)))
    expected, rounded = (np.where(np.asarray(asked, bool), part, np.nan) for part in d.agreed)
    known = (~np.isnan(expected)).sum()
    return Agreement(
        np.array(float(known)), np.array(np.nansum(expected)), np.array(np.nansum(rounded))
    )


@summed
def sum_rebuild_error(site: Site[Any, None]) -> RebuildError:
    """Squared error of all rows rebuilt by the model."""
    d: Grouped = site.data
    return RebuildError(np.array(np.nan if d.again is None else d.again[1].sum()))


@summed
def sum_exposure(site: Site[Any, None]) -> Exposure:
    """Sum events and time under observation of each cluster's training rows."""
    d: Grouped = site.data
    event = np.asarray(d.event, float)
    return Exposure(
        np.bincount(d.labels, event, d.clusters), np.bincount(d.labels, d.time, d.clusters)
    )  # fmt: skip


@summed
def sum_powers(site: Site[Any, None], *, centre: Array, asked: Array) -> Powers:
    """Sum the numbers of each cluster's blind rows, up to their fourth powers.

    asked : (q,) bool, the summed numbers.
    """
    d: Grouped = site.data
    v = np.where(np.asarray(asked, bool), d.numbers - centre, np.nan)
    return Powers(*_powers(v, d.labels, d.clusters))


@summed
def sum_spread(site: Site[Any, None], *, origin: Array) -> Spread:
    """Sum the coordinates of all blind rows in the model's space, and their products."""
    off = site.data.z - (origin if len(origin) else 0.0)
    return Spread(np.array(len(off)), off.sum(axis=0), off.T @ off)


@summed
def sum_places(site: Site[Any, None], *, centre: Array, axes: Array, asked: Array) -> Places:
    """Sum the coordinates of each cluster's blind rows on the two main axes, up to their fourth
    powers.

    asked : (k,) bool, the summed clusters.
    """
    d: Grouped = site.data
    here = np.asarray(asked, bool)[d.labels]
    at, labels = (d.z[here] - centre) @ axes, d.labels[here]
    cross = np.bincount(labels, at[:, 0] * at[:, 1], d.clusters)
    return Places(*_powers(at, labels, d.clusters), cross)


STEPS = (
    count_clusters, count_flow, count_known, count_classes, count_levels, sum_frame, sum_scatter,
    sum_nearness, sum_cycle, sum_exposure, sum_powers, sum_spread, sum_places,
)  # fmt: skip
#: Steps of metrics that a study has only if it names them.
_ENTRIES = (count_two_valued, sum_agreement)
NAMED = {
    "reconstruction_accuracy": _ENTRIES,
    "rounded_accuracy": _ENTRIES,
    "g_ratio": (sum_rebuild_error,),
}


def _powers(v: Array, labels: Array, k: int) -> tuple[Array, Array]:
    known = ~np.isnan(v)
    v = np.where(known, v, 0.0)
    member = np.eye(k)[labels].T
    return member @ known, np.stack([member @ v**power for power in (1, 2, 3, 4)])
