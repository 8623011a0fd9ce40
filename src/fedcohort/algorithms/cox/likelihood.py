"""The likelihoods that `ascent` climbs: of one baseline hazard, or of each site's own.

Each method is one question to the sites, or none; equations are those of `numerics.coxph` and
`numerics.proportional`. Nothing is revealed but the replies to `steps`, as sums over all sites.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.algorithms.cox.own_steps import (
    OwnLikelihood,
    own_gap,
    own_hazard,
    own_likelihood,
    own_moved,
    own_trend,
)
from fedcohort.algorithms.cox.steps import (
    expected_deaths,
    risk_moments,
    risk_weights,
    trend_moments,
)
from fedcohort.arrays import Array
from fedcohort.numerics import proportional
from fedcohort.numerics.coxph import (
    Hazard,
    at_risk,
    centred,
    drift,
    hazard,
    means,
    tied_times,
)
from fedcohort.numerics.proportional import Trend
from fedcohort.protocol import Federation, check_all_answered


@dataclass(frozen=True)
class Ground:
    """What is fixed before the first round.

    Attributes
    ----------
    times : (T,), the grid; with strata, that of each in a row.
    blocks : (K, 2), how many of times and exits are each stratum's.
    deaths : (T,), at each time; weight : (T,), of the deaths.
    exits : slots at which censored records leave (`numerics.survival`).
    leaving : (T,), deaths and censored records that leave at each time, less those who enter at
        the next.
    late : whether some records enter after the first time.
    centre : (p,), pooled mean (rounded) of the covariates; one more for an offset.
    scale : (p,), their pooled standard deviation.
    x_dead : (p,), Σ of the standardised covariates of those who die, by weight.
    fixed : Σ of the offset of those who die, by weight; 0 without.
    rows, total : records at all sites, and their weight.
    """

    times: Array
    blocks: Array
    deaths: Array
    weight: Array
    exits: Array
    leaving: Array
    late: bool
    centre: Array
    scale: Array
    x_dead: Array
    fixed: float
    rows: int
    total: float

    @property
    def sizes(self) -> Array:
        """How many times are each stratum's, (K,)."""
        return self.blocks[:, 0]


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
        self._ties, self._tied = ties, tied_times(ground.deaths, ties)
        self._mean = np.zeros(len(ground.scale))
        self._within = np.zeros((len(ground.scale), len(ground.scale)))

    def at(self, gamma: Array) -> OnGrid:
        """Return ℓ(γ), eq. (1), with S₀ and the hazard that it takes."""
        g = self._ground
        reply = self._fed.sum(
            risk_weights,
            times=g.times, exits=g.exits, blocks=g.blocks, centre=g.centre, scale=g.scale,
            tied=self._tied, beta=gamma,
        )  # fmt: skip
        check_all_answered(self._fed)
        s0 = at_risk(reply.leaving, g.sizes)
        h = hazard(g.deaths, s0, reply.dying, self._tied, g.weight)
        value = float(g.x_dead @ gamma) + g.fixed - h.log_phi
        return OnGrid(gamma, value if np.isfinite(value) else -np.inf, s0, reply.dying, h)

    def slopes(self, here: OnGrid) -> tuple[Array, Array]:
        """Return U, eq. (4), and the first term of I, eq. (5)."""
        g = self._ground
        reply = self._fed.sum(
            expected_deaths,
            times=g.times, exits=g.exits, blocks=g.blocks, centre=g.centre, scale=g.scale,
            beta=here.gamma, a=here.hazard.a, b=here.hazard.b,
        )  # fmt: skip
        check_all_answered(self._fed)
        total = float(g.weight.sum())
        self._mean, self._within = centred(reply.first, reply.second, total)
        return g.x_dead - total * self._mean, self._within

    def information(self, here: OnGrid) -> Array:
        """Return I, eq. (5)."""
        g = self._ground
        reply = self._fed.sum(
            risk_moments,
            times=g.times, exits=g.exits, blocks=g.blocks, centre=g.centre, scale=g.scale,
            tied=self._tied, beta=here.gamma,
        )  # fmt: skip
        check_all_answered(self._fed)
        s1 = at_risk(reply.leaving, g.sizes)
        self._means = means(g.deaths, self._tied, here.s0, here.d0, s1, reply.dying, g.weight)
        return self._within - drift(self._means, self._mean)

    def trend(self, here: OnGrid, g: Array) -> Trend:
        """Return what tells whether effects change with g (T,), after `information` there."""
        ground = self._ground
        reply = self._fed.sum(
            trend_moments,
            times=ground.times, exits=ground.exits, blocks=ground.blocks, centre=ground.centre,
            scale=ground.scale, beta=here.gamma, a=here.hazard.a, b=here.hazard.b, g=g,
        )  # fmt: skip
        check_all_answered(self._fed)
        return proportional.trend(reply.dead, reply.once, reply.twice, self._means, g)

    def gap(self, gamma: Array, least: int) -> Array:
        """Return by how much the score at γ (p,) is greater at exact times than on the grid, (p,).

        Summed over the sites' own risk sets: an estimate of what it is over those of all sites.
        Asked for only where the grid moves `least` records or more past a death: the gap is theirs.
        It is 0 if it moves none, and NaN if fewer.
        """
        g = self._ground
        moved = float(self._fed.sum(own_moved, times=g.times, exits=g.exits, blocks=g.blocks).rows)
        check_all_answered(self._fed)
        if moved < least:
            return np.full(len(gamma), np.nan if moved else 0.0)
        reply = self._fed.sum(
            own_gap,
            times=g.times, exits=g.exits, blocks=g.blocks, centre=g.centre, scale=g.scale,
            beta=gamma, ties=self._ties,
        )  # fmt: skip
        check_all_answered(self._fed)
        return reply.score


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
            times=ground.times, blocks=ground.blocks, centre=ground.centre, scale=ground.scale,
            beta=here.gamma, ties=self._ties, g=g,
        )  # fmt: skip
        check_all_answered(self._fed)
        return Trend(reply.score, reply.cross, reply.information)

    def hazard(self, gamma: Array) -> Array:
        """Return the mean of the sites' own baseline hazards by interval (T,), by their weight."""
        g = self._ground
        reply = self._fed.sum(
            own_hazard,
            times=g.times, blocks=g.blocks, centre=g.centre, scale=g.scale, beta=gamma,
        )  # fmt: skip
        check_all_answered(self._fed)
        return reply.hazard / np.repeat(reply.weight, g.sizes)
