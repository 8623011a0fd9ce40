"""Site steps of Cox regression with effects of sites. Replies are sums, except `own_ratios`.

A site's own coefficients can be solved for from these sums (`hierarchical`), so the rules are those
for a regression that a site shows: a site takes part with `least` deaths, and if the checks of
`training.disclosure` hide nothing of its covariates, offset, weights and deaths, cross-products of
covariates among them. Else its records enter none of these sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedcohort.algorithms.cox.placing import SurvivalSite, own_grid, placed, weights
from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.numerics.coxph import Placed, Pooled, pooled
from fedcohort.privacy.disclosure.records import over_few
from fedcohort.protocol import Refused, gathered, message, summed
from fedcohort.training.disclosure import FINE, hidden
from fedcohort.training.site_effects import integrated

#: Largest number of points of τ: a fit has some 15.
MOST = 100
#: Newton steps to a site's own mode, their halvings, and the longest step at the end.
STEPS_TO_MODE, HALVINGS, NEAR = 50, 30, 1e-9
#: Distance, in standard deviations, of the differences that give third derivatives.
APART = 0.1


@message
class Taking:
    """Number of ``sites`` that take part, and of others with records, ``others_out``."""

    some_rows = True

    sites: Array
    others_out: Array


@message
class Expanded:
    """Quadratic forms of the sites' likelihoods without their own effects.

    ``inner`` (G, p + 1, p + 1) and ``log_det`` (G,): eq. (1) of `training.site_effects` for eq. (3)
    of `hierarchical`.
    """

    inner: Array
    log_det: Array


@message
class Skewed:
    """Shift of the common coefficients' means (G, p), eq. (4) of `hierarchical`."""

    shift: Array


@message
class OwnRatios:
    """Posterior means and standard deviations (p,) of a site's own effects; 0 if not told."""

    mean: Array
    sd: Array
    told: Array


class Mode(NamedTuple):
    """A site's own coefficients γ_k (p,), and ℓ, U and I there."""

    gamma: Array
    at: Pooled


@summed
def count_partaking(site: SurvivalSite, *, covariates: int, least: int) -> Taking:
    """Count the sites whose own coefficients would tell of enough records."""
    kept = takes_part(site.data, covariates, least)
    out = not kept and len(site.data.x) > 0
    return Taking(np.array(float(kept)), np.array(float(out)))


@summed
def expand_sites(
    site: SurvivalSite,
    *,
    centre: Array,
    scale: Array,
    spread: Array,
    points: Array,
    around: Array,
    ties: str,
    least: int,
) -> Expanded:
    """Approximate the site's likelihood by a Gaussian; sum without the site's own effects.

    These are integrated out.

    Parameters
    ----------
    spread : (G, p), τ of effects of sites.
    points, around : common coefficients (H, p) and τ (H, p) at which the site's own coefficients
        are most probable; the Gaussian is the one there. H is G, or 1 for all G together.

    Raises
    ------
    Refused : numbers that no honest fit asks with.
    """
    _check(site.name, scale, spread, points, around)
    g, p = spread.shape
    if not takes_part(site.data, len(scale), least):
        return Expanded(np.zeros((g, p + 1, p + 1)), np.zeros(g))
    records = placed(site.data, *own_grid(site.data), centre, scale)
    forms = np.array(
        [_form(own_mode(records, one, tau, ties)) for one, tau in zip(points, around, strict=True)]
    )
    return Expanded(*integrated(forms if len(forms) == g else forms[0], spread))


@summed
def skew_sites(
    site: SurvivalSite,
    *,
    centre: Array,
    scale: Array,
    spread: Array,
    points: Array,
    covariance: Array,
    ties: str,
    least: int,
) -> Skewed:
    """Sum how far the skewness of the sites' likelihoods moves the means of common coefficients.

    Parameters
    ----------
    points : (G, p), of the last `expand_sites`.
    covariance : (G, p, p), of the common coefficients.

    Raises
    ------
    Refused : numbers that no honest fit asks with.
    """
    _check(site.name, scale, spread, points, spread)
    if not takes_part(site.data, len(scale), least):
        return Skewed(np.zeros(spread.shape))
    records = placed(site.data, *own_grid(site.data), centre, scale)
    every = zip(points, spread, covariance, strict=True)
    moved = [_moved(site.name, records, point, r, v, ties)[0] for point, r, v in every]
    return Skewed(np.array(moved))


@gathered
def own_ratios(
    site: SurvivalSite,
    *,
    centre: Array,
    scale: Array,
    spread: Array,
    points: Array,
    mean: Array,
    covariance: Array,
    shares: Array,
    ties: str,
    min_cell: int,
) -> OwnRatios:
    """Reveal the site's own effects, shrunken to 0, if the settings ask for it.

    A site that takes no part reveals nothing.

    Parameters
    ----------
    shares : (G,), of the points.
    mean : (G, p), posterior modes of the common coefficients; the rest as of `skew_sites`.
    """
    _check(site.name, scale, spread, points, spread)
    p = spread.shape[1]
    if not takes_part(site.data, len(scale), min_cell):
        return OwnRatios(np.zeros(p), np.zeros(p), np.array(False))
    records = placed(site.data, *own_grid(site.data), centre, scale)
    first, second = np.zeros(p), np.zeros(p)
    every = zip(shares, mean, points, spread, covariance, strict=True)
    for share, mode, point, tau, v in every:
        _, joint, found, third = _moved(site.name, records, point, tau, v, ties)
        # given γ at its mode, u is most probable at τ² C⁻¹ (U + I (γ_k − γ))
        c = np.eye(p) + (tau[:, None] * found.at.information) * tau
        pull = found.at.score + found.at.information @ (found.gamma - mode)
        u = tau * np.linalg.solve(c, tau * pull) + tau * third
        first += share * u
        second += share * (tau**2 * np.diag(joint)[p:] + u**2)
    sd = np.sqrt(np.maximum(second - first**2, 0.0))
    return OwnRatios(first, sd, np.array(True))


STEPS = (count_partaking, expand_sites, skew_sites, own_ratios)


def takes_part(table: SurvivalTable, p: int, least: int) -> bool:
    """Return whether a site's records suffice to take part, of `p` covariates; see the header."""
    event, heavy = np.asarray(table.event, int), weights(table)
    if event.sum() < max(least, 1) or (least > 1 and over_few(heavy.sum(), heavy @ heavy, least)):
        return False
    # a weight or an offset that differs in few records is told as a covariate's value is
    columns = np.column_stack([table.x, heavy])
    varied = np.r_[np.ones(p, bool), np.ptp(columns[:, p:], axis=0) > 0]
    found = hidden(columns[:, varied], event, p, least, kinds=2, crossed=True, every=False)
    return found.reason == FINE


def own_mode(records: Placed, gamma: Array, tau: Array, ties: str) -> Mode:
    """Return the mode of ℓ(γ_k) − Σ (γ_k − γ)²/(2 τ²), by Newton's method.

    Parameters
    ----------
    gamma, tau : γ (p,) and τ (p,); with τ = 0 the mode is γ.
    """
    w, here = np.zeros(len(gamma)), pooled(records, gamma, ties)
    value = here.log_likelihood
    for _ in range(STEPS_TO_MODE):
        curve = np.eye(len(w)) + tau[:, None] * here.information * tau
        step = np.linalg.solve(curve, tau * here.score - w)
        if np.abs(tau * step).max() < NEAR:
            break
        for _ in range(HALVINGS):
            there = pooled(records, gamma + tau * (w + step), ties)
            reached = there.log_likelihood - (w + step) @ (w + step) / 2
            if reached >= value - 1e-10 * (1 + abs(value)):
                break
            step = step / 2
        else:
            break
        w, here, value = w + step, there, reached
    return Mode(gamma + tau * w, here)


def _form(mode: Mode) -> Array:
    """Return eq. (3) of `hierarchical`, (p + 1, p + 1)."""
    (value, score, information), b = mode.at, mode.gamma
    shift = information @ b + score
    form = np.empty((len(b) + 1, len(b) + 1))
    form[:-1, :-1] = information
    form[-1, :-1] = form[:-1, -1] = shift
    form[-1, -1] = b @ information @ b + 2 * (score @ b - value)
    return form


def _moved(
    name: str, records: Placed, point: Array, tau: Array, covariance: Array, ties: str
) -> tuple[Array, Array, Mode, Array]:
    """Return eq. (4) of `hierarchical` at one point of τ.

    Returns
    -------
    shift : of the means of γ (p,).
    joint : covariance (2 p, 2 p) of γ and w = u_k/τ.
    mode : of the site.
    third : shift of the means of w (p,).
    """
    p, found = len(point), own_mode(records, point, tau, ties)
    information = found.at.information
    eye = np.eye(p)
    right = information * tau
    inner = eye + tau[:, None] * right
    rest = np.linalg.inv(covariance) - information + right @ np.linalg.solve(inner, right.T)
    if np.linalg.eigvalsh((rest + rest.T) / 2)[0] <= 0:
        raise _refused(name, "at a posterior that is wider than this site's records allow.")
    joint = np.linalg.inv(np.block([[rest + information, right], [right.T, inner]]))
    joint = (joint + joint.T) / 2
    to = np.vstack([eye, np.diag(tau)])  # γ_k = γ + τ w
    with_own = joint @ to
    root = np.linalg.cholesky(to.T @ with_own)
    third = np.zeros(p)
    for column in root.T:
        for sign in (-APART, APART):
            third += pooled(records, found.gamma + sign * column, ties).score
    third = (third - 2 * p * found.at.score) / APART**2
    shift = with_own @ third / 2
    return shift[:p], joint, found, shift[p:]


def _check(name: str, scale: Array, spread: Array, points: Array, around: Array) -> None:
    """Refuse numbers that no honest fit asks with."""
    p = len(scale)
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise _refused(name, "with a scale that is not above 0.")
    if spread.ndim != 2 or spread.shape[1] != p or not 0 < len(spread) <= MOST:
        raise _refused(name, f"with effects of sites that are not of {p} coefficients.")
    for tau in (spread, around):
        if not (np.isfinite(tau).all() and (tau >= 0).all()):
            raise _refused(name, "with standard deviations of effects that are below 0.")
    wanted = {(len(spread), p), (1, p)}
    if points.shape not in wanted or around.shape != points.shape:
        raise _refused(name, "at a posterior of another number of covariates.")
    if not np.isfinite(points).all():
        raise _refused(name, "at coefficients that are not finite.")


def _refused(name: str, why: str) -> Refused:
    return Refused("posterior", f"site {name!r} approximates no likelihood {why}")
