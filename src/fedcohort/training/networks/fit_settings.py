"""Settings of one network trained by any strategy, alone, personal or private."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedcohort.protocol import changed, setting
from fedcohort.training.heterogeneity import KINDS
from fedcohort.training.networks import settings as averages
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import RULES
from fedcohort.training.networks.settings import (
    AveragingSettings,
    PredictorSettings,
    ValidatedSettings,
    VisitSettings,
    kept_rounds,
)
from fedcohort.training.networks.validated import VALIDATION
from fedcohort.training.personal import PARTED
from fedcohort.training.personal.settings import MaybeOwnSettings, WaySettings

#: Strategies that average models, and three that do not.
STRATEGIES = (*averages.STRATEGIES, "sequential", "ensemble", "exact")
#: `optimiser_state` by strategy that averages no models. The optimiser of exact is one, at the
#: coordinator, and always goes on; a site alone can keep its own.
CONTINUED = {"sequential": ("fresh",), "ensemble": ("fresh", "kept"), "exact": ("fresh",)}
#: What `monitor` is where the coordinator may also look at the sites' models.
MONITORS = (
    "Record the heterogeneity statistic R in each round: from gradients of the common model on "
    "parts of the sites' rows, from its loss there, or (validation) from the loss of each site's "
    "model on the coordinator's own rows. none turns it off. A personal model then begins once "
    "sites differ"
)
#: `Settings.alone` of these settings.
ALONE = {
    "aggregation": "mean", "monitor": "none", "halt": False, "personal": "none", "user": "",
    "compression": "none",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StrategySettings(ValidatedSettings, AveragingSettings, MaybeOwnSettings):
    """Settings of `networks.fits`."""

    strategy: str = changed(AveragingSettings, "strategy", choices=STRATEGIES)
    rounds: int = changed(
        VisitSettings, "rounds", default=60, doc="Federated epochs; for exact, optimiser steps"
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
    monitor: str = changed(WaySettings, "monitor", doc=MONITORS, choices=(*KINDS, VALIDATION))
    keep_rounds: tuple[int, ...] = setting(
        (), "Keep the model after each of these rounds", "rounds", within="[1, inf)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        one = f"as strategy {self.strategy!r} averages no models"
        self.check(
            ("monitor", self.monitor == "none" or self.averages, f"none, {one}"),
            ("aggregation", self.aggregation == "mean" or self.averages, f"mean, {one}"),
            ("optimiser_state", self.averages or self.optimiser_state in CONTINUED[self.strategy],
             f"{' or '.join(CONTINUED.get(self.strategy, ()))} with strategy {self.strategy!r}"),
            ("compression", self.compression == "none" or self.averages, f"none, {one}"),
            ("optimiser_state", self.optimiser_state == "fresh" or not self.validated,
             f"fresh with {self.validated}"),
            ("compression", self.compression == "none" or not self.validated,
             f"none with {self.validated}"),
        )  # fmt: skip
        self.check_halt(monitor=self.monitor, personal=self.personal, patience=self.patience)
        self.check(
            ("keep_rounds", not (self.halt and self.keep_rounds), "none with halt"),
            ("lr_rule", not self.halt or self.lr_rule != "plateau",
             "another with halt: plateau looks at the common model"),
        )  # fmt: skip
        self.check_personal()
        deep = self.personal not in PARTED or self.layered
        self.check(("hidden", deep, f"one width or more: {self.personal} needs a layer to be own"))

    @property
    def averages(self) -> bool:
        """Whether the strategy averages models."""
        return self.strategy in RULES

    @property
    def layered(self) -> bool:
        """Whether the network has a layer besides the last."""
        return bool(self.hidden)

    @property
    def schedule(self) -> Schedule:
        """Rounds, learning rate, and the rounds whose models are kept."""
        return replace(super().schedule, keep=kept_rounds(self.keep_rounds, self.rounds))


@dataclass(frozen=True, kw_only=True)
class FitSettings(StrategySettings):
    """Settings of `networks.fits` and `networks.private_fits`."""

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

    @property
    def private_batches(self) -> int:
        """Mini-batches of a private pass."""
        return 1
