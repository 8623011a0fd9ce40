"""The steward's pages as HTML files to print and sign: one study, or all studies of the site.

One study: the page (`approval`), the decision with its hash, two blocks to sign, then all decisions
and the details. All studies: state of each, every decision (who, when, what, until when, runs left,
whether revoked) and the privacy budget. Neither loads anything, or holds a script or a table cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from fedcohort.network.state import decisions
from fedcohort.network.state.study_store import Entry, short
from fedcohort.network.steward import record
from fedcohort.network.steward.approval import Facts, Row, page
from fedcohort.network.steward.details import Row as Detail
from fedcohort.network.steward.record import Record
from fedcohort.report import words
from fedcohort.report.markup import Markup, filled, h, join, p, styles
from fedcohort.version import VERSION

#: Who signs on paper.
SIGNERS = ("Data steward", "Data protection officer")


def of_study(
    network: str,
    facts: Facts,
    made: Sequence[Record],
    left_out: int,
    details: Sequence[Detail],
    *,
    signed: bool,
) -> str:
    """Return the page on one study.

    Parameters
    ----------
    made, left_out : its decisions, and how many lines of its file are none.
    details : see `messages.in_rows`.
    signed : whether decisions here are signed by the site's steward.
    """
    name, study = facts.terms.plan.study, facts.entry.study
    top = [
        p(f"Network {network}, site {facts.site}", class_="kicker"),
        h("h1", f"Study {name}"),
        p("SHA-256 of the study's text: ", h("span", study, class_="hash"), class_="quiet"),
        h("dl", [_row(row) for row in page(facts)], class_="says"),
        _decision(facts, made[-1] if made else None, signed=signed),
    ]
    after = [
        *([h("h2", "All decisions on this study"), _decisions(made, left_out)] if made else []),
        h("h2", "Details"),
        h("dl", _details(details), class_="says details"),
    ]
    return _page(f"Study {name} at {facts.site}", join(top, h("section", after, class_="after")))


def of_site(
    network: str,
    site: str,
    entries: Sequence[Entry],
    made: Sequence[Record],
    left_out: int,
    account: Sequence[str],
    *,
    signed: bool,
) -> str:
    """Return the page of the whole desk.

    Parameters
    ----------
    made, left_out : all decisions, the earliest first, and how many lines of the files are none.
    account : the privacy budget, as lines.
    """
    how = "signed by its data steward" if signed else "made by its policy, without a signature"
    top = [
        p(f"Network {network}", class_="kicker"),
        h("h1", f"Studies at {site}"),
        p(f"As of {record.minute(decisions.now())} UTC. Decisions here are {how}.", class_="quiet"),
        h("h2", "Studies"),
        h("dl", [_study(e) for e in entries], class_="says")
        if entries
        else p("No study has come to this site."),
        h("h2", "All decisions"),
        _decisions(made, left_out) if made else p("None was made."),
        h("h2", "Privacy budget"),
        h("ul", [h("li", line.strip()) for line in account]),
    ]
    return _page(f"Studies at {site}", join(top))


def _row(row: Row | tuple[str, tuple[str, ...]]) -> Markup:
    head, lines, risk = (*row, False) if isinstance(row, tuple) else (row.head, row.lines, row.risk)
    return _pair(head, _paragraphs(lines), risk=risk)


def _pair(head: str, body: Sequence[Markup], *, risk: bool = False) -> Markup:
    class_ = "risk" if risk else None
    return join(h("dt", head, class_=class_), h("dd", body, class_=class_))


def _paragraphs(lines: Sequence[str]) -> list[Markup]:
    """Return paragraphs, those that begin with a hyphen as a list."""
    out: list[Markup] = []
    items: list[Markup] = []
    for line in lines:
        if line.startswith("- "):
            items.append(h("li", line[2:]))
            continue
        if items:
            out.append(h("ul", items))
            items = []
        out.append(p(line.strip(), class_="inner" if line.startswith(" ") else None))
    return [*out, h("ul", items)] if items else out


def _details(rows: Sequence[Detail]) -> list[Markup]:
    grouped: list[tuple[str, list[str]]] = []
    for head, text in rows:
        if head or not grouped:
            grouped.append((head, []))
        grouped[-1][1].append(text)
    return [_row((head.capitalize(), tuple(lines))) for head, lines in grouped]


def _decision(facts: Facts, last: Record | None, *, signed: bool) -> Markup:
    """Return the decision, and where it is signed on paper."""
    if last is None:
        said = [
            p("No decision has been made at the node yet."),
            p("☐ approved, until ____________________ for ______ runs", class_="boxes"),
            p("☐ refused, because ________________________________", class_="boxes"),
        ]
    else:
        by = "Signed with the steward's key" if signed else "Not signed: the policy approves here"
        said = [
            p(f"Decision {last.made.number}: {record.made(last.made, last.used)} (UTC); "
              f"{last.standing}."),
            p(f"{by}. SHA-256 of the decision's text: ", h("span", last.mark, class_="hash")),
        ]  # fmt: skip
    blocks = [
        h("div", h("h3", f"{who}, {facts.site}"), p("Name"), p("Place and date"), p("Signature"))
        for who in SIGNERS
    ]
    return h("section", h("h2", "Decision"), said, h("div", blocks, class_="signs"),
             class_="decision")  # fmt: skip


def _study(entry: Entry) -> Markup:
    who = f"{short(entry.study)}, asked by {entry.lead}, {record.minute(entry.first)}"
    body = [p(record.state(entry)), p(who, class_="quiet")]
    return _pair(entry.name, body, risk=entry.waits)


def _decisions(made: Sequence[Record], left_out: int) -> Markup:
    """Return all decisions: who, what, when, until when, runs left, whether it counts."""
    rows: list[Markup] = []
    for r in made:
        said = f"{r.entry.name} ({short(r.entry.study)}): {r.made.decision} by {r.made.by}"
        said += f": {r.made.reason}" if r.made.reason else ""
        good = f"Until {r.made.until}; {record.runs(r.made, r.used)}. " if r.made.until else ""
        standing = f"{good}Decision {r.made.number}: {r.standing}."
        mark = p("hash ", h("span", r.mark, class_="hash"), class_="quiet")
        rows.append(_pair(r.when, [p(said), p(standing), mark]))
    note = f"{words.of(left_out, 'line')} without a signature that counts here: left out."
    return join(h("dl", rows, class_="says"), p(note) if left_out else None)


def _page(title: str, body: Markup) -> str:
    css = resources.files("fedcohort.network.steward").joinpath("paper.css").read_text("utf-8")
    foot = h("footer", p(f"Written by fedcohort {VERSION}, "
                         f"{record.minute(decisions.now())} UTC."))  # fmt: skip
    body = h("main", body, foot, class_="sheet")
    return filled("base.html", title=title, css=styles() + Markup(css), body=body)
