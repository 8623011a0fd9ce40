"""A predictor of one outcome: a perceptron, or without hidden layers a linear predictor with β and
b₀.

    logistic   P(y = 1) = 1/(1 + e^−f)       odds ratio e^β
    softmax    P(y = k) = e^f_k / Σ_c e^f_c  relative-risk ratio e^(β_k − β_0)
    linear     E(y) = f                      —
    poisson    E(y) = e^f                    rate ratio e^β
    cox        log risk f, without b₀        hazard ratio e^β

θ of f = xᵀβ + b₀ is β (p,) and then b₀. softmax has an output for each of K classes, and θ of its
linear predictor is β (K, p) and then b₀ (K,). The data determine only differences between classes.
Gradient descent from 0 keeps the mean of β and of b₀ over classes at 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import expit, softmax

from fedcohort.arrays import Array
from fedcohort.data.classes import Kind
from fedcohort.models.losses import several
from fedcohort.models.network import Mlp, initial, network
from fedcohort.numerics.parameters import class_intercept_rows, class_rows, intercept_row
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import Fitted, NotSupported, Row, SettingError, Task

#: Outcomes of each model.
MODELS: Mapping[str, tuple[str, ...]] = {
    "logistic": ("binary",),
    "linear": ("continuous", "count"),
    "cox": ("survival",),
    "poisson": ("count",),
    "softmax": ("category", "ordinal"),
}
#: Default model of each outcome.
USUAL = {
    "binary": "logistic", "continuous": "linear", "survival": "cox", "count": "poisson",
    "category": "softmax", "ordinal": "softmax",
}  # fmt: skip
#: Default η of gradient descent on standardised covariates.
RATES = {"logistic": 0.3, "linear": 0.1, "cox": 0.1, "poisson": 0.1, "softmax": 0.3}
#: Link of each model.
LINKS = {
    "logistic": "logit", "linear": "identity", "poisson": "log", "cox": "log", "softmax": "logit",
}  # fmt: skip
#: Kinds of records in a loss; `linear` has none.
KINDS: Mapping[str, Kind] = {
    "logistic": "class", "cox": "event", "poisson": "count", "softmax": "class",
}  # fmt: skip
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


def outputs_of(model: str, task: Task) -> int:
    """Return the number of outputs of a model: K of softmax, else 1."""
    return len(task.levels) if model == "softmax" else 1


def loss_name(model: str, outputs: int = 1) -> str:
    """Return the name of a model's loss, for a plan."""
    return several(outputs) if model == "softmax" else model


def spec_of(
    model: str, inputs: int, hidden: tuple[int, ...], activation: str, outputs: int = 1
) -> str:
    """Return the spec of the network of f; the intercept of cox is in its baseline hazard."""
    net = Mlp(
        inputs=inputs,
        hidden=hidden,
        activation=activation,
        intercept=model != "cox",
        outputs=outputs,
    )
    return net.spec


def predicted(model: str, f: Array) -> Array:
    """Return the prediction of a model from its network's outputs f, (n,) or (n, K)."""
    if model == "softmax":
        return softmax(f, axis=1)
    if model == "logistic":
        return expit(f)
    return np.exp(f) if model == "poisson" else f


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
    model : logistic, linear, poisson, cox or softmax.
    network, theta : spec, and θ (P,); for a linear predictor β and then the intercept.
    baseline : for cox, H₀ of the training rows; else None.
    levels : classes of softmax, in the order of their numbers (K,); else ().
    """

    features: tuple[str, ...]
    model: str
    network: str
    theta: Array
    baseline: Baseline | None = None
    levels: tuple[str, ...] = ()

    @property
    def linear(self) -> bool:
        """Whether the predictor is linear, without hidden layers."""
        return not json.loads(self.network)["hidden"]

    @property
    def coefficients(self) -> Array:
        """β (p,) of a linear predictor, (K, p) of softmax, per unit; () for a network."""
        if not self.linear:
            return np.zeros(0)
        p, several = len(self.features), len(self.levels)
        return self.theta[: several * p].reshape(several, p) if several else self.theta[:p]

    @property
    def intercept(self) -> float:
        """b₀ of a linear predictor; 0 for cox, softmax and a network."""
        one = self.linear and self.model not in ("cox", "softmax")
        return float(self.theta[-1]) if one else 0.0

    @property
    def intercepts(self) -> Array:
        """b₀ (K,) of a linear softmax; () for the other models."""
        start = len(self.theta) - len(self.levels) * self.linear
        return self.theta[start:]

    def predict(self, x: Array) -> Array:
        """Return the probability, value, count or log risk of each row of x (n, p): (n,).

        Of softmax, the probability of each class (n, K), in the order of `levels`.
        """
        net = network(self.network)
        net.load(self.theta)
        return predicted(
            self.model, net.outputs(torch.from_numpy(np.array(x, np.float64, order="C")))
        )

    def predict_survival(self, x: Array, times: Array) -> Array:
        """Return P(T > t) for each row of x (n, p) and each of `times` (m,): (n, m)."""
        if self.baseline is None:
            raise NotSupported("predict_survival")
        return self.baseline.survival(self.predict(x), np.asarray(times, float))

    def known_until(self, x: Array) -> Array:
        """Return the time (n,) up to which the survival of each row of x (n, p) is estimated."""
        return np.full(len(x), np.inf if self.baseline is None else self.baseline.end)

    def summary(self) -> list[Row]:
        """Return one row per covariate, without standard errors; none for a network.

        Of softmax one for each class after the first, compared with the first.
        """
        if self.linear and self.levels:
            beta = self.coefficients
            return class_rows(self.features, self.levels, beta[1:] - beta[0])
        ratio = RATIOS.get(self.model, "")
        pairs = zip(self.features, self.coefficients.tolist(), strict=self.linear)
        return [
            {"covariate": name, "coefficient": b}
            | ({ratio: math.exp(min(b, 709.0))} if ratio else {})
            for name, b in pairs
        ]

    def _intercept_rows(self) -> list[Row]:
        """Return the row of the intercept, if there is one; of softmax as `summary`."""
        if self.linear and self.levels:
            return class_intercept_rows(self.levels, self.intercepts[1:] - self.intercepts[0])
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
