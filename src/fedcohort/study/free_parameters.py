"""How many free parameters a model has, held against the rows of the sites that it learns from.

A regression has one for each column of x; a perceptron of widths p, h₁, …, h_k, 1

    Σ_i (w_i + 1) w_{i+1},   w = (p, h₁, …, h_k, 1)                                         (1)

Settings of other models say it themselves, by a method ``free_parameters(features)``; curves and
tables have none. An intercept, a baseline hazard and what a method adds for sites count for
nothing: a site's rows bear them many times. Penalties are not looked at.
`privacy.disclosure.models` has the rule.

Revealed: how many sites have too few rows, where a report says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedcohort.data.variable import Variable
from fedcohort.privacy.disclosure.models import ROWS_EACH, most_parameters
from fedcohort.protocol import registry

if TYPE_CHECKING:
    from fedcohort.study.deployed.table import SiteTable


def free_parameters(method: str, settings: dict[str, Any], features: int) -> int:
    """Return the free parameters of a model of so many columns of x."""
    known = registry.find(method)
    config: Any = known.configure(settings)
    if "curves" in known.gives or not {"predict", "transform"} & known.gives:
        return 0
    if hasattr(config, "free_parameters"):
        return config.free_parameters(features)
    hidden: Sequence[int] = getattr(config, "hidden", ())
    if not hidden or not features:
        return features
    return sum((a + 1) * b for a, b in pairwise((features, *hidden, 1)))


def columns_of(features: Iterable[Variable], frame: pd.DataFrame) -> int:
    """Return about how many columns of x a table's features give, before any is left out."""
    return sum(
        max(len(v.levels or frame[v.name].dropna().unique()) - 1, 0) if v.type == "category" else 1
        for v in features
        if v.name in frame
    )


def too_many(table: SiteTable) -> Iterator[tuple[str, int]]:
    """Yield each arm of a deployed study with more free parameters than a site's rows bear.

    Only its name and about how many; of a tuned arm, with the settings that the study gives.
    """
    plan = table.terms.plan
    rows = round((1 - plan.test_fraction) * len(table.frame))
    features = columns_of(table.terms.dictionary.features(table.outcome), table.frame)
    for arm in plan.arms:
        n = free_parameters(arm.method, arm.configured(), features)
        if n > most_parameters(rows):
            yield arm.name, n


def crowded(parameters: int, rows: Iterable[int | None]) -> str:
    """Say at how many sites there are too few rows for a model's parameters; "" if at none.

    Parameters
    ----------
    rows : of each site, to train on; None of one that does not show them, which is not judged.
    """
    known = [n for n in rows if n is not None]
    few = sum(parameters > most_parameters(n) for n in known)
    if not few:
        return ""
    return (
        f"{parameters} free parameters, and fewer than {ROWS_EACH} rows for each at {few} of "
        f"{len(known)} sites: the model may hold single rows"
    )
