"""Convolutional networks of images whose pixels are columns of a table.

LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", Proc.
IEEE 86(11), 1998. A block is a convolution with a square kernel of odd width and zero padding, so
that height and width stay, then an activation, and the largest value of each square of `pool` ×
`pool` pixels. Dense hidden layers follow, and a linear output.

The columns are the pixels row by row; of a pixel its channels side by side, as NumPy flattens an
array (height, width, channels).

θ holds all that is trained, so a network has no batch normalisation: its running means are a state
besides θ, which neither an average nor a visit of the sites would know.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn

from fedcohort.models.layers import ACTIVATIONS, dense

#: Numbers in the largest layer's output that are computed at once, without gradient.
AT_ONCE = 2**22


@dataclass(frozen=True, kw_only=True)
class Conv:
    """A convolutional network: image – blocks of filters – hidden widths – outputs.

    Attributes
    ----------
    image : height and width, or height, width and channels.
    filters : number of filters of each block.
    kernel : width of the kernel, odd.
    pool : side of the squares whose largest value remains; 1 keeps all.
    hidden, activation, dropout, intercept, outputs : as in `models.network.Mlp`; the activation is
        also that of the blocks.
    """

    image: tuple[int, ...]
    filters: tuple[int, ...] = (8, 16)
    kernel: int = 3
    pool: int = 2
    hidden: tuple[int, ...] = (32,)
    activation: str = "relu"
    dropout: float = 0.0
    intercept: bool = True
    outputs: int = 1

    @property
    def spec(self) -> str:
        """JSON text that determines the network."""
        return json.dumps({"kind": "conv", **dataclasses.asdict(self)}, sort_keys=True)

    @property
    def remaining(self) -> tuple[int, int]:
        """Height and width after all blocks; 0 if the image is too small for them."""
        shrunk = self.pool ** len(self.filters)
        return self.image[0] // shrunk, self.image[1] // shrunk

    def build(self) -> nn.Module:
        """Return the module with uninitialised parameters."""
        height, width, channels = (*self.image, 1)[:3]
        blocks: list[nn.Module] = []
        maps = (channels, *self.filters)
        for seen, found in pairwise(maps):
            blocks += [
                nn.utils.skip_init(nn.Conv2d, seen, found, self.kernel, padding=self.kernel // 2),
                ACTIVATIONS[self.activation](),
                nn.MaxPool2d(self.pool),
            ]
        head = dense(
            maps[-1] * math.prod(self.remaining), self.hidden, self.activation, self.dropout,
            self.outputs, self.intercept,
        )  # fmt: skip
        block = max(1, AT_ONCE // (height * width * max(self.filters, default=1)))
        return ConvNet((height, width, channels), blocks, head, block)


class ConvNet(nn.Module):
    """The module of a `Conv`.

    Attributes
    ----------
    block : number of rows that are computed at once, without gradient.
    """

    def __init__(
        self,
        image: tuple[int, int, int],
        blocks: list[nn.Module],
        head: list[nn.Module],
        block: int,
    ):
        super().__init__()
        self.block = block
        self._image = image
        self._blocks = nn.Sequential(*blocks)
        self._head = nn.Sequential(*head)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (n, K) for pixels x (n, height × width × channels)."""
        pixels = x.reshape(-1, *self._image).permute(0, 3, 1, 2)
        return self._head(self._blocks(pixels).flatten(1))
