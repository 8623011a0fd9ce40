"""Second consent: each hospital's place in the ranking, who withdrew, and what that cost.

Files: results.json, `consent`; `arms` and `summary` for what it cost. Grimberg, EPFL 2020, section
4.3. Over a network nothing was trained with a hospital that withdrew, so its cost is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcohort.report import words
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections.base import Section


def section(run: Run) -> Section | None:
    """Return places, withdrawals and their cost; None of a study with one consent."""
    told = run.mapping("consent")
    if not told:
        return None
    simulated = bool(told.get("simulated"))
    blocks = [_block(run, row, simulated) for row in told["scenarios"]]
    return Section(
        "consent", "Consent after the ranking", "Which hospitals went on after the ranking?",
        "Hospitals were ranked before training. Each was told its own place alone, and consented "
        "again or withdrew."
        + " The study file says who withdraws; every setting was run with all hospitals, and with "
        "those that went on." * simulated,
        h("div", *blocks),
    )  # fmt: skip


def _block(run: Run, row: Mapping[str, Any], simulated: bool) -> Markup:
    gone = dict(row["withdrew"])
    body = [_line(run, place, gone) for place in row["places"]]
    title = run.scenarios.get(str(row["scenario"]), str(row["scenario"]))
    head = ["Hospital", "Model", "Rank", "Value", "Loss without", "Loss with", "Answer"]
    return h(
        "div",
        p(h("b", title), ". ", _verdict(row, gone)),
        table(head, body, numeric=range(2, 6), caption=f"Places and answers, {title}")
        if body
        else None,
        p(
            "The loss is the user’s: without any other hospital (cross-validated), and by the "
            "hospital’s own model. Numbers have three significant digits, as the hospital was told."
        )
        if body
        else None,
        _cost(run, row) if simulated and gone else None,
    )


def _verdict(row: Mapping[str, Any], gone: Mapping[str, str]) -> str:
    if row["failed"]:
        return str(row["failed"])
    if not gone:
        return "All hospitals consented again."
    said = [f"{site} ({why.rstrip('.')})" for site, why in gone.items()]
    return f"Withdrew: {words.listed(said)}."


def _line(run: Run, place: Mapping[str, Any], gone: Mapping[str, str]) -> list[str]:
    titles = {a.name: a.title for a in run.arms}
    rank = "the user" if place["user"] else "not ranked"
    if place["rank"] is not None:
        rank = f"{place['rank']} of {place['of']}"
    numbers = [_number(place[k]) for k in ("value", "loss_without", "loss_with")]
    answer = "withdrew" if place["site"] in gone else "consented"
    title = titles.get(str(place["arm"])) or str(place["arm"])
    return [str(place["site"]), title, rank, *numbers, answer]


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:.3g}".replace("-", "−")


def _cost(run: Run, row: Mapping[str, Any]) -> Markup | None:
    """Return each arm's metrics with all hospitals, and with those that went on."""
    before, after = str(row["scenario"]), str(row["after"])
    body: list[list[str]] = []
    for arm in run.arms:
        for name in run.metrics:
            known = run.known(name)
            one, other = (run.summary(arm.name, c, name) for c in (before, after))
            if known.is_p or one is None or other is None:
                continue
            change = other.mean - one.mean
            numbers = (words.fixed(v, known.digits) for v in (one.mean, other.mean, change))
            body.append([arm.title, known.axis, *numbers])
    if not body:
        return None
    head = ["Model", "Metric", "All hospitals", "Those that went on", "Change"]
    return table(head, body, numeric=range(2, 5), caption="What the withdrawal cost")
