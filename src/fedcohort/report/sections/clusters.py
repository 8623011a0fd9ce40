"""Clusters: sizes, hospitals, agreement with pooled data, survival, and known classes.

Files: results.json, `clusters`, `cluster_sites`, `cluster_curves`, `cluster_log_rank`,
`cluster_confusion`. Hidden values are None there; nothing is derived from sums.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from fedcohort.report import charts, cluster_verdict, words
from fedcohort.report.cluster_verdict import p_values
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section, follow_up, more
from fedcohort.report.sections.clustered import Fit, Row
from fedcohort.report.words import number

#: Hospitals of a table.
MOST_SITES = 40


def clusters(run: Run) -> Section | None:
    """Return sizes and agreement, where the run has clusters."""
    same = _agreement(run)
    fits = clustered.fits(run, "clusters")
    if not (same or fits):
        return None
    sizes = [_sizes(run, fit) for fit in fits]
    others = more("The groups of the other arms and settings", *sizes[1:]) if sizes[1:] else None
    return Section(
        "clusters", "Clusters", "Which groups of patients were found?",
        "A cluster is a number that the method gives to patients who are alike in their features; "
        "clusters of different arms share numbers by chance only. Sizes are of the training "
        "patients of the first repeat. The adjusted Rand index compares groups, whatever their "
        "numbers: of all pairs of blind patients, how often two clusterings say the same of "
        "whether they belong together, corrected for chance. By Steinley (2004), 0.90 and more "
        "is excellent, 0.80 good, 0.65 moderate, less is poor.",
        h("div", p(_verdict(run)), same, sizes[:1], others),
    )  # fmt: skip


def _verdict(run: Run) -> str:
    """Return in plain words the number of clusters and their separation."""
    arm = cluster_verdict.leading(run)
    if arm is None:
        return "No arm gave groups."
    return f"{cluster_verdict.answer(run, arm)} {cluster_verdict.structure(run, arm)}".strip()


def _agreement(run: Run) -> Markup | None:
    """Return each arm's adjusted Rand index against pooled data, a figure a setting."""
    drawn: list[Markup] = []
    for c, title in run.scenarios.items():
        found = [(a, s) for a in run.arms if (s := run.summary(a.name, c, "agreement"))]
        rows: list[charts.Row] = []
        data: list[dict[str, object]] = []
        said: list[str] = []
        for a, s in found:
            each = list(run.values(a.name, c, "agreement").values())
            text = words.estimate(s.mean, s.low, s.high, 2)
            ends = (min(each), max(each)) if max(each) > min(each) else None
            rows.append(
                charts.Row(
                    name=a.title,
                    value=s.mean,
                    low=s.low,
                    high=s.high,
                    look=a.look,
                    text=text,
                    span=ends,
                )
            )
            numbers = {"mean": s.mean, "low": s.low, "high": s.high}
            numbers |= {"lowest": min(each), "highest": max(each), "n": len(each)}
            data.append({"scenario": c, "arm": a.name, **numbers})
            said.append(f"{a.title}: {text}, {cluster_verdict.alike(s.mean)} groups")
        if not rows:
            continue
        drawn.append(
            charts.figure(
                f"clusters-agreement-{c}",
                f"Are they the groups of pooled data? {title}" if len(run.scenarios) > 1
                else "Are they the groups of pooled data?",
                "Adjusted Rand index against all data in one place; bars are 95 % intervals over "
                "patients"
                + "; mean over repeats, the pale line goes from the lowest to the highest"
                * (run.repeats > 1),
                charts.interval_rows(
                    rows, "Adjusted Rand index", reference=0.0, domain=_domain(rows)
                ),
                data,
                f"{'; '.join(said)}.",
            )
        )  # fmt: skip
    return h("div", drawn) if drawn else None


def _domain(rows: list[charts.Row]) -> tuple[float, float]:
    """Return a domain from chance, or below, to the same groups."""
    return min(-0.05, *(v - 0.02 for r in rows for v in r.ends)), 1.04


def _sizes(run: Run, fit: Fit) -> Markup | None:
    """Return how many patients each cluster has, in all and at each hospital."""
    found = {int(r["cluster"]): r for r in clustered.rows(run, "clusters", fit)}
    if not found:
        return None
    at = {(str(r["site"]), int(r["cluster"])): r.get("n")
          for r in clustered.rows(run, "cluster_sites", fit)}  # fmt: skip
    sites = sorted(dict.fromkeys(s for s, _ in at), key=natural)
    shown = sites[:MOST_SITES]
    numbers = sorted(found)
    body = [["All hospitals", *(_share(found[c].get("n"), found[c].get("share")) for c in numbers)]]
    body += [[s, *(clustered.counted(at.get((s, c))) for c in numbers)] for s in shown]
    notes = [clustered.hidden_note(run, [r.get("n") for r in found.values()] + list(at.values()))]
    if len(sites) > MOST_SITES:
        notes.append(f"The other {len(sites) - MOST_SITES} hospitals are in results.json.")
    head = ["", *map(clustered.name, numbers)]
    caption = f"{clustered.title(run, fit)}: training patients in each cluster, first repeat"
    said = " ".join(n for n in notes if n)
    return h(
        "div",
        table(head, body, numeric=range(1, len(head)), caption=caption),
        p(said, class_="quiet") if said else None,
    )


def _share(n: object, share: object) -> str:
    """Return a size with its share of all patients."""
    part = number(share)
    return clustered.counted(n) + (f" ({words.percent(part)})" if part == part else "")


def cluster_survival(run: Run) -> Section | None:
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
    """Return one arm's fits, grouped by equal curves and test.

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
    """Return each cluster's survival and its time: the last point up to mid-follow-up."""
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


#: Metrics of this section, in order.
METRICS = ("accuracy", "ari", "nmi")


def cluster_confusion(run: Run) -> Section | None:
    """Return the table of each arm, where the study has classes."""
    body = clustered.folded(run, "cluster_confusion", lambda fit: _block(run, fit))
    if body is None:
        return None
    what = " ".join(
        f"{run.known(m).label}: {run.known(m).plain}" for m in METRICS if m in run.metrics
    )
    return Section(
        "cluster-classes", "Known classes", "Are the groups the classes that are known?",
        "Blind patients of the first repeat by their cluster and their known class, which had no "
        f"part in making the groups. {what}".strip(),
        body,
    )  # fmt: skip


def _block(run: Run, fit: Fit) -> Markup | None:
    """Return one fit's table, and its metrics."""
    found = clustered.rows(run, "cluster_confusion", fit)
    if not found:
        return None
    at = {(int(r["cluster"]), str(r["reference"])): r.get("n") for r in found}
    classes = list(dict.fromkeys(str(r["reference"]) for r in found))
    body = [
        [clustered.name(c), *(clustered.counted(at.get((c, name), 0)) for name in classes)]
        for c in clustered.clusters(found)
    ]
    arm, scenario = fit
    told = [
        f"{run.known(m).label} {words.estimate(s.mean, s.low, s.high, run.known(m).digits)}"
        for m in METRICS
        if (s := run.summary(arm.name, scenario, m)) is not None
    ]
    notes = ["; ".join(told) + " over all repeats (95 % intervals)." if told else ""]
    notes.append(clustered.hidden_note(run, list(at.values())))
    said = " ".join(n for n in notes if n)
    caption = f"{clustered.title(run, fit)}: blind patients by cluster and known class"
    return h(
        "div",
        table(["", *classes], body, numeric=range(1, len(classes) + 1), caption=caption),
        p(said, class_="quiet") if said else None,
    )
