"""Search for patients that occur twice: repeated identifiers, equal rows and equal tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.check.findings import WARNING, Finding
from fedcohort.data.check.sheets import Sheet
from fedcohort.data.dictionary import Dictionary


def check_patients(
    sheet: Sheet, frame: pd.DataFrame, dictionary: Dictionary, *, warnings: bool
) -> list[Finding]:
    """Return findings on patients that occur more than once in a table.

    An identifier with fewer distinct values than half the rows names groups of patients, such as
    wards, and may repeat. Identifiers are compared within each site, which may count from 1.

    frame : columns of `sheet` that the dictionary contains.
    warnings : whether to look for equal rows, too.
    """
    known = dictionary.variables
    identifiers = [c for c in frame.columns if known[c].identifier]
    found: list[Finding] = []
    site = sheet.codes
    for name in identifiers:
        codes, distinct = pd.factorize(frame[name])
        filled = codes >= 0
        if 2 * len(distinct) < np.count_nonzero(filled):
            continue
        twice = np.zeros(len(frame), bool)
        person = codes[filled] * (site.max() + 1) + site[filled]
        twice[filled] = pd.Series(person).duplicated(keep=False)
        if twice.any():
            what = f"column {name!r} names a patient more than once"
            more = "Keep one row a patient."
            found.append(sheet.finding("identifier", what, more, twice, column=name))
    if warnings and not found and frame.shape[1]:
        same = equal_rows(frame)
        if same.any():
            n = frame.shape[1]
            which = f"all {n} columns of the dictionary equal those"
            what = f"{which if n > 1 else 'the only known column equals that'} of another row"
            more = "Is a patient in the table twice?"
            found.append(sheet.finding("equal rows", what, more, same, severity=WARNING))
    return found


def check_between(sheets: Sequence[Sheet], dictionary: Dictionary) -> list[Finding]:
    """Return findings on tables that equal another, and on identifiers that occur at two sites.

    Only the first of equal tables is compared with the others.

    sheets : with the columns that the dictionary contains.
    """
    found: list[Finding] = []
    unique: list[Sheet] = []
    for sheet in sheets:
        twin = next((s for s in unique if _equal(s.frame, sheet.frame)), None)
        if twin is None:
            unique.append(sheet)
            continue
        what = f"all {len(sheet.frame)} rows equal those of {twin.name}"
        more = "Was one table given twice?"
        found.append(sheet.finding("equal tables", what, more, severity=WARNING))
    for v in dictionary.variables.values():
        if v.identifier:
            found += _at_two_sites(unique, v.name)
    return found


def _equal(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    if not len(one) or len(one) != len(other) or set(one.columns) != set(other.columns):
        return False
    return one.reset_index(drop=True).equals(other[list(one.columns)].reset_index(drop=True))


def _at_two_sites(sheets: Sequence[Sheet], name: str) -> list[Finding]:
    """Return a finding for each table with identifiers that another site also has.

    A column that names groups of patients is skipped; see `check_patients`.
    """
    having = [s for s in sheets if s.site is not None and name in s.frame.columns]
    if not having:
        return []
    people, distinct = pd.factorize(pd.concat([s.frame[name] for s in having]))
    named = [np.full(len(s.frame), s.site) if isinstance(s.site, str) else s.site for s in having]
    sites = pd.factorize(np.concatenate([np.asarray(n, object) for n in named]))[0]
    pairs = pd.DataFrame({"person": people, "site": sites})[people >= 0].drop_duplicates()
    if 2 * len(pairs) < np.count_nonzero(people >= 0):
        return []
    often = np.append(np.bincount(pairs["person"], minlength=len(distinct)), 0)
    broken = often[people] > 1
    found: list[Finding] = []
    start = 0
    for sheet in having:
        rows = slice(start, start := start + len(sheet.frame))
        if broken[rows].any():
            n = len(np.unique(people[rows][broken[rows]]))
            many = f"{n} identifiers stand" if n > 1 else "an identifier stands"
            what = f"column {name!r}: {many} at two sites"
            more = "Is a patient at both sites? If each site numbers its own patients, ignore this."
            found.append(
                sheet.finding(
                    "same patient", what, more, broken[rows], column=name, severity=WARNING
                )
            )
    return found


def equal_rows(frame: pd.DataFrame) -> Array:
    """Return the rows (n,) that equal another row in every column.

    Columns of numbers come first and unique rows are removed early, so few columns are compared.
    """
    order = np.argsort([c.kind != "f" for c in frame.dtypes], kind="stable")
    left, group = np.arange(len(frame)), np.zeros(len(frame), np.int64)
    for i in order:
        codes, _ = pd.factorize(frame.iloc[:, i].to_numpy()[left])
        group, _ = pd.factorize(group * (codes.max(initial=0) + 2) + codes + 1)
        again = np.bincount(group)[group] > 1
        left, group = left[again], group[again]
        if not len(left):
            break
    same = np.zeros(len(frame), bool)
    same[left] = True
    return same
