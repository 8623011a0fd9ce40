"""Stacked autoencoders, tied and untied.

The encoder is x → h_1 → … → z; the decoder reverses its widths. A tied decoder's
weights are the encoder's transposed, with biases of their own, and the bottleneck is linear (thesis
003, deep embedded clustering of MDS, section 2.1.1):

    h_l = g(W_l h_{l−1} + b_l),   z = W_L h_{L−1} + b_L                                    (1)
    h̃_{l−1} = g(W_lᵀ h̃_l + c_l),  h̃_L = z,  y = g_out(W_1ᵀ h̃_1 + c_1)                     (2)

Dropout applies to the hidden units of both sides, but not to x (which has
`models.reconstruction.Noise`) or z (thesis, section 4.1.1).

θ holds W_1, b_1, …, W_L, b_L; then, tied, c_L, …, c_1, or, untied, V_L, c_L, …, V_1, c_1.

Training on the processor takes the gradient without autograd: the same products, each written to
its place in the gradient. With δ the slope at a layer's sum, m the factors of dropout, and h the
layer's input,

    ∂W = δᵀh,  ∂b = Σ_j δ_j,  and below  δ ← m g'(δW)                                     (3)

A tied weight is the sum of both of its layers'. Autograd's own sum onto the vector of all gradients
was a copy of it, a sixth of a step of 2.6 million parameters.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.models.layers import CURVES, SLOPES, SeededDropout

#: Widths of the published encoders, hidden layers first and the latent space last, of (p, k):
#: "dec", "curves" and "google" of thesis 003, section 4.1.1; "small" of D6.2, section 7.4.1.
ARCHITECTURES: Mapping[str, Callable[[int, int], tuple[int, ...]]] = {
    "dec": lambda p, k: (500, 500, 2000, 10),
    "curves": lambda p, k: (400, 200, 100, 50, 25, 6),
    "google": lambda p, k: (1000, 500, 250, 10),
    "small": lambda p, k: (26, 26, 100, k),
}


@dataclass(frozen=True, kw_only=True)
class Autoencoder:
    """An autoencoder of p inputs.

    Attributes
    ----------
    inputs : p.
    widths : of the hidden layers, then d of the latent space.
    tied : the decoder's weights are the encoder's transposed.
    activation : g of eqs. (1) and (2), a name in `layers.CURVES`.
    output : g_out of eq. (2), a name in `layers.CURVES`.
    dropout : probability that a hidden unit is dropped in a training step.
    unit_norm : z is divided by ‖z‖ before decoding or clustering.
    bottleneck : activation of z. It differs from "linear" only in pairs of layer-wise pretraining,
        whose code is a hidden layer of the whole (`models.stacking`) and has dropout too.
    """

    kind: ClassVar[str] = "autoencoder"

    inputs: int
    widths: tuple[int, ...] = (500, 500, 2000, 10)
    tied: bool = True
    activation: str = "relu"
    output: str = "relu"
    dropout: float = 0.0
    unit_norm: bool = False
    bottleneck: str = "linear"

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))

    @property
    def spec(self) -> str:
        """JSON text that determines the network."""
        return json.dumps({"kind": self.kind, **dataclasses.asdict(self)}, sort_keys=True)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return p, the hidden widths, d."""
        return (self.inputs, *self.widths)

    @property
    def size(self) -> int:
        """Return P, the length of θ, without centroids."""
        return sum(map(len, self.slices()))

    def slices(self) -> list[range]:
        """Return the positions in θ of W_1, b_1, …, W_L, b_L and then of the decoder's
        parameters.
        """
        shapes = [n for a, b in pairwise(self.sizes) for n in (a * b, b)]
        for b, a in pairwise(self.sizes[::-1]):
            shapes += [a] if self.tied else [a * b, a]
        ends = np.cumsum([0, *shapes]).tolist()
        return [range(a, b) for a, b in pairwise(ends)]

    def build(self) -> AutoencoderNet:
        """Return the module with uninitialised parameters."""
        return AutoencoderNet(self)


class Passed(NamedTuple):
    """What a layer of a pass forward leaves for the way back.

    Attributes
    ----------
    layer : of the chain; ``ahead``: for a tied decoder layer, the encoder layer of its weight.
    into : its input h; ``out``: g of its sum, before dropout; ``curve``: the name of g.
    factors : of dropout; None without.
    """

    layer: Any
    ahead: Any
    into: Tensor
    out: Tensor
    curve: str
    factors: Tensor | None


class AutoencoderNet(nn.Module):
    """Module of eqs. (1) and (2).

    Attributes
    ----------
    by_layers : whether `passed` and `back` are all of it: a code of unit norm keeps autograd.
    """

    def __init__(self, a: Autoencoder):
        super().__init__()
        self._activation, self._output = CURVES[a.activation], CURVES[a.output]
        self._bottleneck, self._unit_norm = CURVES[a.bottleneck], a.unit_norm
        self._names = a.activation, a.bottleneck, a.output
        self.by_layers = not a.unit_norm
        self.encoder = nn.ModuleList(
            nn.utils.skip_init(nn.Linear, n, m) for n, m in pairwise(a.sizes)
        )
        back = list(pairwise(a.sizes[::-1]))
        self.decoder = nn.ModuleList(
            _Back(m) if a.tied else nn.utils.skip_init(nn.Linear, n, m) for n, m in back
        )
        hidden, drop = len(a.widths) - 1, a.dropout > 0
        self.silent = nn.ModuleList(SeededDropout(a.dropout) for _ in range(2 * hidden * drop))
        code = SeededDropout(a.dropout) if drop and a.bottleneck != "linear" else nn.Identity()
        self.silent_code = code

    def encode(self, x: Tensor) -> Tensor:
        """Return z (n, d) of x (n, p), eq. (1)."""
        last = len(self.encoder) - 1
        for k, layer in enumerate(self.encoder):
            x = layer(x)
            x = self._hidden(x, k) if k < last else self._bottleneck(x)
        return functional.normalize(x, dim=1) if self._unit_norm else x

    def decode(self, z: Tensor) -> Tensor:
        """Return y (n, p) of z (n, d), eq. (2)."""
        last = len(self.decoder) - 1
        z = self.silent_code(z)
        for k, (layer, ahead) in enumerate(zip(self.decoder, reversed(self.encoder), strict=True)):
            z = layer(z, ahead.weight) if isinstance(layer, _Back) else layer(z)
            z = self._hidden(z, last + k) if k < last else self._output(z)
        return z

    def forward(self, x: Tensor) -> Tensor:
        """Return y (n, p) of x (n, p)."""
        return self.decode(self.encode(x))

    def passed(self, x: Tensor) -> tuple[Tensor, list[Passed]]:
        """Return y (n, p) of x (n, p) as `forward` does, and what `back` needs, without a graph."""
        last, found = len(self.encoder) - 1, list[Passed]()
        hidden, code, output = self._names
        aheads = [None] * (last + 1) + list(reversed(self.encoder))
        for k, layer in enumerate([*self.encoder, *self.decoder]):
            ahead = aheads[k] if isinstance(layer, _Back) else None
            out = layer(x) if ahead is None else layer(x, ahead.weight)
            name = code if k == last else output if k == 2 * last + 1 else hidden
            out = CURVES[name](out)
            factors = self._factors(out, k, last)
            found.append(Passed(layer, ahead, x, out, name, factors))
            x = out if factors is None else out * factors
        return x, found

    def _factors(self, out: Tensor, k: int, last: int) -> Tensor | None:
        """Draw the factors of dropout after layer k of both sides; None without."""
        silent: Any = None
        if k == last:
            silent = self.silent_code
        elif k <= 2 * last and len(self.silent):
            silent = self.silent[k - (k > last)]
        if not (isinstance(silent, SeededDropout) and silent.training):
            return None
        return silent.factors(out, *out.shape)

    def back(self, passed: list[Passed], slope: Tensor) -> None:
        """Write eq. (3) into each parameter's `grad`, for the slope (n, p) at y."""
        for k in range(len(passed) - 1, -1, -1):
            layer, ahead, into, out, curve, factors = passed[k]
            if factors is not None:
                slope = slope * factors
            slope = SLOPES[curve](slope, out)
            torch.sum(slope, 0, out=layer.bias.grad)
            if ahead is not None:  # the encoder layer, which comes later, adds to it
                torch.mm(into.t(), slope, out=ahead.weight.grad)
                slope = slope.mm(ahead.weight.t())
                continue
            if isinstance(self.decoder[0], _Back):
                layer.weight.grad.add_(slope.t().mm(into))
            else:
                torch.mm(slope.t(), into, out=layer.weight.grad)
            if k:
                slope = slope.mm(layer.weight)

    def _hidden(self, h: Tensor, k: int) -> Tensor:
        h = self._activation(h)
        return self.silent[k](h) if len(self.silent) else h


class _Back(nn.Module):
    """h ↦ hW + c: the decoder layer of an encoder layer, with its own bias c (m,)."""

    def __init__(self, m: int):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(m))

    def forward(self, h: Tensor, weight: Tensor) -> Tensor:
        return functional.linear(h, weight.t(), self.bias)
