"""Gaussian copula over sites: virtual patients from marginals and correlations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fedcohort.algorithms.copula import private
from fedcohort.algorithms.copula.layout import Layout
from fedcohort.algorithms.copula.model import CopulaModel
from fedcohort.algorithms.copula.program import fit, sum_scores
from fedcohort.algorithms.copula.settings import CopulaSettings
from fedcohort.protocol import Method, PrivateFits, Step, Task


def asks(config: CopulaSettings) -> tuple[Step[..., Any], ...]:
    """Return the steps of a fit without noise."""
    del config
    return (sum_scores,)


def bounds(config: CopulaSettings, task: Task) -> Mapping[str, Collection[Any]]:
    """Return the allowed arguments of steps (`Method.bounds`)."""
    del config
    return {"layout": (Layout.of(task.heads, ranks=task.dp is None).text,)}


METHOD = Method(
    name="copula",
    title="Gaussian copula: virtual patients from marginals and correlations; the baseline",
    tasks=("synthesis",),
    paper="Patki, Wedge, Veeramachaneni, DSAA 2016; private fits: Li, Xiong, Jiang, EDBT 2014",
    reveals=(
        "Only sums over all sites: once, for each pair of columns, the number of rows with both, "
        "and sums, squares and products of the columns' normal scores; of binary columns, counts "
        "rounded to multiples of min_cell. A site adds nothing to a pair of which fewer than "
        "min_cell of its rows have both, nor to a number and a value that so few of them have."
    ),
    unguarded=(
        "Sums over min_cell rows or more, and rounded counts (`algorithms.copula.program`)."
    ),
    settings=CopulaSettings,
    fit=fit,
    model=CopulaModel,
    steps=(sum_scores, private.count_cells_privately, private.sum_scores_privately),
    asks=asks,
    bounds=bounds,
    preprocess={"scale": "quantile", "impute": "none"},
    private=PrivateFits(
        releases=private.releases,
        held=private.held,
        reveals=private.reveals,
        clips=private.CLIPS,
    ),
)

__all__ = ["METHOD", "CopulaModel", "CopulaSettings"]
