"""Settings of deep clustering, and what training makes of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from fedcohort.arrays import Array
from fedcohort.models.autoencoder import ARCHITECTURES, Autoencoder
from fedcohort.models.dec import Dec
from fedcohort.models.layers import CURVES
from fedcohort.models.objectives import Reconstruction
from fedcohort.models.reconstruction import NOISES, Noise
from fedcohort.numerics.centroids import AGGREGATIONS as CENTROIDS
from fedcohort.protocol import SettingError, check_settings, setting
from fedcohort.training.clusters.points import SCALES
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server
from fedcohort.training.personal import PARTED, Way
from fedcohort.training.personal.settings import PERSONAL, UserSettings
from fedcohort.training.robust import AGGREGATIONS, Aggregation

STRATEGIES = ("fedavg", "fedprox", "fedadam", "fedyogi")
#: Ways in which clusters can be one site's own; and why others are none.
OWN_WAYS = ("none", "finetune", "fedper", "fedrep", "ditto")
MEANINGLESS = {
    "apfl": "weighs two models by a loss whose aims each of them makes itself, so that the surer "
    "one would win",
    "cluster": "lets sites choose the model of least loss, and clusters have the least where they "
    "are surest, not where they are right",
}
HIDDEN = ("relu", "sigmoid")
WHOLE, RATE = "a whole number above 0", "from 0 to below 1"


@dataclass(frozen=True, kw_only=True)
class DeepClusteringSettings(UserSettings):
    """Settings of one fit."""

    user: str = setting("", "the site that clusters are for, where they are its own")
    personal: str = setting(
        "none",
        "how encoder and centroids are made one site's own in phase 2; none: they are for all",
        choices=PERSONAL,
    )
    n_clusters: int | Literal["auto"] = setting(6, "how many clusters there are, or auto")
    choose: str = setting(
        "gap",
        "what n_clusters: auto goes by: the gap statistic, or how well clusters agree when each "
        "site is left out",
        choices=("gap", "consensus"),
    )
    k_range: tuple[int, ...] = setting(
        (2, 8), "least and largest number of clusters that n_clusters: auto tries"
    )
    architecture: str | tuple[int, ...] = setting(
        "small",
        "small, dec, curves or google; or the widths of the hidden layers, then that of the latent "
        "space",
    )
    tied: bool = setting(True, "whether the decoder's weights are the encoder's, transposed")
    activation: str = setting("relu", "after each hidden layer", choices=HIDDEN)
    output: str = setting("sigmoid", "after the decoder's last layer", choices=tuple(CURVES))
    dropout: float = setting(0.0, "probability that a hidden unit is silent in a step of phase 1")
    unit_norm: bool = setting(False, "whether latent points are brought to length 1")
    beta: float = setting(0.0, "β: weight of Dice and cross-entropy beside 1 − β of squared errors")
    noise: str = setting("none", "what inputs of phase 1 are disturbed by", choices=NOISES)
    noise_rate: float = setting(0.2, "part of the entries touched; of gaussian the deviation")
    pretrain: str = setting(
        "joint",
        "joint: all layers at once; layerwise: first pair by pair, `rounds` each",
        choices=("joint", "layerwise"),
    )
    rounds: int = setting(100, "phase 1: the autoencoder learns to reconstruct", "rounds")
    cluster_rounds: int = setting(
        25, "phase 2: the most rounds, in which clusters sharpen", "rounds"
    )
    internal_epochs: int = setting(1, "passes over a site's rows in one round", "epochs")
    batch_size: int = setting(64, "most rows of a step in phase 1; 0 takes all of a site's", "rows")
    cluster_batch_size: int = setting(256, "the same in phase 2", "rows")
    optimiser: str = setting("adam", "of each site", choices=tuple(OPTIMISERS))
    cluster_optimiser: str = setting(
        "same", "of each site in phase 2; same: that of phase 1", choices=("same", *OPTIMISERS)
    )
    learning_rate: float = setting(0.001, "η of the optimiser in phase 1")
    lr_rule: str = setting(
        "constant",
        "how η changes over the rounds of phase 1. cosine: falls to 0, slowly first and last",
        choices=("constant", "cosine"),
    )
    cluster_learning_rate: float = setting(0.001, "η of the optimiser in phase 2")
    strategy: str = setting("fedavg", "how sites learn together", choices=STRATEGIES)
    mu: float = setting(0.1, "μ of fedprox: pull towards the round's common model")
    server_learning_rate: float = setting(0.01, "η of fedadam and fedyogi at the coordinator")
    beta1: float = setting(0.9, "β₁ of fedadam and fedyogi")
    beta2: float = setting(0.999, "β₂ of fedadam and fedyogi")
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
        None,
        "end phase 1 after so many rounds without a better held-out loss; null: never",
        "rounds",
    )
    validation_fraction: float = setting(
        0.2, "rows of each site held out in phase 1 where patience is set"
    )
    centroids: str = setting(
        "lloyd",
        "where centroids start. lloyd: k-means of all sites' latent points, by sums; others: how "
        "the centroids of each site's own k-means, which the coordinator sees, become one set",
        choices=("lloyd", *CENTROIDS),
    )
    latent_scale: str = setting("none", "scale of latent points in that k-means", choices=SCALES)
    restarts: int = setting(25, "starts of each k-means that runs at one place")
    swaps: int = setting(
        3,
        "with centroids: lloyd, how often its rounds go on after two clusters were merged and a "
        "third one was split",
    )
    alpha: float | Literal["k-1"] = setting(1.0, "α of soft memberships: a number, or k-1")
    target: str = setting(
        "global",
        "whose rows say how frequent a cluster is: all sites', which equals pooled rows, or each "
        "site's own, as in the thesis",
        choices=("global", "site"),
    )
    gamma: float = setting(0.0, "γ: weight of reconstruction in phase 2; above 0 is IDEC")
    tol: float = setting(0.001, "end phase 2 where fewer labels change", "part of all rows")
    binary: bool | Literal["auto"] = setting(
        "auto", "whether columns are 0 or 1, so that samples are too; auto: if all are"
    )
    dtype: str = setting("float32", "of the network", choices=("float64", "float32"))
    device: str = setting("cpu", "where the network computes", choices=("cpu", "cuda"))

    def __post_init__(self) -> None:
        a, least = self.architecture, 2
        named = a in ARCHITECTURES if isinstance(a, str) else bool(a) and min(a) > 0
        names = ", ".join(ARCHITECTURES)
        k = self.n_clusters
        spans = len(self.k_range) == 2 and least <= self.k_range[0] < self.k_range[1]
        check_settings(
            self,
            ("n_clusters", k == "auto" or k >= least, "a whole number from 2 up, or auto"),
            ("k_range", spans, "two whole numbers from 2 up, the smaller first"),
            ("architecture", named, f"one of {names}, or widths above 0"),
            *((name, getattr(self, name) > 0, WHOLE) for name in (
                "rounds", "cluster_rounds", "internal_epochs", "restarts",
            )),
            *((name, 0 < getattr(self, name) < math.inf, "a number above 0") for name in (
                "learning_rate", "cluster_learning_rate", "tau",
            )),
            *((name, 0 <= getattr(self, name) < math.inf, "0 or more") for name in (
                "batch_size", "cluster_batch_size", "mu", "server_learning_rate", "gamma",
                "noise_rate", "byzantine", "swaps",
            )),
            *((name, 0 <= getattr(self, name) < 1, RATE) for name in ("dropout", "beta1", "beta2")),
            ("beta", 0 <= self.beta <= 1, "a number from 0 to 1"),
            ("trim", 0 <= self.trim < 0.5, "from 0 to below 0.5"),
            ("norm_bound", self.norm_bound is None or self.norm_bound > 0, "above 0, or null"),
            ("patience", self.patience is None or self.patience > 0, "above 0, or null"),
            ("validation_fraction", 0 < self.validation_fraction < 1, "between 0 and 1"),
            ("alpha", self.alpha == "k-1" or 0 < self.alpha < math.inf, "a number above 0, or k-1"),
            ("tol", 0 <= self.tol < 1, RATE),
            method="deep_clustering",
        )  # fmt: skip
        touched = self.noise == "gaussian" or self.noise_rate <= 1
        together = (
            ("noise_rate", touched, "at most 1, as a part of the entries"),
            ("output", not self.beta or self.output == "sigmoid",
             "sigmoid, as β above 0 compares probabilities"),
            ("binary", self.noise != "flip" or self.binary is not False,
             "auto or true, as noise: flip draws ones and zeros"),
        )  # fmt: skip
        check_settings(self, *together, method="deep_clustering")
        self.check_user(self.personal, "deep_clustering")
        self._check_personal()

    def _check_personal(self) -> None:
        """Refuse ways that clusters of one site have no meaning in, and what goes with none."""
        if self.personal == "none":
            return
        if self.personal in MEANINGLESS:
            raise SettingError(
                f"setting 'personal' of method 'deep_clustering' is {self.personal!r}, which "
                f"{MEANINGLESS[self.personal]}; give {', '.join(OWN_WAYS)}."
            )
        if self.aggregation != "mean":
            raise SettingError(
                f"setting 'personal' of method 'deep_clustering' is {self.personal!r}, which does "
                f"not go with aggregation {self.aggregation!r}, which sees models; give 'mean'."
            )
        one = not isinstance(self.architecture, str) and len(self.architecture) < 2
        if self.personal in PARTED and one:
            raise SettingError(
                f"setting 'architecture' of method 'deep_clustering' is {self.architecture!r}, "
                f"and {self.personal} needs a layer before the last, which is own; give two widths."
            )

    @property
    def numbers(self) -> range:
        """The numbers of clusters that are tried, or the one."""
        if self.n_clusters == "auto":
            return range(self.k_range[0], self.k_range[1] + 1)
        return range(self.n_clusters, self.n_clusters + 1)

    def autoencoder(self, n_features: int) -> Autoencoder:
        """Return the network of phase 1; with `small` and auto, of the largest number's width."""
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
        """Return the network of phase 2, with k centroids; it has no dropout."""
        alpha = float(max(k - 1, 1)) if self.alpha == "k-1" else self.alpha
        return Dec.of(replace(self.autoencoder(n_features), dropout=0.0), k, alpha)

    def cluster_way(self, n_features: int, k: int) -> Way:
        """Return what sites are told of the way, in which encoder's last layer and μ may be own."""
        net = self.autoencoder(n_features)
        at = 2 * (len(net.widths) - 1)
        last = net.slices()[at : at + 2]
        centroids = net.size, net.size + k * net.widths[-1]
        return self.way_by(self.personal, ((last[0].start, last[1].stop), centroids))

    def free_parameters(self, n_features: int) -> int:
        """Return the numbers that a fit learns: P of the autoencoder, and those of centroids."""
        a, k = self.autoencoder(n_features), self.numbers[-1]
        return a.size + k * a.widths[-1]

    @property
    def reconstruction(self) -> Reconstruction:
        """What phase 1 minimises; frequencies of flips come with each call."""
        rate = self.noise_rate if self.noise != "none" else 0.0
        return Reconstruction(beta=self.beta, noise=Noise(kind=self.noise, rate=rate))

    def plan(self, n_features: int) -> Plan:
        """Return what is asked of each site in phase 1."""
        network, loss = self.autoencoder(n_features).spec, self.reconstruction.spec
        fraction = 0.0 if self.patience is None else self.validation_fraction
        return self._plan(network, loss, self.batch_size, fraction, self.optimiser)

    def watched_plan(self, n_features: int) -> Plan:
        """Return what is watched in phase 1: its loss, without noise of inputs."""
        clean = replace(self.reconstruction, noise=Noise())
        return replace(self.plan(n_features), loss=clean.spec)

    def cluster_plan(self, n_features: int, k: int) -> Plan:
        """Return what is asked of each site in phase 2."""
        network, loss = self.dec(n_features, k).spec, Reconstruction(beta=self.beta).spec
        by = self.optimiser if self.cluster_optimiser == "same" else self.cluster_optimiser
        return self._plan(network, loss, self.cluster_batch_size, 0.0, by)

    def _plan(
        self, network: str, loss: str, batch_size: int, held_out: float, optimiser: str
    ) -> Plan:
        return Plan(
            network=network,
            loss=loss,
            epochs=self.internal_epochs,
            batch_size=batch_size,
            optimiser=optimiser,
            mu=self.mu if self.strategy == "fedprox" else 0.0,
            validation_fraction=held_out,
            dtype=self.dtype,
            device=self.device,
        )

    @property
    def schedule(self) -> Schedule:
        """How long phase 1 is, and how fast."""
        return Schedule(
            rounds=self.rounds,
            learning_rate=self.learning_rate,
            lr_rule=self.lr_rule,
            patience=self.patience,
        )

    @property
    def cluster_schedule(self) -> Schedule:
        """How long phase 2 is, and how fast."""
        return Schedule(
            rounds=self.cluster_rounds,
            learning_rate=self.cluster_learning_rate,
            lr_rule="constant",
            named="divergence",
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
