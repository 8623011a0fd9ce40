"""Metrics of ranks within sites: each site's records are compared only with each other.

A site compares its own records exactly, and reveals only sums. If every site has its own model,
risks of two sites are on two scales and cannot be compared. With site k's pairs or risk sets:

    C      Σ_k Σ_pairs w [1(f_j < f_i) + ½ 1(f_j = f_i)] / Σ_k Σ_pairs w                   (1)
    slope  Σ_k U_k(b) = 0, U and I as in eq. (1) of `calibration`: Cox, stratified by site  (2)

(1) is Harrell's C with w = 1, Uno's with w = 1(t_i < τ)/G(t_i)², and the AUC over pairs of one row
of each class. Both are exact. For one model of all sites, pairs across sites count too; a summed
histogram approximates them. With H the pairs by the histogram:

    pairs = H(all sites' records) + Σ_k [pairs of site k − H(site k's records)]           (3)

Revealed: `PairSums` and `SlopeTerms`, only as sums over sites.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics import classification
from fedcohort.metrics.calibration import score_of, slope_sums
from fedcohort.metrics.sums.histogram import risk_time_counts, spread_pairs
from fedcohort.metrics.survival.censoring import Curve
from fedcohort.metrics.survival.concordance import comparable_pairs
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed


@message
class PairSums:
    """Eq. (1): ``right`` () and ``pairs`` () for w = 1, ``uno_right`` and ``uno_pairs`` ()."""

    right: Array
    pairs: Array
    uno_right: Array
    uno_pairs: Array


@message
class SlopeTerms:
    """Eq. (2): ``score`` U_k () and ``information`` I_k ()."""

    score: Array
    information: Array


@summed
def sum_own_pairs(site: Site[Any, None], *, known: Array, followed: Array, tau: float) -> PairSums:
    """Sum the comparable pairs of the site's own records, and those in the right order.

    G is `followed` from the times `known` on.
    """
    d = site.data
    event = np.asarray(d.event, bool)
    pairs = comparable_pairs(d.risk, d.time, event)
    died = np.asarray(d.time)[event]
    weight = (died < tau) * Curve(known, followed).inverse_at(died) ** 2
    right, whole = pairs.lower + 0.5 * pairs.tied, pairs.comparable.astype(float)
    found = (right.sum(), whole.sum(), weight @ right, weight @ whole)
    return PairSums(*(np.array(float(v)) for v in found))


@summed
def sum_label_pairs(site: Site[Any, None]) -> PairSums:
    """Sum the pairs of one of the site's own rows of each class, and those in the right order."""
    y, n = site.data.y, len(site.data.y)
    ones = float(np.sum(y))
    pairs = ones * (n - ones)
    right = float(classification.auc(y, site.data.f)) * pairs if pairs else 0.0
    return PairSums(*(np.array(v) for v in (right, pairs, 0.0, 0.0)))


@summed
def sum_own_slope(site: Site[Any, None], *, centre: float, spread: float, b: float) -> SlopeTerms:
    """Sum the score of the calibration slope, a Cox model on the site's own risk sets."""
    d = site.data
    event = np.asarray(d.event, bool)
    grid = np.unique(np.asarray(d.time)[event])
    risk = (np.asarray(d.risk, float) - centre) / spread
    score, information = score_of(slope_sums(risk, d.time, event, grid, b))
    return SlopeTerms(np.array(score), np.array(information))


@summed
def sum_binned_pairs(
    site: Site[Any, None], *, risk_edges: Array, grid: Array, weight: Array
) -> PairSums:
    """Sum the same pairs as estimated from the site's counts by risk and time, eq. (3)."""
    d = site.data
    counts = risk_time_counts(d.risk, d.time, d.event, risk_edges, grid)
    found = (*spread_pairs(counts, np.ones(len(weight))), *spread_pairs(counts, weight))
    return PairSums(*(np.array(v) for v in found))


@summed
def sum_binned_label_pairs(site: Site[Any, None], *, edges: Array) -> PairSums:
    """Sum the same pairs as estimated from the site's counts by predicted probability, eq. (3)."""
    y, n = site.data.y > 0.5, len(edges) + 1
    bins = np.searchsorted(edges, site.data.f, side="right")
    found = label_pairs(np.bincount(bins[y], minlength=n), np.bincount(bins[~y], minlength=n))
    return PairSums(*(np.array(v) for v in (*found, 0.0, 0.0)))


def label_pairs(ones: Array, others: Array) -> tuple[float, float]:
    """Return the pairs in the right order, and all, from rows of class 1 and of class 0 by bin
    (r,).
    """
    lower = np.cumsum(others) - 0.5 * others
    return float(ones @ lower), float(ones.sum()) * float(others.sum())


STEPS = (sum_own_pairs, sum_label_pairs, sum_own_slope, sum_binned_pairs, sum_binned_label_pairs)
