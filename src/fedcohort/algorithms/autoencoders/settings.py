"""Settings of the variational autoencoders, and what training makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedcohort.arrays import Array
from fedcohort.models.layers import ACTIVATIONS
from fedcohort.models.mcvae import COMBINATIONS, Mcvae
from fedcohort.models.objectives import Elbo
from fedcohort.models.vae import Vae
from fedcohort.protocol import check_settings, setting
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server
from fedcohort.training.personal.settings import MaybeOwnSettings
from fedcohort.training.robust import AGGREGATIONS, Aggregation

STRATEGIES = ("fedavg", "fedprox", "fedadam", "fedyogi")
WHOLE, RATE = "a whole number above 0", "from 0 to below 1"


#: The most latent dimensions.
WIDEST = 10_000


@dataclass(frozen=True, kw_only=True)
class VaeSettings(MaybeOwnSettings):
    """Settings of one fit of `vae`."""

    method: ClassVar[str] = "vae"

    q: int = setting(5, "dimension of the latent space")
    hidden: tuple[int, ...] = setting(
        (), "widths of the encoder's hidden layers, the decoder's reversed; () is linear", "units"
    )
    activation: str = setting("tanh", "after each hidden layer", choices=tuple(ACTIVATIONS))
    sees_mask: bool = setting(
        False, "whether the encoder is told which entries are missing, beside zeros for them"
    )
    beta: float = setting(1.0, "β: weight of the divergence from the prior; 1 is the ELBO")
    rounds: int = setting(100, "of local training and a mean of models", "rounds")
    internal_epochs: int = setting(15, "passes over a site's rows in one round", "epochs")
    batch_size: int = setting(0, "most rows of a step; 0 takes all of a site's", "rows")
    optimiser: str = setting("adam", "of each site", choices=tuple(OPTIMISERS))
    learning_rate: float = setting(0.001, "η of the optimiser in the first round")
    lr_rule: str = setting(
        "constant",
        "how η changes over the rounds. cosine: falls to 0, slowly first and last",
        choices=("constant", "cosine"),
    )
    strategy: str = setting("fedavg", "how sites learn together", choices=STRATEGIES)
    mu: float = setting(0.1, "μ of fedprox (λ in some papers): pull towards the round's model")
    server_learning_rate: float = setting(0.01, "η of fedadam and fedyogi at the coordinator")
    beta1: float = setting(0.9, "β₁ of fedadam and fedyogi")
    beta2: float = setting(0.99, "β₂ of fedadam and fedyogi")
    tau: float = setting(0.001, "τ of fedadam and fedyogi, least size of a parameter's change")
    aggregation: str = setting(
        "mean",
        "what is taken of the sites' models; all but mean withstand sites that lie, and see each "
        "site's model, so that they exclude masked sums",
        choices=AGGREGATIONS,
    )
    trim: float = setting(0.2, "β of trimmed_mean: part of the sites left out at either end")
    byzantine: int = setting(1, "f of krum and multi_krum: sites that may lie", "sites")
    norm_bound: float | None = setting(
        None, "M of norm_bound: longest update of a site; null: the median of each round's"
    )
    patience: int | None = setting(
        None, "stop after so many rounds without a better held-out ELBO; null: never", "rounds"
    )
    validation_fraction: float = setting(0.2, "rows of each site held out where patience is set")
    passes: int = setting(
        20, "of impute: how often missing entries are guessed anew from the guesses before", "times"
    )
    dtype: str = setting("float64", "of the network", choices=("float64", "float32"))
    device: str = setting("cpu", "where the network computes", choices=("cpu", "cuda"))

    def __post_init__(self) -> None:
        check_settings(
            self,
            ("hidden", all(w > 0 for w in self.hidden), "whole numbers above 0"),
            ("q", 1 <= self.q <= WIDEST, f"a whole number from 1 to {WIDEST:,}"),
            *((name, getattr(self, name) > 0, WHOLE) for name in (
                "rounds", "internal_epochs", "passes",
            )),
            *((name, 0 < getattr(self, name) < math.inf, "a number above 0") for name in (
                "learning_rate", "tau",
            )),
            *((name, 0 <= getattr(self, name) < math.inf, "0 or more") for name in (
                "beta", "batch_size", "mu", "server_learning_rate", "byzantine",
            )),
            *((name, 0 <= getattr(self, name) < 1, RATE) for name in ("beta1", "beta2")),
            ("trim", 0 <= self.trim < 0.5, "from 0 to below 0.5"),
            ("norm_bound", self.norm_bound is None or self.norm_bound > 0, "above 0, or null"),
            ("patience", self.patience is None or self.patience > 0, "above 0, or null"),
            ("validation_fraction", 0 < self.validation_fraction < 1, "between 0 and 1"),
            method=self.method,
        )  # fmt: skip
        self.check_personal(
            self.method,
            strategy=self.strategy,
            aggregation=self.aggregation,
            patience=self.patience,
        )

    def network(self, views: Sequence[str]) -> Vae | Mcvae:
        """Return the network of columns with these views (p,); this one sees them as one."""
        return Vae(
            inputs=len(views),
            latent=self.q,
            hidden=self.hidden,
            activation=self.activation,
            sees_mask=self.sees_mask,
        )

    def free_parameters(self, n_features: int) -> int:
        """Return P of the network of so many columns, all of one view."""
        return self.network([""] * n_features).size

    def plan(self, views: Sequence[str]) -> Plan:
        """Return what is asked of each site, about columns with these views (p,)."""
        return Plan(
            network=self.network(views).spec,
            loss=Elbo(beta=self.beta).spec,
            epochs=self.internal_epochs,
            batch_size=self.batch_size,
            optimiser=self.optimiser,
            mu=self.mu if self.strategy == "fedprox" else 0.0,
            validation_fraction=0.0 if self.patience is None else self.validation_fraction,
            dtype=self.dtype,
            device=self.device,
        )

    @property
    def schedule(self) -> Schedule:
        """How long, and how fast."""
        return Schedule(
            rounds=self.rounds,
            learning_rate=self.learning_rate,
            lr_rule=self.lr_rule,
            patience=self.patience,
            named="negative_elbo",
        )

    @property
    def centre(self) -> Aggregation:
        """What is taken of the sites' models."""
        return Aggregation(
            name=self.aggregation,
            trim=self.trim,
            byzantine=self.byzantine,
            norm_bound=self.norm_bound,
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


@dataclass(frozen=True, kw_only=True)
class McvaeSettings(VaeSettings):
    """Settings of one fit of `mcvae`: those of `vae`, of each view's encoder and decoder."""

    method: ClassVar[str] = "mcvae"

    combine: str = setting(
        "mean",
        "how the latent points that several views' encoders give become one; product weighs each "
        "by its precision",
        choices=COMBINATIONS,
    )

    def network(self, views: Sequence[str]) -> Vae | Mcvae:
        """Return the network of columns with these views (p,), in the order of their names."""
        names = sorted({*views})
        return Mcvae(
            views=tuple(names.index(view) for view in views),
            latent=self.q,
            hidden=self.hidden,
            activation=self.activation,
            sees_mask=self.sees_mask,
            combine=self.combine,
        )
