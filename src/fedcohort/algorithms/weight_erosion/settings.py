"""Settings of Weight Erosion, and what training makes of them."""

from __future__ import annotations

from dataclasses import dataclass

from fedcohort.algorithms.weight_erosion.erosion import AGAINST, Erosion
from fedcohort.algorithms.weight_erosion.gradient import VISITS
from fedcohort.models.layers import ACTIVATIONS
from fedcohort.models.predictor import MODELS, model_of, rate_of, spec_of
from fedcohort.protocol import Task, check_settings, setting
from fedcohort.training.networks.plan import Plan


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
    against: str = setting(
        "gradient",
        "what a distance is measured by: the length of the user's gradient (the paper's), or what "
        "chance alone makes of it (noise), in the square, less that of both sites",
        choices=AGAINST,
    )
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
            (
                "against",
                self.against == "gradient" or self.visit != "local",
                "'gradient' where 'visit' is 'local', which has no variance of a gradient",
            ),
            method="weight_erosion",
        )  # fmt: skip

    def model_of(self, task: Task) -> str:
        """Return the model that is asked for, or that the outcome suggests.

        Raises
        ------
        SettingError : it does not go with the outcome.
        """
        return model_of(self.model, task, "weight_erosion")

    def rate_of(self, model: str) -> float:
        """Return η."""
        return rate_of(self.learning_rate, model, self.hidden)

    @property
    def erosion(self) -> Erosion:
        """How fast weights fall."""
        return Erosion(distance=self.p_d, size=self.p_s, against=self.against)

    def plan(self, features: int, model: str) -> Plan:
        """Return what is asked of each site, about so many columns."""
        return Plan(
            network=spec_of(model, features, self.hidden, self.activation),
            loss=model,
            epochs=self.internal_epochs if self.visit == "local" else 1,
            batch_size=0 if self.visit == "full" else self.batch_size,
            optimiser="sgd",
            l2=self.l2,
        )
