"""Settings of deep clustering, and the plans made from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from fedcohort.models.autoencoder import ARCHITECTURES, Autoencoder
from fedcohort.models.dec import Dec
from fedcohort.models.layers import CURVES
from fedcohort.models.objectives import Reconstruction
from fedcohort.models.reconstruction import NOISES, Noise
from fedcohort.numerics.centroids import AGGREGATIONS as CENTROIDS
from fedcohort.protocol import SettingError, changed, setting
from fedcohort.training.clusters.points import SCALES
from fedcohort.training.clusters.settings import LloydSettings, NumberSettings
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.settings import (
    PLATEAU,
    AveragingSettings,
    BatchSettings,
    PredictorSettings,
    VisitSettings,
)
from fedcohort.training.personal import AFTER, PARTED, Way, check_number
from fedcohort.training.personal.settings import MaybeOwnSettings, WaySettings

#: Ways for personal clusters; and why the others do not apply.
OWN_WAYS = ("none", "finetune", "fedper", "fedrep", "ditto")
MEANINGLESS = {
    "apfl": "weighs two models by a loss with targets that each model makes itself, so that the "
    "more certain one would win",
    "cluster": "lets sites choose the model of least loss, but clusters have the least loss if "
    "they are most certain, not if they are right",
}
HIDDEN = ("relu", "sigmoid")


@dataclass(frozen=True, kw_only=True)
class DeepClusteringSettings(
    AveragingSettings,
    BatchSettings,
    NumberSettings,
    WaySettings,
    method="deep_clustering",
    alone={
        "aggregation": "mean", "choose": "gap", "personal": "none", "monitor": "none",
        "compression": "none",
    },
    later=(
        "n_clusters", "k_range", "choose", "cluster_rounds", "cluster_batch_size",
        "cluster_optimiser", "cluster_learning_rate", "centroids", "latent_scale", "restarts",
        "swaps", "alpha", "target", "gamma", "tol", "personal",
    ),
    first={"cluster_rounds": 0, "personal": "none"},
):  # fmt: skip
    """Settings of one fit."""

    user: str = changed(MaybeOwnSettings, "user", doc="Site of its own clusters, if there are any")
    personal: str = changed(
        MaybeOwnSettings,
        "personal",
        doc="Way of personalisation in phase 2; none: one model for all",
    )
    n_clusters: int | Literal["auto"] = changed(
        NumberSettings, "n_clusters", default=6, within="[2, inf)"
    )
    k_range: tuple[int, ...] = changed(NumberSettings, "k_range", default=(2, 8))
    architecture: str | tuple[int, ...] = setting(
        "small",
        "small, dec, curves or google; or the widths of the hidden layers, then that of the latent "
        "space",
    )
    tied: bool = setting(True, "The decoder's weights are the encoder's, transposed")
    activation: str = changed(PredictorSettings, "activation", default="relu", choices=HIDDEN)
    output: str = setting(
        "sigmoid", "Activation after the decoder's last layer", choices=tuple(CURVES)
    )
    dropout: float = setting(
        0.0, "Probability that a hidden unit is silent in a step of phase 1", within="[0, 1)"
    )
    unit_norm: bool = setting(False, "Scale latent points to length 1")
    beta: float = setting(
        0.0,
        "β: weight of Dice and cross-entropy beside 1 − β of squared errors",
        within="[0, 1]",
    )
    noise: str = setting("none", "Noise on the inputs of phase 1", choices=NOISES)
    noise_rate: float = setting(
        0.2,
        "Share of changed entries; for gaussian the standard deviation",
        within="[0, inf)",
    )
    pretrain: str = setting(
        "joint",
        "joint: all layers at once; layerwise: first pair by pair, `rounds` each",
        choices=("joint", "layerwise"),
    )
    rounds: int = changed(
        VisitSettings, "rounds", doc="Rounds of phase 1: the autoencoder learns to reconstruct"
    )
    cluster_rounds: int = setting(
        25,
        "Largest number of rounds of phase 2: clusters sharpen; 0: k-means of latent points alone",
        "rounds",
        within="[0, inf)",
    )
    internal_epochs: int = changed(VisitSettings, "internal_epochs", default=1)
    batch_size: int = changed(
        BatchSettings,
        "batch_size",
        default=64,
        doc="Batch size in phase 1; 0: all rows of a site",
    )
    cluster_batch_size: int = changed(
        BatchSettings,
        "batch_size",
        default=256,
        doc="Batch size in phase 2; 0: all rows of a site",
    )
    cluster_optimiser: str = setting(
        "same",
        "Optimiser of each site in phase 2; same: that of phase 1",
        choices=("same", *OPTIMISERS),
    )
    learning_rate: float = changed(
        AveragingSettings, "learning_rate", doc="η of the optimiser in phase 1"
    )
    lr_rule: str = changed(
        AveragingSettings,
        "lr_rule",
        doc="Course of η over the rounds of phase 1. cosine: falls to 0, slowly first and last; "
        f"{PLATEAU}",
    )
    cluster_learning_rate: float = changed(
        AveragingSettings, "learning_rate", doc="η of the optimiser in phase 2"
    )
    beta2: float = changed(AveragingSettings, "beta2", default=0.999)
    patience: int | None = changed(
        AveragingSettings,
        "patience",
        doc="End phase 1 after this many rounds without a better held-out loss; null: never",
    )
    centroids: str = setting(
        "lloyd",
        "Start of the centroids. lloyd: k-means of all sites' latent points, by sums; others: the "
        "centroids of each site's own k-means, which the coordinator sees, are merged this way",
        choices=("lloyd", *CENTROIDS),
    )
    latent_scale: str = setting("none", "Scale of latent points in that k-means", choices=SCALES)
    restarts: int = changed(LloydSettings, "restarts")
    swaps: int = changed(
        LloydSettings,
        "swaps",
        doc="With centroids: lloyd, number of swaps: merge two clusters, split a third, continue",
    )
    alpha: float | Literal["k-1"] = setting(
        1.0, "α of soft memberships: a number, or k-1", within="(0, inf)"
    )
    target: str = setting(
        "global",
        "Rows that give a cluster's frequency: all sites', as of pooled rows, or each site's own, "
        "as in the thesis",
        choices=("global", "site"),
    )
    gamma: float = setting(
        0.0, "γ: weight of reconstruction in phase 2; above 0 is IDEC", within="[0, inf)"
    )
    tol: float = setting(
        0.001, "Stop phase 2 when fewer labels change (share)", "part of all rows",
        within="[0, 1)",
    )  # fmt: skip
    binary: bool | Literal["auto"] = setting(
        "auto", "Columns are 0 or 1, so that samples are too; auto: if all are"
    )
    dtype: str = changed(AveragingSettings, "dtype", default="float32")

    def __post_init__(self) -> None:
        super().__post_init__()
        a = self.architecture
        named = a in ARCHITECTURES if isinstance(a, str) else bool(a) and min(a) > 0
        names = ", ".join(ARCHITECTURES)
        touched = self.noise == "gaussian" or self.noise_rate <= 1
        self.check(
            ("k_range", self.k_range[0] >= 2, "two whole numbers from 2, the smaller first"),
            ("architecture", named, f"one of {names}, or widths above 0"),
            ("noise_rate", touched, "at most 1, as a part of the entries"),
            ("output", not self.beta or self.output == "sigmoid",
             "sigmoid, as β above 0 compares probabilities"),
            ("binary", self.noise != "flip" or self.binary is not False,
             "auto or true, as noise: flip draws ones and zeros"),
        )  # fmt: skip
        self.check_way(self.personal)
        self._check_personal()

    @property
    def visible(self) -> str:
        """Name of the setting that shows single sites to the coordinator, or ""."""
        if (seen := super().visible) or self.centroids == "lloyd":
            return seen or self.visible_choice
        return f"centroids: {self.centroids}"

    def check_sites(self, sites: int) -> None:
        """Refuse an aggregation, a consensus or personal clusters over too few sites."""
        super().check_sites(sites)
        if self.personal != "none":
            check_number(self.personal, sites)

    def _check_personal(self) -> None:
        """Refuse ways without meaning for clusters, and settings that do not fit a way."""
        if self.personal == "none":
            return
        after, other = self.personal in AFTER, "which does not go with"
        for wrong, why in (
            (self.personal in MEANINGLESS,
             f"which {MEANINGLESS.get(self.personal)}; give {', '.join(OWN_WAYS)}"),
            (self.optimiser_state != "fresh" and not after,
             f"{other} optimiser_state {self.optimiser_state!r}, as the optimiser of a site's own "
             "part begins anew; give 'fresh'"),
            (self.compression != "none" and not after,
             f"{other} compression {self.compression!r}; give 'none'"),
            (self.aggregation != "mean",
             f"{other} aggregation {self.aggregation!r}, which sees models; give 'mean'"),
        ):  # fmt: skip
            if wrong:
                raise SettingError(
                    f"setting 'personal' of method {self.method!r} is {self.personal!r}, {why}."
                )
        one = not isinstance(self.architecture, str) and len(self.architecture) < 2
        if self.personal in PARTED and one:
            raise SettingError(
                f"setting 'architecture' of method 'deep_clustering' is {self.architecture!r}, "
                f"but {self.personal} needs a common layer before the last; give two widths."
            )

    def autoencoder(self, n_features: int) -> Autoencoder:
        """Return the network of phase 1; `small` with auto uses the largest number of clusters."""
        a = self.architecture
        widths = ARCHITECTURES[a](n_features, self.numbers[-1]) if isinstance(a, str) else a
        return Autoencoder(
            inputs=n_features,
            widths=widths,
            tied=self.tied,
            activation=self.activation,
            output=self.output,
            dropout=self.dropout,
            unit_norm=self.unit_norm,
        )

    def dec(self, n_features: int, k: int) -> Dec:
        """Return the network of phase 2, with k centroids and without dropout."""
        alpha = float(max(k - 1, 1)) if self.alpha == "k-1" else self.alpha
        return Dec.of(replace(self.autoencoder(n_features), dropout=0.0), k, alpha)

    def cluster_way(self, n_features: int, k: int) -> Way:
        """Return the way as sent to sites; its own part is the encoder's last layer and μ."""
        net = self.autoencoder(n_features)
        at = 2 * (len(net.widths) - 1)
        last = net.slices()[at : at + 2]
        centroids = net.size, net.size + k * net.widths[-1]
        return self.way_by(self.personal, ((last[0].start, last[1].stop), centroids))

    def free_parameters(self, n_features: int) -> int:
        """Return the number of learnt parameters: P of the autoencoder, and those of centroids."""
        a, k = self.autoencoder(n_features), self.numbers[-1]
        return a.size + k * a.widths[-1]

    @property
    def reconstruction(self) -> Reconstruction:
        """Objective of phase 1; frequencies of flips come with each call."""
        rate = self.noise_rate if self.noise != "none" else 0.0
        return Reconstruction(beta=self.beta, noise=Noise(kind=self.noise, rate=rate))

    def plan(self, n_features: int) -> Plan:
        """Return the plan of each site in phase 1."""
        network, loss = self.autoencoder(n_features).spec, self.reconstruction.spec
        return self.plan_of(network, loss, batch_size=self.batch_size)

    def watched_plan(self, n_features: int) -> Plan:
        """Return the plan of the monitor in phase 1: its loss, without noise on inputs."""
        clean = replace(self.reconstruction, noise=Noise())
        return replace(self.plan(n_features), loss=clean.spec)

    def cluster_plan(self, n_features: int, k: int) -> Plan:
        """Return the plan of each site in phase 2."""
        network, loss = self.dec(n_features, k).spec, Reconstruction(beta=self.beta).spec
        by = self.optimiser if self.cluster_optimiser == "same" else self.cluster_optimiser
        return self.plan_of(
            network,
            loss,
            batch_size=self.cluster_batch_size,
            validation_fraction=0.0,
            optimiser=by,
        )

    @property
    def cluster_schedule(self) -> Schedule:
        """Number of rounds and learning rate of phase 2."""
        return Schedule(
            rounds=self.cluster_rounds,
            learning_rate=self.cluster_learning_rate,
            lr_rule="constant",
            named="divergence",
        )
