"""The coordinator's part for the gaussian family: it maximises the profile likelihood in θ.

Notation and equations as in `algorithms.mixed.mixedlm`. The first sum gives the ordinary regression
(θ = 0) and ℓ' there. If ℓ falls from θ = 0, the fit has τ² = 0. Otherwise θ starts from moments. In
κ = 1/(1 + m θ), m = Σ n_j²/N, the slope of ℓ is A/κ − B if all sites have m records. Slope and
curvature in κ give

    κ ← A/B = κ/(1 + ℓ'/(κ ℓ''))                                                         (1)

which is exact in this case, and otherwise as fast as Newton's method. A θ outside the bracket from
the signs of past slopes is replaced by one inside.
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

#: Slope of ℓ at θ = 0 per record that is rounding; θ at which records of a site are equal.
FLAT, HIGHEST = 1e-12, 1e9
#: An outcome with a standard deviation below this share of its mean is constant.
CONSTANT = 1e-12


@dataclass(frozen=True)
class Slope:
    """The profile likelihood, from sums over sites.

    Attributes
    ----------
    within : Σ Z_jᵀ Z_j (p + 2, p + 2), of covariates in standard deviations.
    units : factors of sums for these units, (p + 2,).
    rows : N.
    middle : the outcome's mean.
    typical : m.
    restricted : the likelihood is the restricted one.
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
                "the covariates explain the outcome without error, so no variance can be "
                "estimated. Drop the covariate that repeats the outcome."
            ) from None

    def begin(self, null: Profile, total: Array) -> float:
        """Return the first θ above 0."""
        sums = total[1] * np.outer(self.units, self.units)
        return start(null, sums, self.rows, self.typical * self.rows)

    def next(self, here: Profile, low: float, high: float) -> float:
        """Return the next θ, eq. (1), inside the bracket (low, high)."""
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
    """Return the maximum of the profile likelihood: θ, β and σ².

    Raises
    ------
    SingularInformation : some covariates are collinear or constant; they are named.
    DataError : the covariates explain the outcome without error.
    NothingToLearn : the outcome is constant.
    NotConverged : `max_rounds` is reached, or records of a site hardly differ.
    """
    fed, centre, middle, offset = ground.fed, ground.centre, ground.middle, ground.offset
    low, high, theta, step = 0.0, math.inf, 0.0, math.inf
    slope = null = None
    for _ in fed.rounds(config.max_rounds):
        if slope is None or null is None:
            first = ground.answering.sum(
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
        there = ground.answering.sum(
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
        "without limit. Check whether the outcome has one value per site."
    )


def _top(slope: Slope, here: Profile, null: Profile) -> Top:
    """Return the better of two profiles; `null` is at θ = 0."""
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
