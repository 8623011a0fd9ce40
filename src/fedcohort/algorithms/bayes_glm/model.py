"""Posterior of a regression: credible intervals, predictions and what makes them uncertain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import digamma, expit, gammaincinv, gammaln, stdtrit

from fedcohort.algorithms.bayes_glm.skewed import above, quantile, skewness_along
from fedcohort.arrays import Array
from fedcohort.numerics.mahalanobis import chi_squared, squared_distance
from fedcohort.numerics.parameters import predicted
from fedcohort.numerics.propagation import probability
from fedcohort.numerics.wald import credible_rows
from fedcohort.protocol import Fitted, NotSupported, Row
from fedcohort.training.linear.linear_model import LinearFit


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior(LinearFit):
    """Posterior of (b₀, β), of which `intercept` and `coefficients` are the mean.

    Attributes
    ----------
    covariance : scale matrix (p + 1, p + 1) of (b₀, β): of a normal distribution its covariance.
    level : probability of the credible intervals.
    centre, scatter : mean (p,) and covariance (p, p) of the covariates of all training rows.
    checks : rows of posterior predictive checks; most often none.
    """

    covariance: Array
    level: float
    centre: Array
    scatter: Array
    checks: tuple[Row, ...] = ()

    #: Name of exp(β), or "".
    RATIO = ""

    @property
    def freedom(self) -> float:
        """Degrees of freedom of Student's distribution; infinite for a normal one."""
        return np.inf

    def spread(self, x: Array) -> Array:
        """Return the squared scale (n,) of f of rows x (n, p)."""
        z = np.column_stack([np.ones(len(x)), np.asarray(x, float)])
        return np.einsum("ij,jk,ik->i", z, self.covariance, z)

    def unlike_training(self, x: Array) -> Array:
        """Return how unlike the training rows each row of x (n, p) is (n,), from 0 to 1.

        The distribution function of χ² at the squared Mahalanobis distance from their mean, with
        the rank of their covariance as degrees of freedom (`numerics.mahalanobis`): for normal
        covariates and many rows, the share of training rows that are nearer to the mean.
        """
        return chi_squared(*squared_distance(x, self.centre, self.scatter))

    def divergence(self, other: Fitted) -> float:
        """Return the divergence of normal posteriors of (b₀, β); see `Fitted.divergence`."""
        return max(self._normal_divergence(other, 1.0), 0.0)  # rounding may fall below 0

    def _normal_divergence(self, other: Fitted, precision: float) -> float:
        """Return ½ [tr V'⁻¹V − k + ln |V'|/|V| + c (m' − m)ᵀ V'⁻¹ (m' − m)], c the `precision` and
        V, V' the scale matrices.
        """
        if type(other) is not type(self) or other.features != self.features:
            raise NotSupported("divergence from a posterior of other covariates")
        moved = self._mean - other._mean
        moved = moved / np.sqrt(np.diag(other._matrix))
        unit = np.sqrt(np.outer(np.diag(other._matrix), np.diag(other._matrix)))
        one, two = self._matrix / unit, other._matrix / unit  # of one scale, for precision
        ratio = np.linalg.solve(two, one)
        log_ratio = np.linalg.slogdet(two)[1] - np.linalg.slogdet(one)[1]
        far = precision * float(moved @ np.linalg.solve(two, moved))
        return 0.5 * (float(np.trace(ratio)) - len(moved) + float(log_ratio) + far)

    @property
    def _mean(self) -> Array:
        """Posterior mean of (b₀, β)."""
        return np.r_[self.intercept, self.coefficients]

    @property
    def _matrix(self) -> Array:
        """V of N(m, V), or of N(m, σ² V)."""
        return self.covariance

    def summary(self) -> list[Row]:
        """Return posterior mean, standard deviation and credible interval of each coefficient.

        ``above_0`` is the posterior probability that it is above 0.
        """
        scale = np.sqrt(np.diag(self.covariance))[1:]
        return credible_rows(
            self.features, self.coefficients, scale, self.level, self.RATIO, self.freedom
        )

    def arrays(self) -> dict[str, Array]:
        """Return b₀, β and their scale matrix; mean and covariance of the covariates."""
        names = ("covariance", "centre", "scatter")
        return super().arrays() | {name: getattr(self, name) for name in names}

    def meta(self) -> dict[str, Any]:
        """Return names, rows, level and checks."""
        return super().meta() | {"level": self.level, "checks": list(self.checks)}

    @classmethod
    def _restored(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> dict[str, Any]:
        own = {name: arrays[name] for name in ("covariance", "centre", "scatter")}
        more = {"level": float(meta["level"]), "checks": tuple(meta.get("checks", ()))}
        return super()._restored(arrays, meta) | own | more


@dataclass(frozen=True, kw_only=True, eq=False)
class BayesLinearModel(Posterior):
    """A value y with y | f ~ N(f, σ²).

    (b₀, β) has Student's distribution on 2a degrees of freedom, with a and b of σ² ~ inverse gamma
    (a, b).

    Attributes
    ----------
    shape, rate : a and b; b in the squared unit of the outcome.
    """

    shape: float
    rate: float

    @property
    def freedom(self) -> float:
        """2a."""
        return 2.0 * self.shape

    @property
    def variance(self) -> float:
        """b/a, the squared scale of Student's distribution of a residual."""
        return self.rate / self.shape

    @property
    def _matrix(self) -> Array:
        return self.covariance / self.variance

    def divergence(self, other: Fitted) -> float:
        """Return the divergence of posteriors of b₀, β and σ²: that of (b₀, β) given σ², whose
        mean takes E 1/σ² = a/b, and that of inverse gamma distributions.
        """
        given = self._normal_divergence(other, 1.0 / self.variance)
        assert isinstance(other, BayesLinearModel)
        a, b, a2, b2 = self.shape, self.rate, other.shape, other.rate
        found = (a - a2) * digamma(a) - gammaln(a) + gammaln(a2) + a2 * np.log(b / b2)
        return max(given + float(found + a * (b2 - b) / b), 0.0)  # rounding may fall below 0

    def intervals(self, x: Array, level: float) -> Array:
        """Return the interval (n, 2) that holds a new outcome with probability `level`."""
        quantile = float(stdtrit(self.freedom, 0.5 + level / 2))
        half = quantile * np.sqrt(self.variance + self.spread(x))
        f = self.decision(x)
        return np.column_stack([f - half, f + half])

    def uncertainty(self, x: Array) -> tuple[Array, Array]:
        """Return the variances (n,) by the coefficients and by the residual, whose sum is that of
        a new outcome; infinite on 2 degrees of freedom or fewer.
        """
        factor = self.freedom / (self.freedom - 2.0) if self.freedom > 2.0 else np.inf
        return factor * self.spread(x), np.full(len(x), factor * self.variance)

    def log_density(self, x: Array, y: Array, event: Array) -> Array:
        """Return ln p(y | x) (n,), of Student's distribution with the scale of `intervals`."""
        return log_student(y - self.decision(x), self.variance + self.spread(x), self.freedom)

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, the residual standard deviation with its interval, and checks."""
        half = (1.0 - self.level) / 2.0
        low, high = (self.rate / float(gammaincinv(self.shape, p)) for p in (1.0 - half, half))
        scale = float(np.sqrt(self.covariance[0, 0]))
        one = np.array([self.intercept])
        row = credible_rows(["intercept"], one, np.array([scale]), self.level, "", self.freedom)[0]
        sigma = {"name": "residual sd", "value": float(np.sqrt(self.variance))}
        return [
            of_intercept(row, self.LINK),
            sigma | {"low": float(np.sqrt(low)), "high": float(np.sqrt(high))},
            *self.checks,
        ]

    def meta(self) -> dict[str, Any]:
        """Return names, rows, level, a and b."""
        return super().meta() | {"shape": self.shape, "rate": self.rate}

    @classmethod
    def _restored(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> dict[str, Any]:
        own = {name: float(meta[name]) for name in ("shape", "rate")}
        return super()._restored(arrays, meta) | own


@dataclass(frozen=True, kw_only=True, eq=False)
class BayesLogisticModel(Posterior):
    """P(y = 1 | f) = 1/(1 + e^−f), with (b₀, β) normal.

    Attributes
    ----------
    log_evidence : logarithm of the probability of the outcomes under the prior, approximate.
    rounds : number of rounds.
    third : third cumulants (p + 1, p + 1, p + 1) of (b₀, β); (0, 0, 0) of a normal posterior.
    """

    log_evidence: float
    rounds: int
    third: Array = field(default_factory=lambda: np.zeros((0, 0, 0)))

    LINK = "logit"
    RATIO = "odds_ratio"

    def predict(self, x: Array) -> Array:
        """Return the probability of class 1 (n,), the mean over the posterior."""
        return probability(self.decision(x), self.spread(x))[0]

    def intervals(self, x: Array, level: float) -> Array:
        """Return the interval (n, 2) that holds a row's probability of class 1 with `level`."""
        s, f = np.sqrt(self.spread(x)), self.decision(x)
        skew = self._skewness(np.column_stack([np.ones(len(f)), np.asarray(x, float)]), s)
        ends = (quantile(p, skew) for p in (0.5 - level / 2, 0.5 + level / 2))
        return expit(np.column_stack([f + s * z for z in ends]))

    def _skewness(self, z: Array, scale: Array) -> Array:
        """Return the skewness (n,) of zᵀ(b₀, β), of standard deviations `scale` (n,)."""
        return skewness_along(self.third, z, scale) if len(self.third) else np.zeros(len(scale))

    def summary(self) -> list[Row]:
        """Return the rows of `Posterior.summary`, with the skewness in the intervals."""
        return [self._skewed(row, j + 1) for j, row in enumerate(super().summary())]

    def _skewed(self, row: Row, j: int) -> Row:
        """Return a row with the interval of one of (b₀, β), by Cornish and Fisher."""
        if not len(self.third):
            return row
        m, s = float(self._mean[j]), math.sqrt(self.covariance[j, j])
        skew = self._skewness(np.eye(len(self.covariance))[j : j + 1], np.array([s]))
        ends = (0.5 - self.level / 2, 0.5 + self.level / 2)
        low, high = (m + s * float(quantile(p, skew)[0]) for p in ends)
        row = row | {"low": low, "high": high, "above_0": float(above(np.array([-m / s]), skew)[0])}
        if "or_low" in row:
            row |= {"or_low": math.exp(min(low, 709.0)), "or_high": math.exp(min(high, 709.0))}
        return row

    def uncertainty(self, x: Array) -> tuple[Array, Array]:
        """Return Var P and E P(1 − P) (n,), P the probability; their sum is that of the class."""
        mean, variance = probability(self.decision(x), self.spread(x))
        return variance, mean * (1.0 - mean) - variance

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept with its credible interval, and checks."""
        scale = float(np.sqrt(self.covariance[0, 0]))
        one = np.array([self.intercept])
        row = credible_rows(["intercept"], one, np.array([scale]), self.level, "")[0]
        return [of_intercept(self._skewed(row, 0), self.LINK), *self.checks]

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of a posterior, and third cumulants."""
        return super().arrays() | ({"third": self.third} if len(self.third) else {})

    def meta(self) -> dict[str, Any]:
        """Return names, rows, level, evidence and rounds."""
        return super().meta() | {"log_evidence": self.log_evidence, "rounds": self.rounds}

    @classmethod
    def _restored(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> dict[str, Any]:
        own: dict[str, Any] = {"log_evidence": float(meta["log_evidence"])}
        own |= {"rounds": int(meta["rounds"])}
        own |= {"third": arrays["third"]} if "third" in arrays else {}
        return super()._restored(arrays, meta) | own


def log_student(away: Array, squared: Array, freedom: float) -> Array:
    """Return ln of Student's density at distances from its location, with squared scales."""
    half = (freedom + 1.0) / 2.0
    constant = gammaln(half) - gammaln(freedom / 2.0) - 0.5 * np.log(freedom * np.pi * squared)
    return constant - half * np.log1p(away**2 / (freedom * squared))


def of_intercept(row: Row, link: str, more: str = "") -> Row:
    """Return the row of the intercept among a model's parameters; its note ends in `more`."""
    kept = {key: row[key] for key in ("standard_error", "low", "high")}
    note = "; ".join(filter(None, (predicted(link), more)))
    return {"name": "intercept", "value": row["coefficient"], "note": note} | kept
