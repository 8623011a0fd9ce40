"""Accuracy over time: the Brier score of the predicted curves along the follow-up."""

from __future__ import annotations

from fedcohort.report.markup import Markup, h
from fedcohort.report.run import Run
from fedcohort.report.sections.base import Section
from fedcohort.report.sections.discrimination import over_time


def section(run: Run) -> Section | None:
    """Return the Brier score over follow-up, where the run has it."""
    drawn: Markup | None = over_time(run, "brier", "Brier score")
    if drawn is None:
        return None
    return Section(
        "accuracy", "Accuracy over time", "How far are predicted curves from what happened?",
        "The Brier score is the mean squared distance between the predicted chance to be free of "
        "the event and what was seen, weighted for patients who left early: 0 is perfect, and a "
        "coin gives 0.25. It joins discrimination and calibration.",
        h("div", drawn),
    )  # fmt: skip
