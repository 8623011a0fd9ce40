"""Cohort: number of patients at each stage, and Table 1 by site with missing values.

Every number is from `results["cohort"]`, where sites have hidden small counts; these are printed as
"hidden" and never derived from sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedcohort.report import words
from fedcohort.report.markup import Markup, h, join, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections.base import Section, more
from fedcohort.report.table_one import decimals

#: Stands where a site hid a number.
HIDDEN = "hidden"
#: Open columns of the data on a page; others are folded.
SHOWN = 25
#: Columns of the data on a page, open and folded; results.json has the others.
MOST = 200
#: More sites than this do not fit beside each other.
MOST_SITES = 12


def section(run: Run) -> Section | None:
    """Return the flow of patients and Table 1, where the run described its cohort."""
    cohort = run.mapping("cohort")
    flow, variables = cohort.get("flow") or (), cohort.get("variables") or ()
    if not (flow or variables):
        return None
    left = words.sites_left_out(run.mapping("data").get("sites_left_out") or ())
    hidden = words.number(cohort.get("suppressed"))
    least = words.number(cohort.get("min_cell"))
    note = (
        f" Counts below {words.count(least)} were hidden by the hospital itself, with as many "
        f"others as it takes to keep them so: {words.of(hidden, 'number')} in all."
        if hidden > 0
        else ""
    )
    return Section(
        "cohort", "Cohort", "Who was studied?",
        f"From the tables as they were read to the patients of this study, and what is known of "
        f"them at each hospital.{note}",
        h(
            "div",
            _flow(flow),
            p(f"Hospitals that do not take part by themselves: {left}.") if left else None,
            _units(run.mapping("data").get("units") or ()),
            _table_one(variables),
            p(str(cohort["note"]), class_="quiet") if cohort.get("note") else None,
        ),
    )  # fmt: skip


def _units(accepted: Sequence[str]) -> Markup | None:
    """Return units that seem to differ between hospitals and that the study file accepts."""
    if not accepted:
        return None
    said = p("Units that seem to differ between hospitals. The study file accepts them (units):")
    return join(said, h("ul", *(h("li", f"{text[:1].upper()}{text[1:]}.") for text in accepted)))


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """Return None (all sites), then each named site, if a page has room for them."""
    sites = [str(s) for s in dict.fromkeys(r.get("site") for r in rows) if s is not None]
    return [None, *(sites if len(sites) <= MOST_SITES else ())]


def _flow(flow: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Return the stages in order, for all sites and each."""
    if not flow:
        return None
    stages = list(dict.fromkeys(str(r.get("stage")) for r in flow))
    cells = {(str(r.get("stage")), r.get("site")): r for r in flow}
    columns = _columns(flow)
    rows = [[_stage(stage), *(_rows(cells.get((stage, c))) for c in columns)] for stage in stages]
    head = ["", "All hospitals", *columns[1:]]
    return table(
        [str(x) for x in head], rows,
        numeric=range(1, len(head)), caption="Flow of patients", class_="flow",
    )  # fmt: skip


def _stage(name: str) -> Markup:
    kind = "out" if name.startswith("excluded") else "in"
    return h("span", name[:1].upper() + name[1:], class_=f"stage {kind}")


def _rows(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return words.MISSING
    return HIDDEN if found.get("rows") is None else words.count(found["rows"])


def _table_one(variables: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Return the description of every variable by site."""
    if not variables:
        return None
    known: dict[str, dict[str | None, Mapping[str, Any]]] = {}
    for v in variables:
        known.setdefault(str(v["name"]), {})[v.get("site")] = v
    columns = _columns(variables)
    head = ["", "All hospitals", *(str(c) for c in columns[1:])]
    bare = [n for n in known if len(known) > SHOWN and _all_hidden(known[n].values())]
    names = [n for n in known if n not in bare]

    def block(part: Iterable[str], caption: str) -> Markup:
        rows = [line for name in part for line in _lines(name, known[name], columns)]
        return table(head, rows, numeric=range(1, len(head)), caption=caption, class_="table-one")

    first = block(names[:SHOWN], "Table 1. Patients by hospital")
    rest, away = names[SHOWN:MOST], names[MOST:]
    said = p(
        "Numbers: mean (SD), and median [quartiles] where there are enough patients, each "
        "quartile averaged over several patients. Levels: patients (share of those known).",
        class_="quiet",
    )
    return join(
        first,
        more(f"{words.of(len(rest), 'further column')}", block(rest, "Table 1, continued"))
        if rest
        else None,
        _bare(bare),
        p(
            f"{words.of(len(away), 'more column')} of Table 1 are not on this page. They are in "
            f"results.json, and fedcohort data describe prints them.",
            class_="quiet",
        )
        if away
        else None,
        said,
    )


def _all_hidden(sites: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a number has no statistic and no missing value, wherever rows are shown."""
    return all(
        not v.get("levels")
        and v.get("missing") == 0
        and v.get("mean") is None
        and v.get("quartiles") is None
        for v in sites
        if v.get("n") is not None
    )


def _bare(names: Sequence[str]) -> Markup | None:
    """Return the columns that have no line because all statistics are hidden."""
    if not names:
        return None
    listed = ", ".join(words.spaced(n) for n in names[:MOST])
    left = f" and {words.count(len(names) - MOST)} more" if len(names) > MOST else ""
    said = (
        f"At every hospital nearly all values of these columns are the same, or a few patients "
        f"dominate their mean, so that no statistic is shown. No value is missing: {listed}{left}."
    )
    title = f"{words.of(len(names), 'column')} without a line: all statistics are hidden"
    return more(title, p(said))


def _lines(
    name: str, by_site: Mapping[str | None, Mapping[str, Any]], columns: Sequence[str | None]
) -> list[list[str | Markup]]:
    """Return one variable's lines: itself, its levels, its missing values."""
    one = by_site.get(None) or next(iter(by_site.values()))
    unit = f", {one['unit']}" if one.get("unit") else ""
    title = h("span", h("b", words.spaced(name)), unit)
    found = [by_site.get(c) or {} for c in columns]
    levels = [str(x) for x in one.get("levels") or ()]
    if levels:
        lines: list[list[str | Markup]] = [[title, *("" for _ in columns)]]
        lines += [
            [h("span", level, class_="level"), *(_count(v, level) for v in found)]
            for level in levels
        ]
    else:
        lines = [[title, *map(_number, found)]]
    if any(v.get("missing") != 0 for v in found if v):
        missing = h("span", "missing", class_="level missing")
        lines.append([missing, *map(_missing, found)])
    return lines


def _number(v: Mapping[str, Any]) -> str | Markup:
    """Return mean (SD) and median [quartiles], each where the site shows it."""
    mean, sd = words.number(v.get("mean")), words.number(v.get("sd"))
    quartiles = [words.number(q) for q in v.get("quartiles") or ()]
    spread = sd if sd > 0 else quartiles[2] - quartiles[0] if len(quartiles) == 3 else 0.0
    digits = decimals(spread if spread > 0 else mean if mean == mean else 0.0)
    parts: list[str | Markup] = []
    if mean == mean:
        parts.append(
            words.fixed(mean, digits) + (f" ({words.fixed(sd, digits)})" if sd == sd else "")
        )
    if len(quartiles) == 3:
        q1, median, q3 = (words.fixed(q, digits) for q in quartiles)
        parts.append(h("small", f"{median} [{q1}, {q3}]"))
    if not parts:
        return HIDDEN if v else words.MISSING
    return join(parts[0], h("br") if len(parts) > 1 else None, *parts[1:])


def _count(v: Mapping[str, Any], level: str) -> str:
    """Return a level's patients and their share of the known ones."""
    counts = v.get("counts") or {}
    if level not in counts:
        return words.MISSING
    n = words.number(counts[level])
    if n != n:
        return HIDDEN
    known = words.number(v.get("n")) - words.number(v.get("missing"))
    share = f" ({100 * n / known:.0f} %)" if known > 0 else ""
    return f"{words.count(n)}{share}"


def _missing(v: Mapping[str, Any]) -> str:
    if not v:
        return words.MISSING
    n, rows = words.number(v.get("missing")), words.number(v.get("n"))
    if n != n:
        return HIDDEN
    return f"{words.count(n)} ({100 * n / rows:.0f} %)" if rows > 0 else words.count(n)
