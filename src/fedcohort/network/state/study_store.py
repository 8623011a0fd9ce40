"""Studies offered to a site, and the decisions on them, in files of the node and the steward.

A study is named by the SHA-256 of its text, so a decision is about that text alone. One folder
each:

    offer            the study as its lead signed it
    study.json       name, lead, time of the first offer
    decisions.jsonl  one line per decision; the valid one with the highest number counts
    fit.json         columns and rules that the site's table does not meet
    run.json         whether its run is open, its mark, digest of the table at its start
    again.json       the ranking that this run told the site: its hash, the run's mark
    end.json         how it ended, by the coordinator's word: shown; it decides nothing
    withdrawal.json  this site's signed withdrawal from it (`withdrawals`); no call is answered then

`decided.sqlite`, outside these folders, holds the highest number of each study's signed decisions
and the runs that began under each.

If the policy asks for a steward, a decision counts only with the signature of this site's steward
over (network, site, study, number, decision, reason, time, last day, number of runs): write access
to these files does not suffice to approve a study. A decision below the highest number seen does
not count: deleting the last lines restores no old approval, unless `decided.sqlite` is changed too.

A second consent, after a ranking, is a study of its own here, named by the hash of the ranking's
text (`study.at_site.ranked`): the decisions on it are made, signed and kept alike. Its folder holds
`ranking.json`, that text. No call is answered under its name.

No file holds a table cell.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

from fedcohort.network.requests import CANCELLED, DONE, FAILED, WITHOUT, is_hash
from fedcohort.network.state import decisions
from fedcohort.network.state.decisions import APPROVED, REFUSED, WAITING, Counted, Decision, now
from fedcohort.network.state.durable import write
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.study.at_site.ranked import mark_of

__all__ = [
    "APPROVED",
    "POLICY",
    "REFUSED",
    "WAITING",
    "Decision",
    "StudyStore",
    "Entry",
    "now",
    "short",
]

#: Ends of a study, as the coordinator reports them.
ENDS = (DONE, FAILED, CANCELLED, REFUSED, WITHOUT)
#: Who decides where no steward needs to.
POLICY = "policy"
#: More studies than this do not wait at one desk.
MOST_WAITING = 200
#: And more than these are not kept, decided or not.
MOST_KEPT = 5000
#: Studies of one lead that did not fit a site's table, after which a steward decides on those that
#: the site's policy would approve: each tells one fact of the table (`StudyStore.tries`).
MOST_UNFIT = 10
#: The longest reason that a steward can give.
LONGEST_REASON = 500
#: How many characters of a hash are shown, and how few are enough to name a study.
SHOWN, SHORTEST = 12, 4

#: A longer file of decisions was not written by these commands.
_MOST_BYTES = 1 << 22

#: (text that was signed, signature, certificate, name of the signer) → whether it counts.
Verify = Callable[[bytes, bytes, bytes, str], bool]
#: Text to sign → signature and certificate.
Sign = Callable[[bytes], tuple[bytes, bytes]]


def short(study: str) -> str:
    """Return the beginning of a hash, as people see it."""
    return study[:SHOWN]


def said_of(end: End | None) -> str:
    """Say how a study ended: "failed, site 'south' did not answer"."""
    if end is None:
        return ""
    reason = f", {end.reason.rstrip('.')}" if end.reason else ""
    if end.how == WITHOUT:
        return f"it went on without this site{reason}"
    return f"{end.how}{' elsewhere' * (end.how == REFUSED and not end.here)}{reason}"


def note_config(state: Path, config: Path) -> None:
    """Note in a node's state which configuration it started with, for the steward's commands."""
    write(state / "config.json", json.dumps({"path": str(config.resolve())}).encode())


def noted_config(state: Path) -> Path | None:
    """Return the configuration that a node started with last; None if it never did."""
    path = _read(state / "config.json").get("path")
    return Path(path) if isinstance(path, str) else None


class Noted(NamedTuple):
    """The node's note of a study's run.

    Attributes
    ----------
    open : whether calls may come.
    table : digest of the table at its start.
    mark : of this run; "" without one. A later run of the study has another.
    """

    open: bool = False
    table: str | None = None
    mark: str = ""


@dataclass(frozen=True)
class End:
    """How a study ended, by the coordinator: one of `ENDS`, the reason, the message's time.

    Attributes
    ----------
    here : whether the reason names this site.
    """

    how: str
    reason: str
    at: str
    here: bool = False


@dataclass(frozen=True)
class Entry:
    """One study at this site.

    Attributes
    ----------
    state : "waiting" also if an approval lapsed; `lapsed` says why.
    used : runs that began under the decision.
    ended : how it ended; None before.
    running : a run began here, may go on and has not ended.
    """

    study: str
    name: str
    lead: str
    organisation: str
    first: str
    state: str
    decision: Decision | None
    unfit: tuple[str, ...]
    running: bool
    lapsed: str = ""
    used: int = 0
    ended: End | None = None

    @property
    def waits(self) -> bool:
        """Whether someone has to decide."""
        return self.state == WAITING and self.ended is None


class StudyStore:
    """The studies and decisions of one site.

    Parameters
    ----------
    folder : made at the first study.
    verify : checks a steward's signature; None if the policy asks for no steward.
    """

    def __init__(self, folder: Path, network: str, site: str, verify: Verify | None):
        self._folder, self._network, self._site = folder, network, site
        self._verify = verify
        self._counted = Counted(folder.with_name("decided.sqlite"))
        self._read: dict[str, tuple[tuple[int, int, int], Decision | None]] = {}

    # studies ------------------------------------------------------------------------------

    def put(
        self, study: str, offer: bytes, name: str, lead: str, organisation: str, of: str = ""
    ) -> bool:
        """Add a study; return whether it is new.

        Parameters
        ----------
        of : the study in which it forgets hospitals; "" for another.

        Raises
        ------
        Refused : too many studies wait already.
        """
        place = self._place(study)
        if (place / "study.json").is_file():
            return False
        kept = sum(1 for _ in self._hashes())
        if kept >= MOST_KEPT:
            raise Refused(
                "desk",
                f"{MOST_KEPT} studies are kept at this site, the most; move old ones out of "
                f"{self._folder.name}/ in the node's state.",
            )
        if kept >= MOST_WAITING and self._n_waiting() >= MOST_WAITING:
            raise Refused("desk", f"{MOST_WAITING} studies wait at this site already.")
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        place.mkdir(exist_ok=True, mode=0o700)
        write(place / "offer", offer)
        about = {"study": name, "lead": lead, "organisation": organisation, "first": now()}
        about |= {"of": of} if of else {}
        write(place / "study.json", json.dumps(about).encode())
        return True

    def _n_waiting(self) -> int:
        return sum(self.entry(study).waits for study in self._hashes())

    def offer(self, study: str) -> bytes:
        """Return a study as its lead signed it."""
        return (self._place(study) / "offer").read_bytes()

    def has(self, study: str) -> bool:
        """Return whether a study lies here."""
        return (self._place(study) / "study.json").is_file()

    def line(self, study: str) -> tuple[str, ...]:
        """Return a study, the one in which it forgets hospitals, and so on to the first."""
        found = [study]
        while is_hash(of := _read(self._place(found[-1]) / "study.json").get("of")):
            if of in found:
                break
            found.append(str(of))
        return tuple(found)

    def family(self, study: str) -> list[str]:
        """Return the first study, and all that forget hospitals in it."""
        first = self.line(study)[-1]
        return [first, *(s for s in self._hashes() if s != first and self.line(s)[-1] == first)]

    def withdrawal(self, study: str) -> dict[str, str]:
        """Return this site's signed withdrawal from a study, or from its first; {} without."""
        return _read(self._place(self.line(study)[-1]) / "withdrawal.json")

    def withdraw(self, study: str, record: Mapping[str, str]) -> None:
        """Keep this site's signed withdrawal from a study."""
        first = self.line(study)[-1]
        write(self._place(first) / "withdrawal.json", json.dumps(dict(record)).encode())

    def entries(self) -> list[Entry]:
        """Return all studies: those that wait first, then the latest first."""
        found = [self.entry(study) for study in self._hashes()]
        found.sort(key=lambda e: e.first, reverse=True)
        return sorted(found, key=lambda e: not e.waits)

    def tries(self, lead: str) -> bool:
        """Return whether so many studies of a lead did not fit that a person must see the next.

        A refusal names a column and a rule of the study's own dictionary: a range halved from study
        to
        study would reveal the largest value.
        """
        found = (e for e in map(self.entry, self._hashes()) if e.lead == lead and e.unfit)
        return len(list(islice(found, MOST_UNFIT))) == MOST_UNFIT

    def entry(self, study: str) -> Entry:
        """Return a study's entry."""
        about = _read(self._place(study) / "study.json")
        made, ended = self.decision(study), self.ended(study)
        approved = made is not None and made.decision == APPROVED
        lapsed = self.lapse(study, made) if made is not None and approved and not ended else ""
        noted = self.run(study)
        goes_on = approved and not lapsed and ended is None and noted.open
        return Entry(
            study,
            *(str(about.get(k, "")) for k in ("study", "lead", "organisation", "first")),
            state=WAITING if made is None or lapsed else made.decision,
            decision=made,
            unfit=tuple(map(str, _read(self._place(study) / "fit.json").get("unfit", ()))),
            running=goes_on and noted.mark in self._counted.runs(study),
            lapsed=lapsed,
            used=len(self.begun(study, made)) if made and approved else 0,
            ended=ended,
        )

    def find(self, text: str) -> str:
        """Return the whole hash of a study from its beginning.

        Raises
        ------
        InputError : too short, none begins so, or several do.
        """
        asked = text.strip().lower()
        if len(asked) < SHORTEST or not re.fullmatch("[0-9a-f]+", asked):
            raise InputError(
                f"{text!r} is no hash of a study; give at least its first {SHORTEST} characters, "
                f"as `fedcohort node studies` shows them."
            )
        found = sorted(study for study in self._hashes() if study.startswith(asked))
        if not found:
            raise InputError(f"no study here has a hash that begins with {asked!r}.")
        if len(found) > 1:
            raise InputError(
                f"{len(found)} studies have hashes that begin with {asked!r}: "
                f"{', '.join(map(short, found))}. Give more characters."
            )
        return found[0]

    # decisions ----------------------------------------------------------------------------

    def decide(
        self,
        study: str,
        decision: str,
        by: str,
        reason: str = "",
        sign: Sign | None = None,
        *,
        until: str = "",
        runs: int = decisions.RUNS,
    ) -> Decision:
        """Write a decision; the running node follows it from the next call on.

        Parameters
        ----------
        until, runs : of an approval, its last day and its number of runs; by default
            `decisions.DAYS` from
            now, and one.

        Raises
        ------
        InputError : no valid signature of a steward although one is needed; no such study; the
            reason is
            too long; or another decision was made meanwhile.
        """
        place = self._place(study)
        if not (place / "study.json").is_file():
            raise InputError(f"no study {short(study)} lies here.")
        reason = " ".join(reason.split())
        if len(reason) > LONGEST_REASON or not reason.isprintable():
            raise InputError(f"a reason is one line of at most {LONGEST_REASON} characters.")
        last = max((d.number for d in self._valid(study)), default=0)
        last = max(last, self._counted.highest(study))
        good = (until or decisions.until(decisions.DAYS), runs) if decision == APPROVED else ("", 0)
        made = Decision(
            last + 1, decision, reason, by, now(),
            until=good[0], runs=good[1], form=decisions.FORM,
        )  # fmt: skip
        if sign is not None:
            signature, certificate = sign(made.signed(self._network, self._site, study))
            made = replace(made, signature=signature.hex(), certificate=certificate.decode())
        if not self._counts(study, made):
            raise InputError(
                f"site {self._site!r} takes decisions that a steward of its own signs, and "
                f"{by!r} is none. Give the steward's kit: --kit STEWARD_KIT."
            )
        path = place / "decisions.jsonl"
        _append(path, json.dumps(asdict(made)))
        if self._verify is not None:
            self._counted.highest(study, made.number)
        if made not in self._valid(study):
            raise InputError(
                f"someone else decided on study {short(study)} at the same moment, and that "
                f"counts. See `fedcohort node history`, and decide again if it is still needed."
            )
        return made

    def lapse(self, study: str, made: Decision) -> str:
        """Return why an approval admits no run; "" if it does."""
        if made.ended:
            return made.ended
        begun, noted = self.begun(study, made), self.run(study)
        if len(begun) < made.runs or (noted.open and noted.mark in begun):
            return ""
        runs = "1 run, which was made" if made.runs == 1 else f"{made.runs} runs, which were made"
        return f"the approval of {made.at[:10]} was for {runs}"

    def begun(self, study: str, made: Decision) -> tuple[str, ...]:
        """Return the marks of the runs that began under a decision."""
        return self._counted.begun(study, made.number)

    def runs(self, study: str) -> int:
        """Return how many runs of a study began here, under all its decisions."""
        return len(self._counted.runs(study))

    def begin(self, study: str, made: Decision) -> bool:
        """Count the open run under an approval; return whether it may begin or go on."""
        return self._counted.begin(study, made.number, self.run(study).mark, made.runs)

    def decision(self, study: str) -> Decision | None:
        """Return the decision that counts now; None while the study waits.

        If a later decision was seen than the file holds, it is a refusal that says so.
        """
        try:
            stat = (self._place(study) / "decisions.jsonl").stat()
        except FileNotFoundError:
            return None
        mark = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        known = self._read.get(study)
        if known is None or known[0] != mark:
            made = max(self._valid(study), key=lambda d: d.number, default=None)
            known = self._read[study] = (mark, made and self._latest(study, made))
        return known[1]

    def _latest(self, study: str, made: Decision) -> Decision:
        """Return the last decision on file, or a refusal where it is not the last that was seen."""
        if self._verify is None:
            return made
        seen = self._counted.highest(study, made.number)
        if made.number == seen:
            return made
        missing = (
            f"decision {seen} on this study was seen, and {made.number} is now the last that "
            f"counts in its decisions.jsonl. Bring the file back, or decide anew."
        )
        return Decision(seen, REFUSED, missing, POLICY, now())

    def mark(self, study: str, made: Decision) -> str:
        """Return a decision's hash: the SHA-256 of the text that was signed, or would be."""
        return hashlib.sha256(made.signed(self._network, self._site, study)).hexdigest()

    def history(self, study: str) -> tuple[list[Decision], int]:
        """Return the decisions on file that count, in order, and how many lines do not."""
        lines = self._lines(study)
        found = sorted(self._valid(study), key=lambda d: d.number)
        return found, len(lines) - len(found)

    def _lines(self, study: str) -> list[str]:
        path = self._place(study) / "decisions.jsonl"
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return []
        return [s for s in path.read_text(encoding="utf-8", errors="replace").splitlines() if s]

    def _valid(self, study: str) -> list[Decision]:
        """Return the decisions on file that count.

        Of two with one number, made at the same moment, a refusal counts, otherwise the first.
        """
        found: dict[int, Decision] = {}
        for line in self._lines(study):
            made = decisions.parsed(line)
            if made is None or not self._counts(study, made):
                continue
            known = found.setdefault(made.number, made)
            if made.decision == REFUSED and known.decision != REFUSED:
                found[made.number] = made
        return list(found.values())

    def _counts(self, study: str, made: Decision) -> bool:
        """Return whether a decision counts here."""
        if self._verify is None:
            return True
        try:
            signature = bytes.fromhex(made.signature)
        except ValueError:
            return False
        text = made.signed(self._network, self._site, study)
        certificate = made.certificate.encode()
        return bool(signature) and self._verify(text, signature, certificate, made.by)

    # after a ranking ----------------------------------------------------------------------

    def put_ranking(self, study: str, text: str, until: str, mark: str) -> str:
        """Keep the ranking that a run told this site; return its hash.

        Parameters
        ----------
        until : time by which the people here have to answer; "" without.
        mark : of the run.

        Raises
        ------
        Refused : this run told another ranking before, or too many studies wait.
        """
        second = mark_of(text)
        known = _read(self._place(study) / "again.json")
        if known.get("mark") == mark and known.get("hash") != second:
            raise Refused("ranking", "this run has told another ranking before.")
        if not self.ranking(second):
            about = _read(self._place(study) / "study.json")
            name = f"{about.get('study', '')}, after its ranking"
            texts = (str(about.get(k, "")) for k in ("lead", "organisation"))
            self.put(second, self.offer(study), name, *texts)
            said = {"first": study, "text": text}
            write(self._place(second) / "ranking.json", json.dumps(said).encode())
        told = {"hash": second, "mark": mark, "until": until}
        if known != told:
            write(self._place(study) / "again.json", json.dumps(told).encode())
            self.reopen(second)
        return second

    def ranking(self, second: str) -> str:
        """Return the text of a ranking that lies here; "" if there is none of that hash."""
        text = _read(self._place(second) / "ranking.json").get("text")
        return text if isinstance(text, str) and mark_of(text) == second else ""

    def first_of(self, second: str) -> str:
        """Return the study of a ranking; "" if this is none."""
        first = _read(self._place(second) / "ranking.json").get("first")
        return str(first) if is_hash(first) and self.ranking(second) else ""

    def answer_by(self, second: str) -> str:
        """Return until when the people here have to answer after a ranking; "" without."""
        first = self.first_of(second)
        return self.again(first)[1] if first else ""

    def again(self, study: str, mark: str | None = None) -> tuple[str, str]:
        """Return the hash of the ranking that a study's run told, and until when to answer.

        Both are "" if there is none; `mark` is of the run, None for the last.
        """
        known = _read(self._place(study) / "again.json")
        second = known.get("hash")
        if not is_hash(second) or mark not in (None, known.get("mark")):
            return "", ""
        return str(second), str(known.get("until", ""))

    # the node's notes ---------------------------------------------------------------------

    def note_fit(self, study: str, unfit: tuple[str, ...]) -> None:
        """Note the columns and rules that the table does not meet, for the steward."""
        write(self._place(study) / "fit.json", json.dumps({"unfit": list(unfit)}).encode())

    def note_run(self, study: str, noted: Noted) -> None:
        """Note a study's run."""
        write(self._place(study) / "run.json", json.dumps(noted._asdict()).encode())

    def run(self, study: str) -> Noted:
        """Return the note of a study's run; a damaged one reads as closed."""
        noted = _read(self._place(study) / "run.json")
        table, mark = noted.get("table"), noted.get("mark")
        return Noted(
            noted.get("open") is True,
            table if isinstance(table, str) else None,
            mark if isinstance(mark, str) else "",
        )

    def note_end(self, study: str, how: str, reason: str) -> bool:
        """Note how a study ended, as the coordinator tells it; return whether it lies here."""
        if how not in ENDS or not (self._place(study) / "study.json").is_file():
            return False
        told = " ".join(reason.split())[:LONGEST_REASON]
        told = "".join(c if c.isprintable() else "?" for c in told)
        noted = {"how": how, "reason": told, "at": now()}
        write(self._place(study) / "end.json", json.dumps(noted).encode())
        return True

    def reopen(self, study: str) -> None:
        """Forget that a study ended: it is asked for again."""
        (self._place(study) / "end.json").unlink(missing_ok=True)

    def ended(self, study: str) -> End | None:
        """Return how a study ended; None where nothing is noted."""
        noted = _read(self._place(study) / "end.json")
        if noted.get("how") not in ENDS:
            return None
        how, reason, at = (str(noted.get(k, "")) for k in ("how", "reason", "at"))
        return End(how, reason, at, here=f"site {self._site!r}" in reason)

    def _place(self, study: str) -> Path:
        if not is_hash(study):
            raise Refused("hash", "a study is named by its whole hash, 64 hexadecimal digits.")
        return self._folder / study

    def _hashes(self) -> Iterator[str]:
        if self._folder.is_dir():
            for place in sorted(self._folder.iterdir()):
                if is_hash(place.name) and (place / "study.json").is_file():
                    yield place.name


def _read(path: Path) -> dict[str, Any]:
    """Return a small JSON file's content; nothing if it is missing or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _append(path: Path, line: str) -> None:
    """Append one line, on a line of its own also behind one that was cut off."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, (b"\n" if torn else b"") + line.encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)
