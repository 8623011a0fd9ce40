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

With ς_k for the root, slopes g_k of a loss by a_k, and h_k = g_k ε_k / ς_k, its other slopes are

    ∂/∂μ_jk = x_j g_k,   ∂/∂log σ_jk = σ_jk² x_j² h_k,
    ∂/∂x_j = Σ_k μ_jk g_k + x_j Σ_k σ_jk² h_k                                              (2)

so a step of a dense layer takes twice as many products of matrices as a plain one. `Sums` computes
little else: an operation on each weight in new memory takes as long as a product. So σ² and the
slopes are written into memory that all steps use (`Memory`).

With q = N(μ, σ²) and natural parameters λ, a precision which may also be 0 or below, and η, λ times
a mean, of a Gaussian c, for each weight and up to a constant,

    E_q[ln q − ln c] = −log σ + ½ λ (μ² + σ²) − η μ                                        (3)

Nothing is revealed here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.arrays import Array
from fedcohort.models.layers import PIECE, Seeded

#: Added to the variance of a sum, so that its root has a slope where no input has a variance.
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

    Attributes
    ----------
    writes : `backward` writes the slopes over the parameters' gradients, and adds nothing to them.
        Only a layer that `can_write`, and is called once, may be asked for that.
    """

    def __init__(
        self, layer: nn.Linear | nn.Conv1d | nn.Conv2d, start: float, *, shared: bool = False
    ):
        super().__init__()
        self.layer, self.start, self.shared = layer, start, shared
        self.can_write = isinstance(layer, nn.Linear) and not shared
        self.writes, self._memory = False, None
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
        biases = () if layer.bias is None else (layer.bias, self.bias_log_sd)
        if self.shared:
            weight = self._drawn(layer.weight, self.weight_log_sd)
            return self._sums(x, weight, self._drawn(*biases) if biases else None)
        if isinstance(layer, nn.Linear):
            noise = self._noise((*x.shape[:-1], layer.out_features), x)
            given = (x, noise, layer.weight, self.weight_log_sd, *(biases or (None, None)))
            memory = self._kept() if self.writes else None
            return cast("tuple[Tensor, ...]", Sums.apply(*given, memory))[0]
        mean, spread = layer(x), _variance(self.weight_log_sd)
        variance = self._sums(x.square(), spread, _variance(biases[1]) if biases else None)
        return mean + (variance + SMALLEST).sqrt() * self._noise(mean.shape, mean)

    def _kept(self) -> Memory:
        if self._memory is None:
            layer = self.layer
            weights = (layer.weight, self.weight_log_sd)
            biases = () if layer.bias is None else (layer.bias, self.bias_log_sd)
            self._memory = Memory(torch.empty_like(layer.weight.detach()), weights, biases)
        return self._memory

    def _noise(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return ε of eq. (1)."""
        noise = torch.randn(shape, generator=self.generator, dtype=like.dtype)
        return noise.to(like.device)

    def _drawn(self, mean: Tensor, log_sd: Tensor) -> Tensor:
        return mean + log_sd.exp() * self._noise(mean.shape, mean)

    def _sums(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the layer's sums of x with other weights."""
        layer = self.layer
        if isinstance(layer, nn.Linear):
            return functional.linear(x, weight, bias)
        of = functional.conv1d if isinstance(layer, nn.Conv1d) else functional.conv2d
        return of(x, weight, bias, layer.stride, layer.padding)


@dataclass(frozen=True, eq=False)
class Memory:
    """Memory of a dense layer that all of its steps use.

    Attributes
    ----------
    variance : for σ² (K, p).
    weights, biases : μ and log σ, whose `grad` is for the slopes; no biases: ().
    """

    variance: Tensor
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    def fill(self, log_sd: Tensor) -> Tensor:
        """Return σ², computed by pieces that fit into the processor's cache."""
        size = PIECE if log_sd.is_cpu else log_sd.numel()
        for given, out in zip(
            log_sd.view(-1).split(size), self.variance.view(-1).split(size), strict=True
        ):
            torch.mul(given, 2.0, out=out).exp_()
        return self.variance

    def slopes(self, of: tuple[Tensor, ...]) -> Iterator[Tensor]:
        """Yield the memory for the slopes by some parameters."""
        for p in of:
            assert p.grad is not None
            yield p.grad


class Sums(torch.autograd.Function):
    """Eq. (1) of a dense layer, with the slopes of eq. (2)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, noise: Tensor, mean: Tensor, log_sd: Tensor,
        bias: Tensor | None = None, bias_log_sd: Tensor | None = None,
        memory: Memory | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Return the sums of x (n, p), their standard deviations, and σ².

        Parameters
        ----------
        noise : ε (n, K). mean, log_sd : μ and log σ (K, p).
        bias, bias_log_sd : the same of the bias (K,).
        memory : for σ² and the slopes by μ and log σ, which `backward` then does not return.
        """
        spread = _variance(log_sd) if memory is None else memory.fill(log_sd)
        constant = None if bias_log_sd is None else _variance(bias_log_sd)
        sd = functional.linear(x.square(), spread, constant).add_(SMALLEST).sqrt_()
        return torch.addcmul(functional.linear(x, mean, bias), sd, noise), sd, spread

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep what the slopes take."""
        x, noise, mean, _, _, bias_log_sd, *more = inputs
        _, sd, spread = output
        ctx.mark_non_differentiable(sd, spread)
        ctx.save_for_backward(x, noise, mean, sd, spread, bias_log_sd)
        ctx.set_materialize_grads(False)
        ctx.more, ctx.memory = len(more), more[0] if more else None

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        """Return the slopes by the inputs, given those by the sums."""
        memory, rest = cast("Memory | None", ctx.memory), (None,) * ctx.more
        if grad_outputs[0] is None:
            return (*(None,) * 6, *rest)
        g = cast("Tensor", grad_outputs[0])
        x, noise, mean, sd, spread, bias_log_sd = ctx.saved_tensors
        h = (g * noise).div_(sd)
        by_x = None
        if ctx.needs_input_grad[0]:
            by_x = torch.addcmul(g @ mean, x, h @ spread)
        if memory is not None:
            by_mean, by_log_sd = memory.slopes(memory.weights)
            torch.mm(g.t(), x, out=by_mean)
            torch.mm(h.t(), x.square(), out=by_log_sd).mul_(spread)
            if bias_log_sd is not None:
                by_bias, by_bias_log_sd = memory.slopes(memory.biases)
                torch.sum(g, 0, out=by_bias)
                torch.sum(h, 0, out=by_bias_log_sd).mul_(_variance(bias_log_sd))
            return (by_x, *(None,) * 6)
        by_mean, by_log_sd = g.t() @ x, (h.t() @ x.square()).mul_(spread)
        if bias_log_sd is None:
            return (by_x, None, by_mean, by_log_sd, None, None, *rest)
        by_bias, by_bias_log_sd = g.sum(0), h.sum(0) * _variance(bias_log_sd)
        return (by_x, None, by_mean, by_log_sd, by_bias, by_bias_log_sd, *rest)


def _variance(log_sd: Tensor) -> Tensor:
    return (2.0 * log_sd).exp_()


@dataclass(frozen=True, eq=False)
class Places:
    """Which of θ's numbers are what.

    Attributes
    ----------
    mean, log_sd : (W,), positions of μ and log σ of each weight.
    runs : (R, 3), first position among the weights, of μ, and of log σ, where these go on one by
        one until the next run begins.
    """

    mean: Array
    log_sd: Array
    runs: Array

    def pieces(self, largest: int) -> Iterator[tuple[slice, slice, slice]]:
        """Yield slices of (W,), and of θ for μ and for log σ, of at most `largest` weights."""
        ends = [*self.runs[1:, 0].tolist(), len(self.mean)]
        for (weights, mean, log_sd), end in zip(self.runs.tolist(), ends, strict=True):
            for start in range(0, end - weights, largest):
                stop = min(start + largest, end - weights)
                yield (
                    slice(weights + start, weights + stop), slice(mean + start, mean + stop),
                    slice(log_sd + start, log_sd + stop),
                )  # fmt: skip


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
    breaks = np.flatnonzero((np.diff(mean) != 1) | (np.diff(log_sd) != 1)) + 1
    firsts = np.concatenate([[0], breaks])
    return Places(mean, log_sd, np.column_stack([firsts, mean[firsts], log_sd[firsts]]))
