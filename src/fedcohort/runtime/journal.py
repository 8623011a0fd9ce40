"""The coordinator's journal: every result that it got, in order, for replay.

To resume a run, the program starts again from the beginning and is fed the journal until it
ends; from there on, sites are asked. So nothing in a program knows about checkpoints, and a run
that was killed at any moment ends with the same arrays as one that was not.

A record is appended after each call, in one write. A kill can only cut the last record, whose
checksum then fails: it is dropped, and its call is asked again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from fedcohort.arrays import Array
from fedcohort.protocol.errors import JournalMismatch
from fedcohort.protocol.wire import Malformed, decode, encode


#: Between a site's name and a field's, in the keys of a gathered result.
SEPARATOR = "\x1f"


@dataclass(frozen=True)
class Entry:
    """The result of one call.

    Attributes
    ----------
    sites : those whose replies are in it.
    arrays : for `sum`, the total's fields; for `gather`, site and field joined by `SEPARATOR`.
    """

    sites: tuple[str, ...]
    arrays: dict[str, Array]

    def of(self, site: str) -> dict[str, Array]:
        """Return one site's fields of a gathered result."""
        start = f"{site}{SEPARATOR}"
        return {k[len(start) :]: a for k, a in self.arrays.items() if k.startswith(start)}


class Journal:
    """One run's results in one file.

    Parameters
    ----------
    path : the file; what it holds already is replayed.
    """

    def __init__(self, path: Path):
        self._path = path
        self._known: list[tuple[int, Entry]] = []
        end = 0
        if path.exists():
            blob = path.read_bytes()
            while end + 8 <= len(blob):
                (size,) = struct.unpack_from("<Q", blob, end)
                try:
                    arrays, meta = decode(blob[end + 8 : end + 8 + size])
                except Malformed:
                    break
                self._known.append((meta["print"], Entry(tuple(meta["sites"]), arrays)))
                end += 8 + size
        self._file = path.open("r+b" if path.exists() else "w+b")
        self._file.truncate(end)
        self._file.seek(end)
        self._replayed = len(self._known)

    def replay(self, call: int, print_: int) -> Entry | None:
        """Return the kept result of call number `call`, or None if the journal ends before it.

        Raises
        ------
        JournalMismatch : the call that was kept under this number is another one.
        """
        if call >= len(self._known):
            return None
        kept, entry = self._known[call]
        if kept != print_:
            raise JournalMismatch(
                f"{self._path} holds another run: its call {call} differs from this run's. The "
                f"study, the data or the version changed since; start again without --resume."
            )
        return entry

    def just_ended(self, call: int) -> bool:
        """Return whether `call` is the first that a resumed run has to ask."""
        return 0 < self._replayed == call

    def append(self, call: int, print_: int, entry: Entry) -> None:
        """Keep the result of call number `call`."""
        record = encode(entry.arrays, {"call": call, "print": print_, "sites": entry.sites})
        self._file.write(struct.pack("<Q", len(record)) + record)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
