"""Hierarchical Dirichlet process over sites: topics of binary rows."""

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.hdp.model import TopicModel
from fedcohort.algorithms.hdp.program import HdpSettings, fit
from fedcohort.algorithms.hdp.topics import STEPS
from fedcohort.protocol import Method, Task
from fedcohort.training.clusters.points import PLAIN
from fedcohort.training.clusters.seeding import sum_points


def bounds(config: HdpSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    return {"space": (PLAIN.text,), "iterations": (config.iterations,)}


METHOD = Method(
    name="hdp",
    title="Topics of columns of zeros and ones, inferred at each site, then merged",
    tasks=("clustering",),
    paper="Teh, Jordan, Beal, Blei, JASA 101(476), 2006",
    reveals=(
        "Of each site, once, its own topics (a probability for each column) and the rows of each, "
        "none of fewer rows than min_cell. As sums over all sites, the number of rows, totals and "
        "squares of columns, and the rows of each cluster."
    ),
    unguarded=("Topics of min_cell rows or more of a site (`algorithms.hdp.topics`)."),
    settings=HdpSettings,
    fit=fit,
    model=TopicModel,
    steps=(sum_points, *STEPS),
    preprocess={"scale": "none", "impute": "median"},
    bounds=bounds,
    package="tomotopy",
)

__all__ = ["METHOD", "HdpSettings", "TopicModel", "fit"]
