"""Representations of rows by a deep generative decoder: the best z of a row, and draws of z.

With (1) = ln p(x | z) and (2) = ln p(z | φ) of `models.dgd`, a row has the z of largest (1) + (2)
among those that Adam reaches from the means of components (`represented`). Draws are from the
mixture (`drawn`) or, by importance, from p(z | x) (`drawn_given`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedcohort.models.dgd import DgdNet
from fedcohort.models.variational import filled

#: β₁, β₂ and ε of Adam for representations, those of the authors' code.
BETAS, EPSILON = (0.5, 0.7), 1e-8
#: First learning rate of a new row's representation, in units of the softball's radius.
RATE = 0.1
#: Rows whose representations are computed at once.
BLOCK = 4096

_TAG = 0x646764


@dataclass(frozen=True)
class Search:
    """How representations of new rows are sought.

    Attributes
    ----------
    starts : number of components from whose means Adam begins: those of largest (1) + (2) there.
    steps : number of its steps; its rate falls by half a cosine.
    """

    starts: int
    steps: int


def represented(
    net: DgdNet, x: Tensor, search: Search, start: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the representations z (n, q) of rows x (n, p), and their (1) + (2) (n,).

    Parameters
    ----------
    start : (n, q), from which alone z is sought, at a fifth of the rate; None: from the means.
    """
    if not len(x):
        return x.new_zeros((0, net.net.latent)), x.new_zeros(0)
    blocks = x.split(BLOCK)
    begins = [None] * len(blocks) if start is None else start.split(BLOCK)
    parts = [_represented(net, *both, search) for both in zip(blocks, begins, strict=True)]
    return torch.cat([z for z, _ in parts]), torch.cat([v for _, v in parts])


def _represented(
    net: DgdNet, x: Tensor, start: Tensor | None, search: Search
) -> tuple[Tensor, Tensor]:
    held, known = filled(x)

    def value(z: Tensor) -> Tensor:
        return net.fits(held, known, z) + net.log_prior(z)

    rate = RATE * net.net.radius
    with torch.no_grad():
        if start is None:
            means = net.means
            there = torch.stack([value(m.expand(len(x), -1)) for m in means])  # (K, n)
            first = there.topk(min(search.starts, len(means)), dim=0).indices
            z = means[first].clone()
        else:
            z, rate = start[None], rate / 5.0
    found, best = climbed(value, z, search.steps, rate)
    top = best.argmax(dim=0)
    rows = torch.arange(len(x))
    return found[top, rows], best[top, rows]


def climbed(
    value: Callable[[Tensor], Tensor], z: Tensor, steps: int, rate: float
) -> tuple[Tensor, Tensor]:
    """Return the best points (…, q) that Adam reaches from z, each by itself, and their values.

    Parameters
    ----------
    value : points (…, q) → values (…,), each of its own point alone.
    """
    first, second = torch.zeros_like(z), torch.zeros_like(z)
    best, most = z.clone(), torch.full(z.shape[:-1], -math.inf, dtype=z.dtype, device=z.device)
    for t in range(steps + 1):
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            values = value(z)
            (slope,) = torch.autograd.grad(values.sum(), z)
        better = values.detach() > most
        most = torch.where(better, values.detach(), most)
        best = torch.where(better[..., None], z.detach(), best)
        if t < steps:
            now = rate * 0.5 * (1.0 + math.cos(math.pi * t / steps))
            z = z.detach()
            ascend(z, slope, first, second, torch.full_like(z[..., :1], t + 1.0), now)
    return best, most


def ascend(
    z: Tensor, slope: Tensor, first: Tensor, second: Tensor, taken: Tensor, rate: float
) -> None:
    """Move points z (…, q) up by one step of Adam, in place, with its moments.

    Parameters
    ----------
    taken : number of steps of each point, with this one (…, 1).
    """
    b1, b2 = BETAS
    first.mul_(b1).add_(slope, alpha=1.0 - b1)
    second.mul_(b2).addcmul_(slope, slope, value=1.0 - b2)
    root = (second / (1.0 - b2**taken)).sqrt_().add_(EPSILON)
    z.add_(first / (1.0 - b1**taken) / root, alpha=rate)


def drawn(net: DgdNet, n: int, seed: int) -> Tensor:
    """Return n draws of z (n, q) from the mixture."""
    means, logs = net.mixture()
    pick = torch.Generator().manual_seed(seed & 0xFFFFFFFF)
    shares = net.log_weights.exp().cpu()
    of = torch.multinomial(shares, max(n, 1), replacement=True, generator=pick)[:n]
    steps = noise(seed, means.new_empty((n, net.net.latent)))
    return means[of] + steps * (-0.5 * logs).exp()[of]


def drawn_given(net: DgdNet, x: Tensor, z: Tensor, draws: int, seed: int) -> Tensor:
    """Return a draw of z (n, q) from p(z | x), approximately, for each row of x (n, p).

    z (n, q) are the rows' representations.

    `draws` points come from the normal that fits (1) + (2) at its maximum (Laplace), 1.5 times as
    wide; one is chosen with weights p(x, z) over its density. A maximum without curvature in some
    direction takes that of the broadest component.
    """
    held, known = filled(x)

    def one(point: Tensor, row: Tensor, seen: Tensor) -> Tensor:
        at = point[None]
        return -(net.fits(row[None], seen[None], at) + net.log_prior(at)).sum()

    curvature: Any = torch.func.vmap(torch.func.hessian(one))(z, held, known)
    values, vectors = torch.linalg.eigh(curvature.detach())
    least = net.log_precisions.detach().exp().min()
    scale = 1.5**0.5 * values.clamp_min(least).rsqrt()
    steps = noise(seed, z.new_empty((draws, *z.shape)))
    points = z + torch.einsum("nij,dnj->dni", vectors, scale * steps)
    with torch.no_grad():
        odds = net.fits(held, known, points) + net.log_prior(points)
    odds = odds + 0.5 * steps.square().sum(dim=-1)
    pick = torch.Generator().manual_seed((seed + 1) & 0xFFFFFFFF)
    chosen = torch.multinomial(torch.softmax(odds.T, dim=1).cpu(), 1, generator=pick)[:, 0]
    return points[chosen, torch.arange(len(x))]


def noise(seed: int, like: Tensor) -> Tensor:
    """Return standard normal draws of the shape and type of a tensor, by a seed."""
    draws = torch.Generator().manual_seed((seed ^ _TAG) & 0xFFFFFFFF)
    return torch.randn(tuple(like.shape), generator=draws).to(like)
