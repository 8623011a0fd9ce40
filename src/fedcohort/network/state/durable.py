"""Small files and databases of a node; each change is on disk when the call returns."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Generator
from pathlib import Path


@contextlib.contextmanager
def opened(path: Path, *tables: str) -> Generator[sqlite3.Connection]:
    """Yield a connection, closed afterwards, to a file that only its owner can read.

    Parameters
    ----------
    tables : statements that create missing tables.
    """
    if not path.exists():
        path.touch(mode=0o600)
    db = sqlite3.connect(path, timeout=30.0, isolation_level=None)
    try:
        # EXTRA: the removal of the journal, which is the commit, outlasts a loss of power too
        db.execute("PRAGMA synchronous = EXTRA")
        for table in tables:
            db.execute(table)
        yield db
    finally:
        db.close()


def write(path: Path, content: bytes) -> None:
    """Write a file for its owner alone, whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    if os.name == "posix":  # the new name, too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
