"""Public survival tables, ways to spread them over sites, and a fit, for the tests of `cox`."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from fedcohort.algorithms.cox import METHOD
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local


@cache
def public(name):
    """Return a table and the names of its covariates; all come with lifelines or sksurv."""
    from lifelines.datasets import load_lung, load_rossi
    from sksurv.datasets import load_gbsg2, load_veterans_lung_cancer, load_whas500

    if name == "rossi":
        frame = load_rossi()
        time, event = frame.pop("week"), frame.pop("arrest")
    elif name == "lung":
        frame = load_lung()[["age", "sex", "ph.ecog", "time", "status"]].dropna()
        time, event = frame.pop("time"), frame.pop("status")
        event = event == event.max()
    else:
        load = {"veteran": load_veterans_lung_cancer, "gbsg2": load_gbsg2, "whas500": load_whas500}
        frame, y = load[name]()
        event, time = (y[field] for field in y.dtype.names)
    x = pd.get_dummies(frame, drop_first=True, dtype=float).astype(float)
    table = SurvivalTable(x.to_numpy(), np.asarray(time, float), np.asarray(event, bool))
    return table, tuple(x.columns)


def simulated(n, p, seed, *, tied=True):
    """Return a table with half of the records censored; `tied` rounds its times to few values."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    death = rng.exponential(np.exp(-x @ rng.normal(size=p) * 0.5))
    leave = rng.exponential(1.5, size=n)
    time = np.minimum(death, leave)
    if tied:
        time = np.ceil(time * 8) / 8
    event = death <= leave
    event[np.argmin(time)] = True
    return SurvivalTable(x, time, event)


def take(table, rows):
    return SurvivalTable(*(None if column is None else column[rows] for column in table))


def split(table, where):
    """Return one table a site; `where` gives each record's site."""
    return [take(table, where == k) for k in np.unique(where)]


def federation(parts, **options):
    names = [f"site-{k}" for k in range(len(parts))]
    return local(
        [Host(n, part, METHOD.steps) for n, part in zip(names, parts, strict=True)], **options
    )


class Overheard:
    """A federation that keeps what the coordinator asks and is told."""

    def __init__(self, fed, seen=None):
        self._fed, self.seen = fed, {} if seen is None else seen

    def __getattr__(self, name):
        return getattr(self._fed, name)

    def only(self, names):
        return Overheard(self._fed.only(names), self.seen)

    def awaiting(self, fewest=None):
        return Overheard(self._fed.awaiting(fewest), self.seen)

    def sum(self, step, **question):
        reply = self._fed.sum(step, **question)
        self.seen.setdefault(step.name, []).append((question, reply))
        return reply


def fit(parts, features=None, fed=None, *, last_is_offset=False, **settings):
    """Fit `cox` at exact times of death over tables, one a site."""
    features = features or tuple(f"x{j}" for j in range(parts[0].x.shape[1]))
    config = METHOD.configure({"time_grid": "exact", **settings})
    strata = 0 if parts[0].stratum is None else 1 + max(p.stratum.max(initial=0) for p in parts)
    names = tuple(f"level-{k}" for k in range(strata))
    task = Task(kind="survival", features=tuple(features), offset=last_is_offset, strata=names)
    return METHOD.fit(fed or federation(parts), config, task)
