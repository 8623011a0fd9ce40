"""Tables, splits and federations that the tests of `data` share."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedcohort.data import prepare, timegrid
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local


def mixed(n, seed, missing=0.1):
    """Return a table with every type of column, and holes in the features."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 90, n).astype(float),
            "marker": np.exp(rng.normal(size=n)) * 1e-3,
            "count": rng.poisson(2, n).astype(float),
            "smoker": rng.integers(0, 2, n).astype(float),
            "grade": rng.choice(["I", "II", "III"], n),
        }
    )
    if missing:
        frame = frame.mask(rng.random(frame.shape) < missing)
    return frame.assign(
        time=np.ceil(rng.exponential(900, n)) + 1, event=(rng.random(n) < 0.6).astype(int)
    )


def scatter(frame, n_sites, seed=0):
    """Return sites with the frame's rows at random, each with at least one."""
    rng = np.random.default_rng(seed)
    site = rng.permutation(
        np.r_[np.arange(n_sites), rng.integers(0, n_sites, len(frame) - n_sites)]
    )
    return {f"s{i}": frame[site == i] for i in range(n_sites)}


def federation(frames, steps=(*prepare.STEPS, *timegrid.STEPS)):
    return local([Host(name, data, steps) for name, data in frames.items()])


def deaths_at(times, n_sites=1, seed=0):
    """Return a federation of survival tables in which everybody dies, at these times."""
    times = np.asarray(times, float)
    frames = scatter(pd.DataFrame({"t": times}), n_sites, seed)
    return federation(
        {
            s: SurvivalTable(np.zeros((len(f), 1)), f.t.to_numpy(), np.ones(len(f), bool))
            for s, f in frames.items()
        }
    )
