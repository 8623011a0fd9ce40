"""All checks of a study's tables, in the order in which a person would correct them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from fedcohort.data.check import cells
from fedcohort.data.check.accepted import NOTHING, Accepted
from fedcohort.data.check.findings import ERROR, WARNING, Finding
from fedcohort.data.check.header import check_header
from fedcohort.data.check.leaks import check_leaks
from fedcohort.data.check.patients import check_between, check_patients
from fedcohort.data.check.rules import (
    CONSTANT,
    DATE,
    NUMBER,
    Rule,
    numbers,
    range_rule,
    rules_of,
)
from fedcohort.data.check.sheets import Sheet
from fedcohort.data.check.sites import (
    check_classes,
    check_events,
    check_levels,
    check_sizes,
    check_units,
)
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import read_numbers
from fedcohort.data.on_disk import release
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.variable import Variable


def examine(
    sheets: Sequence[Sheet],
    dictionary: Dictionary,
    outcome: Outcome | None = None,
    *,
    natural: bool = True,
    eventless: bool = False,
    warnings: bool = True,
    accepted: Accepted = NOTHING,
) -> list[Finding]:
    """Return all errors and warnings about a study's tables.

    Parameters
    ----------
    dictionary : with the outcome's columns; see `with_outcome`.
    natural : whether each site needs two rows and an event; sites that a split made are exempt.
    eventless : whether a site may lack an event if another has one.
    warnings : whether to look for warnings, too.
    accepted : columns whose units may differ between sites.
    """
    found: list[Finding] = []
    whole: list[Sheet] = []
    for sheet in sheets:
        said, frame = check_header(sheet, dictionary, outcome, warnings=warnings)
        found += said
        if not frame.shape[1]:
            continue
        known = {name: dictionary.variables[name] for name in frame.columns}
        here = replace(dictionary, variables=known)
        found += _check_cells(sheet, frame, here, outcome, warnings=warnings)
        found += check_patients(sheet, frame, here, warnings=warnings)
        found += check_sizes(sheet) if natural else []
        whole.append(replace(sheet, frame=frame))
        release(frame)
    if len(sheets) > 1:
        found = _constant_everywhere(found, whole)
    if isinstance(outcome, Survival):
        with_event = [s for s in whole if outcome.event in s.frame.columns]
        if with_event:
            found += check_events(with_event, outcome, each=natural and not eventless)
    found += check_units(whole, dictionary, outcome, accepted, rows=warnings)
    for sheet in whole:
        release(sheet.frame)
    if warnings:
        found += check_between(whole, dictionary)
        found += check_levels(whole, dictionary, outcome)
        found += check_classes(whole, dictionary, outcome)
        found += check_leaks(whole, dictionary, outcome)
    return found


def _constant_everywhere(found: Sequence[Finding], sheets: Sequence[Sheet]) -> list[Finding]:
    """Return the findings; a column counts as constant only if all tables hold the same value.

    A rare mutation has one value at most small hospitals, and two over all of them.
    """
    kept = [f for f in found if f.rule != CONSTANT]
    said = {f.column: f for f in found if f.rule == CONSTANT}
    for name, finding in said.items():
        parts = [s.frame[name].dropna().unique() for s in sheets if name in s.frame.columns]
        if len({value for part in parts for value in part}) == 1:
            kept.append(replace(finding, file="", site=None))
    return kept


def with_outcome(dictionary: Dictionary | None, outcome: Outcome | None) -> Dictionary:
    """Return the dictionary with the outcome's columns added."""
    variables = dict(dictionary.variables) if dictionary is not None else {}
    if outcome is not None:
        for name in outcome.columns:
            variables.setdefault(name, Variable(name, _type(name, outcome)))
    return Dictionary(variables) if dictionary is None else replace(dictionary, variables=variables)


def _type(name: str, outcome: Outcome) -> str:
    return outcome.type_of(name) or ("category" if outcome.has_classes else "number")


def _check_cells(
    sheet: Sheet,
    frame: pd.DataFrame,
    dictionary: Dictionary,
    outcome: Outcome | None,
    *,
    warnings: bool,
) -> list[Finding]:
    """Return findings on cells that break rules of their columns, and on the order of dates."""
    found: list[Finding] = []
    known = dictionary.variables.values()
    for v in known:
        for rule in rules_of(v, outcome):
            if warnings or rule.severity == ERROR:
                found += _of_rule(sheet, frame[v.name], v, rule)
        release(frame)
    for v in known:
        if v.since and not v.identifier:
            found += _check_duration(sheet, frame, v, warnings=warnings)
    if isinstance(outcome, Survival) and {outcome.entry, outcome.time} <= {*frame.columns}:
        found += _check_entry(sheet, frame, outcome)
    return found


def _check_entry(sheet: Sheet, frame: pd.DataFrame, outcome: Survival) -> list[Finding]:
    """Return findings on rows whose entry is not before the time."""
    late = numbers(frame[outcome.entry]) >= numbers(frame[outcome.time])
    if not late.any():
        return []
    what = f"column {outcome.entry!r} is not below column {outcome.time!r}"
    remedy = "A patient is observed from entry to time: correct or drop them."
    return [sheet.finding("entry", what, remedy, late, column=outcome.entry)]


def _of_rule(sheet: Sheet, column: pd.Series, v: Variable, rule: Rule) -> list[Finding]:
    """Return one finding for each remedy of a broken rule."""
    broken = rule.broken(column)
    what = f"column {v.name!r} {rule.what}"
    if isinstance(broken, (bool, np.bool_)):
        return [
            sheet.finding(rule.name, what, rule.remedy, column=v.name, severity=rule.severity)
        ] if broken else []  # fmt: skip
    if not broken.any():
        return []
    parts = {rule.remedy: broken}
    if rule.name == NUMBER.name:
        parts = cells.number_remedies(column, broken, rule.remedy)
    elif rule.name == DATE.name:
        parts = cells.date_remedies(column, broken)
    elif rule.name == "levels":
        parts = cells.level_remedies(column, broken, v)
    return [
        sheet.finding(rule.name, what, remedy, rows, column=v.name, severity=rule.severity)
        for remedy, rows in parts.items()
    ]


def _check_duration(
    sheet: Sheet, frame: pd.DataFrame, v: Variable, *, warnings: bool
) -> list[Finding]:
    """Return findings on the time from `since` to a date."""
    if v.since_day is None and v.since not in frame.columns:
        return []
    lengths, _ = read_numbers(frame, v)
    found: list[Finding] = []
    for rule in range_rule(v, lambda _: lengths):
        broken = np.asarray(rule.broken(frame[v.name]))
        if broken.any():
            what = f"column {v.name!r} since {v.since!r} {rule.what}"
            found.append(sheet.finding(rule.name, what, rule.remedy, broken, column=v.name))
    limited = v.range != (None, None) or v.since_day is not None
    if warnings and not limited and (early := lengths < 0).any():
        what = f"column {v.name!r} lies before {v.since!r}"
        remedy = "Were they swapped? If it may, give the duration a range in the dictionary."
        found.append(sheet.finding("order", what, remedy, early, column=v.name, severity=WARNING))
    return found
