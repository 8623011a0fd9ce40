"""The natural sites of a study: those with enough rows and events that are not excluded.

`data.exclude` may exclude sites by name. A further site with fewer rows than `data.sites.min_rows`,
or fewer events than `data.sites.min_events`, is left out (`small: drop`), or merged with the other
such sites into one, `JOINED` (`small: join`). If these are too small even together, they are left
out. Rows are counted after the exclusions by row.

Over a network each site checks its own rows (`at_site.table`); sites cannot be joined there.

Revealed: names of sites, and the limit that each misses; no count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.outcome import Outcome
from fedcohort.protocol import DataError
from fedcohort.report import words

#: Treatment of sites that are too small.
DROP, JOIN = "drop", "join"
#: Name of joined sites; `describe.OTHERS` is another name, of sites that Table 1 shows together.
JOINED = "small hospitals"
#: Reason of a site that `data.exclude` names.
NAMED = "a name in data.exclude"


@dataclass(frozen=True)
class SiteRule:
    """Conditions for a site to take part.

    Attributes
    ----------
    min_rows, min_events : rows analysed, and events; for a binary outcome, rows of the rarer class.
    small : `DROP` or `JOIN`.
    excluded : sites that `data.exclude` names.
    """

    min_rows: int = 2
    min_events: int = 0
    small: str = DROP
    excluded: tuple[str, ...] = ()

    def why(self, rows: int, events: int | None) -> str:
        """Return the limit that a site with so many rows and events misses; "" if none.

        events : None if the outcome has none.
        """
        if rows < self.min_rows:
            return f"fewer than {self.min_rows} rows"
        if events is None or events >= self.min_events:
            return ""
        return "no event" if self.min_events == 1 else f"fewer than {self.min_events} events"


@dataclass(frozen=True)
class Fate:
    """A site that does not take part under its own name: its new name, or None; and why."""

    to: str | None
    why: str


def events_of(frame: pd.DataFrame, outcome: Outcome | None) -> Array | None:
    """Return 1 for each row with the event, or of the last class, 0 for others (n,).

    NaN if the outcome is neither; None if the outcome has no events.
    """
    return None if outcome is None else outcome.events(frame)


def _reasons(found: Mapping[str, Fate]) -> str:
    """Return the number of sites of each reason; no names, which may be patients' by mistake."""
    n = Counter(f.why for f in found.values())
    return ", ".join(f"{k} {'has' if k == 1 else 'have'} {why}" for why, k in n.items())


def counts(frame: pd.DataFrame, outcome: Outcome | None) -> tuple[int, int | None]:
    """Return a table's number of rows, and of events; None if not known."""
    return _counts(np.ones(len(frame), bool), events_of(frame, outcome), outcome)


def fates(
    rule: SiteRule, site: Array, event: Array | None, stays: Array, outcome: Outcome | None
) -> dict[str, Fate]:
    """Return the sites that do not take part under their own name.

    Parameters
    ----------
    site : each row's natural site (n,).
    event : (n,), see `events_of`.
    stays : (n,) the rows that `data.exclude` leaves.

    Raises
    ------
    DataError : `data.exclude` names an unknown site, or no site is left.
    """
    names = [str(s) for s in np.unique(site)]
    if event is not None and not (event[stays] > 0).any():
        event = None  # `data.check` reports it for the whole table
    if unknown := [s for s in rule.excluded if s not in names]:
        raise DataError(
            f"data.exclude names the site {unknown[0]!r}, which has no row. Check its spelling; "
            f"sites are {', '.join(map(repr, names[:6]))}{', …' * (len(names) > 6)}."
        )
    found = {s: Fate(None, NAMED) for s in rule.excluded}
    for name in (s for s in names if s not in found):
        if why := rule.why(*_counts(stays & (site == name), event, outcome)):
            found[name] = Fate(None, why)
    few = [s for s, f in found.items() if f.why != NAMED]
    if rule.small == JOIN and few:
        one = stays & np.isin(site, [*few, JOINED])
        why = rule.why(*_counts(one, event, outcome))
        for name in few:
            found[name] = Fate(None if why else JOINED, found[name].why)
    if all(s in found and found[s].to is None for s in names):
        raise DataError(
            f"no site is left of {len(names)}: {_reasons(found)}. Lower data.sites.min_rows or "
            f"min_events, or name the column of the sites."
        )
    return found


def _counts(rows: Array, event: Array | None, outcome: Outcome | None) -> tuple[int, int | None]:
    """Return the number of `rows` (n,), and of events; None if one is not known."""
    n = int(rows.sum())
    if event is None or np.isnan(event[rows]).any():
        return n, None
    events = int(event[rows].sum())
    of_classes = outcome is not None and outcome.has_classes
    return n, min(events, n - events) if of_classes else events


def moved(site: Array, found: Mapping[str, Fate]) -> tuple[Array, Array]:
    """Return which rows (n,) stay, and each row's site (n,) after joining."""
    out = np.isin(site, [s for s, f in found.items() if f.to is None])
    names = {s: f.to for s, f in found.items() if f.to is not None}
    return ~out, np.array([names.get(s, s) for s in site], object)


def fates_text(found: Mapping[str, Fate]) -> str:
    """Return the sites that do not take part under their own name, in words; "" for none."""
    return words.sites_left_out(listed(found))


def listed(found: Mapping[str, Fate]) -> list[dict[str, str | None]]:
    """Return a row for each such site, in the form of results.json: site, why, to."""
    return [{"site": s, "why": f.why, "to": f.to} for s, f in found.items()]
