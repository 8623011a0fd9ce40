"""The cohort's flow: from rows read to rows analysed.

``data.exclude`` lists reasons to exclude rows that no method can use, applied in the order of
`REASONS`; a row counts under the first that holds. Without it such rows are errors. Then rows of
sites that do not take part (`site_rule`) are left out. Counts here are exact; their publisher
suppresses small ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.encode import column_of
from fedcohort.data.on_disk import numbered, taken
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.protocol import DataError
from fedcohort.study.sites.site_rule import NAMED, Fate, moved

#: Reasons of `data.exclude`, in order.
REASONS = ("missing outcome", "time not above 0")

#: Stages of sites that do not take part.
LEFT_OUT, SMALL = "sites left out", "small sites"
#: Stage of rows that are the coordinator's own.
COORDINATOR = "coordinator's own"
#: Notes of the flow on small sites, and on rows of the coordinator.
SITES, COORDINATOR_DATA = "data.sites", "coordinator_data"

#: A stage of the flow: its name, a site (None: all of them), number of rows, a note.
Stage = tuple[str, str | None, int, str]


def exclude(
    frame: pd.DataFrame,
    site: Array | None,
    outcome: Outcome | None,
    reasons: Sequence[str],
    where: str,
    fates: Mapping[str, Fate] | None = None,
) -> tuple[pd.DataFrame, Array | None, tuple[Stage, ...]]:
    """Leave rows out.

    Parameters
    ----------
    frame : canonical; one row a patient (n,).
    site : each row's natural site (n,), or None.
    reasons : some of `REASONS`, in that order.
    where : the table's name in errors.
    fates : sites that do not take part under their own name.

    Returns
    -------
    frame, site : of the remaining rows, numbered from 0.
    flow : stages "read", "excluded: <reason>", "excluded: " with `LEFT_OUT` and `SMALL` if there
        are such sites, "analysed". Joined sites are counted under their new name; a left-out site
        only in stages with its rows.

    Raises
    ------
    DataError : the table lacks an outcome's column; no row stays, or none of a site.
    """
    known = dict(fates or {})
    takes_part = np.ones(len(frame), bool)
    if site is not None:
        takes_part, site = moved(site, known)
    left = np.ones(len(frame), bool)
    flow = [*_counted("read", left, site, "")]
    for reason in reasons if outcome is not None else ():
        out = left & _fits(frame, outcome, reason)
        left &= ~out
        flow += _counted(f"excluded: {reason}", out, site, "data.exclude")
    gone = {s: LEFT_OUT if f.why == NAMED else SMALL for s, f in known.items() if f.to is None}
    for stage, note in ((LEFT_OUT, "data.exclude"), (SMALL, SITES)):
        if site is not None and stage in gone.values():
            out = left & np.isin(site, [s for s, of in gone.items() if of == stage])
            flow += (
                f
                for f in _counted(f"excluded: {stage}", out, site, note)
                if f[1] not in gone or f[2]
            )
    left &= takes_part
    analysed = [f for f in _counted("analysed", left, site, "") if f[1] not in gone]
    for _, name, n, _ in analysed:
        if not n:
            which = "no row" if name is None else f"no row of site {name!r}"
            raise DataError(
                f"{where}: {which} is left after data.exclude ({', '.join(reasons)}). Check the "
                f"outcome's columns."
            )
    flow += analysed
    if left.all():
        return numbered(frame), site, tuple(flow)
    kept = taken(frame, left)
    return kept, None if site is None else site[left], tuple(flow)


def moved_out(flow: Sequence[Stage], rows: Array, site: Array | None) -> tuple[Stage, ...]:
    """Return a flow in which `rows` (n,) of the analysed ones are the coordinator's."""
    out = [*_counted(f"excluded: {COORDINATOR}", rows, site, COORDINATOR_DATA)]
    fewer = {name: n for _, name, n, _ in out}
    before = [f for f in flow if f[0] != "analysed"]
    after = [
        (stage, name, n - fewer.get(name, 0), note)
        for stage, name, n, note in flow
        if stage == "analysed"
    ]
    return (*before, *out, *after)


def stays(frame: pd.DataFrame, outcome: Outcome | None, reasons: Sequence[str]) -> Array:
    """Return which rows (n,) of a table stay; all, if it lacks a column of the outcome."""
    kept = np.ones(len(frame), bool)
    if outcome is None or not all(list(frame.columns).count(c) == 1 for c in outcome.columns):
        return kept
    for reason in reasons:
        kept &= ~_fits(frame, outcome, reason)
    return kept


def _fits(frame: pd.DataFrame, outcome: Outcome | None, reason: str) -> Array:
    """Return the rows (n,) for which a reason holds."""
    if reason == "missing outcome":
        columns = outcome.columns if outcome is not None else ()
        return np.any([column_of(frame, c).isna().to_numpy() for c in columns], axis=0)
    assert isinstance(outcome, Survival)
    time = pd.to_numeric(column_of(frame, outcome.time), errors="coerce")
    return time.to_numpy(np.float64) <= 0


def _counted(stage: str, rows: Array, site: Array | None, note: str) -> Iterable[Stage]:
    """Yield the number of `rows` (n,) over all sites, and at each."""
    yield stage, None, int(rows.sum()), note
    for name in np.unique(site) if site is not None else ():
        yield stage, str(name), int(rows[site == name].sum()), note
