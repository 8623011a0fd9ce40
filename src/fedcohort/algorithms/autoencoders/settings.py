"""Settings of the variational autoencoders, and the plan made from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedcohort.data.prepare import Head, heads_asked, plain_heads
from fedcohort.models.mcvae import COMBINATIONS, Mcvae
from fedcohort.models.objectives import Elbo
from fedcohort.models.vae import Vae
from fedcohort.protocol import changed, setting
from fedcohort.training.networks.collapse import ANNEALS, CollapseSettings
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.settings import (
    AveragingSettings,
    BatchSettings,
    PredictorSettings,
    VisitSettings,
)
from fedcohort.training.personal.settings import MaybeOwnSettings


@dataclass(frozen=True, kw_only=True)
class VaeSettings(
    AveragingSettings,
    BatchSettings,
    CollapseSettings,
    MaybeOwnSettings,
    method="vae",
    alone={"aggregation": "mean", "personal": "none", "monitor": "none", "compression": "none"},
):
    """Settings of one fit of `vae`."""

    q: int = setting(5, "Dimension of the latent space", within="[1, 10_000]")
    hidden: tuple[int, ...] = changed(
        PredictorSettings,
        "hidden",
        doc="Widths of the encoder's hidden layers, the decoder's reversed; (): linear",
    )
    activation: str = changed(PredictorSettings, "activation")
    sees_mask: bool = setting(
        False, "Also give the encoder a mask of the missing entries, which are 0"
    )
    beta: float = setting(
        1.0, "β: weight of the divergence from the prior; 1 is the ELBO", within="[0, inf)"
    )
    anneal: str = setting(
        "none",
        "Let β rise by rounds: linear, once; cyclical, in the first half of each cycle",
        choices=ANNEALS,
    )
    anneal_rounds: int | None = setting(
        None,
        "Rounds of the rise, or of a cycle. Default: a quarter of `rounds`",
        "rounds",
        within="[1, inf)",
    )
    internal_epochs: int = changed(VisitSettings, "internal_epochs", default=15)
    passes: int = setting(20, "impute: number of iterations", "times", within="[1, inf)")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_personal()
        plain = self.anneal == "none"
        self.check(
            ("anneal", plain or self.personal == "none", "none with a personal model"),
            ("anneal", plain or self.optimiser_state == "fresh", "none, or optimiser_state: fresh"),
            ("anneal", plain or self.compression == "none", "none, or compression: none"),
        )

    @property
    def share_rounds(self) -> int:
        """Number of rounds of a rise or cycle of β."""
        return self.anneal_rounds or max(1, self.rounds // 4)

    def network(self, views: Sequence[str], heads: Sequence[Head] = ()) -> Vae | Mcvae:
        """Return the network of columns with these views (p,), joined to one view.

        Parameters
        ----------
        heads : of the columns, if they are not all normal.
        """
        return Vae(
            inputs=len(views),
            latent=self.q,
            hidden=self.hidden,
            activation=self.activation,
            sees_mask=self.sees_mask,
            heads=plain_heads(heads),
        )

    def free_parameters(self, n_features: int) -> int:
        """Return P of the network of so many columns of one view."""
        return self.network([""] * n_features).size

    def plan(self, views: Sequence[str], heads: Sequence[Head] = ()) -> Plan:
        """Return the plan of each site, for columns with these views (p,) and heads.

        Raises
        ------
        SettingError : `likelihoods` names no column, or a kind that a column cannot have.
        """
        network = self.network(views, heads_asked(heads, self.likelihoods))
        spec, loss = network.spec, Elbo(beta=self.beta, free_bits=self.free_bits).spec
        return self.plan_of(spec, loss, batch_size=self.batch_size)

    @property
    def schedule(self) -> Schedule:
        """Number of rounds, learning rate and end."""
        return replace(super().schedule, named="negative_elbo")


@dataclass(frozen=True, kw_only=True)
class McvaeSettings(VaeSettings, method="mcvae"):
    """Settings of one fit of `mcvae`: those of `vae`, for each view's encoder and decoder."""

    combine: str = setting(
        "mean",
        "Combination of the views' latent points; product weighs each by its precision",
        choices=COMBINATIONS,
    )

    def network(self, views: Sequence[str], heads: Sequence[Head] = ()) -> Vae | Mcvae:
        """Return the network of columns with these views (p,), in the order of their names."""
        names = sorted({*views})
        return Mcvae(
            views=tuple(names.index(view) for view in views),
            latent=self.q,
            hidden=self.hidden,
            activation=self.activation,
            sees_mask=self.sees_mask,
            combine=self.combine,
            heads=plain_heads(heads),
        )
