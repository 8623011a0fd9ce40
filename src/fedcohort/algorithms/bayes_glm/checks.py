"""Posterior predictive checks, by one sum over sites.

Gelman, Meng, Stern, Statistica Sinica 6, 1996; Gelman et al., "Bayesian Data Analysis", 3rd ed.
2013, section 6.3. For each of L draws of the posterior every site draws new outcomes of its rows,
with effects of sites from their distribution, as of other sites. Test quantities T(y) are

    a value     mean, standard deviation, skewness
    a class     share of class 1; and Σ y g², g the linear predictor at the mean of the draws, in
                standard deviations of it and cut to ±`CUT`, over the rows of class 1
    both        Σ_k t_k²/n_k − t²/n, t_k the total of the n_k outcomes of site k, over
                sites with `least` rows or more: how much sites differ

and p = P(T(y_rep) ≥ T(y)) over the draws, with half of those that are equal. A p near 0 or 1 means
that the model does not give what was seen.

Revealed, as a sum over all sites: `Replicated`, once. Of the outcome it has Σ y³ or Σ y g², and
Σ t_k²/n_k, besides what cross-products tell; the rest are draws. With two sites whose numbers of
records are known, Σ t_k²/n_k gives the mean of each. A coordinator that lies may choose the
coefficients: very large ones make Σ y_rep the number of rows beyond a plane, one for each draw, and
of values residuals near 0 make Σ y_rep³ a third moment of the covariates. Settings pin L and the
kind of outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from fedcohort.algorithms.bayes_glm.site_steps import partaking
from fedcohort.algorithms.bayes_glm.steps import standardised
from fedcohort.arrays import Array
from fedcohort.data.exact import Exact
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Refused, Row, Site, message, summed
from fedcohort.training.linear.cross_products import Moments
from fedcohort.training.site_effects import check_row

#: Largest number of draws, and largest g, in standard deviations.
MOST, CUT = 1000, 3.0


@message
class Replicated:
    """Sums of the observed outcomes and of L drawn ones, ``seen`` (4,) and ``drawn`` (L, 4).

    First to third power, or for classes y, y and y g²; and t_k²/n_k. ``pooled`` (2,): t and n of
    the sites in the last of ``seen``; ``totals`` (L,): t of the draws.
    """

    seen: Array
    drawn: Array
    pooled: Array
    totals: Array


@summed
def replicate(
    site: Site[LabelledTable, None],
    *,
    origin: Array,
    centre: Array,
    scale: Array,
    unit: float,
    draws: Array,
    residual: Array,
    tau: Array,
    slopes: bool,
    least: int,
    linear: bool,
    number: int,
) -> Replicated:
    """Draw outcomes of all rows from a fitted model; sum their powers and those of the true ones.

    Parameters
    ----------
    centre, scale : (p + 1,) and (p,), of the covariates; the last of `centre` is of the outcome.
    unit : of the outcome.
    draws : (L, k), coefficients of standardised covariates.
    residual : (L,), residual standard deviations; of classes (0,).
    tau : (L, e), standard deviations of effects of sites; (L, 0) without.
    linear, number : whether the outcome is a value, and L. Both are pinned by the study's settings.

    Raises
    ------
    Refused : numbers that no honest fit asks with.
    """
    k, lengths = 1 + len(scale), (number * linear, number)
    fine = all(np.isfinite(a).all() for a in (draws, residual, tau, scale, centre))
    fine = fine and (scale > 0).all() and (residual > 0).all() and (tau >= 0).all() and unit > 0
    shapes = draws.shape == (number, k) and (len(residual), len(tau)) == lengths
    if not (fine and 0 < number <= MOST and shapes):
        raise Refused("posterior", f"site {site.name!r} draws no outcomes of such coefficients.")
    table, rng = site.data, site.rng
    kept = not tau.shape[1] or partaking(table, origin, slopes=slopes, least=least)
    n = len(table.y) if kept else 0
    y = (np.asarray(table.y, float)[:n] - (centre[-1] if linear else 0.0)) / unit
    z = standardised(table.x[:n], centre[:-1], scale)
    mean = draws.mean(axis=0)
    f = z @ mean
    width = max(float(np.linalg.norm(mean[1:])), 1e-12)
    g = np.clip((f - mean[0]) / width, -CUT, CUT)

    def sums(values: Array) -> Array:
        total = float(values.sum())
        own = total * total / n if n >= least else 0.0
        last = (values**3).sum() if linear else values @ g**2
        return np.array([total, values @ values, last, own])

    drawn = np.zeros((number, 4))
    for i in range(number if n else 0):
        effects = tau[i] * rng.normal(size=tau.shape[1])
        f = z @ draws[i] + z[:, : len(effects)] @ effects
        if linear:
            drawn[i] = sums((f + residual[i] * rng.normal(size=n)) / unit)
        else:
            drawn[i] = sums((rng.random(n) < expit(f)).astype(float))
    some = float(n > 0 and n >= least)
    seen = sums(y) if n else np.zeros(4)
    return Replicated(seen, drawn, some * np.array([y.sum(), float(n)]), some * drawn[:, 0])


class Points(NamedTuple):
    """A posterior at G points of τ, of standardised covariates.

    Attributes
    ----------
    shares : (G,).
    mean, covariance : (G, k) and (G, k, k); of a value, over the residual variance.
    shape, rates : of the residual variance; rates (0,) of classes.
    tau : (G, e), over the residual standard deviation; (G, 0) without effects of sites.
    """

    shares: Array
    mean: Array
    covariance: Array
    shape: float
    rates: Array
    tau: Array


def checked(
    sites: Exact, m: Moments, scale: Array, points: Points, number: int, rng: np.random.Generator,
    asked: Mapping[str, Any],
) -> tuple[Row, ...]:  # fmt: skip
    """Return a row for each check; () for no draws.

    Parameters
    ----------
    number : L.
    asked : origin, slopes and least of `replicate`.
    """
    if not number:
        return ()
    linear = len(points.rates) > 0
    at = rng.choice(len(points.shares), number, p=points.shares)
    residual = np.sqrt(points.rates[at] / rng.gamma(points.shape, size=number)) if linear else None
    roots = np.linalg.cholesky(points.covariance)[at]
    away = np.einsum("lij,lj->li", roots, rng.normal(size=points.mean[at].shape))
    size = np.ones(number) if residual is None else residual
    told = sites.sum(
        replicate,
        **asked,
        centre=m.centre,
        scale=scale,
        unit=float(np.sqrt(m.yy / m.rows)) if linear else 1.0,
        draws=points.mean[at] + size[:, None] * away,
        residual=np.zeros(0) if residual is None else residual,
        tau=size[:, None] * points.tau[at],
        linear=linear,
        number=number,
    )
    seen = quantities(told.seen[None], told.pooled[:1], m.rows, told.pooled[1], linear=linear)[0]
    drawn = quantities(told.drawn, told.totals, m.rows, told.pooled[1], linear=linear)
    if linear:
        unit = float(np.sqrt(m.yy / m.rows))
        shift, size = np.array([m.middle, 0, 0, 0]), np.array([unit, unit, 1, unit])
        seen, drawn = seen * size + shift, drawn * size + shift
        names: Sequence[str] = ("mean", "standard deviation", "skewness", BETWEEN)
    else:
        names = ("share of class 1", "mean square of the risk score in class 1", BETWEEN)
    return tuple(check_row(name, float(seen[j]), drawn[:, j]) for j, name in enumerate(names))


#: Name of the last check.
BETWEEN = "standard deviation between sites"


def quantities(
    sums: Array, totals: Array, rows: float, rows_between: float, *, linear: bool
) -> Array:
    """Return test quantities (L, 4), of classes (L, 3), from sums (L, 4) of `Replicated`.

    Parameters
    ----------
    totals : t (L,), and `rows_between` n, of the sites in the last of the sums.
    """
    one, two, three, own = sums.T
    mean = one / rows
    between = np.maximum(own - totals**2 / max(rows_between, 1.0), 0.0)
    spread = np.sqrt(between / max(rows_between, 1.0))
    if not linear:
        return np.column_stack([mean, three / np.maximum(one, 1.0), spread])
    variance = np.maximum(two / rows - mean**2, 1e-300)
    third = three / rows - 3 * mean * two / rows + 2 * mean**3
    return np.column_stack([mean, np.sqrt(variance), third / variance**1.5, spread])
