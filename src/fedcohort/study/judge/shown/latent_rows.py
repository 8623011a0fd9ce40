"""Rows of results.json about latent variables, beyond their metrics; of the first repeat.

latent_views     the model's row for each view: columns, σ, explained variance, spread over sites
latent_numbers   criterion of each tried number of dimensions, and the chosen one latent_sites
how sites differ from the common model, if the method compares them latent_errors    error of
reconstruction and of imputation by column, and by view, of blind rows latent_filled    true and
imputed values of hidden views (`latent_filled`) latent_map       positions of sites and classes in
the latent space; of training rows

The first three come from the method, if it has them: `summary`, and the model's ``numbers`` and
``differences``. history.csv has the parameters by round.

With m the `min_cell`, a column has an error if at least 2 m blind rows have a value, and at least m
another one than the most frequent; an imputation error must have as many rows. A view's error is
over such columns. Errors are rounded to three decimals. Only the map has counts.

The map has the first two principal components of the training rows' latent points, by Σ z and Σ z
zᵀ over all sites. Each site and each class is an ellipse, as in `cluster_map`. The rest of the
known sum over all rows counts as a group: if it could not be published, the smallest published
group is hidden with it.

A model whose prior is made of the sites' own (`prior: vamp` of `vae`), or is a mixture, has
ellipses of these priors in the same directions. They follow from the model alone; a site's own is
left out if the site's patients are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Method, Row
from fedcohort.study.judge.pooled.latent import OF_VIEWS, Latent
from fedcohort.study.judge.shown.cluster_map import components, ellipse, explained, placed
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
    rows : every key of `KEYS`; empty if the method does not give it.
    """
    found = of_model(method, run)
    found["latent_errors"] = list(_errors(run, judge))
    found["latent_filled"] = filled_rows(run, judge)
    found["latent_map"] = map_rows(run, judge)
    return found


def of_model(method: Method, run: Run) -> dict[str, list[Row]]:
    """Return the model's own rows, and an empty list for every other key of `KEYS`."""
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
    """Yield the publishable errors of columns and views."""
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


#: Keys of a group's position.
PLACE = ("x", "y", "sx", "sy", "angle", "n")


def map_rows(run: Run, judge: Latent) -> list[Row]:
    """Return a row for each publishable site and class; see the module.

    ``by`` is "site", "group" or "prior", ``name`` its name, ``explained`` the share of all variance
    on the two components. Empty if a latent point is not finite.
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
    groups = {by: shown(at, of, judge.min_cell) for by, of in labels.items() if of is not None}
    groups["prior"] = _priors(run.model, mean, axes, {*groups.get("site", {})})
    return [
        {"by": by, "name": name, **place, "explained": share}
        for by, places in groups.items()
        for name, place in places.items()
    ]


#: Name of the prior that all sites have.
COMMON = "common prior"


def _priors(model: Any, mean: Array, axes: Array, sites: Collection[str]) -> dict[str, Row]:
    """Return ellipses of the common prior, and of each of the sites that has one of its own.

    Parameters
    ----------
    mean, axes : (q,) and (q, 2), of the map. sites : those that are shown.
    """
    prior: Array | None = model.mixture() if hasattr(model, "mixture") else None
    if prior is None:
        return {}
    owners = np.array(model.owners if len(model.owners) == len(prior) else [""] * len(prior))
    parts = {COMMON: prior} | {s: prior[owners == s] for s in sorted({*owners.tolist()} & {*sites})}
    found: dict[str, Row] = {}
    for name, part in parts.items():
        weights = part[:, 0] / part[:, 0].sum()
        centres, logs = np.split(part[:, 1:], 2, axis=1)
        middle = weights @ centres
        apart = (centres - middle) @ axes
        spread = (apart.T * weights) @ apart + axes.T @ (axes * (weights @ np.exp(logs))[:, None])
        at = [float(f"{v:.3g}") for v in (middle - mean) @ axes]
        found[name] = {key: placed([*at], spread, None, 0, 0)[key] for key in PLACE} | {"n": None}
    return found


def shown(at: Array, of: Array, min_cell: int) -> dict[str, Row]:
    """Return the ellipses of publishable groups, by name; none with fewer than two groups.

    Parameters
    ----------
    at : points (n, 2).
    of : group of each point (n,).
    """
    names = sorted(set(of.tolist()), key=str)
    found = {n: place for n in names if (place := _place(at[of == n], min_cell)) is not None}
    while found and len(rest := at[~np.isin(of, list(found))]) and _place(rest, min_cell) is None:
        del found[min(found, key=lambda n: (found[n]["n"], str(n)))]
    return {str(n): place for n, place in found.items()} if len(found) > 1 else {}


def _place(at: Array, min_cell: int) -> Row | None:
    """Return mean and spread of points (n, 2); None if not publishable."""
    rows = ellipse(at, None, 0, min_cell)
    return {key: rows[0][key] for key in PLACE} if rows else None
