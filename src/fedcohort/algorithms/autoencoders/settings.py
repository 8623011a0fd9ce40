"""Settings of the variational autoencoders, and the plan made from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from fedcohort.data.prepare import Head, heads_asked, plain_heads
from fedcohort.data.words import known_name
from fedcohort.models.mcvae import COMBINATIONS, Mcvae
from fedcohort.models.objectives import Elbo
from fedcohort.models.vae import Vae
from fedcohort.protocol import SettingError, changed, setting
from fedcohort.training.networks.collapse import AnnealSettings
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.settings import (
    AveragingSettings,
    BatchSettings,
    PredictorSettings,
    VisitSettings,
)
from fedcohort.training.personal.settings import MaybeOwnSettings

#: What the bounds of a study take.
ALONE = {"aggregation": "mean", "personal": "none", "monitor": "none", "compression": "none"}
#: Priors of the latent space, and how those of sites are combined.
PRIORS = ("normal", "vamp", "mixture")
COMBINED = ("experts", "product")
#: Kinds of a column that can be a label.
LABELS = ("bernoulli", "categorical", "ordinal")


@dataclass(frozen=True, kw_only=True)
class LatentSettings(AveragingSettings, BatchSettings, AnnealSettings, MaybeOwnSettings):
    """Settings that `vae` and `mcvae` have in common."""

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
    internal_epochs: int = changed(VisitSettings, "internal_epochs", default=15)
    passes: int = setting(20, "impute: number of iterations", "times", within="[1, inf)")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_personal()
        self.check_anneal(
            personal=(self.personal, "none"),
            optimiser_state=(self.optimiser_state, "fresh"),
            compression=(self.compression, "none"),
        )

    @property
    def told_divergences(self) -> int:
        """Rounds between two records of the divergences from the prior; 0: never."""
        return self.record_kl

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
class VaeSettings(LatentSettings, method="vae", alone=ALONE):
    """Settings of one fit of `vae`."""

    prior: str = setting(
        "normal",
        "Prior of the latent space: normal; mixture, learnt with the network, for clusters; vamp, "
        "from pseudo-inputs of each site, combined in each round",
        choices=PRIORS,
    )
    components: int = setting(
        10, "K: components of prior: mixture, or pseudo-inputs of each site of vamp",
        within="[1, 200]",
    )  # fmt: skip
    combine_priors: str = setting(
        "experts",
        "Common prior of the sites' mixtures, of vamp: experts, their mixture; product, one normal "
        "distribution, by sums alone",
        choices=COMBINED,
    )
    starts: int = setting(
        1, "Trainings of prior: mixture from different starts; the least loss is kept",
        within="[1, 100]",
    )  # fmt: skip
    hide: float = setting(
        0.0,
        "Largest share of a row's known entries that the encoder does not see in a step; for rows "
        "that lack more than those of training",
        within="[0, 1]",
    )
    label: str = setting(
        "",
        "Column of known classes, which the encoder does not see, and `predict` gives; rows may "
        "lack it",
    )
    label_weight: float = setting(
        1.0, "Weight of the label's log likelihood beside that of a column", within="(0, inf)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        normal, own = self.prior == "normal", self.prior != "vamp"
        text = f"with prior: {self.prior}"
        self.check(
            ("free_bits", normal or not self.free_bits, f"0 {text}"),
            ("personal", normal or self.personal == "none", f"none {text}"),
            ("aggregation", own or self.aggregation == "mean", f"mean {text}"),
            ("compression", own or self.compression == "none", f"none {text}"),
            ("optimiser_state", own or self.optimiser_state == "fresh", f"fresh {text}"),
            ("monitor", own or self.monitor == "none", f"none {text}"),
            ("patience", own or self.patience is None, f"null {text}"),
            ("lr_rule", own or self.lr_rule != "plateau", f"another {text}"),
            ("starts", self.prior == "mixture" or self.starts == 1, f"1 {text}"),
            ("starts", self.starts == 1 or self.monitor == "none", "1 with a monitor"),
            ("label", not self.label or self.likelihoods != "normal",
             "none with likelihoods: normal: a label is of levels"),
            ("personal", not self.label or self.personal == "none", "none with a label"),
        )  # fmt: skip

    def check_task(self, kind: str) -> None:
        """Refuse clusters without a mixture, or with a label, which is what `predict` then gives.

        Raises
        ------
        SettingError : the task is clustering, and the prior is no mixture, or there is a label.
        """
        if kind == "clustering":
            self.check(
                ("prior", self.prior == "mixture", "mixture with task: clustering"),
                ("label", not self.label, "none with task: clustering"),
            )

    @property
    def visible(self) -> str:
        """Name of the setting with which the coordinator sees each site's own numbers, or ""."""
        if self.prior == "vamp" and self.combine_priors == "experts":
            return "prior: vamp with combine_priors: experts"
        return super().visible

    def network(self, views: Sequence[str], heads: Sequence[Head] = ()) -> Vae:
        """Return the same, with the prior's components and the label.

        Raises
        ------
        SettingError : the label is no column of levels.
        """
        return replace(
            cast("Vae", super().network(views, heads)),
            components=self.components if self.prior == "mixture" else 0,
            label=self._label_of(heads),
            label_weight=self.label_weight if self.label else 1.0,
            hide=self.hide,
        )

    def free_parameters(self, n_features: int) -> int:
        """Return P of the network of so many columns of one view, without a label."""
        return replace(self, label="").network([""] * n_features).size

    def _label_of(self, heads: Sequence[Head]) -> int:
        """Return the number of the label's head; -1 without a label."""
        if not self.label:
            return -1
        named = {head.name: i for i, head in enumerate(heads)}
        if self.label not in named:
            raise SettingError(f"setting 'label' has {known_name('column', self.label, named)}")
        kind = heads[named[self.label]].kind
        if kind not in LABELS:
            raise SettingError(
                f"setting 'label' names column {self.label!r}, which is {kind}; give a binary "
                f"column or one of levels."
            )
        if len(heads) < 2:
            raise SettingError(f"there is no column besides the label {self.label!r}; add some.")
        return named[self.label]


@dataclass(frozen=True, kw_only=True)
class McvaeSettings(LatentSettings, method="mcvae", alone=ALONE):
    """Settings of one fit of `mcvae`: those of each view's encoder and decoder."""

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
