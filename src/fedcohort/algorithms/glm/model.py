"""A fitted generalised linear model: coefficients, their uncertainty, and expected outcomes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.algorithms.glm.predictor import Predictor
from fedcohort.arrays import Array
from fedcohort.numerics.families import Family
from fedcohort.numerics.parameters import intercept_row
from fedcohort.numerics.wald import ratio_rows
from fedcohort.protocol import Estimates, Row

#: Meaning of exp(β) by family and link; with other links it is no ratio.
RATIOS = {
    ("binomial", "logit"): "odds_ratio",
    ("poisson", "log"): "rate_ratio",
    ("gamma", "log"): "mean_ratio",
    ("gaussian", "log"): "mean_ratio",
}


_SUMS = ("dispersion", "deviance", "null_deviance", "pearson", "log_likelihood")


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value


@dataclass(frozen=True, kw_only=True, eq=False)
class GlmModel(Predictor):
    """E(y | x) = h(η), with variance φ V(μ).

    Attributes
    ----------
    family : distribution of the outcome and its link.
    dispersion : φ; Pearson's χ² over `df_residual` for Gaussian and gamma, otherwise 1.
    deviance, null_deviance : at the fit, and without covariates; without the penalty.
    pearson : Pearson's χ²; above `df_residual` if counts are overdispersed.
    log_likelihood : at the fit; for Gaussian with identity at φ = deviance/rows, as in statsmodels.

    All five numbers are NaN in a private fit.
    """

    family: Family
    dispersion: float
    deviance: float
    null_deviance: float
    pearson: float
    log_likelihood: float

    @property
    def df_residual(self) -> int:
        """Residual degrees of freedom, rows − p − 1."""
        return self.rows - len(self.features) - 1

    @property
    def aic(self) -> float:
        """Akaike's criterion, −2 ℓ + 2 (p + 1), without φ, as in statsmodels."""
        return -2.0 * self.log_likelihood + 2.0 * (len(self.features) + 1)

    def predict(self, x: Array) -> Array:
        """Return the expected outcome (n,) of each row of x (n, p)."""
        return self.family.inverse(self.predictor(x))

    def summary(self) -> list[Row]:
        """Return one row per covariate; ``low`` and ``high`` are Wald's, of the coefficient.

        They use t with `df_residual` degrees of freedom if φ is estimated, otherwise z.
        """
        if self.spread is None:
            ratio = RATIOS.get((self.family.name, self.family.link), "")
            pairs = zip(self.features, self.coefficients.tolist(), strict=True)
            return [
                {"covariate": name, "coefficient": b}
                | ({ratio: math.exp(min(b, 709.0))} if ratio else {})
                for name, b in pairs
            ]
        return ratio_rows(
            self.features,
            self.coefficients,
            self.standard_errors[1:],
            self.level,
            RATIOS.get((self.family.name, self.family.link), ""),
            self.df_residual if self.family.dispersed else math.inf,
        )

    def inference(self) -> Estimates:
        """Return (b₀, β) with their covariance."""
        return self._estimates(RATIOS.get((self.family.name, self.family.link), ""))

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept with its test, and an estimated dispersion."""
        intercept = intercept_row(
            self.intercept,
            None if self.spread is None else float(self.standard_errors[0]),
            self.level,
            self.family.link,
            freedom=self.df_residual if self.family.dispersed else math.inf,
            offset=bool(self.offset),
        )
        if not self.family.dispersed or self.spread is None:
            return [intercept]
        note = "Pearson’s χ² by its degrees of freedom"
        return [intercept, {"name": "dispersion", "value": self.dispersion, "note": note}]

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
            "family": self.family.name,
            "link": self.family.link,
            **{name: _finite(getattr(self, name)) for name in _SUMS},
            "rows": self.rows,
            "rounds": self.rounds,
            "level": self.level,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> GlmModel:
        """Build the model from saved arrays and values."""
        given: dict[str, Any] = {k: math.nan if v is None else v for k, v in meta.items()}
        return cls(
            features=tuple(given.pop("features")),
            family=Family(given.pop("family"), given.pop("link")),
            intercept=float(arrays["intercept"]),
            coefficients=arrays["coefficients"],
            spread=arrays.get("covariance"),
            **given,
        )
