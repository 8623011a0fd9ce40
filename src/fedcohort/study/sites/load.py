"""A study's tables as read, before any check.

`layout.load` and `fedcohort data check` both start here, so they check the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.check import Sheet, with_outcome
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.on_disk import stacked
from fedcohort.data.outcome import Outcome, columns_of
from fedcohort.data.read import sources
from fedcohort.data.read.canonical import canonical
from fedcohort.data.read.dictionaries import read_dictionary
from fedcohort.data.read.drafting import draft
from fedcohort.data.read.frames import without
from fedcohort.protocol import DataError
from fedcohort.study.file.plan import Plan
from fedcohort.study.sites.exclusion import stays
from fedcohort.study.sites.site_rule import Fate, events_of, fates, moved


@dataclass(frozen=True)
class Opened:
    """A study's tables and what is known of them.

    Attributes
    ----------
    source : with tables in the form of the dictionary.
    dictionary : without the site column.
    outcome : from the study file, else the dictionary, else the sample.
    natural : whether the tables have sites of their own.
    sheets : one a table, with the rows that `data.exclude` leaves.
    drafted : whether the dictionary was made from the rows.
    marked : columns of the outcome that the dictionary, or the sample, marks.
    fates : sites that do not take part under their own name.
    """

    source: sources.Source
    dictionary: Dictionary
    outcome: Outcome | None
    natural: bool
    sheets: tuple[Sheet, ...]
    drafted: bool = False
    marked: tuple[str, ...] = ()
    fates: Mapping[str, Fate] = field(default_factory=dict[str, Fate])


def opened(plan: Plan, data: Any = None) -> Opened:
    """Read a study's tables.

    Parameters
    ----------
    data : replaces the source: a frame, or a mapping from site names to frames.

    Raises
    ------
    DataError : no such file or dictionary, an outcome of another task, no site column.
    """
    known = read_dictionary(plan.base / plan.dictionary) if plan.dictionary else None
    source = _source(plan, known) if data is None else sources.in_memory(data, known)
    outcome = _outcome(plan, source, known)
    dictionary = known or source.dictionary
    drafted = dictionary is None
    if dictionary is None:
        skip = () if plan.site_column is None else (plan.site_column,)
        dictionary = draft(source.frames, outcome, skip)
        source = _formed(source, dictionary)
    natural = isinstance(source.frames, dict) or plan.site_column is not None
    sheets, found = _sheets(plan, source, dictionary, outcome)
    known_columns = without(dictionary, plan.site_column)
    marked = _marked(source, known)
    taken = columns_of(marked)
    return Opened(source, known_columns, outcome, natural, sheets, drafted, taken, found)


def _source(plan: Plan, known: Dictionary | None) -> sources.Source:
    texts = () if plan.site_column is None else (plan.site_column,)
    if known is not None:
        known = with_outcome(known, plan.outcome)
    return sources.load(plan.source, plan.base, query=plan.query, dictionary=known, texts=texts)


def _formed(source: sources.Source, dictionary: Dictionary) -> sources.Source:
    frames = source.frames
    if isinstance(frames, dict):
        formed = {site: canonical(frame, dictionary) for site, frame in frames.items()}
        return replace(source, frames=formed)
    return replace(source, frames=canonical(frames, dictionary))


def _outcome(plan: Plan, source: sources.Source, known: Dictionary | None) -> Outcome | None:
    """Return the outcome of the study file, else of the dictionary, else of the sample.

    An outcome for evaluation only must be in the study file.

    Raises
    ------
    DataError : it does not fit the task, or a task that needs one has none.
    """
    outcome = plan.outcome or _marked(source, known)
    if plan.kind.aside:
        return plan.outcome
    if outcome is None:
        raise DataError(
            f"{plan.dictionary or plan.source}: no column is of type 'time' and none of type "
            f"'event'. Set these types in the dictionary, or name the 'outcome' in the study file."
        )
    if outcome.kind != plan.task:
        raise DataError(
            f"{plan.source} has an outcome for {outcome.kind}, and the study's task is "
            f"{plan.task}; name another task, or the 'outcome'."
        )
    return outcome


def _marked(source: sources.Source, known: Dictionary | None) -> Outcome | None:
    """Return the outcome that a dictionary, or a sample, marks."""
    return (known.outcome() if known is not None else None) or source.outcome


def _sheets(
    plan: Plan, source: sources.Source, dictionary: Dictionary, outcome: Outcome | None
) -> tuple[tuple[Sheet, ...], dict[str, Fate]]:
    """Return the tables for the checks, and the sites that do not take part."""
    frames = source.frames
    if isinstance(frames, dict):
        memory = source.name == sources.MEMORY_BY_SITE
        found = [
            Sheet(
                frame,
                f"site {name!r}" if memory else sources.name_of(source.name, plan.base, name),
                name,
            )
            for name, frame in sorted(frames.items())
        ]
    elif plan.site_column is None or not len(frames):
        found = [Sheet(frames, plan.source)]
    else:
        found = [Sheet.by_column(frames, plan.source, plan.site_column, dictionary.variables)]
    kept = [stays(sheet.frame, outcome, plan.exclude) for sheet in found]
    if any(sheet.site is None for sheet in found):
        return tuple(s.only(k) for s, k in zip(found, kept, strict=True)), {}
    sites = [np.broadcast_to(np.array(s.site, object), len(s.frame)) for s in found]
    some = _fates(plan, found, sites, kept, outcome)
    sheets: list[Sheet] = []
    joined: list[Sheet] = []
    for sheet, site, keep in zip(found, sites, kept, strict=True):
        takes_part, names = moved(site, some)
        if not isinstance(sheet.site, str):
            sheets.append(replace(sheet, site=names).only(keep & takes_part))
        elif sheet.site not in some:
            sheets.append(sheet.only(keep))
        elif takes_part.any():
            joined.append(replace(sheet, site=str(names[0])).only(keep))
    if joined:
        rows = stacked([s.frame for s in joined])
        sheets.append(Sheet(rows, f"site {joined[0].site!r}", joined[0].site))
    return tuple(sheets), some


def _fates(
    plan: Plan,
    found: list[Sheet],
    sites: list[Array],
    kept: list[Array],
    outcome: Outcome | None,
) -> dict[str, Fate]:
    """Return the sites of these tables that do not take part; none if a table lacks the outcome."""
    columns = columns_of(outcome)
    if any(list(s.frame.columns).count(c) != 1 for s in found for c in columns):
        return {}
    outcomes = pd.concat([s.frame[list(columns)] for s in found], ignore_index=True)
    event = events_of(outcomes, outcome)
    return fates(plan.sites, np.concatenate(sites), event, np.concatenate(kept), outcome)
