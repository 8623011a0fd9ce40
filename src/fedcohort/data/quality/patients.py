"""Is a patient in a table twice? The same identifier at a site, or a row that equals another."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.quality.findings import WARNING, Finding
from fedcohort.data.quality.sheets import Sheet


def check_patients(
    sheet: Sheet, frame: pd.DataFrame, dictionary: Dictionary, *, warnings: bool
) -> list[Finding]:
    """Look for patients that stand in a table more than once.

    An identifier with fewer distinct values than half the rows names groups of patients, such as
    wards, and may repeat. Identifiers are compared within each site, which may count from 1.

    frame : the columns of `sheet` that the dictionary knows.
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
            what = f"all {frame.shape[1]} columns of the dictionary equal those of another row"
            more = "Is a patient in the table twice?"
            found.append(sheet.finding("equal rows", what, more, same, severity=WARNING))
    return found


def equal_rows(frame: pd.DataFrame) -> Array:
    """Return the rows (n,) that equal another row in every column.

    Columns of numbers come first, and rows that are told apart leave: few columns are looked at.
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
