"""TRIPOD+AI: what the run answers, and what a person must still write."""

from __future__ import annotations

from collections.abc import Sequence

from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Run
from fedcohort.report.sections.base import Section, more
from fedcohort.report.tripod.items import FILLED, PART, WRITE, Line, checklist

_WORDS = {FILLED: "filled", PART: "please complete", WRITE: "please write"}


def section(run: Run) -> Section | None:
    """Return the checklist; None of what predicts nothing, for which it is not made."""
    if run.task in ("clustering", "latent"):
        return None
    lines = checklist(run)
    n = {state: sum(line.state == state for line in lines) for state in _WORDS}
    return Section(
        "tripod", "TRIPOD+AI", "What must a paper about this model say?",
        f"The reporting guideline for prediction models (Collins et al., BMJ 385, 2024, e078378), "
        f"in our words. Of its {len(lines)} items the run fills {n[FILLED]} and begins {n[PART]}; "
        f"{n[WRITE]} are a person's to write.",
        more(f"The {len(lines)} items", _table(lines)),
    )  # fmt: skip


def _table(lines: Sequence[Line]) -> Markup:
    """Return the items with what the run answers."""
    return table(
        ["Item", "Asks for", "This study", ""],
        [_row(line) for line in lines],
        caption="TRIPOD+AI checklist",
        class_="checklist",
    )


def _row(line: Line) -> list[str | Markup]:
    name = h("span", line.number, h("small", line.topic))
    state = h("span", _WORDS[line.state], class_=f"state {line.state}")
    return [name, line.ask, line.text, state]
