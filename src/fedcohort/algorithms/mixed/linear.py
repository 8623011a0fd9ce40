"""The coordinator's side of the gaussian family: the likelihood's profile in θ is climbed.

Notation and equations as in `algorithms.mixed.mixedlm`. The first sum gives the ordinary regression
(θ = 0) and the slope of ℓ there. Where ℓ falls from 0, it ends with τ² = 0. Else θ starts from
moments. In κ = 1/(1 + m θ), m = Σ n_j²/N, the slope of ℓ is A/κ − B where all sites have m records,
so that slope and curvature in κ give the next

    κ ← A/B = κ/(1 + ℓ'/(κ ℓ''))                                                         (1)

at once there, and as fast as Newton's method elsewhere. A θ out of the bracket which the signs of
the slope have given so far is replaced by one inside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedcohort.algorithms.mixed.ground import Ground, Top, check_columns
from fedcohort.algorithms.mixed.mixedlm import Between, NothingLeft, Profile, profile, start
from fedcohort.algorithms.mixed.settings import MixedSettings
from fedcohort.algorithms.mixed.steps import Products, means, products
from fedcohort.arrays import Array
from fedcohort.numerics.collinearity import scale_of
from fedcohort.protocol import DataError, NotConverged, NothingToLearn

#: Slopes of ℓ at θ = 0, over the records, that are rounding; and θ of which records are all alike.
FLAT, HIGHEST = 1e-12, 1e9
#: An outcome whose standard deviation is less than this share of its size does not vary.
CONSTANT = 1e-12


@dataclass(frozen=True)
class Slope:
    """The likelihood's profile, from sums over sites.

    Attributes
    ----------
    within : Σ Z_jᵀ Z_j (p + 2, p + 2), of covariates in standard deviations.
    units : what turns sums into these, (p + 2,).
    rows : N.
    middle : the outcome's mean.
    typical : m.
    restricted : whether by the restricted likelihood.
    """

    within: Array
    units: Array
    rows: int
    middle: float
    typical: float
    restricted: bool

    @classmethod
    def of(cls, first: Products, ground: Ground, restricted: bool) -> Slope:
        """Return the profile, from the sums at θ = 0.

        Raises
        ------
        SingularInformation : some covariates are collinear or constant; they are named.
        """
        sd = np.sqrt(np.diag(first.within)[1:-1] / ground.rows)
        scale = scale_of(sd, ground.centre)
        units = np.r_[1.0, 1.0 / scale, 1.0]
        within = first.within * np.outer(units, units)
        check_columns(within[:-1, :-1], ground.names)
        typical = -float(first.log_det[2]) / ground.rows
        return cls(within, units, ground.rows, ground.middle, typical, restricted)

    def at(self, theta: float, log_det: Array, total: Array) -> Profile:
        """Return the profile at θ, from D (3,) and B (3, p + 2, p + 2) there."""
        try:
            return profile(
                self.within,
                Between(log_det, total * np.outer(self.units, self.units)),
                self.rows,
                theta,
                restricted=self.restricted,
                log_units=-2.0 * float(np.log(self.units).sum()),
            )
        except NothingLeft:
            if theta:
                raise _alike() from None
            if self.within[-1, -1] <= self.rows * (CONSTANT * self.middle) ** 2:
                raise NothingToLearn(
                    f"the outcome has the same value in all {self.rows} records, so there is "
                    f"nothing to explain. Check its column, or add sites."
                ) from None
            raise DataError(
                "the covariates explain the outcome without error, which leaves no variance to "
                "share out. Drop the covariate that repeats the outcome."
            ) from None

    def begin(self, null: Profile, total: Array) -> float:
        """Return the first θ above 0."""
        sums = total[1] * np.outer(self.units, self.units)
        return start(null, sums, self.rows, self.typical * self.rows)

    def next(self, here: Profile, low: float, high: float) -> float:
        """Return the next θ, eq. (1), inside (low, high), the last signs of the slope."""
        kappa = 1.0 / (1.0 + self.typical * here.theta)
        turn = -1.0 / (self.typical * kappa**2)
        slope = here.slope * turn
        bend = here.bend * turn**2 - 2.0 * here.slope * turn / kappa
        if bend < 0 and bend * kappa + slope < 0:
            theta = (1.0 / kappa + slope / (bend * kappa**2) - 1.0) / self.typical
            if low < theta < min(high, 100.0 * here.theta):
                return theta
        if low > 0 and high < math.inf:
            return math.sqrt(low * high)
        return here.theta * (10.0 if here.slope > 0 else 0.1)


def climb(ground: Ground, config: MixedSettings) -> Top:
    """Find θ, then β and σ².

    Raises
    ------
    SingularInformation : some covariates are collinear or constant; they are named.
    DataError : the covariates explain the outcome without error.
    NotConverged : the rounds are over, or records of a site hardly differ.
    """
    fed, centre, middle, offset = ground.fed, ground.centre, ground.middle, ground.offset
    low, high, theta, step = 0.0, math.inf, 0.0, math.inf
    slope = null = None
    for _ in fed.rounds(config.max_rounds):
        if slope is None or null is None:
            first = ground.whole.sum(
                products, centre=centre, middle=middle, offset=offset, least=ground.least
            )
            ground.related(first.within, (middle,))
            slope = Slope.of(first, ground, config.likelihood == "reml")
            null = here = slope.at(0.0, first.log_det, first.means)
            rises = ground.estimable and null.slope > FLAT * ground.rows
            step = slope.begin(null, first.means) if rises else 0.0
            fed.record(log_likelihood=null.value, theta=0.0, step=step)
            if not rises:
                return _top(slope, null, null)
            theta = step
            continue
        there = ground.whole.sum(
            means, centre=centre, middle=middle, offset=offset, least=ground.least, theta=theta
        )
        here = slope.at(theta, there.log_det, there.means)
        low, high = (theta, high) if here.slope > 0 else (low, theta)
        theta = slope.next(here, low, high)
        step = abs(math.log(theta / here.theta))
        fed.record(log_likelihood=here.value, theta=here.theta, step=step)
        if step < config.tol:
            return _top(slope, here, null)
        if theta > HIGHEST:
            raise _alike()
    raise NotConverged(
        f"the longest step of log(τ²/σ²) is still {step:.1e} after {config.max_rounds} rounds "
        f"(tol {config.tol:g}). Raise max_rounds."
    )


def _alike() -> NotConverged:
    return NotConverged(
        "records of the same site hardly differ from each other (σ² is nearly 0), so τ²/σ² grows "
        "for ever. Check whether the outcome is one value a site."
    )


def _top(slope: Slope, here: Profile, null: Profile) -> Top:
    """Return the better of two profiles, the second at θ = 0."""
    best = here if here.value > null.value else null
    return Top(
        gamma=np.r_[best.coefficients, math.sqrt(best.tau2)],
        covariance=best.sigma2 * best.inverse,
        scale=1.0 / slope.units[1:-1],
        sigma2=best.sigma2,
        log_tau2_error=best.log_tau2_error(),
        log_likelihood=best.value,
        null_log_likelihood=null.value,
    )
