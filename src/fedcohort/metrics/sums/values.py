"""Metrics of classes and of values over sites: steps that sum, and the programs that finish.

Accuracy, Brier score, log loss, R², RMSE, NRMSE, MAE, Pearson's correlation, both calibration
slopes, intercept and deviance equal those of the pooled records to rounding: eqs. (2) to (5) of
`classification` and (1) to (8) of `regression` are sums over records, or over records about a
pooled mean. The AUC compares records: those of one site exactly, those of two by bins, with ties
within a bin; see eq. (3) of `within_sites`.

    log-likelihood of logistic recalibration   Σ y η − log(1 + e^η),  η = a + b (f − c)/s      (1)

Steps read `y` (n,), `f` (n,) and `lost` (), the number of rows without a finite prediction; if
there are any, no metric is given.

Revealed: the messages below, only as sums over sites.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit, xlogy

from fedcohort.arrays import Array
from fedcohort.metrics import classification, regression
from fedcohort.metrics.sums.within_sites import label_pairs, sum_binned_label_pairs, sum_label_pairs
from fedcohort.privacy.disclosure.steps import even_ends, joined, step_sums
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed

#: Largest slope; beyond it the predictions separate the classes, and no slope is finite.
STEEPEST = 1e6


@message
class LabelSums:
    """Eqs. (2) to (4) of `classification`: all ()."""

    rows: Array
    lost: Array
    ones: Array
    right: Array
    squares: Array
    logs: Array


@message
class LabelCounts:
    """Rows of class 1 and of class 0 by bin, and Σ of predictions: (r,)."""

    ones: Array
    others: Array
    predicted: Array


@message
class LogitMoments:
    """Σ f () and Σ (f − centre)² () of f = logit p."""

    total: Array
    squares: Array


@message
class LogitSums:
    """Eq. (1) at a and b: its value (), gradient (2,) and curvature (3,)."""

    value: Array
    gradient: Array
    curvature: Array


@message
class ValueSums:
    """Σ y, Σ f, rows, and rows without a number or without one above 0: all ()."""

    rows: Array
    lost: Array
    low: Array
    y: Array
    f: Array


@message
class ValueSpread:
    """About the pooled means: Σ (y − ȳ)², Σ (f − f̄)², Σ (y − ȳ)(f − f̄), Σ e², Σ |e|, deviance."""

    yy: Array
    ff: Array
    yf: Array
    squares: Array
    absolute: Array
    deviance: Array


# steps --------------------------------------------------------------------------------


@summed
def sum_labels(site: Site[Any, None]) -> LabelSums:
    """Sum the errors of predicted probabilities."""
    y, p = site.data.y, site.data.f
    inside = np.clip(np.where(y > 0.5, p, 1.0 - p), classification.EDGE, 1.0 - classification.EDGE)
    right = np.sum((p > 0.5) == (y > 0.5))
    found = (len(y), site.data.lost, y.sum(), right, np.sum((p - y) ** 2), -np.log(inside).sum())
    return LabelSums(*(np.array(float(v)) for v in found))


@summed
def count_labels(site: Site[Any, None], *, edges: Array) -> LabelCounts:
    """Count the rows of either class by predicted probability."""
    y, p = site.data.y, site.data.f
    bins, n = np.searchsorted(edges, p, side="right"), len(edges) + 1
    ones = np.bincount(bins[y > 0.5], minlength=n)
    others = np.bincount(bins[y <= 0.5], minlength=n)
    return LabelCounts(ones, others, np.bincount(bins, p, minlength=n))


@summed
def logit_moments(site: Site[Any, None], *, centre: float) -> LogitMoments:
    """Sum the predicted log odds, and their squares about a centre."""
    f = _logit(site.data.f)
    return LogitMoments(np.array(f.sum()), np.array(np.sum((f - centre) ** 2)))


@summed
def sum_recalibration(
    site: Site[Any, None], *, centre: float, spread: float, a: float, b: float
) -> LogitSums:
    """Return value, gradient and curvature of logistic recalibration at one intercept and slope."""
    y, f = site.data.y, (_logit(site.data.f) - centre) / spread
    eta = a + b * f
    mu = expit(eta)
    rest, curve = y - mu, mu * (1.0 - mu)
    value = np.sum(-np.logaddexp(0.0, np.where(y > 0.5, -eta, eta)))
    return LogitSums(
        np.array(value),
        np.array([rest.sum(), rest @ f]),
        np.array([curve.sum(), curve @ f, curve @ f**2]),
    )


@summed
def sum_values(site: Site[Any, None]) -> ValueSums:
    """Sum outcomes and predictions."""
    d = site.data
    found = (len(d.y), d.lost, np.sum(d.f <= 0), d.y.sum(), d.f.sum())
    return ValueSums(*(np.array(float(v)) for v in found))


@summed
def sum_spread(site: Site[Any, None], *, y_mean: float, f_mean: float) -> ValueSpread:
    """Sum squares about the means over all sites, and errors."""
    y, f = site.data.y, site.data.f
    dy, df, e = y - y_mean, f - f_mean, y - f
    counts = bool((f > 0).all() and (y >= 0).all())
    deviance = np.sum(2.0 * (xlogy(y, y) - xlogy(y, f) - e)) if counts else 0.0
    found = (dy @ dy, df @ df, dy @ df, e @ e, np.abs(e).sum(), deviance)
    return ValueSpread(*(np.array(float(v)) for v in found))


STEPS = (sum_labels, count_labels, logit_moments, sum_recalibration, sum_values, sum_spread)


# programs -----------------------------------------------------------------------------


def federated_labels(fed: Federation) -> dict[str, float]:
    """Return accuracy, Brier score, log loss and calibration slope; nan if there is none."""
    sums = fed.sum(sum_labels)
    rows = float(sums.rows)
    if not rows or sums.lost:
        return dict.fromkeys(("accuracy", "brier", "log_loss", "calibration_slope"), math.nan)
    means = (float(v) / rows for v in (sums.right, sums.squares, sums.logs))
    found = dict(zip(("accuracy", "brier", "log_loss"), means, strict=True))
    both = 0 < float(sums.ones) < rows
    slope = _recalibration(fed, rows, float(sums.ones) / rows) if both else math.nan
    return found | {"calibration_slope": slope}


class Separation(NamedTuple):
    """AUC of all pairs, and of the pairs of one site alone; nan if there are none."""

    auc: float
    within: float


def federated_auc(fed: Federation, *, edges: Array) -> Separation:
    """Return the AUC; pairs of two sites in one bin of `edges` (r−1,) count as tied."""
    counts = fed.sum(count_labels, edges=edges)
    right, pairs = label_pairs(counts.ones, counts.others)
    own, binned = fed.sum(sum_label_pairs), fed.sum(sum_binned_label_pairs, edges=edges)
    return Separation(
        (right + float(own.right - binned.right)) / pairs if pairs else math.nan,
        float(own.right / own.pairs) if own.pairs else math.nan,
    )


def label_groups(counts: LabelCounts, groups: int, at_least: int) -> classification.Groups:
    """Compare predictions with outcomes in about `groups` groups of equal size.

    Parameters
    ----------
    counts : of all sites, by bin of the prediction; see `classification.calibration_groups`.
    """
    ends = even_ends(counts.ones + counts.others, groups)
    cells = np.stack([counts.predicted, counts.ones, counts.others], axis=1)
    cells = step_sums(cells, ends)
    ends = joined(cells[:, 1:], at_least)
    return classification.Groups.of(*step_sums(cells, ends).T)


def federated_regression(fed: Federation) -> dict[str, float]:
    """Return every metric of `regression`; nan if there is none."""
    first = fed.sum(sum_values)
    rows = float(first.rows)
    if not rows or first.lost:
        return dict.fromkeys(regression.METRICS, math.nan)
    y_mean, f_mean = float(first.y) / rows, float(first.f) / rows
    s = fed.sum(sum_spread, y_mean=y_mean, f_mean=f_mean)
    yy, ff = _beyond(float(s.yy), y_mean, rows), _beyond(float(s.ff), f_mean, rows)
    return {
        "r2": 1.0 - float(s.squares) / yy if yy else math.nan,
        "rmse": math.sqrt(float(s.squares) / rows),
        "mae": float(s.absolute) / rows,
        "calibration_slope": float(s.yf) / ff if ff else math.nan,
        "calibration_intercept": y_mean - f_mean,
        "poisson_deviance": math.nan if first.low else float(s.deviance) / rows,
        "pcc": float(s.yf) / math.sqrt(yy * ff) if yy and ff else math.nan,
        "nrmse": math.sqrt(float(s.squares) / yy) if yy else math.nan,
    }


def _recalibration(fed: Federation, rows: float, share: float) -> float:
    """Return the slope of eq. (1) by Newton's method with halved steps."""
    total = float(fed.sum(logit_moments, centre=0.0).total)
    centre = total / rows
    squares = float(fed.sum(logit_moments, centre=centre).squares)
    spread = math.sqrt(squares / rows)
    if not spread > regression.EQUAL * max(1.0, abs(centre)):
        return math.nan
    a, b, step, value = float(logit(share)), 0.0, np.zeros(2), -math.inf
    for _ in range(classification.STEPS):
        tried = (a + step[0], b + step[1])
        s = fed.sum(sum_recalibration, centre=centre, spread=spread, a=tried[0], b=tried[1])
        if float(s.value) < value - 1e-12 * (1.0 + abs(value)):
            step = step / 2.0
            continue
        (a, b), value = tried, float(s.value)
        h00, h01, h11 = (float(v) for v in s.curvature)
        det = h00 * h11 - h01**2
        if not det > 0:
            return math.nan
        g0, g1 = (float(v) for v in s.gradient)
        step = np.array([h11 * g0 - h01 * g1, h00 * g1 - h01 * g0]) / det
        if np.abs(step).max() < classification.LAST_STEP:
            slope = (b + float(step[1])) / spread
            return slope if value < -1e-6 * rows and abs(slope) < STEEPEST else math.nan
    return math.nan


def _beyond(squares: float, mean: float, rows: float) -> float:
    """Return a sum of squares, or 0 if it is only rounding."""
    return squares if squares > (regression.EQUAL * abs(mean)) ** 2 * rows else 0.0


def _logit(p: Array) -> Array:
    return logit(np.clip(p, classification.EDGE, 1.0 - classification.EDGE))
