"""Which protections were on, what each protects from, and what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fedcohort.report import words
from fedcohort.report.disclosure import Sent, federated, sent
from fedcohort.report.markup import Markup, h, table
from fedcohort.report.run import Run
from fedcohort.report.sections.base import Section


class _Row(NamedTuple):
    """One protection: whether it was on, in how much; against what it helps, and not."""

    name: str
    on: bool | None
    how: str
    helps: str
    not_: str


def section(run: Run) -> Section | None:
    """Return the table of protections; None where nothing left a site."""
    lines = federated(run, sent(run.folder))
    if not lines:
        return None
    rows = [_masks(run, lines), _noise(run, lines), _cells(run), *_always(run)]
    body = [[h("strong", r.name), _state(r), r.helps, r.not_] for r in rows]
    head = ["Protection", "In this study", "What it protects from", "What it does not"]
    return Section(
        "protections",
        "Protections",
        "Which protections were on?",
        "No protection helps against everything. Each row says where it ends; what they leave open "
        "is for agreements between hospitals to settle.",
        table(head, body, spoken="Protections of the study", class_="wide"),
    )


def _state(row: _Row) -> Markup:
    """Return whether a protection was on, and how."""
    word = {True: "on", False: "off", None: "in part"}[row.on]
    badge = h("span", word, class_="badge" if row.on else "badge seen")
    return h("span", badge, h("small", row.how))


def _masks(run: Run, lines: list[Sent]) -> _Row:
    summed = [s for s in lines if s.verb == "sum"]
    masked, calls = sum(s.masked for s in summed), sum(s.calls for s in summed)
    on = None if 0 < masked < calls else masked > 0
    if masked:
        how = f"{words.percent(masked / calls)} of the replies to sums"
    elif run.deployed:
        how = "each hospital's own part reached the coordinator"
    else:
        how = "a simulation in one process, where there is nobody to hide from; over a network "
        how += "sums of three and more hospitals are masked"
        if run.mapping("privacy").get("secure_aggregation") is False:
            how = "switched off in the study file"
    return _Row(
        "Masked sums",
        on,
        how,
        "A coordinator that is curious, or broken into, reading one hospital's part of a sum.",
        "What the sum itself tells; replies that are visible one by one; a majority of hospitals "
        "that work together with the coordinator; two sums over hospitals that differ by one.",
    )


def _noise(run: Run, lines: list[Sent]) -> _Row:
    asked: Mapping[str, Any] = run.mapping("privacy").get("dp") or {}
    noisy = {s.arm for s in lines if s.noise}
    fits = {s.arm for s in lines if "fit" in s.phases}
    how = "no noise was added"
    if noisy and asked:
        unit = "hospital" if asked.get("unit") == "site" else "patient"
        how = f"ε {asked.get('epsilon')}, δ {asked.get('delta')}, of each {unit}, in each fit"
    return _Row(
        "Differential privacy",
        None if noisy and noisy < fits else bool(noisy),
        how,
        "Anybody who has the model, or all that left, finding out whether one patient was in it, "
        "or what that patient's record says beyond what others tell.",
        "What a group has in common; what others' records tell of a patient; metrics, which are "
        "exact counts of patients held out.",
    )


def _cells(run: Run) -> _Row:
    least = words.number(run.mapping("privacy").get("min_cell"))
    return _Row(
        "No small groups",
        least > 1,
        f"no count of 1 to {words.count(least - 1)} patients" if least > 1 else "all are told",
        "Someone who knows a patient finding them alone in a cell of a table, a step of a curve "
        "or an interval of a grid.",
        "Several studies of patients who are nearly the same, where no one compares them; "
        "a site with a network's node does.",
    )


def _always(run: Run) -> list[_Row]:
    """Return what is on in every run."""
    rows = [
        _Row(
            "Rows stay",
            True,
            "no step replies a row; each reply's shape and type are checked before it leaves",
            "Copies of records lying at other places.",
            "Numbers from which a record can be worked out; the rows above are for these.",
        ),
        _Row(
            "Checked replies",
            True,
            "numbers that are not finite, shapes and counts that cannot be are turned down",
            "A site with a fault, or a hostile one, spoiling the model with impossible numbers.",
            "Wrong numbers that look right, unless the study aggregates robustly; and under masks "
            "a site's own check is the only one.",
        ),
    ]
    if run.deployed:
        rows.append(
            _Row(
                "Sealed channel, approved study",
                True,
                "each message is encrypted between the node and the coordinator; each node ran "
                "what its steward or its rules accepted",
                "Someone on the way; a coordinator that asks for something else than the study.",
                "A coordinator choosing the numbers that the study leaves open.",
            )
        )
    return rows
