"""Effects of sites: integrated out of sums of a site, and their standard deviation τ on a grid.

Röver, Bender, Dias et al., Research Synthesis Methods 12, 2021 (half-normal priors of τ); Rue,
Martino, Chopin, JRSS B 71, 2009 (integration over hyperparameters on a grid). At a site, the
logarithm of the likelihood of the coefficients (q,) is a quadratic form with the matrix S. Effects
of the site are added to the first e of them: R w, R = diag(r), w ~ N(0, I). With
T = R S_e (e, q), S_e the first e rows of S, and C = I + R S_ee R, the integral over w leaves

    S − Tᵀ C⁻¹ T,   log|C|                                                                (1)

which is regular at r = 0 and for singular S. With a column for the outcome, or for what Gaussian
factors add to the mean, eq. (1) has all that the likelihood needs.

τ has the prior |N(0, s²)|. With τ = δ sinh t the posterior is a function of t that is even, so
equidistant points t = 0, h, 2h, … are the trapezoidal rule on the whole line, whose error falls
exponentially in 1/h (Trefethen & Weideman, SIAM Review 56, 2014). As a function of τ², eq. (1) has
its poles at −1/λ, λ an eigenvalue of S_ee per squared residual sd. δ is at most n^-½, below which
few of 1/√λ are; then the poles are π/2 from the line in t. Nothing is revealed here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.mixture import below, quantiles
from fedcohort.numerics.wald import credible_rows
from fedcohort.protocol import NothingToLearn, Row
from fedcohort.training.settings import FEWEST

#: Largest distance h of points for one τ, and for two; largest τ, in prior standard deviations s.
STEP, STEP_OF_TWO, FARTHEST = 0.4, 0.6, 5.0
#: Points at which the posterior of τ is interpolated for its quantiles.
FINE = 401
#: With fewer sites, τ is poorly known.
FEW = 5


class Integrated(NamedTuple):
    """Eq. (1) at G points: ``inner`` (G, q, q), and log|C|, ``log_det`` (G,)."""

    inner: Array
    log_det: Array


def integrated(inner: Array, spread: Array) -> Integrated:
    """Return eq. (1) for S (q, q) or (G, q, q) and r (G, e)."""
    e = spread.shape[1]
    every = np.broadcast_to(inner, (len(spread), *inner.shape[-2:]))
    t = spread[:, :, None] * every[:, :e]
    c = np.eye(e) + t[:, :, :e] * spread[:, None, :]
    out = every - np.swapaxes(t, 1, 2) @ np.linalg.solve(c, t)
    return Integrated((out + np.swapaxes(out, 1, 2)) / 2, np.linalg.slogdet(c)[1])


@dataclass(frozen=True)
class Grid:
    """Points of τ: one for the intercepts or, with slopes, one for these and one for the slopes.

    Attributes
    ----------
    axis : (m,), values of each τ, from 0.
    places : (m,), t of these values; equidistant.
    spread : r (G, e) at the G points; G is m or m², the τ of slopes changing fastest.
    log_prior : (G,), logarithm of prior density times the weight of the point in an integral.
    """

    axis: Array
    places: Array
    spread: Array
    log_prior: Array

    @classmethod
    def over(cls, scale: float, rows: float, covariates: int) -> Grid:
        """Return the points.

        Parameters
        ----------
        scale : s.
        rows : n.
        covariates : those with effects of sites besides the intercept; 0 if only intercepts have
            one.
        """
        delta = min(scale / 10.0, rows**-0.5)
        last = math.asinh(FARTHEST * scale / delta)
        places = np.linspace(0.0, last, 1 + math.ceil(last / (STEP_OF_TWO if covariates else STEP)))
        axis = delta * np.sinh(places)
        one = np.log(delta * np.cosh(places) * places[1]) - (axis / scale) ** 2 / 2
        one += math.log(math.sqrt(2.0 / math.pi) / scale)
        one[0] -= math.log(2.0)
        if not covariates:
            return cls(axis, places, axis[:, None], one)
        first, second = (a.ravel() for a in np.meshgrid(axis, axis, indexing="ij"))
        spread = np.column_stack([first, *[second] * covariates])
        return cls(axis, places, spread, np.add.outer(one, one).ravel())

    def of(self, effects: int) -> Grid:
        """Return the points for this number of effects, which have one τ."""
        return Grid(self.axis, self.places, np.tile(self.spread, (1, effects)), self.log_prior)

    @property
    def kinds(self) -> int:
        """Number of different τ."""
        return 1 if len(self.spread) == len(self.axis) else 2

    def fine(self, values: Array, kind: int, measure: bool = False) -> Array:
        """Interpolate a function of the points (G,) along one τ.

        Parameters
        ----------
        kind : 0 for the τ of intercepts, 1 for that of slopes.
        measure : the function is the logarithm of what `log_prior` and a likelihood give; without
            the weight of a point, as the logarithm of a density in t.

        Returns
        -------
        values : (m', `FINE`) at equidistant t, for each value of the other τ.
        """
        from scipy.interpolate import CubicSpline  # slow to load

        table = values.reshape((len(self.axis),) * self.kinds)
        table = np.moveaxis(table, kind, 0).reshape(len(self.axis), -1).copy()
        if measure:
            table[0] += math.log(2.0)
            table -= math.log(self.places[1])
        at = np.linspace(0.0, self.places[-1], FINE)
        return CubicSpline(self.places, table, bc_type=("clamped", "not-a-knot"))(at).T

    def marginal(self, log_mass: Array, kind: int) -> tuple[Array, Array]:
        """Return values of one τ (`FINE`,), and their shares of its posterior.

        Parameters
        ----------
        log_mass : (G,), `log_prior` and the logarithm of the likelihood, up to a constant.
        """
        at = np.linspace(0.0, self.places[-1], FINE)
        logs = self.fine(log_mass, kind, measure=True)
        mass = np.exp(logs - logs.max())
        mass[:, [0, -1]] /= 2
        return self.delta * np.sinh(at), mass / mass.sum()

    def mean(self, shares: Array, kind: int, unit: Array | float = 1.0) -> float:
        """Return the mean of one τ times `unit`, a function of the points (G,).

        τ is odd in t, so the trapezoidal rule on t ≥ 0 has the first correction of Euler and
        Maclaurin, h²/12 times the derivative at 0.
        """
        tau, every = self.spread[:, -kind], shares * unit
        correction = self.places[1] * self.delta / 6.0 * float(every[tau == 0].sum())
        return float(every @ tau + correction)

    @property
    def delta(self) -> float:
        """δ."""
        return float(self.axis[1]) / math.sinh(self.places[1])

    def interval(self, log_mass: Array, kind: int, level: float) -> list[float]:
        """Return the ends of the interval that holds one τ with probability `level`."""
        values, mass = self.marginal(log_mass, kind)
        one = mass.sum(axis=0)
        ends = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
        return np.interp(ends, np.cumsum(one) - one / 2, values).tolist()


def weights_of(log_mass: Array) -> Array:
    """Return shares (G,) of a sum from the logarithms of its terms (G,)."""
    mass = np.exp(log_mass - log_mass.max())
    return mass / mass.sum()


class Own(NamedTuple):
    """Posterior means and standard deviations (e,) of a site's own effects.

    The intercept's, if it has one, at the covariates' means first; the others per standard
    deviation.
    """

    mean: list[float]
    sd: list[float]


def own_rows(own: Mapping[str, Own], names: Sequence[str]) -> list[Row]:
    """Return the rows of each site's own effects on `names`."""
    return [
        {"name": f"effect of {site} on {name}", "value": mean, "standard_error": sd}
        for site, found in own.items()
        for name, mean, sd in zip(names, found.mean, found.sd, strict=False)
    ]


def mixed_row(
    name: str,
    parts: tuple[Array, Array, Array],
    level: float,
    ratio: str,
    freedom: float = math.inf,
) -> Row:
    """Return the row of a coefficient: moments, quantiles and probabilities of the mixture.

    Parameters
    ----------
    parts : shares, locations and scales (G,) of normal or Student's distributions.
    ratio : name of exp(β), or "".
    """
    shares, m, s = parts
    wider = 1.0 if math.isinf(freedom) else freedom / (freedom - 2.0)
    middle = float(shares @ m)
    variance = wider * float(shares @ s**2) + float(shares @ (m - middle) ** 2)
    scale = np.array([math.sqrt(variance / wider)])
    row = credible_rows([name], np.array([middle]), scale, level, ratio, freedom)[0]
    columns = (shares, m[:, None], s[:, None])
    half = (1.0 - level) / 2.0
    low, high = (float(quantiles(p, *columns, freedom)[0]) for p in (half, 1.0 - half))
    row |= {"above_0": 1.0 - float(below(np.zeros(1), *columns, freedom)[0])}
    initials = "".join(word[0] for word in ratio.split("_") if word)
    for key, end in (("low", low), ("high", high)):
        row |= {key: end} | ({f"{initials}_{key}": math.exp(min(end, 709.0))} if ratio else {})
    return row


def tau_row(of: str, value: float, ends: Sequence[float], unit: str) -> Row:
    """Return the row of one τ."""
    name = f"sd between sites of {of} ({unit})"
    return {"name": name, "value": value, "low": ends[0], "high": ends[1]}


def check_row(name: str, seen: float, drawn: Array) -> Row:
    """Return the row of a posterior predictive check: the value seen, among L drawn ones (L,).

    ``share_above`` is the share of draws above it, with half of those that are equal.
    """
    p = float((drawn > seen).mean() + (drawn == seen).mean() / 2)
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    return {"name": name, "value": seen, "low": low, "high": high, "share_above": p}


def check_enough(by_site: str, few: int, out: int) -> None:
    """Refuse effects of sites where fewer than `FEWEST` sites take part, of few + out."""
    if few < FEWEST:
        raise NothingToLearn(
            f"by_site is {by_site!r}, and {few} of {few + out} sites with records can take part, "
            f"so nothing tells how sites differ. Add sites or records, or give by_site: none."
        )


def note_of(partaking: int, out: int, least: int) -> str:
    """Return warnings about few sites and sites left out; may be empty."""
    notes: list[str] = []
    if partaking < FEW:
        notes.append(
            f"{partaking} sites say little about how sites differ: the posterior of τ is "
            f"largely its prior"
        )
    if out:
        notes.append(
            f"sites left out, because their sums would tell of fewer than {least} "
            f"records (min_cell): {out}"
        )
    return "; ".join(notes)
