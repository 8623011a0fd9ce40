"""The coordinator's journal: every result, in order, for replay.

A resumed run starts the program again from the beginning and feeds it the journal to its end; then
sites are asked. So programs know nothing of checkpoints, and a run killed at any moment ends with
the same arrays as an uninterrupted one.

A record is appended after each call. Records that a kill has cut fail their checksum and are
dropped; their calls are asked again. A failed call leaves no record; if a program went on after it,
the gap in the numbers makes it fail again.

A large record is copied, and written by a thread while the next call runs: 20 MB take 5 to 50 ms.
One waits at most, and whatever touches the file waits for it first: the next record, `flush`,
`close`. So the file holds the same bytes, records are in order, and a `flush` means what it says.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import JournalMismatch, SiteUnavailable
from fedcohort.protocol.wire import Malformed, decode, parts_of

#: Seconds that a result may wait before it is handed to the operating system.
PATIENCE = 0.2

#: Bytes of a record that is written beside the next call: at least, and at most, which bounds the
#: memory of its copy.
BESIDE = range(2**20, 2**27)

#: In place of a call's number, in the record that holds the journal's history.
_HISTORY = -1


@dataclass(frozen=True)
class Entry:
    """The result of one call.

    Attributes
    ----------
    sites : whose replies are in it.
    replies : for `sum`, the total alone; for `gather`, one reply for each of `sites`.
    rejected : by site, why its reply is unusable.
    masked : a sum of replies that nobody saw.
    """

    sites: tuple[str, ...]
    replies: tuple[dict[str, Array], ...]
    rejected: Mapping[str, str] = field(default_factory=dict[str, str])
    masked: bool = False


class Journal:
    """One run's results in one file.

    Parameters
    ----------
    path : the file; existing results are replayed.
    run : text that determines the run besides its program (study, seed, version, checksum of the
        data);
        a journal of another text is refused.

    Raises
    ------
    JournalMismatch : the file is of another run, or no journal; it stays unchanged.
    """

    def __init__(self, path: Path, run: str = ""):
        self._path = path
        self._known: dict[int, tuple[int, Entry]] = {}
        header = f"fedcohort journal 1 {hashlib.sha256(run.encode()).hexdigest()}\n".encode()
        blob = path.read_bytes() if path.exists() else b""
        if not (blob.startswith(header) or header.startswith(blob)):
            raise JournalMismatch(
                f"{path} is the journal of another run, or no journal. The study, the data or the "
                f"version changed since; start again without --resume."
            )
        end = len(header)
        while end + 8 <= len(blob):
            (size,) = struct.unpack_from("<Q", blob, end)
            try:
                call, mark, entry = _read(blob[end + 8 : end + 8 + size])
            except Malformed:
                break
            self._known[call] = (mark, entry)
            end += 8 + size
        self._end = max(self._known, default=-1) + 1
        self._durable = False
        self._writer: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None
        self._room = np.empty(0, np.uint8)
        self._file = path.open("r+b" if path.exists() else "w+b")
        self._file.write(header)
        self._file.truncate(end)
        self._file.seek(end)
        self.flush()

    def replay(self, call: int, mark: int) -> Entry | None:
        """Return the kept result of call number `call`, or None if the journal ends before it.

        Parameters
        ----------
        mark : checksum of what was asked.

        Raises
        ------
        JournalMismatch : the call that was kept under this number is another one.
        SiteUnavailable : the call failed when the journal was made, and the program went on.
        """
        if call >= self._end:
            return None
        if call not in self._known:
            raise SiteUnavailable(
                f"too few sites answered call {call} when {self._path} was made; this run repeats "
                f"that one. To ask again, start again without --resume."
            )
        kept, entry = self._known.pop(call)
        if kept != mark:
            raise JournalMismatch(
                f"{self._path} holds another run: its call {call} differs from this run's. The "
                f"study, the data, the version or the kind of processor changed since; start again "
                f"without --resume."
            )
        return entry

    def append(self, call: int, mark: int, entry: Entry) -> None:
        """Keep the result of call number `call`.

        It is handed to the operating system at the latest after `PATIENCE` and the time of its
        writing, or by `flush`. What a kill takes before that is asked again, to the same result.

        Raises
        ------
        OSError : this record, or the last one, could not be written.
        """
        arrays = {f"{i}/{k}": a for i, reply in enumerate(entry.replies) for k, a in reply.items()}
        meta: dict[str, Any] = {
            "call": call, "mark": mark, "sites": entry.sites, "replies": len(entry.replies),
        }  # fmt: skip
        if entry.rejected:
            meta["rejected"] = dict(entry.rejected)
        if entry.masked:
            meta["masked"] = True
        self._settle()
        if sum(a.nbytes for a in arrays.values()) in BESIDE:
            self._writer = self._writer or ThreadPoolExecutor(1, "journal")
            self._pending = self._writer.submit(self._write, self._copied(arrays), meta)
        else:
            self._write(arrays, meta)

    def _write(self, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> None:
        parts = parts_of(arrays, meta)
        size = sum(memoryview(part).nbytes for part in parts)
        self._file.writelines((struct.pack("<Q", size), *parts))
        if time.monotonic() - self._flushed > PATIENCE:
            self._hand_over()

    def _copied(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return arrays in memory that the next call of this overwrites: a program may change its
        own.
        """
        ends = np.cumsum([-(-a.nbytes // 8) * 8 for a in arrays.values()]).tolist()
        if len(self._room) < ends[-1]:
            self._room = np.empty(ends[-1], np.uint8)
        found: dict[str, Array] = {}
        for (name, a), start in zip(arrays.items(), [0, *ends], strict=False):
            found[name] = self._room[start : start + a.nbytes].view(a.dtype).reshape(a.shape)
            found[name][...] = a
        return found

    def _settle(self) -> None:
        """Wait for the record that is being written; raise its error, once."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def history(self) -> str:
        """Return text that only this file has, made on first use and kept in it.

        Other machines know by it what they hold for the run that this journal is of: a run that
        starts again with a new journal finds nothing there. From now on `flush` forces the file to
        disk, since those machines outlive a power cut here.
        """
        self._durable = True
        if _HISTORY not in self._known:
            self._known[_HISTORY] = (0, Entry((secrets.token_hex(16),), ()))
            self.append(_HISTORY, *self._known[_HISTORY])
            self.flush()
        return self._known[_HISTORY][1].sites[0]

    def flush(self) -> None:
        """Hand everything kept so far to the operating system, so that a kill cannot take it.

        A coordinator does so around each call that changes a site's state: only the last such
        call can be told apart from one that is asked twice.
        """
        self._settle()
        self._hand_over()

    def _hand_over(self) -> None:
        self._file.flush()
        if self._durable:
            os.fsync(self._file.fileno())
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Close the file."""
        try:
            self._settle()
        finally:
            if self._writer is not None:
                self._writer.shutdown()
            self._file.close()


def _read(record: bytes) -> tuple[int, int, Entry]:
    """Return call number, checksum and result that one record holds."""
    arrays, meta = decode(record)
    replies: list[dict[str, Array]] = [{} for _ in range(meta["replies"])]
    for name, a in arrays.items():
        place, _, key = name.partition("/")
        replies[int(place)][key] = a
    about = meta.get("rejected", {}), meta.get("masked") is True
    entry = Entry(tuple(meta["sites"]), tuple(replies), *about)
    return meta["call"], meta["mark"], entry
