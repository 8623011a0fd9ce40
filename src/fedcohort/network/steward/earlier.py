"""Earlier studies at a site that share columns or rows with a new one, and what left in them.

What two studies of the same patients reveal adds up. A study is earlier if a run began or a reply
left, under any decision. Columns are read from the signed texts, replies from the site's ledger,
patients from the cohort ledger (`cohorts`): their number and, if a check reads the table again, how
many of them are in it.

Revealed: nothing leaves the site.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedcohort.network.state import cohorts
from fedcohort.network.state import ledger as node_ledger
from fedcohort.network.state.policy import Asked
from fedcohort.network.state.study_store import StudyStore
from fedcohort.network.study_offer import Offer
from fedcohort.protocol import registry
from fedcohort.protocol.errors import FedcohortError
from fedcohort.study.file.terms import Terms


@dataclass(frozen=True)
class Earlier:
    """One earlier study here.

    Attributes
    ----------
    study : its hash; the study itself if it ran before.
    columns : shared with the new study, in the new study's order.
    methods : titles of its methods; () if its text cannot be read.
    runs : that began here.
    replies, own : all replies that left; those of the site's own numbers.
    last : time of the last reply; "" if none left.
    rows : its number of patients; None if not noted.
    shared : how many of them are in the new study; None if not checked.
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
    store: StudyStore,
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
    dataset : data set of the cohort ledger.
    study, columns : hash and all columns of the new study.
    marks : of its rows, if the table was read for it (`cohorts.digests`).
    """
    left = node_ledger.totals(state / "ledger.jsonl")
    rows = cohorts.seen(state, dataset, marks)
    found: list[Earlier] = []
    for entry in store.entries():
        sent, runs = left.get(entry.study, node_ledger.NOTHING), store.runs(entry.study)
        if (not sent.replies and not runs) or store.first_of(entry.study):
            continue  # nothing left, or a second consent
        asked, methods = _asked(store, entry.study)
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


def _asked(store: StudyStore, study: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the columns and the methods of a study on the desk; none where it cannot be read."""
    try:
        terms = Terms.from_json(Offer.from_bytes(store.offer(study)).terms)
        asked = Asked.of(terms.plan, terms.dictionary, terms.outcome)
        return frozenset(asked.columns), tuple(registry.find(m).title for m in asked.methods)
    except (FedcohortError, OSError):
        return frozenset(), ()
