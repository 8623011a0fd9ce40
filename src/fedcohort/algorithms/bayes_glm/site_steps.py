"""Site steps of regressions with effects of sites. Replies are sums, except `own_effects`.

A site takes part with `least` records or more. With effects of slopes, its own cross-products can
be solved for (`hierarchical`), so it then needs `least` records more than coefficients, and its
cross-products must pass the checks of `training.linear.cross_products`; else it takes no part.
These count the rows that differ from an origin, which the coordinator chooses. At an origin that no
row has they find no rare level, so a site makes them at its own medians as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcohort.algorithms.bayes_glm.steps import standardised, wrong_posterior, wrong_share
from fedcohort.arrays import Array
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics.propagation import Factors, refreshed, started
from fedcohort.numerics.residuals import own_powers
from fedcohort.protocol import Keep, NothingToLearn, Refused, Site, gathered, message, summed
from fedcohort.training.linear.cross_products import (
    Products,
    check_cells,
    joined,
    products_of,
    telling,
)
from fedcohort.training.site_effects import Integrated, integrated

#: Largest number of points of τ: a fit has some 14, with effects of all coefficients some 100.
MOST = 1000
#: Why a posterior is refused that other sites and a prior cannot have given.
WIDER = "at a posterior that is wider than this site's rows allow."


@message
class Partaken(Products):
    """Cross-products of the sites that take part; their number ``sites``, and that of others with
    records, ``others_out``.
    """

    some_rows = True

    sites: Array
    others_out: Array


@message
class Likelihood:
    """Quadratic form of the likelihood without the effects of sites.

    Eq. (1) of `training.site_effects`: ``inner`` (G, q, q) and ``log_det`` (G,).
    """

    inner: Array
    log_det: Array


@message
class ProjectedBySite:
    """Sums of the rows' Gaussian factors without the effects of sites, k = p + 1.

    ``inner`` (G, k + 1, k + 1), eq. (1) of `training.site_effects` for Σ τ z zᵀ with Σ ν z beside
    it; ``log_det`` (G,); ``squares`` (G, 2), Σ τ and Σ τ²; ``evidence`` (G,), the rows' part of
    eq. (4) of `numerics.propagation`.
    """

    inner: Array
    log_det: Array
    squares: Array
    evidence: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        g, k = len(asked["spread"]), 2 + len(asked["centre"])
        if self.inner.shape != (g, k, k) or self.squares.shape != (g, 2):
            return "sums of another number of covariates or points."
        if (np.einsum("gii->gi", self.inner)[:, :-1] < -1e-9).any() or (self.squares < 0).any():
            return "a negative precision."
        return ""


@message
class KeptBySite:
    """Factors of a site's rows at G points, τ (G, n) and ν (G, n)."""

    precision: Array
    shift: Array


@message
class OwnEffects:
    """Posterior means and standard deviations (e,) of a site's own effects; 0 if not told."""

    mean: Array
    sd: Array
    told: Array


@summed
def take_part(
    site: Site[LabelledTable, None], *, origin: Array, centre: Array, slopes: bool, least: int
) -> Partaken:
    """Sum the cross-products of all rows of the sites that have enough of them."""
    kept = partaking(site.data, origin, slopes=slopes, least=least)
    rows = joined(site.data)[: len(site.data.y) if kept else 0]
    sums = products_of(rows, origin, centre, own_powers(rows))
    out = not kept and len(site.data.y) > 0
    return Partaken(**vars(sums), sites=np.array(float(kept)), others_out=np.array(float(out)))


@summed
def integrate(
    site: Site[LabelledTable, None],
    *,
    origin: Array,
    centre: Array,
    scale: Array,
    spread: Array,
    slopes: bool,
    least: int,
) -> Likelihood:
    """Sum the cross-products that remain when the site's own effects are integrated out.

    Parameters
    ----------
    centre, scale : (p + 1,) and (p,); the last of `centre` is of the outcome.
    spread : (G, e), standard deviations of the effects of sites, in residual ones.

    Raises
    ------
    Refused : numbers that no honest fit asks with.
    """
    _check(site.name, scale, spread, slopes=slopes)
    if not partaking(site.data, origin, slopes=slopes, least=least):
        q = len(centre) + 1
        return Likelihood(np.zeros((len(spread), q, q)), np.zeros(len(spread)))
    z = standardised(site.data.x, centre[:-1], scale)
    z = np.column_stack([z, np.asarray(site.data.y, float) - centre[-1]])
    return Likelihood(*integrated(z.T @ z, spread))


@summed
def project_sites(
    site: Site[LabelledTable, KeptBySite | None],
    *,
    origin: Array,
    centre: Array,
    scale: Array,
    spread: Array,
    share: float,
    mean: Array,
    covariance: Array,
    damping: float,
    slopes: bool,
    least: int,
) -> Keep[ProjectedBySite, KeptBySite]:
    """Approximate each row's likelihood by a Gaussian; sum without the site's own effects.

    These are integrated out.

    For each of the G standard deviations `spread` (G, e) of these effects, at the posterior
    N(`mean`, `covariance`), (G, k) and (G, k, k), of the common coefficients; with means (0, k) the
    first factors. The other arguments are those of `project`.

    Raises
    ------
    Refused : numbers that no honest fit asks with.
    """
    _check(site.name, scale, spread, slopes=slopes)
    if why := wrong_share(scale, share, damping):
        raise _refused(site.name, why)
    kept = partaking(site.data, origin, slopes=slopes, least=least)
    n = len(site.data.y) if kept else 0
    y = np.asarray(site.data.y, float)[:n]
    z = standardised(site.data.x[:n], centre, scale)
    g, k = len(spread), z.shape[1]
    evidence = np.zeros(g)
    if site.state is None or not len(mean):
        first = started(y, share)
        tau, nu = np.tile(first.precision, (g, 1)), np.tile(first.shift, (g, 1))
    else:
        tau, nu = site.state.precision.copy(), site.state.shift.copy()
        if mean.shape != (g, k) or covariance.shape != (g, k, k):
            raise _refused(site.name, "at a posterior of another number of covariates.")
        without = _factors(z, tau, nu, spread)
        for i, r in enumerate(spread):
            if why := wrong_posterior(scale, mean[i], covariance[i]):
                raise _refused(site.name, why)
            old = Factors(tau[i], nu[i])
            own = _joint(z, old, r, mean[i], covariance[i], without.inner[i])
            if own is None:
                raise _refused(site.name, WIDER)
            new, evidence[i] = refreshed(np.column_stack([z, z[:, : len(r)] * r]), y, old, *own)
            now = old.towards(new, damping)
            tau[i], nu[i] = now.precision, now.shift
    sums = _factors(z, tau, nu, spread)
    squares = np.column_stack([tau.sum(axis=1), np.einsum("gn,gn->g", tau, tau)])
    return Keep(ProjectedBySite(*sums, squares, evidence), KeptBySite(tau, nu))


@gathered
def own_effects(
    site: Site[LabelledTable, KeptBySite | None],
    *,
    origin: Array,
    centre: Array,
    scale: Array,
    spread: Array,
    shares: Array,
    mean: Array,
    covariance: Array,
    residual: Array,
    slopes: bool,
    min_cell: int,
) -> OwnEffects:
    """Reveal the site's own effects, shrunken to 0, if the settings ask for it.

    A site that takes no part reveals nothing.

    Parameters
    ----------
    shares : (G,), of the points; `mean` (G, k) and `covariance` (G, k, k) as in `project_sites`.
    residual : (G,), residual variances; of classes (0,).
    """
    _check(site.name, scale, spread, slopes=slopes)
    e = spread.shape[1]
    if not partaking(site.data, origin, slopes=slopes, least=min_cell):
        return OwnEffects(np.zeros(e), np.zeros(e), np.array(False))
    z = standardised(site.data.x, centre[: len(scale)], scale)
    y, state = np.asarray(site.data.y, float), site.state
    first, second = np.zeros(e), np.zeros(e)
    for i, r in enumerate(spread):
        if len(residual):
            unit = np.sqrt(residual[i]) * r
            rows = Factors(np.full(len(y), 1.0 / residual[i]), (y - centre[-1]) / residual[i])
        elif state is not None:
            unit, rows = r, Factors(state.precision[i], state.shift[i])
        else:
            raise _refused(site.name, "before a fit has asked for them.")
        without = _factors(z, rows.precision[None], rows.shift[None], unit[None])
        own = _joint(z, rows, unit, mean[i], covariance[i], without.inner[0])
        if own is None:
            raise _refused(site.name, WIDER)
        m, v = unit * own[0][-e:], unit**2 * np.diag(own[1])[-e:]
        first += shares[i] * m
        second += shares[i] * (v + m**2)
    sd = np.sqrt(np.maximum(second - first**2, 0.0))
    return OwnEffects(first, sd, np.array(True))


def partaking(table: LabelledTable, origin: Array, *, slopes: bool, least: int) -> bool:
    """Return whether a site's rows suffice to take part; see the header."""
    n, p = table.x.shape
    if not slopes:
        return n >= least
    if n < p + 1 + least:
        return False
    rows = joined(table)
    powers, middle = own_powers(rows), np.partition(rows, n // 2, axis=0)[n // 2]
    try:
        for at in (origin, middle):
            sums = products_of(rows, at, at, powers)
            check_cells(sums, telling(sums, at, at, least), [""] * p, least)
    except NothingToLearn:
        return False
    return True


def _factors(z: Array, tau: Array, nu: Array, spread: Array) -> Integrated:
    """Return eq. (1) of `training.site_effects` for factors τ, ν (G, n) of rows z (n, k)."""
    g, k = len(tau), z.shape[1]
    inner = np.zeros((g, k + 1, k + 1))
    for i in range(g):
        inner[i, :k, :k] = (z * tau[i][:, None]).T @ z
        inner[i, :k, k] = inner[i, k, :k] = nu[i] @ z
    every = [integrated(one, r[None]) for one, r in zip(inner, spread, strict=True)]
    return Integrated(
        np.array([one.inner[0] for one in every]), np.array([one.log_det[0] for one in every])
    )


def _joint(
    z: Array, rows: Factors, r: Array, mean: Array, covariance: Array, without: Array
) -> tuple[Array, Array] | None:
    """Return the posterior of coefficients and w, mean (k + e,) and covariance, at a site.

    Parameters
    ----------
    rows : factors of rows z (n, k).
    r : (e,).
    mean, covariance : posterior of the coefficients, (k,) and (k, k).
    without : (k + 1, k + 1), this site's part of it.

    Returns
    -------
    posterior : None if without this site's part it has no positive definite precision.
    """
    k, e = len(mean), len(r)
    inner = np.linalg.inv(covariance)
    rest = inner - without[:k, :k]
    if np.linalg.eigvalsh((rest + rest.T) / 2)[0] <= 0:
        return None
    own, shift = (z * rows.precision[:, None]).T @ z, rows.shift @ z
    precision = np.eye(k + e)
    precision[:k, :k] = rest + own
    precision[k:, :k] = r[:, None] * own[:e]
    precision[:k, k:] = precision[k:, :k].T
    precision[k:, k:] += r[:, None] * own[:e, :e] * r
    eta = np.r_[inner @ mean - without[:k, k] + shift, r * shift[:e]]
    spread = np.linalg.inv((precision + precision.T) / 2)
    return spread @ eta, spread


def _check(name: str, scale: Array, spread: Array, *, slopes: bool) -> None:
    """Refuse standard deviations of effects, or scales, that no honest fit has."""
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise _refused(name, "with a scale that is not above 0.")
    e = 1 + len(scale) * slopes
    if spread.ndim != 2 or spread.shape[1] != e or not 0 < len(spread) <= MOST:
        raise _refused(name, f"with effects of sites that are not of {e} coefficients.")
    if not (np.isfinite(spread).all() and (spread >= 0).all()):
        raise _refused(name, "with standard deviations of effects that are below 0.")


def _refused(name: str, why: str) -> Refused:
    return Refused("posterior", f"site {name!r} approximates no rows {why}")


#: Steps with which a fit with effects of sites begins.
STEPS = (take_part, integrate, project_sites, own_effects)
