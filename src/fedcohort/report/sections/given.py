"""What each hospital was given: rows made worse, groups of patients, rounds that it is asked in.

Files: results.json, `scenarios`: `given`, `groups`, `rounds`, of the first repeat; `arms` and
`summary` for good and bad hospitals. D6.2, 6.6.1: isolated good nodes are the upper bound, isolated
bad nodes the lower, and bad nodes in the federation come in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import words
from fedcohort.report.charts import MOST_ROWS, Grid, Row, figure, grid, interval_rows
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h, join, p, table
from fedcohort.report.run import Run, mean
from fedcohort.report.sections.base import Section, more

Rows = Sequence[Mapping[str, Any]]


def section(run: Run) -> Section | None:
    """Return the figures of a study that changes what its sites have; None of others."""
    told = run.rows("scenarios")
    given: dict[str, Rows] = {str(s["scenario"]): s["given"] for s in told if s.get("given")}
    parts = [
        _worse(run, given),
        _good_and_bad(run, given),
        *(_groups(run, str(s["scenario"]), s["groups"]) for s in told if s.get("groups")),
        _rounds(run, told),
    ]
    if not any(part is not None for part in parts):
        return None
    changed = "Only rows for training are changed; test rows stay as they were read. "
    return Section(
        "given", "What hospitals were given", "What was each hospital given?",
        f"This study makes hospitals differ on purpose, to see what methods withstand. "
        f"{changed * bool(given)}What each was given is shown for the first repeat.",
        h("div", *parts),
    )  # fmt: skip


def _by_site(rows: Rows) -> dict[str, Mapping[str, Any]]:
    """Return rows by site, in the order of their names."""
    return {str(r["site"]): r for r in sorted(rows, key=lambda r: natural(str(r["site"])))}


def _grid(key: str, title: str, note: str, one: Grid, data: Rows, alt_text: str) -> Markup:
    """Return a figure of hospitals by something; of many hospitals, pages of them, folded."""
    if len(one.rows) <= MOST_ROWS:
        return figure(key, title, note, grid(one), data, alt_text)
    ends = range(0, len(one.rows), MOST_ROWS)
    pages = [
        Grid(
            rows=one.rows[i : i + MOST_ROWS],
            columns=one.columns,
            shades=one.shades[i : i + MOST_ROWS],
            texts=one.texts[i : i + MOST_ROWS],
        )
        for i in ends
    ]
    drawn = [
        figure(f"{key}-{k}", f"{title}, part {k} of {len(pages)}", note, grid(p), data, alt_text)
        for k, p in enumerate(pages, 1)
    ]
    return join(drawn[0], more("The other hospitals", *drawn[1:]))


# rows made worse ------------------------------------------------------------------------


def _worse(run: Run, given: Mapping[str, Rows]) -> Markup | None:
    """Return how much of each hospital's data is left in each setting, and what was done."""
    if not given:
        return None
    sites = list(dict.fromkeys(s for rows in given.values() for s in _by_site(rows)))
    titles = [run.scenarios[c] for c in given]
    cells = [[_left(_by_site(rows).get(s)) for rows in given.values()] for s in sites]
    one = Grid(
        rows=sites,
        columns=titles,
        shades=cells,
        texts=[[words.percent(v) if v == v else "" for v in row] for row in cells],
    )
    data = [
        {
            "scenario": c,
            **{k: v if not isinstance(v, (list, dict)) else str(v) for k, v in r.items()},
        }
        for c, rows in given.items()
        for r in rows
    ]
    said = "; ".join(
        f"{title}: " + ", ".join(
            f"{s} {words.percent(row[j])}" for s, row in zip(sites, cells, strict=True)
            if row[j] == row[j] and row[j] < 1
        )
        for j, title in enumerate(titles)
    )  # fmt: skip
    picture = _grid(
        "given", "Values that are left as they were read",
        "Share of the known values, outcome included, of the rows that a hospital would have."
        + " Blank: hidden, as the hospital has few rows." * any(v != v for r in cells for v in r),
        one, data, f"Share of values left, by hospital and setting. {said}.",
    )  # fmt: skip
    done: dict[tuple[str, str, str], list[str]] = {}
    for c, rows in given.items():
        for site, r in _by_site(rows).items():
            if what := "; ".join(_done(r)):
                done.setdefault((run.scenarios[c], _rows(r), what), []).append(site)
    body = [[title, words.listed(s), rows, what] for (title, rows, what), s in done.items()]
    listed = table(
        ["Setting", "Hospitals", "Rows for training", "What was done to them"], body,
        numeric=(2,), caption="What was done",
    )  # fmt: skip
    return join(picture, listed if len(body) <= 2 * MOST_ROWS else more("What was done", listed))


def _left(r: Mapping[str, Any] | None) -> float:
    """Return the share of known values that are left; NaN if hidden."""
    known, intact = (words.number((r or {}).get(k)) for k in ("known", "intact"))
    return intact / known if known > 0 else float("nan")


def _rows(r: Mapping[str, Any]) -> str:
    rows, laid = (words.number(r.get(k)) for k in ("rows", "laid"))
    if rows != rows:
        return "hidden"
    return words.count(rows) if rows == laid else f"{words.count(rows)} of {words.count(laid)}"


def _done(r: Mapping[str, Any]) -> list[str]:
    """Return in words what was done to a hospital's rows; empty if nothing."""
    count = {k: words.number(r.get(k)) for k in
             ("laid", "rows", "entries", "removed", "replaced", "swapped", "flipped")}  # fmt: skip
    out: list[str] = []
    if count["rows"] < count["laid"]:
        out.append("rows left out")
    if count["swapped"] > 0:
        out.append(f"outcomes of {words.of(count['swapped'], 'row')} mixed up")
    if count["flipped"] > 0:
        out.append(f"{words.of(count['flipped'], 'label')} flipped")
    if words.number(r.get("noise")) > 0:
        out.append(f"noise of {r['noise']:g} standard deviations")
    large = ", large ones more often" * (r.get("how") == "value")
    for key, what in (("replaced", "replaced by noise"), ("removed", f"missing{large}")):
        if count[key] > 0 and count["entries"] > 0:
            out.append(f"{words.percent(count[key] / count['entries'])} of values {what}")
    if empty := [words.spaced(str(c)) for c in r.get("columns") or ()]:
        out.append(f"no values of {words.listed(empty)}")
    units = r.get("units") or {}
    out += [f"{words.spaced(c)} × {f:g}" for c, f in units.items()]
    if r.get("degraded") and count["rows"] != count["rows"]:
        out.append("made worse; its counts are hidden")
    return out


# good and bad hospitals -----------------------------------------------------------------


def _good_and_bad(run: Run, given: Mapping[str, Rows]) -> Markup | None:
    """Return the metric of degraded hospitals alone, of the others alone, and together.

    A setting that changes no row stands for comparison.
    """
    if run.lower is None or run.known().is_p:
        return None
    known = run.known()
    rows: list[Row] = []
    data: list[dict[str, Any]] = []
    worse = {c: {str(r["site"]) for r in s if r.get("degraded")} for c, s in given.items()}
    for scenario in run.scenarios if any(worse.values()) else ():
        bad = worse.get(scenario, set())
        alone = run.by_site(run.lower.name, scenario, run.metric)
        marks: list[tuple[str, float]] = []
        for look, some in (("faint", bad & {*alone}), (run.lower.look, {*alone} - bad)):
            marks += [(look, mean([v for s in some for v in alone[s]]))] if some else []
        arms = {a.name: s.mean for a in run.together if (s := run.summary(a.name, scenario))}
        if not marks or not arms or (scenario in worse and not bad):
            continue
        first, *others = [a for a in run.together if a.name in arms]
        upper = None if run.upper is None else run.summary(run.upper.name, scenario)
        marks += [(a.look, arms[a.name]) for a in others]
        marks += [(run.upper.look, upper.mean)] if run.upper and upper else []
        value = words.fixed(arms[first.name], known.digits)
        rows.append(
            Row(
                name=run.scenarios[scenario],
                value=arms[first.name],
                look=first.look,
                text=f"{words.fixed(marks[0][1], known.digits)} → {value}" if bad else f"→ {value}",
                others=tuple(marks),
                link=True,
                small=True,
            )
        )
        own = dict(marks)
        head = {"scenario": scenario, "metric": run.metric, "degraded_alone": own.get("faint")}
        data.append(head | {"others_alone": own.get(run.lower.look)} | arms)
    if not rows:
        return None
    looks = [("faint", "degraded hospitals alone"), (run.lower.look, "the others alone")]
    looks += [(a.look, a.title) for a in run.together]
    looks += [(run.upper.look, run.upper.title)] if run.upper is not None else []
    said = "; ".join(f"{r.name}: {r.text}" for r in rows)
    better = "higher" if known.sign > 0 else "lower"
    return figure(
        "good-and-bad", "Good and bad hospitals",
        f"Means over hospitals and repeats, on the same test rows; {better} is better. A degraded "
        f"hospital gains if the shared model is better than its own; it does no harm if that is as "
        f"good as without it.",
        interval_rows(rows, known.axis, legend=looks, heads=("Setting", "degraded → together")),
        data,
        f"{known.axis} of degraded hospitals alone → together. {said}.",
    )  # fmt: skip


# groups and rounds ----------------------------------------------------------------------


def _groups(run: Run, scenario: str, told: Mapping[str, Any]) -> Markup:
    """Return which groups of patients each hospital has."""
    names = [str(n) for n in told.get("names") or ()]
    held = {s: {str(g) for g in r["groups"]} for s, r in _by_site(told.get("sites") or ()).items()}
    one = Grid(
        rows=list(held),
        columns=names,
        shades=[[float(n in groups) for n in names] for groups in held.values()],
    )
    column = words.spaced(str(told.get("column") or ""))
    most = max(map(len, held.values()), default=0)
    data = [{"site": s, "group": n, "has": n in g} for s, g in held.items() for n in names]
    said = "; ".join(f"{s}: {words.listed(sorted(g, key=natural))}" for s, g in held.items())
    return _grid(
        f"groups-{scenario}",
        f"Groups of {column} at each hospital, {run.scenarios[scenario]}",
        f"A dark cell: the hospital has rows of the group; {most} of {len(names)} at each.",
        one, data, f"Groups of {column}: {said}.",
    )  # fmt: skip


#: Darkness of a round: away, present and not asked, asked.
_SHADES = (0.0, 0.45, 1.0)


def _rounds(run: Run, told: Rows) -> Markup | None:
    """Return when each hospital was asked, of the first setting; others differ in names alone."""
    first = next((s for s in told if s.get("rounds")), None)
    if first is None:
        return None
    sites = _by_site(first["rounds"])
    n = max((len(r["rounds"]) for r in sites.values()), default=0)
    one = Grid(
        rows=[f"{s} ({words.percent(words.number(r['away']))})" for s, r in sites.items()],
        columns=[str(i + 1) for i in range(n)],
        shades=[[_SHADES[int(v)] for v in r["rounds"]] for r in sites.values()],
    )
    data = [
        {"site": s, "round": i + 1, "here": v > 0, "asked": v == 2}
        for s, r in sites.items()
        for i, v in enumerate(r["rounds"])
    ]
    share = {s: sum(v == 2 for v in r["rounds"]) / max(n, 1) for s, r in sites.items()}
    said = ", ".join(f"{s} {words.percent(v)}" for s, v in share.items())
    undrawn = any(v == 1 for r in sites.values() for v in r["rounds"])
    return join(
        _grid(
            "rounds", f"Who was asked in the first {n} rounds",
            "Dark: asked; " + "paler: present and not drawn; " * undrawn + "blank: away. In "
            "brackets the share of rounds that the study asks the hospital to be away. A fit that "
            "needs all hospitals in a sum waits for them.",
            one, data, f"Share of the first {n} rounds in which each was asked: {said}.",
        ),
        p("Every arm meets the same absences in the same repeat.", class_="quiet"),
    )  # fmt: skip
