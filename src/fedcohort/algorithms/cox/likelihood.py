"""The likelihoods that `ascent` maximises: with one baseline hazard, or one for each site.

Equations are those of `numerics.coxph` and `algorithms.cox.proportional`. Each method makes at most
one call to the sites. Revealed: only the replies to `steps`, as sums over all sites.
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
    """Grid, counts, and origin and scale of the covariates; fixed before the first round.

    Attributes
    ----------
    times : (T,), the grids of all strata, concatenated.
    sizes : (K,), number of times of each stratum.
    single : (T,), whether all leave the interval at one time; empty if times are those of death.
    deaths : (T,), at each time; weight : (T,), of the deaths.
    leaving : (T,), deaths and censored records that leave at each time, less those who enter at
        the next.
    cell : smallest number of records of a sum within an interval.
    late : some records enter after the first time.
    centre : (p,), pooled mean (rounded) of the covariates; (p + 1,) with an offset.
    scale : (p,), their pooled standard deviation.
    x_dead : (p,), weighted Σ of the standardised covariates over deaths.
    fixed : weighted Σ of the offset over deaths; 0 without an offset.
    rows, total : number and total weight of the records at all sites.
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
        """Whether times are ends of intervals."""
        return len(self.single) > 0

    def alone(self) -> Array:
        """Return at which times (T,) only the deaths tie.

        In an interval: all leave at one time, deaths and censored records are `cell` or more each.
        """
        if not self.together:
            return np.ones(len(self.times), bool)
        left = self.leaving - self.deaths
        return self.single & (self.deaths >= self.cell) & (left >= self.cell)

    def ties(self, ties: str) -> Ties:
        """Return the times or intervals within which risk sets shrink (`numerics.coxph`)."""
        if not self.together:
            return tied(self.deaths, ties)
        sharers = np.where(self.alone(), self.deaths, self.leaving)
        unordered = ~self.single | (ties == "efron")
        at = np.flatnonzero((self.deaths > 0) & (sharers > 1) & unordered)
        return Ties(at, sharers[at], np.where(self.single, self.deaths, self.leaving)[at])


@dataclass(frozen=True)
class OnGrid:
    """A point γ (p,), with ℓ, S₀ (T,), D₀ (G,) and the hazard there."""

    gamma: Array
    log_likelihood: float
    s0: Array
    d0: Array
    hazard: Hazard


class SharedBaseline:
    """Partial likelihood of all sites with one baseline hazard; eqs. of `numerics.coxph`."""

    exact = False

    def __init__(self, fed: Federation, ground: Ground, ties: str):
        self._fed, self._ground = fed, ground
        self._ties, alone = ground.ties(ties), ground.alone()
        #: (G,) whether the tied time needs a sum over its deaths besides the one over all leavers
        self._asked = alone[self._ties.at]
        self._where = {
            "times": ground.times, "sizes": ground.sizes, "centre": ground.centre,
            "scale": ground.scale, "shared": ~alone if ground.together else ground.single,
        }  # fmt: skip
        self._mean = np.zeros(len(ground.scale))
        self._within = np.zeros((len(ground.scale), len(ground.scale)))

    def at(self, gamma: Array) -> OnGrid:
        """Return ℓ(γ), eq. (1), with S₀, D₀ and the hazard."""
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
        """Return the sum over the tied records of each tied time, (G,) or (G, p)."""
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

    def centres(self) -> Array:
        """Return the mean of the covariates over each risk set (T, p), after `information`."""
        m, t = self._means, len(self._ground.times)
        total = np.maximum(np.bincount(m.time, m.weight, t), np.finfo(float).tiny)
        return np.array([np.bincount(m.time, m.weight * c, t) / total for c in m.mean.T]).T

    def trend(self, here: OnGrid, g: Array) -> Trend:
        """Return the sums of the test for effects that change with g (T,), after `information`."""
        a, b = here.hazard.a, here.hazard.b
        reply = self._fed.sum(trend_moments, **self._where, beta=here.gamma, a=a, b=b, g=g)
        check_all_answered(self._fed)
        return proportional.trend(reply.dead, reply.once, reply.twice, self._means, g)

    def disorder(self, here: OnGrid, covariance: Array) -> Array:
        """Return the error of each coefficient (p,) due to the unknown order within intervals.

        It is the root mean square over all orders of the J leavers of an interval, to first order.
        A leaver is at risk at a number of the d deaths that is uniform on 0 … d, or 0 … d − 1 if it
        dies itself. With covariance C of the coefficients

            V_k = Σ_j κ_j r_j² ((x_j − x̄)ᵀ C)_k²,    κ_j = J/(J − 1) Var_j mean_l φ_l⁻²,

        Var_j = d (d + 2)/12, or (d² − 1)/12 if j dies.
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
    """A point γ (p,), with Σ ℓ, Σ U and Σ I of the sites there."""

    gamma: Array
    log_likelihood: float
    own: OwnLikelihood

    @classmethod
    def of(cls, gamma: Array, own: OwnLikelihood) -> AtSites:
        """Return the point; its log-likelihood is −inf if it overflows."""
        value = float(own.log_likelihood)
        return cls(gamma, value if np.isfinite(value) else -np.inf, own)


class StratifiedBaseline:
    """Sum of the sites' partial likelihoods, each with its own baseline hazard."""

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
        """Return the sums of the test for effects that change with g (T,)."""
        ground = self._ground
        reply = self._fed.sum(
            own_trend,
            times=ground.times, sizes=ground.sizes, centre=ground.centre, scale=ground.scale,
            beta=here.gamma, ties=self._ties, g=g,
        )  # fmt: skip
        check_all_answered(self._fed)
        return Trend(reply.score, reply.cross, reply.information)

    def hazard(self, gamma: Array) -> Array:
        """Return the weighted mean of the sites' own baseline hazards in each interval (T,)."""
        g = self._ground
        reply = self._fed.sum(
            own_hazard,
            times=g.times, sizes=g.sizes, centre=g.centre, scale=g.scale, beta=gamma,
        )  # fmt: skip
        check_all_answered(self._fed)
        return reply.hazard / np.repeat(reply.weight, g.sizes)
