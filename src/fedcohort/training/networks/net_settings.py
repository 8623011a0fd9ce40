"""Settings of a dense network, or of one for images, by any strategy; and the plan from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from fedcohort.models.conv import Conv
from fedcohort.models.network import Mlp
from fedcohort.protocol import SettingError, changed, setting
from fedcohort.training.networks.fit_settings import ALONE, FitSettings
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.settings import AveragingSettings, BatchSettings
from fedcohort.training.personal.settings import USER_IF_ANY
from fedcohort.training.settings import UserSettings


@dataclass(frozen=True, kw_only=True)
class NetSettings(FitSettings, BatchSettings, alone=ALONE):
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
    kernel: int = setting(3, "Width of the filters, odd", "pixels", within="[1, 99]")
    pool: int = setting(
        2, "Side of the squares whose largest value remains after a convolution; 1: all remain",
        "pixels", within="[1, 99]",
    )  # fmt: skip
    dp_batches: int = setting(
        1, "Batches in a private pass, which has no batch_size", within="[1, inf)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        sides = not self.image or len(self.image) in (2, 3)
        self.check(
            ("image", sides, "height and width, or height, width and channels"),
            ("kernel", self.kernel % 2 == 1, "an odd number, so that a filter has a middle"),
            ("hidden", self.layered, "one width or more"),
        )
        if self.image and not all(self._conv(1).remaining):
            raise SettingError(
                f"setting 'filters' of method {self.method!r} has {len(self.filters)} "
                f"convolutions, each of which divides the sides by {self.pool}: nothing of "
                f"{self._size} pixels is left. Give fewer, or pool: 1."
            )

    @property
    def layered(self) -> bool:
        """Whether the network has a layer besides the last."""
        return bool(self.hidden or (self.image and self.filters))

    @property
    def private_batches(self) -> int:
        """Mini-batches of a private pass."""
        return self.dp_batches

    @property
    def _size(self) -> str:
        return " × ".join(map(str, self.image))

    def check_columns(self, features: int, most: int | None = None) -> None:
        """Refuse columns that are not the image's pixels.

        Parameters
        ----------
        features, most : fewest and most columns; without `most` the number of columns.

        Raises
        ------
        SettingError : the message has both numbers.
        """
        pixels = math.prod(self.image)
        found = str(features) if most in (None, features) else f"{features} to {most}"
        if self.image and not features <= pixels <= (features if most is None else most):
            raise SettingError(
                f"setting 'image' of method {self.method!r} is {self._size}, which is {pixels} "
                f"pixels, but the fit has {found} columns. Name the pixels alone as features, "
                f"one column each, row by row."
            )

    def free_parameters(self, features: int, classes: int = 0) -> int:
        """Return the number of parameters.

        Parameters
        ----------
        classes : of the outcome; with more than two, the last layer has a unit for each.
        """
        return self.sized(features, classes if classes > 2 else 1)

    def sized(self, features: int, outputs: int) -> int:
        """Return the number of parameters of a network of so many columns and outputs."""
        size, filters = features, 0
        if self.image:
            conv = self._conv(1)
            shape = ((*self.image, 1)[2], *self.filters)
            filters = sum((a * self.kernel**2 + 1) * b for a, b in pairwise(shape))
            size = shape[-1] * math.prod(conv.remaining)
        return filters + sum((a + 1) * b for a, b in pairwise((size, *self.hidden, outputs)))

    def _conv(self, outputs: int) -> Conv:
        return Conv(
            image=self.image,
            filters=self.filters,
            kernel=self.kernel,
            pool=self.pool,
            hidden=self.hidden,
            activation=self.activation,
            dropout=self.dropout,
            outputs=outputs,
        )

    def network(self, features: int, outputs: int = 1) -> str:
        """Return the spec of a network of so many columns, with so many outputs."""
        if self.image:
            return self._conv(outputs).spec
        dense = Mlp(
            inputs=features,
            hidden=self.hidden,
            activation=self.activation,
            dropout=self.dropout,
            outputs=outputs,
        )
        return dense.spec

    def plan(self, features: int, loss: str, outputs: int = 1) -> Plan:
        """Return the plan of each site.

        Parameters
        ----------
        features : number of columns. loss : as in `Plan`. outputs : of the network.
        """
        return self.plan_by(self.network(features, outputs), loss)

    def plan_by(self, network: str, loss: str) -> Plan:
        """Return the plan of each site for a network's spec and a loss."""
        return self.plan_of(network, loss, batch_size=self.batch_size, l1=self.l1, l2=self.l2)
