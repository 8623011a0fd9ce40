"""A fitted logistic regression: coefficients with their uncertainty, and probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, expit

from fedcohort.arrays import Array
from fedcohort.numerics.wald import ratio_rows
from fedcohort.protocol import Fitted, Row


@dataclass(frozen=True, eq=False)
class LogisticModel(Fitted):
    """P(y = 1 | x) = 1/(1 + exp(−b₀ − xᵀβ)).

    Attributes
    ----------
    features : names of the covariates, in order, (p,).
    intercept : b₀, log odds at x = 0.
    coefficients : β (p,), log odds ratio per unit of the covariate.
    covariance : (p + 1, p + 1) of (b₀, β), inverse of the penalised information.
    log_likelihood, null_log_likelihood : without the penalty, at the fit and without covariates.
    rows : records at all sites.
    ones : those of class 1; None of a model that was read from a file, which leaves them out.
    level : coverage of the intervals in `summary`.
    """

    features: tuple[str, ...]
    intercept: float
    coefficients: Array
    covariance: Array
    log_likelihood: float
    null_log_likelihood: float
    rows: int
    ones: int | None
    level: float

    @property
    def standard_errors(self) -> Array:
        """Standard errors of (b₀, β), (p + 1,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def deviance(self) -> float:
        """−2 log-likelihood, which is the deviance of 0/1 records."""
        return -2.0 * self.log_likelihood

    @property
    def null_deviance(self) -> float:
        """The deviance without covariates."""
        return -2.0 * self.null_log_likelihood

    @property
    def likelihood_ratio(self) -> tuple[float, float]:
        """The test of β = 0: its χ² on p degrees of freedom, and p-value (no ridge penalty)."""
        statistic = self.null_deviance - self.deviance
        return statistic, float(chdtrc(len(self.features), max(statistic, 0.0)))

    def predict(self, x: Array) -> Array:
        """Return the probability of class 1 of each row of x (n, p): (n,)."""
        return expit(self.intercept + np.asarray(x, float) @ self.coefficients)

    def summary(self) -> list[Row]:
        """Return one row per covariate; ``low``, ``high`` are Wald's, of the coefficient."""
        return ratio_rows(
            self.features, self.coefficients, self.standard_errors[1:], self.level, "odds_ratio"
        )

    def arrays(self) -> dict[str, Array]:
        """Return b₀, β and their covariance."""
        return {
            "intercept": np.array(self.intercept),
            "coefficients": self.coefficients,
            "covariance": self.covariance,
        }

    def meta(self) -> dict[str, Any]:
        """Return names, rows, log-likelihoods and the level of the intervals."""
        return {
            "features": list(self.features),
            "log_likelihood": self.log_likelihood,
            "null_log_likelihood": self.null_log_likelihood,
            "rows": self.rows,
            "level": self.level,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> LogisticModel:
        """Rebuild the model from what `arrays` and `meta` returned."""
        return cls(
            features=tuple(meta["features"]),
            intercept=float(arrays["intercept"]),
            coefficients=arrays["coefficients"],
            covariance=arrays["covariance"],
            log_likelihood=float(meta["log_likelihood"]),
            null_log_likelihood=float(meta["null_log_likelihood"]),
            rows=int(meta["rows"]),
            ones=None,
            level=float(meta["level"]),
        )
