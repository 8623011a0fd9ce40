"""The price of the protected grid: how far it moves coefficients from those at exact times.

    OMP_NUM_THREADS=1 python benchmarks/cox_grid/run.py

On public tables, in standard errors of the exact fit: the largest shift of a coefficient when only
deaths are grouped, and when the censored also wait for company, as `cox` has it. Rows with one and
two covariates are medians over the choices of them. Then how well the fit's own estimate of the
shift, `grid_shift`, tells it: root mean squares over coefficients and ten ways to deal rows out.
"""

from __future__ import annotations

from itertools import combinations
from statistics import median

import numpy as np
import pandas as pd
from lifelines.datasets import load_lung, load_rossi
from sksurv.datasets import load_gbsg2, load_veterans_lung_cancer, load_whas500

from fedcohort.algorithms.cox import METHOD
from fedcohort.data.tables import SurvivalTable
from fedcohort.data.timegrid import time_grid
from fedcohort.numerics.survival import slots
from fedcohort.protocol import Task
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local


def tables():
    """Yield name and table."""
    rossi, lung = load_rossi(), load_lung()[["age", "sex", "ph.ecog", "time", "status"]].dropna()
    yield "Rossi", table(rossi, rossi.pop("week"), rossi.pop("arrest") == 1)
    yield "lung", table(lung, lung.pop("time"), lung.pop("status") == 1)
    loaders = {"veteran": load_veterans_lung_cancer, "GBSG2": load_gbsg2, "WHAS500": load_whas500}
    for name, load in loaders.items():
        frame, y = load()
        event, time = (y[field] for field in y.dtype.names)
        yield name, table(frame, time, event)


def table(frame, time, event):
    x = pd.get_dummies(frame, drop_first=True).to_numpy(float)
    return SurvivalTable(x, np.asarray(time, float), np.asarray(event, bool))


def sites(data):
    return local([Host("all", data, METHOD.steps)])


def fit(data, ties, grid):
    names = tuple(f"x{j}" for j in range(data.x.shape[1]))
    config = METHOD.configure({"time_grid": grid, "ties": ties})
    return METHOD.fit(sites(data), config, Task(kind="survival", features=names))


def shifts(data, ties):
    """Return intervals, and the largest shift with deaths grouped, and with both."""
    exact, both = fit(data, ties, "exact"), fit(data, ties, "protected")
    times = time_grid(sites(data), "protected", 5)
    at = np.r_[times[0] / 2, times][slots(data.time, data.event, times) + 1]
    grouped = fit(data._replace(time=at), ties, "exact")
    moved = [
        float(np.abs((m.coefficients - exact.coefficients) / exact.standard_errors).max())
        for m in (grouped, both)
    ]
    return len(both.baseline.times), *moved


def estimates(data, n_sites, repeats=10):
    """Return the root mean square of the shift, and of what the fit's estimate misses of it."""
    exact, shift, missed = fit(data, "efron", "exact"), [], []
    names = tuple(f"x{j}" for j in range(data.x.shape[1]))
    for seed in range(repeats if n_sites > 1 else 1):
        where = np.random.default_rng(seed).integers(0, n_sites, len(data.x))
        hosts = [
            Host(f"s{k}", SurvivalTable(*(c[where == k] for c in data[:3])), METHOD.steps)
            for k in range(n_sites)
        ]
        task = Task(kind="survival", features=names)
        model = METHOD.fit(local(hosts), METHOD.configure({}), task)
        true = model.coefficients - exact.coefficients
        shift.append(true / model.standard_errors)
        missed.append((true - model.grid_shift) / model.standard_errors)
    return [float(np.sqrt(np.mean(np.square(v)))) for v in (shift, missed)]


def main():
    print("table     p  deaths  censored  intervals  efron: grouped  both  breslow: grouped  both")
    for name, whole in tables():
        d = int(whole.event.sum())
        for p in (1, 2, whole.x.shape[1]):
            choices = list(combinations(range(whole.x.shape[1]), p))
            row = []
            for ties in ("efron", "breslow"):
                found = [shifts(whole._replace(x=whole.x[:, list(c)]), ties) for c in choices]
                intervals, *moved = (median(column) for column in zip(*found, strict=True))
                row += [f"{v:14.2f}" for v in moved]
            print(f"{name:8}{p:3}{d:8}{len(whole.x) - d:10}{intervals:11.0f} ", *row)
    print("table     sites  shift  missed by grid_shift (root mean squares)")
    for name, whole in tables():
        for n_sites in (1, 3, 8):
            shift, missed = estimates(whole, n_sites)
            print(f"{name:8}{n_sites:7}{shift:7.3f}{missed:22.3f}")


if __name__ == "__main__":
    main()
