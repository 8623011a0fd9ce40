"""Settings of personalised baselines, and what training makes of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedcohort.arrays import Array
from fedcohort.models.layers import ACTIVATIONS
from fedcohort.models.predictor import MODELS, model_of, rate_of, spec_of
from fedcohort.protocol import SettingError, Task, check_settings, setting
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server
from fedcohort.training.personal import PARTED, WAYS, Way, last_layer, of_columns
from fedcohort.training.personal.settings import OwnSettings


@dataclass(frozen=True, kw_only=True)
class PersonalSettings(OwnSettings):
    """Settings of one fit."""

    user: str = setting("", "the site that the model is for; it must be named")
    way: str = setting("finetune", "how the model is made the user's own", choices=WAYS)
    model: str = setting("auto", "what is fitted; auto: by the outcome", choices=("auto", *MODELS))
    hidden: tuple[int, ...] = setting(
        (), "widths of a network's hidden layers; () is a linear predictor", "units"
    )
    activation: str = setting("tanh", "after each hidden layer", choices=tuple(ACTIVATIONS))
    rounds: int = setting(50, "of local training and a mean of models", "rounds")
    internal_epochs: int = setting(5, "passes over a site's rows in one round", "epochs")
    batch_size: int = setting(0, "most rows of a step; 0 takes all of a site's", "rows")
    optimiser: str = setting("sgd", "of each site", choices=tuple(OPTIMISERS))
    learning_rate: float | None = setting(
        None, "η; null: 0.3 of logistic, 0.1 of the other models and of networks"
    )
    l2: float = setting(0.001, "λ₂ on the first layer's weights, loss averaged over rows")
    baseline: bool = setting(
        True,
        "of cox, whether the model has a baseline hazard, and so survival curves; for it all sites "
        "see the user's model",
    )
    own_features: tuple[str, ...] = setting(
        (),
        "fedper and fedrep of a linear predictor: covariates whose coefficients are each site's "
        "own, beside the intercept; of a network the last layer is",
        "columns",
    )
    keep_rounds: tuple[int, ...] = setting(
        (), "tell the user's model after each of these rounds, too", "rounds"
    )

    def __post_init__(self) -> None:
        rate = self.learning_rate
        check_settings(
            self,
            ("hidden", all(w > 0 for w in self.hidden), "whole numbers above 0"),
            ("keep_rounds", all(r > 0 for r in self.keep_rounds), "whole numbers above 0"),
            *((name, getattr(self, name) > 0, "a whole number above 0") for name in (
                "rounds", "internal_epochs",
            )),
            *((name, 0 <= getattr(self, name) < math.inf, "0 or more") for name in (
                "batch_size", "l2",
            )),
            ("learning_rate", rate is None or 0 < rate < math.inf, "a number above 0, or null"),
            method="personal",
        )  # fmt: skip
        self.check_own(self.way, "personal")
        if self.own_features and (self.hidden or self.way not in PARTED):
            raise SettingError(
                "setting 'own_features' of method 'personal' is for way 'fedper' or 'fedrep' of a "
                "linear predictor; leave it out, or set hidden to ()."
            )

    def model_of(self, task: Task) -> str:
        """Return the model that is asked for, or that the outcome suggests.

        Raises
        ------
        SettingError : it does not go with the outcome.
        """
        return model_of(self.model, task, "personal")

    def plan(self, features: int, model: str) -> Plan:
        """Return what is asked of each site, about so many columns."""
        return Plan(
            network=spec_of(model, features, self.hidden, self.activation),
            loss=model,
            epochs=self.internal_epochs,
            batch_size=self.batch_size,
            optimiser=self.optimiser,
            l2=self.l2,
        )

    def way_of(self, features: tuple[str, ...], plan: Plan) -> Way:
        """Return what sites are told of the way.

        Raises
        ------
        SettingError : `own_features` has a name that is no covariate; the names are given.
        """
        own: tuple[tuple[int, int], ...] = ()
        if self.way in PARTED:
            if odd := [name for name in self.own_features if features and name not in features]:
                raise SettingError(
                    f"setting 'own_features' of method 'personal' has {odd[0]!r}, which is no "
                    f"covariate; there are {', '.join(map(repr, features))}."
                )
            columns = [features.index(name) for name in self.own_features if name in features]
            linear = not self.hidden
            own = of_columns(plan.network, columns) if linear else last_layer(plan.network)
        return self.way_by(self.way, own)

    def schedule(self, model: str) -> Schedule:
        """How long, and how fast."""
        return Schedule(
            rounds=self.rounds,
            learning_rate=rate_of(self.learning_rate, model, self.hidden),
            lr_rule="constant",
            keep=tuple(sorted({r for r in self.keep_rounds if r < self.rounds})),
        )


def server(theta: Array) -> Server:
    """Return FedAvg's state at the coordinator, at θ (P,): it takes the mean."""
    return Server.at(theta, rate=1.0, beta1=0.0, beta2=0.0, tau=1.0)
