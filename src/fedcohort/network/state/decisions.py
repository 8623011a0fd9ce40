"""One decision of a data steward or of a site's policy: its text, its signature, its end.

An approval counts until a day (UTC, inclusive) and for a number of runs; both are part of the
signed text. A run is counted at its first call; a resumed run is the same run. Decisions of form 1
(older versions) hold neither: their refusals count, their approvals must be renewed.

`Counted` keeps the highest number of each study's signed decisions and the runs that began under
each approval, so that no later message or file can take them back.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedcohort.network.state.durable import opened
from fedcohort.protocol.errors import InputError

APPROVED, REFUSED, WAITING = "approved", "refused", "waiting"
#: The form of a decision's signed text.
FORM = 2
#: How many days and runs an approval is good for, where neither the steward nor node.toml says.
DAYS, RUNS = 90, 1
#: The most runs and days that one approval can give.
MOST_RUNS, MOST_DAYS = 1000, 3650

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_TABLES = (
    "CREATE TABLE IF NOT EXISTS decided (study TEXT PRIMARY KEY, number INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS begun (study TEXT NOT NULL, number INTEGER NOT NULL, "
    "run TEXT NOT NULL, PRIMARY KEY (study, number, run))",
)


def now() -> str:
    """Return the time as text, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def until(days: int) -> str:
    """Return the last day of an approval made today."""
    today = datetime.strptime(now()[:10], "%Y-%m-%d")
    return (today + timedelta(days=days)).strftime("%Y-%m-%d")


def day(text: str) -> str:
    """Return a day that an approval can last until.

    Raises
    ------
    InputError : not a day, past, or more than `MOST_DAYS` away.
    """
    try:
        found = datetime.strptime(text.strip(), "%Y-%m-%d").strftime("%Y-%m-%d")
    except ValueError:
        raise InputError(f"--until {text!r}: expected a day such as {until(DAYS)}.") from None
    if not now()[:10] <= found <= until(MOST_DAYS):
        raise InputError(
            f"--until {found}: expected a day from today on, {now()[:10]}, to {until(MOST_DAYS)}."
        )
    return found


@dataclass(frozen=True)
class Decision:
    """One decision; `signature` and `certificate` are empty where the policy decides.

    Attributes
    ----------
    until, runs : of an approval, the last day on which it counts, and how many runs may begin.
    form : of the signed text.
    """

    number: int
    decision: str
    reason: str
    by: str
    at: str
    signature: str = ""
    certificate: str = ""
    until: str = ""
    runs: int = 0
    form: int = 1

    def signed(self, network: str, site: str, study: str) -> bytes:
        """Return the text that a steward signs."""
        parts: list[Any] = [
            f"fedcohort decision {self.form}", network, site, study,
            self.number, self.decision, self.reason, self.by, self.at,
        ]  # fmt: skip
        if self.form > 1:
            parts += [self.until, self.runs]
        return json.dumps(parts, separators=(",", ":")).encode()

    @property
    def ended(self) -> str:
        """Say why an approval counts no longer, whatever ran; "" where it does."""
        if self.form < FORM:
            return (
                f"the approval of {self.at[:10]} is of an earlier version's form, which says "
                f"neither until when nor for how many runs"
            )
        if now()[:10] > self.until:
            return f"the approval of {self.at[:10]} ended on {self.until}"
        return ""


def parsed(line: str) -> Decision | None:
    """Return the decision that a line holds; None for any other line, such as a torn one."""
    try:
        content: Any = json.loads(line)
        made = Decision(**content)
    except (ValueError, TypeError, RecursionError):
        return None
    texts: tuple[Any, ...] = (
        made.reason, made.by, made.at, made.signature, made.certificate, made.until,
    )  # fmt: skip
    numbers: tuple[Any, ...] = (made.number, made.runs, made.form)
    fine = made.decision in (APPROVED, REFUSED) and all(isinstance(t, str) for t in texts)
    if not fine or any(type(n) is not int for n in numbers) or made.form not in (1, FORM):
        return None
    if made.form == FORM and made.decision == APPROVED:
        return made if _DAY.fullmatch(made.until) and made.runs > 0 else None
    return None if made.until or made.runs else made


class Counted:
    """Counts of decisions and runs, in a file for several processes."""

    def __init__(self, path: Path):
        self._path = path
        self._known: tuple[tuple[int, int, int], dict[str, list[tuple[int, str]]]] | None = None

    def highest(self, study: str, number: int = 0) -> int:
        """Note the number of a decision that counts; return the highest one of the study.

        Raises
        ------
        InputError : the file of these numbers is damaged.
        """
        if not number and not self._path.exists():
            return 0
        with self._opened() as db:
            if number:
                db.execute(
                    "INSERT INTO decided VALUES (?, ?) ON CONFLICT (study) DO UPDATE "
                    "SET number = excluded.number WHERE excluded.number > number",
                    (study, number),
                )
            found = db.execute("SELECT number FROM decided WHERE study = ?", (study,)).fetchone()
        return 0 if found is None else int(found[0])

    def begun(self, study: str, number: int) -> tuple[str, ...]:
        """Return the runs of a study that began under one of its decisions.

        Raises
        ------
        InputError : the file of these runs is damaged.
        """
        return tuple(run for n, run in self._runs().get(study, ()) if n == number)

    def runs(self, study: str) -> frozenset[str]:
        """Return the runs of a study that began, under whichever decision.

        Raises
        ------
        InputError : the file of these runs is damaged.
        """
        return frozenset(run for _, run in self._runs().get(study, ()))

    def _runs(self) -> dict[str, list[tuple[int, str]]]:
        """Return decision and run of all that began, by study; the file is read when it changed."""
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return {}
        mark = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if self._known is None or self._known[0] != mark:
            found: dict[str, list[tuple[int, str]]] = {}
            with self._opened() as db:
                for study, number, run in db.execute("SELECT study, number, run FROM begun"):
                    found.setdefault(str(study), []).append((int(number), str(run)))
            self._known = (mark, found)
        return self._known[1]

    def begin(self, study: str, number: int, run: str, most: int) -> bool:
        """Count a run under a decision, once; return whether it is one of the first `most`.

        Raises
        ------
        InputError : the file of these runs is damaged.
        """
        with self._opened() as db:
            db.execute("BEGIN IMMEDIATE")
            found = [
                str(name)
                for (name,) in db.execute(
                    "SELECT run FROM begun WHERE study = ? AND number = ?", (study, number)
                )
            ]
            fine = run in found or len(found) < most
            if fine:
                db.execute("INSERT OR IGNORE INTO begun VALUES (?, ?, ?)", (study, number, run))
            db.execute("COMMIT")
        self._known = None
        return fine

    @contextlib.contextmanager
    def _opened(self) -> Generator[sqlite3.Connection]:
        try:
            with opened(self._path, *_TABLES) as db:
                yield db
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{self._path} cannot be used ({type(error).__name__}): it says which decisions "
                f"were seen. Bring back the one that the node had."
            ) from None
