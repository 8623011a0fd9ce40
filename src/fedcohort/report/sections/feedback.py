"""Feedback: for each hospital, what is off in its data against the others', and what to record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedcohort.report import words
from fedcohort.report.disclosure import natural
from fedcohort.report.markup import Markup, h, p
from fedcohort.report.run import Run
from fedcohort.report.sections.base import Section


def section(run: Run) -> Section | None:
    """Return the remarks by hospital, or None where the study did not ask."""
    found = run.mapping("feedback")
    if not found:
        return None
    remarks: Sequence[Mapping[str, Any]] = found.get("remarks") or ()
    sites = sorted(map(str, found.get("sites") or ()), key=natural)
    few = sorted(map(str, found.get("few") or ()), key=natural)
    if found.get("kept"):
        return _kept(found, sites, few)
    quiet = [s for s in sites if s not in few and all(r["site"] != s for r in remarks)]
    body: list[Markup] = []
    for site in sites:
        own = [r for r in remarks if r["site"] == site]
        if own:
            lines = (h("li", _line(r)) for r in own)
            body += [h("h3", site), h("ul", lines)]
    if quiet:
        body.append(p(f"Nothing is off at {words.listed(quiet)}."))
    body += _without(found, few)
    return Section(
        "feedback",
        "Feedback",
        "What should each hospital look at?",
        "Each hospital compared its own rows with what the others have in common, and says which "
        "columns are off, beyond what hospitals differ by; then what it does not record, and by "
        "how much a linear model would lose less with it. A line is a question to whoever knows "
        "the data, not a verdict.",
        h("div", body),
    )


def _kept(found: Mapping[str, Any], sites: Sequence[str], few: Sequence[str]) -> Section:
    """Return who was given feedback, where each hospital keeps its own to itself."""
    heard = [s for s in sites if s not in few]
    away = sorted(map(str, found.get("left_out") or ()), key=natural)
    body: list[Markup] = []
    if heard:
        body.append(p(f"Given to {words.listed(heard)}."))
    body += _without(found, few, away)
    return Section(
        "feedback",
        "Feedback",
        "What should each hospital look at?",
        "Each hospital compared its own rows with what the others have in common. What it found is "
        "written at its own node, in the folder state/feedback, for the people there; neither the "
        "coordinator nor this report has any of it.",
        h("div", body),
    )


def _without(
    found: Mapping[str, Any], few: Sequence[str], away: Sequence[str] = ()
) -> Iterator[Markup]:
    """Yield who was not compared, and why there is no feedback at all."""
    if few:
        yield p(f"Too few rows to be compared: {words.listed(few)}.")
    if away:
        yield p(f"Not compared, as they did not answer: {words.listed(away)}.")
    if found.get("note"):
        yield p(f"There is no feedback: {found['note']}")


def _line(remark: Mapping[str, Any]) -> str:
    """Return a remark without the site, which stands above it."""
    text, head = str(remark["line"]), f"{remark['site']}: "
    return text.removeprefix(head)
