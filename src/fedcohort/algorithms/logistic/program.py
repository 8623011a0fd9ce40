"""Logistic regression over sites, exactly that of the pooled table.

McCullagh & Nelder, "Generalized Linear Models", 2nd ed. 1989, section 4.4: iteratively reweighted
least squares, which for the logit is Newton's method. With y_i 0 or 1, z_i = (1, standardised x_i)
and μ_i = 1/(1 + exp(−z_iᵀγ)),

    ℓ(γ) = Σ [y_i log μ_i + (1 − y_i) log(1 − μ_i)]                                       (1)
    U(γ) = Σ (y_i − μ_i) z_i,     I(γ) = Σ μ_i (1 − μ_i) z_i z_iᵀ                          (2)
    γ ← γ + (I + D)⁻¹ (U − D γ),  D = n·l2·diag(0, 1/s_1², …, 1/s_p²)                      (3)

D is the ridge penalty of D6.2, eq. 3.6, which leaves the intercept out: the loss is −ℓ/n averaged
over all n rows, plus l2/2 ‖β‖², with β in the covariates' units. A step is halved until the
penalised ℓ does not fall. Each round is one sum of ℓ, U and I together; the first starts from the
model without covariates, which the counts of the classes give.

Revealed, only as sums over all sites: `Totals` and `Spread` once; `Curvature` (1 + p + p²) every
round. Sites learn γ, and the covariates' pooled means and standard deviations. With a coordinator
of several sites, a class of 1 to `min_cell` − 1 records in all is refused: U would be sums over so
few. K rounds give about K p²/2 equations about n p numbers: too few to solve while n is well above
K p/2. It is a count, not a proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.algorithms.logistic.model import LogisticModel
from fedcohort.algorithms.logistic.steps import Totals, curvature, spread, totals
from fedcohort.arrays import Array
from fedcohort.numerics.blame import SINGULAR, collinear, longest
from fedcohort.protocol import (
    DataError,
    Federation,
    NotConverged,
    NothingToLearn,
    SettingError,
    SingularInformation,
    SiteUnavailable,
    Task,
    setting,
)

#: Where steps of a standard deviation and more gain no more than this, the likelihood is flat.
FLAT = 1e-6


@dataclass(frozen=True, kw_only=True)
class LogisticSettings:
    """Settings of `logistic`; the objective is −ℓ(β)/n + l2/2 ‖β‖², the intercept unpenalised."""

    l2: float = setting(0.0, "ridge penalty λ₂ ≥ 0", "squared unit of the covariate")
    solver: str = setting("exact", "how the optimum is found: Newton's method", choices=("exact",))
    tol: float = setting(1e-7, "longest step at the end", "log odds ratio per SD")
    max_rounds: int = setting(50, "rounds before the fit is given up", "rounds")
    level: float = setting(0.95, "coverage of the intervals")

    def __post_init__(self) -> None:
        bounds = (
            ("l2", self.l2, 0 <= self.l2 < np.inf, "a number from 0"),
            ("tol", self.tol, 0 < self.tol < 1e-2, "a number between 0 and 0.01"),
            ("max_rounds", self.max_rounds, self.max_rounds >= 1, "a whole number from 1"),
            ("level", self.level, 0 < self.level < 1, "a number between 0 and 1"),
        )
        for name, value, fine, wanted in bounds:
            if not fine:
                raise SettingError(
                    f"setting {name!r} of method 'logistic' is {value!r}; give {wanted}."
                )


@dataclass(frozen=True)
class Ground:
    """What is fixed before the first round.

    Attributes
    ----------
    rows, ones : records, and those of class 1, at all sites.
    centre, scale : (p,), pooled mean and standard deviation of the covariates.
    """

    rows: int
    ones: int
    centre: Array
    scale: Array

    @property
    def null(self) -> float:
        """The log-likelihood of the model without covariates."""
        n, k = self.rows, self.ones
        return k * math.log(k / n) + (n - k) * math.log((n - k) / n)

    @property
    def start(self) -> Array:
        """γ (p + 1,) of the model without covariates."""
        gamma = np.zeros(len(self.centre) + 1)
        gamma[0] = math.log(self.ones / (self.rows - self.ones))
        return gamma

    @property
    def unscaling(self) -> Array:
        """The matrix (p + 1, p + 1) that turns γ into β in the covariates' units."""
        t = np.diag(np.r_[1.0, 1.0 / self.scale])
        t[0, 1:] = -self.centre / self.scale
        return t


@dataclass(frozen=True)
class Top:
    """Where the ascent ended: γ (p + 1,), its covariance, and ℓ without the penalty."""

    gamma: Array
    covariance: Array
    log_likelihood: float


def fit(fed: Federation, config: LogisticSettings, task: Task) -> LogisticModel:
    """Fit a logistic regression on all sites that answer the first call.

    Raises
    ------
    DataError : no covariates, no records, one class only at all sites, or more than two.
    SiteUnavailable : a site left during the fit.
    SingularInformation : some covariates are collinear or constant; they are named.
    NotConverged : some covariates separate the classes, or the rounds are over.
    """
    if not task.features:
        raise DataError("there are no covariates; name at least one column besides the outcome.")
    total = fed.sum(totals)
    fed = fed.only(fed.answered)
    check_classes(total, task.min_cell if len(fed.sites) > 1 else 1)
    ground = survey(fed, total)
    penalty = ground.rows * config.l2 * np.r_[0.0, 1.0 / ground.scale**2]
    if not config.l2 and ground.rows <= len(task.features):
        raise SingularInformation(
            f"{ground.rows} records are too few for {len(task.features)} covariates. Use fewer, "
            f"or refit with a ridge penalty (l2 > 0)."
        )
    top = ascend(fed, ground, penalty, task.features, config)
    back = ground.unscaling
    beta = back @ top.gamma
    return LogisticModel(
        features=task.features,
        intercept=float(beta[0]),
        coefficients=beta[1:],
        covariance=back @ top.covariance @ back.T,
        log_likelihood=top.log_likelihood,
        null_log_likelihood=ground.null,
        rows=ground.rows,
        ones=ground.ones,
        level=config.level,
    )


def check_classes(total: Totals, least: int) -> None:
    """Refuse an outcome that has not two classes, each of `least` records or more."""
    n, ones = int(total.rows), int(total.ones)
    if not n:
        raise NothingToLearn("no site holds any record; check their selection.")
    if total.others:
        raise DataError(
            "the outcome has more than two classes, and 'logistic' tells two apart. Give an "
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


def survey(fed: Federation, total: Totals) -> Ground:
    """Fix the scale of the covariates."""
    rows = int(total.rows)
    centre = total.x / rows
    squares = fed.sum(spread, centre=centre).squares
    check_all_answered(fed)
    sd = np.sqrt(squares / rows)
    scale = np.where(sd > 1e-12 * np.abs(centre), sd, 1.0)
    return Ground(rows, int(total.ones), centre, scale)


def ascend(
    fed: Federation,
    ground: Ground,
    penalty: Array,
    names: Sequence[str],
    config: LogisticSettings,
) -> Top:
    """Maximise ℓ(γ) − ½ Σ penalty γ², eq. (3), with a row of history for each round.

    Parameters
    ----------
    penalty : (p + 1,) ≥ 0, on the log-likelihood summed over all records.
    names : of the covariates, for errors.

    Raises
    ------
    SingularInformation, NotConverged : as `fit`.
    """
    base = ground.start
    step = np.zeros_like(base)
    value, size = -math.inf, math.inf
    for round_ in fed.rounds(config.max_rounds):
        tried = base + step
        here = fed.sum(curvature, centre=ground.centre, scale=ground.scale, gamma=tried)
        check_all_answered(fed)
        level = float(here.log_likelihood)
        reached = level - 0.5 * float(penalty @ tried**2)
        if reached < value - 1e-10 * (1.0 + abs(value)):
            step = step / 2
            fed.record(log_likelihood=level, step=float(np.abs(step).max()))
            continue
        base, value = tried, reached
        slope = here.score - penalty * base
        covariance = _inverse(here.information + np.diag(penalty), names, round_)
        step = covariance @ slope
        size = float(np.abs(step).max())
        fed.record(log_likelihood=level, step=size)
        if size < config.tol:
            return Top(base + step, covariance, level)
        if not config.l2 and size > 0.1 and float(slope @ step) < FLAT:
            raise _runs_away(names, step[1:])
    raise NotConverged(
        f"the longest step is still {size:.1e} standard deviations after {config.max_rounds} "
        f"rounds (tol {config.tol:g}). Raise max_rounds, or refit with a ridge penalty (l2 > 0)."
    )


def check_all_answered(fed: Federation) -> None:
    """Refuse a sum that lacks a site, whose records are in the sums before it."""
    if missing := sorted(set(fed.sites) - set(fed.answered)):
        raise SiteUnavailable(
            f"{', '.join(missing)} left during the fit, and an exact fit needs the same sites in "
            f"every sum. Bring them back and --resume, or start again without them."
        )


def _inverse(information: Array, names: Sequence[str], round_: int) -> Array:
    """Return the inverse of a positive matrix (p + 1, p + 1), the intercept first.

    Its eigenvalues are compared after it was given a unit diagonal, so that a strong penalty, which
    leaves the intercept out, makes nothing look flat.
    """
    diagonal = np.diag(information)
    unit = np.sqrt(np.where(diagonal > SINGULAR**2 * diagonal[0], diagonal, 1.0))
    values, vectors = np.linalg.eigh(information / np.outer(unit, unit))
    flat = values <= SINGULAR * values[-1]
    if not flat.any():
        root = vectors / unit[:, None]
        return (root / values) @ root.T
    if round_:
        raise _runs_away(names, vectors[1:, 0])
    ratio = float(values[0] / values[-1])
    raise SingularInformation(collinear(names, vectors[1:, flat], ratio))


def _runs_away(names: Sequence[str], step: Array) -> NotConverged:
    return NotConverged(
        f"the likelihood rises for ever along {longest(names, step)}: separation, these covariates "
        f"tell the classes apart without error. Drop them, join rare levels, or refit with a ridge "
        f"penalty (l2 > 0)."
    )
