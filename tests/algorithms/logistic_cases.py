"""Tables with a yes/no outcome, and a fit over sites, for the tests of `logistic`."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.datasets import load_breast_cancer, load_diabetes

from fedcohort.algorithms.glm import LOGISTIC as METHOD
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local


@cache
def public(name):
    """Return one of scikit-learn's bundled tables, with an outcome of two classes."""
    if name == "breast_cancer":
        x, y = load_breast_cancer(return_X_y=True)
        return LabelledTable(x[:, 1:9:2], y.astype(float))
    x, score = load_diabetes(return_X_y=True, scaled=False)
    return LabelledTable(x, (score > np.median(score)).astype(float))


def simulated(n, p, seed):
    """Return a table whose log odds are linear, with a covariate in large units."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    y = rng.random(n) < expit(x @ rng.normal(size=p) * 0.5 - 0.3)
    x[:, 0] = 1e4 + 500 * x[:, 0]
    return LabelledTable(x, y.astype(float))


def split(table, where):
    """Return one table a site; `where` gives each record's site."""
    return [
        LabelledTable(*(None if c is None else c[where == k] for c in table))
        for k in np.unique(where)
    ]


def scattered(table, n_sites, seed=0):
    return split(table, np.random.default_rng(seed).integers(0, n_sites, len(table.y)))


def federation(parts, **options):
    hosts = [Host(f"site-{k}", part, METHOD.steps) for k, part in enumerate(parts)]
    return local(hosts, **options)


def fit(parts, features=None, fed=None, min_cell=5, **settings):
    """Fit `logistic` over tables, one a site."""
    features = features or tuple(f"x{j}" for j in range(parts[0].x.shape[1]))
    task = Task(kind="classification", features=tuple(features), min_cell=min_cell)
    return METHOD.fit(fed or federation(parts), METHOD.configure(settings), task)


def textbook(table, l2=0.0):
    """Minimise the penalised loss with SciPy; return (intercept, β), covariance and ℓ.

    The covariance is the inverse of the second derivative, by central differences of the gradient
    in units of each covariate's spread.
    """
    x, y, _ = table
    n, spread = len(y), np.r_[1.0, x.std(axis=0)]
    z = np.column_stack([np.ones(n), (x - x.mean(axis=0)) / spread[1:]])
    ridge = n * l2 * np.r_[0.0, 1.0 / spread[1:] ** 2]

    def gradient(g):
        return -z.T @ (y - expit(z @ g)) + ridge * g

    def loss(g):
        eta = z @ g
        return float(np.logaddexp(0, eta).sum() - y @ eta + 0.5 * ridge @ g**2)

    g = minimize(loss, np.zeros(z.shape[1]), jac=gradient, method="BFGS", options={"gtol": 1e-6}).x
    h = 1e-4
    steps = h * np.eye(len(g))
    for _ in range(5):
        hessian = np.array([(gradient(g + s) - gradient(g - s)) / (2 * h) for s in steps])
        g = g - np.linalg.solve(hessian, gradient(g))
    back = np.diag(1.0 / spread)
    back[0, 1:] = -x.mean(axis=0) / spread[1:]
    value = -loss(g) + 0.5 * ridge @ g**2
    return back @ g, back @ np.linalg.inv(hessian) @ back.T, value
