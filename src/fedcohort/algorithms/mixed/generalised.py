"""The coordinator's side of binomial and Poisson: Newton's method on coefficients and τ at once.

In the notation of `algorithms.mixed.mixedglm`, sites integrate over their own effect and sum log
L_j, its slope and its second slope in γ = (b₀, β, τ). Two climbs share every sum: one keeps τ = 0,
for the likelihood to compare with, and one starts from τ = `START`; both from the regression of
each outcome's own working response, a sum of its own. L is even in τ and smooth at 0: the second
slope at the first climb's end tells whether that is a maximum, and if so the second climb ends once
it comes near.

Given τ, log L is concave in (b₀, β), and their step is Newton's. In τ it is not: with t = τ², and
slopes ℓ', ℓ'' of log L in t after (b₀, β) have followed, the curve of a balanced linear model of J
sites, −J/2 log(t + v) − S/(t + v), is laid through them. Its v and S give its highest point,

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

#: Where τ starts, its longest step, and the τ beyond which it would grow for ever.
START, LONGEST, HIGHEST = 0.5, 1.0, 20.0
#: What a step leaves of τ at least: at 0 the slope is 0, even where that is no maximum.
KEPT = 0.1
#: Where steps of a standard deviation and more gain no more than this, log L is flat.
FLAT = 1e-6
#: A climb down to this τ ends at 0, if that is a maximum.
NIL = 0.01


@dataclass(eq=False)
class Climb:
    """A climb on its way.

    Attributes
    ----------
    base : γ (p + 2,), the last point that was not lower.
    sites : J, how many there are; 0 where τ stays.
    value : log L there.
    information : (p + 2, p + 2) there.
    step : to the next point (p + 2,).
    gain : what the step should raise log L by, twice.
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
        """Whether τ moves."""
        return self.sites > 0

    @property
    def tried(self) -> Array:
        """The next point."""
        return self.base + self.step

    @property
    def size(self) -> float:
        """How long the step is."""
        return float(np.abs(self.step).max())

    @property
    def remainder(self) -> float:
        """Less the second slope of log L in τ after (b₀, β) have followed."""
        info = self.information
        return float(info[-1, -1] - info[-1, :-1] @ np.linalg.solve(info[:-1, :-1], info[:-1, -1]))

    def take(self, value: float, slope: Array, bend: Array) -> None:
        """Make the next step, from log L, its slope (p + 2,) and second slope at `tried`."""
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
        """Return the step of τ, eq. (1), from the slope in τ after (b₀, β) have followed."""
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
    """Find coefficients and τ.

    Raises
    ------
    SingularInformation : some covariates are collinear or constant; they are named.
    NotConverged : some covariates separate the classes, every site has one class, or the rounds are
        over.
    """
    fed = ground.fed
    first = ground.whole.sum(
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
        found = ground.whole.sum(
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
    """Refuse a point where log L has become flat along some covariates (p + 1, p + 1)."""
    values, vectors = np.linalg.eigh(information)
    if values[0] <= SINGULAR * values[-1]:
        raise _runs_away(ground, vectors[1:, 0])


def _check_course(null: Climb, full: Climb, ground: Ground) -> None:
    """Refuse a climb without end."""
    if null.size > 0.1 and null.gain < FLAT:
        raise _runs_away(ground, null.step[1:-1])
    if full.base[-1] > HIGHEST:
        raise NotConverged(
            "τ grows for ever: nearly every site has outcomes of one kind alone, so that sites "
            "explain them without error. Join sites, or take a method without site effects."
        )


def _runs_away(ground: Ground, step: Array) -> NotConverged:
    why = "separation, these covariates tell the outcomes apart without error"
    other = "logistic"
    if ground.family == "poisson":
        why = "where these covariates are high, or where they are low, every count is 0"
        other = "glm"
    return NotConverged(
        f"the likelihood rises for ever along {longest(ground.names, step)}: {why}. Drop them, "
        f"join rare levels, or take {other!r} with a ridge penalty (l2 > 0)."
    )


def _top(way: Climb, scale: Array, null: float | None = None) -> Top:
    """Return the end of a climb; `null` is log L where τ = 0, if that was another's."""
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
