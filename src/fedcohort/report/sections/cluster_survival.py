"""Survival by cluster: Kaplan–Meier curves of the blind patients, and the log-rank test."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fedcohort.report import charts, words
from fedcohort.report.cluster_verdict import p_values
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section, follow_up, more
from fedcohort.report.sections.clustered import Fit, Row
from fedcohort.report.words import number


def section(run: Run) -> Section | None:
    """Return the curves of each arm; the leading arm in every setting, other arms folded."""
    fits = clustered.fits(run, "cluster_curves")
    arms = list(dict.fromkeys(arm.name for arm, _ in fits))
    most = charts.MOST_PANELS
    drawn = [
        (name, _figure(run, own[i : i + most], i))
        for name in arms
        for own in (_unlike(run, [f for f in fits if f[0].name == name]),)
        for i in range(0, len(own), most)
    ]
    if not drawn:
        return None
    first = [figure for name, figure in drawn if name == arms[0]]
    rest = [figure for name, figure in drawn if name != arms[0]]
    return Section(
        "cluster-survival", "Survival by cluster", "Do the groups fare differently?",
        "Blind patients by cluster, each with an estimate of what happened to them: Kaplan-Meier, "
        "as a life table in intervals that hold several events. "
        "Survival had no part in making the groups, so that the log-rank test is a fair one. A "
        "small p says that not all groups are alike, not which differ, nor that they tell more "
        "than the features that they were made of. So that no single patient shows, a curve ends "
        "while several are still followed, and most numbers at risk are about right and not exact.",
        h("div", first, _numbers(run, fits), more("The other arms", *rest) if rest else None),
    )  # fmt: skip


def _unlike(run: Run, fits: Sequence[Fit]) -> list[list[Fit]]:
    """Return one arm's fits, those of the same curves and test together.

    Methods that do not depend on how patients lie over hospitals give the same in every setting.
    """
    found: dict[str, list[Fit]] = {}
    for fit in fits:
        said = [
            {k: v for k, v in r.items() if k != "scenario"}
            for key in ("cluster_curves", "cluster_log_rank")
            for r in clustered.rows(run, key, fit)
        ]
        found.setdefault(json.dumps(said, sort_keys=True), []).append(fit)
    return list(found.values())


def _figure(run: Run, alike: Sequence[Sequence[Fit]], part: int) -> Markup:
    """Return one arm's curves, a panel for each setting, or one for settings that are alike."""
    fits = [same[0] for same in alike]
    arm = fits[0][0]
    several = len(fits) > 1
    series = [
        _series(run, clustered.rows(run, "cluster_curves", fit), c, run.scenarios[fit[1]] * several)
        for fit in fits
        for c in clustered.clusters(clustered.rows(run, "cluster_curves", fit))
    ]
    tests = [
        f"{run.scenarios[fit[1]]}: {_log_rank(run, fit)}" if several else _log_rank(run, fit)
        for fit in fits
    ]
    repeated = [
        f" {words.listed([f'“{run.scenarios[c]}”' for _, c in same])} give the same curves."
        for same in alike
        if len(same) > 1
    ]
    keys = ("cluster", "time", "survival", "low", "high", "at_risk", "about")
    data = [
        {"setting": fit[1]} | {k: r.get(k) for k in keys}
        for fit in fits
        for r in clustered.rows(run, "cluster_curves", fit)
    ]
    said = "; ".join(
        f"{clustered.name(c)}: {text}" for fit in fits for c, _, text in _levels(run, fit)
    )
    return charts.figure(
        f"cluster-survival-{arm.name}-{part}",
        f"{arm.title}: what happened to the patients of each cluster",
        f"First repeat; bands are 95 % intervals. Log-rank tests: {'; '.join(tests)}."
        + "".join(repeated),
        charts.curves_with_risk_table(series, follow_up(run), "share free of the event"),
        data,
        f"Kaplan-Meier estimates by cluster, {arm.title}. Share free of the event: {said}. "
        f"Log-rank: {'; '.join(tests)}.",
    )


def _series(run: Run, found: Sequence[Row], cluster: int, panel: str) -> charts.Series:
    """Return one cluster's curve, with the numbers at risk that are shown."""
    mine = [r for r in found if int(r["cluster"]) == cluster]
    keys = ("time", "survival", "low", "high")
    return charts.Series(
        label=clustered.name(cluster),
        look=clustered.look(cluster),
        points=[
            (run.clock.at(number(r.get("time"))), *(number(r.get(k)) for k in keys[1:]))
            for r in mine
            if r.get("survival") is not None
        ],
        panel=panel,
        at_risk=[
            (run.clock.at(number(r["time"])), int(r["at_risk"]))
            for r in mine
            if r.get("at_risk") is not None
        ],
        about=[
            (run.clock.at(number(r["time"])), int(r["about"]))
            for r in mine
            if r.get("about") is not None
        ],
    )


def _log_rank(run: Run, fit: Fit) -> str:
    """Return a fit's test as text."""
    test = next(iter(clustered.rows(run, "cluster_log_rank", fit)), {})
    p = number(test.get("p"))
    if p != p:
        return "none, since there is one group only"
    return f"χ² {number(test.get('chi2')):.1f} on {words.count(test.get('df'))}, p {p_values([p])}"


def _levels(run: Run, fit: Fit) -> list[tuple[int, float, str]]:
    """Return each cluster, when, and its survival then: at its last point up to mid-follow-up."""
    found = clustered.rows(run, "cluster_curves", fit)
    half = max((number(r["time"]) for r in found), default=0.0) / 2
    out: list[tuple[int, float, str]] = []
    for c in clustered.clusters(found):
        mine = [
            r for r in found
            if int(r["cluster"]) == c and r.get("survival") is not None
            and number(r["time"]) <= half
        ]  # fmt: skip
        if mine:
            r = max(mine, key=lambda r: number(r["time"]))
            text = words.estimate(r.get("survival"), r.get("low"), r.get("high"), 2)
            out.append((c, number(r["time"]), f"{text} at {run.clock.say(number(r['time']))}"))
    return out


def _numbers(run: Run, fits: Sequence[Fit]) -> Markup:
    """Return every fit's test over all repeats, and the survival of each cluster."""
    head = ["Arm and setting", "Log-rank p, lowest to highest of all repeats", "Cluster",
            "Free of the event (95 % interval)"]  # fmt: skip
    body: list[list[str]] = []
    for fit in fits:
        every = list(run.values(fit[0].name, fit[1], "log_rank_p").values())
        tested = p_values(every).removeprefix("= ") if every else words.MISSING
        for i, (c, _, text) in enumerate(_levels(run, fit)):
            first = [clustered.title(run, fit), tested] if i == 0 else ["", ""]
            body.append([*first, clustered.name(c), text])
    unit = follow_up(run)
    caption = f"Survival by cluster near the middle of the follow-up ({unit}), first repeat"
    return more("The numbers", table(head, body, caption=caption))
