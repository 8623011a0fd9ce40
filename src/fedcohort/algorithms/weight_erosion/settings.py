"""Settings of Weight Erosion, and what training makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedcohort.models.layers import ACTIVATIONS
from fedcohort.models.network import Mlp
from fedcohort.protocol import SettingError, Task, check_settings, setting
from fedcohort.training.erosion import VISITS, Erosion
from fedcohort.training.plan import Plan

#: Outcomes that each model is for.
MODELS: Mapping[str, tuple[str, ...]] = {
    "logistic": ("binary",),
    "linear": ("continuous", "count"),
    "cox": ("survival",),
    "poisson": ("count",),
}
#: The usual model of each outcome.
USUAL = {"binary": "logistic", "continuous": "linear", "survival": "cox", "count": "poisson"}
#: η where none is given.
RATES = {"logistic": 0.3, "linear": 0.1, "cox": 0.1, "poisson": 0.1}


@dataclass(frozen=True, kw_only=True)
class ErosionSettings:
    """Settings of one fit."""

    user: str = setting("", "the site that the model is for; it must be named")
    model: str = setting("auto", "what is fitted; auto: by the outcome", choices=("auto", *MODELS))
    hidden: tuple[int, ...] = setting(
        (), "widths of a network's hidden layers; () is a linear predictor", "units"
    )
    activation: str = setting("tanh", "after each hidden layer", choices=tuple(ACTIVATIONS))
    rounds: int = setting(30, "steps of gradient descent", "rounds")
    visit: str = setting(
        "batch",
        "what a site computes in a round: the gradient of a batch, or of all rows (full), or how "
        "far internal_epochs passes in batches move the model (local)",
        choices=VISITS,
    )
    batch_size: int = setting(128, "b: rows of a batch; 0 takes all", "rows")
    internal_epochs: int = setting(1, "passes over a site's rows in a local visit", "epochs")
    learning_rate: float | None = setting(
        None, "η; null: 0.3 of logistic, 0.1 of the other models and of networks"
    )
    p_d: float = setting(0.01, "p_d: weight that a site loses per unit of relative distance")
    p_s: float = setting(0.2, "p_s: how much more of it for each time that its rows were used")
    l2: float = setting(0.001, "λ₂ on the first layer's weights, loss averaged over rows")

    def __post_init__(self) -> None:
        rate = self.learning_rate
        check_settings(
            self,
            ("hidden", all(w > 0 for w in self.hidden), "whole numbers above 0"),
            *((name, getattr(self, name) > 0, "a whole number above 0") for name in (
                "rounds", "internal_epochs",
            )),
            *((name, getattr(self, name) >= 0, "0 or more") for name in (
                "batch_size", "p_d", "p_s", "l2",
            )),
            ("learning_rate", rate is None or rate > 0, "a number above 0, or null"),
            method="weight_erosion",
        )  # fmt: skip

    def model_of(self, task: Task) -> str:
        """Return the model that is asked for, or that the outcome suggests.

        Raises
        ------
        SettingError : it does not go with the outcome.
        """
        known = {"classification": "binary", "regression": "continuous"}
        outcome = task.outcome or known.get(task.kind, task.kind)
        fits = [name for name, outcomes in MODELS.items() if outcome in outcomes]
        if not fits:
            raise SettingError(
                f"method 'weight_erosion' has no model for an outcome of type {outcome!r}; give a "
                f"binary, continuous or count outcome, or times to an event."
            )
        if self.model == "auto":
            return USUAL[outcome]
        if self.model not in fits:
            raise SettingError(
                f"model {self.model!r} does not go with a {outcome} outcome; give "
                f"{' or '.join(map(repr, fits))}, or declare another outcome."
            )
        return self.model

    def rate_of(self, model: str) -> float:
        """Return η."""
        if self.learning_rate is not None:
            return self.learning_rate
        return min(RATES[model], 0.1) if self.hidden else RATES[model]

    @property
    def erosion(self) -> Erosion:
        """How fast weights fall."""
        return Erosion(distance=self.p_d, size=self.p_s)

    def plan(self, features: int, model: str) -> Plan:
        """Return what is asked of each site, about so many columns."""
        net = Mlp(
            inputs=features,
            hidden=self.hidden,
            activation=self.activation,
            intercept=model != "cox",
        )
        return Plan(
            network=net.spec,
            loss=model,
            epochs=self.internal_epochs if self.visit == "local" else 1,
            batch_size=0 if self.visit == "full" else self.batch_size,
            optimiser="sgd",
            l2=self.l2,
        )
