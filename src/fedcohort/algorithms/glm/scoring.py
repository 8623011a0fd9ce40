"""The ascent to the maximum of the penalised likelihood, by Newton's method and Fisher's scoring.

In the notation of `numerics.families`, each round is one sum of D, U, I and J at γ, and

    γ ← γ + (J + P)⁻¹ (U − P γ),     P = w·l2·diag(0, 1/s_1², …, 1/s_p²)                   (1)

with w the sum of the weights: the ridge penalty of D6.2, eq. 3.6, which leaves the intercept out.
Where J + P is not positive, I stands in for it. A step is halved until D + γᵀPγ does not rise. The
first round is at the model without covariates. There I is proportional to the covariates' squares
about their mean, so it gives their standard deviations s, and nothing else is asked for them.

The logit's steps go farther (`stride`), with nothing more asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigvalsh

from fedcohort.algorithms.glm.steps import IMPOSSIBLE, Curvature
from fedcohort.algorithms.glm.stride import Seen, discriminant, stride
from fedcohort.arrays import Array
from fedcohort.numerics.collinearity import SINGULAR, collinear, longest, scale_of
from fedcohort.numerics.families import Family
from fedcohort.protocol import (
    Federation,
    NotConverged,
    NothingToLearn,
    SingularInformation,
)

#: A step that gains no more log-likelihood than this, moves linear predictors by `MOVED` and more,
#: and is not much shorter than the one before, runs for ever; a Gaussian's gain is counted in
#: deviance per record at the start. Along covariates that are nearly collinear, long steps do not
#: move them.
FLAT, MOVED = 1e-6, 1e-3
#: The longest step by link log, as root mean square of what it adds to the logarithm of a mean.
#: Longer ones make few records count for all, which the sums would tell.
WIDEST = 1.0
#: More rounds than this help no fit.
MOST_ROUNDS = 50
#: The model without covariates is found when its step is this short: its deviance then is exact.
NULL_TOL = 1e-6
#: The longest step of the model without covariates.
NULL_STEP = 3.0


@dataclass(frozen=True)
class Ground:
    """What is fixed before the first round.

    Attributes
    ----------
    family : the law of the outcome.
    rows : records at all sites.
    weight : sum of their weights, w.
    mean : of the outcome, weighted.
    centre : (p,), pooled mean of the covariates, weighted.
    start : the intercept of the model without covariates, or near it where there is an offset.
    offset : whether there is one.
    l2 : ridge penalty, in the covariates' units.
    least : records that must count at the end.
    names : of the covariates.
    """

    family: Family
    rows: int
    weight: float
    mean: float
    centre: Array
    start: float
    offset: bool
    l2: float
    least: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Top:
    """Where the ascent ended.

    Attributes
    ----------
    gamma : (p + 1,), the intercept first.
    covariance : (I + P)⁻¹ (p + 1, p + 1), at φ = 1.
    scale : s (p,).
    deviance, pearson, null_deviance : without the penalty.
    rounds : how many there were.
    """

    gamma: Array
    covariance: Array
    scale: Array
    deviance: float
    pearson: float
    null_deviance: float
    rounds: int

    def unscaled(self, centre: Array) -> tuple[Array, Array]:
        """Return (b₀, β) in the covariates' units, and its covariance at φ = 1."""
        t = np.diag(np.r_[1.0, 1.0 / self.scale])
        t[0, 1:] = -centre / self.scale
        return t @ self.gamma, t @ self.covariance @ t.T


#: (γ, scale, null intercept) → the sums over all sites.
Ask = Callable[[Array, Array, Array], Curvature]


def ascend(
    fed: Federation,
    ask: Ask,
    ground: Ground,
    tol: float,
    max_rounds: int,
    look: Callable[[Curvature], None],
) -> Top:
    """Maximise ℓ(γ) − ½ γᵀPγ, eq. (1), with a row of history for each round.

    A round whose step was too long repeats the row before it.

    Parameters
    ----------
    tol : longest step at the end, in units of the linear predictor per standard deviation; for
        the identity relative to the outcome's, and for inverse and square root to the start.
    look : at the sums of the first round, before anything is made of them.

    Raises
    ------
    SingularInformation : some covariates are collinear or constant; they are named.
    NotConverged : some covariates make the likelihood rise for ever, or the rounds are over.
    NothingToLearn : few records count at the end.
    """
    p = len(ground.centre)
    base, step = np.r_[ground.start, np.zeros(p)], np.zeros(p + 1)
    null = Null(ground)
    scale, penalty, unit, least = np.ones(p), np.zeros(p + 1), 1.0, FLAT
    value, size, moved = math.inf, math.inf, math.inf
    together, outside = np.eye(p + 1), False
    report: dict[str, float] = {}
    seen: list[Seen] = []
    most = min(max_rounds, MOST_ROUNDS)
    for round_ in fed.rounds(most):
        tried = base + step
        here = ask(tried, scale, null.asked)
        null.learn(here)
        if not round_:
            look(here)
            scale = deviations(here, ground)
            here = per_deviation(here, scale)
            penalty = ground.weight * ground.l2 * np.r_[0.0, 1.0 / scale**2]
            unit = _unit(ground, here)
            together = here.information / (here.information[0, 0] or 1.0)
            least *= (
                float(here.deviance) if ground.family.dispersed else ground.weight
            ) / ground.rows
        reached = float(here.deviance) + float(penalty @ tried**2)
        if reached >= IMPOSSIBLE and not round_:
            raise NotConverged(
                f"with this offset, link {ground.family.link!r} has impossible means from the "
                f"start. Choose another link, such as 'log'."
            )
        if not reached <= value + 1e-10 * (1.0 + abs(value)):
            outside = outside or reached >= IMPOSSIBLE
            step = step / 2
            fed.record(**report, step=float(np.abs(step).max()) / unit)
            continue
        base, value, report = tried, reached, _report(ground, here, reached)
        slope = here.score - penalty * base
        covariance = _inverse(here.information + np.diag(penalty), ground, round_)
        step = _newton(here, penalty, covariance) @ slope
        size = float(np.abs(step).max()) / unit
        moved, before = math.sqrt(float(step @ together @ step)) / unit, moved
        fed.record(**report, step=size)
        if size < tol and null.found:
            _check_counts(here, ground)
            deviances = (float(here.deviance), float(here.pearson), null.deviance)
            return Top(base + step, covariance, scale, *deviances, round_ + 1)
        flat = float(slope @ step) < least and moved > max(MOVED, 0.5 * before)
        if flat and not ground.l2 and ground.family.name != "gamma":
            raise runs_away(ground, step[1:])
        if ground.family.link == "logit":
            held = float(penalty @ base**2)
            seen.append(Seen(base, slope, here.information + np.diag(penalty), value, held))
            step = _farther(seen, step, ground)
        elif ground.family.link == "log":
            step = step * min(1.0, WIDEST / moved)
    raise _unfinished(ground, size, most, tol, outside)


def _unfinished(
    ground: Ground, size: float, rounds: int, tol: float, outside: bool
) -> NotConverged:
    """Return the error of an ascent whose rounds are over; `outside` if some step left the link."""
    remedy = f"Raise max_rounds (up to {MOST_ROUNDS}), or refit with a ridge penalty (l2 > 0)."
    if outside:
        remedy = (
            f"The means that fit best are at the edge of what link {ground.family.link!r} can "
            f"reach. Choose another link, such as 'log'."
        )
    elif rounds >= MOST_ROUNDS:
        remedy = (
            "Look for values, offsets and weights far from all others, or refit with a ridge "
            "penalty (l2 > 0)."
        )
    return NotConverged(
        f"the longest step is still {size:.1e} standard deviations after {rounds} rounds (tol "
        f"{tol:g}). {remedy}"
    )


class Null:
    """The model without covariates: where it was asked, and its deviance.

    Without an offset the first round is at this model. With one, its intercept is found beside the
    other coefficients, by steps of its own in the same rounds.
    """

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.asked = np.array([ground.start]) if ground.offset else np.zeros(0)
        self._step = 0.0
        self.deviance = math.inf
        self.found = False

    def learn(self, here: Curvature) -> None:
        """Take a round's sums, and move on."""
        if self.found or not (here.null.size or not self._ground.offset):
            return
        if not self._ground.offset:
            self.deviance, self.found = float(here.deviance), True
            return
        deviance, score, information = here.null.tolist()
        if deviance >= IMPOSSIBLE:
            self._step /= 2
            self.asked = self.asked - self._step
            return
        step = score / information if information > 0 else -NULL_STEP
        self.deviance = min(self.deviance, deviance)
        self.found = abs(step) < NULL_TOL * max(1.0, abs(self.asked[0]))
        self._step = min(max(step, -NULL_STEP), NULL_STEP)
        self.asked = self.asked + self._step


def deviations(here: Curvature, ground: Ground) -> Array:
    """Return the standard deviation of each covariate (p,), from the information at the start.

    It is weighted as the information is, where an offset makes that differ between records.
    """
    squares = np.diag(here.information)
    sd = np.sqrt(squares[1:] / squares[0]) if squares[0] > 0 else np.zeros(len(squares) - 1)
    return scale_of(sd, ground.centre)


def per_deviation(here: Curvature, scale: Array) -> Curvature:
    """Return the sums at the start as they would be for covariates that are divided by `scale`."""
    s = np.r_[1.0, scale]
    both = np.outer(s, s)
    observed = here.observed / both if here.observed.size else here.observed
    return replace(
        here, score=here.score / s, information=here.information / both, observed=observed
    )


def _check_counts(here: Curvature, ground: Ground) -> None:
    """Refuse an end where few records count for nearly all, which the model would tell.

    That is (Σ ω)² < `least` · Σ ω², as in eq. (2) of `data.isolation`.
    """
    if float(here.information[0, 0]) ** 2 < ground.least * float(here.squares):
        raise NothingToLearn(
            f"where the likelihood is highest, fewer than {ground.least} records (min_cell) count "
            f"for nearly all, so that the model would tell those few. Choose another link, look "
            f"for outcomes far from all others, or refit with a ridge penalty (l2 > 0)."
        )


def _report(ground: Ground, here: Curvature, reached: float) -> dict[str, float]:
    """Return a row of history: what is minimised, as an average, and its likelihood."""
    deviance = float(here.deviance)
    binomial = ground.family.name == "binomial"
    fit = {"log_likelihood": -0.5 * deviance} if binomial else {"deviance": deviance}
    return {"objective": 0.5 * reached / ground.weight, **fit}


def _farther(seen: list[Seen], newton: Array, ground: Ground) -> Array:
    """Return a longer step than Newton's, from the last of the points `seen`."""
    if len(seen) == 1 and not ground.offset:
        return discriminant(newton, seen[0].slope, ground.weight, ground.mean)
    return stride(seen, newton)


def _unit(ground: Ground, here: Curvature) -> float:
    """Return what steps are measured in: 1 where the linear predictor has no unit."""
    match ground.family.link:
        case "identity":
            return math.sqrt(float(here.deviance) / ground.weight) or 1.0
        case "sqrt" | "inverse":
            return abs(ground.family.predictor(ground.mean))
        case _:
            return 1.0


def _newton(here: Curvature, penalty: Array, covariance: Array) -> Array:
    """Return (J + P)⁻¹, or (I + P)⁻¹ where J is I or the former is not positive."""
    if not here.observed.size:
        return covariance
    full = here.observed + np.diag(penalty)
    if eigvalsh(full, here.information + np.diag(penalty), subset_by_index=[0, 0])[0] < 1e-3:
        return covariance
    return np.linalg.inv(full)


def _inverse(information: Array, ground: Ground, round_: int) -> Array:
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
        raise runs_away(ground, vectors[1:, 0])
    ratio = float(values[0] / values[-1])
    raise SingularInformation(collinear(ground.names, vectors[1:, flat], ratio))


def runs_away(ground: Ground, step: Array) -> NotConverged:
    """Return the error of a likelihood that rises for ever along a step (p,) of the covariates."""
    why = {
        "binomial": "separation, these covariates tell the classes apart without error",
        "poisson": "where these covariates are high, or where they are low, every count is 0",
    }.get(ground.family.name, f"the means that fit best are beyond the reach of the link "
                              f"{ground.family.link!r}")  # fmt: skip
    return NotConverged(
        f"the likelihood rises for ever along {longest(ground.names, step)}: {why}. Drop them, "
        f"join rare levels, or refit with a ridge penalty (l2 > 0)."
    )
