"""Maximises the penalised likelihood, by Newton's method and Fisher's scoring.

In the notation of `numerics.families`, each round is one sum of D, U, I and J at γ, and

    γ ← γ + (J + P)⁻¹ (U − P γ),     P = w·l2·diag(0, 1/s_1², …, 1/s_p²)                   (1)

with w the sum of the weights. P is the ridge penalty of D6.2, eq. 3.6, without the intercept. If
J + P is not positive definite, I replaces J. A step is halved until D + γᵀPγ does not rise. The
first round is at the model without covariates. There I is proportional to the covariates' squares
about their mean and gives their standard deviations s, with no further call.

With the logit, steps are longer (`stride`). `training.linear.newton` has the alarms; of a Gaussian
outcome `FLAT` is in deviance per record at the start.
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
from fedcohort.numerics.collinearity import collinear, scale_of
from fedcohort.numerics.families import Family
from fedcohort.protocol import Federation, NotConverged, SingularInformation
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
OUTLYING = (
    "Choose another link, look for outcomes far from all others, or refit with a ridge penalty "
    "(l2 > 0)."
)
#: Longest step with link log: root mean square of the change of log means. With longer steps few
#: records would have nearly all the weight in the sums.
WIDEST = 1.0
#: Tolerance of the model without covariates.
NULL_TOL = 1e-6
#: Longest step of the model without covariates.
NULL_STEP = 3.0


@dataclass(frozen=True)
class Ground:
    """Family, counts, means and penalty; fixed before the first round.

    Attributes
    ----------
    rows : records at all sites.
    weight : sum of their weights, w.
    mean : of the outcome, weighted.
    centre : (p,), pooled mean of the covariates, weighted.
    start : the intercept of the model without covariates; approximate with an offset.
    offset : there is one.
    l2 : ridge penalty, in the covariates' units.
    min_cell : smallest effective number of records at the maximum.
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
    min_cell: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Top:
    """The maximum.

    Attributes
    ----------
    gamma : (p + 1,), the intercept first.
    covariance : (I + P)⁻¹ (p + 1, p + 1), at φ = 1.
    scale : s (p,).
    deviance, pearson, null_deviance : without the penalty.
    rounds : number of rounds.
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

    A round after a step that was too long repeats the row before it.

    Parameters
    ----------
    tol : longest step at the end, in units of the linear predictor per standard deviation; for
        identity relative to the outcome's SD, for inverse and sqrt relative to the start.
    look : checks the sums of the first round before they are used.

    Raises
    ------
    SingularInformation : some covariates are collinear or constant; they are named.
    NotConverged : the likelihood rises without limit, or the largest number of rounds is reached.
    NothingToLearn : few records have nearly all the weight at the maximum.
    """
    p = len(ground.centre)
    base, step = np.r_[ground.start, np.zeros(p)], np.zeros(p + 1)
    null = Null(ground)
    scale, penalty, unit, flat_gain = np.ones(p), np.zeros(p + 1), 1.0, FLAT
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
            flat_gain *= (
                float(here.deviance) if ground.family.dispersed else ground.weight
            ) / ground.rows
        reached = float(here.deviance) + float(penalty @ tried**2)
        if reached >= IMPOSSIBLE and not round_:
            raise NotConverged(
                f"with this offset, link {ground.family.link!r} has impossible means at the "
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
            check_weight(
                float(here.information[0, 0]), float(here.squares), ground.min_cell, OUTLYING
            )
            deviances = (float(here.deviance), float(here.pearson), null.deviance)
            return Top(base + step, covariance, scale, *deviances, round_ + 1)
        flat = float(slope @ step) < flat_gain and moved > max(MOVED, 0.5 * before)
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
    """Return the error of too many rounds; `outside`: some step led to impossible means."""
    remedy = ""
    if outside:
        remedy = (
            f"The means that fit best are at the limit of link {ground.family.link!r}. Choose "
            f"another link, such as 'log'."
        )
    return unfinished(size, rounds, tol, remedy)


class Null:
    """The model without covariates: its intercept and deviance.

    Without an offset the first round is at this model. With one, its intercept is found by its own
    steps in the same rounds.
    """

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.asked = np.array([ground.start]) if ground.offset else np.zeros(0)
        self._step = 0.0
        self.deviance = math.inf
        self.found = False

    def learn(self, here: Curvature) -> None:
        """Take a round's sums, and step."""
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

    With an offset it is weighted as the information.
    """
    squares = np.diag(here.information)
    sd = np.sqrt(squares[1:] / squares[0]) if squares[0] > 0 else np.zeros(len(squares) - 1)
    return scale_of(sd, ground.centre)


def per_deviation(here: Curvature, scale: Array) -> Curvature:
    """Return the sums at the start for covariates divided by `scale`."""
    s = np.r_[1.0, scale]
    both = np.outer(s, s)
    observed = here.observed / both if here.observed.size else here.observed
    return replace(
        here, score=here.score / s, information=here.information / both, observed=observed
    )


def _report(ground: Ground, here: Curvature, reached: float) -> dict[str, float]:
    """Return a row of history: the mean objective, and the log-likelihood or the deviance."""
    deviance = float(here.deviance)
    binomial = ground.family.name == "binomial"
    fit = {"log_likelihood": -0.5 * deviance} if binomial else {"deviance": deviance}
    return {"objective": 0.5 * reached / ground.weight, **fit}


def _farther(seen: list[Seen], newton: Array, ground: Ground) -> Array:
    """Return a step longer than Newton's from the last point `seen`."""
    if len(seen) == 1 and not ground.offset:
        return discriminant(newton, seen[0].slope, ground.weight, ground.mean)
    return stride(seen, newton)


def _unit(ground: Ground, here: Curvature) -> float:
    """Return the unit of steps; 1 if the linear predictor has no unit."""
    match ground.family.link:
        case "identity":
            return math.sqrt(float(here.deviance) / ground.weight) or 1.0
        case "sqrt" | "inverse":
            return abs(ground.family.predictor(ground.mean))
        case _:
            return 1.0


def _newton(here: Curvature, penalty: Array, covariance: Array) -> Array:
    """Return (J + P)⁻¹, or (I + P)⁻¹ if J is I or J + P is not positive definite."""
    if not here.observed.size:
        return covariance
    full = here.observed + np.diag(penalty)
    if eigvalsh(full, here.information + np.diag(penalty), subset_by_index=[0, 0])[0] < 1e-3:
        return covariance
    return np.linalg.inv(full)


def _inverse(information: Array, ground: Ground, round_: int) -> Array:
    """Return the inverse of a positive definite matrix (p + 1, p + 1), the intercept first."""

    def flat(along: Array, ratio: float) -> Exception:
        if round_:
            return runs_away(ground, along[1:, 0])
        return SingularInformation(collinear(ground.names, along[1:], ratio))

    return inverse(information, flat)


def runs_away(ground: Ground, step: Array) -> NotConverged:
    """Return the error of a likelihood that rises without limit along a step (p,)."""
    why = {
        "binomial": SEPARATED,
        "poisson": "where these covariates are high, or where they are low, every count is 0",
    }.get(ground.family.name, f"the means that fit best are beyond the range of link "
                              f"{ground.family.link!r}")  # fmt: skip
    return unlimited(ground.names, step, why)
