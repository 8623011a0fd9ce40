"""A fitted logistic regression: coefficients, their uncertainty, and probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, expit

from fedcohort.algorithms.glm.predictor import Predictor
from fedcohort.arrays import Array
from fedcohort.numerics.parameters import intercept_row
from fedcohort.numerics.wald import ratio_rows
from fedcohort.protocol import Estimates, Row


@dataclass(frozen=True, kw_only=True, eq=False)
class LogisticModel(Predictor):
    """P(y = 1 | x) = 1/(1 + exp(−η)), η in log odds.

    Attributes
    ----------
    log_likelihood : without the penalty, at the fit; None if sites are weighted equally, and in a
        private fit.
    null_log_likelihood : without covariates; None with ADMM, and in a private fit.
    ones : records of class 1; None with ADMM, in a private fit, and in a model read from a file.
    """

    log_likelihood: float | None
    null_log_likelihood: float | None
    ones: int | None

    @property
    def deviance(self) -> float:
        """The deviance of 0/1 records, −2 log-likelihood; NaN without one."""
        return math.nan if self.log_likelihood is None else -2.0 * self.log_likelihood

    @property
    def null_deviance(self) -> float:
        """The deviance without covariates; NaN without `null_log_likelihood`."""
        value = self.null_log_likelihood
        return math.nan if value is None else -2.0 * value

    @property
    def likelihood_ratio(self) -> tuple[float, float]:
        """χ² (p degrees of freedom) and p-value of the test of β = 0; without a ridge penalty."""
        statistic = self.null_deviance - self.deviance
        return statistic, float(chdtrc(len(self.features), max(statistic, 0.0)))

    @property
    def coef_(self) -> Array:
        """β (1, p), as in scikit-learn."""
        return self.coefficients[None, :]

    def predict(self, x: Array) -> Array:
        """Return the probability (n,) of class 1 of each row of x (n, p)."""
        return expit(self.predictor(x))

    def predict_proba(self, x: Array) -> Array:
        """Return the probabilities (n, 2) of class 0 and 1 of each row of x (n, p)."""
        eta = self.predictor(x)
        return np.column_stack([expit(-eta), expit(eta)])

    def summary(self) -> list[Row]:
        """Return one row per covariate; ``low`` and ``high`` are Wald's, of the coefficient."""
        if self.spread is None:
            pairs = zip(self.features, self.coefficients.tolist(), strict=True)
            return [
                {"covariate": name, "coefficient": b, "odds_ratio": math.exp(min(b, 709.0))}
                for name, b in pairs
            ]
        return ratio_rows(
            self.features, self.coefficients, self.standard_errors[1:], self.level, "odds_ratio"
        )

    def inference(self) -> Estimates:
        """Return (b₀, β) with their covariance."""
        return self._estimates("odds_ratio")

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, with its test if the fit has standard errors."""
        error = None if self.spread is None else float(self.standard_errors[0])
        offset = bool(self.offset)
        return [intercept_row(self.intercept, error, self.level, "logit", offset=offset)]

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to save."""
        spread = {} if self.spread is None else {"covariance": self.spread}
        return {
            "intercept": np.array(self.intercept),
            "coefficients": self.coefficients,
            **spread,
        }

    def meta(self) -> dict[str, Any]:
        """Return the other values to save."""
        return {
            "features": list(self.features),
            "offset": self.offset,
            "log_likelihood": self.log_likelihood,
            "null_log_likelihood": self.null_log_likelihood,
            "rows": self.rows,
            "rounds": self.rounds,
            "level": self.level,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> LogisticModel:
        """Build the model from saved arrays and values."""
        value, null = meta["log_likelihood"], meta["null_log_likelihood"]
        return cls(
            features=tuple(meta["features"]),
            offset=str(meta.get("offset", "")),
            intercept=float(arrays["intercept"]),
            coefficients=arrays["coefficients"],
            spread=arrays.get("covariance"),
            log_likelihood=None if value is None else float(value),
            null_log_likelihood=None if null is None else float(null),
            rows=int(meta["rows"]),
            rounds=int(meta.get("rounds", 0)),
            ones=None,
            level=float(meta["level"]),
        )
