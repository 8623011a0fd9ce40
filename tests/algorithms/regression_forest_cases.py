"""Tables, fits over sites, and a forest in plain torch, for the tests of `regression_forest`."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from fedcohort.algorithms.regression_forest import METHOD
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.models.forest import split_nodes
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

#: Settings of a small forest, trained on all rows at once.
SMALL = {"trees": 2, "depth": 2, "outputs": 4, "hidden": (5,), "batch_size": 0}


def table(n=120, p=3, seed=0, survival=False):
    """Return rows whose outcome depends on a product and a curve of the covariates."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    score = 1.5 * x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2])
    if not survival:
        return LabelledTable(x, 200.0 + 30.0 * (score + 0.3 * rng.normal(size=n)))
    time = np.ceil(20 * np.exp(-score) * rng.exponential(size=n))
    return SurvivalTable(x, time, rng.random(n) < 0.8)


def scattered(whole, sites, seed=1):
    of = np.random.default_rng(seed).integers(0, sites, len(whole.x))
    return [taken(whole, of == k) for k in range(sites)]


def taken(whole, rows):
    """Return some rows of a table."""
    return type(whole)(*(None if column is None else column[rows] for column in whole))


def task_of(parts, **more):
    survival = isinstance(parts[0], SurvivalTable)
    kind, outcome = ("survival", "survival") if survival else ("regression", "continuous")
    names = tuple(f"x{j}" for j in range(parts[0].x.shape[1]))
    return Task(kind=kind, outcome=outcome, features=names, **more)


def federation(parts, **options):
    return local([Host(f"s{k}", part, METHOD.steps) for k, part in enumerate(parts)], **options)


def fitted(parts, *, seed=0, own=None, dp=None, reach=None, **settings):
    """Return a fit of a small forest and its federation."""
    fed = federation(parts)
    task = task_of(parts, seed=seed, own=own, dp=dp, reach=reach)
    return METHOD.fit(fed, METHOD.configure(SMALL | settings), task), fed


def paths(nodes, depth):
    """Return by leaf its nodes from the root, as (output, whether left)."""
    found = []
    for leaf in range(2**depth):
        node, path = 0, []
        for level in reversed(range(depth)):
            right = leaf >> level & 1
            path.append((int(nodes[node]), not right))
            node = 2 * node + 1 + right
        found.append(path)
    return found


class Plain:
    """A forest of `SMALL` in plain torch and NumPy, at θ, with a loop over trees and leaves."""

    def __init__(self, theta, p=3, trees=2, depth=2, outputs=4, hidden=5):
        self.net = nn.Sequential(nn.Linear(p, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
        self.net = self.net.double()
        size = sum(q.numel() for q in self.net.parameters())
        nn.utils.vector_to_parameters(torch.from_numpy(theta[:size].copy()), self.net.parameters())
        self.mean, self.variance = theta[size:].reshape(2, trees, 2**depth).copy()
        self.paths = [paths(tree, depth) for tree in split_nodes(trees, 2**depth - 1, outputs)]

    @property
    def theta(self):
        flat = nn.utils.parameters_to_vector(self.net.parameters()).detach().numpy()
        return np.concatenate([flat, self.mean.ravel(), self.variance.ravel()])

    def routes(self, x):
        """Return μ of each tree and leaf, (T, L, n)."""
        s = torch.sigmoid(self.net(torch.from_numpy(x)))
        return torch.stack([
            torch.stack([
                torch.stack([s[:, k] if left else 1 - s[:, k] for k, left in leaf]).prod(0)
                for leaf in tree
            ])
            for tree in self.paths
        ])  # fmt: skip

    def joint(self, x, y):
        mean, variance = (torch.from_numpy(a)[..., None] for a in (self.mean, self.variance))
        density = torch.distributions.Normal(mean, variance.sqrt()).log_prob(torch.from_numpy(y))
        return self.routes(x) * density.exp()

    def loss(self, x, y):
        return -self.joint(x, y).sum(1).log().mean()

    def bound(self, x, y, steps):
        for _ in range(steps):
            joint = self.joint(x, y).detach().numpy()
            zeta = joint / joint.sum(1, keepdims=True)
            n = zeta.sum(2)
            self.mean = (zeta * y).sum(2) / n
            squares = (zeta * (y - self.mean[..., None]) ** 2).sum(2) / n
            self.variance = np.maximum(squares, 1e-4)

    def visit(self, x, y, epochs, rate, steps, optimiser=None):
        """Take epochs of torch's Adam and then steps of the leaves."""
        optimiser = optimiser or torch.optim.Adam(self.net.parameters(), lr=rate)
        for _ in range(epochs):
            optimiser.zero_grad()
            self.loss(x, y).backward()
            optimiser.step()
        self.bound(x, y, steps)
        return optimiser

    def predict(self, x):
        return np.einsum("tln,tl->n", self.routes(x).detach().numpy(), self.mean) / len(self.paths)
