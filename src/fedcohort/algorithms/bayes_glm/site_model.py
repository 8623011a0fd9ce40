"""Posterior of a regression with effects of sites: a mixture over the grid of τ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from scipy.special import expit, gammaincc, gammaincinv, logsumexp

from fedcohort.algorithms.bayes_glm.model import (
    BayesLinearModel,
    BayesLogisticModel,
    Posterior,
    log_student,
    of_intercept,
)
from fedcohort.arrays import Array
from fedcohort.numerics.mixture import increasing, quantiles
from fedcohort.numerics.propagation import probability
from fedcohort.protocol import Row
from fedcohort.training.site_effects import Own, mixed_row, own_rows

#: Fields of `BySite` that are arrays.
ARRAYS = ("shares", "means", "scales", "tau")
#: What is said of the intercept.
NEW = "f is common to sites, and a prediction is the mean over effects of a new site"


@dataclass(frozen=True, kw_only=True, eq=False)
class BySite(Posterior):
    """Mixture over G points of τ; `covariance` is the mean of the points' scale matrices.

    Predictions are for a new site, whose effects are integrated over.

    Attributes
    ----------
    shares : of the points (G,), which add to 1.
    means, scales : (G, k) and (G, k, k), of (b₀, β) at the points; k = p + 1.
    tau : (G, e), standard deviations of effects of sites on standardised covariates, of a value
        in residual standard deviations.
    taus : rows of the posterior of τ.
    sites : number of sites that take part.
    note : warnings about few sites and sites left out; may be empty.
    own : effects of each site that revealed them.
    """

    shares: Array
    means: Array
    scales: Array
    tau: Array
    taus: tuple[Row, ...]
    sites: int
    note: str
    own: Mapping[str, Own]

    @property
    def unit(self) -> Array:
        """Squared unit of `tau` (G,)."""
        return np.ones(len(self.shares))

    @property
    def wider(self) -> float:
        """Variance of Student's distribution of scale 1."""
        return 1.0 if np.isinf(self.freedom) else self.freedom / (self.freedom - 2.0)

    def at_points(self, x: Array) -> tuple[Array, Array]:
        """Return location and squared scale (G, n) of f of rows x (n, p) at a new site."""
        z = np.column_stack([np.ones(len(x)), np.asarray(x, float)])
        inside = np.einsum("ni,gij,nj->gn", z, self.scales, z, optimize=True)
        location = self.means @ z.T
        z[:, 1:] = (z[:, 1:] - self.centre) / np.sqrt(np.diag(self.scatter))
        effects = self.tau**2 @ (z[:, : self.tau.shape[1]] ** 2).T
        return location, inside + self.unit[:, None] * effects

    def spread(self, x: Array) -> Array:
        """Return the squared scale (n,) of f of rows x (n, p) at a new site, which gives its
        variance.
        """
        f, s = self.at_points(x)
        return self.shares @ s + self.shares @ (f - self.shares @ f) ** 2 / self.wider

    def summary(self) -> list[Row]:
        """Return the rows of `Posterior.summary`, of the common coefficients; quantiles and
        probabilities are the mixture's.
        """
        return [self._row(name, j + 1) for j, name in enumerate(self.features)]

    def _row(self, name: str, j: int) -> Row:
        """Return the row of one of (b₀, β)."""
        parts = (self.shares, self.means[:, j], np.sqrt(self.scales[:, j, j]))
        return mixed_row(name, parts, self.level, self.RATIO, self.freedom)

    def of_f(self, x: Array, level: float, residual: Array | float = 0.0) -> Array:
        """Return the interval (n, 2) of f, with a residual of squared scale (G,), of a new site."""
        f, s = self.at_points(x)
        scale = np.sqrt(s + np.reshape(residual, (-1, 1)))
        ends = (0.5 - level / 2, 0.5 + level / 2)
        return np.column_stack([quantiles(p, self.shares, f, scale, self.freedom) for p in ends])

    def cautions(self) -> tuple[str, ...]:
        """Return warnings about the sums, few sites, and sites left out."""
        return (*super().cautions(), *([self.note] if self.note else []))

    def rows_of_sites(self) -> list[Row]:
        """Return the rows of τ, of each site's own effects where they were asked for, and of
        checks.
        """
        own = own_rows(self.own, ["intercept", *self.features])
        return [*self.taus, *own, *self.checks]

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of a posterior, and the points."""
        return super().arrays() | {name: getattr(self, name) for name in ARRAYS}

    def meta(self) -> dict[str, Any]:
        """Return what a posterior has, and what is known of sites."""
        own = {site: found._asdict() for site, found in self.own.items()}
        return super().meta() | {
            "taus": list(self.taus), "sites": self.sites, "note": self.note, "own": own,
        }  # fmt: skip

    @classmethod
    def _restored(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> dict[str, Any]:
        own: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
        own |= {"taus": tuple(meta["taus"]), "sites": int(meta["sites"]), "note": str(meta["note"])}
        own["own"] = {site: Own(**found) for site, found in meta["own"].items()}
        return super()._restored(arrays, meta) | own


@dataclass(frozen=True, kw_only=True, eq=False)
class BayesLinearBySite(BySite, BayesLinearModel):
    """A value of a new site; `rate` is the mean of the points' b.

    Attributes
    ----------
    rates : b at the points (G,).
    """

    rates: Array

    @property
    def unit(self) -> Array:
        """b/a at the points (G,)."""
        return self.rates / self.shape

    def intervals(self, x: Array, level: float) -> Array:
        """Return the interval (n, 2) that holds a new outcome at a new site."""
        return self.of_f(x, level, self.unit)

    def uncertainty(self, x: Array) -> tuple[Array, Array]:
        """Return the variances (n,) by coefficients, common and of a new site, and by the residual.

        Rows of that site would lessen the first.
        """
        residual = self.wider * self.variance
        return self.wider * self.spread(x), np.full(len(x), residual)

    def log_density(self, x: Array, y: Array, event: Array) -> Array:
        """Return ln p(y | x) (n,) at a new site."""
        f, s = self.at_points(x)
        each = log_student(np.asarray(y, float) - f, s + self.unit[:, None], self.freedom)
        return logsumexp(each, axis=0, b=self.shares[:, None])

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, the residual standard deviation, and what is known of sites."""
        half = (1.0 - self.level) / 2.0
        low, high = (self._sigma(p) for p in (half, 1.0 - half))
        sigma: Row = {"name": "residual sd", "value": math.sqrt(self.variance)}
        first = of_intercept(self._row("intercept", 0), self.LINK, NEW)
        return [first, sigma | {"low": low, "high": high}, *self.rows_of_sites()]

    def _sigma(self, p: float) -> float:
        """Return the p-quantile of the residual standard deviation."""
        each = np.sqrt(self.rates / gammaincinv(self.shape, 1.0 - p))
        low, high = float(each.min()), float(each.max())
        return increasing(
            lambda s: float(self.shares @ gammaincc(self.shape, self.rates / s**2)), p, low, high
        )

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of a posterior, and the points."""
        return super().arrays() | {"rates": self.rates}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model; without effects of sites a `BayesLinearModel`."""
        if "tau" not in arrays:
            return cast("Any", BayesLinearModel.restore(arrays, meta))
        return super().restore(arrays, meta)

    @classmethod
    def _restored(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> dict[str, Any]:
        return super()._restored(arrays, meta) | {"rates": arrays["rates"]}


@dataclass(frozen=True, kw_only=True, eq=False)
class BayesLogisticBySite(BySite, BayesLogisticModel):
    """The probability of class 1 of a row of a new site."""

    def predict(self, x: Array) -> Array:
        """Return the probability of class 1 (n,), the mean over the posterior and new sites."""
        return self._moments(x)[0]

    def intervals(self, x: Array, level: float) -> Array:
        """Return the interval (n, 2) of the probability of class 1 at a new site."""
        return expit(self.of_f(x, level))

    def uncertainty(self, x: Array) -> tuple[Array, Array]:
        """Return Var P and E P(1 − P) (n,) of a row of a new site.

        Rows of that site would lessen the first.
        """
        mean, variance = self._moments(x)
        return variance, mean * (1.0 - mean) - variance

    def _moments(self, x: Array) -> tuple[Array, Array]:
        """Return E P and Var P (n,)."""
        first, second = np.zeros(len(x)), np.zeros(len(x))
        for share, f, s in zip(self.shares.tolist(), *self.at_points(x), strict=True):
            mean, variance = probability(f, s)
            first += share * mean
            second += share * (variance + mean**2)
        return first, np.maximum(second - first**2, 0.0)

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, and what is known of sites."""
        first = of_intercept(self._row("intercept", 0), self.LINK, NEW)
        return [first, *self.rows_of_sites()]

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model; without effects of sites a `BayesLogisticModel`."""
        if "tau" not in arrays:
            return cast("Any", BayesLogisticModel.restore(arrays, meta))
        return super().restore(arrays, meta)
