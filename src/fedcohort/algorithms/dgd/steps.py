"""Site steps of `dgd`.

A site keeps the representation of each of its rows in its state (`Held`); no message to the
coordinator holds them.

Revealed, only as sums over all sites: `Entries` once, `Update` every round, `Placed`, the number of
rows, once, and `HeldOut` every round with a patience or ``lr_rule: plateau`` (or
`training.networks.counts`). With a robust aggregation, `Visit` of each site instead of `Update`.

A row without a known entry does not count. A site with no other rows returns the model that it
received, with weight 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fedcohort.arrays import Array
from fedcohort.models.dgd import DgdNet
from fedcohort.models.network import FlatNet, network
from fedcohort.models.objectives import Joint, loss_of
from fedcohort.models.representations import ascend, drawn, represented
from fedcohort.protocol import Keep, Site, gathered, message, summed
from fedcohort.training.clusters.points import Kept, Placed
from fedcohort.training.networks.entries import count_entries
from fedcohort.training.networks.local import Memory, evaluate
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.strategies import Update, Visit
from fedcohort.training.rows import Rows, known_rows, tensor


@message
class HeldOut:
    """n_k, and n_k times the mean −ln p(x, z), of the rows held out."""

    some_rows = True

    rows: Array
    loss: Array


@message
class Held:
    """State that a site keeps: representations and their optimiser, and that of its last visit.

    z, its moments `first` and `second` (n, q) and steps `taken` (n,) of the training rows;
    `moments` (s, P) and `steps` () of θ; a mark of the training ().
    """

    beside = True

    z: Array
    first: Array
    second: Array
    taken: Array
    moments: Array
    steps: Array
    mark: Array


DgdSite = Site[Any, Held | None]


@summed
def learn_decoder(
    site: DgdSite, *, theta: Array, plan: str, rate: float, pace: float, begin: bool, seek: bool
) -> Keep[Update, Held]:
    """Train the decoder, the mixture and the site's own representations; return the first two.

    `pace`: learning rate of representations, in units of `rate`. `begin`: they begin anew. `seek`:
    new ones are sought by the model; otherwise they begin at 0.
    """
    theta, n, loss, held = _visited(site, theta, plan, rate, pace, begin, seek)
    return Keep(Update(n * theta, np.array(float(n)), np.array(n * loss)), held)


@gathered
def learn_decoder_seen(
    site: DgdSite, *, theta: Array, plan: str, rate: float, pace: float, begin: bool, seek: bool
) -> Keep[Visit, Held]:
    """Train the same; return the model itself, for a robust aggregation."""
    theta, n, loss, held = _visited(site, theta, plan, rate, pace, begin, seek)
    return Keep(Visit(theta, np.array(float(n)), np.array(n * loss)), held)


def _visited(
    site: DgdSite, theta: Array, plan: str, rate: float, pace: float, begin: bool, seek: bool
) -> tuple[Array, int, float, Held]:
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy)
    held = None if begin else site.state
    return visited(held, theta, rows, p, rate, pace, site.entropy, seek=seek)


@summed
def place_rows(site: Site[Any, Any], *, theta: Array, plan: str) -> Keep[Placed, Kept]:
    """Seek the representations of all rows by the common model, and keep them at the site.

    A row without a known entry is placed at random, by the mixture.
    """
    p = Plan.of(plan)
    net = network(p.network, p.dtype, p.device)
    net.load(theta)
    module, x = cast("DgdNet", net.module), tensor(site.data.x, p)
    z = represented(module, x, cast("Joint", loss_of(p.loss, site.data)).search)[0].detach()
    nothing = x.isnan().all(dim=1)
    z[nothing] = drawn(module, int(nothing.sum()), site.seed).detach()
    placed = z.cpu().numpy().astype(np.float64)
    return Keep(Placed(np.array(len(x))), Kept(placed, np.zeros(0, np.int64)))


@summed
def held_out_density(site: Site[Any, Any], *, theta: Array, plan: str) -> HeldOut:
    """Sum the loss of the held-out rows, each at the representation that the model gives it."""
    p = Plan.of(plan)
    rows = known_rows(site.data, p, site.entropy, held_out=True)
    n = len(rows.x)
    return HeldOut(np.array(n), np.array(n * evaluate(theta, rows, p)))


# training -----------------------------------------------------------------------------


@dataclass
class _Points:
    """Representations in training: z and moments (n, q), and steps (n, 1)."""

    z: Tensor
    first: Tensor
    second: Tensor
    taken: Tensor

    def move(self, at: Tensor, slope: Tensor, rate: float) -> None:
        """Take a step of Adam with the rows `at` alone, up the slope (len(at), q)."""
        self.taken[at] += 1.0
        z, first, second = self.z[at], self.first[at], self.second[at]
        ascend(z, slope, first, second, self.taken[at], rate)
        self.z[at], self.first[at], self.second[at] = z, first, second


def visited(
    state: Held | None,
    theta: Array,
    rows: Rows,
    plan: Plan,
    rate: float,
    pace: float,
    entropy: tuple[int, ...],
    *,
    seek: bool,
) -> tuple[Array, int, float, Held]:
    """Return θ (P,) after a visit, the number of rows, the loss, and what the site keeps.

    Decoder, mixture and representations take each step together, from the slopes at one point. Each
    row's representation has an Adam of its own, which moves only when the row is in the batch. With
    ``optimiser_state: fresh`` it begins anew in each visit, as that of θ does, because the model
    has changed since the last one.

    Parameters
    ----------
    state : of the last visit. Representations count if they are of as many rows and dimensions, the
        optimiser's state if it is of the same plan.
    loss : mean of eq. (5) of `models.dgd` over the first epoch's batches, each before its step.
    """
    joint, n = cast("Joint", rows.loss), len(rows.x)
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    mark = int.from_bytes(hashlib.blake2b(plan.text.encode(), digest_size=8).digest(), "big") >> 1
    kept = plan.optimiser_state == "kept"
    latent = cast("DgdNet", net.module).net.latent
    held = state if state is not None and state.z.shape == (n, latent) else None
    goes_on = kept and held is not None and held.mark == mark
    points = _points(net, rows, joint, held, seek=seek, goes_on=goes_on)
    optimiser = OPTIMISERS[plan.optimiser](net.theta)
    if held is not None and goes_on:
        optimiser.moments.copy_(torch.from_numpy(held.moments))
        optimiser.taken = float(held.steps)
    start = net.theta.clone() if plan.mu else None
    seen: list[float] = []
    batches = min(plan.parts(n), n)
    for at in _dealt(n, batches, plan.epochs, entropy):
        value, slope = _slopes(net, joint, rows.x[at], points.z[at])
        if len(seen) < batches:
            seen.append(value * len(at) / n)
        if start is not None:
            net.grad.add_(net.theta - start, alpha=plan.mu)
        optimiser.step(net.theta, net.grad, rate)
        points.move(at, -len(at) * slope, pace * rate)
    memory = Memory.of(optimiser) if kept else Memory(np.zeros((0, 0)), 0)
    parts = (points.z, points.first, points.second, points.taken[:, 0])
    z, first, second, taken = (t.cpu().numpy().astype(np.float64) for t in parts)
    left = Held(z, first, second, taken, memory.moments, np.array(memory.taken), np.array(mark))
    return net.read() if n else theta.astype(np.float64), n, float(sum(seen)), left


def _points(
    net: FlatNet, rows: Rows, joint: Joint, held: Held | None, *, seek: bool, goes_on: bool
) -> _Points:
    """Return the representations at the start of a visit."""
    module = cast("DgdNet", net.module)
    zeros = net.theta.new_zeros((len(rows.x), module.net.latent))
    taken = zeros.new_zeros((len(zeros), 1))
    if held is None:
        z = represented(module, rows.x, joint.search)[0].detach() if seek else zeros.clone()
        return _Points(z, zeros.clone(), zeros.clone(), taken)
    z = torch.from_numpy(held.z).to(zeros)
    if not goes_on:
        return _Points(z, zeros.clone(), zeros.clone(), taken)
    first, second = (torch.from_numpy(a).to(zeros) for a in (held.first, held.second))
    return _Points(z, first, second, torch.from_numpy(held.taken[:, None]).to(zeros))


def _slopes(net: FlatNet, joint: Joint, x: Tensor, z: Tensor) -> tuple[float, Tensor]:
    """Write ∇θ of eq. (5) into `net.grad`; return its value, and its slope (n, q) in z."""
    z = z.detach().requires_grad_()
    return net.descend_with(lambda module: joint.at(module, x, z), z)


def _dealt(n: int, batches: int, epochs: int, entropy: tuple[int, ...]) -> Iterator[Tensor]:
    """Yield the numbers of the rows of each step."""
    if batches <= 1:
        yield from [torch.arange(n)] * (epochs if n else 0)
        return
    draws = np.random.default_rng(entropy)
    for _ in range(epochs):
        for part in np.array_split(draws.permutation(n), batches):
            yield torch.from_numpy(np.sort(part))


STEPS = (count_entries, learn_decoder, learn_decoder_seen, place_rows, held_out_density)
