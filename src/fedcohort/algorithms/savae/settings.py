"""Settings of `savae`, and the plan made from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedcohort.data.prepare import heads_asked, plain_heads
from fedcohort.models.objectives import lifted
from fedcohort.models.savae import TIMES, Savae
from fedcohort.protocol import Task, changed, setting
from fedcohort.training.networks.collapse import AnnealSettings
from fedcohort.training.networks.fit_settings import ALONE, StrategySettings
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.settings import (
    AveragingSettings,
    BatchSettings,
    PredictorSettings,
    VisitSettings,
)


@dataclass(frozen=True, kw_only=True)
class SavaeSettings(BatchSettings, AnnealSettings, StrategySettings, method="savae", alone=ALONE):
    """Settings of one fit of `savae`."""

    q: int = setting(5, "Dimension of the latent space", within="[1, 10_000]")
    hidden: tuple[int, ...] = changed(
        PredictorSettings,
        "hidden",
        default=(32,),
        doc="Widths of the encoder's hidden layers; those of decoder and time in reverse",
    )
    activation: str = changed(PredictorSettings, "activation", default="tanh")
    sees_mask: bool = setting(
        False, "Also give the encoder a mask of the missing entries, which are 0"
    )
    weight: float = setting(
        10.0, "w: weight of the time's log likelihood beside that of a covariate",
        within="(0, inf)",
    )  # fmt: skip
    time: str = setting(
        "weibull", "Distribution of the time given the latent variables", choices=TIMES
    )
    parts: int = setting(
        10, "J: parts of the time with a hazard each, of piecewise", "parts", within="[2, 100]"
    )
    samples: int = setting(
        100, "Draws of the latent variables for a prediction", "draws", within="[2, 10_000]"
    )
    passes: int = setting(20, "impute: number of iterations", "times", within="[1, inf)")
    rounds: int = changed(StrategySettings, "rounds", default=30)
    internal_epochs: int = changed(VisitSettings, "internal_epochs", default=5)
    batch_size: int = changed(BatchSettings, "batch_size", default=64)
    dropout: float = changed(StrategySettings, "dropout", default=0.2)
    learning_rate: float = changed(AveragingSettings, "learning_rate", default=0.003)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(
            ("anneal", self.anneal == "none" or self.averages,
             f"none, as strategy {self.strategy!r} averages no models"),
        )  # fmt: skip
        self.check_anneal(
            personal=(self.personal, "none"),
            optimiser_state=(self.optimiser_state, "fresh"),
            compression=(self.compression, "none"),
        )

    @property
    def watches(self) -> bool:
        """Whether the divergences of the latent dimensions are asked for."""
        return self.record_kl > 0 and self.personal == "none" and self.strategy != "ensemble"

    @property
    def n_parts(self) -> int:
        """J, or 0 of Weibull times."""
        return self.parts if self.time == "piecewise" else 0

    def network(self, n_features: int, heads: Sequence[Sequence[object]] = ()) -> Savae:
        """Return the network of so many columns, and heads as `plain_heads` gives them."""
        return Savae(
            inputs=n_features,
            latent=self.q,
            hidden=self.hidden,
            activation=self.activation,
            sees_mask=self.sees_mask,
            heads=heads,
            parts=self.n_parts,
            dropout=self.dropout,
        )

    def free_parameters(self, features: int) -> int:
        """Return P of the network of so many columns."""
        return self.network(features).size

    def plan(self, task: Task, unit: float | None = None, edges: Sequence[float] = ()) -> Plan:
        """Return the plan of each site.

        Parameters
        ----------
        unit, edges : of the times, the edges in that unit; without, the loss lacks them.

        Raises
        ------
        SettingError : `likelihoods` names no column, or a kind that a column cannot have.
        """
        heads = plain_heads(heads_asked(task.heads, self.likelihoods))
        loss = lifted(self.weight, self.beta, self.free_bits)
        if unit is not None:
            loss = " ".join([loss, *map(repr, (unit, *edges))])
        return self.plan_of(
            self.network(len(task.features), heads).spec, loss, batch_size=self.batch_size,
            l1=self.l1, l2=self.l2,
        )  # fmt: skip
