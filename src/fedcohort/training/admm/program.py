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
empty one not at all. One round is one sum: sites keep s_j = x̂_j + w_j, and get z. h is that of
the raw coefficients β = γ/sd, λ₁/sd and λ₂/sd² by coordinate, so the optimum does not depend on
the units on the way; with a penalised intercept covariates are scaled, not centred, for the same.

A fixed point of (2)–(4) is the optimum whatever the start, so sites may miss rounds: the average
runs over those present. Anderson acceleration (`anderson`) combines the latest s_j. ρ is doubled or
halved where one residual is far the larger (Boyd, 3.4.1), after rounds 2, 4, 8, 16 and 32, and w_j
rescaled. A fit ends where both residuals are small (Boyd, 3.3.1) and the objective at z is proved
to be near its least:

    objective(z) − least ≤ Σ ω_j [g_j(z) − g_j(x_j) − y_jᵀ(z − x_j)] + ρ ‖z − Σω_j x_j‖ R    (5)

with y_j = ρ (z − w_j − x_j), the slope of g_j at x_j: against any point no farther from z than R,
which is the length of z itself.

Revealed, only as sums over all sites: `Totals` and `Spread` once; every round `Step`: two vectors
(d,) with d = p + 1, inner products with the rounds that are combined, and five numbers. Sites learn
z, pooled means and standard deviations. With several sites fewer than `min_cell` records, in all or
of a class, are refused. The sums give Σ ω_j y_j, a slope of the loss where each site is, not at z:
between rounds it changes by parts of all rows on the margin of any site. In a federation of one
site it is that site's own. Where a site misses a round, the difference from the round before is
about that site alone; of hinge loss with one row on its margin, it would lie along that row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import (
    DataError,
    Federation,
    NotConverged,
    NothingToLearn,
    SiteUnavailable,
    Task,
    per_site,
)
from fedcohort.training.admm.anderson import Anderson
from fedcohort.training.admm.settings import AdmmSettings, Penalty
from fedcohort.training.admm.steps import Totals, admm_round, admm_spread, admm_totals

Loss = Literal["squared", "logistic", "hinge"]

#: ρ of the first round: the mean curvature of the loss along a standardised coordinate.
CURVATURE = {"squared": 2.0, "logistic": 0.25, "hinge": 0.2}
#: The gap of eq. (5) at the end, relative to the objective.
GAP = 1e-6
#: ρ changes after these rounds, where one normalised residual is so many times the other.
ADAPTED, UNEQUAL = (1, 3, 7, 15, 31), 5.0


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


@dataclass(frozen=True, eq=False)
class _Ground:
    """What is fixed before the first round.

    Attributes
    ----------
    rows, ones, weight : records at all sites, those with y = 1, and the sum of their weights.
    total : the weight of all records, or the number of sites that hold any.
    centre, scale : (p,) of the covariates.
    l1, l2 : (p + 1,) ≥ 0 on the standardised coordinates, the intercept first.
    """

    rows: int
    ones: int
    weight: float
    total: float
    centre: Array
    scale: Array
    l1: Array
    l2: Array

    def penalty(self, z: Array) -> float:
        """Return h at z (p + 1,)."""
        return float(self.l1 @ np.abs(z) + 0.5 * self.l2 @ z**2)

    def shrunk(self, mean: Array, rho: float) -> Array:
        """Return z of eq. (3): soft thresholding, then the ridge's factor."""
        size = np.maximum(rho * np.abs(mean) - self.l1, 0.0)
        return np.sign(mean) * size / (rho + self.l2)

    def unscaled(self, z: Array) -> tuple[float, Array]:
        """Return b₀ and β (p,) of z (p + 1,)."""
        beta = z[1:] / self.scale
        return float(z[0] - self.centre @ beta), beta


def consensus(
    fed: Federation, loss: Loss, penalty: Penalty, config: AdmmSettings, task: Task
) -> Solution:
    """Minimise the averaged loss and the penalty over all sites that answer the first call.

    Parameters
    ----------
    loss : of each row, with f = b₀ + xᵀβ + offset: ``squared`` (f − y)², ``logistic``
        log(1 + exp(−y f)), ``hinge`` max(1 − y f, 0); y of the last two is 1 as ±1.

    Raises
    ------
    DataError : no covariates, no records, or (of classifiers) more than two classes, one class, or
        one of fewer than `min_cell` records.
    SiteUnavailable : a site left before the first round, or was away at the end.
    NotConverged : the rounds are over.
    """
    if len(task.features) <= task.offset:
        raise DataError("there are no covariates; name at least one column besides the outcome.")
    first = fed.sum(admm_totals, offset=task.offset, classes=loss != "squared")
    fed = fed.only(fed.answered)
    _check(first, loss, task.min_cell if len(fed.sites) > 1 else 1)
    ground = _survey(fed, first, penalty, config, task)
    return _iterate(fed, loss, ground, config, task)


def _check(first: Totals, loss: Loss, least: int) -> None:
    """Refuse tables from which nothing can be learnt or nothing may be shown."""
    n, ones = int(first.rows), int(first.ones)
    if not n:
        raise NothingToLearn("no site holds any record; check their selection.")
    if n < least:
        raise NothingToLearn(
            f"fewer than {least} records at all sites together (min_cell). Add sites or records; "
            f"or lower min_cell, if all sites agree."
        )
    if loss == "squared":
        return
    if first.others:
        raise DataError(
            "the outcome has more than two classes, and this method tells two apart. Give an "
            "outcome of two levels."
        )
    if ones in (0, n):
        raise NothingToLearn(
            f"all {n} records are of class {ones // n}, and a fit needs both. Add a site that has "
            f"the other one, or check how the outcome is coded."
        )
    if min(ones, n - ones) < least:
        raise NothingToLearn(
            f"class {int(ones < n - ones)} has fewer than {least} records at all sites together "
            f"(min_cell). Add sites or records; or lower min_cell, if all sites agree."
        )


def _survey(
    fed: Federation, first: Totals, penalty: Penalty, config: AdmmSettings, task: Task
) -> _Ground:
    """Fix the scale of the covariates, and the penalties in it."""
    mean = first.x / float(first.weight)
    centre = np.zeros_like(mean) if penalty.intercept else mean
    squares = fed.sum(admm_spread, offset=task.offset, centre=centre).squares
    if missing := sorted(set(fed.sites) - set(fed.answered)):
        raise SiteUnavailable(
            f"{', '.join(missing)} left before the first round. Bring them back and --resume, or "
            f"start again without them."
        )
    sd = np.sqrt(squares / float(first.weight))
    scale = np.where(sd > 1e-12 * np.abs(mean), sd, 1.0)
    of_intercept = float(penalty.intercept)
    return _Ground(
        rows=int(first.rows),
        ones=int(first.ones),
        weight=float(first.weight),
        total=float(first.sites if config.weighting == "sites" else first.weight),
        centre=centre,
        scale=scale,
        l1=penalty.l1 * np.r_[of_intercept, 1.0 / scale],
        l2=penalty.l2 * np.r_[of_intercept, 1.0 / scale**2],
    )


def _iterate(
    fed: Federation, loss: Loss, ground: _Ground, config: AdmmSettings, task: Task
) -> Solution:
    """Take rounds of eqs. (2) to (4) until they end; a row of history for each."""
    exact = config.local == "exact"
    rho = config.rho or CURVATURE[loss]
    z, mix = np.zeros(len(ground.l1)), np.ones(1)
    anderson = Anderson(config.acceleration if exact else 0)
    means: list[Array] = []
    seen: set[str] = set()
    primal = dual = objective = math.inf
    for round_ in fed.rounds(config.max_rounds):
        step = fed.sum(
            admm_round,
            loss=loss, offset=task.offset, centre=ground.centre, scale=ground.scale,
            total=ground.total, by_site=config.weighting == "sites", z=z, rho=rho,
            fresh=False if len(seen) == len(fed.sites)
            else per_site({s: s not in seen for s in fed.sites}),
            mix=mix, relax=config.over_relaxation, keep=anderson.memory + 1,
            subgradient=None if exact else (config.local_steps, config.local_step_size),
        )  # fmt: skip
        seen.update(fed.answered)
        together = len(fed.answered) == len(fed.sites)
        share = float(step.share)
        if together:
            means = [*means[-anderson.memory :], step.target / share]
            mix = anderson.next(step.inner)
        else:
            anderson.forget()
            means, mix = [step.target / share], np.ones(1)
        mean = mix @ np.array(means[-len(mix) :])
        ahead = ground.shrunk(mean, rho)
        move = ahead - z
        apart = float(step.residual @ move) - 0.5 * share * float(move @ move)
        primal = math.sqrt(max((float(step.inner[-1]) - 2.0 * apart) / share, 0.0))
        dual = rho * float(np.linalg.norm(move))
        objective = float(step.loss) / share + ground.penalty(z)
        fed.record(objective=objective, primal=primal, dual=dual, rho=rho)
        size = max(math.sqrt(float(step.x) / share), float(np.linalg.norm(z)))
        root = config.abs_tol * math.sqrt(len(z))
        primal_tol = root + config.rel_tol * size
        dual_tol = root + config.rel_tol * rho * math.sqrt(float(step.w) / share)
        gap = objective - ground.penalty(z) - float(step.plane) / share
        gap += rho * float(np.linalg.norm(step.residual)) / share * float(np.linalg.norm(z))
        small = primal <= primal_tol and dual <= dual_tol
        if together and small and (not exact or gap <= GAP * objective):
            return _solution(fed, ground, z, objective, round_ + 1, (primal, dual), True)
        z = ahead
        if config.adapt_rho and exact and round_ in ADAPTED:
            unequal = (primal / primal_tol) / max(dual / dual_tol, 1e-300)
            if not 1.0 / UNEQUAL < unequal < UNEQUAL:
                new = rho * (2.0 if unequal > 1 else 0.5)
                mean = z + (mean - z) * (rho / new)
                rho = new
                anderson.forget()
                means, mix = [mean], np.ones(1)
    if not exact:
        return _solution(fed, ground, z, objective, config.max_rounds, (primal, dual), False)
    if missing := sorted(set(fed.sites) - set(fed.answered)):
        raise SiteUnavailable(
            f"{', '.join(missing)} was away in the last of {config.max_rounds} rounds, and the fit "
            f"needs all sites at its end. Bring them back, or start again without them."
        )
    raise NotConverged(
        f"the residuals are still {primal:.1e} and {dual:.1e} after {config.max_rounds} rounds. "
        f"Raise max_rounds, or the penalty: without one, classes that the covariates tell apart "
        f"have no optimum."
    )


def _solution(
    fed: Federation,
    ground: _Ground,
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
