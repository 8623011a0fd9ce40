"""A UMAP of simulated patients by cluster; it uses no row of any table.

McInnes, Healy & Melville, "UMAP: Uniform Manifold Approximation and Projection for Dimension
Reduction", arXiv:1802.03426, 2018, by the package umap-learn with its defaults: 15 neighbours,
Euclidean distances, minimum distance 0.1.

Patients are drawn by the model's `sample`, assigned to clusters by `predict`, and mapped to the
latent space, or kept in x if the model has none. The first `EACH` of each cluster are laid out,
fewer if there are many clusters.

`umap_rows` depends on a model and a seed only, so anyone with the saved model can repeat its map on
the same machine and versions; UMAP computes in float32, and another processor may round
differently.

Revealed: nothing beyond the model. Points of clusters that must not be published by their counts
(`study.judge.shown.clusters`) are removed afterwards.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Fitted, NotSupported, Row
from fedcohort.study.file.umap import UMAP_NEEDED
from fedcohort.study.judge.shown.cluster_map import latent_of

#: Drawn patients; largest number laid out, of a cluster and in all.
DRAWN, EACH, MOST = 1000, 60, 300
#: UMAP's neighbours of a point; the map needs twice as many points.
NEIGHBOURS = 15
#: Decimals of a position.
DECIMALS = 2
#: Number that separates draws of this map from other draws of the same seed.
_OWN = 0x756D6170


def shown_rows(model: Fitted, seed: int, told: Array) -> list[Row]:
    """Return the rows of `umap_rows` of the published clusters, bool (k,)."""
    some = set(np.flatnonzero(told).tolist())
    return [row for row in umap_rows(model, seed) if row["cluster"] in some]


def umap_rows(model: Fitted, seed: int) -> list[Row]:
    """Return a row for each cluster: its number, and its simulated patients' positions.

    Parameters
    ----------
    seed : seed of the patients and of UMAP.

    Returns
    -------
    rows : ``cluster``; ``x`` and ``y``, lists of equal length, without unit. Empty if the model has
        no `sample`, or gives too few patients.

    Raises
    ------
    NotSupported : as `load`.
    """
    rng = np.random.default_rng((seed, _OWN))
    try:
        x = np.asarray(model.sample(DRAWN, rng), float)
    except NotSupported:
        return []
    labels = np.asarray(model.predict(x)).astype(np.int64)
    rows = first_of_each(labels, EACH, MOST)
    if len(rows) < 2 * NEIGHBOURS:
        return []
    at = embedded(latent_of(model, x[rows]), int(rng.integers(2**31)))
    return [
        {"cluster": int(c)}
        | {name: at[labels[rows] == c, j].tolist() for j, name in enumerate(("x", "y"))}
        for c in np.unique(labels[rows])
    ]


def first_of_each(labels: Array, each: int, most: int) -> Array:
    """Return the numbers of each cluster's first rows, in order: at most `each`, `most` in all.

    Parameters
    ----------
    labels : (n,) integers.
    """
    names = np.unique(labels)
    each = min(each, max(1, most // max(1, len(names))))
    kept = [np.flatnonzero(labels == c)[:each] for c in names]
    return np.sort(np.concatenate([*kept, np.zeros(0, np.int64)]))


def embedded(z: Array, seed: int) -> Array:
    """Return positions (n, 2) of points (n, d) by UMAP, rounded; n is above `NEIGHBOURS`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about disconnected parts, seeds and threads
        layout = load()(n_neighbors=NEIGHBOURS, n_components=2, random_state=seed, n_jobs=1)
        at = np.asarray(layout.fit_transform(z), float)
    return np.round(at, DECIMALS) + 0.0  # no −0.0


def load() -> Any:
    """Import UMAP, which takes a second, and some ten seconds the first time.

    Raises
    ------
    NotSupported : the package umap-learn is not installed, or numba has no folder for its cache.
    """
    try:
        from umap import UMAP
    except ImportError:
        raise NotSupported(f"evaluate.umap: {UMAP_NEEDED}") from None
    except RuntimeError:  # numba's: "cannot cache function …: no locator available"
        raise NotSupported(
            "evaluate.umap: the package numba has no folder for its cache. Set NUMBA_CACHE_DIR to "
            "a writable folder."
        ) from None
    return UMAP
