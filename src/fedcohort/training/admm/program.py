"""Regularised linear models over sites by the alternating direction method of multipliers.

D6.2, sections 3.3 and 3.4 (global consensus, scaled form, eq. 3.32); Boyd et al., "Distributed
optimization and statistical learning via ADMM", Found. Trends Mach. Learn. 3(1), 2011, chapters 3
and 7. With g_j the mean loss of site j's rows, ω_j its share of all N rows (so that the fixed point
is the pooled optimum; ``weighting="sites"`` is the paper's sum of local means), and coordinates γ
standardised by pooled means and standard deviations:

    minimise  Σ ω_j g_j(x_j) + h(z)   subject to  x_j = z at every site                    (1)
    x_j ← argmin g_j(x) + ρ/2 ‖x − z + w_j‖²                                               (2)
    z   ← argmin h(z) + ρ/2 ‖z − Σ ω_j (x̂_j + w_j)‖²,   x̂_j = α x_j + (1 − α) z           (3)
    w_j ← w_j + x̂_j − z                                                                    (4)

Site j's quadratic term has the weight ω_j too, so that sites of all sizes converge at one rate and
an empty one has no effect. One round is one sum: sites keep s_j = x̂_j + w_j, and receive z. For
hinge loss `smoothed` may give the start and a metric ‖·‖_M for each site in (2) and (3). h
penalises β = γ/sd, with λ₁/sd and λ₂/sd² by coordinate, so the optimum does not depend on units;
for the same reason covariates are not centred if the intercept is penalised.

A round waits for all sites, but can continue with the mean over those present: a fixed point of
(2)–(4) is the optimum whatever the start. It converges only when all sites are back. Anderson
acceleration (`anderson`) combines the latest s_j. If one residual is much larger (Boyd, 3.4.1), ρ
changes after some rounds, and w_j is rescaled. A fit ends when both residuals are small (Boyd,
3.3.1) and the objective at z is proved to be near its minimum:

    minimum ≥ Σ ω_j [g_j(x_j) + y_jᵀ(z − x_j)] + h(z) − ‖e_A‖ R − Σ_B e_k²/2λ₂ₖ               (5)

with y_j = ρ M (z − w_j − x_j), the gradient of g_j at x_j, and e = ρ Σ ω_j M (x_j − z), minus the
gradient of the whole. A are the coordinates without a λ₂, where (5) holds within R = ‖z‖ of z; B
are the others, where it holds everywhere. z must be the point (3) of all sites' s_j, so no site may
have missed the round before.

Revealed, only as sums over all sites: `Totals` and `Spread` once; the sums of `smoothed`, if used;
every round `Step`: two vectors (d,) with d = p + 1, inner products with the combined rounds, and
five numbers. Sites receive z, pooled means and standard deviations, and from a smoothed start Σ ω_j
H_j. With several sites fewer than `min_cell` records, in all or of a class, are refused. The sums
give Σ ω_j y_j, a gradient of the loss at each site's x_j, not at z; between rounds it changes by
parts of all rows on any site's margin. With one site it is that site's own. If a site misses a
round, the difference from the round before is about that site alone; for hinge loss with one row on
its margin, it would lie along that row.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.exact import check_covariates
from fedcohort.numerics.collinearity import longest
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
#: Largest final gap of eq. (5), relative to the objective.
GAP = 1e-6
#: ρ changes if one normalised residual is so many times the other, ...
UNEQUAL = 5.0
#: ... after these rounds, by this factor: in the metric I, and in a curvature's metric.
EARLY, LATE = ((1, 3, 7, 15, 31), 2.0), ((15, 31, 47, 63, 95, 127), 3.0)
#: After so many rounds in a curvature's metric, ADMM starts again from z in the metric I. (The
#: metric misleads if most directions have no curvature.)
PATIENCE = 150


@dataclass(frozen=True, eq=False)
class Solution:
    """Result of ADMM.

    Attributes
    ----------
    intercept : b₀, in the units of the outcome (log odds, or the margin).
    coefficients : β (p,), per unit of the covariate.
    objective : the penalised loss.
    rounds : number of rounds.
    primal, dual : residuals of the last round, in standardised units.
    rows, ones : records at all sites, and those with y = 1.
    weight : sum of the records' weights; their number if all weights are 1.
    sites : sites whose records are in the fit.
    converged : False only if the paper's subgradient steps ran out of rounds.
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
    """Minimise the mean loss plus penalty over all sites that answer the first call.

    Parameters
    ----------
    loss : of each row, with f = b₀ + xᵀβ + offset: ``squared`` (f − y)², ``logistic`` log(1 +
        exp(−y f)), ``hinge`` max(1 − y f, 0); the last two code y as ±1.
    smoothed : start at the optimum of a smoothed hinge loss; False for other losses, an ℓ1 penalty,
        or subgradient steps.

    Raises
    ------
    DataError : no covariates, no records, or (of classifiers) more than two classes, one class, or
        one of fewer than `min_cell` records.
    SiteUnavailable : a site left before the first round, or was absent at the end.
    NotConverged : the rounds ran out.
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
    """Run rounds of eqs. (2) to (4) until they end; each adds a row of history."""
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
    anderson = Anderson(config.acceleration if exact else 0, linear=loss == "hinge")
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
        z_next = ground.shrunk(mean, rho, metric)
        move = z_next - z
        moved = max(float(move @ _times(metric, move)), 0.0)
        change = float(step.residual @ move) - 0.5 * share * moved
        primal = math.sqrt(max((float(step.inner[-1]) - 2.0 * change) / share, 0.0))
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
        z = z_next
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
            f"{', '.join(missing)} was absent in the last of {config.max_rounds} rounds, but the "
            f"fit needs all sites at its end. Bring them back, or start again without them."
        )
    raise NotConverged(
        f"the residuals are still {primal:.1e} and {dual:.1e} after {config.max_rounds} rounds. "
        f"Raise max_rounds, or the penalty{_endless(loss, ground, z, task)}."
    )


def _endless(loss: Loss, ground: Ground, z: Array, task: Task) -> str:
    """Return the text on a possible missing optimum: unpenalised, separable classes."""
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
