"""Where hospitals and classes lie in the latent space, without a single patient.

The map has the first two principal components of the training rows' latent points, by Σ z and
Σ z zᵀ over all sites. Of each site, and of each class, mean and covariance alone are shown: an
ellipse, as `cluster_map` has them, of 2 m rows or more that no few make, with m the `min_cell`.
What all shown ones leave of the known sum over all rows is a group as well: where it could not be
shown by itself, the smallest shown one is hidden with it, until it could.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Row
from fedcohort.study.judge.pooled.latent import Latent
from fedcohort.study.judge.shown.cluster_map import components, ellipse, explained
from fedcohort.study.run.engine import Run

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
