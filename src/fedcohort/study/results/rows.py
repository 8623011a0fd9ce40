"""Rows of one cell in the results: one per model, means of the lower bound, JSON-able numbers.

A site without a model of its own counts as chance in the lower bound: leaving it out would flatter
isolated hospitals. The judge knows chance (`unlearnt`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.study.run.engine import Problem, Run

#: Metrics without bootstrap draws: repeated rows look miscalibrated, or more separate; some do not
#: depend on the blind rows, or on their median alone.
UNDRAWN = ("d_calibration_p", "log_rank_p", "smallest_share", "copies", "distance_ratio")
#: Metrics whose draws differ from their value in the mean: distances of distributions, and measures
#: of clusters, as copies of a row agree with each other. Draws are shifted to the value.
BIASED = (
    "marginal_error", "association_error", "ari", "nmi", "agreement", "silhouette",
    "calinski_harabasz",
)  # fmt: skip
#: Key of the blind rows' clusters in a piece: by site, or of `ALL`.
LABELS, ALL = "labels", "all"
#: Note on a hospital whose own rows give no model.
NO_MODEL = "its own rows give no model"


def row_of(
    run: Run, site: str | None, metrics: dict[str, Any], seconds: float, up: int, down: int
) -> dict[str, Any]:
    """Return the row of one fitted model; site is None for a model of all sites."""
    return {
        "site": site,
        "metrics": metrics,
        "rounds": run.rounds,
        "seconds": round(seconds, 3),
        "bytes_up": up,
        "bytes_down": down,
        "epsilon": run.epsilon,
    }


def spent(run: Run, site: str) -> dict[str, Any]:
    """Return a fit's cost at one site: seconds of its processor, and bytes sent."""
    return {
        "seconds": round(run.worked.get(site, 0.0), 3),
        "bytes_up": run.ledger.bytes_up.get(site, 0),
    }


def mean_row(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the lower bound: the mean over sites of each site's own model."""
    table = pd.DataFrame([r["metrics"] for r in rows]).astype(float)
    mean = {k: (None if pd.isna(v) else float(v)) for k, v in table.mean().items()}
    return {
        "site": None,
        "metrics": mean,
        "rounds": max(r["rounds"] for r in rows),
        "seconds": round(sum(r["seconds"] for r in rows), 3),
        "bytes_up": sum(r["bytes_up"] for r in rows),
        "bytes_down": sum(r["bytes_down"] for r in rows),
        "epsilon": None,
    }


def no_model_row(
    site: str, unlearnt: Mapping[str, Array], wanted: tuple[str, ...]
) -> dict[str, Any]:
    """Return the row of a site whose own rows cannot be fitted, such as one without events.

    The reason is omitted: it could be about a few patients.

    Parameters
    ----------
    unlearnt : by metric, the judge's value for it (1,) at weights of 1.
    """
    chance = {m: float(v[0]) for m, v in unlearnt.items() if np.isfinite(v[0])}
    return {
        "site": site,
        "metrics": {m: chance.get(m) for m in wanted},
        "rounds": 0,
        "seconds": 0.0,
        "bytes_up": 0,
        "bytes_down": 0,
        "epsilon": None,
        "note": NO_MODEL,
    }


def no_model_draws(
    draws: int, unlearnt: Mapping[str, Array], wanted: tuple[str, ...]
) -> dict[str, Array]:
    """Return the bootstrap of a site without a model: chance (draws,), or NaN."""
    nothing = np.full(draws, np.nan)
    return {m: unlearnt.get(m, nothing) for m in wanted if m not in UNDRAWN}


def mean_draws(draws: list[dict[str, Array]]) -> dict[str, list[float | None]]:
    """Return each metric's draws, averaged over the fits with a value; None without any."""
    out: dict[str, list[float | None]] = {}
    for metric in draws[0]:
        table = np.array([d[metric] for d in draws])
        known = np.isfinite(table)
        total = np.where(known, table, 0.0).sum(axis=0)
        counts = known.sum(axis=0)
        out[metric] = [t / c if c else None for t, c in zip(total, counts, strict=True)]
    return out


def traffic(run: Run, problem: Problem, scope: str) -> tuple[int, int]:
    """Return the bytes from the sites and to them.

    Nothing leaves an isolated site; to pool the data, every cell of every table leaves.
    """
    if scope == "isolated":
        return 0, 0
    if scope == "centralised":
        return sum(8 * frame.size for frame in problem.frames.values()), 0
    return sum(run.ledger.bytes_up.values()), run.ledger.bytes_down


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as JSON-able values; infinities and NaN become None."""
    out: dict[str, Any] = {}
    for k, v in row.items():
        number = isinstance(v, (float, np.floating))
        out[k] = (float(v) if np.isfinite(v) else None) if number else v
    return out
