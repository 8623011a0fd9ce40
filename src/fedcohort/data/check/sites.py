"""Checks of each site: two rows, an event, the classes, and the units of the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort import mapped
from fedcohort.arrays import Array
from fedcohort.data.check.accepted import NOTHING, Accepted
from fedcohort.data.check.between import ACCEPTED, REMEDY, Middle, differing
from fedcohort.data.check.conversions import Conversion, conversions_for, factors_of
from fedcohort.data.check.findings import ERROR, WARNING, Finding
from fedcohort.data.check.rules import is_numeric, numbers
from fedcohort.data.check.sheets import Sheet, SitePart
from fedcohort.data.check.units import Factors, Suspicion, histogram, quartiles, suspect_rows
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Category, Outcome, Survival
from fedcohort.data.variable import Variable
from fedcohort.data.words import first_of, level_text

JOIN = "A study leaves it out, or joins it with other sites (data.sites)."
#: Rules on a site's size; a study leaves out sites that break them.
SITE_RULES = ("site rows", "site events")

#: A level in fewer rows is not named: it may be an error, which may hold anything.
NAMED = 5

#: Sites that a finding names.
MOST_SITES = 6

#: Fewest sites for a finding on a level that only one of them has.
FEWEST_SITES = 3

#: Fewer rows of a class are reported: an AUC of it needs five blind rows, of a quarter of them.
FEW_OF_CLASS = 20

#: Rule: no site has a whole column in another unit than the others.
SITE_UNITS = "site units"
#: One site's part of a table, and its middle.
_Of = tuple[SitePart, Middle]


def check_sizes(sheet: Sheet) -> list[Finding]:
    """Return findings on sites with a single row."""
    return [
        sheet.finding(
            SITE_RULES[0],
            f"{part.called} has 1 row; a site needs 2",
            JOIN,
            site=part.known,
            severity=WARNING,
        )
        for part in sheet.parts
        if part.n == 1
    ]


def check_events(sheets: Sequence[Sheet], outcome: Survival, *, each: bool) -> list[Finding]:
    """Return findings on sites without an event.

    Tables whose event column breaks its own rules are skipped.

    each : whether every site needs an event, or one of them.
    """
    found: list[Finding] = []
    anywhere = False
    for sheet in sheets:
        seen = numbers(sheet.frame[outcome.event])
        event = seen == 1
        if not (event | (seen == 0)).all():
            anywhere = True
            continue
        anywhere |= bool(event.any())
        found += [
            sheet.finding(
                SITE_RULES[1],
                f"{part.called} has no event in column {outcome.event!r} among {part.n} rows",
                f"A model cannot be fitted there. {JOIN}",
                site=part.known,
                severity=WARNING,
                column=outcome.event,
            )
            for part in sheet.parts
            if each and part.n > 1 and not event[part.rows].any()
        ]
    if anywhere:
        return found
    n = sum(len(sheet.frame) for sheet in sheets)
    what = f"no site has an event in column {outcome.event!r} among {n} rows"
    if len(sheets) == 1 and sheets[0].site is None:
        what = f"there is no event in column {outcome.event!r} among {n} rows"
    remedy = "Code an event that was seen as 1."
    file = sheets[0].name if len(sheets) == 1 else ""
    return [Finding(file, "events", ERROR, what, remedy, column=outcome.event)]


def check_levels(
    sheets: Sequence[Sheet], dictionary: Dictionary, outcome: Outcome | None
) -> list[Finding]:
    """Return findings on levels of covariates that only one of three or more sites has.

    A level is named if it has `NAMED` rows or more.
    """
    found: list[Finding] = []
    for v in (v for v in dictionary.features(outcome) if v.coded):
        having = [s for s in sheets if s.site is not None and v.name in s.frame.columns]
        n_sites = sum(len(s.parts) for s in having)
        if n_sites < FEWEST_SITES:
            continue
        at: dict[str, list[int]] = {}
        for sheet in having:
            for part in sheet.parts:
                counts = sheet.frame[v.name].iloc[part.rows].value_counts()
                for level, n in counts.items():
                    at.setdefault(str(level), []).append(int(n))
        alone = {level: n[0] for level, n in at.items() if len(n) == 1 and level in v.levels}
        if not alone:
            continue
        named = [repr(level) for level, n in sorted(alone.items()) if n >= NAMED]
        said = f": {', '.join(named)}" if named else ""
        what = (
            f"column {v.name!r} has {len(alone)} level{'s' * (len(alone) > 1)} at one of {n_sites} "
            f"sites alone{said}"
        )
        remedy = "Its effect cannot be separated from the site's. Pool it: preprocess: pool_levels."
        file = having[0].name if len(having) == 1 else ""
        found.append(Finding(file, "site level", WARNING, what, remedy, column=v.name))
    return found


def check_classes(
    sheets: Sequence[Sheet], dictionary: Dictionary, outcome: Outcome | None
) -> list[Finding]:
    """Return findings on classes of few rows, or that a site lacks, of more than two classes.

    A class of 1 to `NAMED` − 1 rows is given by its place in the dictionary.
    """
    having = [s for s in sheets if outcome is not None and outcome.label in s.frame.columns]
    if not isinstance(outcome, Category) or not having:
        return []
    levels = outcome.levels(dictionary) if outcome.label in dictionary else ()
    file = having[0].name if len(having) == 1 else ""
    divided = all(s.site is not None for s in having)
    parts = [part for s in having for part in s.parts]
    texts = [np.array([level_text(v) for v in s.frame[outcome.label]], object) for s in having]
    found: list[Finding] = []

    def warn(rule: str, what: str, remedy: str) -> None:
        found.append(Finding(file, rule, WARNING, what, remedy, column=outcome.label))

    for k, level in enumerate(levels):
        each = [
            int((text[part.rows] == level).sum())
            for s, text in zip(having, texts, strict=True)
            for part in s.parts
        ]
        n = sum(each)
        said = f"class {level!r}" if n == 0 or n >= NAMED else f"class {k + 1} of {len(levels)}"
        said += f" of column {outcome.label!r}"
        if n < FEW_OF_CLASS:
            rows = "no row" if n == 0 else f"{n} row{'s' * (n > 1)}"
            warn(
                "class rows",
                f"{said} has {rows} among {sum(map(len, texts))}",
                "A model hardly learns it, and its AUC may not be told. Join it with another "
                "class, or take it out of the dictionary if nobody has it.",
            )
        there = [part.called for part, n_at in zip(parts, each, strict=True) if n_at]
        gone = [part.called for part, n_at in zip(parts, each, strict=True) if not n_at]
        if not divided or not there or not gone:
            continue
        if len(there) == 1 and len(parts) > 1:
            warn(
                "site class",
                f"{said} occurs at {there[0]} alone",
                "A model cannot tell it from that site. Join it with another class.",
            )
        else:
            warn(
                "site class",
                f"{said} has no row at {first_of(gone, MOST_SITES)}",
                "A model of such a site alone does not know the class, and its own AUC is not "
                "told.",
            )
    return found


def check_units(
    sheets: Sequence[Sheet],
    dictionary: Dictionary,
    outcome: Outcome | None,
    accepted: Accepted = NOTHING,
    *,
    rows: bool = True,
) -> list[Finding]:
    """Return findings on sites, and on rows, that may be in another unit.

    accepted : columns whose units are right at all sites.
    rows : whether to look at rows, too.
    """
    found: list[Finding] = []
    if not rows and sum(len(s.parts) for s in sheets if s.site is not None) < 2:
        return found
    for v in dictionary.variables.values():
        if not is_numeric(v) or v.type in ("binary", "event") or v.identifier:
            continue
        units = conversions_for(v, outcome)
        factors = factors_of(units)
        timed = outcome is not None and outcome.roles.get(v.name) == "time"
        event = outcome.label if outcome is not None and timed else ""
        middles: list[_Of] = []
        mixed: list[Finding] = []
        for sheet in sheets:
            if v.name in sheet.frame.columns:
                x = numbers(sheet.frame[v.name])
                middles += _middles(sheet, x)
                mixed += _mixed_rows(sheet, v, x, factors, event) if rows else []
                mapped.release(x)
        of_column = len(middles) > 2 and 2 * len(mixed) > len(middles)
        found += [] if of_column else mixed
        found += _of_sites(v, middles, units, accepted)
    return found


def _middles(sheet: Sheet, x: Array) -> list[_Of]:
    """Return the quartiles of a column (n,) at each site."""
    found: list[_Of] = []
    for part in sheet.parts if sheet.site is not None else ():
        here = x[part.rows]
        if (three := quartiles(here)) is not None:
            rows = int(np.count_nonzero(~np.isnan(here)))
            found.append((part, Middle(part.known or part.called, three, rows)))
    return found


def _mixed_rows(
    sheet: Sheet,
    v: Variable,
    x: Array,
    factors: Factors,
    event: str,
) -> list[Finding]:
    """Return findings on rows in another unit, for each site by itself.

    event : for a time of follow-up, the event column, by which rows are judged separately; else "".
    """
    found: list[Finding] = []
    seen = numbers(sheet.frame[event]) == 1 if event in sheet.frame.columns else None
    for part in sheet.parts:
        here = np.zeros(len(x), bool)
        here[part.rows] = True
        groups = [here] if seen is None else [here & seen, here & ~seen]
        suspected = [_suspected(x[group], factors) for group in groups]
        if len({None if one is None else one.factor for one in suspected}) > 1:
            continue
        broken = np.zeros(len(x), bool)
        for group, one in zip(groups, suspected, strict=True):
            if one is not None:
                broken[group] = one.rows(x[group])
        if suspected[0] is None:
            continue
        found.append(
            sheet.finding(
                "mixed units",
                f"column {v.name!r} may be in two units{_at(part)}: {suspected[0].text} apart from "
                f"the rest",
                "Convert them, or leave them if they are right.",
                broken,
                column=v.name,
                severity=WARNING,
                site=part.known,
            )
        )
    return found


def _suspected(x: Array, factors: Factors) -> Suspicion | None:
    counts = histogram(x)
    return None if counts is None else suspect_rows(counts, factors)


def _at(part: SitePart) -> str:
    """Return " at site 'x'"; "" if the table is not yet divided into sites."""
    return "" if part.sheet.site is None else f" at {part.called}"


def _of_sites(
    v: Variable, middles: list[_Of], units: Sequence[Conversion], accepted: Accepted
) -> list[Finding]:
    parts = {middle.site: part for part, middle in middles}
    right = v.name in accepted
    return [
        parts[one.site].sheet.finding(
            SITE_UNITS,
            one.text(v.name, parts[one.site].called),
            ACCEPTED if right else REMEDY.format(v.name),
            column=v.name,
            severity=WARNING if right else ERROR,
            site=parts[one.site].known,
        )
        for one in differing([middle for _, middle in middles], units)
    ]
