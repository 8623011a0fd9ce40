"""What a site answers while trees grow: counts, then sums, over a drawn share of its rows.

Revealed, only as sums over all sites: `Sides` and `SideSums` at each level of the trees, `Leaves`
once, and of survival twice. All are over rows that the site draws in secret (`draws`), but for the
totals of all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcohort.algorithms.forest.outcome import Target
from fedcohort.algorithms.forest.regions import (
    Tried,
    checked,
    checked_tried,
    leaf_sums,
    tried_sums,
)
from fedcohort.arrays import Array
from fedcohort.numerics.trees.nodes import Trees
from fedcohort.protocol import Site, message, summed


@message
class Outcome:
    """Number of rows, Σ (y − centre), Σ (y − centre)², and how many are above 0."""

    rows: Array
    total: Array
    squares: Array
    positive: Array


@message
class Sides:
    """Drawn rows on both sides of each tried split (F, K, 2)."""

    counts: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        wrong = self.counts.shape != (*np.shape(asked["covariate"]), 2)
        return "counts of other splits than were asked for." * wrong


@message
class SideSums:
    """Their sums of the outcome (F, K, 2, C)."""

    sums: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        wrong = self.sums.shape != (*np.shape(asked["covariate"]), 2, asked["classes"])
        return "sums of other splits than were asked for." * wrong


@message
class Leaves:
    """Drawn rows of each leaf (L,), and their sums of the outcome (L, W)."""

    counts: Array
    sums: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        wrong = self.counts.shape != np.shape(asked["nodes"])
        return "sums of other leaves than were asked for." * wrong


@summed
def sum_outcome(site: Site[Any, None], *, centre: float) -> Outcome:
    """Count the rows, and sum the outcome and its squares about one point."""
    y = np.asarray(site.data.y, float)
    d = y - centre
    parts = (len(y), d.sum(), (d * d).sum(), (y > 0).sum())
    return Outcome(*(np.array(part) for part in parts))


@summed
def count_sides(
    site: Site[Any, None],
    *,
    roots: Array,
    feature: Array,
    threshold: Array,
    left: Array,
    right: Array,
    goes_left: Array,
    nodes: Array,
    covariate: Array,
    cut: Array,
    missing_left: Array,
    asked: Array,
    drawn_parts: int,
) -> Sides:
    """Count the drawn rows on both sides of the splits that are tried at leaves."""
    trees = checked(site, _trees(roots, feature, threshold, left, right, goes_left))
    tried = _tried(nodes, covariate, cut, missing_left, asked)
    checked_tried(site, tried, trees)
    return Sides(tried_sums(site, trees, tried, drawn_parts, None)[0])


@summed
def sum_sides(
    site: Site[Any, None],
    *,
    roots: Array,
    feature: Array,
    threshold: Array,
    left: Array,
    right: Array,
    goes_left: Array,
    nodes: Array,
    covariate: Array,
    cut: Array,
    missing_left: Array,
    asked: Array,
    drawn_parts: int,
    kind: str,
    classes: int,
    centre: float,
    unit: float,
    times: Array,
    hazard: Array,
    together: bool,
) -> SideSums:
    """Sum the outcome of the drawn rows on both sides of the splits that may be asked for."""
    trees = checked(site, _trees(roots, feature, threshold, left, right, goes_left))
    tried = _tried(nodes, covariate, cut, missing_left, asked)
    checked_tried(site, tried, trees)
    target = Target(
        kind=kind, classes=classes, centre=centre, unit=unit, times=times, hazard=hazard,
        together=together,
    )  # fmt: skip
    return SideSums(tried_sums(site, trees, tried, drawn_parts, target)[1])


@summed
def sum_leaves(
    site: Site[Any, None],
    *,
    roots: Array,
    feature: Array,
    threshold: Array,
    left: Array,
    right: Array,
    goes_left: Array,
    nodes: Array,
    drawn_parts: int,
    kind: str,
    classes: int,
    centre: float,
    unit: float,
    times: Array,
    hazard: Array,
    together: bool,
) -> Leaves:
    """Sum the outcome of the drawn rows of leaves; of survival by interval of time."""
    trees = checked(site, _trees(roots, feature, threshold, left, right, goes_left))
    none = np.zeros((len(nodes), 0))
    checked_tried(site, _tried(nodes, none.astype(np.int32), none, none, none), trees)
    target = Target(
        kind=kind, classes=classes, centre=centre, unit=unit, times=times, hazard=hazard,
        together=together,
    )  # fmt: skip
    return Leaves(*leaf_sums(site, trees, np.asarray(nodes), drawn_parts, target))


def _trees(
    roots: Array, feature: Array, threshold: Array, left: Array, right: Array, goes_left: Array
) -> Trees:
    return Trees(
        roots=roots, feature=feature, threshold=np.asarray(threshold, np.float32), left=left,
        right=right, missing_left=np.asarray(goes_left, bool), value=np.zeros((len(feature), 0)),
    )  # fmt: skip


def _tried(nodes: Array, covariate: Array, cut: Array, missing_left: Array, asked: Array) -> Tried:
    return Tried(
        nodes=nodes, covariate=covariate, cut=np.asarray(cut, np.float32),
        missing_left=np.asarray(missing_left, bool), asked=np.asarray(asked, bool),
    )  # fmt: skip


STEPS = (sum_outcome, count_sides, sum_sides, sum_leaves)
