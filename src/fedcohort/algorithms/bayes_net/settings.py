"""Settings of `bayes_net`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from fedcohort.models.bayes import Bayes
from fedcohort.models.conv import Conv
from fedcohort.models.layers import ACTIVATIONS
from fedcohort.models.network import Mlp
from fedcohort.protocol import SettingError, changed, setting
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.settings import BatchSettings
from fedcohort.training.networks.variational import KL_WEIGHTS
from fedcohort.training.settings import IntervalSettings

#: Strategies over sites; see `program`.
STRATEGIES = ("pvi", "sequential", "fedavg", "ensemble")
PRIORS = ("gaussian", "mixture")


@dataclass(frozen=True, kw_only=True)
class BayesNetSettings(BatchSettings, IntervalSettings, method="bayes_net"):
    """Settings of `bayes_net`."""

    by_class: ClassVar[bool] = True

    strategy: str = setting(
        "pvi",
        "Way over sites. pvi: each site keeps a factor of the posterior and sends its change; "
        "sequential: the same, one site after another, each of whose changes is seen; fedavg: mean "
        "of the sites' posteriors; ensemble: each site's own posterior",
        choices=STRATEGIES,
    )
    damping: float | None = setting(
        None,
        "Share of each change that is taken. Default: of pvi 1 over the number of sites in a "
        "round, of sequential 1",
        within="(0, 1]",
    )
    sites_per_round: int = setting(
        0, "Sites drawn for each round of pvi but the first; the others keep their factors. 0: all",
        "sites", within="[0, inf)",
    )  # fmt: skip
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
            ("sites_per_round", not self.sites_per_round or self.strategy == "pvi",
             "0, or strategy: pvi"),
            ("damping", self.damping is None or self.strategy in ("pvi", "sequential"),
             "none, or strategy: pvi or sequential"),
        )  # fmt: skip

    def check_columns(self, features: int, most: int | None = None) -> None:
        """Refuse an image of another number of pixels, see `Settings.check_columns`."""
        pixels, top = math.prod(self.image), features if most is None else most
        found = str(features) if most in (None, features) else f"{features} to {most}"
        if self.image and not features <= pixels <= top:
            raise SettingError(
                f"setting 'image' of method {self.method!r} has {pixels} pixels, but the fit has "
                f"{found} columns. Name the pixels alone as features, one column each, row by row."
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

    def network(self, features: int, outputs: int) -> str:
        """Return the spec of the network with its posterior."""
        if self.image:
            base = self._conv(outputs).spec
        else:
            base = Mlp(
                inputs=features, hidden=self.hidden, activation=self.activation, outputs=outputs
            ).spec
        return Bayes(start=self.start_sd).spec(base)

    def _conv(self, outputs: int) -> Conv:
        return Conv(
            image=self.image, filters=self.filters, hidden=self.hidden,
            activation=self.activation, outputs=outputs,
        )  # fmt: skip

    def plan(self, features: int, loss: str, outputs: int) -> Plan:
        """Return the plan of each site."""
        return Plan(
            network=self.network(features, outputs),
            loss=loss,
            epochs=self.internal_epochs,
            batch_size=self.batch_size,
            optimiser=self.optimiser,
            dtype=self.dtype,
            device=self.device,
        )
