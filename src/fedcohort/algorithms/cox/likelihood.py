"""The likelihoods that `ascent` climbs: of one baseline hazard, or of each site's own.

Each method is one question to the sites, or none; equations are those of `numerics.coxph` and
`algorithms.cox.proportional`. Nothing is revealed but the replies to `steps`, as sums over all
sites.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.algorithms.cox import proportional
from fedcohort.algorithms.cox.own_steps import (
    OwnLikelihood,
    own_hazard,
    own_likelihood,
    own_trend,
)
from fedcohort.algorithms.cox.proportional import Trend
from fedcohort.algorithms.cox.steps import (
    disorder,
    expected_deaths,
    risk_moments,
    risk_weights,
    trend_moments,
)
from fedcohort.arrays import Array
from fedcohort.numerics.coxph import (
    Hazard,
    Ties,
    at_risk,
    centred,
    drift,
    hazard,
    means,
    tied,
)
from fedcohort.protocol import Federation, check_all_answered


@dataclass(frozen=True)
class Ground:
    """What is fixed before the first round.

    Attributes
    ----------
    times : (T,), the grid; with strata, that of each in a row.
    sizes : (K,), how many of the times are each stratum's.
    single : (T,), in which intervals all leave at one time; empty where times are those of death.
    deaths : (T,), at each time; weight : (T,), of the deaths.
    leaving : (T,), deaths and censored records that leave at each time, less those who enter at
        the next.
    cell : records that a sum over some of an interval's must be of.
    late : whether some records enter after the first time.
    centre : (p,), pooled mean (rounded) of the covariates; one more for an offset.
    scale : (p,), their pooled standard deviation.
    x_dead : (p,), Σ of the standardised covariates of those who die, by weight.
    fixed : Σ of the offset of those who die, by weight; 0 without.
    rows, total : records at all sites, and their weight.
    """

    times: Array
    sizes: Array
    single: Array
    deaths: Array
    weight: Array
    leaving: Array
    cell: int
    late: bool
    centre: Array
    scale: Array
    x_dead: Array
    fixed: float
    rows: int
    total: float

    @property
    def together(self) -> bool:
        """Whether times are ends of intervals, in which all leave together."""
        return len(self.single) > 0

    def alone(self) -> Array:
        """Return at which times (T,) it is the deaths alone that tie, and the order is known.

        In an interval of one time sums over its deaths, and over its censored records, must be of
        `cell` or more.
        """
        if not self.together:
            return np.ones(len(self.times), bool)
        left = self.leaving - self.deaths
        return self.single & (self.deaths >= self.cell) & (left >= self.cell)

    def ties(self, ties: str) -> Ties:
        """Return where risk sets shrink within a time or an interval (`numerics.coxph`)."""
        if not self.together:
            return tied(self.deaths, ties)
        sharers = np.where(self.alone(), self.deaths, self.leaving)
        unordered = ~self.single | (ties == "efron")
        at = np.flatnonzero((self.deaths > 0) & (sharers > 1) & unordered)
        return Ties(at, sharers[at], np.where(self.single, self.deaths, self.leaving)[at])


@dataclass(frozen=True)
class OnGrid:
    """A point γ (p,), and S₀ (T,), D₀ (G,) and the hazard there."""

    gamma: Array
    log_likelihood: float
    s0: Array
    d0: Array
    hazard: Hazard


class SharedBaseline:
    """The partial likelihood of all sites under one baseline hazard; eqs. of `numerics.coxph`."""

    exact = False

    def __init__(self, fed: Federation, ground: Ground, ties: str):
        self._fed, self._ground = fed, ground
        self._ties, alone = ground.ties(ties), ground.alone()
        #: of the tied times, where the sum over those tied is not the one over all leavers
        self._asked = alone[self._ties.at]
        self._where = {
            "times": ground.times, "sizes": ground.sizes, "centre": ground.centre,
            "scale": ground.scale, "shared": ~alone if ground.together else ground.single,
        }  # fmt: skip
        self._mean = np.zeros(len(ground.scale))
        self._within = np.zeros((len(ground.scale), len(ground.scale)))

    def at(self, gamma: Array) -> OnGrid:
        """Return ℓ(γ), eq. (1), with S₀ and the hazard that it takes."""
        g = self._ground
        reply = self._fed.sum(
            risk_weights, **self._where, tied=self._ties.at[self._asked], beta=gamma
        )
        check_all_answered(self._fed)
        s0, d0 = at_risk(reply.leaving, g.sizes), self._shared(reply.leaving, reply.dying)
        h = hazard(g.weight, s0, d0, self._ties)
        value = float(g.x_dead @ gamma) + g.fixed - h.log_phi
        return OnGrid(gamma, value if np.isfinite(value) else -np.inf, s0, d0, h)

    def _shared(self, leaving: Array, dying: Array) -> Array:
        """Return sums over those tied at each tied time, (G,) or (G, p)."""
        found = leaving[self._ties.at]
        found[self._asked] = dying
        return found

    def slopes(self, here: OnGrid) -> tuple[Array, Array]:
        """Return U, eq. (4), and the first term of I, eq. (5)."""
        g = self._ground
        reply = self._fed.sum(
            expected_deaths, **self._where, beta=here.gamma, a=here.hazard.a, b=here.hazard.b
        )
        check_all_answered(self._fed)
        total = float(g.weight.sum())
        self._mean, self._within = centred(reply.first, reply.second, total)
        return g.x_dead - total * self._mean, self._within

    def information(self, here: OnGrid) -> Array:
        """Return I, eq. (5)."""
        g = self._ground
        reply = self._fed.sum(
            risk_moments, **self._where, tied=self._ties.at[self._asked], beta=here.gamma
        )
        check_all_answered(self._fed)
        s1, d1 = at_risk(reply.leaving, g.sizes), self._shared(reply.leaving, reply.dying)
        self._means = means(g.weight, self._ties, here.s0, here.d0, s1, d1)
        return self._within - drift(self._means, self._mean)

    def trend(self, here: OnGrid, g: Array) -> Trend:
        """Return what tells whether effects change with g (T,), after `information` there."""
        a, b = here.hazard.a, here.hazard.b
        reply = self._fed.sum(trend_moments, **self._where, beta=here.gamma, a=a, b=b, g=g)
        check_all_answered(self._fed)
        return proportional.trend(reply.dead, reply.once, reply.twice, self._means, g)

    def disorder(self, here: OnGrid, covariance: Array) -> Array:
        """Return how far the unknown order within intervals may move each coefficient, (p,).

        The root mean square over all orders of the J who leave in an interval, to first order. Each
        leaver is at risk at a number of the d deaths that is uniform from 0 to d, or to d − 1 of
        the others where it dies, so that with covariance C of the coefficients

            V_k = Σ_j κ_j r_j² ((x_j − x̄)ᵀ C)_k²,    κ_j = J/(J − 1) Var_j mean_l φ_l⁻²,

        Var_j = d (d + 2)/12, or (d² − 1)/12 where j dies.
        """
        g, ties = self._ground, self._ties
        (k, f), open_ = ties.one_by_one(), ~g.single[ties.at]
        phi = here.s0[ties.at][k] - f * here.d0[k]
        inverse = np.bincount(k, phi**-2.0, minlength=len(ties.at)) / ties.places
        at = ties.at[open_]
        d, j = g.deaths[at], g.leaving[at]
        each = j / (j - 1) * inverse[open_] / 12
        dead, censored = np.zeros((2, len(g.times)))
        dead[at], censored[at] = each * np.maximum(d**2 - 1, 1), each * d * (d + 2)
        reply = self._fed.sum(
            disorder, **self._where, beta=here.gamma, mean=self._mean, covariance=covariance,
            dead=dead, censored=censored,
        )  # fmt: skip
        check_all_answered(self._fed)
        return np.sqrt(reply.squares)


@dataclass(frozen=True)
class AtSites:
    """A point γ (p,), and the sums of the sites' own ℓ, U and I there."""

    gamma: Array
    log_likelihood: float
    own: OwnLikelihood

    @classmethod
    def of(cls, gamma: Array, own: OwnLikelihood) -> AtSites:
        """Return the point; its log-likelihood is −inf where it overflows."""
        value = float(own.log_likelihood)
        return cls(gamma, value if np.isfinite(value) else -np.inf, own)


class StratifiedBaseline:
    """The sum of the sites' partial likelihoods, each under a baseline hazard of its own."""

    exact = True

    def __init__(self, fed: Federation, ground: Ground, ties: str):
        self._fed, self._ground, self._ties = fed, ground, ties

    def at(self, gamma: Array) -> AtSites:
        """Return Σ ℓ(γ) over sites, with Σ U and Σ I."""
        g = self._ground
        own = self._fed.sum(
            own_likelihood, centre=g.centre, scale=g.scale, beta=gamma, ties=self._ties
        )
        check_all_answered(self._fed)
        return AtSites.of(gamma, own)

    def slopes(self, here: AtSites) -> tuple[Array, Array]:
        """Return Σ U and Σ I."""
        return here.own.score, here.own.information

    def information(self, here: AtSites) -> Array:
        """Return Σ I."""
        return here.own.information

    def trend(self, here: AtSites, g: Array) -> Trend:
        """Return what tells whether effects change with g (T,), summed over the sites' own."""
        ground = self._ground
        reply = self._fed.sum(
            own_trend,
            times=ground.times, sizes=ground.sizes, centre=ground.centre, scale=ground.scale,
            beta=here.gamma, ties=self._ties, g=g,
        )  # fmt: skip
        check_all_answered(self._fed)
        return Trend(reply.score, reply.cross, reply.information)

    def hazard(self, gamma: Array) -> Array:
        """Return the mean of the sites' own baseline hazards by interval (T,), by their weight."""
        g = self._ground
        reply = self._fed.sum(
            own_hazard,
            times=g.times, sizes=g.sizes, centre=g.centre, scale=g.scale, beta=gamma,
        )  # fmt: skip
        check_all_answered(self._fed)
        return reply.hazard / np.repeat(reply.weight, g.sizes)
