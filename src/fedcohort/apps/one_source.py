"""What `--data` names is one source; a folder, or the many files of a shell, are told how to be."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from fedcohort.data.sql import is_url
from fedcohort.protocol.errors import StudyError

#: The word that a text ends with.
_WORD = re.compile(r"[^\W_]+$")


def check_is_one(data: str | None, more: Sequence[str]) -> None:
    """Check that the table is named, once, and not by a folder.

    Parameters
    ----------
    data : what `--data` says. more : what stood behind it.

    Raises
    ------
    StudyError : it is not one source.
    """
    if more:
        if data is None:
            raise StudyError(f"{more[0]}: name the table by --data.")
        files = [data, *more]
        raise StudyError(f"--data: {len(files)} files in place of one. {_by_site(files)}")
    if data is not None and not is_url(data) and Path(data).is_dir():
        files = [p.as_posix() for p in sorted(Path(data).iterdir()) if p.suffix]
        raise StudyError(f"--data {data}: it is a folder. {_by_site(files or [f'{data}/x.csv'])}")


def _by_site(files: Sequence[str]) -> str:
    """Say how files of one site each are named together."""
    start = _WORD.sub("", _common(files))
    end = _WORD.sub("", _common([f[::-1] for f in files]))[::-1]
    if "/" in end or "." not in end or not all(len(f) > len(start + end) for f in files):
        start, end = f"{Path(files[0]).parent.as_posix()}/", Path(files[0]).suffix
    return (
        f"Give '{start}{{site}}{end}' in quotes if each file is of one site, which {{site}} stands "
        f"for; else one file."
    )


def _common(texts: Sequence[str]) -> str:
    """Return what texts begin with, all of them."""
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in alike)
