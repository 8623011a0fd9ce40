"""Site steps of `mixed`. Replies are sums over sites, except `own_effect` (a setting).

Covariates are relative to their pooled means c and, in `likelihoods`, in pooled standard
deviations. An offset is the last column of x. A site with fewer than `least` records takes no part
in steps with `least`.
"""

from __future__ import annotations

import numpy as np

from fedcohort.algorithms.mixed.mixedglm import FAMILIES, first_guess, mode_of, terms
from fedcohort.algorithms.mixed.mixedlm import between
from fedcohort.arrays import Array
from fedcohort.data import exact
from fedcohort.data.tables import LabelledTable
from fedcohort.data.words import rows
from fedcohort.numerics.families import FAR
from fedcohort.protocol import DataError, Site, gathered, message, summed


@message
class Totals:
    """Rows, sites with rows, sites with several rows, Σ x (p,) and Σ (y − offset).

    ``small`` counts the sites left out, with fewer than `least` records; ``marked`` the records
    with y > 0 (class 1); ``wrong`` the outcomes that the family excludes.
    """

    rows: Array
    sites: Array
    several: Array
    small: Array
    x: Array
    y: Array
    marked: Array
    wrong: Array


@message
class Products:
    """Σ Z_jᵀ Z_j (p + 2, p + 2), and `Means` at θ = 0."""

    within: Array
    log_det: Array
    means: Array


@message
class Means:
    """D (3,) and B (3, p + 2, p + 2) at θ, each with its two derivatives."""

    log_det: Array
    means: Array


@message
class Working:
    """Σ (x − c)² (p,), Σ w x xᵀ (p + 1, p + 1) and Σ w ζ x (p + 1,), of `working`."""

    squares: Array
    products: Array
    response: Array


@message
class Likelihoods:
    """ℓ (m,), its gradient (m, p + 2) and second derivative (m, p + 2, p + 2) at m points."""

    value: Array
    slope: Array
    bend: Array


@message
class Effect:
    """A site's own effect û_j, and whether it has enough records to reveal it; 0 if not."""

    effect: Array
    told: Array


LabelledSite = Site[LabelledTable, None]


@summed
def totals(site: LabelledSite, *, family: str, offset: bool, least: int) -> Totals:
    """Count the records, and sum covariates and outcome.

    Raises
    ------
    DataError : not gaussian, and an offset is beyond ± `FAR`.
    """
    x, y, shift = _parts(site.data, offset, least)
    if family != "gaussian" and (far := np.abs(shift) > FAR).any():
        raise DataError(
            f"site {site.name!r}: the offset is beyond ±{FAR:g} in {rows(far)}; it is added to a "
            f"logarithm. Give the logarithm of the exposure."
        )
    n = len(y)
    return Totals(
        np.array(float(n)),
        np.array(float(n > 0)),
        np.array(float(n > 1)),
        np.array(float(0 < len(site.data.y) < least)),
        x.sum(axis=0),
        np.array((y - shift).sum()),
        np.array(float((y > 0).sum())),
        np.array(float(_impossible(family, y))),
    )


@summed
def products(
    site: LabelledSite, *, centre: Array, middle: float, offset: bool, least: int
) -> Products:
    """Sum squares and products of covariates and outcome, of records and of the sites' totals."""
    z = _about(site.data, centre, middle, offset, least)
    found = between(len(z), z.sum(axis=0), 0.0)
    return Products(z.T @ z, found.log_det, found.means)


@summed
def means(
    site: LabelledSite, *, centre: Array, middle: float, offset: bool, least: int, theta: float
) -> Means:
    """Sum squares and products of the sites' totals, weighted by the variance between sites."""
    z = _about(site.data, centre, middle, offset, least)
    return Means(*between(len(z), z.sum(axis=0), theta))


@summed
def working(site: LabelledSite, *, centre: Array, offset: bool, family: str) -> Working:
    """Sum weighted squares of the covariates, for the start and the standard deviations."""
    design, y, shift = _standard(site.data, centre, np.ones(len(centre)), offset)
    weight, response = first_guess(family, y)
    return Working(
        (design[:, 1:] ** 2).sum(axis=0),
        (design.T * weight) @ design,
        design.T @ (weight * (response - shift)),
    )


@summed
def likelihoods(
    site: LabelledSite,
    *,
    centre: Array,
    scale: Array,
    offset: bool,
    family: str,
    points: Array,
) -> Likelihoods:
    """Sum the log-likelihood, integrated over the site's effect, with gradient and curvature.

    At each of the points (m, p + 2): intercept, coefficients per standard deviation, τ.
    """
    design, y, shift = _standard(site.data, centre, scale, offset)
    found = [terms(FAMILIES[family], design, y, shift, point) for point in points]
    return Likelihoods(*(np.array(part) for part in zip(*found, strict=True)))


@gathered
def own_effect(
    site: LabelledSite,
    *,
    centre: Array,
    scale: Array,
    offset: bool,
    family: str,
    point: Array,
    sigma2: float,
    min_cell: int,
) -> Effect:
    """Reveal the site's own effect, shrunken to 0, if the settings ask for it.

    At the fitted point (p + 2,). A site with fewer than `min_cell` records reveals nothing.
    """
    design, y, shift = _standard(site.data, centre, scale, offset)
    n, tau = len(y), float(point[-1])
    if n < min_cell:
        return Effect(np.array(0.0), np.array(False))
    if family == "gaussian":
        residual = y - shift - design @ point[:-1]
        effect = float(residual.sum()) * tau**2 / (sigma2 + n * tau**2)
    else:
        effect = tau * mode_of(FAMILIES[family], design @ point[:-1] + shift, y, tau)
    return Effect(np.array(effect), np.array(True))


STEPS = (*exact.STEPS, totals, products, means, working, likelihoods, own_effect)


def _parts(table: LabelledTable, offset: bool, least: int = 1) -> tuple[Array, Array, Array]:
    """Return x (n, p), y (n,) and the offset (n,); empty if there are fewer than `least` rows."""
    kept = slice(None) if len(table.y) >= least else slice(0)
    x, y = table.x[kept], np.asarray(table.y, float)[kept]
    if offset:
        return x[:, :-1], y, x[:, -1]
    return x, y, np.zeros(len(y))


def _about(table: LabelledTable, centre: Array, middle: float, offset: bool, least: int) -> Array:
    """Return [1, x − c, y − offset − middle] (n, p + 2)."""
    x, y, shift = _parts(table, offset, least)
    return np.column_stack([np.ones(len(y)), x - centre, y - shift - middle])


def _standard(
    table: LabelledTable, centre: Array, scale: Array, offset: bool
) -> tuple[Array, Array, Array]:
    """Return [1, (x − c)/scale] (n, p + 1), y (n,) and the offset (n,)."""
    x, y, shift = _parts(table, offset)
    return np.column_stack([np.ones(len(y)), (x - centre) / scale]), y, shift


def _impossible(family: str, y: Array) -> int:
    """Return the number of values that the family excludes."""
    if family == "binomial":
        return int(((y != 0) & (y != 1)).sum())
    if family == "poisson":
        return int(((y < 0) | (y != np.floor(y))).sum())
    return int((~np.isfinite(y)).sum())
