"""A map of simulated patients by cluster, by UMAP; no row of any table has a part in it.

McInnes, Healy & Melville, "UMAP: Uniform Manifold Approximation and Projection for Dimension
Reduction", arXiv:1802.03426, 2018, by the package umap-learn with its own defaults: 15 neighbours,
Euclidean distances, a least distance of 0.1.

Patients are drawn by the model's own `sample` and put into its latent space, or left in x where it
has none. A patient's cluster is the one that `predict` gives, as for a real one; of each cluster
the first `EACH` that were drawn are laid out, or fewer where there are many clusters.

`umap_rows` takes a model and a seed and nothing else, so that its map is a function of them alone:
whoever has the saved model can draw it. The same model and seed give equal numbers on one machine
with the same versions; UMAP computes in float32, and another processor may round otherwise.

Revealed: nothing that the model does not reveal already. Which clusters are shown is decided where
clusters are counted (`study.judge.shown.clusters`); the others' points are left out afterwards.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import Fitted, NotSupported, Row
from fedcohort.study.file.umap import UMAP_NEEDED
from fedcohort.study.judge.shown.cluster_map import latent_of

#: Patients that are drawn; of a cluster and in all, the most that are laid out.
DRAWN, EACH, MOST = 1000, 60, 300
#: UMAP's neighbours of a point; fewer than twice as many points are not laid out.
NEIGHBOURS = 15
#: Decimals of a place.
DECIMALS = 2
#: What draws of this map are told by from other draws of the same seed.
_OWN = 0x756D6170


def shown_rows(model: Fitted, seed: int, told: Array) -> list[Row]:
    """Return the rows of `umap_rows` that are of clusters which may be shown, bool (k,)."""
    some = set(np.flatnonzero(told).tolist())
    return [row for row in umap_rows(model, seed) if row["cluster"] in some]


def umap_rows(model: Fitted, seed: int) -> list[Row]:
    """Return a row for each cluster: its number, and its simulated patients' places.

    Parameters
    ----------
    seed : what patients are drawn by, and what UMAP begins from.

    Returns
    -------
    rows : ``cluster``; ``x`` and ``y``, lists of equal length, in no unit. None where the model has
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
    """Return which rows are the first of their cluster, in order: at most `each`, `most` in all.

    Parameters
    ----------
    labels : (n,) integers.
    """
    names = np.unique(labels)
    each = min(each, max(1, most // max(1, len(names))))
    kept = [np.flatnonzero(labels == c)[:each] for c in names]
    return np.sort(np.concatenate([*kept, np.zeros(0, np.int64)]))


def embedded(z: Array, seed: int) -> Array:
    """Return places (n, 2) of points (n, d) by UMAP, rounded; n is above `NEIGHBOURS`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parts that are not joined, and of seeds and threads
        layout = load()(n_neighbors=NEIGHBOURS, n_components=2, random_state=seed, n_jobs=1)
        at = np.asarray(layout.fit_transform(z), float)
    return np.round(at, DECIMALS) + 0.0  # no −0.0


def load() -> Any:
    """Import UMAP: a second; some ten the first time, and again when it is first used.

    Raises
    ------
    NotSupported : the package umap-learn is not installed, or what it compiles has no place.
    """
    try:
        from umap import UMAP
    except ImportError:
        raise NotSupported(f"evaluate.umap: {UMAP_NEEDED}") from None
    except RuntimeError:  # numba's: "cannot cache function …: no locator available"
        raise NotSupported(
            "evaluate.umap: the package numba cannot keep what it compiles; set NUMBA_CACHE_DIR to "
            "a folder that can be written."
        ) from None
    return UMAP
