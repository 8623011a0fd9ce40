"""Settings of DeepCox, and what training makes of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedcohort.arrays import Array
from fedcohort.data.prepare.timegrid import check_rule
from fedcohort.models.network import ACTIVATIONS, Mlp
from fedcohort.protocol import SettingError, setting
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import RULES, Server
from fedcohort.training.personal import PARTED
from fedcohort.training.personal.settings import MaybeOwnSettings
from fedcohort.training.robust import AGGREGATIONS, Aggregation

STRATEGIES = (
    "fedavg", "fedprox", "fedadam", "fedyogi", "sequential", "ensemble", "exact",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DeepCoxSettings(MaybeOwnSettings):
    """Settings of one fit."""

    strategy: str = setting("fedavg", "how sites learn together", choices=STRATEGIES)
    rounds: int = setting(60, "federated epochs; for exact, optimiser steps", "rounds")
    internal_epochs: int = setting(5, "passes over a site's rows in one round", "epochs")
    internal_batches: int = setting(1, "mini-batches in one pass; 1 takes all rows at once")
    learning_rate: float = setting(0.01, "η of the optimiser in the first round")
    lr_rule: str = setting(
        "d62", "d62: max(η/√(i+1), 0.001) when the loss rises", choices=("d62", "constant")
    )
    optimiser: str = setting(
        "adam", "of each site; for exact, of the coordinator", choices=tuple(OPTIMISERS)
    )
    hidden: tuple[int, ...] = setting((8, 4), "widths of the hidden layers", "units")
    activation: str = setting("selu", "after each hidden layer", choices=tuple(ACTIVATIONS))
    dropout: float = setting(0.0, "probability that a hidden unit is silent in a step")
    l1: float = setting(0.0, "λ₁ on the first layer's weights, loss averaged over rows")
    l2: float = setting(0.0, "λ₂ on the first layer's weights, loss averaged over rows")
    mu: float = setting(0.1, "μ of fedprox: pull towards the round's common model")
    server_learning_rate: float = setting(0.01, "η of fedadam and fedyogi at the coordinator")
    beta1: float = setting(0.9, "β₁ of fedadam and fedyogi")
    beta2: float = setting(0.99, "β₂ of fedadam and fedyogi")
    tau: float = setting(0.001, "τ of fedadam and fedyogi, least size of a parameter's change")
    aggregation: str = setting(
        "mean",
        "what averaging strategies take of the sites' models; all but mean withstand sites that "
        "lie, and see each site's model, so that they exclude masked sums",
        choices=AGGREGATIONS,
    )
    trim: float = setting(0.2, "β of trimmed_mean: part of the sites left out at either end")
    byzantine: int = setting(1, "f of krum and multi_krum: sites that may lie", "sites")
    norm_bound: float | None = setting(
        None, "M of norm_bound: longest update of a site; null: the median of each round's"
    )
    patience: int | None = setting(
        None, "stop after so many rounds without a better held-out loss; null: never", "rounds"
    )
    validation_fraction: float = setting(0.2, "rows of each site held out where patience is set")
    keep_rounds: tuple[int, ...] = setting(
        (), "keep the model after each of these rounds", "rounds"
    )
    time_grid: str | int = setting(
        "protected", "protected, exact, or a number of intervals: where risk sets are summed"
    )
    dp_groups: int = setting(
        128, "random groups that a site's records are dealt into in a private pass", "groups"
    )
    dp_sampling: float = setting(1.0, "probability that a record is in a private pass, up to 1")
    dp_rounds: int | None = setting(
        None,
        "rounds of a private fit; null: rounds, or fewer at a small ε: 8√ε noisy steps in all",
        "rounds",
    )
    dp_learning_rate: float = setting(
        1.5,
        "η of a private fit that protects records, in place of learning_rate and optimiser: plain "
        "steps along the mean of clipped gradients, in units of the clip",
    )
    dtype: str = setting("float64", "of the network", choices=("float64", "float32"))
    device: str = setting("cpu", "where the network computes", choices=("cpu", "cuda"))

    def __post_init__(self) -> None:
        check_rule(self.time_grid)
        for name in ("rounds", "internal_epochs", "internal_batches", "learning_rate", "tau"):
            self._must(name, getattr(self, name) > 0, "above 0")
        for name in ("l1", "l2", "mu", "server_learning_rate"):
            self._must(name, getattr(self, name) >= 0, "0 or more")
        for name in ("dropout", "beta1", "beta2"):
            self._must(name, 0 <= getattr(self, name) < 1, "from 0 to below 1")
        watched = self.monitor == "none" or self.strategy in RULES
        self._must("monitor", watched, f"none, as strategy {self.strategy!r} averages no models")
        self._must("trim", 0 <= self.trim < 0.5, "from 0 to below 0.5")
        self._must("byzantine", self.byzantine >= 0, "0 or more")
        bound = self.norm_bound
        self._must("norm_bound", bound is None or bound > 0, "above 0, or null")
        plain = self.aggregation == "mean" or self.strategy in RULES
        self._must("aggregation", plain, f"mean, as strategy {self.strategy!r} averages no models")
        self._must("patience", self.patience is None or self.patience > 0, "above 0, or null")
        self._must("dp_groups", self.dp_groups > 0, "a whole number above 0")
        rounds = self.dp_rounds
        self._must("dp_rounds", rounds is None or rounds > 0, "a whole number above 0, or null")
        self._must("dp_learning_rate", self.dp_learning_rate > 0, "above 0")
        self._must("dp_sampling", 0 < self.dp_sampling <= 1, "above 0, up to 1")
        self._must("validation_fraction", 0 < self.validation_fraction < 1, "between 0 and 1")
        self._must("hidden", all(w > 0 for w in self.hidden), "whole numbers above 0")
        self._must("keep_rounds", all(r > 0 for r in self.keep_rounds), "whole numbers above 0")
        self.check_personal(
            "deepcox", strategy=self.strategy, aggregation=self.aggregation, patience=self.patience
        )
        deep = self.personal not in PARTED or bool(self.hidden)
        self._must("hidden", deep, f"one width or more: {self.personal} needs a layer to be own")

    def _must(self, name: str, holds: bool, be: str) -> None:
        if not holds:
            raise SettingError(
                f"setting {name!r} of method 'deepcox' is {getattr(self, name)!r}; give a value "
                f"that is {be}."
            )

    def plan(self, n_features: int) -> Plan:
        """Return what is asked of each site."""
        net = Mlp(
            inputs=n_features,
            hidden=self.hidden,
            activation=self.activation,
            dropout=self.dropout,
            intercept=False,
        )
        return Plan(
            network=net.spec,
            loss="cox",
            epochs=self.internal_epochs,
            batches=self.internal_batches,
            optimiser=self.optimiser,
            l1=self.l1,
            l2=self.l2,
            mu=self.mu if self.strategy == "fedprox" else 0.0,
            validation_fraction=0.0 if self.patience is None else self.validation_fraction,
            dtype=self.dtype,
            device=self.device,
        )

    @property
    def centre(self) -> Aggregation:
        """What averaging strategies take of the sites' models."""
        return Aggregation(
            name=self.aggregation,
            trim=self.trim,
            byzantine=self.byzantine,
            norm_bound=self.norm_bound,
        )

    def least_cell(self, min_cell: int) -> int:
        """Return the deaths that an interval of the grid needs, so that the rows trained on and
        those held out are each expected to have `min_cell` of them.
        """
        f = self.validation_fraction
        return min_cell if self.patience is None else math.ceil(min_cell / min(f, 1.0 - f))

    @property
    def schedule(self) -> Schedule:
        """How long, and how fast."""
        return Schedule(
            rounds=self.rounds,
            learning_rate=self.learning_rate,
            lr_rule=self.lr_rule,
            patience=self.patience,
            keep=tuple(sorted({r for r in self.keep_rounds if r < self.rounds})),
        )

    def server(self, theta: Array) -> Server:
        """Return the server optimiser's state before the first round, at θ (P,)."""
        return Server.at(
            theta,
            rate=self.server_learning_rate,
            beta1=self.beta1,
            beta2=self.beta2,
            tau=self.tau,
        )
