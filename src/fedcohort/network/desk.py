"""The data steward's desk at a site: studies that wait, and what was decided, by whom, and when.

A study is known by the SHA-256 of its text, so that a decision is about that text and no other.
One folder a study, in files that the running node and the steward's commands read and write alike:

    offer            the study as its lead signed it
    study.json       its name, its lead, and when it first came
    decisions.jsonl  one line a decision; the valid one with the highest number counts
    fit.json         what of the site's table does not fit: columns and rules
    run.json         whether its run is open, and a digest of the table that it began with

and, beside the desk's folder, `decided.sqlite`: the highest number of each study's signed decisions

Where the policy asks for a steward, a decision counts only with the signature of a steward of this
site over (network, site, study, number, decision, reason, time): who can write these files
cannot approve a study. A decision of a lower number than the highest that was seen does not count:
whoever cuts the last lines off brings no old approval back, unless they write `decided.sqlite` too.
No file holds a cell of the table.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, cast

from fedcohort.protocol.errors import InputError, Refused

APPROVED, REFUSED, WAITING = "approved", "refused", "waiting"
#: Who decides where no steward needs to.
POLICY = "policy"
#: More studies than this do not wait at one desk.
MOST_WAITING = 200
#: And more than these are not kept, decided or not.
MOST_KEPT = 5000
#: Studies of one lead that did not fit a site's table, after which a steward decides on those that
#: the site's policy would approve: each tells one fact of the table (`Desk.tries`).
MOST_UNFIT = 10
#: The longest reason that a steward can give.
LONGEST_REASON = 500
#: How many characters of a hash are shown, and how few are enough to name a study.
SHOWN, SHORTEST = 12, 4

_HASH = re.compile(r"[0-9a-f]{64}")
#: A longer file of decisions was not written by these commands.
_MOST_BYTES = 1 << 22

_DECIDED = "CREATE TABLE IF NOT EXISTS decided (study TEXT PRIMARY KEY, number INTEGER NOT NULL)"

#: (text that was signed, signature, certificate, name of the signer) → whether it counts.
Verify = Callable[[bytes, bytes, bytes, str], bool]
#: Text to sign → signature and certificate.
Sign = Callable[[bytes], tuple[bytes, bytes]]


def short(study: str) -> str:
    """Return the beginning of a hash, as people see it."""
    return study[:SHOWN]


def now() -> str:
    """Return the time as text, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_hash(text: object) -> bool:
    """Return whether a text is a study's whole hash."""
    return isinstance(text, str) and _HASH.fullmatch(text) is not None


def note_config(state: Path, config: Path) -> None:
    """Note in a node's state which configuration it started with, for the steward's commands."""
    _write(state / "config.json", json.dumps({"path": str(config.resolve())}).encode())


def noted_config(state: Path) -> Path | None:
    """Return the configuration that a node started with last; None if it never did."""
    path = _read(state / "config.json").get("path")
    return Path(path) if isinstance(path, str) else None


@dataclass(frozen=True)
class Decision:
    """One decision; `signature` and `certificate` are empty where the policy decides."""

    number: int
    decision: str
    reason: str
    by: str
    at: str
    signature: str = ""
    certificate: str = ""

    def signed(self, network: str, site: str, study: str) -> bytes:
        """Return the text that a steward signs."""
        parts = [
            "fedcohort decision 1", network, site, study,
            self.number, self.decision, self.reason, self.by, self.at,
        ]  # fmt: skip
        return json.dumps(parts, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Entry:
    """One study on the desk."""

    study: str
    name: str
    lead: str
    organisation: str
    first: str
    state: str
    decision: Decision | None
    unfit: tuple[str, ...]
    running: bool


class Desk:
    """The desk of one site.

    Parameters
    ----------
    folder : made when something is put there.
    verify : says whether a steward's signature counts; None where no steward is asked for.
    """

    def __init__(self, folder: Path, network: str, site: str, verify: Verify | None):
        self._folder, self._network, self._site = folder, network, site
        self._verify = verify
        self._highest = folder.with_name("decided.sqlite")
        self._read: dict[str, tuple[tuple[int, int, int], Decision | None]] = {}

    # studies ------------------------------------------------------------------------------

    def put(self, study: str, offer: bytes, name: str, lead: str, organisation: str) -> bool:
        """Lay a study on the desk; return whether it is new.

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
        _write(place / "offer", offer)
        about = {"study": name, "lead": lead, "organisation": organisation, "first": now()}
        _write(place / "study.json", json.dumps(about).encode())
        return True

    def _n_waiting(self) -> int:
        return sum(self.decision(study) is None for study in self._hashes())

    def offer(self, study: str) -> bytes:
        """Return a study as its lead signed it."""
        return (self._place(study) / "offer").read_bytes()

    def entries(self) -> list[Entry]:
        """Return all studies: those that wait first, then the latest first."""
        found = [self.entry(study) for study in self._hashes()]
        found.sort(key=lambda e: e.first, reverse=True)
        return sorted(found, key=lambda e: e.state != WAITING)

    def tries(self, lead: str) -> bool:
        """Return whether so many studies of a lead did not fit that a person must see the next.

        A study brings its dictionary, and a refusal names the column and the rule that a row
        breaks: with a range that is halved from study to study it would tell the largest value.
        """
        found = (e for e in map(self.entry, self._hashes()) if e.lead == lead and e.unfit)
        return len(list(islice(found, MOST_UNFIT))) == MOST_UNFIT

    def entry(self, study: str) -> Entry:
        """Return what is known of a study."""
        about = _read(self._place(study) / "study.json")
        made = self.decision(study)
        return Entry(
            study,
            *(str(about.get(k, "")) for k in ("study", "lead", "organisation", "first")),
            state=WAITING if made is None else made.decision,
            decision=made,
            unfit=tuple(map(str, _read(self._place(study) / "fit.json").get("unfit", ()))),
            running=bool(_read(self._place(study) / "run.json").get("open", False)),
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
        self, study: str, decision: str, by: str, reason: str = "", sign: Sign | None = None
    ) -> Decision:
        """Write a decision, so that the running node heeds it at the next call.

        Raises
        ------
        InputError : the desk asks for a steward's signature and there is none that counts; no
            such study; or the reason is too long.
        """
        place = self._place(study)
        if not (place / "study.json").is_file():
            raise InputError(f"no study {short(study)} lies here.")
        reason = " ".join(reason.split())
        if len(reason) > LONGEST_REASON or not reason.isprintable():
            raise InputError(f"a reason is one line of at most {LONGEST_REASON} characters.")
        last = max((d.number for d in self._valid(study)), default=0)
        last = max(last, self._decided(study))
        made = Decision(last + 1, decision, reason, by, now())
        if sign is not None:
            signature, certificate = sign(made.signed(self._network, self._site, study))
            made = Decision(
                made.number, decision, reason, by, made.at, signature.hex(), certificate.decode()
            )
        if not self._counts(study, made):
            raise InputError(
                f"site {self._site!r} takes decisions that a steward of its own signs, and "
                f"{by!r} is none. Give the steward's kit: --kit STEWARD_KIT."
            )
        path = place / "decisions.jsonl"
        _append(path, json.dumps(asdict(made)))
        if self._verify is not None:
            self._decided(study, made.number)
        return made

    def decision(self, study: str) -> Decision | None:
        """Return the decision that counts now; None while the study waits.

        It is a refusal, which says so, where a later one was seen than the file has now.
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
        seen = self._decided(study, made.number)
        if made.number == seen:
            return made
        missing = (
            f"decision {seen} on this study was seen, and {made.number} is now the last that "
            f"counts in its decisions.jsonl. Bring the file back, or decide anew."
        )
        return Decision(seen, REFUSED, missing, POLICY, now())

    def _decided(self, study: str, number: int = 0) -> int:
        """Note the number of a decision that counts; return the highest one of the study.

        Raises
        ------
        InputError : the file of these numbers is damaged.
        """
        if not self._highest.exists():
            if not number:
                return 0
            self._highest.touch(mode=0o600)
        db = sqlite3.connect(self._highest, timeout=30.0, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous = EXTRA")
            db.execute(_DECIDED)
            if number:
                db.execute(
                    "INSERT INTO decided VALUES (?, ?) ON CONFLICT (study) DO UPDATE "
                    "SET number = excluded.number WHERE excluded.number > number",
                    (study, number),
                )
            found = db.execute("SELECT number FROM decided WHERE study = ?", (study,)).fetchone()
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{self._highest} cannot be used ({type(error).__name__}): it says which decisions "
                f"were seen. Bring back the one that the node had."
            ) from None
        finally:
            db.close()
        return 0 if found is None else int(found[0])

    def _valid(self, study: str) -> list[Decision]:
        """Return the decisions on file that count, the first where a number stands twice."""
        path = self._place(study) / "decisions.jsonl"
        found: dict[int, Decision] = {}
        if path.is_file() and path.stat().st_size <= _MOST_BYTES:
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                made = _parsed(line)
                if made is not None and self._counts(study, made):
                    found.setdefault(made.number, made)
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

    # the node's notes ---------------------------------------------------------------------

    def note_fit(self, study: str, unfit: tuple[str, ...]) -> None:
        """Note for the steward what of the table does not fit a study: columns and rules."""
        _write(self._place(study) / "fit.json", json.dumps({"unfit": list(unfit)}).encode())

    def note_run(self, study: str, *, open_: bool, table: str | None) -> None:
        """Note whether a study's run is open, and the digest of the table that it began with."""
        noted = {"open": open_, "table": table}
        _write(self._place(study) / "run.json", json.dumps(noted).encode())

    def run(self, study: str) -> tuple[bool, str | None]:
        """Return whether a study's run is open, and the digest of the table it began with."""
        noted = _read(self._place(study) / "run.json")
        table = noted.get("table")
        return bool(noted.get("open", False)), table if isinstance(table, str) else None

    def _place(self, study: str) -> Path:
        if not is_hash(study):
            raise Refused("hash", "a study is named by its whole hash, 64 hexadecimal digits.")
        return self._folder / study

    def _hashes(self) -> Iterator[str]:
        if self._folder.is_dir():
            for place in sorted(self._folder.iterdir()):
                if is_hash(place.name) and (place / "study.json").is_file():
                    yield place.name


def _parsed(line: str) -> Decision | None:
    """Return the decision that a line holds; None for a line that is none, such as a torn one."""
    try:
        content: Any = json.loads(line)
        made = Decision(**content)
    except (ValueError, TypeError, RecursionError):
        return None
    texts: tuple[Any, ...] = (made.reason, made.by, made.at, made.signature, made.certificate)
    known = made.decision in (APPROVED, REFUSED) and type(made.number) is int
    return made if known and all(isinstance(t, str) for t in texts) else None


def _read(path: Path) -> dict[str, Any]:
    """Return what a small JSON file holds; nothing where it is missing or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _write(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, for its owner alone."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


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
