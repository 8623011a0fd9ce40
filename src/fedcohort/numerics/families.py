"""Families of generalised linear models, their links, and the sums of one step of scoring.

McCullagh & Nelder, "Generalized Linear Models", 2nd ed. 1989, chapter 2. A record of prior weight w
has the mean μ = h(η) with η = zᵀγ + offset, the variance φ V(μ)/w, and a part in

    deviance                D = Σ w d(y, μ),  Pearson's χ² = Σ w (y − μ)²/V(μ)             (1)
    score                   U(γ) = Σ w (y − μ) h'/V(μ) z                                   (2)
    expected information    I(γ) = Σ w h'²/V(μ) z zᵀ                                       (3)
    observed information    J(γ) = −∂U/∂γ = Σ w [h'²/V − (y − μ) (h'/V)'] z zᵀ             (4)

(h'/V)' being that by η. The log-likelihood is ℓ = ℓ_s(φ) − D/(2φ), with ℓ_s the value where μ = y.
J = I where the link is canonical. A binomial's parts are taken from log μ and log(1 − μ), which the
links give without cancellation, so that nothing is lost where a probability nears 0 or 1.

Nothing is revealed here: who calls decides what leaves a site.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit, gammaln, log_expit, log_ndtr, ndtr, ndtri, xlogy

from fedcohort.arrays import Array

#: Families and their links; the first is the default.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "gaussian": ("identity", "log"),
    "binomial": ("logit", "probit", "cloglog"),
    "poisson": ("log", "sqrt"),
    "gamma": ("log", "inverse"),
}
#: The family of each type of outcome, where none is asked for.
USUAL = {"continuous": "gaussian", "binary": "binomial", "count": "poisson"}
CANONICAL = {"gaussian": "identity", "binomial": "logit", "poisson": "log", "gamma": "inverse"}
#: Linear predictors beyond ± this count as this, where the link is exponential.
FAR = 300.0


class Terms(NamedTuple):
    """Sums over records at γ, eqs. (1) to (4).

    Attributes
    ----------
    deviance, pearson : (); infinite where a mean is outside what the family allows.
    score : (k,).
    information : I (k, k).
    observed : J (k, k), or (0, 0) where it equals I.
    squares : Σ ω² of what each record counts in I, ω = w h'²/V.
    """

    deviance: float
    pearson: float
    score: Array
    information: Array
    observed: Array
    squares: float


class _Parts(NamedTuple):
    """For each record (n,): d, (y − μ)²/V, (y − μ)h'/V, h'²/V, and the bracket of eq. (4)."""

    deviance: Array
    pearson: Array
    slope: Array
    expected: Array
    observed: Array


@dataclass(frozen=True)
class Family:
    """A distribution of the outcome, with the link from its mean to the linear predictor.

    Attributes
    ----------
    name, link : as `FAMILIES` lists them.

    Raises
    ------
    ValueError : the family is unknown, or does not go with the link.
    """

    name: str
    link: str

    def __post_init__(self) -> None:
        if self.link not in FAMILIES.get(self.name, ()):
            raise ValueError(f"there is no family {self.name!r} with link {self.link!r}.")

    @property
    def canonical(self) -> bool:
        """Whether observed and expected information are the same."""
        return CANONICAL[self.name] == self.link

    @property
    def dispersed(self) -> bool:
        """Whether φ is unknown; that of binomial and Poisson is 1."""
        return self.name in ("gaussian", "gamma")

    def inverse(self, eta: Array) -> Array:
        """Return the mean μ = h(η)."""
        match self.link:
            case "logit":
                return expit(eta)
            case "probit":
                return ndtr(eta)
            case "cloglog":
                return -np.expm1(-np.exp(_near(eta)))
            case "log":
                return np.exp(_near(eta))
            case "sqrt":
                return eta**2
            case "inverse":
                return 1.0 / eta
            case _:
                return eta

    def predictor(self, mean: float) -> float:
        """Return η of a mean μ inside the family's range, where `inverse` gives it back."""
        match self.link:
            case "logit":
                return math.log(mean / (1 - mean))
            case "probit":
                return float(ndtri(mean))
            case "cloglog":
                return math.log(-math.log1p(-mean))
            case "log":
                return math.log(mean)
            case "sqrt":
                return math.sqrt(mean)
            case "inverse":
                return 1 / mean
            case _:
                return mean

    def saturated(self, y: Array, weight: Array, dispersion: float) -> float:
        """Return ℓ_s(φ), the log-likelihood of records (n,) whose means are the outcomes."""
        w = weight / dispersion
        match self.name:
            case "gaussian":
                return float(0.5 * np.log(w / (2 * np.pi)).sum())
            case "binomial":
                return float((w * (xlogy(y, y) + xlogy(1 - y, 1 - y))).sum())
            case "poisson":
                return float((w * (xlogy(y, y) - y - gammaln(y + 1))).sum())
            case _:
                return float((xlogy(w, w) - w - gammaln(w) - np.log(y)).sum())

    def parts(self, y: Array, eta: Array) -> _Parts | None:
        """Return each record's parts of eqs. (1) to (4); None where a mean is impossible."""
        if self.name == "binomial":
            return _binomial(self.link, y, eta)
        if self.link in ("sqrt", "inverse") and not (eta > 0).all():
            return None
        mu = self.inverse(eta)
        first, second = _slopes(self.link, mu, eta)
        residual = y - mu
        if self.name == "gaussian":
            variance, rise = np.ones_like(mu), 0.0
            deviance = residual**2
        elif self.name == "poisson":
            variance, rise = mu, 1.0
            deviance = 2 * (xlogy(y, y / mu) - residual)
        else:
            variance, rise = mu**2, 2 * mu
            deviance = 2 * (residual / mu - np.log(y / mu))
        expected = first**2 / variance
        bend = (second - first**2 * rise / variance) / variance
        return _Parts(
            deviance,
            residual**2 / variance,
            residual * first / variance,
            expected,
            expected - residual * bend,
        )


def irls_terms(
    family: Family, z: Array, y: Array, offset: Array | float, weight: Array | float, gamma: Array
) -> Terms:
    """Sum eqs. (1) to (4) over records.

    Parameters
    ----------
    z : (n, k), with a column of ones for an intercept.
    y : (n,).
    offset, weight : (n,), or one number for all.
    gamma : γ (k,).
    """
    k = len(gamma)
    found = family.parts(y, z @ gamma + offset)
    if found is None:
        none = np.zeros((k, k))
        observed = np.zeros((0, 0)) if family.canonical else none
        return Terms(math.inf, math.inf, np.zeros(k), none, observed, 0.0)
    counts = weight * found.expected
    weighted = z.T * counts
    observed = np.zeros((0, 0))
    if not family.canonical:
        observed = (z.T * (weight * found.observed)) @ z
    return Terms(
        float((weight * found.deviance).sum()),
        float((weight * found.pearson).sum()),
        z.T @ (weight * found.slope),
        weighted @ z,
        observed,
        float(counts @ counts),
    )


def _near(eta: Array) -> Array:
    return np.clip(eta, -FAR, FAR)


def _slopes(link: str, mu: Array, eta: Array) -> tuple[Array, Array]:
    """Return h' and h'' at η (n,)."""
    match link:
        case "log":
            return mu, mu
        case "sqrt":
            return 2 * eta, np.full_like(eta, 2.0)
        case "inverse":
            return -(mu**2), 2 * mu**3
        case _:
            return np.ones_like(eta), np.zeros_like(eta)


def _binomial(link: str, y: Array, eta: Array) -> _Parts:
    """Return a binomial's parts, with r₁ = h'/μ and r₀ = h'/(1 − μ).

    The score is y r₁ − (1 − y) r₀ and the expected information r₁ r₀. With c = (log h')' by η,
    r₁' = r₁ (c − r₁) and r₀' = r₀ (c + r₀).
    """
    if link == "logit":
        up, down = log_expit(eta), log_expit(-eta)
        rise, c = up + down, np.exp(down) - np.exp(up)
    elif link == "probit":
        up, down = log_ndtr(eta), log_ndtr(-eta)
        rise, c = -0.5 * eta**2 - 0.5 * math.log(2 * math.pi), -eta
    else:
        eta = _near(eta)
        hazard = np.exp(eta)
        up, down = np.log(-np.expm1(-hazard)), -hazard
        rise, c = eta - hazard, 1 - hazard
    r1, r0 = np.exp(rise - up), np.exp(rise - down)
    saturated = xlogy(y, y) + xlogy(1 - y, 1 - y)
    odds = np.exp(_near(up - down))
    return _Parts(
        2 * (saturated - y * up - (1 - y) * down),
        y**2 / odds - 2 * y * (1 - y) + (1 - y) ** 2 * odds,
        y * r1 - (1 - y) * r0,
        r1 * r0,
        (1 - y) * r0 * (c + r0) - y * r1 * (c - r1),
    )
