"""Sums of a forest's leaves over rows, for the strategy "exact".

Revealed, as a sum over all sites: `LeafSums`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedcohort.arrays import Array
from fedcohort.models.forest import Forest, ForestNet, forest_of
from fedcohort.models.network import FlatNet, network
from fedcohort.models.objectives import ForestLikelihood
from fedcohort.protocol import Federation, Site, message, summed
from fedcohort.training.networks.plan import Plan, holds_out
from fedcohort.training.rows import rows_of


@message
class LeafSums:
    """Sums of eq. (5) or (6) of `models.forest`, (3, T, L) or (2, T, L, K), and number of rows."""

    some_rows = staticmethod(holds_out)

    sums: Array
    rows: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        forest = forest_of(Plan.of(asked["plan"]).network)
        assert forest is not None
        if self.sums.shape != _shape(forest) or self.rows.shape:
            return "sums of another shape than the forest's leaves."
        if not np.isfinite(self.sums).all() or (self.sums[0] < 0).any():
            return "a sum of probabilities below 0, or no number."
        first = self.sums[0].reshape(*self.sums.shape[1:3], -1)[..., 0]
        above = first.sum(axis=1) > float(self.rows) + 1e-6 * max(1.0, float(self.rows))
        return "more rows in the leaves of a tree than rows." * bool(above.any())


def _shape(forest: Forest) -> tuple[int, ...]:
    leaves = forest.trees, forest.leaves
    return (2, *leaves, forest.intervals) if forest.intervals else (3, *leaves)


@summed
def sum_soft_leaves(site: Site[Any, None], *, theta: Array, plan: str) -> LeafSums:
    """Sum the outcomes over the rows, by the probability of each leaf."""
    p = Plan.of(plan)
    rows, module = rows_of(site.data, p, site.entropy), loaded(theta, p)[1]
    n = np.array(float(len(rows.x)))
    forest = forest_of(p.network)
    assert forest is not None
    if not n:
        return LeafSums(np.zeros(_shape(forest)), n)
    assert isinstance(rows.loss, ForestLikelihood)
    sums = module.leaf_sums(rows.x, rows.loss.targets)
    return LeafSums(np.asarray(sums.cpu().numpy(), float), n)


def loaded(theta: Array, plan: Plan) -> tuple[FlatNet, ForestNet]:
    """Return the network of a plan at θ (P,), and its module."""
    net = network(plan.network, plan.dtype, plan.device)
    net.load(theta)
    assert isinstance(net.module, ForestNet)
    return net, net.module


def settled(there: Federation, theta: Array, plan: Plan) -> Array:
    """Return θ (P,) after the steps of the leaves over all rows of some sites, with sums alone."""
    forest = forest_of(plan.network)
    assert forest is not None
    for _ in range(forest.iterations):
        total = there.sum(sum_soft_leaves, theta=plan.sent(theta), plan=plan.text)
        net, module = loaded(theta, plan)
        module.update(torch.from_numpy(total.sums).to(net.theta))
        theta = net.read()
    return theta


STEPS = (sum_soft_leaves,)
