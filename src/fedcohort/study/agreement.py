"""Is it the same clustering? Each arm's clusters of the blind rows against those of pooled data.

Clusters have no names, and two that differ may be as tight as each other, so metrics do not say
whether hospitals that work together find the groups that one table with all rows would show. The
adjusted Rand index of the labels of both does, on the rows that neither has seen: 1 for the same
groups, about 0 for unrelated ones.

It is the metric `agreement`, of every arm but the centralised bound itself; of an isolated bound,
the mean over the hospitals' own clusterings.

Revealed: nothing; a piece of a study keeps its labels until the study is written, and no longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedcohort.metrics.clusters import adjusted_rand, contingency
from fedcohort.study.outcomes import Found
from fedcohort.study.rows import ALL, LABELS

#: The metric's name.
METRIC = "agreement"


def with_agreement(shown: list[Found]) -> list[Found]:
    """Return what arms gave, with the metric in every row that has labels beside pooled ones."""
    pooled = {
        (one.scenario, one.repeat): one.found[LABELS][ALL]
        for one in shown
        if one.arm.scope == "centralised" and LABELS in one.found
    }
    return [
        replace(one, found=_agreed(one, pooled.get((one.scenario, one.repeat)))) for one in shown
    ]


def _agreed(one: Found, pooled: list[int] | None) -> Mapping[str, Any]:
    if pooled is None or one.arm.scope == "centralised" or LABELS not in one.found:
        return one.found
    values = {
        site: float(adjusted_rand(contingency(np.array(labels), np.array(pooled))))
        for site, labels in one.found[LABELS].items()
    }
    whole = float(np.mean(list(values.values())))
    rows: list[dict[str, Any]] = []
    for row in one.found["rows"]:
        value = whole if row["site"] is None else values.get(row["site"])
        known = row["site"] is None or one.arm.scope == "isolated"
        more = {METRIC: value} if known else {}
        rows.append({**row, "metrics": {**row["metrics"], **more}})
    return {**one.found, "rows": rows}
