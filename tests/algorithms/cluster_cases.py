"""Tables without an outcome over sites, and fits of methods that cluster, for their tests."""

from __future__ import annotations

import numpy as np

from fedcohort.data.tables import FeatureTable
from fedcohort.protocol import Task, registry
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training.clusters import candidates, how_many, lloyd, seeding

STEPS = (*lloyd.STEPS, *seeding.STEPS, *candidates.STEPS, *how_many.STEPS)


def scattered(x, sites, seed=0):
    """Deal rows to sites at random."""
    where = np.random.default_rng(seed).integers(0, sites, len(x))
    return [x[where == k] for k in range(sites)]


def federation(parts, steps=STEPS, **options):
    hosts = [
        Host(f"site-{k}", FeatureTable(np.array(x, float)), steps) for k, x in enumerate(parts)
    ]
    return local(hosts, **options)


def fit(method, parts, fed=None, min_cell=5, seed=0, names=None, **settings):
    """Fit a method over tables, one a site."""
    entry = registry.find(method)
    names = names or tuple(f"x{j}" for j in range(parts[0].shape[1]))
    task = Task(kind="clustering", features=names, min_cell=min_cell, seed=seed)
    fed = fed or federation(parts, entry.steps)
    return entry.fit(fed, entry.configure(settings), task)


def blobs(n=300, k=3, p=2, seed=0, apart=6.0):
    """Return rows of k round clusters whose middles are `apart` standard deviations wide, and l."""
    rng = np.random.default_rng(seed)
    middles = rng.standard_normal((k, p)) * apart
    label = np.arange(n) % k
    return middles[label] + rng.standard_normal((n, p)), label
