"""Fits of `meta_analysis` over tables, one a site."""

from __future__ import annotations

import numpy as np
from lifelines.datasets import load_rossi

from algorithms.mixed_cases import simulated
from fedcohort.algorithms.meta_analysis import METHOD
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

KINDS = {"gaussian": "continuous", "gamma": "continuous", "binomial": "binary", "poisson": "count"}

SIZES = (80, 60, 100, 70)


def federation(parts, **options):
    hosts = [Host(f"site-{k}", part, METHOD.steps) for k, part in enumerate(parts)]
    return local(hosts, **options)


def fit(parts, family="gaussian", fed=None, features=None, task=None, **settings):
    """Fit `meta_analysis`; `task` is what it is told besides the features."""
    kind = {"binomial": "classification", "cox": "survival"}.get(family, "regression")
    features = tuple(features or (f"x{j}" for j in range(parts[0].x.shape[1])))
    told = Task(kind=kind, features=features, outcome=KINDS.get(family, "survival"), **(task or {}))
    if family == "gamma":
        settings["family"] = "gamma"
    return METHOD.fit(fed or federation(parts), METHOD.configure(settings), told)


def gammas(sizes, seed):
    """Return one table a site, with outcomes of a gamma distribution."""
    rng = np.random.default_rng(seed)
    parts = []
    for n in sizes:
        x = rng.normal(size=(n, 2))
        mean = np.exp(0.4 + x @ [0.3, -0.2])
        parts.append(LabelledTable(x, rng.gamma(2.0, mean / 2.0)))
    return parts


def rossi(sites, seed=0):
    """Return Rossi's table of convicts released, bundled with lifelines, at random sites."""
    frame = load_rossi()
    where = np.random.default_rng(seed).integers(0, sites, len(frame))
    columns = ["fin", "age", "prio"]
    return [
        SurvivalTable(
            frame.loc[where == k, columns].to_numpy(float),
            frame.loc[where == k, "week"].to_numpy(float),
            frame.loc[where == k, "arrest"].to_numpy(bool),
        )
        for k in range(sites)
    ]


def tables(family, seed=3):
    return gammas(SIZES, seed) if family == "gamma" else simulated(SIZES, 0.5, seed, family)
