"""A model's risk groups, proportional hazards, splits of trees and importance of columns.

Files: results.json, `risk_groups`, `proportional_hazards`, `proportional_odds`, `splits`,
`importance`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import charts, words
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, follow_up, key, leading_open, more, timed
from fedcohort.report.words import fixed, number

Row = Mapping[str, Any]

#: Looks of the groups, from low to high risk.
_LOOKS = ("c0", "c3", "c1")


def risk_groups(run: Run) -> Section | None:
    """Return the curves of each arm, a panel a setting."""
    found = [r for r in run.rows("risk_groups") if r.get("groups")]
    most = charts.MOST_PANELS
    drawn = [
        (arm, _risk_groups_figure(run, arm, alike[i : i + most], i))
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
    """Return one arm's settings, grouped by equal curves and test.

    See `clusters._unlike`.
    """
    found: dict[str, list[Row]] = {}
    for r in rows:
        text = json.dumps([r["groups"], r.get("log_rank")], sort_keys=True)
        found.setdefault(text, []).append(r)
    return list(found.values())


def _risk_groups_figure(run: Run, arm: Arm, alike: Sequence[Sequence[Row]], part: int) -> Markup:
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


#: Below this p-value a line is marked.
DOUBT = 0.05
#: Of more lines than this, only those in doubt stand open.
SHOWN = 15


def hazards(run: Run) -> Section | None:
    """Return the test of proportional hazards of each arm that has one, of its model."""
    return _tested(
        run, "proportional_hazards", "hazards", "Proportional hazards",
        "Does the effect of a covariate last?",
        "A hazard ratio is one number for the whole follow-up. The score test of Grambsch and "
        "Therneau asks whether it changes with time; a small p says that one number is too few. "
        "With many patients even a change of no importance has a small p: look at the risk groups "
        "as well.",
        "A stratified baseline, an interaction with time or a shorter horizon may fit better.",
    )  # fmt: skip


def odds(run: Run) -> Section | None:
    """Return the test of proportional odds of each arm that has one, of its model."""
    return _tested(
        run, "proportional_odds", "odds", "Proportional odds",
        "Is the effect of a covariate the same between all classes?",
        "An odds ratio of ordered classes is one number for all thresholds between them. The score "
        "test asks whether it differs between thresholds; a small p says that one number is too "
        "few. With many patients even a difference of no importance has a small p, and with few "
        "patients of a class the test finds differences too often.",
        "A regression of unordered classes (multinomial), or fewer classes, may fit better.",
    )  # fmt: skip


def _tested(
    run: Run, key_: str, name: str, title: str, question: str, about: str, remedy: str
) -> Section | None:
    """Return a section on a test that results hold under a key, with a block for each arm."""
    blocks = [(a, b) for a in run.arms if (b := _block(run, a, key_, remedy)) is not None]
    if not blocks:
        return None
    return Section(name, title, question, about, h("div", leading_open(run, blocks)))


def _block(run: Run, arm: Arm, key_: str, remedy: str) -> Markup | None:
    shown = run.model_rows(key_, arm.name)
    if not shown:
        return None
    doubted = [r for r in shown if words.number(r.get("p")) < DOUBT]
    single = [str(r["covariate"]) for r in doubted if r["covariate"] != "global"]
    said = (
        f"In doubt (p < {DOUBT:g}): {words.listed([words.spaced(c) for c in single])}. {remedy}"
        if single
        else "No covariate is in doubt."
    )
    head = ["Covariate", "χ²", "df", "p"]
    caption = f"Score test, {arm.title}"
    open_, folded = shown, list[Mapping[str, Any]]()
    if len(shown) > SHOWN:  # of many covariates a reader needs those in doubt
        whole = [r for r in shown if r["covariate"] == "global"]
        rest = sorted((r for r in doubted if r not in whole), key=lambda r: words.number(r["p"]))
        open_, folded = [*whole, *rest][:SHOWN], shown

    def tested(rows: Sequence[Mapping[str, Any]]) -> Markup:
        return table(head, [_row(r) for r in rows], numeric=(1, 2, 3), caption=caption)

    return h(
        "div",
        h(
            "h3",
            key(arm),
            h("small", run.model_title(arm.name, key_)),
            class_="block",
        ),
        p(said),
        tested(open_) if open_ else None,
        more(f"All {words.of(len(folded), 'covariate')}", tested(folded)) if folded else None,
    )


def _row(r: Mapping[str, Any]) -> list[str | Markup]:
    name = str(r["covariate"])
    label = h("b", "all together") if name == "global" else words.spaced(name)
    p_value = words.p_value(r.get("p"))
    marked = h("b", p_value) if words.number(r.get("p")) < DOUBT else p_value
    return [label, words.fixed(r.get("chi2"), 2), words.count(r.get("df")), marked]


def splits(run: Run) -> Section | None:
    """Return a figure for each arm with trees, of its model."""
    drawn = [(a, f) for a in run.arms if (f := _splits_figure(run, a)) is not None]
    if not drawn:
        return None
    return Section(
        "splits", "Splits of trees", "Which covariates do the trees split?",
        "Each split of a tree reduces the loss on the training rows. A bar is a covariate’s share "
        "of the reduction by all splits. Covariates that tell the same share it, and a covariate "
        "with many values has more chances to be split. It says what the model uses, not what "
        "causes the outcome.",
        h("div", leading_open(run, drawn)),
    )  # fmt: skip


def _splits_figure(run: Run, arm: Arm) -> Markup | None:
    mine = run.model_rows("splits", arm.name)
    if not mine:
        return None
    rows = [
        charts.Row(
            name=words.spaced(str(r["covariate"])), value=number(r.get("share")), look=arm.look,
            text=f"{fixed(r.get('share'))}, {words.of(int(r['weight']), 'split')}",
        )
        for r in mine[:SHOWN]
    ]  # fmt: skip
    some = f"; the first {SHOWN} of {len(mine)}" if len(mine) > SHOWN else ""
    names = ("covariate", "share", "weight", "gain", "cover", "total_gain", "total_cover")
    top = mine[0]
    return charts.figure(
        f"splits-{arm.name}",
        f"{arm.title}: share of the reduction of the loss",
        f"{run.model_title(arm.name, 'splits')}{some}",
        charts.bars(rows, "share of the reduction of the loss"),
        [{k: r.get(k) for k in names} for r in mine],
        f"{arm.title} gains most by {words.spaced(str(top['covariate']))}: {fixed(top['share'])}.",
    )


def importance(run: Run) -> Section | None:
    """Return a figure for each arm, of its first setting."""
    drawn = [(a, f) for a in run.arms if (f := _importance_figure(run, a)) is not None]
    if not drawn:
        return None
    return Section(
        "importance", "Importance", "What does the model look at?",
        "Permutation importance: one column of the blind patients is shuffled, and the model "
        f"loses as much {_label(run)} as it owes to that column. Columns that "
        "tell the same share it, so that each may look dispensable. It says what the model uses, "
        f"not what causes the outcome.{_together(run)}",
        h("div", leading_open(run, drawn)),
    )  # fmt: skip


def _label(run: Run) -> str:
    """Return the lost metric; of older runs, which do not name it, the page's leading one."""
    return next((run.known(r.get("metric")).label for r in run.rows("importance")), "")


def _size(rows: Sequence[Mapping[str, Any]]) -> int:
    """Return how many columns are shuffled together, at most."""
    return max((int(r.get("columns") or 1) for r in rows), default=1)


def _together(run: Run) -> str:
    """Return what to know where several columns are shuffled together."""
    n = _size(run.rows("importance"))
    if n < 2:
        return ""
    return (
        f" There are many columns, so up to {n} neighbours in the dictionary's order are shuffled "
        f"together; a line is what the model owes to all of them. For one column at a time, run "
        f"the study again with fewer: give the others feature: false in the dictionary."
    )


def _importance_figure(run: Run, arm: Arm) -> Markup | None:
    every = [r for r in run.rows("importance") if r["arm"] == arm.name]
    if not every:
        return None
    scenario = str(every[0]["scenario"])
    mine = sorted(
        (r for r in every if r["scenario"] == scenario), key=lambda r: -number(r.get("drop"))
    )
    rows = [
        charts.Row(
            name=words.spaced(str(r["feature"])),
            value=number(r.get("drop")), low=number(r.get("low")), high=number(r.get("high")),
            look=arm.look,
            text=words.estimate(r.get("drop"), r.get("low"), r.get("high")),
        )
        for r in mine[:SHOWN]
    ]  # fmt: skip
    some = f"; the first {SHOWN} of {len(mine)}" if len(mine) > SHOWN else ""
    label = _label(run)
    top, each = mine[0], "group of columns" if _size(mine) > 1 else "column"
    return charts.figure(
        f"importance-{arm.name}",
        f"{arm.title}: loss of {label} without each {each}",
        f"first repeat, {run.scenarios.get(scenario, scenario)}{some}",
        charts.bars(rows, f"loss of {label}"),
        [
            {k: r.get(k) for k in ("feature", "columns", "drop", "low", "high") if k in r}
            for r in mine
        ],
        f"{arm.title} relies most on {words.spaced(str(top['feature']))}: {fixed(top['drop'])}.",
    )
