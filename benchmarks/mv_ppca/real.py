"""A view taken away from test rows of a real table, and filled; see `run`."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cohorts import AT_ONE_PLACE, Filler
from fits import SCENARIOS, Size, Views, fitted, folds, imputed, settled, sites_of
from simulations import CONVERGED

import fedcohort as fc
from fedcohort.arrays import Array

sys.path.append(str(Path(__file__).parents[1]))
from book import Book

AUTO = {"q": "auto"}
#: Name → method and settings; q: auto tries 1 to 8.
IMPUTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppca": ("multiview_ppca", AUTO),
    "ppca view": ("multiview_ppca", AUTO | {"noise": "view"}),
    "ppca, one place": ("multiview_ppca", AUTO | {"strategy": "centralised"}),
    "mcvae": ("mcvae", CONVERGED),
}
CELLS = [(scenario, sites) for scenario in ("G", "K", "G/K") for sites in SCENARIOS[scenario]]


def real(
    book: Book, name: str, data: Views, size: Size, methods: Sequence[str], cells: Sequence[str]
) -> None:  # fmt: skip
    """Run scenarios, methods (of `IMPUTERS` and `AT_ONE_PLACE`) and folds of a table.

    Errors are of entries that were known, in standard deviations of the training rows.
    """
    for repeat in range(size.repeats):
        for fold, own in folds(len(data.frame), repeat, size.folds):
            for (scenario, sites), method in itertools.product(CELLS, methods):
                of = {
                    "part": "real", "data": name, "scenario": scenario, "sites": sites,
                    "method": method, "repeat": repeat, "fold": fold,
                }  # fmt: skip
                if f"{scenario}:{sites}" in cells and book.lacks(of):
                    book.write(of, _one(data, own, scenario, sites, method, repeat, size))


def _one(
    data: Views, own: Array, scenario: str, sites: int, method: str, seed: int, size: Size
) -> dict[str, Any]:
    """Return errors by view, MAE and root of the mean square, and CPU seconds with filling."""
    train, test, columns = data.frame[~own], data.frame[own], data.columns
    mean, sd = train[columns].mean().to_numpy(), train[columns].std().to_numpy()

    def in_sd(part: pd.DataFrame) -> Array:
        return (part.reindex(columns=columns).to_numpy(float) - mean) / sd

    view_of = np.repeat(np.arange(len(data.views)), [len(v) for v in data.views.values()])
    parts = sites_of(data, train, scenario, sites, seed)
    found: dict[str, Any] = {}
    start = time.process_time()
    if method in AT_ONE_PLACE:
        rows = np.vstack([in_sd(part) for part in parts.values()])
        fill = AT_ONE_PLACE[method](rows, view_of)
    else:
        kind, given = IMPUTERS[method]
        fit, _ = fitted(data, parts, seed, kind, **given | size.less)
        found |= {"q": getattr(fit.model, "q", given["q"])} | settled(fit)
        fill = _by_fit(fit, train, data, mean, sd)
    truth = in_sd(test)
    for k, view in enumerate(data.views):
        rows = truth.copy()
        rows[:, view_of == k] = np.nan
        off = (fill(rows, k) - truth)[:, view_of == k]
        found[f"mae {view}"] = float(np.nanmean(np.abs(off)))
        found[f"rmse {view}"] = float(np.sqrt(np.nanmean(off**2)))
    return found | {"cpu": time.process_time() - start}


def _by_fit(fit: fc.Fit, train: pd.DataFrame, data: Views, mean: Array, sd: Array) -> Filler:
    """Return what fills rows in standard deviations by a fit of a table in its own units."""

    def fill(rows: Array, k: int) -> Array:
        del k
        table = pd.DataFrame(rows * sd + mean, columns=data.columns)
        # a flag is 0 or 1 again
        flags = [c for c in data.columns if data.dictionary.variables[c].type == "binary"]
        table[flags] = table[flags].round()
        filled = imputed(fit, train, table)
        return (filled[data.columns].to_numpy() - mean) / sd

    return fill
