"""Settings of `bayes_net`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from fedcohort.algorithms.bayes_net.virtual import PRIVATE
from fedcohort.models.bayes import Bayes
from fedcohort.models.conv import Conv
from fedcohort.models.layers import ACTIVATIONS
from fedcohort.models.network import Mlp
from fedcohort.protocol import SettingError, changed, setting
from fedcohort.secure import FEWEST
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.settings import BatchSettings
from fedcohort.training.networks.variational import KL_WEIGHTS
from fedcohort.training.settings import IntervalSettings

#: Strategies over sites; see `program`.
STRATEGIES = ("pvi", "virtual", "sep", "sequential", "fedavg", "ensemble")
#: Of these, those that change the posterior by sums of damped changes.
BY_CHANGES = ("pvi", "virtual", "sep")
PRIORS = ("gaussian", "mixture")
#: Largest share of the start in sites' factors at the end of a fit without a warning.
UNFINISHED = 0.1
#: Share that is left after the number of rounds that a warning names.
ENOUGH = 0.01
#: Laws of a time to an event.
HEADS = ("weibull", "cox")
#: What one table alone is fitted with.
ALONE = {"strategy": "pvi", "staleness": 0, "private_weights": "last", "own_models": True}


@dataclass(frozen=True, kw_only=True)
class BayesNetSettings(BatchSettings, IntervalSettings, method="bayes_net", alone=ALONE):
    """Settings of `bayes_net`."""

    by_class: ClassVar[bool] = True

    strategy: str = setting(
        "pvi",
        "Way over sites. pvi: each site keeps a factor of the posterior and sends its change; "
        "virtual: the same, with weights of each site's own; sep: all sites share one factor, and "
        "keep none; sequential: pvi with one site after another, each of whose changes is seen; "
        "fedavg: mean of the sites' posteriors; ensemble: each site's own posterior",
        choices=STRATEGIES,
    )
    damping: float | None = setting(
        None,
        "Share of each change that is taken. Default: 1 over the number of sites in a round, with "
        "staleness over that of all sites, of sequential 1",
        within="(0, 1]",
    )
    sites_per_round: int = setting(
        0, "Sites drawn for each round of pvi, virtual and sep but the first; of pvi and virtual "
        "the others keep their factors. 0: all",
        "sites", within="[0, inf)",
    )  # fmt: skip
    staleness: int = setting(
        0, "pvi: sites take turns in this number of groups more than one, and each works from the "
        "posterior of so many rounds before, as if its visit took that long. 0: all work at once",
        "rounds", within="[0, inf)",
    )  # fmt: skip
    private_weights: str = setting(
        "last",
        "virtual: weights of which each site has its own, which never leave: the last layer, the "
        "biases, or none",
        choices=PRIVATE,
    )
    own_models: bool = setting(
        True,
        "virtual: each site finishes a model of its own, which stays there and is judged there. "
        "false: the coordinator's model is judged",
    )
    rounds: int = changed(BatchSettings, "rounds", default=40)
    internal_epochs: int = changed(BatchSettings, "internal_epochs", default=10)
    batch_size: int = changed(BatchSettings, "batch_size", default=32)
    learning_rate: float = setting(0.005, "η of the optimiser", within="(0, inf)")
    hidden: tuple[int, ...] = setting(
        (32,), "Widths of the dense hidden layers", "units", within="[1, inf)"
    )
    activation: str = setting(
        "relu", "Activation after each hidden layer", choices=tuple(ACTIVATIONS)
    )
    head: str = setting(
        "weibull",
        "Law of a time to an event: Weibull's, with both parameters by the network, or Cox's model "
        "with the network as the log risk and a baseline hazard of any shape",
        choices=HEADS,
    )
    image: tuple[int, ...] = setting(
        (),
        "Height and width, or height, width and channels, of the image whose pixels are the "
        "columns, row by row; (): no image",
        "pixels",
        within="[1, 10_000]",
    )
    filters: tuple[int, ...] = setting(
        (8, 16), "Filters of each convolution of an image", within="[1, 10_000]"
    )
    prior: str = setting(
        "gaussian", "Prior of each weight: a Gaussian, or a mixture of two", choices=PRIORS
    )
    prior_scale: float = setting(
        1.0, "Standard deviation of the Gaussian prior, or of the wide part", within="(0, 1000]"
    )
    prior_narrow: float = setting(
        0.0025, "Standard deviation of the narrow part of the mixture", within="(0, 1000]"
    )
    prior_share: float = setting(0.5, "Share of the wide part of the mixture", within="(0, 1)")
    start_sd: float = setting(
        0.05, "Posterior standard deviation of a weight at the start", within="(0, 1]"
    )
    kl_weights: str = setting(
        "uniform",
        "Weight of the divergence from the prior in each mini-batch: the same, or halved from one "
        "to the next",
        choices=KL_WEIGHTS,
    )
    temperature: float = setting(
        1.0,
        "Weight of the divergence from the prior; 1: Bayes' rule, below 1: a cold posterior",
        within="(0, 1]",
    )
    dp_rounds: int | None = setting(
        None, "Noisy rounds of a private fit. Default: 32√ε", "rounds", within="[1, inf)"
    )
    dp_learning_rate: float = setting(
        4.0, "η of a private fit, in units of the clip over the rows", within="(0, inf)"
    )
    samples: int = setting(64, "Samples of the posterior for a prediction", within="[1, 100_000]")
    level: float = changed(IntervalSettings, "level", doc="Probability of the credible intervals")
    dtype: str = setting("float64", "Number type of the network", choices=("float64", "float32"))
    device: str = setting("cpu", "Device of the network", choices=("cpu", "cuda"))

    def __post_init__(self) -> None:
        super().__post_init__()
        mixed = self.prior == "mixture"
        self.check(
            ("image", len(self.image) in (0, 2, 3), "height and width, or also channels"),
            ("hidden", bool(self.hidden or (self.image and self.filters)), "one width or more"),
            ("filters", len(self.image) not in (2, 3) or min(map(min, self._conv(1).remaining)) > 0,
             "fewer: each halves the sides of the image, and nothing is left"),
            ("prior_narrow", not mixed or self.prior_narrow < self.prior_scale,
             "below prior_scale"),
            ("sites_per_round", self.sites_per_round not in (1, 2),
             "0, or 3 or more: of fewer, sites could tell each other's change"),
            ("sites_per_round", not self.sites_per_round or self.strategy in BY_CHANGES,
             "0, or strategy: pvi, virtual or sep"),
            ("damping", self.damping is None or self.strategy in (*BY_CHANGES, "sequential"),
             "none, or strategy: pvi, virtual, sep or sequential"),
            ("head", self.head == "weibull" or self.strategy != "virtual",
             "weibull with strategy: virtual"),
            ("staleness", not self.staleness or self.strategy == "pvi", "0, or strategy: pvi"),
            ("staleness", not (self.staleness and self.sites_per_round), "0, or sites_per_round 0"),
            ("prior", not mixed or not (self.staleness or self.strategy == "virtual"),
             "'gaussian' with strategy: virtual, or with staleness"),
            ("private_weights", self.private_weights == "last" or self.strategy == "virtual",
             "it with strategy: virtual alone"),
            ("own_models", self.own_models or self.strategy == "virtual",
             "it with strategy: virtual alone"),
            ("own_models", self.own_models or self.private_weights != "last",
             "true, or private_weights: biases or none: without last layers of its own the "
             "coordinator's model predicts nothing"),
        )  # fmt: skip

    @property
    def every(self) -> bool:
        """Whether each site keeps a model of its own."""
        return self.strategy == "virtual" and self.own_models

    def check_sites(self, sites: int) -> None:
        """Refuse groups of so few sites that they could tell each other's change."""
        super().check_sites(sites)
        if self.staleness and sites // (self.staleness + 1) < FEWEST:
            raise SettingError(
                f"setting 'staleness' of method {self.method!r} is {self.staleness}, so {sites} "
                f"sites take turns in {self.staleness + 1} groups; each needs {FEWEST} sites. "
                f"Give less, or 0."
            )

    def check_columns(self, features: int, most: int | None = None) -> None:
        """Refuse an image of another number of pixels, see `Settings.check_columns`."""
        pixels, top = math.prod(self.image), features if most is None else most
        found = str(features) if most in (None, features) else f"{features} to {most}"
        if self.image and not features <= pixels <= top:
            raise SettingError(
                f"setting 'image' of method {self.method!r} has {pixels} pixels, but the fit has "
                f"{found} columns. Name the pixels alone as features, one column each, row by row."
            )

    def unfinished(self, sites: int) -> str:
        """Return a warning if sites' factors still hold much of the start at the end; "" if not.

        With damping ρ a factor keeps the share (1 − ρ)^N of its start after N visits, exactly where
        a site's visit does not depend on the others.

        Parameters
        ----------
        sites : of the fit.
        """
        if self.strategy not in (*BY_CHANGES, "sequential") or sites < 2:
            return ""
        drawn = min(self.sites_per_round or sites, sites)
        usual = 1.0 if self.strategy == "sequential" else 1.0 / (sites if self.staleness else drawn)
        kept = 1.0 - (usual if self.damping is None else self.damping)
        a_round = drawn / sites / (self.staleness + 1)  # visits of a site in a round but the first
        left = kept ** (1 + (self.rounds - 1) * a_round)
        if left <= UNFINISHED:
            return ""
        most = 1 + math.ceil((math.log(ENOUGH) / math.log(kept) - 1) / a_round)
        return (
            f"with {sites} sites, {self.rounds} rounds are too few: {left:.0%} of what each site "
            f"adds to the posterior is still that of the start, so that probabilities and "
            f"intervals are not yet those of the data. Give rounds: {most} or more; or, where "
            f"sites are alike, a larger damping than {1.0 - kept:.2g}"
        )

    def free_parameters(self, features: int, classes: int = 0) -> int:
        """Return the number of weights, each with a mean and a standard deviation.

        Parameters
        ----------
        classes : of the outcome; with more than two, the last layer has a unit for each.
        """
        outputs = classes if classes > 2 else 1
        if self.image:
            return self._conv(outputs).n_parameters
        return sum((a + 1) * b for a, b in pairwise((features, *self.hidden, outputs)))

    def network(self, features: int, outputs: int, *, shared: bool = False) -> str:
        """Return the spec of the network with its posterior.

        Parameters
        ----------
        shared : the loss compares rows, which share their weights (`models.bayes`).
        """
        if self.image:
            base = self._conv(outputs).spec
        else:
            base = Mlp(
                inputs=features, hidden=self.hidden, activation=self.activation, outputs=outputs
            ).spec
        return Bayes(start=self.start_sd, shared=shared).spec(base)

    def _conv(self, outputs: int) -> Conv:
        return Conv(
            image=self.image, filters=self.filters, hidden=self.hidden,
            activation=self.activation, outputs=outputs,
        )  # fmt: skip

    def plan(self, features: int, loss: str, outputs: int) -> Plan:
        """Return the plan of each site."""
        return Plan(
            network=self.network(features, outputs, shared=loss == "cox"),
            loss=loss,
            epochs=self.internal_epochs,
            batch_size=self.batch_size,
            optimiser=self.optimiser,
            dtype=self.dtype,
            device=self.device,
        )
