"""The cohort's flow: from the rows that were read to those that are analysed.

A study file may leave rows out that no method can use: ``data.exclude`` lists the reasons, which
are applied in the order of `REASONS`; a row counts under the first that fits. Without it such
rows are errors. The counts here are exact: whoever shows them suppresses small ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.encode import column_of
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.quality import site_called
from fedcohort.protocol import DataError

#: Why `data.exclude` may leave a row out, in order.
REASONS = ("missing outcome", "time not above 0")

#: A stage of the flow: its name, a site (None: all of them), how many rows, a note.
Stage = tuple[str, str | None, int, str]


def exclude(
    frame: pd.DataFrame,
    site: Array | None,
    outcome: Outcome | None,
    reasons: Sequence[str],
    where: str,
) -> tuple[pd.DataFrame, Array | None, tuple[Stage, ...]]:
    """Leave rows out.

    Parameters
    ----------
    frame : canonical; one row a patient (n,).
    site : each row's natural site (n,), or None.
    reasons : some of `REASONS`, in that order.
    where : what the table is called in errors.

    Returns
    -------
    frame, site : of the rows that stay, numbered from 0.
    flow : stages "read", "excluded: <reason>" for each reason, "analysed".

    Raises
    ------
    DataError : the table lacks an outcome's column; no row stays, or none of a site.
    """
    left = np.ones(len(frame), bool)
    flow = [*_counted("read", left, site, "")]
    for reason in reasons if outcome is not None else ():
        out = left & _fits(frame, outcome, reason)
        left &= ~out
        flow += _counted(f"excluded: {reason}", out, site, "data.exclude")
    analysed = list(_counted("analysed", left, site, ""))
    for _, name, n, _ in analysed:
        if not n:
            which = "no row" if name is None else f"no row of {_called(name, flow)}"
            raise DataError(
                f"{where}: {which} is left after data.exclude ({', '.join(reasons)}). Check the "
                f"outcome's columns."
            )
    flow += analysed
    if left.all():
        return frame.reset_index(drop=True), site, tuple(flow)
    kept = frame[left].reset_index(drop=True)
    return kept, None if site is None else site[left], tuple(flow)


def _called(site: str, flow: Iterable[Stage]) -> str:
    read = next(n for stage, name, n, _ in flow if (stage, name) == ("read", site))
    return site_called(site, read, "a site")


def stays(frame: pd.DataFrame, outcome: Outcome | None, reasons: Sequence[str]) -> Array:
    """Return which rows (n,) of one table stay; all, where it lacks a column of the outcome."""
    kept = np.ones(len(frame), bool)
    if outcome is None or not all(list(frame.columns).count(c) == 1 for c in outcome.columns):
        return kept
    for reason in reasons:
        kept &= ~_fits(frame, outcome, reason)
    return kept


def _fits(frame: pd.DataFrame, outcome: Outcome | None, reason: str) -> Array:
    """Return for which rows (n,) a reason holds."""
    if reason == "missing outcome":
        columns = outcome.columns if outcome is not None else ()
        return np.any([column_of(frame, c).isna().to_numpy() for c in columns], axis=0)
    assert isinstance(outcome, Survival)
    time = pd.to_numeric(column_of(frame, outcome.time), errors="coerce")
    return time.to_numpy(np.float64) <= 0


def _counted(stage: str, rows: Array, site: Array | None, note: str) -> Iterable[Stage]:
    """Return how many of `rows` (n,) there are over all sites, and at each."""
    yield stage, None, int(rows.sum()), note
    for name in np.unique(site) if site is not None else ():
        yield stage, str(name), int(rows[site == name].sum()), note
