"""Settings of a network of images: of columns that are pixels, or that a map makes pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedcohort.models.conv import NORMS, Conv
from fedcohort.models.network import Mlp
from fedcohort.numerics.refined import side_of
from fedcohort.protocol import SettingError, setting
from fedcohort.training.networks.fit_settings import FitSettings

#: Where the distances of features come from.
SOURCES = ("none", "sums", "coordinator")


@dataclass(frozen=True, kw_only=True)
class ImageSettings(FitSettings):
    """Settings of dense layers, or of convolutions before them."""

    image: tuple[int, ...] = setting(
        (),
        "Height and width, or height, width and channels, of the image whose pixels are the "
        "columns, row by row; (): no image",
        "pixels",
        within="[1, 10_000]",
    )
    refined: str = setting(
        "none",
        "Make an image of the columns of each view, in which similar columns are neighbours "
        "(REFINED): by correlations from sums over all sites, or of the coordinator's own rows",
        choices=SOURCES,
    )
    filters: tuple[int, ...] = setting(
        (8, 16), "Filters of each convolution of an image", within="[1, 10_000]"
    )
    kernel: int = setting(3, "Width of the filters, odd", "pixels", within="[1, 99]")
    pool: int = setting(
        2, "Side of the squares whose largest value remains after a convolution; 1: all remain",
        "pixels", within="[1, 99]",
    )  # fmt: skip
    padding: bool = setting(True, "Zero padding, so that convolutions keep height and width")
    normalise: str = setting(
        "none",
        "Normalisation after each convolution. group: of each row by itself, over 8 filters",
        choices=NORMS,
    )
    joined: tuple[int, ...] = setting(
        (),
        "Filters of each convolution of one dimension, over what the others found in all images",
        within="[1, 10_000]",
    )
    joined_kernel: int = setting(5, "Width of the filters of joined", within="[1, 99]")
    joined_stride: int = setting(3, "Step of the filters of joined", within="[1, 99]")

    def __post_init__(self) -> None:
        super().__post_init__()
        sides = not self.image or len(self.image) in (2, 3)
        self.check(
            ("image", sides, "height and width, or height, width and channels"),
            ("image", not self.image or self.refined == "none", "() with refined"),
            ("kernel", self.kernel % 2 == 1, "an odd number, so that a filter has a middle"),
            ("joined", not self.joined or self.has_images, "() without an image"),
        )
        if self.image:
            self._check_room(self._conv(1, ()), f"{self._size} pixels")

    @property
    def has_images(self) -> bool:
        """Whether the network sees images."""
        return bool(self.image) or self.refined != "none"

    @property
    def layered(self) -> bool:
        """Whether the network has a layer besides the last."""
        return bool(self.hidden or (self.has_images and (self.filters or self.joined)))

    @property
    def _size(self) -> str:
        return " × ".join(map(str, self.image))

    def check_columns(self, features: int, most: int | None = None) -> None:
        """Refuse columns that are not the image's pixels, or too few for an image.

        Parameters
        ----------
        features, most : fewest and most columns; without `most` the number of columns.

        Raises
        ------
        SettingError : the message has both numbers.
        """
        top = features if most is None else most
        if self.refined != "none" and top:
            side = side_of(top)
            self._check_room(
                self._conv(1, (range(side**2),)), f"{side} × {side} pixels ({top} columns)"
            )
        pixels = math.prod(self.image)
        found = str(features) if most in (None, features) else f"{features} to {most}"
        if self.image and not features <= pixels <= top:
            raise SettingError(
                f"setting 'image' of method {self.method!r} is {self._size}, which is {pixels} "
                f"pixels, but the fit has {found} columns. Name the pixels alone as features, "
                f"one column each, row by row."
            )

    def check_private(self) -> None:
        """Refuse a map of the columns in a private fit."""
        self.check(
            ("refined", self.refined == "none",
             "none: a private fit has no sums without noise, and no rows of the coordinator"),
        )  # fmt: skip

    @property
    def first_rows(self) -> str:
        """Name of the setting that needs rows of the coordinator for a first model, or ""."""
        return "refined: coordinator" if self.refined == "coordinator" else super().first_rows

    def _check_room(self, conv: Conv, size: str) -> None:
        """Refuse an image of which convolutions leave nothing."""
        if min(map(min, conv.remaining)) < 1:
            each = f"divides the sides by {self.pool}"
            if not self.padding:
                each = f"takes {self.kernel - 1} pixels from the sides, and {each}"
            raise SettingError(
                f"setting 'filters' of method {self.method!r} has {len(self.filters)} "
                f"convolutions, each of which {each}: nothing of {size} is left. Give fewer, or "
                f"{'pool: 1' if self.padding else 'padding: true and pool: 1'}."
            )
        if min(conv.sequence) < 1:
            raise SettingError(
                f"setting 'joined' of method {self.method!r} has {len(self.joined)} convolutions: "
                f"nothing is left of the {conv.sequence[0]} numbers that the others find in "
                f"{size}. Give fewer, or a smaller joined_kernel or joined_stride."
            )

    def sized(self, features: int, outputs: int) -> int:
        """Return the number of parameters; with `refined` as if of one image."""
        if not self.has_images:
            return sum((a + 1) * b for a, b in pairwise((features, *self.hidden, outputs)))
        maps = () if self.image else (range(side_of(features) ** 2),)
        return self._conv(outputs, maps).n_parameters

    def _conv(self, outputs: int, maps: Sequence[Sequence[int]]) -> Conv:
        return Conv(
            image=self.image,
            filters=self.filters,
            kernel=self.kernel,
            pool=self.pool,
            hidden=self.hidden,
            activation=self.activation,
            dropout=self.dropout,
            outputs=outputs,
            maps=maps,
            padding=self.padding,
            normalise=self.normalise,
            joined=self.joined,
            joined_kernel=self.joined_kernel,
            joined_stride=self.joined_stride,
        )

    def network(self, features: int, outputs: int = 1, maps: Sequence[Sequence[int]] = ()) -> str:
        """Return the spec of the network.

        Parameters
        ----------
        maps : with `refined`, of each image the column of each pixel (`models.conv.Conv`).

        Raises
        ------
        SettingError : an image is too small; or a penalty is on the first layer, and there are
            several.
        """
        if not (self.image or maps):
            dense = Mlp(
                inputs=features,
                hidden=self.hidden,
                activation=self.activation,
                dropout=self.dropout,
                outputs=outputs,
            )
            return dense.spec
        conv = self._conv(outputs, maps)
        sizes = ", ".join(f"{h} × {w}" for h, w, _ in conv.shapes)
        self._check_room(conv, f"{sizes} pixels")
        for name in ("l1", "l2"):
            fine = len(maps) < 2 or not getattr(self, name)
            self.check((name, fine, "0: each view has an image, and so a first layer, of its own"))
        return conv.spec
