"""A fit of `svm` over sites, for its tests."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer

from fedcohort.algorithms.svm import METHOD
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local


def masses():
    """Return scikit-learn's breast cancer table, five covariates standardised."""
    x, y = load_breast_cancer(return_X_y=True)
    x = x[:, 1:6]
    return LabelledTable((x - x.mean(axis=0)) / x.std(axis=0), y.astype(float))


def scattered(table, sites, seed=0):
    where = np.random.default_rng(seed).integers(0, sites, len(table.y))
    return [LabelledTable(table.x[where == k], table.y[where == k]) for k in range(sites)]


def federation(parts, **options):
    return local([Host(f"site-{k}", part, METHOD.steps) for k, part in enumerate(parts)], **options)


def fit(parts, fed=None, min_cell=5, **settings):
    """Fit `svm` over tables, one a site."""
    names = tuple(f"x{j}" for j in range(parts[0].x.shape[1]))
    task = Task(kind="classification", features=names, min_cell=min_cell)
    return METHOD.fit(fed or federation(parts), METHOD.configure(settings), task)
