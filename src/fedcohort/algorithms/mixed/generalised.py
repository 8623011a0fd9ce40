"""The coordinator's part for binomial and Poisson: Newton's method for coefficients and τ.

In the notation of `algorithms.mixed.mixedglm`, sites integrate over their own effect and sum log
L_j with its first and second derivatives in γ = (b₀, β, τ). Two ascents share every call: one keeps
τ = 0, for the test of τ² = 0; the other starts at τ = `START`. Both start from one regression of
working responses. L is even in τ and smooth at 0, so the second derivative at the end of the first
ascent decides whether τ = 0 is a maximum. If it is, the second ascent ends when it comes near.

Given τ, log L is concave in (b₀, β), and their step is Newton's. In τ it is not concave. With
t = τ² and the derivatives ℓ', ℓ'' in t of log L maximised over (b₀, β), the step goes to the
maximum of the curve of a balanced linear model of J sites, −J/2 log(t + v) − S/(t + v), with the
same ℓ' and ℓ'':

    t + 2 ℓ'/(J κ²),   κ = 1/(t + v) = (−2 ℓ' + √(4 ℓ'² − 2 J ℓ''))/J                       (1)

A step is no longer than `LONGEST` or τ itself, never to 0, and halved until log L does not fall.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fedcohort.algorithms.mixed.ground import Ground, Top, check_columns
from fedcohort.algorithms.mixed.settings import MixedSettings
from fedcohort.algorithms.mixed.steps import likelihoods, working
from fedcohort.arrays import Array
from fedcohort.numerics.collinearity import SINGULAR, longest, scale_of
from fedcohort.protocol import NotConverged

#: First τ, longest step of τ, and the τ above which it would grow without limit.
START, LONGEST, HIGHEST = 0.5, 1.0, 20.0
#: Smallest ratio of a new τ to the last: at 0 the derivative is 0 even if it is no maximum.
KEPT = 0.1
#: A long step that gains less log-likelihood than this means that log L is flat.
FLAT = 1e-6
#: An ascent below this τ ends at 0 if that is a maximum.
NIL = 0.01


@dataclass(eq=False)
class Climb:
    """The state of one ascent.

    Attributes
    ----------
    base : γ (p + 2,), the last point at which log L did not fall.
    sites : J; 0 if τ is fixed.
    value : log L there.
    information : (p + 2, p + 2) there.
    step : to the next point (p + 2,).
    gain : twice the expected gain of the step in log L.
    """

    base: Array
    sites: int
    value: float = -math.inf
    information: Array = field(default_factory=lambda: np.zeros((0, 0)))
    step: Array = field(init=False)
    gain: float = math.inf

    def __post_init__(self) -> None:
        self.step = np.zeros_like(self.base)

    @property
    def free(self) -> bool:
        """Whether τ is estimated."""
        return self.sites > 0

    @property
    def tried(self) -> Array:
        """The next point."""
        return self.base + self.step

    @property
    def size(self) -> float:
        """The largest entry of the step."""
        return float(np.abs(self.step).max())

    @property
    def remainder(self) -> float:
        """Minus the second derivative in τ of log L maximised over (b₀, β)."""
        info = self.information
        return float(info[-1, -1] - info[-1, :-1] @ np.linalg.solve(info[:-1, :-1], info[:-1, -1]))

    def take(self, value: float, slope: Array, bend: Array) -> None:
        """Set the next step from log L and its first and second derivatives at `tried`."""
        if value < self.value - 1e-10 * (1.0 + abs(self.value)):
            self.step = self.step / 2
            return
        self.base, self.value, self.information = self.tried, value, -bend
        fixed = np.linalg.solve(self.information[:-1, :-1], slope[:-1])
        across = np.linalg.solve(self.information[:-1, :-1], self.information[:-1, -1])
        move = 0.0
        if self.free:
            move = self._move(float(slope[-1] - self.information[-1, :-1] @ fixed))
        self.step = np.r_[fixed - across * move, move]
        self.gain = float(slope @ self.step)

    def _move(self, slope: float) -> float:
        """Return the step of τ, eq. (1), from the derivative of log L maximised over (b₀, β)."""
        tau, j = float(self.base[-1]), self.sites
        once = slope / (2.0 * tau)
        twice = (-self.remainder - slope / tau) / (4.0 * tau**2)
        inside = 4.0 * once**2 - 2.0 * j * twice
        kappa = (math.sqrt(inside) - 2.0 * once) / j if inside > 0 else 0.0
        if kappa > 0:
            square = tau**2 + 2.0 * once / (j * kappa**2)
            wanted = math.sqrt(max(square, 0.0))
        else:
            wanted = tau + slope / max(abs(self.remainder), 1e-300)
        return min(max(wanted, KEPT * tau), tau + max(LONGEST, tau)) - tau


def climb(ground: Ground, config: MixedSettings) -> Top:
    """Return the maximum-likelihood coefficients and τ.

    Raises
    ------
    SingularInformation : some covariates are collinear or constant; they are named.
    NotConverged : some covariates separate the classes, every site has one class, or `max_rounds`
        is reached.
    """
    fed = ground.fed
    first = ground.answering.sum(
        working, centre=ground.centre, offset=ground.offset, family=ground.family
    )
    ground.related(first.products)
    scale = scale_of(np.sqrt(first.squares / ground.rows), ground.centre)
    units = np.r_[1.0, 1.0 / scale]
    products = first.products * np.outer(units, units)
    check_columns(products, ground.names)
    begin = np.r_[np.linalg.solve(products, first.response * units), 0.0]
    null = full = Climb(begin, sites=0)
    if ground.estimable:
        full = Climb(np.r_[begin[:-1], START], ground.sites)
    going = [null, full] if ground.estimable else [null]
    for _ in fed.rounds(config.max_rounds):
        found = ground.answering.sum(
            likelihoods,
            centre=ground.centre,
            scale=scale,
            offset=ground.offset,
            family=ground.family,
            points=np.array([way.tried for way in going]),
        )
        for way, value, slope, bend in zip(
            going, found.value.tolist(), found.slope, found.bend, strict=True
        ):
            _check_concave(-bend[:-1, :-1], ground)
            way.take(value, slope, bend)
        _check_course(null, full, ground)
        size = max(way.size for way in going)
        fed.record(log_likelihood=full.value, tau=float(full.base[-1]), step=size)
        going = [way for way in going if way.size >= config.tol]
        if null not in going and full.base[-1] < NIL and null.remainder >= 0:
            return _top(null, scale)
        if not going:
            return _top(full if full.value > null.value else null, scale, null.value)
    raise NotConverged(
        f"the longest step is still {max(way.size for way in going):.1e} after "
        f"{config.max_rounds} rounds (tol {config.tol:g}). Raise max_rounds."
    )


def _check_concave(information: Array, ground: Ground) -> None:
    """Refuse a singular information matrix (p + 1, p + 1)."""
    values, vectors = np.linalg.eigh(information)
    if values[0] <= SINGULAR * values[-1]:
        raise _runs_away(ground, vectors[1:, 0])


def _check_course(null: Climb, full: Climb, ground: Ground) -> None:
    """Refuse an ascent along which coefficients or τ grow without limit."""
    if null.size > 0.1 and null.gain < FLAT:
        raise _runs_away(ground, null.step[1:-1])
    if full.base[-1] > HIGHEST:
        raise NotConverged(
            "τ grows without limit: nearly every site has outcomes of one kind only, so sites "
            "explain them without error. Join sites, or take a method without site effects."
        )


def _runs_away(ground: Ground, step: Array) -> NotConverged:
    why = "separation, these covariates tell the outcomes apart without error"
    other = "logistic"
    if ground.family == "poisson":
        why = "where these covariates are high, or where they are low, every count is 0"
        other = "glm"
    return NotConverged(
        f"the likelihood rises without limit along {longest(ground.names, step)}: {why}. Drop "
        f"them, join rare levels, or take {other!r} with a ridge penalty (l2 > 0)."
    )


def _top(way: Climb, scale: Array, null: float | None = None) -> Top:
    """Return the maximum of an ascent; `null` is log L at τ = 0, if from another ascent."""
    k = len(way.base) if way.free else len(way.base) - 1
    covariance = np.linalg.inv(way.information[:k, :k])
    p, tau = len(scale) + 1, float(way.tried[-1])
    return Top(
        gamma=way.tried,
        covariance=covariance[:p, :p],
        scale=scale,
        sigma2=1.0,
        log_tau2_error=2.0 * math.sqrt(covariance[-1, -1]) / tau if way.free else math.nan,
        log_likelihood=way.value,
        null_log_likelihood=way.value if null is None else null,
    )
