"""Fitted support vector machine: decision values and probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from fedcohort.arrays import Array
from fedcohort.numerics.parameters import PREDICTOR
from fedcohort.protocol import Row
from fedcohort.training.linear.linear_model import LinearFit


@dataclass(frozen=True, kw_only=True, eq=False)
class SvmModel(LinearFit):
    """A row is of class 1 if its decision value b₀ + xᵀβ, in margins, is above 0.

    Attributes
    ----------
    shift, slope : P(y = 1) = 1/(1 + exp(−shift − slope · decision value)).
    objective : mean hinge loss plus penalty at the fit.
    rounds : of ADMM.
    """

    shift: float
    slope: float
    objective: float
    rounds: int

    @property
    def n_iter_(self) -> int:
        """The rounds of ADMM, under scikit-learn's name."""
        return self.rounds

    def predict(self, x: Array) -> Array:
        """Return the probability of class 1 (n,) of each row of x (n, p)."""
        return expit(self.shift + self.slope * self.decision(x))

    def parameters(self, times: Array) -> list[Row]:
        """Return the intercept, and the shift and slope of the probability."""
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
        return {**super().arrays(), "platt": np.array([self.shift, self.slope])}

    def meta(self) -> dict[str, Any]:
        """Return names, rows, rounds and the objective."""
        return {**super().meta(), "objective": self.objective, "rounds": self.rounds}

    @classmethod
    def _restored(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> dict[str, Any]:
        shift, slope = arrays["platt"].tolist()
        own = {
            "shift": shift,
            "slope": slope,
            "objective": float(meta["objective"]),
            "rounds": int(meta["rounds"]),
        }
        return super()._restored(arrays, meta) | own
