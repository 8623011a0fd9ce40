"""Linear support vector machine over sites, exactly that of the pooled table.

D6.2, eq. 3.7, with y_i = ±1 and the intercept b₀ unpenalised:

    minimise  (1/N) Σ max(1 − y_i (b₀ + x_iᵀβ), 0) + penalty/2 ‖β‖²                        (1)

by consensus ADMM (`training.admm`) from a smoothed start. Local problems are solved exactly. D6.2
(eqs. 3.37, 3.38) uses fixed subgradient steps, which do not converge; these are
``local="subgradient"``. The decision value f = b₀ + xᵀβ then becomes a probability as in Platt,
"Probabilistic outputs for support vector machines", 1999, with his targets for n₁ and n₀ records of
the classes,

    P(y = 1) = 1/(1 + exp(−a − c f)),   t₁ = (n₁ + 1)/(n₁ + 2),  t₀ = 1/(n₀ + 2)           (2)

which keep a and c finite if f separates the classes; a and c by Newton's method. They are fitted to
the same records as f, so the true probabilities of new patients are somewhat less extreme.

Revealed, only as sums over all sites: with several sites `data.isolation` once; the sums of ADMM,
and `Platt` in each of the last rounds: 7 numbers. Sites receive b₀, β, a and c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from fedcohort.algorithms.svm.model import SvmModel
from fedcohort.arrays import Array
from fedcohort.data.exact import exact_sums
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import (
    Federation,
    NotConverged,
    Site,
    Task,
    check_all_answered,
    message,
    setting,
    summed,
)
from fedcohort.training.admm import AdmmSettings, Penalty, Solution, consensus

#: Most Newton steps for a and c, and least gain of a step in log-likelihood per record.
STEPS, GAIN = 60, 1e-16


@dataclass(frozen=True, kw_only=True)
class SvmSettings(AdmmSettings, method="svm"):
    """Settings of `svm`; the objective is eq. (1)."""

    penalty: float = setting(
        0.01, "λ > 0 on ½‖β‖²", "squared unit of the covariate", within="(0, inf)"
    )
    start: str = setting(
        "smoothed",
        "Start of ADMM: minimum of a smoothed loss (Newton's method), or 0",
        choices=("smoothed", "zero"),
    )


@message
class Platt:
    """ℓ (), its gradient (2,) and information (2, 2) at (shift, slope)."""

    log_likelihood: Array
    score: Array
    information: Array


@summed
def platt(
    site: Site[LabelledTable, None],
    *,
    intercept: float,
    coefficients: Array,
    targets: Array,
    at: Array,
) -> Platt:
    """Sum the likelihood of the classes, given the decision values.

    The log odds are linear in these, with the shift and slope `at` (2,), for targets (2,) of
    classes 0 and 1.
    """
    decision = intercept + site.data.x @ coefficients
    z = np.column_stack([np.ones(len(decision)), decision])
    target = targets[site.data.y.astype(int)]
    eta = z @ at
    p = expit(eta)
    value = target @ eta - np.logaddexp(0.0, eta).sum()
    return Platt(np.array(value), z.T @ (target - p), (z.T * (p * (1.0 - p))) @ z)


def fit(fed: Federation, config: SvmSettings, task: Task) -> SvmModel:
    """Fit a support vector machine on all sites that answer the first call.

    Raises
    ------
    DataError : no covariates, no records, more than two classes, one class only, or one of fewer
        than `min_cell` records.
    NothingToLearn : a column singles out records (`data.exact`).
    SiteUnavailable : a site was absent at the end.
    NotConverged : the rounds ran out.
    """
    sites = exact_sums(fed, task, "class")
    penalty = Penalty(l2=config.penalty, intercept=config.penalise_intercept)
    smoothed = config.start == "smoothed" and config.local == "exact"
    found = consensus(sites.fed, "hinge", penalty, config, task, smoothed=smoothed)
    shift, slope = calibrate(fed.only(found.sites).awaiting(), found)
    return SvmModel(
        features=task.features,
        intercept=found.intercept,
        coefficients=found.coefficients,
        shift=shift,
        slope=slope,
        objective=found.objective,
        rounds=found.rounds,
        rows=found.rows,
    )


def calibrate(fed: Federation, found: Solution) -> tuple[float, float]:
    """Return a and c of eq. (2).

    Raises
    ------
    SiteUnavailable : a site of the fit has left.
    NotConverged : no optimum was found; by eq. (2) this is impossible for finite decision values.
    """
    zeros = found.rows - found.ones
    targets = np.array([1.0 / (zeros + 2.0), (found.ones + 1.0) / (found.ones + 2.0)])
    base = np.array([math.log((found.ones + 1.0) / (zeros + 1.0)), 0.0])
    value, step = -math.inf, np.zeros(2)
    for _ in range(STEPS):
        here = fed.sum(
            platt, intercept=found.intercept, coefficients=found.coefficients,
            targets=targets, at=base + step,
        )  # fmt: skip
        check_all_answered(fed)
        reached = float(here.log_likelihood)
        if reached < value - 1e-12 * (1.0 + abs(value)):
            step = step / 2
            continue
        base, value = base + step, reached
        step = _newton(here.information, here.score)
        if float(here.score @ step) <= GAIN * found.rows:
            return float(base[0] + step[0]), float(base[1] + step[1])
    raise NotConverged(
        f"the fit converged, but its probabilities did not in {STEPS} steps. Check the covariates "
        f"for outliers, or raise the penalty."
    )


def _newton(information: Array, score: Array) -> Array:
    """Return the step (2,); the shortest one if all decision values are equal."""
    return np.linalg.lstsq(information, score, rcond=1e-13)[0]
