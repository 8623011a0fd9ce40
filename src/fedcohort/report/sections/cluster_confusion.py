"""Clusters against the classes that are known: a table of counts, small ones hidden."""

from __future__ import annotations

from fedcohort.report import words
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections import clustered
from fedcohort.report.sections.base import Section
from fedcohort.report.sections.clustered import Fit

#: Metrics of this section, in order.
METRICS = ("accuracy", "ari", "nmi")


def section(run: Run) -> Section | None:
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
