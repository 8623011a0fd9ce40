"""k-means and k-modes over sites."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.kmeans.model import Clusters
from fedcohort.algorithms.kmeans.program import fit_means, fit_modes
from fedcohort.algorithms.kmeans.settings import MeansSettings, ModesSettings
from fedcohort.protocol import Method, Step, Task
from fedcohort.training.clusters import candidates, how_many, lloyd, seeding
from fedcohort.training.clusters.points import PLAIN

#: Why no fit calls `data.exact`.
_UNGUARDED = (
    "Sums over clusters of min_cell rows or more; those of two rounds do not differ in fewer rows "
    "(`training.clusters.lloyd`)."
)

STEPS = (*seeding.STEPS, *candidates.STEPS, *lloyd.STEPS)
GAP = (
    " All of this for each number of clusters; and once, products of sums over min_cell rows or "
    "more, drawn at random, for columns in which no value has half of a site's rows."
)
ROUNDS = (
    "Only sums over all sites: once the number of rows, and totals and squares of their columns; "
    "the number of rows nearest to each of some hundred points that the coordinator "
    "draws; and in each round, over clusters of min_cell rows or more, their rows, the rows that "
    "moved between them, and totals and squares of their values. No difference from the round "
    "before, or from one before a swap, is over fewer rows."
)
OWN = " Of each site, once: its own clusters' means and sizes, none of fewer rows than min_cell."


def _reveals(config: MeansSettings | ModesSettings) -> str:
    """Return what leaves a site with these settings."""
    text = ROUNDS + (OWN if config.seeding == "sites" else "")
    if not isinstance(config, MeansSettings) or config.n_clusters != "auto":
        return text
    if config.choose == "gap":
        return text + GAP
    return text + (
        " All of this for each number of clusters, and again without each site in turn, from which "
        "that site's own totals follow."
    )


def asks(config: MeansSettings | ModesSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps of a fit."""
    start = (seeding.own_centroids,) if config.seeding == "sites" else candidates.STEPS
    found = (seeding.sum_points, *start, *lloyd.STEPS)
    if isinstance(config, MeansSettings) and config.n_clusters == "auto":
        found += how_many.STEPS if config.choose == "gap" else ()
    return found


def bounds(config: MeansSettings | ModesSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    auto = isinstance(config, MeansSettings) and config.n_clusters == "auto"
    return {
        "space": (PLAIN.text,),
        "k": () if auto else (config.n_clusters,),
        "restarts": (config.restarts,),
        "unscaled": (False,),
    }


KMEANS = Method(
    name="kmeans",
    title="k-means clusters, those of the pooled table; their number given or chosen",
    tasks=("clustering",),
    paper=(
        "Lloyd, IEEE Trans. Inf. Theory 28(2), 1982; Tibshirani, Walther, Hastie, JRSS B 63(2), "
        "2001 (gap statistic)"
    ),
    reveals=ROUNDS,
    reveals_with=_reveals,
    unguarded=_UNGUARDED,
    settings=MeansSettings,
    fit=fit_means,
    model=Clusters,
    steps=(*STEPS, *how_many.STEPS),
    preprocess={"scale": "standard", "impute": "median"},
    asks=asks,
    bounds=bounds,
)
KMODES = Method(
    name="kmodes",
    title="k-modes clusters of columns with levels, by the number of columns that differ",
    tasks=("clustering",),
    paper="Huang, Data Mining and Knowledge Discovery 2, 1998",
    reveals=ROUNDS,
    reveals_with=_reveals,
    unguarded=_UNGUARDED,
    settings=ModesSettings,
    fit=fit_modes,
    model=Clusters,
    steps=STEPS,
    preprocess={"scale": "none", "impute": "median"},
    asks=asks,
    bounds=bounds,
)

__all__ = ["KMEANS", "KMODES", "Clusters", "MeansSettings", "ModesSettings"]
