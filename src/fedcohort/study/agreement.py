"""Is it the same clustering? Each arm's clusters of the blind rows against those of pooled data.

Clusters have no names, and two that differ may be as tight as each other, so metrics do not say
whether hospitals that work together find the groups that one table with all rows would show. The
adjusted Rand index of the labels of both does, on the rows that neither has seen: 1 for the same
groups, about 0 for unrelated ones.

It is the metric `agreement`, of every arm but the centralised bound itself; of an isolated bound,
the mean over the hospitals' own clusterings, in which one whose rows give no clusters counts as one
that sees a single group. Its draws are those of the blind rows, repeated, with both clusterings as
they are: how sure the figure is for these, not what other training rows would give.

Revealed: nothing; a piece of a study keeps its labels until the study is written, and no longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.clusters import adjusted_rand, contingency
from fedcohort.study.outcomes import Found
from fedcohort.study.rows import ALL, LABELS, NO_MODEL, mean_draws

#: The metric's name.
METRIC = "agreement"


def with_agreement(shown: list[Found], drawn: Callable[[int], Array]) -> list[Found]:
    """Return what arms gave, with the metric in every row that has labels beside pooled ones.

    drawn : repeat → how often each of its blind rows is in each draw of the bootstrap, (B, n).
    """
    pooled = {
        (one.scenario, one.repeat): one.found[LABELS][ALL]
        for one in shown
        if one.arm.scope == "centralised" and LABELS in one.found
    }
    weights = {repeat: drawn(repeat) for repeat in {one.repeat for one in shown}}
    return [
        replace(
            one, found=_agreed(one, pooled.get((one.scenario, one.repeat)), weights[one.repeat])
        )
        for one in shown
    ]


def _agreed(one: Found, pooled: list[int] | None, weights: Array) -> Mapping[str, Any]:
    if pooled is None or one.arm.scope == "centralised" or LABELS not in one.found:
        return one.found
    whole = np.array(pooled)
    blank = [row["site"] for row in one.found["rows"] if row.get("note") == NO_MODEL]
    found = {site: np.zeros_like(whole) for site in blank}
    found |= {site: np.array(labels) for site, labels in one.found[LABELS].items()}
    tables = {site: contingency(labels, whole) for site, labels in found.items()}
    values = {site: float(adjusted_rand(table)) for site, table in tables.items()}
    mean = float(np.mean(list(values.values())))
    draws = [{METRIC: adjusted_rand(contingency(own, whole, weights))} for own in found.values()]
    rows: list[dict[str, Any]] = []
    for row in one.found["rows"]:
        value = mean if row["site"] is None else values.get(row["site"])
        known = row["site"] is None or one.arm.scope == "isolated"
        more = {METRIC: value} if known else {}
        rows.append({**row, "metrics": {**row["metrics"], **more}})
    return {**one.found, "rows": rows, "draws": {**one.found["draws"], **mean_draws(draws)}}
