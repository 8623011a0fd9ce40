"""TRIPOD+AI items and their state for a run.

Collins et al., "TRIPOD+AI statement: updated guidance for reporting clinical prediction models that
use regression or machine learning methods", BMJ 385, 2024, e078378: 27 items, 52 with their parts.
They are worded here by us; the statement itself rules. An item is

    filled     the run knows the whole answer, and gives it;
    part       the run gives what it knows, a person must add the rest;
    write      only a person can answer.

Nothing is guessed: a key missing from results.json turns an item into "write".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedcohort.report.run import Run
from fedcohort.report.tripod import answers

FILLED, PART, WRITE = "filled", "part", "write"


@dataclass(frozen=True)
class Item:
    """One line of the checklist.

    Attributes
    ----------
    number, topic : as in the statement.
    ask : its question.
    answer : the run's answer, or None.
    whole : such an answer is complete.
    """

    number: str
    topic: str
    ask: str
    answer: Callable[[Run], str | None] | None = None
    whole: bool = False


@dataclass(frozen=True)
class Line:
    """An item with its answer for one run; `state` is FILLED, PART or WRITE."""

    number: str
    topic: str
    ask: str
    state: str
    text: str


def checklist(run: Run) -> list[Line]:
    """Return all 52 lines for a run."""
    lines: list[Line] = []
    for item in ITEMS:
        text = item.answer(run) if item.answer else None
        state = WRITE if not text else FILLED if item.whole else PART
        lines.append(Line(item.number, item.topic, item.ask, state, text or ""))
    return lines


ITEMS: Sequence[Item] = (
    Item("1", "Title", "What is developed or evaluated, for whom, which outcome.", answers.title),
    Item("2", "Abstract", "A structured abstract by TRIPOD+AI's own list."),
    Item("3a", "Background", "The clinical context, why a model, which ones exist."),
    Item("3b", "Background", "For whom the model is, where in care, who uses it."),
    Item("3c", "Background", "Health inequalities known between groups of people."),
    Item("4", "Objectives", "Development, evaluation, or both.", answers.objective),
    Item(
        "5a",
        "Data",
        "Sources for development and for evaluation, and how representative.",
        answers.source,
    ),
    Item("5b", "Data", "When patients were included and followed up."),
    Item("6a", "Participants", "Setting, number and place of the centres.", answers.centres),
    Item("6b", "Participants", "Who was eligible.", answers.eligible),
    Item("6c", "Participants", "Treatments received, and how they were handled."),
    Item(
        "7",
        "Data preparation",
        "Checks and preprocessing, alike for all groups.",
        answers.preparation,
    ),
    Item(
        "8a", "Outcome", "Its definition, horizon, how and when it was assessed.", answers.outcome
    ),
    Item("8b", "Outcome", "Who assessed it, where judgement was needed."),
    Item("8c", "Outcome", "Whether assessors were blinded."),
    Item("9a", "Predictors", "How candidates were chosen before modelling.", answers.predictors),
    Item("9b", "Predictors", "Definition of each, how and when measured.", answers.defined),
    Item("9c", "Predictors", "Who measured, where judgement was needed."),
    Item("10", "Sample size", "How it came about, and whether it is enough.", answers.size),
    Item(
        "11",
        "Missing data",
        "How they were handled, and why rows were left out.",
        answers.missing,
        True,
    ),
    Item("12a", "Analysis", "How data served development and evaluation.", answers.partition, True),
    Item("12b", "Analysis", "Form and scaling of predictors.", answers.handled, True),
    Item(
        "12c", "Analysis", "Type of model, steps, tuning, internal validation.", answers.model, True
    ),
    Item("12d", "Analysis", "Heterogeneity between centres.", answers.clusters, True),
    Item("12e", "Analysis", "Measures and plots of performance.", answers.measures, True),
    Item("12f", "Analysis", "Updating of the model after evaluation."),
    Item("12g", "Analysis", "How predictions were computed.", answers.calculated, True),
    Item("13", "Class imbalance", "Methods against it, if any.", answers.imbalance, True),
    Item("14", "Fairness", "What was done for it, and why."),
    Item(
        "15",
        "Model output",
        "Probabilities or classes; thresholds and their reason.",
        answers.output,
        True,
    ),
    Item(
        "16",
        "Training and evaluation",
        "Differences between the two sets of data.",
        answers.same,
        True,
    ),
    Item("17", "Ethics", "Approval, consent or waiver.", answers.ethics),
    Item("18a", "Open science", "Funding."),
    Item("18b", "Open science", "Conflicts of interest."),
    Item("18c", "Open science", "Where the protocol is."),
    Item("18d", "Open science", "Registration."),
    Item("18e", "Open science", "Availability of the data."),
    Item("18f", "Open science", "Availability of the code.", answers.code, True),
    Item("19", "Patients and public", "Their part in the research."),
    Item("20a", "Participants", "Flow, numbers with the outcome, follow-up.", answers.flow, True),
    Item(
        "20b",
        "Participants",
        "Characteristics by source, with missing values.",
        answers.table_one,
        True,
    ),
    Item(
        "20c",
        "Participants",
        "Predictors in development and evaluation compared.",
        answers.same,
        True,
    ),
    Item("21", "Development", "Rows and events in each analysis.", answers.analysed, True),
    Item("22", "Specification", "The full model, for use by others.", answers.specified, True),
    Item(
        "23a",
        "Performance",
        "Estimates with intervals, also in key subgroups.",
        answers.performance,
    ),
    Item("23b", "Performance", "Heterogeneity between centres.", answers.heterogeneity, True),
    Item("24", "Updating", "Its results, if a model was updated."),
    Item("25", "Interpretation", "What the results mean, fairness included."),
    Item(
        "26", "Limitations", "Representativeness, size, overfitting, missing data.", answers.limits
    ),
    Item(
        "27a", "Usability", "What happens with poor or missing input in care.", answers.poor_input
    ),
    Item("27b", "Usability", "Who handles input and output, with what expertise."),
    Item("27c", "Usability", "Next steps for research."),
)
