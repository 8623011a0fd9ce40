"""What a network's results lack beside those of one computer, each part with its reason."""

from __future__ import annotations

from fedcohort.report.markup import table
from fedcohort.report.run import Run
from fedcohort.report.sections.base import Section


def section(run: Run) -> Section | None:
    """Return the parts and why they are absent; None of a run that lacks none."""
    rows = [[str(x["title"]), str(x["reason"])] for x in run.rows("left_out") if x.get("part")]
    if not rows:
        return None
    return Section(
        "absent", "Not computed", "What does this report lack?",
        "No row left its hospital, so that a network gives less than a study on one computer. The "
        "same study file over the hospitals' tables in one place has these parts, and the same "
        "models.",
        table(["Part", "Why it is absent"], rows, caption="Parts that are not computed"),
    )  # fmt: skip
