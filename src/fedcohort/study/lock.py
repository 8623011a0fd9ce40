"""One run at a time in a folder: a lock that ends with the process that holds it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

from filelock import FileLock, Timeout

from fedcohort.protocol import StudyError


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a lock on a file, which is made if need be.

    Raises
    ------
    StudyError : another process holds it.
    """
    try:
        held = FileLock(path).acquire(timeout=0)
    except Timeout:
        raise StudyError(
            f"{path.parent.parent}: another process is running a study there; wait for it, or use "
            f"another --out."
        ) from None
    with held:
        yield
