"""Decision curves: what treating by a model is worth beside treating everybody, or nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.markup import Markup, h
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, first_setting
from fedcohort.report.verdict import leading
from fedcohort.report.words import number

Row = Mapping[str, Any]

#: How far below 0 a figure goes, as a share of the highest net benefit: what lies lower is harm.
BELOW = 0.15


def section(run: Run) -> Section | None:
    """Return the curves of every arm in the first setting, and the other settings folded."""
    needed = ("threshold", "net_benefit", "treat_all")
    found = [
        r for r in run.rows("decision") if all(number(r.get(k)) == number(r.get(k)) for k in needed)
    ]
    arms = [a for a in run.arms if any(r["arm"] == a.name for r in found)]
    shown = [c for c in run.scenarios if any(r["scenario"] == c for r in found)]
    if not shown:
        return None
    times = [t for r in found if (t := number(r.get("time"))) == t]
    when = run.mapping("evaluate").get("horizon") or (run.clock.say(times[0]) if times else "")
    risk = f"of the event by {when} " if times else ""
    return Section(
        "decision", "Decision curves", "Would treating by the model do more good than harm?",
        f"A patient is treated where the predicted risk {risk}is at the threshold or above. A "
        "threshold of 20 % says that four patients may be treated in vain for one who needs it. "
        "Net benefit is the share of patients who are treated and have the event, less those "
        "treated in vain at that weight. A model is of use at thresholds where its line is above "
        "those of treating everybody and of treating nobody. Choose the threshold before you look.",
        h("div", first_setting(run, shown, lambda c: _figure(run, arms, c, found))),
    )  # fmt: skip


def _figure(run: Run, arms: Sequence[Arm], scenario: str, found: Sequence[Row]) -> Markup | None:
    """Return one setting's curves; the leading arm's has its band."""
    mine = {a.name: [r for r in found if (r["arm"], r["scenario"]) == (a.name, scenario)]
            for a in arms}  # fmt: skip
    mine = {name: rows for name, rows in mine.items() if len(rows) > 1}
    if not mine:
        return None
    lead = leading(run)
    banded = [a.name for a in arms if len(mine) <= 2 or (lead and a.name == lead.name)]
    values = [number(r["net_benefit"]) for rows in mine.values() for r in rows]
    top = max([*values, *(number(r["treat_all"]) for rows in mine.values() for r in rows)])
    domain = (-BELOW * top, 1.05 * top)
    everybody = max(mine.values(), key=len)
    series = [
        charts.Series(
            label=a.title,
            look=a.look,
            points=_above([_point(r, a.name in banded) for r in mine[a.name]], domain[0]),
        )
        for a in arms
        if a.name in mine
    ]
    all_ = [(number(r["threshold"]), number(r["treat_all"])) for r in everybody]
    series.append(
        charts.Series(label="everybody is treated", look="faint", points=_above(all_, domain[0]))
    )
    last = max(number(r["threshold"]) for rows in mine.values() for r in rows)
    keys = ("threshold", "net_benefit", "low", "high", "treat_all")
    data = [
        {"arm": name} | {k: r.get(k) for k in keys} for name, rows in mine.items() for r in rows
    ]
    of = [a.title for a in arms if a.name in mine and a.name in banded]
    band = f"; the band of “{of[0]}” is" if len(of) == 1 else "; bands are" if of else ""
    band += " the pointwise 95 % interval of patients drawn independently" * bool(of)
    setting = f", {run.scenarios[scenario]}" if len(run.scenarios) > 1 else ""
    return charts.figure(
        f"decision-{scenario}",
        f"Net benefit by threshold{setting}",
        f"Blind patients of the first repeat{band}; the dotted line at 0 is that nobody is treated",
        charts.lines_with_bands(
            series, "threshold of predicted risk", "net benefit",
            x_domain=(0.0, last), y_domain=domain, reference=0.0,
        ),
        data,
        f"Net benefit of {words.of(len(mine), 'arm')} by threshold, beside treating everybody.",
    )  # fmt: skip


def _point(r: Row, banded: bool) -> tuple[float, ...]:
    keys = ("threshold", "net_benefit", "low", "high") if banded else ("threshold", "net_benefit")
    return tuple(number(r.get(k)) for k in keys)


def _above(points: Sequence[tuple[float, ...]], low: float) -> list[tuple[float, ...]]:
    """Return a line's points from the left as far as it first falls to `low`, where it ends."""
    kept: list[tuple[float, ...]] = []
    for p in points:
        if p[1] < low:
            if kept:
                a = kept[-1]
                kept.append((a[0] + (p[0] - a[0]) * (a[1] - low) / (a[1] - p[1]), low))
            break
        kept.append(p)
    return kept
