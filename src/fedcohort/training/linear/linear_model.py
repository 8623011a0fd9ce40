"""Fitted linear predictor, f = b₀ + xᵀβ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.parameters import predicted
from fedcohort.protocol import Fitted, Row


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearFit(Fitted):
    """Linear predictor without standard errors; subclasses define the prediction.

    Attributes
    ----------
    features : names of the covariates, in order, (p,).
    intercept : b₀, the linear predictor at x = 0.
    coefficients : β (p,), per unit of the covariate.
    rows : records at all sites.
    caution : few records that sums of the fit told about; "" for a model read from a file.
    """

    features: tuple[str, ...]
    intercept: float
    coefficients: Array
    rows: int
    caution: str = ""

    #: Link from f to a prediction, see `numerics.parameters`.
    LINK = "identity"

    @property
    def coef_(self) -> Array:
        """The coefficients β (p,), under scikit-learn's name."""
        return self.coefficients

    @property
    def intercept_(self) -> float:
        """The intercept b₀, under scikit-learn's name."""
        return self.intercept

    def decision(self, x: Array) -> Array:
        """Return the linear predictor (n,) of rows x (n, p)."""
        return self.intercept + np.asarray(x, float) @ self.coefficients

    def predict(self, x: Array) -> Array:
        """Return the predicted value (n,) of rows x (n, p)."""
        return self.decision(x)

    def summary(self) -> list[Row]:
        """Return the coefficient of each covariate."""
        pairs = zip(self.features, self.coefficients.tolist(), strict=True)
        return [{"covariate": name, "coefficient": beta} for name, beta in pairs]

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, and the formula of a prediction."""
        return [{"name": "intercept", "value": self.intercept, "note": predicted(self.LINK)}]

    def cautions(self) -> tuple[str, ...]:
        """Return a caution if sums of the fit told about few records."""
        return (self.caution,) if self.caution else ()

    def arrays(self) -> dict[str, Array]:
        """Return b₀ and β."""
        return {"intercept": np.array(self.intercept), "coefficients": self.coefficients}

    def meta(self) -> dict[str, Any]:
        """Return names and rows."""
        return {"features": list(self.features), "rows": self.rows}

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from what `arrays` and `meta` returned."""
        return cls(**cls._restored(arrays, meta))

    @classmethod
    def _restored(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of this class."""
        return {
            "features": tuple(meta["features"]),
            "intercept": float(arrays["intercept"]),
            "coefficients": arrays["coefficients"],
            "rows": int(meta["rows"]),
        }
