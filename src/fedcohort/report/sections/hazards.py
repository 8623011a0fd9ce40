"""Proportional hazards: whether each hazard ratio stays the same along the follow-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedcohort.report import words
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Arm, Run
from fedcohort.report.sections.base import Section, key, leading_open, more

#: Below this p-value a line is marked.
DOUBT = 0.05
#: Of more lines than this, only those in doubt stand open.
SHOWN = 15


def section(run: Run) -> Section | None:
    """Return the test of each arm that has one, of its model."""
    blocks = [(a, b) for a in run.arms if (b := _block(run, a)) is not None]
    if not blocks:
        return None
    return Section(
        "hazards", "Proportional hazards", "Does the effect of a covariate last?",
        "A hazard ratio is one number for the whole follow-up. The score test of Grambsch and "
        "Therneau asks whether it changes with time; a small p says that one number is too few. "
        "With many patients even a change of no importance has a small p: look at the risk groups "
        "as well.",
        h("div", leading_open(run, blocks)),
    )  # fmt: skip


def _block(run: Run, arm: Arm) -> Markup | None:
    shown = run.model_rows("proportional_hazards", arm.name)
    if not shown:
        return None
    doubted = [r for r in shown if words.number(r.get("p")) < DOUBT]
    single = [str(r["covariate"]) for r in doubted if r["covariate"] != "global"]
    said = (
        f"In doubt (p < {DOUBT:g}): {words.listed([words.spaced(c) for c in single])}. "
        "A stratified baseline, an interaction with time or a shorter horizon may fit better."
        if single
        else "No covariate is in doubt."
    )
    head = ["Covariate", "χ²", "df", "p"]
    caption = f"Score test, {arm.title}"
    open_, folded = shown, list[Mapping[str, Any]]()
    if len(shown) > SHOWN:  # those in doubt are what a reader needs, of many
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
            h("small", run.model_title(arm.name, "proportional_hazards")),
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
