"""Earlier studies at a site that a new one overlaps with: same columns, same rows, what left.

What two studies over the same patients reveal adds up, so whoever decides on the second reads of
the first. Earlier are studies of which a run began or a reply left, under whichever decision. Their
columns are those of the signed texts on the desk, their replies those of the site's ledger, and
their patients those of the cohort ledger (`cohorts`): how many, and, where the table is read again
for a check, how many of them are in it.

Revealed: nothing leaves; this is for people at the site, of the site's own files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedcohort.network.node import cohorts
from fedcohort.network.node import ledger as node_ledger
from fedcohort.network.node.policy import Asked
from fedcohort.network.steward.desk import Desk
from fedcohort.network.study_offer import Offer
from fedcohort.protocol import registry
from fedcohort.protocol.errors import FedcohortError
from fedcohort.study.file.terms import Terms


@dataclass(frozen=True)
class Earlier:
    """One earlier study here.

    Attributes
    ----------
    study : its hash; the study itself where it ran before.
    columns : those of the new study that it read too, in the new study's order.
    methods : titles of its methods; () where its text cannot be read.
    runs : that began here.
    replies, own : that left in all, and of them those that told the site's own numbers.
    last : when the last of them left; "" where none did.
    rows : patients it was over; None where none are noted.
    shared : how many of them are in the new study; None where nobody looked.
    """

    study: str
    name: str
    lead: str
    columns: tuple[str, ...]
    methods: tuple[str, ...]
    runs: int
    replies: int
    own: int
    last: str
    rows: int | None = None
    shared: int | None = None


def earlier(
    desk: Desk,
    state: Path,
    dataset: str,
    study: str,
    columns: Sequence[str],
    marks: Sequence[bytes] = (),
) -> list[Earlier]:
    """Return the earlier studies that share a column or a patient with one, the latest first.

    Parameters
    ----------
    state : the node's folder.
    dataset : whose cohort ledger counts.
    study, columns : the new one's hash, and all columns that it names.
    marks : of its rows, where the table was read for it (`cohorts.digests`).
    """
    left = node_ledger.totals(state / "ledger.jsonl")
    rows = cohorts.seen(state, dataset, marks)
    found: list[Earlier] = []
    for entry in desk.entries():
        sent, runs = left.get(entry.study, node_ledger.NOTHING), desk.runs(entry.study)
        if not sent.replies and not runs:
            continue
        asked, methods = _asked(desk, entry.study)
        shared = tuple(c for c in columns if c in asked)
        size, same = rows.get(entry.study, (None, None))
        if shared or same:
            found.append(
                Earlier(
                    entry.study, entry.name, entry.lead, shared, methods, runs,
                    sent.replies, sent.own, sent.last, size, same if marks else None,
                )
            )  # fmt: skip
    return sorted(found, key=lambda e: e.last, reverse=True)


def _asked(desk: Desk, study: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the columns and the methods of a study on the desk; none where it cannot be read."""
    try:
        terms = Terms.from_json(Offer.from_bytes(desk.offer(study)).terms)
        asked = Asked.of(terms.plan, terms.dictionary, terms.outcome)
        return frozenset(asked.columns), tuple(registry.find(m).title for m in asked.methods)
    except (FedcohortError, OSError):
        return frozenset(), ()
