"""The heterogeneity statistic R of the sites' trajectories through a training.

Nolte et al., "Federated learning framework integrating REFINED CNN and deep regression forests",
Bioinformatics Advances 3(1), 2023, section 3.5, after Gelman and Rubin, Stat. Sci. 7, 1992;
numerator and denominator exchanged, see the errata of 3.5. Site j of n has a point x_jt in each
of T rounds and a weight w_j. With x̄_j the mean over rounds, x̄_t over sites by weight, and x̄ over
both:

    B = T/(n−1) Σ_j w_j ‖x̄_j − x̄‖²                                                        (1)
    W = 1/((n−1)(T−1)) Σ_jt w_j ‖x_jt − x̄_j − x̄_t + x̄‖²                                  (2)
    R = ((1−α) W + α B)/W,   α = 1/T                                                      (3)

(T is m − 1 of the paper.) W is about the common path x̄_t: a loss that falls at all sites alike is
no variation within one. For one number of equal weights, without a common path, (1) to (3) are the
paper's, but for n − 1 in the place of n.

**The alarm.** If sites are alike and the rows behind all x_jt are different
(`training.heterogeneity` ensures it), with variances as 1/w_j, B/W has the F distribution on n − 1
and (n−1)(T−1) degrees of freedom. For points of q numbers both are multiplied by ν = (tr Σ)²/tr Σ²
≤ q, with Σ the matrix whose trace (2) estimates (Box, Ann. Math. Stat. 25, 1954). The estimate S in
the place of Σ gives too small a ν, and unbiased squares (Bai & Saranadasa, Stat. Sinica 6, 1996) a
variable one; ν is their geometric mean. So R is compared with

    R* = 1 − α + α F_{1−a}(ν(n−1), ν(n−1)(T−1))                                           (4)

R is tested after each round but the first of a lap of K rounds. The l-th lap's share of `level` is
1/(l(l+1)); its last test has half of it, the others the rest in equal parts, as a. The levels of
all tests add up to at most `level`.

Revealed: `Contribution`, only as a sum over sites: R needs no site's own number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.special import fdtrc, fdtri

from fedcohort.arrays import Array
from fedcohort.protocol.message import message


@message
class Contribution:
    """A site's part in one round: ``sites`` () 1, or 0 if it takes no part, and w ().

    ``first`` (q,) w x; ``products`` (q, q) w x xᵀ; ``past`` (q, q) w s sᵀ, s the sum of its points
    so far.
    """

    sites: Array
    weight: Array
    first: Array
    products: Array
    past: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return what is wrong with one site's reply; see `protocol.updates`."""
        square = (*self.first.shape, *self.first.shape)
        if self.sites.shape or self.weight.shape or self.first.ndim != 1:
            return "a part in a trajectory that is not one number, one number and a point."
        if self.products.shape != square or self.past.shape != square:
            return "products of another shape than those of its point."
        if self.sites not in (0, 1) or (self.weight > 0) != bool(self.sites):
            return "a weight, or a number of sites, that there cannot be."
        return ""

    @classmethod
    def of(cls, point: Array, total: Array, weight: float) -> Contribution:
        """Return the part of a site at x (q,), with s (q,) and w."""
        return cls(
            np.array(1.0),
            np.array(weight),
            weight * point,
            weight * np.outer(point, point),
            weight * np.outer(total, total),
        )

    @classmethod
    def nothing(cls, q: int) -> Contribution:
        """Return the part of a site that takes no part."""
        none = np.zeros((q, q))
        return cls(np.array(0.0), np.array(0.0), np.zeros(q), none, none)


class Mixing(NamedTuple):
    """R after T rounds.

    Attributes
    ----------
    r : eq. (3); inf if no trajectory moves about the common path.
    alarm : R*, eq. (4).
    p : of B/W, for this test alone.
    between, within : B and W, in the square of the unit of x, times that of w.
    rounds, sites : T and n.
    """

    r: float
    alarm: float
    p: float
    between: float
    within: float
    rounds: int
    sites: int

    @property
    def fires(self) -> bool:
        """Whether R exceeds R*: the sites differ."""
        return self.r > self.alarm


@dataclass
class Trajectories:
    """Sums over the trajectories of the same sites.

    Attributes
    ----------
    means : w-weighted sums of the points, a row (q,) per round.
    """

    sites: float = 0.0
    weight: float = 0.0
    means: list[Array] = field(default_factory=list[Array])
    products: Array | float = 0.0
    past: Array | float = 0.0

    def add(self, part: Contribution) -> bool:
        """Add a round and return True; return False if the sites differ from those before."""
        sites, weight = float(part.sites), float(part.weight)
        if self.means and not (sites == self.sites and math.isclose(weight, self.weight)):
            return False
        self.sites, self.weight = sites, weight
        self.means.append(np.asarray(part.first, float))
        self.products = self.products + np.asarray(part.products, float)
        self.past = np.asarray(part.past, float)
        return True

    def mixing(self, level: float) -> Mixing | None:
        """Return eqs. (1) to (4), a = `level`; None with fewer than two sites or two rounds."""
        n, t = int(self.sites), len(self.means)
        if n < 2 or t < 2:
            return None
        course = np.stack(self.means)
        whole = course.sum(axis=0)
        grand = np.outer(whole, whole) / (t * self.weight)
        sites = self.past / t - grand
        rounds = course.T @ course / self.weight - grand
        rest = self.products - grand - sites - rounds
        size = float(np.trace(np.atleast_2d(self.products)))
        return _mixing(n, t, float(np.trace(sites)), rest, size, level)


def _mixing(n: int, t: int, sites: float, rest: Array, size: float, level: float) -> Mixing:
    """Return R from sums of squares: of sites, the matrix (q, q) of the rest, and of all points."""
    trace = float(np.trace(rest))
    between, within = max(sites, 0.0) / (n - 1), max(trace, 0.0) / ((n - 1) * (t - 1))
    if trace <= ROUNDING * size:
        moved = between > ROUNDING * size
        return Mixing(math.inf if moved else 1.0, 1.0, float(not moved), between, 0.0, t, n)
    df = (n - 1) * (t - 1)
    nu = freedom(rest / df, df)
    d1, d2 = nu * (n - 1), nu * df
    ratio = between / within
    limit = float(fdtri(d1, d2, 1.0 - level))
    return Mixing(
        1.0 - 1.0 / t + ratio / t, 1.0 - 1.0 / t + limit / t, float(fdtrc(d1, d2, ratio)),
        between, within, t, n,
    )  # fmt: skip


def freedom(s: Array, df: int) -> float:
    """Return ν of a covariance matrix s (q, q) that was estimated on df degrees of freedom."""
    a, b = float(np.trace(s)) ** 2, float(np.sum(s**2))
    plain = max(1.0, a / b)
    if df < 2:
        return plain
    trace, squares = (df + 1) * a - 2 * b, df * b - a
    unbiased = trace / squares if squares > 0 else math.inf
    return math.sqrt(plain * min(max(unbiased, 1.0), float(len(s))))


#: Share of all squares below which the rest is rounding.
ROUNDING = 1e-12


def level_of_look(level: float, lap: int, rounds: int, parts: int) -> float:
    """Return a of eq. (4) after `rounds` rounds, 2 to K = `parts`, of the lap with this number
    from 1.
    """
    share = level / (lap * (lap + 1))
    if parts < 3:
        return share
    return share / 2 if rounds == parts else share / (2 * (parts - 2))
