"""Settings shared by methods that train a network or a predictor."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedcohort.arrays import Array
from fedcohort.models.layers import ACTIVATIONS
from fedcohort.models.predictor import MODELS, model_of, outputs_of, rate_of, spec_of
from fedcohort.protocol import SettingError, Settings, Task, setting
from fedcohort.training.networks.moments import STATES
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import COUNTED_BY, RULES, Schedule
from fedcohort.training.networks.server import Server
from fedcohort.training.networks.thinning import COMPRESSIONS
from fedcohort.training.robust import AGGREGATIONS, Aggregation

#: What leaves a site, in plain words, with averaged optimisers, and with counts of rounds.
MOMENTS = "with each model the state of the site's optimiser, in the same sum"
COUNTS = (
    "each round the sum over sites of how many rounds their held-out rows are without a better "
    "loss, and how many sites have such rows"
)

#: What leaves a site instead of its model, by compression, in plain words.
COMPRESSED = {
    "random_k": "instead of each model a share of its changes, at the same places at all sites",
    "int8": "instead of each model its changes, rounded to 8 bits, and the largest of each block",
    "top_k": "instead of each model every site's own largest changes, which the coordinator sees",
}

#: Help of the rule `plateau`, in every setting `lr_rule`.
PLATEAU = "plateau: η is cut by lr_factor after lr_patience rounds without a better held-out loss"

#: Strategies that average models.
STRATEGIES = ("fedavg", "fedprox", "fedadagrad", "fedadam", "fedyogi")


@dataclass(frozen=True, kw_only=True)
class VisitSettings(Settings):
    """Settings of rounds and local training."""

    rounds: int = setting(100, "Number of rounds of local training", "rounds", within="[1, inf)")
    internal_epochs: int = setting(5, "Epochs per round at each site", "epochs", within="[1, inf)")
    optimiser: str = setting("adam", "Optimiser of each site", choices=tuple(OPTIMISERS))


@dataclass(frozen=True, kw_only=True)
class BatchSettings(VisitSettings):
    """The same, with a batch size."""

    batch_size: int = setting(0, "Batch size; 0: all rows of a site", "rows", within="[0, inf)")


@dataclass(frozen=True, kw_only=True)
class PredictorSettings(Settings):
    """Settings of a predictor of one outcome and its gradient descent (`models.predictor`).

    Attributes
    ----------
    by_class : whether there are coefficients for each class.
    """

    by_class: ClassVar[bool] = True
    model: str = setting("auto", "Model to fit; auto: by the outcome", choices=("auto", *MODELS))
    hidden: tuple[int, ...] = setting(
        (), "Widths of a network's hidden layers; (): a linear predictor", "units",
        within="[1, inf)",
    )  # fmt: skip
    activation: str = setting(
        "tanh", "Activation after each hidden layer", choices=tuple(ACTIVATIONS)
    )
    learning_rate: float | None = setting(
        None, "η; null: 0.3 of logistic and softmax, 0.1 of the other models and of networks",
        within="(0, inf)",
    )  # fmt: skip
    l2: float = setting(
        0.001, "λ₂ on the first layer's weights, loss averaged over rows", within="[0, inf)"
    )

    def model_of(self, task: Task) -> str:
        """Return the chosen model, or the default for the outcome.

        Raises
        ------
        SettingError : the model does not fit the outcome.
        """
        return model_of(self.model, task, self.method)

    def rate_of(self, model: str) -> float:
        """Return η."""
        return rate_of(self.learning_rate, model, self.hidden)

    def network_of(self, model: str, task: Task) -> str:
        """Return the spec of the network."""
        outputs = outputs_of(model, task)
        return spec_of(model, len(task.features), self.hidden, self.activation, outputs)


@dataclass(frozen=True, kw_only=True)
class AveragingSettings(VisitSettings):
    """Settings of training one network: learning rate, server, aggregation, end, and device."""

    learning_rate: float = setting(
        0.001, "η of the optimiser in the first round", within="(0, inf)"
    )
    lr_rule: str = setting(
        "constant",
        f"Course of η over the rounds. cosine: falls to 0, slowly first and last; {PLATEAU}",
        choices=RULES,
    )
    lr_factor: float = setting(0.1, "Factor of η at each cut of plateau", within="(0, 1)")
    lr_patience: int = setting(
        4,
        "Rounds without a better held-out loss, since the last cut, after which plateau cuts η",
        "rounds",
        within="[1, inf)",
    )
    optimiser_state: str = setting(
        "fresh",
        "State of the sites' optimisers. fresh: a new one in each round; kept: it stays at its "
        "site; averaged: its mean over sites travels with the model",
        choices=STATES,
    )
    strategy: str = setting("fedavg", "Training strategy over sites", choices=STRATEGIES)
    mu: float = setting(
        0.1, "μ of fedprox: pull towards the round's common model", within="[0, inf)"
    )
    server_learning_rate: float = setting(
        0.01, "η of fedadagrad, fedadam, fedyogi at the coordinator", within="[0, inf)"
    )
    beta1: float = setting(0.9, "β₁ of fedadagrad, fedadam, fedyogi", within="[0, 1)")
    beta2: float = setting(0.99, "β₂ of fedadam and fedyogi", within="[0, 1)")
    tau: float = setting(
        0.001, "τ of fedadagrad, fedadam, fedyogi, in their step m/(√v + τ)", within="(0, inf)"
    )
    aggregation: str = setting(
        "mean",
        "Aggregation of the sites' models. All but mean withstand sites that lie; they need each "
        "site's model, so they exclude masked sums",
        choices=AGGREGATIONS,
    )
    trim: float = setting(
        0.2, "β of trimmed_mean: share of the sites left out at each end", within="[0, 0.5)"
    )
    byzantine: int = setting(
        1, "f of krum and multi_krum: sites that may lie", "sites", within="[0, inf)"
    )
    norm_bound: float | None = setting(
        None, "M of norm_bound: longest update of a site; null: the median of each round's",
        within="(0, inf]",
    )  # fmt: skip
    compression: str = setting(
        "none",
        "Updates in fewer bytes, with error feedback. random_k: a share of the coordinates, the "
        "same at all sites; int8: all of them in 8 bits; top_k: each site's largest ones, which "
        "the coordinator sees, so that it excludes masked sums",
        choices=COMPRESSIONS,
    )
    compression_share: float = setting(
        0.1, "Share of the coordinates that random_k and top_k send", within="(0, 1]"
    )
    patience: int | None = setting(
        None,
        "Stop after this many rounds without a better held-out loss; null: never",
        "rounds",
        within="[1, inf)",
    )
    patience_by: str = setting(
        "loss",
        "Rounds without a better loss, for patience and plateau. loss: of all held-out rows, "
        "pooled; count: each site counts those of its own rows, and the counts are averaged",
        choices=COUNTED_BY,
    )
    validation_fraction: float = setting(
        0.2, "Share of each site's rows held out for patience and plateau", within="(0, 1)"
    )
    dtype: str = setting("float64", "Number type of the network", choices=("float64", "float32"))
    device: str = setting("cpu", "Device of the network", choices=("cpu", "cuda"))

    def __post_init__(self) -> None:
        super().__post_init__()
        fresh, whole = self.optimiser_state == "fresh", self.compression == "none"
        means = self.aggregation == "mean"
        self.check(
            ("optimiser_state", fresh or means, "fresh, or aggregation: mean"),
            ("compression", whole or means, "none, or aggregation: mean"),
            ("compression", whole or self.optimiser_state != "averaged",
             "none: averaged states of optimisers are not compressed"),
        )  # fmt: skip

    @property
    def looks(self) -> bool:
        """Whether rows are held out, and looked at after each round."""
        return self.schedule.looks

    @property
    def counts(self) -> bool:
        """Whether each site counts its rounds without a better loss, and the sum is asked for."""
        return self.looks and self.patience_by == "count"

    def least_cell(self, min_cell: int) -> int:
        """Return the smallest number of deaths in an interval of the grid.

        Training rows and held-out rows are each expected to have `min_cell` of them.
        """
        f = self.validation_fraction
        return min_cell if not self.looks else math.ceil(min_cell / min(f, 1.0 - f))

    @property
    def reveals_more(self) -> str:
        """What leaves a site beside the mean of models by these settings, in plain words; or ""."""
        told = [MOMENTS] * (self.optimiser_state == "averaged") + [COUNTS] * self.counts
        told += [COMPRESSED[self.compression]] if self.compression != "none" else []
        return "".join(f"; {one}" for one in told)

    @property
    def centre(self) -> Aggregation:
        """Aggregation of the sites' models."""
        return Aggregation(
            name=self.aggregation,
            trim=self.trim,
            byzantine=self.byzantine,
            norm_bound=self.norm_bound,
        )

    @property
    def visible(self) -> str:
        """Name of the setting with which the coordinator sees each site's own numbers, or ""."""
        if not self.centre.plain:
            return f"aggregation: {self.aggregation}"
        return "compression: top_k" if self.compression == "top_k" else ""

    def check_sites(self, sites: int) -> None:
        """Refuse an aggregation that needs more sites."""
        self.centre.check(sites)
        super().check_sites(sites)

    @property
    def schedule(self) -> Schedule:
        """Number of rounds, learning rate and end."""
        return Schedule(
            rounds=self.rounds,
            learning_rate=self.learning_rate,
            lr_rule=self.lr_rule,
            lr_factor=self.lr_factor,
            lr_patience=self.lr_patience,
            patience=self.patience,
            patience_by=self.patience_by,
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

    def plan_of(self, network: str, loss: str, **more: Any) -> Plan:
        """Return the plan of each site, with `more` fields of `Plan`."""
        plan = Plan(
            network=network,
            loss=loss,
            epochs=self.internal_epochs,
            optimiser=self.optimiser,
            mu=self.mu if self.strategy == "fedprox" else 0.0,
            validation_fraction=self.validation_fraction if self.looks else 0.0,
            optimiser_state=self.optimiser_state,
            compression=self.compression,
            share=self.compression_share if self.compression in ("random_k", "top_k") else 1.0,
            dtype=self.dtype,
            device=self.device,
        )
        return replace(plan, **more)


@dataclass(frozen=True, kw_only=True)
class AlarmSettings(Settings):
    """Setting of R of the sites' models on the coordinator's rows (`networks.validated`)."""

    alarm: float = setting(
        1.44,
        "monitor: validation: R above which sites differ",
        within="(1, inf)",
    )

    @property
    def validated(self) -> str:
        """Name of the setting that needs validation rows of the coordinator, or ""."""
        monitor = str(getattr(self, "monitor", ""))
        return f"monitor: {monitor}" if monitor == "validation" else super().validated

    @property
    def visible(self) -> str:
        """Name of the setting with which the coordinator sees each site's model, or ""."""
        return self.validated or super().visible


@dataclass(frozen=True, kw_only=True)
class ValidatedSettings(AlarmSettings):
    """The same, with the halt of aggregation."""

    halt: bool = setting(
        False,
        "monitor: validation: halt aggregation while R is above the alarm, so that each site "
        "trains its own model. A training that ends halted has all of them, and predicts their "
        "mean, weighted by rows",
    )

    def check_halt(self, *, monitor: str, personal: str, patience: int | None) -> None:
        """Refuse a halt with settings that need one common model.

        Raises
        ------
        SettingError : names the first one.
        """
        why = (
            (monitor != "validation", "needs monitor: validation"),
            (personal != "none", "and personal are two answers to an alarm; leave one out"),
            (patience is not None, "does not go with patience, which looks at the common model"),
        )
        for wrong, text in why:
            if self.halt and wrong:
                raise SettingError(f"setting 'halt' of method {self.method!r} {text}.")


def kept_rounds(asked: tuple[int, ...], rounds: int) -> tuple[int, ...]:
    """Return the sorted rounds after which the model is kept, without the last round."""
    return tuple(sorted({r for r in asked if r < rounds}))
