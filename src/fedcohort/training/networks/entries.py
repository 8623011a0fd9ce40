"""Known entries of tables whose missing entries stay missing, counted before a fit.

Revealed: `Entries` once, only as a sum over all sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import DataError, Site, Task, message, summed
from fedcohort.protocol.updates import count_fault

REVEALS = "once, how many rows and entries of each column are known, as sums over sites"


@message
class Entries:
    """Rows with a known entry (), known entries of each column (p,), and number of sites with an
    infinite entry in each column (p,).
    """

    rows: Array
    known: Array
    infinite: Array

    def fault(self, asked: Mapping[str, Any]) -> str:
        """Return the fault of one reply, or ""."""
        if self.known.shape != self.infinite.shape or self.known.ndim != 1:
            return "another shape than one number for each column."
        if why := count_fault("known", self.known) or count_fault("infinite", self.infinite):
            return why
        return "more entries in a column than rows." * bool((self.known > self.rows).any())


@summed
def count_entries(site: Site[Any, Any]) -> Entries:
    """Count rows and known entries."""
    x: Array = site.data.x
    known = ~np.isnan(x)
    rows = np.array(int(known.any(axis=1).sum()))
    entries, infinite = known.sum(axis=0), np.isinf(x).any(axis=0).astype(np.int64)
    return Entries(rows, np.asarray(entries), np.asarray(infinite))


def views_of(task: Task) -> tuple[str, ...]:
    """Return the view of each column of x (p,); "" if it has none."""
    return task.views or ("",) * len(task.features)


def check_entries(seen: Entries, task: Task, least: int) -> None:
    """Refuse tables without enough rows or entries.

    Parameters
    ----------
    least : fewest rows, and fewest entries of a column, of a fit.

    Raises
    ------
    DataError : names the view or the column.
    """
    if not task.features:
        raise DataError("there are no columns to learn from; name at least one.")
    least = max(least, 1)
    if seen.infinite.any():
        at = int(np.flatnonzero(seen.infinite)[0])
        raise DataError(
            f"column {task.features[at]!r} has infinite values. Correct them, or leave the "
            f"column out."
        )
    if seen.rows < least:
        raise DataError(
            f"{int(seen.rows)} rows with a known entry are too few; {least} are needed. Add sites."
        )
    views = np.array(views_of(task))
    for view in sorted({*views[seen.known == 0].tolist()} - {""}):
        if not seen.known[views == view].any():
            raise DataError(
                f"no site has an entry of view {view!r}. Take it out of the dictionary, or add a "
                f"site that has it."
            )
    if (few := seen.known < least).any():
        at = int(np.flatnonzero(few)[0])
        raise DataError(
            f"column {task.features[at]!r} has fewer than {least} known entries at all sites "
            f"together. Leave it out, or add sites."
        )
