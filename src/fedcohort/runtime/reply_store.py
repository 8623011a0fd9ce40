"""A node's store between calls: digest of a request that changed a state, its reply and the state.

One SQLite file per node. Each save is one transaction, on disk before the reply leaves: a kill or
power cut leaves an answer whole or absent. Of one history (see `calls`) it keeps what may still be
asked for:

* the state of `base`, the last call that the coordinator counts at this site;
* later answers, which the coordinator may ask again or may never count.

A call of number m implies that every earlier one but its base does not count: those are deleted
when m is kept. A late or repeated request undoes nothing: it deletes only what is older than
itself, and the base of any later call is at least as new.

It also records which masked sums were revealed, and among which sites: one line per call, on disk
before a share leaves, until the session is over.

Sites of one process use a `StateStore`: one file per site, replaced atomically.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcohort.arrays import Array
from fedcohort.protocol.errors import InputError
from fedcohort.protocol.host import Answer
from fedcohort.protocol.wire import decode, encode

#: Attempts at one session whose answers are kept: the current one, and a few that it may follow.
HISTORIES = 4

_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL, session TEXT NOT NULL, history TEXT NOT NULL, call INTEGER NOT NULL,
    digest BLOB NOT NULL, reply BLOB NOT NULL, state BLOB NOT NULL,
    UNIQUE (run, session, history, call)
)
"""

_REVEALED = """
CREATE TABLE IF NOT EXISTS revealed (
    run TEXT NOT NULL, session TEXT NOT NULL, question TEXT NOT NULL,
    terms TEXT NOT NULL, sites TEXT NOT NULL,
    PRIMARY KEY (run, session, question)
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Kept:
    """One call that changed a site's state.

    Attributes
    ----------
    digest : of the request.
    reply, state : records of `protocol.wire`.
    """

    digest: bytes
    reply: bytes
    state: bytes


class Answers:
    """A node's kept answers, in one file. Threads may share it.

    Parameters
    ----------
    alone : no other connection uses the file. Its index is then in no memory-mapped file, where a
        full
        disk would kill the process.

    Raises
    ------
    InputError : the file is no such store, or cannot be opened.
    """

    def __init__(self, path: Path, *, alone: bool = False):
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            if alone:
                self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA secure_delete = FAST")
            self._db.execute(_TABLE)
            self._db.execute(_REVEALED)
        except (sqlite3.Error, OSError) as error:
            raise InputError(
                f"{path} cannot be used as the store of answers ({type(error).__name__}). Move it "
                f"away if it is another file; runs that were under way then start again."
            ) from None

    def calls(self, run: str, session: str, history: str) -> dict[int, bytes]:
        """Return the calls of one history that are kept: number → digest of the request."""
        rows = self._all(
            "SELECT call, digest FROM answers WHERE run = ? AND session = ? AND history = ?",
            (run, session, history),
        )
        return {int(call): bytes(digest) for call, digest in rows}

    def load(self, run: str, session: str, history: str, call: int) -> Kept | None:
        """Return one kept call."""
        rows = self._all(
            "SELECT digest, reply, state FROM answers "
            "WHERE run = ? AND session = ? AND history = ? AND call = ?",
            (run, session, history, call),
        )
        return Kept(*rows[0]) if rows else None

    def save(
        self, run: str, session: str, history: str, call: int, base: int | None, kept: Kept
    ) -> None:
        """Keep the answer to one call, and forget what no later call can ask for.

        Raises
        ------
        sqlite3.Error : the disk is full or broken; nothing has changed.
        """
        key = (run, session, history)
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.execute(
                    "DELETE FROM answers WHERE run = ? AND session = ? AND history = ? "
                    "AND (call = ? OR call < ? AND call IS NOT ?)",
                    (*key, call, call, base),
                )
                self._db.execute(
                    "INSERT INTO answers (run, session, history, call, digest, reply, state) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (*key, call, kept.digest, kept.reply, kept.state),
                )
                if base is None:
                    self._db.execute(
                        "DELETE FROM answers WHERE run = ? AND session = ? AND history NOT IN "
                        "(SELECT history FROM answers WHERE run = ? AND session = ? "
                        "GROUP BY history ORDER BY max(id) DESC LIMIT ?)",
                        (run, session, run, session, HISTORIES),
                    )
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def latest(self, run: str, session: str) -> bytes | None:
        """Return the state that the latest stored call of a session left; None without any."""
        rows = self._all(
            "SELECT state FROM answers WHERE run = ? AND session = ? ORDER BY id DESC LIMIT 1",
            (run, session),
        )
        return bytes(rows[0][0]) if rows else None

    def members(self, run: str, session: str) -> frozenset[str]:
        """Return all sites of a session's masked sums, in whichever attempt."""
        rows = self._all(
            "SELECT DISTINCT sites FROM revealed WHERE run = ? AND session = ?", (run, session)
        )
        return frozenset(str(site) for (text,) in rows for site in json.loads(text))

    def revealed(self, run: str, session: str, question: str) -> tuple[str, tuple[str, ...]] | None:
        """Return the terms of a masked sum's first revelation, and its sites."""
        rows = self._all(
            "SELECT terms, sites FROM revealed WHERE run = ? AND session = ? AND question = ?",
            (run, session, question),
        )
        return (str(rows[0][0]), tuple(json.loads(rows[0][1]))) if rows else None

    def reveal(
        self, run: str, session: str, question: str, terms: str, sites: Sequence[str]
    ) -> None:
        """Note that a masked sum is revealed, if it was not before.

        Raises
        ------
        sqlite3.Error : the disk is full or broken; nothing may leave.
        """
        with self._lock:
            self._db.execute(
                "INSERT OR IGNORE INTO revealed (run, session, question, terms, sites) "
                "VALUES (?, ?, ?, ?, ?)",
                (run, session, question, terms, json.dumps(list(sites))),
            )

    def forget(self, run: str, session: str | None = None) -> None:
        """Remove what is kept of a session, or of all sessions of a run: it is over."""
        with self._lock:
            for table in ("answers", "revealed"):
                self._db.execute(
                    f"DELETE FROM {table} WHERE run = ? AND (? IS NULL OR session = ?)",
                    (run, session, session),
                )

    def _all(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()


class StateStore:
    """The latest stateful answer of each site, in a folder."""

    def __init__(self, folder: Path):
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, site: str, call: int, answer: Answer) -> None:
        """Keep an answer that changed the site's state."""
        named = {f"reply/{k}": a for k, a in answer.reply.items()}
        named |= {f"state/{k}": a for k, a in (answer.state or {}).items()}
        fresh = self._path(site).with_suffix(".new")
        fresh.write_bytes(encode(named, {"call": call}))
        os.replace(fresh, self._path(site))

    def load(self, site: str) -> tuple[int, Answer] | None:
        """Return the latest call that changed the site's state, and its answer."""
        path = self._path(site)
        if not path.exists():
            return None
        arrays, meta = decode(path.read_bytes())
        parts: dict[str, dict[str, Array]] = {"reply": {}, "state": {}}
        for name, a in arrays.items():
            kind, _, key = name.partition("/")
            parts[kind][key] = a
        return int(meta["call"]), Answer(parts["reply"], parts["state"])

    def forget(self, site: str) -> None:
        """Remove what is kept of a site: a new run begins."""
        self._path(site).unlink(missing_ok=True)

    def _path(self, site: str) -> Path:
        return self._folder / f"{site.encode().hex()}.state"
