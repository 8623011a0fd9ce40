"""One run at a time in a folder: a lock that ends with the process that holds it."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Generator
from pathlib import Path

from fedcohort.protocol import StudyError


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a lock on a file, which is made if need be; where there is no `flock`, hold nothing.

    Raises
    ------
    StudyError : another process holds it.
    """
    with path.open("w") as file:
        with contextlib.suppress(ImportError):
            fcntl = importlib.import_module("fcntl")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StudyError(
                    f"{path.parent.parent}: another process is running a study there; wait for "
                    f"it, or use another --out."
                ) from None
        yield
