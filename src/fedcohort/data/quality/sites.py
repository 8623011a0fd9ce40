"""Whether each site has what a study needs: two rows, an event, and the units of the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.quality import units
from fedcohort.data.quality.findings import ERROR, WARNING, Finding
from fedcohort.data.quality.rules import is_numeric, numbers
from fedcohort.data.quality.sheets import Sheet, SitePart
from fedcohort.data.variable import Variable

JOIN = "A study leaves it out, or joins it with other sites (data.sites)."
#: What a site may break; a study leaves such sites out, and nothing else takes them.
SITE_RULES = ("site rows", "site events")

#: A level in fewer rows is not named: it may be a slip, and a slip may be anything.
NAMED = 5

#: Among fewer sites a level that one has alone is no surprise.
FEWEST_SITES = 3

#: What `units` needs of one site: its part of a table, median and spread of log x, and values.
_Middle = tuple[SitePart, float, float, int]


def check_sizes(sheet: Sheet) -> list[Finding]:
    """Look for sites with a single row."""
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
    """Look for sites in which nobody had the event.

    Tables whose event column breaks its own rules are not asked.

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
                f"Nothing can be learnt there. {JOIN}",
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
    """Look for levels of covariates that one of three sites or more has alone.

    A level is named if it stands in `NAMED` rows or more.
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
        remedy = "Its effect cannot be told from the site's. Pool it by preprocess: pool_levels."
        file = having[0].name if len(having) == 1 else ""
        found.append(Finding(file, "site level", WARNING, what, remedy, column=v.name))
    return found


def check_units(
    sheets: Sequence[Sheet], dictionary: Dictionary, outcome: Outcome | None
) -> list[Finding]:
    """Look for rows, and whole sites, that may be in another unit than the others."""
    found: list[Finding] = []
    for v in dictionary.variables.values():
        if not is_numeric(v) or v.type in ("binary", "event"):
            continue
        timed = isinstance(outcome, Survival) and v.name == outcome.time
        factors = units.factors_of(v.name, v.unit, time=timed or v.type == "time")
        middles: list[_Middle] = []
        rows: list[Finding] = []
        for sheet in sheets:
            if v.name in sheet.frame.columns:
                x = numbers(sheet.frame[v.name])
                event = outcome.event if timed and isinstance(outcome, Survival) else ""
                rows += _mixed_rows(sheet, v, x, factors, middles, event)
        of_column = len(middles) > 2 and 2 * len(rows) > len(middles)
        found += [] if of_column else rows
        found += _mixed_sites(v, middles, factors)
    return found


def _mixed_rows(
    sheet: Sheet,
    v: Variable,
    x: Array,
    factors: units.Factors,
    middles: list[_Middle],
    event: str,
) -> list[Finding]:
    """Look at each site's rows by themselves, and note the sites' middles.

    event : the column by which rows are judged apart, of a time of follow-up; "" of others.
    """
    found: list[Finding] = []
    seen = numbers(sheet.frame[event]) == 1 if event in sheet.frame.columns else None
    for part in sheet.parts:
        counts = units.histogram(x[part.rows])
        if counts is None:
            continue
        middles.append((part, *counts.middle, int(counts.total)))
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


def _suspected(x: Array, factors: units.Factors) -> units.Suspicion | None:
    counts = units.histogram(x)
    return None if counts is None else units.suspect_rows(counts, factors)


def _at(part: SitePart) -> str:
    """Return " at site 'x'"; nothing where sites are yet to be made."""
    return "" if part.sheet.site is None else f" at {part.called}"


def _mixed_sites(v: Variable, middles: list[_Middle], factors: units.Factors) -> list[Finding]:
    if len(middles) < 2:
        return []
    medians, spreads, rows = (np.array([m[i] for m in middles]) for i in (1, 2, 3))
    away = units.suspect_sites(medians, float(np.median(spreads)), rows, factors)
    return [
        middles[i][0].sheet.finding(
            "mixed units",
            f"column {v.name!r} may be in another unit than at other sites: {suspicion.text}, at "
            f"{middles[i][0].called}",
            "Convert it, or leave it if it is right.",
            column=v.name,
            severity=WARNING,
            site=middles[i][0].known,
        )
        for i, suspicion in away.items()
    ]
