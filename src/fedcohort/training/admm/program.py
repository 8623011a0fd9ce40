"""Regularised linear models over sites by the alternating direction method of multipliers.

D6.2, sections 3.3 and 3.4 (global consensus, scaled form, eq. 3.32); Boyd et al., "Distributed
optimization and statistical learning via ADMM", Found. Trends Mach. Learn. 3(1), 2011, chapters 3
and 7. With ω_j the share of site j (its rows in all N, so that the fixed point is the optimum of
the pooled table; the paper's sum of local means is ``weighting="sites"``), g_j the mean loss of its
rows, and all in coordinates γ that are standardised by pooled means and standard deviations:

    minimise  Σ ω_j g_j(x_j) + h(z)   subject to  x_j = z at every site                    (1)
    x_j ← argmin g_j(x) + ρ/2 ‖x − z + w_j‖²                                               (2)
    z   ← argmin h(z) + ρ/2 ‖z − Σ ω_j (x̂_j + w_j)‖²,   x̂_j = α x_j + (1 − α) z           (3)
    w_j ← w_j + x̂_j − z                                                                    (4)

The quadratic term of site j weighs ω_j too, so that small and large sites go at one pace and an
empty one not at all. One round is one sum: sites keep s_j = x̂_j + w_j, and get z. With hinge loss
a smoothed one may say where to start, and give each site a metric ‖·‖_M in place of ‖·‖ in (2) and
(3) (`smoothed`). h is that of the raw coefficients β = γ/sd, λ₁/sd and λ₂/sd² by coordinate, so the
optimum does not depend on the units on the way; with a penalised intercept covariates are scaled,
not centred, for the same.

A round waits until all sites are there. Where some stay away it goes on: a fixed point of (2)–(4)
is the optimum whatever the start, so that they may miss rounds, and the average runs over those
present; but it settles only once all are there again. Anderson acceleration (`anderson`) combines
the latest s_j. Where one residual is far the larger (Boyd, 3.4.1), ρ changes after some rounds, and
w_j is rescaled. A fit ends where both residuals are small (Boyd, 3.3.1) and the objective at z is
proved to be near its least:

    least ≥ Σ ω_j [g_j(x_j) + y_jᵀ(z − x_j)] + h(z) − ‖e_A‖ R − Σ_B e_k²/2λ₂ₖ                 (5)

with y_j = ρ M (z − w_j − x_j), the slope of g_j at x_j, and e = ρ Σ ω_j M (x_j − z), which is minus
the slope of the whole: over the coordinates A without a λ₂ against any point no farther from z than
R, the length of z itself; over the others B against any. For e, z must be the point (3) of all
sites' s_j, so no site may have missed the round before.

Revealed, only as sums over all sites: `Totals` and `Spread` once; what `smoothed` tells, where it
is asked for; every round `Step`: two vectors (d,) with d = p + 1, inner products with the rounds
that are combined, and five numbers. Sites learn z, pooled means and standard deviations, and from a
smoothed start Σ ω_j H_j. With several sites fewer than `min_cell` records, in all or of a class,
are refused. The sums give Σ ω_j y_j, a slope of the loss where each site is, not at z:
between rounds it changes by parts of all rows on the margin of any site. In a federation of one
site it is that site's own. Where a site misses a round, the difference from the round before is
about that site alone; of hinge loss with one row on its margin, it would lie along that row.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.exact import check_covariates
from fedcohort.numerics.blame import longest
from fedcohort.protocol import (
    Federation,
    NotConverged,
    SiteUnavailable,
    Task,
    per_site,
)
from fedcohort.training.admm.anderson import Anderson
from fedcohort.training.admm.ground import Ground, check, survey
from fedcohort.training.admm.settings import AdmmSettings, Penalty
from fedcohort.training.admm.smoothed import WORTH, Start, smoothed_start
from fedcohort.training.admm.steps import (
    admm_round,
    admm_smoothed,
    admm_totals,
)

Loss = Literal["squared", "logistic", "hinge"]

#: ρ of the first round: the mean curvature of the loss along a standardised coordinate.
CURVATURE = {"squared": 2.0, "logistic": 0.25, "hinge": 0.2}
#: The gap of eq. (5) at the end, relative to the objective.
GAP = 1e-6
#: ρ changes where one normalised residual is so many times the other, ...
UNEQUAL = 5.0
#: ... after these rounds, and by this factor: in the metric I, and in that of a curvature.
EARLY, LATE = ((1, 3, 7, 15, 31), 2.0), ((15, 31, 47, 63, 95, 127), 3.0)
#: After so many rounds in the metric of a curvature, which misleads where most directions have
#: none, ADMM begins anew from z in the metric I.
PATIENCE = 150


@dataclass(frozen=True, eq=False)
class Solution:
    """Where ADMM ended.

    Attributes
    ----------
    intercept : b₀, in the units of the outcome (log odds, or the margin).
    coefficients : β (p,), per unit of the covariate.
    objective : the penalised loss there.
    rounds : how many were taken.
    primal, dual : the residuals of the last one, in standardised units.
    rows, ones : records at all sites, and those of them with y = 1.
    weight : the sum of the records' weights; their number where all count alike.
    sites : those whose records are in the fit.
    converged : False only where the paper's subgradient steps ran out of rounds.
    """

    intercept: float
    coefficients: Array
    objective: float
    rounds: int
    primal: float
    dual: float
    rows: int
    ones: int
    weight: float
    sites: tuple[str, ...]
    converged: bool


def consensus(
    fed: Federation,
    loss: Loss,
    penalty: Penalty,
    config: AdmmSettings,
    task: Task,
    *,
    smoothed: bool = False,
) -> Solution:
    """Minimise the averaged loss and the penalty over all sites that answer the first call.

    Parameters
    ----------
    loss : of each row, with f = b₀ + xᵀβ + offset: ``squared`` (f − y)², ``logistic``
        log(1 + exp(−y f)), ``hinge`` max(1 − y f, 0); y of the last two is 1 as ±1.
    smoothed : start where a smoothed hinge loss has its optimum; of other losses, or an ℓ1 penalty,
        or with subgradient steps, it must be False.

    Raises
    ------
    DataError : no covariates, no records, or (of classifiers) more than two classes, one class, or
        one of fewer than `min_cell` records.
    SiteUnavailable : a site left before the first round, or was away at the end.
    NotConverged : the rounds are over.
    """
    check_covariates(task)
    first = fed.sum(admm_totals, offset=task.offset, classes=loss != "squared")
    fed = fed.only(fed.answered)
    check(first, loss, task.min_cell if len(fed.sites) > 1 else 1)
    ground = survey(fed, first, penalty, config, task)
    return _iterate(fed, loss, ground, config, task, smoothed and ground.rows >= WORTH)


def _iterate(
    fed: Federation,
    loss: Loss,
    ground: Ground,
    config: AdmmSettings,
    task: Task,
    smoothed: bool,
) -> Solution:
    """Take rounds of eqs. (2) to (4) until they end; a row of history for each."""
    fed = fed.awaiting(len(fed.sites))
    exact = config.local == "exact"
    rounds = fed.rounds(config.max_rounds)
    by_site = config.weighting == "sites"
    start: Start | None = None
    if smoothed:
        start = smoothed_start(
            fed,
            lambda z, tau: fed.sum(
                admm_smoothed,
                offset=task.offset, centre=ground.centre, scale=ground.scale,
                total=ground.total, by_site=by_site, z=z, tau=tau,
            ),
            itertools.islice(rounds, config.max_rounds - 1),
            ground.l2,
            ground.rows,
        )  # fmt: skip
    metric = None if start is None else start.metric
    rho = config.rho or (CURVATURE[loss] if start is None else 1.0)
    z = np.zeros(len(ground.l1)) if start is None else start.first(ground.l2, rho)
    adapted, factor = EARLY if start is None else LATE
    mix, together = np.ones(1), True
    anderson = Anderson(config.acceleration if exact else 0)
    means: list[Array] = []
    seen: set[str] = set()
    primal = dual = objective = math.inf
    began = -1
    for round_ in rounds:
        began = round_ if began < 0 else began
        fresh = len(seen) < len(fed.sites)
        step = fed.sum(
            admm_round,
            loss=loss, offset=task.offset, centre=ground.centre, scale=ground.scale,
            total=ground.total, by_site=by_site, z=z, rho=rho,
            fresh=per_site({s: s not in seen for s in fed.sites}) if fresh else False,
            start=(start.at, start.tau, start.part, start.rest) if start and fresh else None,
            mix=mix, relax=config.over_relaxation, keep=anderson.memory + 1,
            subgradient=None if exact else (config.local_steps, config.local_step_size),
        )  # fmt: skip
        seen.update(fed.answered)
        before, together = together, len(fed.answered) == len(fed.sites)
        share = float(step.share)
        latest = _times(metric, z) + step.target / share
        if together:
            means = [*means[-anderson.memory :], latest]
            mix = anderson.next(step.inner)
        else:
            anderson.forget()
            means, mix = [latest], np.ones(1)
        mean = mix @ np.array(means[-len(mix) :])
        ahead = ground.shrunk(mean, rho, metric)
        move = ahead - z
        moved = max(float(move @ _times(metric, move)), 0.0)
        apart = float(step.residual @ move) - 0.5 * share * moved
        primal = math.sqrt(max((float(step.inner[-1]) - 2.0 * apart) / share, 0.0))
        dual = rho * math.sqrt(moved)
        objective = float(step.loss) / share + ground.penalty(z)
        fed.record(objective=objective, primal=primal, dual=dual, rho=rho)
        size = max(math.sqrt(float(step.x) / share), math.sqrt(float(z @ _times(metric, z))))
        root = config.abs_tol * math.sqrt(len(z))
        primal_tol = root + config.rel_tol * size
        dual_tol = root + config.rel_tol * rho * math.sqrt(float(step.w) / share)
        least = float(step.plane) / share + ground.penalty(z)
        least -= ground.below(rho * step.residual / share, z)
        small = together and primal <= primal_tol and dual <= dual_tol
        proved = before and objective - least <= GAP * objective
        if small and (not exact or proved):
            return _solution(fed, ground, z, objective, round_ + 1, (primal, dual), True)
        z = ahead
        if config.adapt_rho and exact and round_ - began in adapted:
            unequal = (primal / primal_tol) / max(dual / dual_tol, 1e-300)
            if not 1.0 / UNEQUAL < unequal < UNEQUAL:
                new = rho * (factor if unequal > 1 else 1.0 / factor)
                at = _times(metric, z)
                mean = at + (mean - at) * (rho / new)
                rho = new
                anderson.forget()
                means, mix = [mean], np.ones(1)
        if start and round_ - began >= PATIENCE:
            start = metric = None
            rho, (adapted, factor) = config.rho or CURVATURE[loss], EARLY
            seen, means, mix, began = set(), [], np.ones(1), -1
            anderson.forget()
    if not exact:
        return _solution(fed, ground, z, objective, config.max_rounds, (primal, dual), False)
    if missing := sorted(set(fed.sites) - set(fed.answered)):
        raise SiteUnavailable(
            f"{', '.join(missing)} was away in the last of {config.max_rounds} rounds, and the fit "
            f"needs all sites at its end. Bring them back, or start again without them."
        )
    raise NotConverged(
        f"the residuals are still {primal:.1e} and {dual:.1e} after {config.max_rounds} rounds. "
        f"Raise max_rounds, or the penalty{_endless(loss, ground, z, task)}."
    )


def _endless(loss: Loss, ground: Ground, z: Array, task: Task) -> str:
    """Say what may have no end: unpenalised coefficients of covariates that tell classes apart."""
    if loss == "squared" or ground.l1[1:].any() or ground.l2[1:].any():
        return ""
    return (
        f": without one, classes that the covariates tell apart have no optimum. Longest is "
        f"{longest(task.features, z[1:])}: drop it if it does so, or join rare levels"
    )


def _times(metric: Array | None, v: Array) -> Array:
    """Return Σ ω_j M_j v (d,)."""
    return v if metric is None else metric @ v


def _solution(
    fed: Federation,
    ground: Ground,
    z: Array,
    objective: float,
    rounds: int,
    residuals: tuple[float, float],
    converged: bool,
) -> Solution:
    intercept, coefficients = ground.unscaled(z)
    return Solution(
        intercept=intercept,
        coefficients=coefficients,
        objective=objective,
        rounds=rounds,
        primal=residuals[0],
        dual=residuals[1],
        rows=ground.rows,
        ones=ground.ones,
        weight=ground.weight,
        sites=tuple(fed.sites),
        converged=converged,
    )
