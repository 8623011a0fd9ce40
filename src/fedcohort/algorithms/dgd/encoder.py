"""An encoder of a fitted `dgd`, trained on rows drawn from it (D6.2, section 9.2).

With z from the mixture and x from p(x | z), of which entries are hidden at random, a perceptron e
with parameters w is trained by Adam to least

    E ‖e(x̃, m) − z‖² / q                                                                    (1)

where x̃ has 0 for hidden entries, and m says which are known. A row has the share u of hidden
entries with u uniform from 0 to twice the sites' share of missing ones, and at least 0.1, at most
0.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from fedcohort.arrays import Array
from fedcohort.models.dgd import DgdNet
from fedcohort.models.network import Mlp, initial, network
from fedcohort.models.representations import drawn
from fedcohort.models.variational import filled
from fedcohort.training.networks.optimisers import Adam

#: Steps, rows of a step, and learning rate.
STEPS, ROWS, RATE = 2000, 256, 0.003


def spec_of(columns: int, latent: int, hidden: Sequence[int]) -> str:
    """Return the spec of an encoder of p columns."""
    return Mlp(inputs=2 * columns, hidden=tuple(hidden), activation="silu", outputs=latent).spec


def encoded(spec: str, weights: Array, dtype: str, x: Tensor) -> Tensor:
    """Return e (n, q) of rows x (n, p), which may hold NaN."""
    net = network(spec, dtype)
    net.load(weights)
    with torch.no_grad():
        return net.module(torch.cat([*seen(x)], dim=1)).reshape(len(x), -1)


def seen(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x̃ and m (n, p) of rows x (n, p)."""
    held, known = filled(x)
    return held, known.to(held)


def distilled(
    spec: str, theta: Array, hidden: Sequence[int], dtype: str, gaps: float, seed: int
) -> Array:
    """Return w (P,) by eq. (1); (0,) if no widths are given.

    Parameters
    ----------
    spec, theta : of the fitted model. gaps : the sites' share of missing entries.
    """
    if not hidden:
        return torch.zeros(0).numpy().astype(float)
    model = network(spec, dtype)
    model.load(theta)
    module = cast("DgdNet", model.module)
    columns, latent = module.net.inputs, module.net.latent
    name = spec_of(columns, latent, hidden)
    net = network(name, dtype)
    net.load(initial(name, seed))
    optimiser = Adam(net.theta)
    draws = torch.Generator().manual_seed((seed ^ 0x656E63) & 0xFFFFFFFF)
    most = min(0.9, max(0.1, 2.0 * gaps))
    for step in range(STEPS):
        number = int(torch.randint(2**31, (1,), generator=draws))
        with torch.no_grad():
            z = drawn(module, ROWS, number)
            x = module.entries.sample(module.decode(z), number + 1)
            share = most * torch.rand((ROWS, 1), generator=draws)
            hidden_here = torch.rand(x.shape, generator=draws) < share
            rows = torch.cat([*seen(torch.where(hidden_here.to(x.device), torch.nan, x))], dim=1)

        def loss(e: torch.nn.Module, rows: Tensor = rows, z: Tensor = z) -> Tensor:
            return (e(rows).reshape(z.shape) - z).square().mean()

        net.descend(loss)
        optimiser.step(net.theta, net.grad, RATE * (1.0 - step / STEPS))
    return net.read()
