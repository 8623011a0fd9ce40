"""Positions of clusters, and synthetic patients of each; without any real patient.

The map has the first two principal components of the training rows in the model's latent space, or
in x if it has none. They come from Σ z and Σ z zᵀ over all sites. Each cluster, and each cluster at
each site, has only mean and covariance: an ellipse with half axes ``sx`` and ``sy``, one standard
deviation each, the longer turned by ``angle`` degrees. Means are rounded as in Table 1
(`ShownNumber`), over at least 2 `min_cell` rows. ``explained`` is the share of all rows' variance
on the two components, in whole per cent.

Images are synthetic patients: drawn from the model, decoded, and never a row of a table.
"""

from __future__ import annotations

import contextlib
import math

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.describe.shown_number import ShownNumber
from fedcohort.protocol import Fitted, NotSupported, Row
from fedcohort.study.judge.pooled.clusters import labels_of
from fedcohort.study.run.engine import Run

#: Synthetic patients of a cluster; patients per draw and cluster; largest number of draws.
PATIENTS, DRAWN, TIMES = 12, 60, 10
#: Largest ratio of width to height of an image, if its features allow.
WIDEST = 3.0
#: Digits of an ellipse.
DIGITS = 2


def latent(run: Run, x: Array) -> Array:
    """Return rows in the model's latent space (n, d), or x (n, p) if it has none."""
    return latent_of(run.model, x)


def latent_of(model: Fitted, x: Array) -> Array:
    """Return `latent` of preprocessed rows x (n, p)."""
    with contextlib.suppress(NotSupported):
        return np.asarray(model.transform(x), float)
    return x


def components(z: Array) -> tuple[Array, Array]:
    """Return mean (d,) and the first two principal axes (d, 2) of rows (n, d), from their sums.

    The largest part of an axis is positive; if d is 1, the second axis is zero.
    """
    mean, covariance = _moments(z)
    return mean, main_axes(covariance)


def _moments(z: Array) -> tuple[Array, Array]:
    """Return mean (d,) and covariance (d, d) of rows (n, d)."""
    n = max(1, len(z))
    mean = z.sum(axis=0) / n
    return mean, (z - mean).T @ (z - mean) / n


def explained(covariance: Array, axes: Array) -> float | None:
    """Return the share of all variance along axes (d, 2); None without variance."""
    whole = float(np.trace(covariance))
    return round(float(np.trace(axes.T @ covariance @ axes)) / whole, DIGITS) if whole > 0 else None


def main_axes(covariance: Array) -> Array:
    """Return the axes of `components` of a covariance (d, d): (d, 2)."""
    axes = np.linalg.eigh(covariance)[1][:, ::-1][:, :2]
    axes = np.pad(axes, ((0, 0), (0, 2 - axes.shape[1])))
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    return axes * np.where(largest < 0, -1.0, 1.0)


def map_rows(
    z: Array,
    labels: Array,
    sites: tuple[Array, list[str]],
    shown: Array,
    cells: Array,
    min_cell: int,
) -> list[Row]:
    """Return a row for each publishable cluster, and for each at each site.

    Parameters
    ----------
    z : rows (n, d).
    labels : (n,) clusters in [0, k).
    sites : each row's site (n,), and the sites' names in the order of `cells`.
    shown : (k,) bool, clusters with a published size.
    cells : (k, sites) bool, the same at sites.
    """
    mean, covariance = _moments(z)
    axes = main_axes(covariance)
    at = (z - mean) @ axes
    share = explained(covariance, axes)
    site, names = sites
    found: list[Row] = []
    for c in np.flatnonzero(shown):
        whole = ellipse(at[labels == c], None, int(c), min_cell)
        found += [row | {"explained": share} for row in whole]
        for j, name in enumerate(names):
            if cells[c, j]:
                found += ellipse(at[(labels == c) & (site == name)], name, int(c), min_cell)
    return found


def ellipse(at: Array, site: str | None, cluster: int, min_cell: int) -> list[Row]:
    """Return mean and spread of points (n, 2), or nothing if they are too few."""
    if len(at) < 2 * max(min_cell, 1):
        return []
    middle = [ShownNumber.of(at[:, j], min_cell).mean if at[:, j].any() else 0.0 for j in (0, 1)]
    if None in middle:
        return []
    return [placed(middle, np.cov(at.T), site, cluster, len(at))]


def placed(
    middle: list[float | None], covariance: Array, site: str | None, cluster: int, n: int
) -> Row:
    """Return a row of the map.

    Parameters
    ----------
    middle : rounded mean (2,).
    covariance : (2, 2), with n − 1.
    """
    values, axes = np.linalg.eigh(covariance)
    short, long = np.sqrt(np.maximum(values, 0.0))
    turned = math.degrees(math.atan2(axes[1, 1], axes[0, 1])) % 180.0
    return {
        "space": "pca", "site": site, "cluster": cluster, "x": middle[0], "y": middle[1],
        "sx": _round(long), "sy": _round(short), "angle": float(round(turned)), "n": n,
    }  # fmt: skip


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def image_rows(run: Run, fits: bool, shown: Array, seed: int) -> list[Row]:
    """Return synthetic patients of each cluster; none if the model has no `sample`.

    Parameters
    ----------
    fits : whether all features are from 0 to 1, as in images.
    shown : (k,) bool, published clusters.
    seed : seed of the patients.
    """
    if not fits:
        return []
    rng, k = np.random.default_rng((seed, 0x696D6167)), len(shown)
    found: list[list[Array]] = [[] for _ in range(k)]
    with contextlib.suppress(NotSupported):
        for _ in range(TIMES):
            drawn = np.asarray(run.model.sample(DRAWN * k, rng), float)
            for row, c in zip(drawn, labels_of(run, drawn), strict=True):
                if c < k and len(found[c]) < PATIENTS:
                    found[c].append(row)
            if all(len(rows) == PATIENTS for rows in found):
                break
    features = list(run.design.features)
    shape = list(shape_of(len(features)))
    return [
        {"cluster": c, "patient": i, "values": np.round(row, 3).tolist()}
        | {"features": features, "shape": shape}
        for c in range(k)
        if shown[c]
        for i, row in enumerate(found[c])
    ]


def shape_of(features: int) -> tuple[int, int]:
    """Return rows and columns of an image of so many features: complete, if it is not too wide."""
    for high in range(math.isqrt(features), 0, -1):
        if features % high == 0 and features / high**2 <= WIDEST:
            return high, features // high
    high = max(1, math.isqrt(features))
    return high, math.ceil(features / high)
