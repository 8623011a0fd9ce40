"""Slopes of single records of a network with a posterior, clipped and summed.

Goodfellow, "Efficient per-example gradient computations", arXiv:1510.01799. With inputs a_i (p,) of
a dense layer and slopes δ_i (K,) by its sums, record i has the slopes δ_i a_iᵀ by the means of the
layer's weights, of norm ‖δ_i‖ ‖a_i‖, and their squares have the norm ‖δ_i²‖ ‖a_i²‖. So one backward
pass of a block of records gives all norms, and a second product of matrices the clipped sums; no
slopes of a single record are in memory. Those of a convolution are: it has few weights.

Nothing is revealed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.arrays import Array
from fedcohort.models.bayes import Noisy
from fedcohort.models.network import FlatNet, network
from fedcohort.training.networks.plan import Plan
from fedcohort.training.rows import Rows

#: Records whose sums of layers are in memory at once.
BLOCK = 1024
#: Largest seed of a block's draws.
SEEDS = 2**62


def clipped_sums(
    theta: Array, rows: Rows, plan: Plan, rng: np.random.Generator, *, clip: float, squares: float,
    mark: float,
) -> Array:  # fmt: skip
    """Return Σ_i c_i (s_i, κ s_i², m) (2 W + 1,), c_i = min(1, C/‖(s_i, κ s_i², m)‖).

    s_i (W,) are the slopes of the log likelihood of record i by the means of weights, at a draw. A
    record whose slopes are not finite adds 0. Norms are float64: rounding does not pass C.

    Parameters
    ----------
    theta : θ (2 W,). clip, squares, mark : C, κ and m.
    """
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    noisy = [m for m in net.module.modules() if isinstance(m, Noisy)]
    total = np.zeros(len(theta) + 1)
    for start in range(0, len(rows.x), BLOCK):
        block = rows.take(np.arange(start, min(start + BLOCK, len(rows.x))))
        parts = [_Part(*found) for found in _passed(net, noisy, block, int(rng.integers(SEEDS)))]
        norm = sum(p.norm + squares**2 * p.norm_of_squares for p in parts) + mark**2
        scale = clip / torch.as_tensor(norm).sqrt().clamp_min(clip)
        scale = torch.where(scale.isfinite() & (scale > 0), scale, 0.0)
        for p in parts:
            p.drop(scale == 0)
        first = [p.sum(scale) for p in parts]
        second = [squares * p.sum_of_squares(scale) for p in parts]
        last = (mark * scale.sum())[None]
        total += torch.cat([*first, *second, last]).cpu().numpy().astype(np.float64)
    return total


def _passed(
    net: FlatNet, noisy: Sequence[Noisy], rows: Rows, seed: int
) -> list[tuple[Noisy, Tensor, Tensor]]:
    """Return each noisy layer with its inputs, and the slopes of the log likelihood by its sums."""
    inputs: dict[Noisy, Tensor] = {}
    slopes: dict[Noisy, Tensor] = {}

    def seen(layer: nn.Module, given: Any, out: Tensor) -> None:
        assert isinstance(layer, Noisy)
        inputs[layer] = given[0].detach().double()

        def told(slope: Tensor) -> None:
            slopes[layer] = -slope.detach().double()

        out.register_hook(told)

    def each(outputs: Array) -> tuple[float, Array]:
        value, slope = rows.plain(outputs)
        return value, slope * len(rows.x)  # losses are means over rows

    hooks = [layer.register_forward_hook(seen) for layer in noisy]
    try:
        with np.errstate(all="ignore"):  # of a posterior that no honest coordinator sends
            net.pull(rows.x, each, seed)
    finally:
        for hook in hooks:
            hook.remove()
    return [(layer, inputs[layer], slopes[layer]) for layer in noisy]


class _Part:
    """Slopes of records by the means of one layer's weights."""

    def __init__(self, layer: Noisy, x: Tensor, slope: Tensor):
        self._biased = layer.layer.bias is not None
        self._dense = isinstance(layer.layer, nn.Linear)
        if not self._dense:
            self._slopes = _of_convolution(layer.layer, x, slope)
            return
        ones = (torch.ones_like(x[:, :1]),) if self._biased else ()
        self._out, self._in = slope, torch.cat([x, *ones], dim=1)

    @property
    def norm(self) -> Tensor:
        """Squared norms (n,)."""
        if not self._dense:
            return self._slopes.square().sum(dim=1)
        return self._out.square().sum(dim=1) * self._in.square().sum(dim=1)

    @property
    def norm_of_squares(self) -> Tensor:
        """Squared norms of the squares (n,)."""
        if not self._dense:
            return self._slopes.square().square().sum(dim=1)
        return self._out.square().square().sum(dim=1) * self._in.square().square().sum(dim=1)

    def drop(self, rows: Tensor) -> None:
        """Set the slopes of some rows to 0, which may not be finite."""
        if self._dense:
            self._out = torch.where(rows[:, None], 0.0, self._out)
            self._in = torch.where(rows[:, None], 0.0, self._in)
        else:
            self._slopes = torch.where(rows[:, None], 0.0, self._slopes)

    def sum(self, scale: Tensor) -> Tensor:
        """Return the weighted sum of slopes, weights first and then biases."""
        if not self._dense:
            return scale @ self._slopes
        return self._flat((self._out * scale[:, None]).T @ self._in)

    def sum_of_squares(self, scale: Tensor) -> Tensor:
        """Return the same of their squares."""
        if not self._dense:
            return scale @ self._slopes.square()
        return self._flat((self._out.square() * scale[:, None]).T @ self._in.square())

    def _flat(self, both: Tensor) -> Tensor:
        if not self._biased:
            return both.flatten()
        return torch.cat([both[:, :-1].flatten(), both[:, -1]])


def _of_convolution(layer: nn.Module, x: Tensor, slope: Tensor) -> Tensor:
    """Return the slopes (n, W) of each record by the means of a convolution's weights.

    Raises
    ------
    TypeError : the convolution is not over images.
    """
    if not isinstance(layer, nn.Conv2d) or isinstance(layer.padding, str):
        raise TypeError("slopes of single records are those of dense layers and of images.")
    patches = functional.unfold(x, layer.kernel_size, 1, layer.padding, layer.stride)
    by_place = slope.flatten(2)
    found = torch.einsum("nkl,npl->nkp", by_place, patches).flatten(1)
    return found if layer.bias is None else torch.cat([found, by_place.sum(dim=2)], dim=1)


@lru_cache(maxsize=16)
def layers_of(spec: str) -> tuple[slice, ...]:
    """Return where the weights of each layer are among those of the posterior (W,)."""
    found: list[slice] = []
    start = 0
    for layer in network(spec).module.modules():
        if isinstance(layer, Noisy):
            size = sum(p.numel() for p in layer.layer.parameters())
            found.append(slice(start, start + size))
            start += size
    return tuple(found)
