"""Layers of networks: activations, dense layers, and layers that draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

#: Number of parameters that fit into a processor's cache: 256 KiB.
PIECE = 2**15

#: Activations of a perceptron, by the name users type.
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "selu": nn.SELU,
    "silu": nn.SiLU,
}

#: Activations of an autoencoder, by the name users type.
CURVES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "linear": lambda x: x,
}

#: By the same names: from δ after g and from g itself, δ g'.
SLOPES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda slope, out: torch.ops.aten.threshold_backward(slope, out, 0.0),
    "sigmoid": torch.ops.aten.sigmoid_backward,
    "linear": lambda slope, _: slope,
}


def dense(
    inputs: int, hidden: Sequence[int], activation: str, dropout: float, outputs: int, bias: bool
) -> list[nn.Module]:
    """Return hidden layers of these widths, each with activation and dropout, and a linear output.

    Their parameters are uninitialised; `bias` is of the output.
    """
    layers: list[nn.Module] = []
    for width, units in pairwise((inputs, *hidden)):
        layers += [Bare(width, units), ACTIVATIONS[activation]()]
        layers += [SeededDropout(dropout)] if dropout else []
    last = Bare((inputs, *hidden)[-1], outputs, bias=bias)
    return [*layers, last]


class Bare(nn.Linear):
    """A linear layer with uninitialised parameters (`skip_init` loads 0.2 s of modules for it)."""

    def reset_parameters(self) -> None:
        """Draw nothing."""


class Flat(nn.Linear):
    """A linear layer whose weights begin at 0 (`models.network.initial`), so that a network first
    says the same of every row.
    """


class Seeded(nn.Module):
    """A layer that draws, in training, from its own generator, never from torch's global one."""

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator()


class SeededDropout(Seeded):
    """Dropout."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Keep each entry with probability 1 − p, scaled by 1/(1 − p); keep all in `eval`."""
        if not self.training:
            return x
        return x * self.factors(x, *x.shape)

    def factors(self, like: Tensor, *shape: int) -> Tensor:
        """Draw the factors, in the type and on the device of a tensor: 0 or 1/(1 − p)."""
        drawn = torch.rand(shape, generator=self.generator)
        return drawn.ge_(self.p).to(like).div_(1.0 - self.p)
