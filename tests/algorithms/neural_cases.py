"""Tables, fits over sites, and plain torch loops, for the tests of `classifier` and `regressor`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import nn

from algorithms.multinomial_cases import split
from fedcohort.algorithms.neural import METHOD, REGRESSOR
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

LEVELS = ("low", "mid", "high")
#: Outcome → method, and classes.
KINDS = {
    "binary": (METHOD, ("no", "yes")),
    "category": (METHOD, LEVELS),
    "ordinal": (METHOD, LEVELS),
    "continuous": (REGRESSOR, ()),
    "count": (REGRESSOR, ()),
}


def table(outcome="category", n=120, p=4, seed=0):
    """Return rows whose outcome depends on a curve of the covariates."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    score = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + 0.3 * rng.normal(size=n)
    if outcome == "continuous":
        return LabelledTable(x, 200.0 + 30.0 * score)
    if outcome == "count":
        return LabelledTable(x, rng.poisson(np.exp(1.0 + 0.5 * score)).astype(float))
    classes = len(KINDS[outcome][1])
    cuts = np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1])
    return LabelledTable(x, np.searchsorted(cuts, score).astype(float))


def scattered(whole, sites, seed=1):
    return split(whole, np.random.default_rng(seed).integers(0, sites, len(whole.y)))


def task_of(outcome, p, **more):
    method, levels = KINDS[outcome]
    kind = "classification" if method is METHOD else "regression"
    names = tuple(f"x{j}" for j in range(p))
    return Task(kind=kind, features=names, outcome=outcome, levels=levels, **more)


def federation(parts, method=METHOD, **options):
    return local([Host(f"s{k}", part, method.steps) for k, part in enumerate(parts)], **options)


def fit(parts, outcome="category", fed=None, seed=0, min_cell=5, **settings):
    method, _ = KINDS[outcome]
    task = task_of(outcome, parts[0].x.shape[1], seed=seed, min_cell=min_cell)
    return method.fit(fed or federation(parts, method), method.configure(settings), task)


def dense(widths, theta):
    """Return the same network in plain torch, at θ."""
    parts = []
    for a, b in pairwise(widths):
        parts += [nn.Linear(a, b), nn.ReLU()]
    return at(nn.Sequential(*parts[:-1]), theta)


def convolutional(theta, outputs):
    """Return the network of images 4 × 4 with three filters and a hidden layer of 5."""
    return at(
        nn.Sequential(
            nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, outputs),
        ), theta
    )  # fmt: skip


def at(module, theta):
    module = module.double()
    nn.utils.vector_to_parameters(torch.from_numpy(theta.copy()), module.parameters())
    return module


def loss_of(outcome, y, mean, sd):
    """Return the loss of outputs (n, k), by torch's own functions."""
    y = torch.from_numpy(y)
    if outcome in ("category", "ordinal"):
        return lambda f: nn.functional.cross_entropy(f, y.long())
    if outcome == "binary":
        return lambda f: nn.functional.binary_cross_entropy_with_logits(f[:, 0], y)
    if outcome == "count":
        return lambda f: nn.functional.poisson_nll_loss(f[:, 0], y / mean)
    return lambda f: 0.5 * nn.functional.mse_loss(f[:, 0], (y - mean) / sd)


def trained(net, x, loss, steps, rate, l2=0.0):
    """Take steps of torch's Adam on all rows; return the parameters."""
    optimiser = torch.optim.Adam(net.parameters(), lr=rate)
    first = next(net.parameters())
    for _ in range(steps):
        optimiser.zero_grad()
        (loss(net(torch.from_numpy(x))) + 0.5 * l2 * first.square().sum()).backward()
        optimiser.step()
    return nn.utils.parameters_to_vector(net.parameters()).detach().numpy()
