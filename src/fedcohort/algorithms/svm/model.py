"""A fitted support vector machine: the margin of a row, and its probability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from fedcohort.arrays import Array
from fedcohort.numerics.parameters import PREDICTOR
from fedcohort.protocol import Fitted, Row


@dataclass(frozen=True, eq=False)
class SvmModel(Fitted):
    """A row is of class 1 where its decision value b₀ + xᵀβ is above 0.

    Attributes
    ----------
    features : names of the covariates, in order, (p,).
    intercept : b₀, in margins.
    coefficients : β (p,), margins per unit of the covariate.
    shift, slope : P(y = 1) = 1/(1 + exp(−shift − slope · decision value)).
    objective : the averaged hinge loss and its penalty at the fit.
    rounds : of ADMM.
    rows : records at all sites.
    """

    features: tuple[str, ...]
    intercept: float
    coefficients: Array
    shift: float
    slope: float
    objective: float
    rounds: int
    rows: int

    @property
    def coef_(self) -> Array:
        """The coefficients β (p,), under scikit-learn's name."""
        return self.coefficients

    @property
    def intercept_(self) -> float:
        """The intercept b₀, under scikit-learn's name."""
        return self.intercept

    @property
    def n_iter_(self) -> int:
        """The rounds of ADMM, under scikit-learn's name."""
        return self.rounds

    def decision(self, x: Array) -> Array:
        """Return the decision value of each row of x (n, p): (n,), in margins."""
        return self.intercept + np.asarray(x, float) @ self.coefficients

    def predict(self, x: Array) -> Array:
        """Return the probability of class 1 of each row of x (n, p): (n,)."""
        return expit(self.shift + self.slope * self.decision(x))

    def summary(self) -> list[Row]:
        """Return one row per covariate; a support vector machine has no standard errors."""
        pairs = zip(self.features, self.coefficients.tolist(), strict=True)
        return [{"covariate": name, "coefficient": beta} for name, beta in pairs]

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, and what turns a decision value into a probability."""
        note = (
            f"{PREDICTOR}, the decision value; the probability is 1/(1 + exp(−shift − slope × f))"
        )
        return [
            {"name": "intercept", "value": self.intercept, "note": note},
            {"name": "shift", "value": self.shift},
            {"name": "slope", "value": self.slope},
        ]

    def arrays(self) -> dict[str, Array]:
        """Return b₀, β, and the shift and slope of the probabilities."""
        return {
            "intercept": np.array(self.intercept),
            "coefficients": self.coefficients,
            "platt": np.array([self.shift, self.slope]),
        }

    def meta(self) -> dict[str, Any]:
        """Return names, rows, rounds and the objective."""
        return {
            "features": list(self.features),
            "objective": self.objective,
            "rounds": self.rounds,
            "rows": self.rows,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> SvmModel:
        """Rebuild the model from what `arrays` and `meta` returned."""
        shift, slope = arrays["platt"]
        return cls(
            features=tuple(meta["features"]),
            intercept=float(arrays["intercept"]),
            coefficients=arrays["coefficients"],
            shift=float(shift),
            slope=float(slope),
            objective=float(meta["objective"]),
            rounds=int(meta["rounds"]),
            rows=int(meta["rows"]),
        )
