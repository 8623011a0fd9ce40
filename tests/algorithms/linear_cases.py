"""Tables with a real-valued outcome, and fits over sites, for the tests of the linear methods."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
from sklearn.datasets import load_diabetes

from fedcohort.algorithms.linear import ELASTIC_NET, LASSO, RIDGE
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

METHODS = {method.name: method for method in (RIDGE, LASSO, ELASTIC_NET)}


@cache
def diabetes():
    """Return scikit-learn's diabetes table, in its units."""
    return LabelledTable(*load_diabetes(return_X_y=True, scaled=False))


def simulated(n, p, seed, *, correlated=0.5):
    """Return a table of which the first three covariates matter, one of them in large units."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) + correlated * rng.normal(size=(n, 1))
    y = x[:, :3] @ np.array([2.0, -1.0, 0.5]) + rng.normal(size=n) + 4
    x[:, 0] = 1e3 + 50 * x[:, 0]
    return LabelledTable(x, y)


def standard(table):
    """Return the table with covariates of mean 0 and standard deviation 1."""
    return table._replace(x=(table.x - table.x.mean(axis=0)) / table.x.std(axis=0))


def split(table, where):
    """Return one table a site; `where` gives each record's site."""
    return [LabelledTable(table.x[where == k], table.y[where == k]) for k in np.unique(where)]


def scattered(table, n_sites, seed=0):
    return split(table, np.random.default_rng(seed).permutation(len(table.y)) % n_sites)


def federation(parts, method="ridge", **options):
    hosts = [Host(f"site-{k:03}", p, METHODS[method].steps) for k, p in enumerate(parts)]
    return local(hosts, **options)


def fit(method, parts, *, fed=None, features=None, origin=None, seed=0, min_cell=5, **settings):
    """Fit a method over tables, one a site."""
    features = features or tuple(f"x{j}" for j in range(parts[0].x.shape[1]))
    task = Task(
        kind="regression", features=tuple(features), origin=origin, seed=seed, min_cell=min_cell
    )
    entry = METHODS[method]
    return entry.fit(fed or federation(parts, method), entry.configure(settings), task)


def asked(fed):
    """Return the name of the step of each call."""
    calls = {(line["call"], line["step"]) for line in map(json.loads, fed.ledger.lines)}
    return [step for _, step in sorted(calls)]


def spied(fed):
    """Return the federation, which keeps what it told the sites last in `told`."""
    plain = type(fed)

    class Spied(plain):
        def sum(self, step, /, **arguments):
            self.told.update(arguments)
            return plain.sum(self, step, **arguments)

    fed.told = {}
    fed.__class__ = Spied
    return fed


def objective(table, intercept, beta, l1=0.0, l2=0.0):
    """The contract's: the mean square of the residuals, l1 ‖β‖₁ and l2/2 ‖β‖²."""
    residual = table.y - intercept - table.x @ beta
    return residual @ residual / len(residual) + l1 * np.abs(beta).sum() + l2 / 2 * beta @ beta


def with_cvxpy(table, l1=0.0, l2=0.0):
    """Return the least objective, by CVXPY and Clarabel."""
    import cvxpy as cp

    beta, b = cp.Variable(table.x.shape[1]), cp.Variable()
    loss = cp.sum_squares(table.y - b - table.x @ beta) / len(table.y)
    problem = cp.Problem(cp.Minimize(loss + l1 * cp.norm1(beta) + l2 / 2 * cp.sum_squares(beta)))
    return problem.solve(solver=cp.CLARABEL)
