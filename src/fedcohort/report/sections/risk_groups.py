"""Risk groups: Kaplan-Meier curves of blind patients by predicted risk, with a log-rank test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.markup import Markup, h
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, follow_up, leading_open, timed
from fedcohort.report.words import number

Row = Mapping[str, Any]

#: Looks of the groups, from low to high risk.
_LOOKS = ("c0", "c3", "c1")


def section(run: Run) -> Section | None:
    """Return the curves of each arm, a panel a setting."""
    found = [r for r in run.rows("risk_groups") if r.get("groups")]
    most = charts.MOST_PANELS
    drawn = [
        (arm, _figure(run, arm, alike[i : i + most], i))
        for arm in run.arms
        for alike in (_unlike([r for r in found if r["arm"] == arm.name]),)
        for i in range(0, len(alike), most)
    ]
    if not drawn:
        return None
    counted = any(g.get("at_risk") or g.get("about") for r in found for g in r["groups"])
    return Section(
        "groups", "Risk groups", "Do patients called high risk fare worse?",
        "Blind patients in groups of about equal size by predicted risk, each with the "
        "Kaplan-Meier estimate of what happened to them. Lines that part early and stay apart are "
        "what a useful model gives. A curve steps where several patients have had the event, and "
        "ends when few are still followed, so that no single patient shows"
        + ("; for the same reason most numbers at risk are about right and not exact." if counted
           else ", and the numbers at risk are not told."),
        h("div", leading_open(run, drawn)),
    )  # fmt: skip


def _unlike(rows: Sequence[Row]) -> list[list[Row]]:
    """Return one arm's settings, those of the same curves and test together.

    Methods that do not depend on how patients lie over hospitals give the same in every setting.
    """
    found: dict[str, list[Row]] = {}
    for r in rows:
        text = json.dumps([r["groups"], r.get("log_rank")], sort_keys=True)
        found.setdefault(text, []).append(r)
    return list(found.values())


def _figure(run: Run, arm: Arm, alike: Sequence[Sequence[Row]], part: int) -> Markup:
    """Return one arm's curves, a panel for each setting, or one for settings that are alike."""
    rows = [same[0] for same in alike]
    several = len(rows) > 1

    def title(r: Row) -> str:
        return run.scenarios.get(str(r["scenario"]), str(r["scenario"]))

    series = [
        _series(run, g, i, len(r["groups"]), title(r) if several else "")
        for r in rows
        for i, g in enumerate(r["groups"])
    ]
    tests = [f"{title(r)}: {_log_rank(r)}" if several else _log_rank(r) for r in rows]
    repeated = [
        f" {words.listed([f'“{title(r)}”' for r in same])} give the same curves."
        for same in alike
        if len(same) > 1
    ]
    keys = ("time", "survival", "low", "high")
    data = [
        {"setting": s.panel, "group": s.label, **dict(zip(keys, p, strict=False))}
        for s in series
        for p in s.points
    ]
    return charts.figure(
        f"groups-{arm.name}-{part}",
        f"{arm.title}: what happened to patients by predicted risk",
        f"First repeat; bands are 95 % intervals. Log-rank tests: {'; '.join(tests)}."
        + "".join(repeated),
        charts.curves_with_risk_table(series, follow_up(run), "share free of the event"),
        data,
        f"Kaplan-Meier estimates by predicted risk, {arm.title}, {words.of(len(rows), 'setting')}.",
    )


def _series(run: Run, g: Mapping[str, Any], i: int, groups: int, panel: str) -> charts.Series:
    return charts.Series(
        label=str(g.get("label") or g.get("group")),
        look=_LOOKS[i if groups > 2 else 2 * i],
        points=timed(run, [tuple(number(v) for v in step) for step in g.get("curve") or ()]),
        panel=panel,
        at_risk=[
            (run.clock.at(number(t)), None if n is None else int(n))
            for t, n in g.get("at_risk") or ()
        ],
        about=[(run.clock.at(number(t)), int(n)) for t, n in g.get("about") or ()],
    )


def _log_rank(found: Mapping[str, Any]) -> str:
    test = found.get("log_rank") or {}
    p = words.p_value(test.get("p"))
    if p == words.MISSING:
        return "none"
    p = p if p.startswith("<") else f"= {p}"
    return f"χ² {number(test.get('chi2')):.1f} on {words.count(test.get('df'))}, p {p}"
