"""Check that a table's header names the columns of the dictionary, each once.

Findings show an unknown name only if it is nearly a known one, or if at least half of the
dictionary's columns are present, so that the first line is a header. Otherwise they show positions
alone: without a header line, the first patient stands in its place.

A table may lack a whole view (`modalities`) if it has another one: the site did not measure
it. Then no column of the table has nearly the name of one of the view's, and no date of the table
counts from one. The outcome's columns are always needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from fedcohort.data.check.findings import WARNING, Finding
from fedcohort.data.check.sheets import Sheet
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome
from fedcohort.data.variable import columns_by_view, lacking
from fedcohort.data.words import near_name

#: Number of unknown columns that are named, and of characters of each.
_NAMED, _LETTERS = 5, 40


def check_header(
    sheet: Sheet, dictionary: Dictionary, outcome: Outcome | None, *, warnings: bool
) -> tuple[list[Finding], pd.DataFrame]:
    """Check the header alone.

    warnings : whether to report columns that the dictionary does not contain.

    Returns
    -------
    findings : no rows; missing, repeated and unknown columns; views that are not there.
    frame : the table's columns that the dictionary contains and that occur once.
    """
    frame = sheet.frame
    names = [str(c) for c in frame.columns]
    wanted = list(dictionary.variables)
    if not len(frame):
        return [_empty(sheet)], frame.iloc[:, :0]
    here = [name for name in wanted if name in names]
    if wanted and not here and len(wanted) > 1:
        return [_headless(sheet, len(wanted))], frame.iloc[:, :0]
    gone = unmeasured(names, dictionary, outcome)
    used = {v.since for v in dictionary.variables.values()}
    used |= set(outcome.columns) if outcome is not None else set()
    variables = (dictionary[n] for n in wanted)  # no model uses an identifier
    known = [v for v in variables if (v.feature and not v.identifier) or v.name in used]
    needed = [v.name for v in known if v.view not in gone]
    absent = _missing(sheet, names, needed, outcome)
    found = absent + _repeated(sheet, names, wanted)
    if warnings:
        found += [_not_here(sheet, view, dictionary) for view in gone]
        suggested = {f.remedy for f in absent}
        found += _unknown(sheet, names, wanted, suggested)
    count = Counter(names)
    once = {n: frame[n] for n in wanted if count[n] == 1}
    return found, pd.DataFrame(once, copy=False)


def unmeasured(
    names: Sequence[str], dictionary: Dictionary, outcome: Outcome | None
) -> tuple[str, ...]:
    """Return the views that a table with this header lacks and may lack, in order."""
    taken = outcome.columns if outcome is not None else ()
    known = {k: v for k, v in dictionary.variables.items() if k not in taken}
    views = columns_by_view(known.values())
    gone = lacking(views, names)
    unknown = [name for name in names if name not in dictionary]
    origins = {v.since for v in known.values() if v.name in names}

    def slipped(name: str) -> bool:
        return name in origins or near_name(name, unknown) is not None

    gone -= {view for view in gone if any(map(slipped, views[view]))}
    here = any(v.name in names for v in dictionary.features(outcome))
    return tuple(view for view in views if view in gone) if here else ()


def _not_here(sheet: Sheet, view: str, dictionary: Dictionary) -> Finding:
    n = len(columns_by_view(dictionary.variables.values())[view])
    what = f"there is no column of the view {view!r}, which has {n}"
    remedy = "Its values count as missing here. Leave it so if they were never measured."
    return sheet.finding("missing view", what, remedy, severity=WARNING)


def _empty(sheet: Sheet) -> Finding:
    what = f"there are no rows under the {sheet.width} columns"
    return sheet.finding("rows", what, "Is it the right table?")


def _headless(sheet: Sheet, wanted: int) -> Finding:
    what = f"none of the {wanted} columns of the dictionary is among the {sheet.width} here"
    remedy = "Is the first line a header, are commas between the columns, is it this dictionary?"
    return sheet.finding("header", what, remedy)


def _missing(
    sheet: Sheet, names: list[str], wanted: list[str], outcome: Outcome | None
) -> list[Finding]:
    about = "Add it, or take it out of the dictionary."
    first = list(outcome.columns) if outcome is not None else []
    absent = [n for n in dict.fromkeys((*first, *wanted)) if n not in names]
    return [
        sheet.finding(
            "missing column",
            f"there is no column {name!r} among {sheet.width} columns",
            _nearest(name, [n for n in names if n not in wanted])
            or ("Name the outcome's column." if name in first else about),
            column=name,
        )
        for name in absent
    ]


def _nearest(name: str, names: list[str]) -> str:
    near = near_name(name, names)
    return _meant(near) if near else ""


def _meant(name: str) -> str:
    return f"Did you mean {name!r}?"


def _repeated(sheet: Sheet, names: list[str], wanted: list[str]) -> list[Finding]:
    return [
        sheet.finding(
            "repeated column",
            f"{n} columns are called {name!r}",
            "Rename or drop all but one.",
            column=name,
        )
        for name, n in Counter(names).items()
        if n > 1 and name in wanted
    ]


def _unknown(
    sheet: Sheet, names: list[str], wanted: list[str], suggested: set[str]
) -> list[Finding]:
    """Return one warning for each name that is nearly known, and one for all others.

    suggested : remedies of missing columns, which already name some of them.
    """
    found: list[Finding] = []
    others: list[tuple[int, str]] = []
    for i, name in enumerate(names):
        if name in wanted or _meant(name) in suggested:
            continue
        near = None if near_name(name, [name]) is None else near_name(name, wanted)
        if near is None:
            others.append((sheet.place(i), name))
            continue
        found.append(
            sheet.finding(
                "unknown column",
                f"column {name!r} is not in the dictionary",
                f"The nearest name there is {near!r}. The column is left out until it is renamed.",
                column=name,
                severity=WARNING,
            )
        )
    if others:
        header = 2 * len(set(wanted) & set(names)) >= len(wanted)
        shown = [_named(name, place, header) for place, name in others[:_NAMED]]
        said = ", ".join(shown) + ", …" * (len(others) > _NAMED)
        one = len(others) == 1
        what = (
            f"column {said} is not in the dictionary" if one
            else f"{len(others)} columns are not in the dictionary: {said}"
        )  # fmt: skip
        remedy = f"As {'it is, it is' if one else 'they are, they are'} left out."
        found.append(sheet.finding("unknown column", what, remedy, severity=WARNING))
    return found


def _named(name: str, place: int, header: bool) -> str:
    """Return a column by name and position, or by its position alone."""
    clean = "".join(c if c.isprintable() else "?" for c in " ".join(name.split()))
    short = clean if len(clean) <= _LETTERS else clean[:_LETTERS] + "…"
    return f"{short!r} (at position {place})" if header and short else f"at position {place}"
