"""Protections: which were on, what each prevents and does not, and audits.

Findings of `fedcohort audit` on this run stand below the table (`audit.json`, beside the results).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from fedcohort.protocol.errors import DataError
from fedcohort.report import words
from fedcohort.report.disclosure import Sent, federated, sent
from fedcohort.report.markup import Markup, h, p, table
from fedcohort.report.run import Run
from fedcohort.report.sections.base import Section

#: File of `fedcohort audit`, and the names of audits here.
AUDITS = "audit.json"
WHAT: Mapping[str, str] = {
    "inversion": "Records from a message",
    "membership": "Who was trained on",
    "epsilon": "ε from below",
    "linkage": "Patients from curves",
}


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
        "No protection covers everything. Each row states its limits; agreements between "
        "hospitals must settle the rest.",
        h(
            "div",
            table(head, body, spoken="Protections of the study", class_="wide even"),
            _governed(run),
            _tested(run),
        ),
    )


def _governed(run: Run) -> Markup | None:
    """Return the study's purpose and legal basis; None if it states none."""
    said = governed(run)
    if not said:
        return None
    caption = "The study's statements on its purpose, and on the use of its results"
    return table(["", "In the study's words"], said, caption=caption)


def governed(run: Run) -> list[list[str | Markup]]:
    """Return each statement under `governance`, by its label."""
    told = run.mapping("governance")
    return [[label, str(told[key])] for key, label in words.GOVERNANCE.items() if key in told]


def _tested(run: Run) -> Markup:
    """Return the findings of this run's audits, or that there were none."""
    found = _audits(run.folder / AUDITS)
    if not found:
        return p(
            "No attack was tried on this run. ",
            h("code", "fedcohort audit"),
            " tries four of them on a run with simulated sites.",
            class_="quiet",
        )
    titles = {a.name: a.title for a in run.arms}
    rows = [
        [
            h("strong", WHAT[audit]),
            titles.get(str(told.get("arm")), str(told.get("arm") or "the run")),
            str(told.get("verdict") or ""),
            h("span", "yes" if told.get("alarm") else "no", class_=_badge(told)),
        ]
        for audit, told in found.items()
    ]
    return h(
        "div",
        table(["Audit", "Of", "What was found", "Alarm"], rows, caption="Tested on this run"),
        p("An attack that found nothing is no proof that none can.", class_="quiet"),
    )


def _badge(told: Mapping[str, Any]) -> str:
    return "badge seen" if told.get("alarm") else "badge"


def _audits(path: Path) -> dict[str, Mapping[str, Any]]:
    """Return the findings by audit, in the order of `WHAT`; none where there is no file.

    Raises
    ------
    DataError : the file cannot be read, or is no file of audits.
    """
    if not path.exists():
        return {}
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(f"{path}: this file is damaged; move it away.") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: this is no file of audits; move it away.")
    of = cast("dict[str, Any]", content)
    return {audit: of[audit] for audit in WHAT if isinstance(of.get(audit), dict)}


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
        "The information in the sum itself; replies that are visible one by one; a majority of "
        "hospitals that collude with the coordinator; two sums over hospitals that differ by "
        "one.",
    )


def _noise(run: Run, lines: list[Sent]) -> _Row:
    asked: Mapping[str, Any] = run.mapping("privacy").get("dp") or {}
    noisy = {s.arm for s in lines if s.noise}
    fits = {s.arm for s in lines if "fit" in s.phases}
    how = "no noise was added"
    if noisy and asked:
        unit = "hospital" if asked.get("unit") == "site" else "patient"
        spent, chance = (words.number(asked.get(name)) for name in ("epsilon", "delta"))
        how = f"ε {spent:g}, δ {chance:g}, of each {unit}, in each fit"
    return _Row(
        "Differential privacy",
        None if noisy and noisy < fits else bool(noisy),
        how,
        "A holder of the model, or of all replies of its fit, finding out whether one patient "
        "was in it, or details of that patient's record that others' records do not reveal.",
        "Properties shared by a group; conclusions from others' records; Table 1 and the counts "
        "of patients and events, which are exact, also of patients trained on; metrics of "
        "patients held out, which are exact.",
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
    """Return the protections of every run."""
    rows = [
        _Row(
            "Rows stay",
            True,
            "no step replies a row; each reply's shape and type are checked before it leaves",
            "Copies of records lying at other places.",
            "Numbers from which a record can be reconstructed; see the rows above.",
        ),
        _Row(
            "Checked replies",
            True,
            "non-finite numbers and impossible shapes and counts are refused",
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
                "An eavesdropper; a coordinator that makes other requests than the study.",
                "A coordinator choosing the numbers that the study leaves open.",
            )
        )
    return rows
