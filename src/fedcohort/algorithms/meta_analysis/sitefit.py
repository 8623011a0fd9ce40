"""The regression of one table: coefficients with their covariance, or the reason for none.

Maximum likelihood by Newton's method (Cox, and canonical links) or scoring (other links), from the
model without covariates; steps are halved until the likelihood does not fall. Covariates are
standardised internally by the table's own means and deviations. The covariance is I⁻¹, times
Pearson's χ²/(n − p − 1) for gaussian and gamma. I is the observed information of Cox's partial
likelihood, and the expected information of the families, as in R's glm and statsmodels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.collinearity import CONSTANT, PART, SHARE, SINGULAR, scale_of
from fedcohort.numerics.coxph import Extra, Placed, pooled
from fedcohort.numerics.families import Family, irls_terms

#: Reasons for no coefficients.
FINE, FEW_RECORDS, FEW_EVENTS, RARE, COLLINEAR, SEPARATED, ENDLESS, NO_SPREAD = range(8)
#: A long step that gains less log-likelihood than this means that the likelihood is flat.
FLAT = 1e-6
#: Sums of squared residuals below this share of the outcome's are rounding.
EXACT = 1e-24


class SiteFit(NamedTuple):
    """The fit of one table.

    Attributes
    ----------
    reason : `FINE`, or the reason for no fit; then the other numbers are 0.
    blame : (p,) bool, the covariates concerned.
    coefficients : (k,), in the covariates' units; an intercept comes first.
    covariance : (k, k).
    """

    reason: int
    blame: Array
    coefficients: Array
    covariance: Array


class Records(NamedTuple):
    """One table: ``x`` (n, p), ``y``, ``offset``, ``weight`` (n,)."""

    x: Array
    y: Array
    offset: Array
    weight: Array


class _Point(NamedTuple):
    """Log-likelihood, score (k,) and information (k, k)."""

    value: float
    score: Array
    information: Array


def too_little(x: Array, marked: int, others: int, coefficients: int, least: int) -> SiteFit | None:
    """Return the refusal of a table whose coefficients could tell of few records, or None.

    A table needs `least` records more than coefficients, `least` records of each kind of outcome,
    and in each covariate `least` records without its most common value.

    Parameters
    ----------
    x : (n, p).
    marked, others : numbers of records of the two kinds of outcome; both n without kinds.
    """
    n, p = x.shape
    nobody = np.zeros(p, bool)
    if n - coefficients < least:
        return _nothing(FEW_RECORDS, nobody, coefficients)
    if min(marked, others) < least:
        return _nothing(FEW_EVENTS, nobody, coefficients)
    differ = [n - int(np.unique(column, return_counts=True)[1].max()) for column in x.T]
    if (rare := np.array(differ) < least).any():
        return _nothing(RARE, rare, coefficients)
    return None


def family_fit(family: Family, table: Records, tol: float, rounds: int) -> SiteFit:
    """Return the fit of a generalised linear model, the intercept first.

    Parameters
    ----------
    tol : longest step at the end, per standard deviation of the covariates.
    rounds : largest number of steps.
    """
    z, scale, centre = _standard(table.x)
    z = np.column_stack([np.ones(len(z)), z])
    y, offset, weight = table.y, table.offset, table.weight

    def at(gamma: Array) -> _Point:
        found = irls_terms(family, z, y, offset, weight, gamma)
        return _Point(-found.deviance / 2.0, found.score, found.information)

    start = np.zeros(z.shape[1])
    start[0] = family.predictor(float(np.average(y, weights=weight)))
    if family.link != "inverse":
        start[0] -= float(np.average(offset, weights=weight))
    bounded = family.name in ("gaussian", "gamma")
    reason, blame, gamma, inverse = _climb(at, start, tol, rounds, bounded)
    if reason:
        return _nothing(reason, blame[1:], len(start))
    if bounded:
        pearson = irls_terms(family, z, y, offset, weight, gamma).pearson
        size = y - offset if family.name == "gaussian" else np.ones_like(y)
        if pearson <= EXACT * float(weight @ size**2):
            return _nothing(NO_SPREAD, np.zeros(len(scale), bool), len(start))
        inverse = inverse * pearson / (len(y) - len(start))
    back = np.diag(np.r_[1.0, 1.0 / scale])
    back[0, 1:] = -centre / scale
    return SiteFit(FINE, blame[1:], back @ gamma, back @ inverse @ back.T)


def cox_fit(
    x: Array, time: Array, event: Array, extra: Extra, ties: str, tol: float, rounds: int
) -> SiteFit:
    """Return the fit of a Cox model with the table's own times of death.

    Parameters
    ----------
    x, time, event : (n, p), (n,), (n,) bool.
    extra : entry, weight and offset.
    tol, rounds : as in `family_fit`.
    """
    z, scale, _ = _standard(x)
    records = Placed.on(np.unique(time[event]), z, time, event, extra=extra)

    def at(beta: Array) -> _Point:
        return _Point(*pooled(records, beta, ties))

    reason, blame, gamma, inverse = _climb(at, np.zeros(x.shape[1]), tol, rounds, bounded=False)
    if reason:
        return _nothing(reason, blame, len(gamma))
    return SiteFit(FINE, blame, gamma / scale, inverse / np.outer(scale, scale))


def _standard(x: Array) -> tuple[Array, Array, Array]:
    """Return standardised x (n, p), its deviations and means; constant columns become 0."""
    centre, sd = x.mean(axis=0), x.std(axis=0)
    scale = scale_of(sd, centre)
    varies = sd > CONSTANT * np.abs(centre)
    return np.where(varies, (x - centre) / scale, 0.0), scale, centre


def _climb(
    at: Callable[[Array], _Point], start: Array, tol: float, rounds: int, bounded: bool
) -> tuple[int, Array, Array, Array]:
    """Return the reason, the coefficients concerned (k,), γ (k,) and I⁻¹ (k, k).

    Parameters
    ----------
    bounded : the likelihood always has a maximum.
    """
    base, step, value = start, np.zeros_like(start), -math.inf
    nobody = np.zeros(len(start), bool)
    inverse = np.zeros((len(start), len(start)))
    for k in range(rounds):
        here = at(base + step)
        if not here.value >= value - 1e-10 * (1.0 + abs(value)):
            step = step / 2
            continue
        base, value = base + step, here.value
        flat, inverse = _inverse(here.information)
        if flat.any():
            return (SEPARATED if k else COLLINEAR), flat, base, inverse
        step = inverse @ here.score
        size = np.abs(step).max()
        if size < tol:
            return FINE, nobody, base + step, inverse
        if not bounded and size > 0.1 and float(here.score @ step) < FLAT:
            return SEPARATED, np.abs(step) > SHARE * size, base, inverse
    return ENDLESS, np.abs(step) > SHARE * np.abs(step).max(), base, inverse


def _inverse(information: Array) -> tuple[Array, Array]:
    """Return the coefficients (k,) with singular information, and its inverse if there are none."""
    diagonal = np.diag(information)
    unit = np.sqrt(np.where(diagonal > SINGULAR * diagonal.max(), diagonal, 1.0))
    values, vectors = np.linalg.eigh(information / np.outer(unit, unit))
    flat = values <= SINGULAR * max(values[-1], np.finfo(float).tiny)
    if flat.any():
        return np.abs(vectors[:, flat]).max(axis=1) > PART, np.zeros_like(information)
    root = vectors / unit[:, None]
    return np.zeros(len(values), bool), (root / values) @ root.T


def _nothing(reason: int, blame: Array, k: int) -> SiteFit:
    return SiteFit(reason, blame, np.zeros(k), np.zeros((k, k)))
