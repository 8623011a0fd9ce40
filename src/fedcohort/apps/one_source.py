"""Check that `--data` names one source, not a folder or a shell's list of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedcohort.data.read.sql import is_url
from fedcohort.data.words import by_site, in_folder
from fedcohort.protocol.errors import StudyError


def check_is_one(data: str | None, more: Sequence[str]) -> None:
    """Check that the table is named once, and not by a folder.

    Parameters
    ----------
    data : the value of `--data`. more : the arguments behind it.

    Raises
    ------
    StudyError : it is not one source.
    """
    if more:
        if data is None:
            raise StudyError(f"{more[0]}: name the table by --data.")
        files = [data, *more]
        raise StudyError(f"--data: {len(files)} files in place of one. {by_site(files)}")
    if data is not None and not is_url(data) and Path(data).is_dir():
        raise StudyError(f"--data {data}: it is a folder. {by_site(in_folder(Path(data)))}")
