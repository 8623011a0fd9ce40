"""A site's publishable counts of rows and events.

A site reports its rows: read, excluded for each reason, for training and blind, and the events of
the latter two. It does not report few patients:

    a reason    that excludes 1 … min_cell − 1 rows, and then the rows read, which would reveal it
    events      if events or non-events are few among all rows, training rows or blind rows

Training and blind rows are never few: such a site does not take part (`table`).

Revealed: `SiteCounts` of each site, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.outcome import classes_of, levels_of
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.sites.cohort import TEST, TRAINING
from fedcohort.study.sites.counts import Shown
from fedcohort.study.sites.exclusion import REASONS

#: Value of a hidden count.
UNTOLD = -1


@message
class SiteCounts:
    """``read``, ``analysed`` (); ``excluded`` by reason (2,); ``rows``, ``events`` by half (2,)."""

    read: Array
    excluded: Array
    analysed: Array
    rows: Array
    events: Array


@gathered
def tell_counts(site: Site[SiteTable, None], *, min_cell: int) -> SiteCounts:
    """Rows and events of the site, in the first repeat."""
    table, stages = site.data, {stage: n for stage, _, n, _ in site.data.flow}
    min_cell = max(min_cell, table.terms.plan.min_cell)
    out = np.array([stages.get(f"excluded: {reason}", 0) for reason in REASONS])
    secret = (out > 0) & (out < min_cell)
    read = UNTOLD if secret.any() else stages["read"]
    levels = levels_of(table.outcome, table.terms.dictionary)
    blind, classes = table.blind(0), classes_of(table.frame, table.outcome, levels)
    halves = [np.bincount(classes[half], minlength=2) for half in (~blind, blind)]
    cells = [np.bincount(classes, minlength=2), *halves]
    few = any(hidden(np.r_[0, c], min_cell).any() for c in cells)
    named = table.outcome is not None and table.outcome.has_events
    events = [UNTOLD if few or not named else int(half[1]) for half in halves]
    rows = [int(half.sum()) for half in halves]
    return SiteCounts(
        np.array(read),
        np.where(secret, UNTOLD, out),
        np.array(stages["analysed"]),
        np.array(rows),
        np.array(events),
    )


STEPS = (tell_counts,)


# at the coordinator -------------------------------------------------------------------


def published_halves(told: Mapping[str, SiteCounts]) -> tuple[Shown, Shown]:
    """Return published training and blind rows; no events if any site hides its own.

    A model gives the events of all sites together, so one hidden number would follow as a
    difference.
    """
    closed = frozenset(told) if any((t.events < 0).any() for t in told.values()) else frozenset()
    found = [
        Shown(
            {s: int(t.rows[half]) for s, t in told.items()},
            {s: None if s in closed else int(t.events[half]) for s, t in told.items()},
            closed,
        )
        for half in (0, 1)
    ]
    return found[0], found[1]


def flow_of(told: Mapping[str, SiteCounts], reasons: Sequence[str]) -> list[dict[str, object]]:
    """Return the flow's rows in the form of results.json."""
    stages = [("read", "", {s: int(t.read) for s, t in told.items()})]
    for reason in reasons:
        place = REASONS.index(reason)
        counts = {s: int(t.excluded[place]) for s, t in told.items()}
        stages.append((f"excluded: {reason}", "data.exclude", counts))
    stages.append(("analysed", "", {s: int(t.analysed) for s, t in told.items()}))
    for half, stage in enumerate((TRAINING, TEST)):
        stages.append((stage, "", {s: int(t.rows[half]) for s, t in told.items()}))
    rows: list[dict[str, object]] = []
    for stage, note, counts in stages:
        whole = None if UNTOLD in counts.values() else sum(counts.values())
        for site, n in ((None, whole), *counts.items()):
            shown = None if n == UNTOLD else n
            rows.append({"stage": stage, "site": site, "rows": shown, "note": note})
    return rows
