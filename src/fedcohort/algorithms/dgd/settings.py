"""Settings of the deep generative decoder, and the plan made from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedcohort.data.prepare import Head, chosen, plain_heads
from fedcohort.models.dgd import Dgd
from fedcohort.models.objectives import Joint
from fedcohort.protocol import Task, changed, setting
from fedcohort.training.clusters.settings import LloydSettings, NumberSettings
from fedcohort.training.networks.collapse import CollapseSettings
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.settings import (
    AveragingSettings,
    BatchSettings,
    PredictorSettings,
    VisitSettings,
)

#: Default σ₀ of phase 2, in standard deviations of the cloud of representations and of K^{-1/q}.
WITHIN = 0.5


@dataclass(frozen=True, kw_only=True)
class DgdSettings(AveragingSettings, BatchSettings, method="dgd", alone={"aggregation": "mean"}):
    """Settings of one fit."""

    n_clusters: int = changed(
        NumberSettings, "n_clusters", default=20, doc="K: components of the mixture"
    )
    q: int = setting(5, "Dimension of the representations", within="[1, 10_000]")
    hidden: tuple[int, ...] = changed(
        PredictorSettings, "hidden", default=(50,),
        doc="Widths of the decoder's hidden layers, from the representation on; (): linear",
    )  # fmt: skip
    activation: str = changed(PredictorSettings, "activation")
    likelihoods: str | tuple[str, ...] = changed(CollapseSettings, "likelihoods")
    begin: str = setting(
        "kmeans",
        "Start of the mixture. kmeans: `rounds` with one broad component, then k-means of the "
        "representations by sums over sites; drawn: means drawn from the ball, without `rounds`",
        choices=("kmeans", "drawn"),
    )
    rounds: int = changed(
        VisitSettings, "rounds", default=50,
        doc="Rounds of phase 1: the decoder learns, with one broad component",
    )  # fmt: skip
    cluster_rounds: int = setting(
        50, "Rounds of phase 2: decoder and mixture learn together", "rounds", within="[1, inf)"
    )
    restarts: int = changed(LloydSettings, "restarts")
    swaps: int = changed(LloydSettings, "swaps")
    learning_rate: float = changed(AveragingSettings, "learning_rate", default=0.03)
    lr_rule: str = changed(AveragingSettings, "lr_rule", default="cosine")
    representation_rate: float = setting(
        2.0, "Learning rate of representations, in units of η", within="(0, inf)"
    )
    mixture_rate: float = setting(
        1.0, "Learning rate of the mixture, in units of η", within="(0, inf)"
    )
    l2: float = setting(
        0.0001, "λ: ½λ‖W‖² of the decoder's weights, loss averaged over rows", within="[0, inf)"
    )
    radius: float = setting(
        1.0, "r of the softball, the prior of the components' means", within="(0, inf)"
    )
    sharpness: float = setting(1.0, "a: sharpness of the softball's edge", within="(0, inf)")
    alpha: float = setting(1.0, "α of the Dirichlet prior of weights", within="[1, inf)")
    spread: float | None = setting(
        None,
        "σ₀: a component's standard deviation that its prior is centred at; null: half of what K "
        "components need to fill the space, r K^{−1/q}/(2√q)",
        within="(0, inf)",
    )
    spread_sd: float = setting(
        1.0, "τ: standard deviation of a component's log precision, by its prior", within="(0, inf)"
    )
    prior_weight: float | None = setting(
        None,
        "w: how often the mixture's prior counts for each row; null: 1/K, as often as a component "
        "has rows. The authors' code has 1, which leaves all components equally wide",
        within="(0, inf)",
    )
    starts: int = setting(
        5,
        "Components from whose means the representation of a new row is sought, the likeliest; K: "
        "all",
        within="[1, inf)",
    )
    search_steps: int = setting(100, "Steps of that search", "steps", within="[1, inf)")
    encoder: tuple[int, ...] = setting(
        (),
        "Widths of an encoder's hidden layers; (): none. It is trained after the fit, on rows "
        "drawn from the model, and new rows are sought from its output alone",
        "units",
        within="[1, inf)",
    )
    optimiser_state: str = changed(
        AveragingSettings,
        "optimiser_state",
        doc="State of the sites' optimisers. fresh: a new one in each round; kept: it stays at its "
        "site",
        choices=("fresh", "kept"),
    )
    compression: str = changed(
        AveragingSettings,
        "compression",
        doc="none: updates are sent as they are",
        choices=("none",),
    )

    @property
    def broad(self) -> float:
        """Standard deviation of a coordinate of z in phase 1: r/√q."""
        return self.radius / math.sqrt(self.q)

    def network(self, features: int, components: int, heads: Sequence[Head] = ()) -> Dgd:
        """Return the network of so many columns; with one component, the broad one of phase 1.

        Parameters
        ----------
        heads : of the design; () if unknown, for normal entries.

        Raises
        ------
        SettingError : `likelihoods` names no column, or a kind that a column cannot have.
        """
        narrow = WITHIN * self.broad * components ** (-1.0 / self.q)
        if self.spread is not None:
            narrow = self.spread
        return Dgd(
            inputs=features,
            latent=self.q,
            hidden=self.hidden,
            activation=self.activation,
            components=components,
            radius=self.radius,
            sharpness=self.sharpness,
            alpha=self.alpha,
            spread=narrow if components > 1 else self.broad,
            spread_sd=self.spread_sd,
            pace=self.mixture_rate,
            heads=plain_heads(chosen(heads, self.likelihoods)) if heads else (),
        )

    def plan(self, task: Task, components: int) -> Plan:
        """Return the plan of each site, for the task's columns and so many components."""
        joint = Joint(
            weight=1.0 / components if self.prior_weight is None else self.prior_weight,
            decay=self.l2,
            starts=self.starts,
            steps=self.search_steps,
        )
        spec = self.network(len(task.features), components, task.heads).spec
        return self.plan_of(spec, joint.spec, batch_size=self.batch_size)

    def free_parameters(self, features: int) -> int:
        """Return the number of parameters: the decoder's, and the mixture's."""
        return self.network(features, self.n_clusters).size

    def phase(self, rounds: int, first: int) -> Schedule:
        """Return the rounds, learning rate and end of a phase, after `first` rounds."""
        return replace(self.schedule, rounds=rounds, first=first, named="negative_log_density")
