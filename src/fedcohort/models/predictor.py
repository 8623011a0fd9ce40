"""A predictor of one outcome: a perceptron, or without hidden layers a linear predictor with β and
b₀.

    logistic   P(y = 1) = 1/(1 + e^−f)       odds ratio e^β
    linear     E(y) = f                      —
    poisson    E(y) = e^f                    rate ratio e^β
    cox        log risk f, without b₀        hazard ratio e^β

θ of f = xᵀβ + b₀ is β (p,) and then b₀.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import expit

from fedcohort.arrays import Array
from fedcohort.data.classes import Kind
from fedcohort.models.network import Mlp, initial, network
from fedcohort.numerics.parameters import intercept_row
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import Fitted, NotSupported, Row, SettingError, Task

#: Outcomes of each model.
MODELS: Mapping[str, tuple[str, ...]] = {
    "logistic": ("binary",),
    "linear": ("continuous", "count"),
    "cox": ("survival",),
    "poisson": ("count",),
}
#: Default model of each outcome.
USUAL = {"binary": "logistic", "continuous": "linear", "survival": "cox", "count": "poisson"}
#: Default η of gradient descent on standardised covariates.
RATES = {"logistic": 0.3, "linear": 0.1, "cox": 0.1, "poisson": 0.1}
#: Link of each model.
LINKS = {"logistic": "logit", "linear": "identity", "poisson": "log", "cox": "log"}
#: Kinds of records in a loss; `linear` has none.
KINDS: Mapping[str, Kind] = {"logistic": "class", "cox": "event", "poisson": "count"}
#: Name of exp(β).
RATIOS = {"logistic": "odds_ratio", "poisson": "rate_ratio", "cox": "hazard_ratio"}


def model_of(asked: str, task: Task, method: str) -> str:
    """Return the model `asked`; for "auto" the one that the outcome suggests.

    Raises
    ------
    SettingError : the model does not fit the outcome, or `method` has none for it.
    """
    known = {"classification": "binary", "regression": "continuous"}
    outcome = task.outcome or known.get(task.kind, task.kind)
    fits = [name for name, outcomes in MODELS.items() if outcome in outcomes]
    if not fits:
        raise SettingError(
            f"method {method!r} has no model for an outcome of type {outcome!r}; give a binary, "
            f"continuous or count outcome, or times to an event."
        )
    if asked == "auto":
        return USUAL[outcome]
    if asked not in fits:
        raise SettingError(
            f"model {asked!r} does not go with a {outcome} outcome; give "
            f"{' or '.join(map(repr, fits))}, or declare another outcome."
        )
    return asked


def spec_of(model: str, inputs: int, hidden: tuple[int, ...], activation: str) -> str:
    """Return the spec of the network of f; the intercept of cox is in its baseline hazard."""
    net = Mlp(inputs=inputs, hidden=hidden, activation=activation, intercept=model != "cox")
    return net.spec


def start_of(spec: str, seed: int) -> Array:
    """Return the initial θ (P,): 0 for a linear predictor, else drawn."""
    start = initial(spec, seed)
    return start if json.loads(spec)["hidden"] else np.zeros(len(start))


def rate_of(given: float | None, model: str, hidden: tuple[int, ...]) -> float:
    """Return η: the given one, or that of `RATES`, for networks at most 0.1."""
    if given is not None:
        return given
    return min(RATES[model], 0.1) if hidden else RATES[model]


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor(Fitted):
    """A fitted predictor.

    Attributes
    ----------
    features : names of the covariates, in order, (p,).
    model : logistic, linear, poisson or cox.
    network, theta : spec, and θ (P,); for a linear predictor β and then the intercept.
    baseline : for cox, H₀ of the training rows; else None.
    """

    features: tuple[str, ...]
    model: str
    network: str
    theta: Array
    baseline: Baseline | None = None

    @property
    def linear(self) -> bool:
        """Whether the predictor is linear, without hidden layers."""
        return not json.loads(self.network)["hidden"]

    @property
    def coefficients(self) -> Array:
        """β (p,) of a linear predictor, per unit of the covariate; () for a network."""
        return self.theta[: len(self.features)] if self.linear else np.zeros(0)

    @property
    def intercept(self) -> float:
        """b₀ of a linear predictor; 0 for cox and for a network."""
        return float(self.theta[-1]) if self.linear and self.model != "cox" else 0.0

    def predict(self, x: Array) -> Array:
        """Return the probability, value, count or log risk of each row of x (n, p): (n,)."""
        net = network(self.network)
        net.load(self.theta)
        f = net.outputs(torch.from_numpy(np.array(x, np.float64, order="C")))
        if self.model == "logistic":
            return expit(f)
        return np.exp(f) if self.model == "poisson" else f

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) for each row of x (n, p) and each of `times` (m,): (n, m)."""
        if self.baseline is None:
            raise NotSupported("predict_survival")
        return self.baseline.survival(self.predict(x), np.asarray(times, float))

    def known_until(self, x: Array) -> Array:
        """Return the time (n,) up to which the survival of each row of x (n, p) is estimated."""
        return np.full(len(x), np.inf if self.baseline is None else self.baseline.end)

    def summary(self) -> list[Row]:
        """Return one row per covariate, without standard errors; none for a network."""
        ratio = RATIOS.get(self.model, "")
        pairs = zip(self.features, self.coefficients.tolist(), strict=self.linear)
        return [
            {"covariate": name, "coefficient": b}
            | ({ratio: math.exp(min(b, 709.0))} if ratio else {})
            for name, b in pairs
        ]

    def _intercept_rows(self) -> list[Row]:
        """Return the row of the intercept, if there is one."""
        if not self.linear or self.model == "cox":
            return []
        return [intercept_row(self.intercept, None, 0.95, LINKS[self.model])]


def baseline_arrays(baseline: Baseline | None, prefix: str = "") -> dict[str, Array]:
    """Return the arrays of a baseline hazard by name, to be saved with a model."""
    if baseline is None:
        return {}
    return {f"{prefix}times": baseline.times, f"{prefix}cumulative": baseline.cumulative}


def baseline_of(arrays: Mapping[str, Array], prefix: str = "") -> Baseline | None:
    """Rebuild the baseline hazard from `baseline_arrays`; None if there was none."""
    if f"{prefix}times" not in arrays:
        return None
    return Baseline(arrays[f"{prefix}times"], arrays[f"{prefix}cumulative"])
