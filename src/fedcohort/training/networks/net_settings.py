"""Settings of a dense network, or of one for images, by any strategy; and the plan from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedcohort.protocol import changed, setting
from fedcohort.training.networks.fit_settings import ALONE, FitSettings
from fedcohort.training.networks.image_settings import ImageSettings
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.settings import AveragingSettings, BatchSettings
from fedcohort.training.personal.settings import USER_IF_ANY
from fedcohort.training.settings import UserSettings


@dataclass(frozen=True, kw_only=True)
class NetSettings(ImageSettings, BatchSettings, alone=ALONE):
    """Settings of a network of dense layers, or of an image."""

    for_all = True

    user: str = changed(UserSettings, "user", doc=USER_IF_ANY)
    rounds: int = changed(FitSettings, "rounds", default=50)
    hidden: tuple[int, ...] = changed(
        FitSettings, "hidden", default=(16,), doc="Widths of the dense hidden layers"
    )
    activation: str = changed(
        FitSettings, "activation", default="relu", doc="Activation after each hidden layer"
    )
    batch_size: int = changed(BatchSettings, "batch_size", default=32)
    learning_rate: float = changed(AveragingSettings, "learning_rate", default=0.005)
    dp_batches: int = setting(
        1, "Batches in a private pass, which has no batch_size", within="[1, inf)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(("hidden", self.layered, "one width or more"))

    @property
    def private_batches(self) -> int:
        """Mini-batches of a private pass."""
        return self.dp_batches

    def free_parameters(self, features: int, classes: int = 0) -> int:
        """Return the number of parameters.

        Parameters
        ----------
        classes : of the outcome; with more than two, the last layer has a unit for each.
        """
        return self.sized(features, classes if classes > 2 else 1)

    def plan(
        self, features: int, loss: str, outputs: int = 1, maps: Sequence[Sequence[int]] = ()
    ) -> Plan:
        """Return the plan of each site.

        Parameters
        ----------
        features : number of columns. loss : as in `Plan`. outputs : of the network.
        maps : of images made of columns, see `network`.
        """
        return self.plan_by(self.network(features, outputs, maps), loss)

    def plan_by(self, network: str, loss: str) -> Plan:
        """Return the plan of each site for a network's spec and a loss."""
        return self.plan_of(network, loss, batch_size=self.batch_size, l1=self.l1, l2=self.l2)
