"""What results.json holds of latent coordinates, beyond their metrics; of the first repeat.

latent_views     the model's own row for each view: columns, σ, what is explained, spread over sites
latent_numbers   criterion of each number of dimensions that was tried, and which was taken
latent_sites     how sites differ from the common model, where the method was asked to compare them
latent_errors    error of reconstruction and of imputation by column, and by view, of blind rows
latent_filled    true values of hidden views beside what is filled in for them (`latent_filled`)
latent_map       where sites and classes lie in the latent space (`latent_map`); of training rows

A method gives the first three or does not: `summary`, and the model's ``numbers`` and
``differences``. How parameters moved round by round is in history.csv.

A report leaves the coordinator. So a column has an error where 2 m blind rows or more have a value,
and m or more have another one than the most frequent, with m the `min_cell`; and one of imputation
where it is of so many rows, too. A view's error is of the columns that have one. Errors are rounded
to three decimals. No row is in any of these, and counts are in the map alone.

The map has the first two principal components of the training rows' latent points, by Σ z and
Σ z zᵀ over all sites. Of each site, and of each class, mean and covariance alone are shown: an
ellipse, as `cluster_map` has them, of 2 m rows or more that no few make. The rest of the known sum
over all rows is a group as well: where it could not be shown by itself, the smallest shown group is
hidden with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Method, Row
from fedcohort.study.judge.pooled.latent import OF_VIEWS, Latent
from fedcohort.study.judge.shown.cluster_map import components, ellipse, explained
from fedcohort.study.judge.shown.latent_filled import filled_rows
from fedcohort.study.results.rows import plain
from fedcohort.study.run.engine import Run

KEYS = (
    "latent_views", "latent_numbers", "latent_sites", "latent_errors", "latent_filled",
    "latent_map",
)  # fmt: skip
#: Decimals of errors.
DECIMALS = 3


def latent_rows(method: Method, run: Run, judge: Latent) -> dict[str, list[Row]]:
    """Return lists of rows by key of results.json, without arm, scenario and repeat.

    Returns
    -------
    rows : every key of `KEYS`; empty where the method does not give it.
    """
    found = of_model(method, run)
    found["latent_errors"] = list(_errors(run, judge))
    found["latent_filled"] = filled_rows(run, judge)
    found["latent_map"] = map_rows(run, judge)
    return found


def of_model(method: Method, run: Run) -> dict[str, list[Row]]:
    """Return what the model says of itself, and an empty list for every other key of `KEYS`."""
    found: dict[str, list[Row]] = {key: [] for key in KEYS}
    if "summary" in method.gives:
        found["latent_views"] = [plain(row) for row in run.model.summary() if "view" in row]
    model: Any = run.model
    taken = getattr(model, "q", None)
    for row in getattr(model, "numbers", ()):
        errors: Mapping[int, float] = row.get("errors", {})
        told = {str(q): plain({"error": e})["error"] for q, e in errors.items()}
        found["latent_numbers"].append(
            plain({**row, "errors": told}) | {"taken": row["q"] == taken}
        )
    if hasattr(model, "differences"):
        found["latent_sites"] = [plain(row) for row in model.differences()]
    return found


def _errors(run: Run, judge: Latent) -> Iterator[Row]:
    """Yield the errors of columns, and of views, that may be shown."""
    said = judge.predicted(run, OF_VIEWS)
    shown = judge.shown(said)
    kinds = {"reconstruction": said.off, "imputation": said.filled}
    for kind, off in kinds.items():
        if off is None:
            continue
        views = dict.fromkeys(said.views)
        fine = shown & ((~np.isnan(off)).sum(axis=0) >= 2 * judge.min_cell)
        for view in views:
            columns = np.flatnonzero(fine & (np.array(said.views, object) == view))
            yield from _row(kind, view, None, off[:, columns])
        for j in np.flatnonzero(fine):
            yield from _row(kind, said.views[j], said.features[j], off[:, [j]])


def _row(kind: str, view: str, feature: str | None, off: Array) -> Iterator[Row]:
    """Yield mean and root mean square of the known entries of `off` (n, k), if there are any."""
    known = off[~np.isnan(off)]
    if not len(known):
        return
    mae, rmse = float(known.mean()), float(np.sqrt(np.square(known).mean()))
    yield plain(
        {"kind": kind, "view": view, "feature": feature, "mae": round(mae, DECIMALS)}
        | {"rmse": round(rmse, DECIMALS)}
    )


#: What a row says of where a group lies.
PLACE = ("x", "y", "sx", "sy", "angle", "n")


def map_rows(run: Run, judge: Latent) -> list[Row]:
    """Return a row for each site, and for each class, that may be shown; see the module.

    ``by`` is "site" or "group", ``name`` its name, ``explained`` the share of all variance that
    the two components hold. Empty where some latent point is not finite.
    """
    labels = {"site": judge.site, "group": judge.class_names()}
    if all(v is None for v in labels.values()):
        return []
    z = np.asarray(run.model.transform(run.design.matrix(judge.train)), float)
    if not len(z) or not np.isfinite(z).all():
        return []
    mean, axes = components(z)
    share = explained((z - mean).T @ (z - mean) / len(z), axes)
    at = (z - mean) @ axes
    return [
        {"by": by, "name": name, **place, "explained": share}
        for by, of in labels.items()
        if of is not None
        for name, place in shown(at, of, judge.min_cell).items()
    ]


def shown(at: Array, of: Array, min_cell: int) -> dict[str, Row]:
    """Return where the groups lie that may be shown, by name; none of fewer than two.

    Parameters
    ----------
    at : points (n, 2), and the group ``of`` each (n,).
    """
    names = sorted(set(of.tolist()), key=str)
    found = {n: place for n in names if (place := _place(at[of == n], min_cell)) is not None}
    while found and len(rest := at[~np.isin(of, list(found))]) and _place(rest, min_cell) is None:
        del found[min(found, key=lambda n: (found[n]["n"], str(n)))]
    return {str(n): place for n, place in found.items()} if len(found) > 1 else {}


def _place(at: Array, min_cell: int) -> Row | None:
    """Return mean and spread of points (n, 2); None where that may not be shown."""
    rows = ellipse(at, None, 0, min_cell)
    return {key: rows[0][key] for key in PLACE} if rows else None
