"""A first data dictionary, guessed from tables, for a person to read and correct.

Type       numbers, whole numbers, 0 and 1, dates, and text: a category if it has few levels
Missing    a text such as "unknown" among numbers becomes a missing code; a number such as -9 or
           999 far from the others only gives a question
Unit       by the name, as in age_years or hb_g_dl
Identifier values that hardly repeat: texts, numbers without gaps, and numbers whose name says so
Range      of percentages and ages only, by general knowledge. It never comes from the table,
           because a dictionary travels and the extremes of a table belong to a person
Feature    false if the name suggests that the column is an outcome, divides the rows, or is known
           too late; and if its values determine the class

A draft shows the levels of its columns, so it is as public as these are; rare ones are noted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.read import hints
from fedcohort.data.read.canonical import plain
from fedcohort.data.read.csvcells import is_nearly_number, looks_like_number
from fedcohort.data.words import level_text, sorted_levels
from fedcohort.protocol.errors import DataError

#: A text column is free text if it has more levels than this, and than a tenth of its rows.
MOST_LEVELS = 20
#: Largest number of distinct whole numbers that may be codes of a category.
MOST_CODES = 6
#: A level is rare in fewer rows than this.
RARE = 5
#: If more than this share of texts occur once, they are remarks or names, not levels. Levels are
#: in the dictionary, which travels.
MOST_SINGLE = 0.5
#: Share of cells that are numbers from which a column is one of numbers.
MOSTLY = 0.9
#: Share of distinct values from which values hardly repeat.
DISTINCT = 0.95
#: Share of distinct values above which a name can make a column an identifier.
NAMED_DISTINCT = 0.5

_WORDS = {
    "?", "-", "--", ".", "unknown", "unk", "uk", "nk", "nd", "n.d.", "n.a.", "missing", "not done",
    "not known", "not available", "not applicable",
}  # fmt: skip
_MARKS = {"?", "-", "--", "."}
#: 0, -1, and 7, 77, …, 9999 with either sign.
_CODES = {0.0, -1.0, *(float(s + d * n) for s in ("", "-") for d in "789" for n in range(1, 5))}
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}( 00:00:00)?")
_OTHER_DATE = re.compile(r"[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}")


@dataclass(frozen=True)
class Guess:
    """A guessed variable, and what a person should check about it."""

    variable: Variable
    notes: tuple[str, ...] = ()

    @property
    def comment(self) -> str:
        """The notes as a file shows them; empty if there are none."""
        return f"check: {'; '.join(self.notes)}" if self.notes else ""

    def noting(self, *notes: str, **changes: Any) -> Guess:
        """Return the guess with other fields of its variable, and more notes."""
        return Guess(replace(self.variable, **changes), (*self.notes, *(n for n in notes if n)))


Tables = pd.DataFrame | Iterable[pd.DataFrame] | Mapping[str, pd.DataFrame]


def draft(frames: Tables, outcome: Outcome | None = None, skip: Iterable[str] = ()) -> Dictionary:
    """Guess a dictionary from tables; only for simulations, because it reads all sites' rows.

    Parameters
    ----------
    frames : one table, or the sites' tables; sites may lack columns.
    outcome : its columns become time and event, or a category with the observed levels.
    skip : columns to leave out, such as that of the site.

    Raises
    ------
    DataError : there is no table.
    """
    found = [g.variable for g in guesses(frames, outcome, skip)]
    return Dictionary({v.name: v for v in found})


def guesses(
    frames: Tables,
    outcome: Outcome | None = None,
    skip: Iterable[str] = (),
    *,
    everywhere: bool = False,
    away: Collection[str] = (),
) -> list[Guess]:
    """Guess the variables of tables, with what to check about each.

    Parameters
    ----------
    frames, outcome, skip : as for `draft`.
    everywhere : whether a column that some site lacks is no feature.
    away : sites that take no part, and so may lack any column.

    Raises
    ------
    DataError : there is no table.
    """
    tables = as_tables(frames)
    sites = map(str, frames) if isinstance(frames, Mapping) else ()
    columns = {site: list(t.columns) for site, t in zip(sites, tables, strict=False)}
    columns = {site: here for site, here in columns.items() if site not in away}
    left_out = set(skip)
    names = list(dict.fromkeys(str(c) for t in tables for c in t.columns if c not in left_out))
    found: list[Guess] = []
    for name in names:
        cells = _cells(name, tables)
        label = outcome.label if outcome is not None and outcome.has_classes else None
        if name == label:
            found.append(_category(name, cells))
            continue
        guess = _guess(name, cells, _distinct_share(name, tables))
        if outcome is not None and name not in outcome.columns:
            why = hints.late(name, outcome, names)
            guess = guess.noting(f"{why}?", feature=False) if why else guess
        if isinstance(outcome, Survival):
            guess = _about_survival(guess, outcome)
        elif label is not None and _decides(name, label, tables):
            guess = guess.noting("its value decides the outcome", feature=False)
        lacking = hints.lacking(name, columns)
        slip = lacking.endswith("?")  # a header to correct, not a column to leave out
        changes = {"feature": False} if everywhere and lacking and not slip else {}
        found.append(guess.noting(lacking, **changes))
    return found


def as_tables(frames: Tables) -> list[pd.DataFrame]:
    """Return one table, or the sites' tables, in plain form.

    Raises
    ------
    DataError : there is no table.
    """
    if isinstance(frames, pd.DataFrame):
        return [plain(frames)]
    tables = [plain(t) for t in (frames.values() if isinstance(frames, Mapping) else frames)]
    if not tables:
        raise DataError("there are no sites: a dictionary needs at least one table.")
    return tables


def survival_outcome(tables: Iterable[pd.DataFrame]) -> Survival | None:
    """Return the likeliest survival outcome of tables in plain form, or None."""
    tables = list(tables)
    names = list(dict.fromkeys(c for t in tables for c in t.columns))
    times: list[str] = []
    events: list[str] = []
    for name in names:
        cells = _cells(name, tables)
        if cells.dtype.kind not in "iuf":
            continue
        distinct = set(cells.dropna())
        if distinct == {0.0, 1.0}:
            events.append(name)
        elif len(distinct) > MOST_CODES and min(distinct) >= 0:
            times.append(name)
    return hints.survival(times, events)


def site_column(table: pd.DataFrame) -> str | None:
    """Return the column that looks like the site column, or None."""
    for name in map(str, table.columns):
        if hints.is_site(name):
            counts = table[name].value_counts()
            if 2 <= len(counts) <= len(table) / RARE and counts.median() > 1:
                return name
    return None


def class_column(tables: Iterable[pd.DataFrame]) -> str | None:
    """Return the column with two values that looks like a class to be predicted, or None."""
    tables = list(tables)
    names = dict.fromkeys(str(c) for t in tables for c in t.columns)
    two = (n for n in hints.labels(names) if _cells(n, tables).nunique() == 2)
    return next(two, None)


def value_column(tables: Iterable[pd.DataFrame]) -> str | None:
    """Return the column of numbers that looks like a value to be predicted, or None."""
    tables = list(tables)
    names = dict.fromkeys(str(c) for t in tables for c in t.columns)
    many = (
        n
        for n in hints.labels(names)
        if (cells := _cells(n, tables)).dtype.kind in "iuf" and cells.nunique() > MOST_CODES
    )
    return next(many, None)


def _cells(name: str, tables: Iterable[pd.DataFrame]) -> pd.Series:
    """Return the cells of all tables' columns of one name."""
    columns = [t[name] for t in tables if name in t.columns]
    if any(isinstance(c, pd.DataFrame) for c in columns):
        raise DataError(f"several columns are called {name!r}; rename or drop all but one.")
    kinds = {c.dtype for c in columns if c.notna().any()}
    if len(kinds) > 1:
        columns = [c.astype(object) for c in columns]
    filled = [c for c in columns if c.notna().any()] or columns[:1]
    return pd.concat(filled, ignore_index=True) if len(filled) > 1 else filled[0]


def _distinct_share(name: str, tables: list[pd.DataFrame]) -> float:
    """Return the share of distinct values among filled cells, counted at each site."""
    columns = [t[name] for t in tables if name in t.columns]
    return sum(c.nunique() for c in columns) / max(1, sum(int(c.count()) for c in columns))


def _guess(name: str, cells: pd.Series, distinct: float) -> Guess:
    """Guess one variable from its cells and their share of distinct values."""
    filled = cells.dropna()
    if not len(filled):
        return Guess(Variable(name, "number", description="no values"), ("it is empty",))
    if filled.dtype.kind == "M":
        guess = Guess(Variable(name, "date"))
        guess = guess.noting("a model takes it only with since: another date, or a day")
    elif filled.dtype.kind == "f":
        guess = _number(name, filled.to_numpy(np.float64), distinct)
    else:
        guess = _text(name, filled, distinct)
    empty = 1 - len(filled) / len(cells)
    often = f"empty in about {round(empty, 1):.0%} of the rows" if empty > 0.5 else ""
    if hints.is_technical(name) and not guess.variable.identifier:
        guess = guess.noting("is it part of an identifier, or a row number?", feature=False)
    return guess.noting(often)


def _number(name: str, values: Array, share: float, missing: Iterable[str] = ()) -> Guess:
    """Guess a variable from its numbers (n,) and their share of distinct values."""
    distinct = np.unique(values)
    codes = tuple(missing)
    if set(distinct) <= {0.0, 1.0}:
        return Guess(Variable(name, "binary", missing=codes))
    whole = bool((distinct == np.floor(distinct)).all())
    kind = "integer" if whole else "number"
    unit = hints.unit(name)
    alone = whole and share >= DISTINCT and len(distinct) > MOST_LEVELS and not unit
    if whole and (_says_so(name, share) or (alone and _is_numbering(distinct))):
        guess = Guess(Variable(name, kind, identifier=True, missing=codes))
        return guess.noting("names a person or a record, so it never enters a model")
    asked = [v for v in (distinct[0], distinct[-1]) if _is_code(v, values)]
    kept = values[~np.isin(values, asked)]
    limits = hints.limits(name, unit, kept.min(), kept.max())
    guess = Guess(Variable(name, kind, unit=unit, range=limits, missing=codes))
    guess = guess.noting("the unit" if unit else "")
    if asked:
        codes = ", ".join(level_text(v) for v in asked)
        guess = guess.noting(f"missing values? then missing: [{codes}]")
    elif whole and not unit and 2 < len(distinct) <= MOST_CODES < len(values) / 10:
        levels = ", ".join(level_text(v) for v in distinct)
        guess = guess.noting(f"codes? then {{type: category, levels: [{levels}]}}")
    elif alone:
        guess = guess.noting("hardly any value repeats: a person's number? then identifier: true")
    return guess


def _says_so(name: str, share: float) -> bool:
    """Return whether name and values both suggest an identifier."""
    return hints.is_identifier(name) and share > NAMED_DISTINCT


def _is_numbering(distinct: Array) -> bool:
    """Return whether distinct whole numbers (n,) follow each other mostly without gaps.

    Measurements as dense as that would repeat: of n draws from n numbers, a third is never drawn.
    """
    return bool(np.median(np.diff(distinct)) == 1)


def _is_code(value: float, values: Array) -> bool:
    """Return whether an extreme looks like a missing code: far out, or negative among positives."""
    others = values[values != value]
    if value not in _CODES or len(others) < 2 * RARE:
        return False
    if value < 0:
        return bool(others.min() >= 0)
    low, high = np.quantile(others, [0.25, 0.75])
    beyond = max(low - value, value - high)
    return bool(beyond > 3 * (high - low) > 0)


def _text(name: str, filled: pd.Series, distinct: float) -> Guess:
    """Guess a variable from texts, some of which may be numbers."""
    counts = filled.astype(str).value_counts()
    texts = [str(t) for t in counts.index]
    read = {t: float(v) for t in texts if (v := pd.to_numeric(t, errors="coerce")) == v}
    numeric = {t: v for t, v in read.items() if np.isfinite(v)}
    padded = any(re.fullmatch("0[0-9]+", t) for t in texts)
    nearly = [t for t in texts if t not in numeric and (t in read or is_nearly_number(t))]
    share = counts[[*numeric, *nearly]].sum() / counts.sum() if numeric or nearly else 0.0
    if nearly and len(numeric) <= 2 and not padded and share >= MOSTLY:
        guess = Guess(Variable(name, "number", unit=hints.unit(name)))
        commas = all(looks_like_number(t) for t in nearly)
        return guess.noting(
            "do its commas mark decimals or thousands? write decimals with a point" if commas
            else "few cells hold a number; fedcohort data check names the rows of the others"
        )  # fmt: skip
    if len(numeric) > 2 and not padded:
        spoken = [t for t in texts if t not in numeric]
        known = all(t.lower() in _WORDS for t in spoken)
        if known or share >= MOSTLY:
            values = np.array([numeric[t] for t in texts if t in numeric])
            values = np.repeat(values, [counts[t] for t in texts if t in numeric])
            guess = _number(name, values, distinct, sorted(spoken) if known else ())
            return guess.noting(
                "are these missing values?" if known
                else "some cells hold no number; fedcohort data check names their rows"
            )  # fmt: skip
    if all(_OTHER_DATE.fullmatch(t) or _ISO_DATE.fullmatch(t) for t in texts):
        guess = Guess(Variable(name, "text"))
        return guess.noting("dates? write them as 2015-01-31 and make this a date")
    single = len(counts) > 2 and float((counts == 1).mean()) > MOST_SINGLE
    many = single or len(counts) > max(MOST_LEVELS, len(filled) / 10)
    identifier = _says_so(name, distinct) or (many and distinct >= DISTINCT)
    if identifier or many:
        said = "names a person or a record" if identifier else "free text"
        guess = Guess(Variable(name, "text", identifier=identifier))
        return guess.noting(f"{said}, so it never enters a model")
    return _category(name, filled)


def _category(name: str, cells: pd.Series) -> Guess:
    counts = cells.dropna().map(level_text).value_counts()
    empty = [str(v) for v in counts.index if str(v) in _MARKS]
    levels = sorted_levels(v for v in counts.index if str(v) not in empty)
    if not levels:
        return Guess(Variable(name, "text"), ("it is empty",))
    guess = Guess(Variable(name, "category", levels, missing=tuple(sorted(empty))))
    if hints.is_split(levels):
        return guess.noting("divides the rows for training and tests", feature=False)
    asked = [v for v in levels if v.lower() in _WORDS]
    return guess.noting(
        f"missing values? then move to missing: [{', '.join(asked)}]" if asked else "",
        hints.spellings(levels),
        f"some levels stand in fewer than {RARE} rows" if counts.min() < RARE else "",
    )


def _about_survival(guess: Guess, outcome: Survival) -> Guess:
    """Return the guess, with type time or event if its column is the outcome's."""
    name = guess.variable.name
    if name == outcome.time:
        unit = guess.variable.unit
        note = "the unit, and from when to when it is counted"
        return Guess(Variable(name, "time", unit=unit, missing=guess.variable.missing), (note,))
    if name == outcome.event:
        note = "1 where the event was seen, 0 where not"
        if guess.variable.coded or guess.variable.type == "text":
            note = f"it holds text; recode it: {note}"
        return Guess(Variable(name, "event", missing=guess.variable.missing), (note,))
    return guess


def _decides(name: str, y: str, tables: list[pd.DataFrame]) -> bool:
    """Return whether each value of a column with few values occurs in one class only."""
    both = [t[[name, y]].dropna() for t in tables if {name, y} <= set(t.columns) and name != y]
    rows = pd.concat(both, ignore_index=True) if both else pd.DataFrame()
    if len(rows) < 10 * RARE or not 2 <= rows[name].nunique() <= MOST_LEVELS:
        return False
    return bool(rows.groupby(name)[y].nunique().max() == 1) and rows[y].nunique() > 1
