"""Convolutional networks of images whose pixels are columns of a table.

LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", Proc.
IEEE 86(11), 1998. A block is a convolution with a square kernel of odd width, with zero padding, so
that height and width stay, or without; then normalisation, if asked for, an activation, and the
largest value of each square of `pool` × `pool` pixels. Dense hidden layers follow, and a linear
output.

The columns are the pixels row by row; of a pixel its channels side by side, as NumPy flattens an
array (height, width, channels). Or maps name the column of each pixel, of one or several images
(`numerics.refined`). Each image has its own blocks. What they find is joined into one sequence, on
which convolutions of one dimension may follow (Nolte et al., Bioinformatics Advances 3(1), 2023).

θ holds all that is trained, so a network has no batch normalisation: its running means are a state
besides θ, which neither an average nor a visit of the sites would know. Group normalisation (Wu and
He, ECCV 2018) stands in its place: means and variances of each row alone, over `GROUP` filters.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedcohort.models.layers import ACTIVATIONS, SeededDropout, dense

#: Numbers in the largest layer's output that are computed at once, without gradient.
AT_ONCE = 2**22
#: Filters that are normalised together; all of a layer's that it does not divide.
GROUP = 8
#: Ways of normalisation.
NORMS = ("none", "group")


@dataclass(frozen=True, kw_only=True)
class Conv:
    """A convolutional network: images – blocks of filters – sequence – hidden widths – outputs.

    Attributes
    ----------
    image : height and width, or height, width and channels; () with maps.
    filters : number of filters of each block.
    kernel : width of the kernel, odd.
    pool : side of the squares whose largest value remains; 1 keeps all.
    hidden, activation, dropout, intercept, outputs : as in `models.network.Mlp`; the activation is
        also that of the blocks. With `joined` the sequence too has dropout.
    maps : of each square image, the column of each pixel, row by row; −1 of an empty one, which
        is 0.
    padding : whether zero padding keeps height and width.
    normalise : one of `NORMS`, after each convolution.
    joined, joined_kernel, joined_stride : filters of the convolutions of the sequence, their width,
        and their step.
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
    maps: Sequence[Sequence[int]] = ()
    padding: bool = True
    normalise: str = "none"
    joined: tuple[int, ...] = ()
    joined_kernel: int = 5
    joined_stride: int = 3

    @property
    def spec(self) -> str:
        """JSON text that determines the network; of the entries from `maps` on, those that differ
        from their default.
        """
        entries = {"kind": "conv", **dataclasses.asdict(self), "maps": tuple(self.maps)}
        fields = dataclasses.fields(self)
        for f in fields[[f.name for f in fields].index("maps") :]:
            if entries[f.name] == f.default:
                del entries[f.name]
        return json.dumps(entries, sort_keys=True)

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """Height, width and channels of each image."""
        if self.maps:
            return [(math.isqrt(len(m)), math.isqrt(len(m)), 1) for m in self.maps]
        height, width, channels = (*self.image, 1)[:3]
        return [(height, width, channels)]

    @property
    def remaining(self) -> list[tuple[int, int]]:
        """Height and width of each image after all blocks; below 1 if it is too small for them."""
        return [(self._side(height), self._side(width)) for height, width, _ in self.shapes]

    def _side(self, side: int) -> int:
        for _ in self.filters:
            side = (side if self.padding else side - self.kernel + 1) // self.pool
        return side

    @property
    def sequence(self) -> list[int]:
        """Length of the sequence before the convolutions of `joined`, and after each; at least
        one below 1 if it is too short for them.
        """
        found = [
            h * w * (c, *self.filters)[-1]
            for (h, w), (_, _, c) in zip(self.remaining, self.shapes, strict=True)
        ]
        lengths = [sum(found)]
        for _ in self.joined:
            lengths.append((lengths[-1] - self.joined_kernel) // self.joined_stride + 1)
        return lengths

    @property
    def n_parameters(self) -> int:
        """Number of parameters."""
        area, norm = self.kernel**2, 2 * (self.normalise != "none")
        parts = [
            (a * area + 1 + norm) * b
            for s in self.shapes
            for a, b in pairwise((s[2], *self.filters))
        ]
        parts += [(a * self.joined_kernel + 1 + norm) * b for a, b in pairwise((1, *self.joined))]
        size = self.sequence[-1] * (1, *self.joined)[-1]
        parts += [(a + 1) * b for a, b in pairwise((size, *self.hidden, self.outputs))]
        return sum(parts) - self.outputs * (not self.intercept)

    def build(self) -> nn.Module:
        """Return the module with uninitialised parameters."""
        arms = [self._blocks(channels) for _, _, channels in self.shapes]
        sequence: list[nn.Module] = []
        for seen, found in pairwise((1, *self.joined)):
            made = nn.utils.skip_init(
                nn.Conv1d, seen, found, self.joined_kernel, stride=self.joined_stride
            )
            sequence += [made, *self._finish(found)]
        if self.joined:
            sequence += [nn.Flatten(), *[SeededDropout(self.dropout)] * bool(self.dropout)]
        head = dense(
            self.sequence[-1] * (1, *self.joined)[-1], self.hidden, self.activation, self.dropout,
            self.outputs, self.intercept,
        )  # fmt: skip
        pixels = sum(height * width for height, width, _ in self.shapes)
        block = max(1, AT_ONCE // (pixels * max(self.filters, default=1)))
        gather = [Gather(m) for m in self.maps] or [nn.Identity()]
        return ConvNet(self.shapes, gather, arms, sequence, head, block)

    def _blocks(self, channels: int) -> list[nn.Module]:
        found: list[nn.Module] = []
        padding = self.kernel // 2 if self.padding else 0
        for seen, made in pairwise((channels, *self.filters)):
            layer = nn.utils.skip_init(nn.Conv2d, seen, made, self.kernel, padding=padding)
            found += [layer, *self._finish(made), *[nn.MaxPool2d(self.pool)] * (self.pool > 1)]
        return found

    def _finish(self, filters: int) -> list[nn.Module]:
        """Return the normalisation, if any, and the activation after a convolution."""
        groups = filters // GROUP if filters % GROUP == 0 else 1
        norm = [nn.GroupNorm(groups, filters)] if self.normalise == "group" else []
        return [*norm, ACTIVATIONS[self.activation]()]


class Gather(nn.Module):
    """The columns of a table as the pixels of an image.

    Parameters
    ----------
    columns : of each pixel; −1 for none.
    """

    def __init__(self, columns: Sequence[int]):
        super().__init__()
        self.register_buffer("columns", torch.tensor(columns, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """Return the pixels (n, side²) of x (n, p); 0 in empty ones."""
        columns = self.get_buffer("columns")
        return torch.cat([x, torch.zeros_like(x[:, :1])], dim=1)[:, columns]


class ConvNet(nn.Module):
    """The module of a `Conv`.

    Attributes
    ----------
    block : number of rows that are computed at once, without gradient.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, int, int]],
        gather: Sequence[nn.Module],
        arms: Sequence[list[nn.Module]],
        sequence: list[nn.Module],
        head: list[nn.Module],
        block: int,
    ):
        super().__init__()
        self.block = block
        self._shapes = shapes
        self._gather = nn.ModuleList(gather)
        self._arms = nn.ModuleList(nn.Sequential(*blocks) for blocks in arms)
        self._sequence = nn.Sequential(*sequence)
        self._head = nn.Sequential(*head)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (n, K) for columns x (n, p)."""
        found: list[Tensor] = []
        for shape, gather, arm in zip(self._shapes, self._gather, self._arms, strict=True):
            pixels = gather(x).reshape(-1, *shape).permute(0, 3, 1, 2)
            found.append(arm(pixels).flatten(1))
        whole = torch.cat(found, dim=1)
        return self._head(self._sequence(whole[:, None]) if len(self._sequence) else whole)
