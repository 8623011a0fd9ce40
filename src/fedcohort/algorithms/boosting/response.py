"""Predictions from a booster's margins, by objective, as in XGBoost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import expit, ndtr, softmax

from fedcohort.arrays import Array
from fedcohort.numerics.survival import LARGEST

#: XGBoost's objective for each loss of `objectives`.
OBJECTIVES: Mapping[str, str] = {
    "logistic": "binary:logistic", "softmax": "multi:softprob", "squared": "reg:squarederror",
    "poisson": "count:poisson", "cox": "survival:cox", "weibull": "survival:aft",
}  # fmt: skip
#: Distributions of the error ε of survival:aft; that of a Weibull time is "extreme".
DISTRIBUTIONS = ("normal", "logistic", "extreme")
_EXPONENTIAL = ("count:poisson", "survival:cox", "survival:aft")


@dataclass(frozen=True)
class Objective:
    """An objective of XGBoost.

    Attributes
    ----------
    name : a value of `OBJECTIVES`.
    distribution : of ε in log T = F + σ ε (survival:aft), of `DISTRIBUTIONS`.
    sigma : σ > 0 of survival:aft.

    Raises
    ------
    ValueError : an unknown name or distribution, or a σ that is not above 0.
    """

    name: str
    distribution: str = "extreme"
    sigma: float = 1.0

    def __post_init__(self):
        if self.name not in OBJECTIVES.values() or self.distribution not in DISTRIBUTIONS:
            raise ValueError(f"unknown objective {self.name!r:.40}, {self.distribution!r:.40}")
        if not 0 < self.sigma < math.inf:
            raise ValueError(f"sigma is {self.sigma:g}, not above 0")

    @property
    def several(self) -> bool:
        """Whether a booster has a margin for each class."""
        return self.name == "multi:softprob"

    @classmethod
    def of_loss(cls, loss: str, sigma: float = 1.0) -> Self:
        """Return the objective of a loss, a key of `OBJECTIVES`."""
        return cls(name=OBJECTIVES[loss], sigma=sigma)

    def predicted(self, margin: Array) -> Array:
        """Return XGBoost's prediction for margins (n, K): (n, K) of classes, otherwise (n,).

        A probability, a value, a mean count, a hazard ratio (survival:cox) or a time
        (survival:aft).
        """
        if self.several:
            return softmax(margin, axis=1)
        if self.name == "binary:logistic":
            return expit(margin[:, 0])
        if self.name in _EXPONENTIAL:
            return np.exp(np.minimum(margin[:, 0], LARGEST))
        return margin[:, 0]

    def survival(self, margin: Array, times: Array) -> Array:
        """Return P(T > t) of survival:aft for margins (n, 1) and times (m,): (n, m)."""
        with np.errstate(divide="ignore"):
            z = (np.log(np.asarray(times, float)) - margin) / self.sigma
        if self.distribution == "normal":
            return ndtr(-z)
        if self.distribution == "logistic":
            return expit(-z)
        return np.exp(-np.exp(np.minimum(z, LARGEST)))

    def median(self, margin: Array) -> Array:
        """Return the median time (n,) of survival:aft for margins (n, 1)."""
        middle = math.log(math.log(2.0)) if self.distribution == "extreme" else 0.0
        return np.exp(np.minimum(margin[:, 0] + self.sigma * middle, LARGEST))

    def score(self, margin: float) -> float:
        """Return XGBoost's base score of a margin, in units of the prediction."""
        if self.several:
            return margin
        return float(self.predicted(np.array([[margin]]))[0])

    def margin(self, score: float) -> float:
        """Return the margin of a base score, rounded as XGBoost does; inf out of range."""
        with np.errstate(over="ignore"):
            rounded = np.float32(score)
        if self.name == "binary:logistic":
            return -float(np.log(1 / rounded - 1)) if 0 < rounded < 1 else math.inf
        if self.name in _EXPONENTIAL:
            return float(np.log(rounded)) if 0 < rounded < math.inf else math.inf
        return float(rounded)
