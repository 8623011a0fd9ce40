"""Gradient of a site's rows in a round of Weight Erosion, and its variance.

g is that of a batch (`batch`), or of all rows (`full`), or (θ − θ')/η where θ' is the result of
some passes of gradient descent from θ (`local`); the same rows in all calls of a round. v is the
variance of such a mean gradient: with g_k of its rows in K parts of nearly equal size and their
mean ḡ,

    v = Σ_k ‖g_k − ḡ‖²/(K (K − 1))                                                        (1)

or, if a loss is not a mean over rows (Cox), with g_k of all rows but part k, times (K − 1)²: the
jackknife, which is the same for a mean.

Revealed: see `erosion`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.models.network import network
from fedcohort.protocol import Site
from fedcohort.training.networks.local import penalise, train
from fedcohort.training.networks.plan import Plan
from fedcohort.training.rows import Rows, rows_of

#: Kinds of gradient; see the header.
VISITS = ("batch", "full", "local")
#: K of eq. (1).
PARTS = 10
#: Parts of the entropy of a round's batch (with study seed, site, round), and of the parts.
TAG, PARTS_TAG = 0x65726F64, 0x70617274


def slope_of(
    site: Site[Any, None], theta: Array, plan: str, visit: str, rate: float, draw: int, least: int
) -> tuple[Array, float] | None:
    """Return g_i (P,) of a round, and the loss; None if the rows carry no information.

    Parameters
    ----------
    visit : one of `VISITS`. rate : η, of a `local` one.
    draw : number of the round, which seeds its batch.
    least : fewest rows to tell about.
    """
    p = Plan.of(plan)
    every, rows = _rows_in(site, p, visit, draw)
    if len(every.x) < max(least, 1) or not rows.informative:
        return None
    if visit == "local":
        left, loss = train(theta, rows, p, rate, (*site.entropy[:2], draw, TAG))
        return (theta - left) / rate, loss
    net = network(p.network, p.dtype, p.device)
    net.load(theta)
    loss = rows.pull(net) + penalise(net, p)
    return net.gradient(), loss


def spread_of(site: Site[Any, None], theta: Array, plan: str, visit: str, draw: int) -> float:
    """Return v of eq. (1), over the rows of g_i; the same parts in all calls of a round."""
    p = Plan.of(plan)
    _, rows = _rows_in(site, p, visit, draw)
    order = np.random.default_rng((*site.entropy[:2], PARTS_TAG)).permutation(len(rows.x))
    parts = min(PARTS, len(order))
    if parts < 2:
        return 0.0
    net = network(p.network, p.dtype, p.device)
    net.load(theta)
    found, without = np.zeros((parts, len(theta))), p.loss == "cox"
    for k, numbers in enumerate(np.array_split(order, parts)):
        taken = np.setdiff1d(order, numbers) if without else np.sort(numbers)
        part = rows.take(taken)
        if part.informative:
            part.pull(net)
            found[k] = net.gradient()
    scale = (parts - 1) / parts if without else 1.0 / (parts * (parts - 1))
    return float(((found - found.mean(axis=0)) ** 2).sum() * scale)


def _rows_in(site: Site[Any, None], plan: Plan, visit: str, draw: int) -> tuple[Rows, Rows]:
    """Return all rows of a site, and the rows of the round."""
    entropy = (*site.entropy[:2], draw, TAG)
    every = rows_of(site.data, plan, entropy)
    if visit == "batch" and 0 < plan.batch_size < len(every.x):
        return every, every.take(batch_of(len(every.x), plan.batch_size, entropy))
    return every, every


def batch_of(n: int, size: int, entropy: tuple[int, ...]) -> Array:
    """Return `size` of n rows, by number, increasing."""
    return np.sort(np.random.default_rng(entropy).choice(n, size, replace=False))
