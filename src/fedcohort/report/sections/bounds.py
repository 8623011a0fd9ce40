"""The bounds picture: isolated, each arm, centralised; a panel per scenario."""

from __future__ import annotations

import math

from fedcohort.report import words
from fedcohort.report.charts import Domain, Row, around, figure, interval_rows, wrapped
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Arm, Run, Summary
from fedcohort.report.sections.base import Section, key, more
from fedcohort.report.words import estimate, percent


def section(run: Run) -> Section | None:
    """Return the picture, and the tables with every metric."""
    if not run.rows("summary"):
        return None
    known = run.known()
    domain = _domain(run)
    intro = (
        f"{known.axis}, further {'right' if known.sign >= 0 else 'left'} is better. {known.plain} "
    )
    band = "The shaded band runs from one hospital alone to all data in one place"
    band *= run.lower is not None and run.upper is not None
    if run.deployed and run.upper is None:
        intro += _without_upper(run)
    elif band:
        intro += f"{band}: the further through it an arm lies, the more of the gap it closes."
    if not run.kind.closes:
        intro = (
            f"{known.axis}{_better(known.sign)}. {known.plain} {band}{'. ' * bool(band)}Groups may "
            "be tight without being the same: a hospital alone finds tight groups of its own. "
            "Whether pooled data give the same groups stands under “Clusters”."
        )
    intro = intro.rstrip()
    if run.mapping("evaluate").get("at_home"):
        intro += (
            " An arm here has a model for each hospital. So ranks of every arm compare patients of "
            "one hospital, and each hospital alone is judged on its own patients."
        )
    if any(words.number(s.get("low")) == words.number(s.get("low")) for s in run.rows("summary")):
        intro += " Bars are 95 % intervals."
    body = [] if known.is_p else [_figure(run, c, domain) for c in run.scenarios]
    return Section(
        "bounds",
        "The gap",
        "How close does training together come?",
        intro,
        h("div", *body, _every_metric(run), _comparisons(run)),
    )


def _better(sign: int) -> str:
    """Return the side of better values in a picture, if there is one."""
    return {1: ", further right is better", -1: ", further left is better"}.get(sign, "")


def _without_upper(run: Run) -> str:
    """Return the meaning of the lower bound over a network, and why there is no upper one."""
    out = (
        "There is no upper bound: a network exists to avoid pooling all data in one place. "
        "Public data, with the same study on one computer, show how near training together "
        "comes."
    )
    if run.lower is None:
        return out
    of_ranks = any(c.get("pairs") == "within" for c in run.rows("comparisons"))
    inside = (
        " Its patients are ordered within their hospital, by that hospital's model; in the table "
        "of differences so are the other arms'."
    )
    return (
        f"“{run.lower.title}” is the lower bound: each hospital's own model, judged on the "
        f"hospital's own blind patients.{inside if of_ranks else ''} {out}"
    )


def _domain(run: Run) -> Domain:
    """Return one domain for all figures; it starts at chance if that is near."""
    found = [s for a in run.arms for c in run.scenarios if (s := run.summary(a.name, c))]
    low, high = around([v for s in found for v in (s.mean, s.low, s.high)])
    chance = run.known().chance
    if chance is not None and found and 0 <= low - chance < 0.5 * (high - low):
        return chance, high
    return low, high


def _figure(run: Run, scenario: str, domain: Domain) -> Markup:
    """Return one scenario: a line an arm, the gap between the bounds behind them."""
    known = run.known()
    sites = run.sites(scenario)
    ends = [run.summary(b.name, scenario) for b in (run.lower, run.upper) if b]
    band = (ends[0].mean, ends[1].mean) if len(ends) == 2 and ends[0] and ends[1] else None
    rows = [_row(run, a, scenario) for a in run.arms]
    title = run.scenarios[scenario]
    said = "; ".join(f"{a.title} {_said(run, a, scenario)}" for a in run.arms)
    return figure(
        f"bounds-{scenario}",
        title,
        words.of(len(sites), "hospital") if sites else None,
        interval_rows(rows, known.axis, reference=known.chance, band=band, domain=domain),
        [_data(run, a, scenario) for a in run.arms],
        f"{known.axis}, mean with 95 % interval. {said}.",
    )


def _row(run: Run, arm: Arm, scenario: str) -> Row:
    """Return one arm: its interval and mark, its numbers, or why there are none."""
    found = run.summary(arm.name, scenario)
    if found is None:
        why = "\n".join(wrapped(_said(run, arm, scenario), 190, 3))
        return Row(name=arm.title, look=arm.look, text=why)
    text = estimate(found.mean, found.low, found.high, run.known().digits)
    closed = _share(run, arm, scenario)
    return Row(
        name=arm.title,
        value=found.mean,
        low=found.low,
        high=found.high,
        look=arm.look,
        text=f"{text}\n{closed}" if closed else text,
    )


def _said(run: Run, arm: Arm, scenario: str) -> str:
    """Return an arm's numbers as text, or why there are none."""
    found = run.summary(arm.name, scenario)
    if found is not None:
        return estimate(found.mean, found.low, found.high, run.known().digits)
    reasons = "; ".join(run.failures(arm.name, scenario))
    return f"failed: {reasons}" if reasons else "no value"


def _data(run: Run, arm: Arm, scenario: str) -> dict[str, object]:
    """Return one arm's line of the figure's data."""
    found = run.summary(arm.name, scenario)
    values = {k: getattr(found, k, None) for k in ("mean", "sd", "low", "high", "n")}
    names = {"scenario": scenario, "arm": arm.name, "title": arm.title, "metric": run.metric}
    share = run.share(arm.name, scenario) if arm in run.together else None
    return {**names, **values, "share_of_gap": share.value if share else None}


def _share(run: Run, arm: Arm, scenario: str) -> str | None:
    """Return the closed share of a clear gap; clusters have none."""
    if not run.kind.closes:
        return None
    share = run.share(arm.name, scenario) if arm in run.together else None
    if share is None or math.isnan(share.value):
        return None
    if share.gap.side < 1:  # nor where there is no interval
        return None
    if share.value <= -0.005:
        return "behind a hospital alone"
    how = "the whole" if share.value >= 0.995 else f"{percent(share.value)} of the"
    return f"closes {how} gap"


def _every_metric(run: Run) -> Markup:
    """Return a table for each metric: arms × scenarios."""
    tables: list[Markup] = []
    for m in run.metrics:
        known = run.known(m)
        body = [
            [key(a), *(_p_values(run, a, c, m) if known.is_p else
                       _cell(run.summary(a.name, c, m), known.digits) for c in run.scenarios)]
            for a in run.arms
        ]  # fmt: skip
        how = (run.mapping("evaluate").get("exactness") or {}).get(m)
        computed = f" Computed over the network: {how}." if how else ""
        shown = "lowest to highest over repeats" if known.is_p else "mean (95 % interval)"
        caption = f"{known.axis}: {shown}. {known.plain}{computed}".strip()
        tables.append(
            table(
                ["", *run.scenarios.values()],
                body,
                numeric=range(1, len(run.scenarios) + 1),
                caption=caption,
            )
        )
    return more("All metrics as tables", *tables)


def _cell(found: Summary | None, digits: int) -> str:
    return words.MISSING if found is None else estimate(found.mean, found.low, found.high, digits)


def _p_values(run: Run, arm: Arm, scenario: str, metric: str) -> str:
    """Return the lowest and highest p-value of the repeats."""
    found = run.values(arm.name, scenario, metric).values()
    ends = dict.fromkeys(words.p_value(p) for p in (min(found), max(found))) if found else ()
    return " to ".join(ends) or words.MISSING


def _comparisons(run: Run) -> Markup | None:
    """Return the study's paired comparisons, if it made some."""
    titles = {a.name: a.title for a in run.arms}
    body: list[list[str]] = []
    for c in run.rows("comparisons"):
        arm, against, scenario, name = (str(c[k]) for k in ("arm", "against", "scenario", "metric"))
        known = run.known(name)
        if known.is_p:
            continue
        found = run.difference(arm, against, scenario, name)
        sign = known.sign or 1
        low, high = sorted((sign * found.low, sign * found.high))
        body.append(
            [
                run.scenarios.get(scenario, scenario),
                f"{titles.get(arm, arm)} − {titles.get(against, against)}",
                known.axis,
                estimate(c.get("difference"), low, high, known.digits),
                words.p_value(c.get("p")),
            ]
        )
    if not body:
        return None
    head = ["Setting", "Difference", "Metric", "Estimate (95 % interval)", "p"]
    how = (
        "by draws of the blind patients, the same for both; fits stay as they are"
        if run.compared_by_patients
        else "paired by repeat; intervals allow for repeats that share patients"
    )
    caption = f"Differences between arms, {how}; p is not adjusted for the number of comparisons."
    if run.lower and any(c.get("pairs") == "within" for c in run.rows("comparisons")):
        caption += (
            f" Against “{run.lower.title}”, metrics of ranks are of pairs of patients of one "
            "hospital, on both sides."
        )
    return more("Differences between arms", table(head, body, numeric=(3, 4), caption=caption))
