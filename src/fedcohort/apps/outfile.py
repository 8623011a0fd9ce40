"""Writing of `--out`: never over an input, and over other files only if asked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedcohort.protocol.errors import StudyError

#: What a page of ours has in its head.
OURS = b'<meta name="generator" content="fedcohort"'


def check(
    out: Path,
    inputs: Iterable[Path],
    *,
    force: bool,
    page: bool = False,
    option: str = "--out",
) -> None:
    """Check that a command may write a file.

    Parameters
    ----------
    inputs : files and folders that the command reads; files in such a folder are inputs too.
    force : an existing file may be replaced.
    page : an existing page of ours may be replaced.
    option : that names the file.

    Raises
    ------
    StudyError : the file is an input, or it exists.
    """
    if page and out.is_file() and OURS in out.read_bytes():
        return
    place = out.resolve()
    for path in inputs:
        same = place == path.resolve() or (out.exists() and path.exists() and out.samefile(path))
        if out.is_file() and (same or path.resolve() in place.parents):
            raise StudyError(f"{option} {out}: it is an input of this command. Name another file.")
    if out.is_file() and not force:
        raise StudyError(f"{option} {out}: it exists. Name another file, or replace it by --force.")


def write(out: Path, text: str, option: str = "--out") -> None:
    """Write a text.

    Raises
    ------
    StudyError : it cannot be written there.
    """
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StudyError(f"{option} {out}: cannot write there ({error.strerror}).") from None
