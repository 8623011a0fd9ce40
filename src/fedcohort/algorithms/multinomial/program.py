"""Regressions of an outcome of K classes over sites, with exactly the result of the pooled table.

Agresti, "Categorical Data Analysis", 3rd ed. 2013, sections 8.1 and 8.2; McCullagh, JRSS B 42(2),
1980. `multinomial` has baseline-category logits, and `ordinal` cumulative logits with the same
effects at each threshold (proportional odds). Both log-likelihoods ℓ are concave
(`numerics.classes`). Each round is one sum of ℓ, its gradient U and its curvature I over all
records at γ, and

    γ ← γ + (I + P)⁻¹ (U − P γ)                                                           (1)

A step is halved until ℓ − ½ γᵀPγ does not fall and thresholds rise. With w the sum of weights, P is
w·l2 times the second derivative of ½ Σ_c ‖β_c − β̄‖² over all classes (`multinomial`, as
scikit-learn: the same for any reference class) or of ½ ‖β‖² (`ordinal`). Covariance is (I + P)⁻¹
at the maximum. The first round is at the model without covariates, and gives the covariates'
standard deviations.

Revealed, only as sums over all sites: with several sites the sums of `data.exact`; `Tally`
(1 + 2 K + K p) once; `Slopes` every round: 1 + k + k² + 2 m numbers, with k = (K − 1)(p + 1) and
m = K, or k = K − 1 + p and m = 1; `Freed` once, at the end of `ordinal` with at least three
classes. Sites learn γ, and the covariates' pooled means and standard deviations. `disclosure`
defines what is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcohort.algorithms.multinomial.disclosure import check_products, check_tally
from fedcohort.algorithms.multinomial.layout import LAYOUTS, Layout
from fedcohort.algorithms.multinomial.model import MultinomialModel, OrdinalModel
from fedcohort.algorithms.multinomial.settings import (
    MultinomialSettings,
    OfClasses,
    OrdinalSettings,
)
from fedcohort.algorithms.multinomial.steps import Slopes, Tally, freed, slopes, tally
from fedcohort.arrays import Array
from fedcohort.data.exact import Exact, exact_sums
from fedcohort.numerics.classes import assembled, proportional_tests
from fedcohort.numerics.collinearity import collinear, scale_of
from fedcohort.numerics.residuals import about_means
from fedcohort.protocol import (
    Federation,
    SettingError,
    SingularInformation,
    Task,
)
from fedcohort.training.linear.newton import (
    FLAT,
    MOST_ROUNDS,
    MOVED,
    SEPARATED,
    check_weight,
    inverse,
    unfinished,
    unlimited,
)

#: What helps where few records count for nearly all.
OUTLYING = "Look for values far from all others, or refit with a ridge penalty (l2 > 0)."


@dataclass(frozen=True)
class Top:
    """The maximum, in the covariates' units.

    Attributes
    ----------
    gamma, covariance : γ (k',), and (I + P)⁻¹ (k', k').
    tests : χ² and degrees of freedom (p + 1, 2) of the test of proportional odds; (0, 2) without.
    log_likelihood, null_log_likelihood : without the penalty.
    rounds : number of rounds.
    """

    gamma: Array
    covariance: Array
    tests: Array
    log_likelihood: float
    null_log_likelihood: float
    rounds: int


def fit_multinomial(fed: Federation, config: MultinomialSettings, task: Task) -> MultinomialModel:
    """Fit baseline-category logits on all sites that answer the first call.

    Raises
    ------
    SettingError : there is no such reference class.
    DataError : no covariates or records, or other classes than the dictionary's.
    NothingToLearn : one class only, a class of few records, or columns that single out records.
    SiteUnavailable : a site left during the fit.
    SingularInformation : some covariates are collinear or constant; they are named.
    NotConverged : the likelihood rises without limit, or `max_rounds` is reached.
    """
    levels = levels_of(task)
    if config.reference and config.reference not in levels:
        raise SettingError(
            f"setting 'reference' of method 'multinomial' is {config.reference!r}, which is no "
            f"class of the outcome; give {' or '.join(map(repr, levels))}."
        )
    sites, total, layout, top = regress(fed, "multinomial", config, task)
    there = list(layout.there)
    own = levels.index(config.reference) if config.reference else there[0]
    return MultinomialModel.compared(
        top.gamma,
        top.covariance,
        reference=own if own in there else there[0],
        features=task.features,
        levels=levels,
        there=tuple(there),
        binary=_binary(task),
        **_facts(sites, total, config, top),
    )


def fit_ordinal(fed: Federation, config: OrdinalSettings, task: Task) -> OrdinalModel:
    """Fit cumulative logits with proportional odds on all sites that answer the first call.

    Raises
    ------
    FedcohortError : as `fit_multinomial`.
    """
    sites, total, layout, top = regress(fed, "ordinal", config, task)
    m = len(layout.there) - 1
    return OrdinalModel(
        features=task.features,
        levels=levels_of(task),
        there=tuple(layout.there),
        binary=_binary(task),
        thresholds=top.gamma[:m],
        coefficients=top.gamma[m:],
        covariance=top.covariance,
        tests=top.tests,
        **_facts(sites, total, config, top),
    )


def levels_of(task: Task) -> tuple[str, ...]:
    """Return the classes of the outcome; 0 and 1 of an outcome without names."""
    return task.levels or ("0", "1")


def _binary(task: Task) -> bool:
    """Return whether a prediction is the probability of class 1 alone."""
    return task.outcome in ("", "binary")


def _facts(sites: Exact, total: Tally, config: OfClasses, top: Top) -> dict[str, Any]:
    """Return what both models say of their fit."""
    return {
        "log_likelihood": top.log_likelihood,
        "null_log_likelihood": top.null_log_likelihood,
        "rows": int(total.rows),
        "rounds": top.rounds,
        "level": config.level,
        "l2": config.l2,
        "caution": sites.caution,
    }


def regress(
    fed: Federation, law: str, config: OfClasses, task: Task
) -> tuple[Exact, Tally, Layout, Top]:
    """Return the maximum of the likelihood, with the sites that answered the first call."""
    levels = levels_of(task)
    several = levels if len(levels) > 2 else ()
    sites = exact_sums(fed, task, "class", classes=several)
    total = sites.sum(tally, classes=len(levels))
    check_tally(total, levels, sites.least)
    if not config.weights:
        total = replace(total, weight=total.ones.astype(float))
    if not config.l2 and int(total.rows) <= len(task.features):
        raise SingularInformation(
            f"{int(total.rows)} records are too few for {len(task.features)} covariates. Use "
            f"fewer, or refit with a ridge penalty (l2 > 0)."
        )
    layout = LAYOUTS[law](
        len(levels),
        np.flatnonzero(total.ones).tolist(),
        total.weight / total.weight.sum(),
        len(task.features),
    )
    return sites, total, layout, ascend(sites, total, layout, config, task.features)


def ascend(
    sites: Exact, total: Tally, layout: Layout, config: OfClasses, names: tuple[str, ...]
) -> Top:
    """Maximise ℓ(γ) − ½ γᵀPγ, eq. (1), with a row of history for each round.

    A round after a step that was too long repeats the row before it.

    Raises
    ------
    SingularInformation, NotConverged, NothingToLearn : as `fit_multinomial`.
    """
    fed, weight = sites.fed, float(total.weight.sum())
    centre, scale = total.x.sum(axis=0) / weight, np.ones(layout.p)
    base, step, cross = layout.start, np.zeros(layout.spread.shape[1]), np.eye(1 + layout.p)
    penalty = np.zeros((len(base), len(base)))
    value, moved, size, null = -math.inf, math.inf, math.inf, -math.inf
    report: dict[str, float] = {}
    most = min(config.max_rounds, MOST_ROUNDS)
    for round_ in fed.rounds(most):
        while not layout.allows(base + step):
            step = step / 2
        tried = base + step
        here = sites.sum(
            slopes,
            law=layout.law,
            classes=layout.classes,
            centre=centre,
            scale=scale,
            gamma=layout.fixed + layout.spread @ tried,
        )
        if not round_:
            check_products(sites, layout, total, here)
            null = float(here.log_likelihood)
            scale, cross = deviations(layout.products(here), centre)
            here = per_unit(here, layout.units(scale))
            penalty = layout.penalty(weight * config.l2 / scale**2)
        reached = float(here.log_likelihood) - 0.5 * float(tried @ penalty @ tried)
        if not reached >= value - 1e-10 * (1.0 + abs(value)):
            step = step / 2
            fed.record(**report, step=float(np.abs(step).max()))
            continue
        base, value = tried, reached
        report = {"objective": -value / weight, "log_likelihood": float(here.log_likelihood)}
        slope = layout.spread.T @ here.score - penalty @ base
        curved = layout.spread.T @ here.information @ layout.spread + penalty
        covariance = _inverse(curved, layout, names, late=round_ > 0)
        step = covariance @ slope
        size, before = float(np.abs(step).max()), moved
        ways = layout.predictors(step)
        moved = math.sqrt(float(np.einsum("ij,jk,ik->i", ways, cross, ways).max()))
        fed.record(**report, step=size)
        if size < config.tol:
            check_weight(here.squares[0], here.squares[1], sites.least, OUTLYING)
            found, back = base + step, layout.unscaled(centre, scale)
            tests = _proportional(sites, layout, config, found, centre, scale)
            return Top(
                back @ found, back @ covariance @ back.T, tests,
                float(here.log_likelihood), null, round_ + 1,
            )  # fmt: skip
        flat = float(slope @ step) < FLAT * weight / float(total.rows)
        if flat and moved > max(MOVED, 0.5 * before) and not config.l2:
            raise unlimited(names, np.abs(ways[:, 1:]).max(axis=0), SEPARATED)
    raise unfinished(size, most, config.tol)


def deviations(products: Array, centre: Array) -> tuple[Array, Array]:
    """Return the standard deviation of each covariate (p,), and mean products of z (1 + p, 1 + p).

    Parameters
    ----------
    products : Σ ω z zᵀ (1 + p, 1 + p) of z = (1, x − centre), weighted as the information.
    """
    within = np.maximum(np.diag(about_means(products)), 0.0)
    scale = scale_of(np.sqrt(within / products[0, 0]), centre)
    unit = np.r_[1.0, scale]
    return scale, products / np.outer(unit, unit) / products[0, 0]


def per_unit(here: Slopes, unit: Array) -> Slopes:
    """Return the sums at the start for parameters in units (k,)."""
    both = np.outer(unit, unit)
    return replace(here, score=here.score / unit, information=here.information / both)


def _inverse(curved: Array, layout: Layout, names: tuple[str, ...], *, late: bool) -> Array:
    """Return the inverse of I + P (k', k')."""

    def flat(along: Array, ratio: float) -> Exception:
        parts = np.array([np.abs(layout.predictors(v)[:, 1:]).max(axis=0) for v in along.T])
        if late:
            return unlimited(names, parts[0], SEPARATED)
        return SingularInformation(collinear(names, parts.T, ratio))

    return inverse(curved, flat)


def _proportional(
    sites: Exact, layout: Layout, config: OfClasses, found: Array, centre: Array, scale: Array
) -> Array:
    """Return the score test of proportional odds at the maximum, by one more sum."""
    if not isinstance(config, OrdinalSettings) or not config.po_check or config.l2:
        return np.zeros((0, 2))
    if len(layout.there) < 3:
        return np.zeros((0, 2))
    told = sites.sum(
        freed,
        classes=layout.classes,
        centre=centre,
        scale=scale,
        gamma=layout.fixed + layout.spread @ found,
    )
    own = layout.spread[: layout.classes - 1, : len(layout.there) - 1]
    whole = np.einsum("ia,ikjl,jb->akbl", own, assembled(told.own, told.next), own)
    return np.array(proportional_tests(own.T @ told.score, whole))
