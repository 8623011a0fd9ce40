"""Networks whose weights have a Gaussian posterior, with independent weights.

Blundell, Cornebise, Kavukcuoglu, Wierstra, "Weight uncertainty in neural networks", ICML 2015;
GenoMed4All D6.2, section 4.1. Each weight of a layer is N(μ, σ²), and θ holds μ and log σ of all
layers. A layer draws not its weights but the sums that they give (Kingma, Salimans, Welling,
"Variational dropout and the local reparameterization trick", NeurIPS 2015): of an input x (p,)

    a_k = Σ_j x_j μ_jk + √(Σ_j x_j² σ_jk²) ε_k,   ε_k ~ N(0, 1)                             (1)

with the bias as the weight of an input 1, and in a convolution at each place. For a dense layer and
one row this has the distribution of drawn weights. Slopes by θ then vary less than with one draw of
the weights for a batch. The sums of a convolution share weights, but are drawn as if they did not,
as is usual (Molchanov, Ashukha, Vetrov, ICML 2017).

That holds of a loss which is a sum over rows. Cox's partial likelihood compares rows: there, all
rows of a step share one draw of the weights themselves (`shared`).

With q = N(μ, σ²) and natural parameters λ, a precision which may also be 0 or below, and η, λ times
a mean, of a Gaussian c, for each weight and up to a constant,

    E_q[ln q − ln c] = −log σ + ½ λ (μ² + σ²) − η μ                                        (2)

Nothing is revealed here.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.arrays import Array
from fedcohort.models.layers import Seeded

#: Least variance of a sum, where no input has any.
SMALLEST = 1e-16


@dataclass(frozen=True, kw_only=True)
class Bayes:
    """A network with a posterior.

    Attributes
    ----------
    start : σ at the start.
    shared : all rows of a step have the same weights, which are drawn.
    """

    start: float = 0.05
    shared: bool = False

    def spec(self, base: str) -> str:
        """Return the JSON text that determines the posterior of the network `base`, a spec.

        That draws are not shared is not written.
        """
        entries = {"kind": "bayes", "base": json.loads(base), **asdict(self)}
        if not self.shared:
            del entries["shared"]
        return json.dumps(entries, sort_keys=True)

    def over(self, base: nn.Module) -> nn.Module:
        """Return the module of a network with its layers replaced by noisy ones."""
        for name, child in list(base.named_children()):
            if isinstance(child, (nn.Linear, nn.Conv1d, nn.Conv2d)):
                setattr(base, name, Noisy(child, math.log(self.start), shared=self.shared))
            else:
                self.over(child)
        return base


def base_of(spec: str) -> str:
    """Return the spec of the network under a posterior, whose parameters are its means in order."""
    return json.dumps(json.loads(spec)["base"], sort_keys=True)


class Noisy(Seeded):
    """A layer whose sums are drawn in training by eq. (1); else they are those of the means.

    Parameters
    ----------
    layer : its parameters are μ.
    start : log σ at the start.
    shared : in training, the weights are drawn instead, once for all rows.
    """

    def __init__(
        self, layer: nn.Linear | nn.Conv1d | nn.Conv2d, start: float, *, shared: bool = False
    ):
        super().__init__()
        self.layer, self.start, self.shared = layer, start, shared
        self.weight_log_sd = nn.Parameter(torch.empty_like(layer.weight))
        if layer.bias is not None:
            self.bias_log_sd = nn.Parameter(torch.empty_like(layer.bias))

    def begin(self) -> None:
        """Write log σ at the start."""
        with torch.no_grad():
            for values in self.parameters(recurse=False):
                values.fill_(self.start)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sums of x."""
        layer = self.layer
        if not self.training:
            return layer(x)
        if self.shared:
            weight = self._drawn(layer.weight, self.weight_log_sd)
            bias = None if layer.bias is None else self._drawn(layer.bias, self.bias_log_sd)
            return self._sums(x, weight, bias)
        mean = layer(x)
        spread = (2.0 * self.weight_log_sd).exp()
        bias = None if layer.bias is None else (2.0 * self.bias_log_sd).exp()
        variance = self._sums(x.square(), spread, bias)
        noise = torch.randn(mean.shape, generator=self.generator, dtype=mean.dtype).to(mean.device)
        return mean + variance.clamp_min(SMALLEST).sqrt() * noise

    def _drawn(self, mean: Tensor, log_sd: Tensor) -> Tensor:
        noise = torch.randn(mean.shape, generator=self.generator, dtype=mean.dtype)
        return mean + log_sd.exp() * noise.to(mean.device)

    def _sums(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the layer's sums of x with other weights."""
        layer = self.layer
        if isinstance(layer, nn.Linear):
            return functional.linear(x, weight, bias)
        of = functional.conv1d if isinstance(layer, nn.Conv1d) else functional.conv2d
        return of(x, weight, bias, layer.stride, layer.padding)


@dataclass(frozen=True, eq=False)
class Places:
    """Which of θ's numbers are what.

    Attributes
    ----------
    mean, log_sd : (W,), positions of μ and log σ of each weight.
    """

    mean: Array
    log_sd: Array


def places(module: nn.Module) -> Places:
    """Return the places of the parameters of a module, all of whose layers are noisy.

    Raises
    ------
    TypeError : a parameter is of another layer, such as a normalisation.
    """
    start: dict[int, int] = {}
    total = 0
    for p in module.parameters():
        start[id(p)] = total
        total += p.numel()
    pairs: list[tuple[Tensor, Tensor]] = []
    for m in module.modules():
        if isinstance(m, Noisy):
            pairs.append((m.layer.weight, m.weight_log_sd))
            if m.layer.bias is not None:
                pairs.append((m.layer.bias, m.bias_log_sd))
    if sum(2 * a.numel() for a, _ in pairs) != total:
        raise TypeError("some parameters have no spread.")
    mean, log_sd = (
        np.concatenate([start[id(p)] + np.arange(p.numel()) for p in part])
        for part in zip(*pairs, strict=True)
    )
    return Places(mean, log_sd)
