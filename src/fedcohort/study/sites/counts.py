"""Publishable rows and events of each site, decided once for all files of a study.

The flow, Table 1, the settings, the metrics by centre and the cards count the same patients, so a
count that one hides must not follow from two others. Totals over all sites count as known, since a
model, a curve and a calibration plot give them. With m the `min_cell`, of sites with n rows and e
events:

    rows      if a site has 1 … m − 1, hidden at all sites of up to v rows: the smallest v      (1)
              with which these and two different counts are hidden (eq. 2 of `disclosure.counts`)
    events    if a site hides its own, as in Table 1, hidden at the K sites of fewest rows,     (2)
              up to the largest that does, at least 2
    halves    of natural sites, events of training and of blind rows: as (2), if a site has
              1 … m − 1 events or non-events in either half, or hides the total

Someone who knows all rows, K and the total events E of the K sites can list the ways to divide E
for which (2) gives this K:

    some site hides its own if K = 2, the largest of them if K > 2                              (3)

All these publish the same. So only the K sites are hidden if (3) leaves each of them two possible
numbers of events or more; otherwise all sites are.

Training and test rows follow, within one row, from total rows and the test fraction, which are
published: hiding them would hide nothing. If (1) hides some sites' rows, they would reveal these,
and are hidden at all sites.

Revealed: nothing; the coordinator counts what the files will contain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.encode import column_of
from fedcohort.data.outcome import classes_of, levels_of
from fedcohort.data.words import sorted_levels
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.study.file.plan import Plan, Scenario
from fedcohort.study.sites.layout import Table, lay_out, test_rows


@dataclass(frozen=True)
class Shown:
    """Publishable rows and events by site; None if hidden.

    Attributes
    ----------
    rows, events : by site. `events` are None for an outcome without events.
    closed : sites whose numbers of events, or of rows of a class, are hidden.
    """

    rows: Mapping[str, int | None]
    events: Mapping[str, int | None]
    closed: frozenset[str]


@dataclass(frozen=True)
class Counts:
    """All published rows and events by site.

    Attributes
    ----------
    events : of all analysed rows.
    described : of Table 1: all rows at natural sites, else the first scenario's training rows.
    natural : whether sites are those of the data.
    settings : of each of the plan's scenarios, training rows of the first repeat.
    test : blind rows of the first repeat at natural sites; empty for simulated sites.
    """

    events: int | None
    described: Shown
    natural: bool
    settings: tuple[Shown, ...]
    test: Shown


#: Rows by site and class: each (classes,), not events first.
Cells = dict[str, Array]


def count(plan: Plan, table: Table) -> Counts:
    """Count a study's rows and events by site, and decide which are published."""
    m, named = plan.min_cell, table.outcome is not None and table.outcome.has_events
    classes = _classes(table, table.frame)
    whole = np.bincount(classes, minlength=2)
    total = int(whole[1]) if named and not hidden(whole, m).any() else None
    if table.site is None:
        settings = [_open(_simulated(plan, table, s), m, named) for s in plan.scenarios]
        return Counts(total, settings[0], False, tuple(settings), Shown({}, {}, frozenset()))
    site, blind = table.site.astype(str), test_rows(plan, table, 0)
    cells = _cells(site, classes)
    halves = [_cells(site[half], classes[half], like=cells) for half in (~blind, blind)]
    described = _open(cells, m, named)
    training, test = _halves(cells, halves, described, m, named)
    settings = tuple(
        training
        if s.rule == "natural" and not s.changed
        else _made(plan, table, s, described, named)
        for s in plan.scenarios
    )
    return Counts(total, described, True, settings, test)


def _made(plan: Plan, table: Table, scenario: Scenario, natural: Shown, named: bool) -> Shown:
    """Return counts of simulated sites; no events if the rows' natural sites hide theirs.

    Of natural sites whose rows a scenario changes no events are told: they are of other rows.
    """
    found = _open(_simulated(plan, table, scenario), plan.min_cell, named)
    if not natural.closed and scenario.rule != "natural":
        return found
    return Shown(found.rows, dict.fromkeys(found.events), frozenset(found.rows))


# what there is --------------------------------------------------------------------------


def _classes(table: Table, frame: pd.DataFrame) -> Array:
    """Return the class of each row of a part of the table (n,); 1 is an event."""
    outcome, levels = table.outcome, levels_of(table.outcome, table.dictionary)
    if outcome is not None and levels and not table.dictionary[outcome.label].levels:
        levels = sorted_levels(column_of(table.frame, outcome.label).dropna().unique())
    return classes_of(frame, outcome, levels)


def _cells(site: Array, classes: Array, like: Cells | None = None) -> Cells:
    """Return the rows of each class at each site, and at those of `like`."""
    k = max(2, int(classes.max(initial=0)) + 1)
    names = like or [str(s) for s in np.unique(site)]
    return {s: np.bincount(classes[site == s], minlength=k) for s in names}


def _simulated(plan: Plan, table: Table, scenario: Scenario) -> Cells:
    """Return a scenario's training rows of the first repeat."""
    frames = lay_out(plan, table, scenario, 0).problem.frames
    made = np.concatenate([np.repeat(s, len(f)) for s, f in frames.items()])
    return _cells(made, np.concatenate([_classes(table, f) for f in frames.values()]))


# what is shown --------------------------------------------------------------------------


def _open(cells: Cells, min_cell: int, named: bool) -> Shown:
    """Return publishable counts of sites with a known total, eqs. (1) to (3)."""
    rows = {s: int(c.sum()) for s, c in cells.items()}
    few = hidden_rows(rows, min_cell)
    own = few | {s for s, c in cells.items() if _few(c, min_cell)}
    closed = closed_sites(cells, own, min_cell)
    return _shown(cells, few, closed, named)


def _halves(
    cells: Cells, halves: list[Cells], whole: Shown, min_cell: int, named: bool
) -> list[Shown]:
    """Return publishable counts of natural sites' training rows, and of their blind rows."""
    few = set(cells) if None in whole.rows.values() else set[str]()
    own = {s for s in cells if s in whole.closed or any(_few(h[s], min_cell) for h in halves)}
    closed = _first({s: int(c.sum()) for s, c in cells.items()}, own)
    return [_shown(half, few, closed, named) for half in halves]


def _shown(cells: Cells, few: Collection[str], closed: Collection[str], named: bool) -> Shown:
    return Shown(
        {s: None if s in few else int(c.sum()) for s, c in cells.items()},
        {s: int(c[1]) if named and s not in closed else None for s, c in cells.items()},
        frozenset(closed),
    )


def _few(classes: Array, min_cell: int) -> bool:
    """Return whether Table 1 would hide counts of these classes, without missing ones."""
    return bool(hidden(np.concatenate(([0], classes)), min_cell).any())


def hidden_rows(rows: Mapping[str, int], min_cell: int) -> set[str]:
    """Return the sites whose rows are hidden, eq. (1)."""
    secret = hidden(np.array(list(rows.values()), np.int64), min_cell)
    return {s for s, h in zip(rows, secret, strict=True) if h}


def _first(rows: Mapping[str, int], own: Collection[str]) -> list[str]:
    """Return the sites of eq. (2), those of fewest rows first."""
    order = sorted(rows, key=lambda s: (rows[s], s))
    last = max((i for i, s in enumerate(order) if s in own), default=-1)
    return order[: max(2, last + 1)] if last >= 0 else []


def closed_sites(cells: Cells, own: Collection[str], min_cell: int) -> list[str]:
    """Return the sites whose events are hidden, eqs. (2) and (3).

    Parameters
    ----------
    cells : rows of each class by site, (classes,).
    own : sites that hide their own.
    """
    rows = {s: int(c.sum()) for s, c in cells.items()}
    first = _first(rows, own)
    if not first or len(first) == len(cells):
        return first
    held = np.sum([cells[s] for s in first], axis=0)
    if len(held) == 2 and _open_to_doubt([rows[s] for s in first], int(held[1]), min_cell):
        return first
    return sorted(cells)


def _open_to_doubt(rows: list[int], events: int, min_cell: int) -> bool:
    """Return whether eq. (3) leaves each site two possible numbers of events or more, from 1."""
    *others, n = rows
    own = _own(n, min_cell)
    if len(rows) == 2:
        first = {*_own(others[0], min_cell), *(events - x for x in own)}
        return sum(0 < x <= others[0] and 0 < events - x <= n for x in first) > 1
    k, room = len(others), sum(others)
    rest = [events - x for x in own if k <= events - x <= room]
    spans = [
        {(max(1, r - room + m), min(m, r - k + 1)) for r in rest} for m in others
    ]  # for each other site, the least and most that it can have
    return len(rest) > 1 and all(len(s) > 1 or any(a < b for a, b in s) for s in spans)


def _own(rows: int, min_cell: int) -> list[int]:
    """Return the numbers of events, from 1, that a site of so many rows hides."""
    ends = {*range(1, min_cell + 3), *range(rows - min_cell - 2, rows + 1)}
    return [x for x in sorted(ends) if 0 < x <= rows and _few(np.array([rows - x, x]), min_cell)]
