"""States of studies at a site and all decisions on them, in words.

A decision counts until a later one on the same study replaces or revokes it, its last day, or its
last run. Its hash is the SHA-256 of the signed text (`decisions`), so that a printed page names
exactly one decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedcohort.network.state import study_store
from fedcohort.network.state.decisions import Decision
from fedcohort.network.state.study_store import Entry, StudyStore, short
from fedcohort.report import words

#: Of a decision that counts.
IN_FORCE = "in force"


@dataclass(frozen=True)
class Record:
    """One decision of a site.

    Attributes
    ----------
    used : runs that began under it.
    standing : whether it counts, and why not.
    mark : its hash.
    """

    entry: Entry
    made: Decision
    used: int
    standing: str
    mark: str

    @property
    def study(self) -> str:
        """The study's name, hash and lead."""
        return f"{self.entry.name} ({short(self.entry.study)}), of {self.entry.lead}"

    @property
    def when(self) -> str:
        """Day and time of the decision, in UTC."""
        return minute(self.made.at)


def records(
    store: StudyStore, today: StudyStore, study: str | None = None
) -> tuple[list[Record], int]:
    """Return the decisions that count or counted, the earliest first, and how many lines do not.

    Parameters
    ----------
    desk : by certificates that were good when a decision was made (`signatures.verifier`).
    today : the same, by certificates that are good now.
    study : its decisions alone.
    """
    found: list[Record] = []
    left_out = 0
    for entry in store.entries():
        if study not in (None, entry.study):
            continue
        made, rest = store.history(entry.study)
        left_out += rest
        for i, one in enumerate(made):
            later = made[i + 1] if i + 1 < len(made) else None
            found.append(
                Record(
                    entry, one, len(store.begun(entry.study, one)),
                    _standing(today, entry, one, later), store.mark(entry.study, one),
                )
            )  # fmt: skip
    return sorted(found, key=lambda r: (r.made.at, r.made.number, r.entry.study)), left_out


def _standing(today: StudyStore, entry: Entry, one: Decision, later: Decision | None) -> str:
    """Say whether a decision counts."""
    if later is not None:
        revoked = (one.decision, later.decision) == (study_store.APPROVED, study_store.REFUSED)
        verb = "revoked" if revoked else "replaced"
        return f"{verb} on {minute(later.at)} by decision {later.number}"
    if today.decision(entry.study) is None:
        return "no longer in force: the steward's certificate has ended"
    if one.decision == study_store.REFUSED:
        return IN_FORCE
    if entry.ended is not None:
        return f"the study ended: {study_store.said_of(entry.ended)}"
    why = today.lapse(entry.study, one)
    return f"no longer in force: {why}" if why else IN_FORCE


def made(one: Decision, used: int | None) -> str:
    """Say the decision, by whom, when, why and for how long."""
    said = f"{one.decision} by {one.by}, {minute(one.at)}"
    said += f": {one.reason.rstrip('.')}" if one.reason else ""
    if one.until:
        said += f", until {one.until}, {runs(one, used)}"
    return said


def runs(one: Decision, used: int | None) -> str:
    """Say for how many runs an approval is, and how many of them are left."""
    said = words.of(one.runs, "run")
    return said if used is None else f"{said} ({used} used, {max(one.runs - used, 0)} left)"


def state(entry: Entry) -> str:
    """Say where a study stands here: the decision on it, its run, its end."""
    one, end = entry.decision, entry.ended
    known = one is not None and end is not None and {one.decision, end.how} == {study_store.REFUSED}
    ended = "" if end is None or (known and end.here) else f"ended: {study_store.said_of(end)}"
    if one is None:
        return ended or "waiting for a decision"
    if entry.lapsed:
        return f"waiting for a decision again: {entry.lapsed}"
    running = ", runs now" if entry.running else ""
    return f"{made(one, entry.used)}{running}" + f"; {ended}" * bool(ended)


def minute(at: str) -> str:
    """Return a time as people write it, to the minute."""
    return at[:16].replace("T", " ")


def lines(found: list[Record], left_out: int, *, signed: bool) -> Iterator[str]:
    """Yield a site's decisions as paragraphs; those of one decision are indented.

    Parameters
    ----------
    signed : whether decisions at the site are signed by its steward.
    """
    if signed:
        yield "Each was signed by its data steward, and the signature is verified."
        if left_out:
            n = words.of(left_out, "line")
            yield f"Left out: {n} without a signature that counts here."
    else:
        yield "Its policy approves by itself, so that decisions here are not signed."
    for one in found:
        yield ""
        yield f"{one.when}  {one.study}"
        yield f"  {made(one.made, one.used)}"
        yield f"  decision {one.made.number}: {one.standing}"
        yield f"  hash {one.mark}"
    if not found:
        yield ""
        yield "None was made."
