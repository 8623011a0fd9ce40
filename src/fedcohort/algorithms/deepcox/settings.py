"""Settings of DeepCox."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedcohort.models.network import Mlp
from fedcohort.protocol import changed, setting
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import RULES
from fedcohort.training.networks.settings import (
    AveragingSettings,
    PredictorSettings,
    VisitSettings,
    kept_rounds,
)
from fedcohort.training.personal import PARTED
from fedcohort.training.personal.settings import MaybeOwnSettings
from fedcohort.training.settings import GridSettings

STRATEGIES = (
    "fedavg", "fedprox", "fedadam", "fedyogi", "sequential", "ensemble", "exact",
)  # fmt: skip
#: `optimiser_state` by strategy that averages no models. The optimiser of exact is one, at the
#: coordinator, and always goes on; a site alone can keep its own.
CONTINUED = {"sequential": ("fresh",), "ensemble": ("fresh", "kept"), "exact": ("fresh",)}


@dataclass(frozen=True, kw_only=True)
class DeepCoxSettings(
    GridSettings,
    AveragingSettings,
    MaybeOwnSettings,
    method="deepcox",
    alone={
        "strategy": "exact",
        "time_grid": "exact",
        "aggregation": "mean",
        "monitor": "none",
        "personal": "none",
        "optimiser_state": "fresh",
    },
):
    """Settings of `deepcox`."""

    strategy: str = changed(AveragingSettings, "strategy", choices=STRATEGIES)
    rounds: int = changed(
        VisitSettings, "rounds", default=60, doc="Federated epochs; for exact, optimiser steps"
    )
    internal_batches: int = setting(
        1, "Batches in one epoch; 1: all rows at once", within="[1, inf)"
    )
    learning_rate: float = changed(AveragingSettings, "learning_rate", default=0.01)
    lr_rule: str = changed(
        AveragingSettings,
        "lr_rule",
        default="d62",
        doc="d62: max(η/√(i+1), 0.001) when the loss rises; plateau: η is cut by lr_factor after "
        "lr_patience rounds without a better held-out loss",
        choices=("d62", "constant", "plateau"),
    )
    optimiser: str = changed(
        VisitSettings, "optimiser", doc="Optimiser of each site; for exact, of the coordinator"
    )
    hidden: tuple[int, ...] = changed(
        PredictorSettings, "hidden", default=(8, 4), doc="Widths of the hidden layers"
    )
    activation: str = changed(PredictorSettings, "activation", default="selu")
    dropout: float = setting(
        0.0, "Dropout: probability that a hidden unit is 0 in a step", within="[0, 1)"
    )
    l1: float = setting(
        0.0, "λ₁ on the first layer's weights, loss averaged over rows", within="[0, inf)"
    )
    l2: float = changed(PredictorSettings, "l2", default=0.0)
    keep_rounds: tuple[int, ...] = setting(
        (), "Keep the model after each of these rounds", "rounds", within="[1, inf)"
    )
    dp_groups: int = setting(
        128,
        "Number of random groups of a site's records in a private pass",
        "groups",
        within="[1, inf)",
    )
    dp_sampling: float = setting(
        1.0, "Probability that a record is in a private pass", within="(0, 1]"
    )
    dp_rounds: int | None = setting(
        None,
        "Number of noisy rounds. Default: `rounds`, at most 8√ε steps",
        "rounds",
        within="[1, inf)",
    )
    dp_learning_rate: float = setting(
        1.5,
        "Learning rate η of a private fit that protects records, in units of the clip; replaces "
        "learning_rate and optimiser (plain gradient steps)",
        within="(0, inf)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        one = f"as strategy {self.strategy!r} averages no models"
        averages = self.strategy in RULES
        self.check(
            ("monitor", self.monitor == "none" or averages, f"none, {one}"),
            ("aggregation", self.aggregation == "mean" or averages, f"mean, {one}"),
            ("optimiser_state", averages or self.optimiser_state in CONTINUED[self.strategy],
             f"{' or '.join(CONTINUED.get(self.strategy, ()))} with strategy {self.strategy!r}"),
        )  # fmt: skip
        self.check_personal(
            strategy=self.strategy, aggregation=self.aggregation, patience=self.patience,
            lr_rule=self.lr_rule, optimiser_state=self.optimiser_state,
        )  # fmt: skip
        deep = self.personal not in PARTED or bool(self.hidden)
        self.check(("hidden", deep, f"one width or more: {self.personal} needs a layer to be own"))

    def plan(self, n_features: int) -> Plan:
        """Return the plan that each site trains by."""
        net = Mlp(
            inputs=n_features,
            hidden=self.hidden,
            activation=self.activation,
            dropout=self.dropout,
            intercept=False,
        )
        return self.plan_of(net.spec, "cox", batches=self.internal_batches, l1=self.l1, l2=self.l2)

    def least_cell(self, min_cell: int) -> int:
        """Return the smallest number of deaths in an interval of the grid.

        Training rows and held-out rows are each expected to have `min_cell` of them.
        """
        f = self.validation_fraction
        return min_cell if not self.looks else math.ceil(min_cell / min(f, 1.0 - f))

    @property
    def schedule(self) -> Schedule:
        """Rounds, learning rate, and the rounds whose models are kept."""
        return replace(super().schedule, keep=kept_rounds(self.keep_rounds, self.rounds))
