"""The folder of a run: its lock, the identity of its run, and resuming.

Until a study is complete, its folder holds `.work/`: the finished pieces, and the journals of the
others. `resume` goes on from there; a finished study has no `.work/`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedcohort.protocol import FedcohortError, StudyError
from fedcohort.study.file.plan import Plan
from fedcohort.study.results import files as results
from fedcohort.study.run import arithmetic
from fedcohort.study.run.pieces import write_text
from fedcohort.version import VERSION

WORK = ".work"


def in_folder(
    out: Path, resume: bool, facts: Mapping[str, Any], said: str, moved: Callable[[], None],
    work: Callable[[float], dict[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """Do the work of a run in its folder, and remove `.work/` at the end.

    Parameters
    ----------
    facts : what determines the run besides the version; a resumed run must have the same.
    said : the same in words.
    moved : called if an earlier process used other libraries or another processor.
    work : writes the study's files; called with the start time.

    Raises
    ------
    StudyError : as `open_folder`, `stake` and `locked`.
    FedcohortError : the disk is full, or a file cannot be written; finished pieces are kept.
    """
    began = time.monotonic()
    open_folder(out, resume)
    with locked(out / WORK / "lock"):
        mark = {"fedcohort": VERSION, **facts}
        stake(out, json.dumps(mark, indent=1, sort_keys=True, default=str), resume, said)
        if arithmetic.note(out / WORK, arithmetic.here(results.versions())):
            moved()
        try:
            found = work(began)
            claim(out).unlink()
            shutil.rmtree(out / WORK)
            return found
        except OSError as error:
            raise FedcohortError(
                f"{error.filename or out}: {error.strerror or error}; finished pieces are kept. "
                f"Run the same command with --resume."
            ) from None


def default_folder(plan: Plan, resume: bool, parent: Path = Path("runs")) -> Path:
    """Return the default folder of a run: the study's first free name.

    A resumed run has the latest unfinished one.
    """
    names = [plan.study, *(f"{plan.study}-{i}" for i in range(2, 10_000))]
    if resume:
        unfinished = [parent / n for n in names if (parent / n / WORK).is_dir()]
        if unfinished:
            return unfinished[-1]
    return next(parent / n for n in names if not (parent / n).exists())


def claim(out: Path) -> Path:
    """Return the file that identifies the unfinished run in a folder."""
    return out / WORK / "claim.json"


def open_folder(out: Path, resume: bool) -> None:
    """Make the folder of a new run, or check that there is one to resume.

    Raises
    ------
    StudyError : the folder cannot be written or is not empty, or there is no run to resume.
    """
    try:
        unfinished = claim(out).exists()
        if resume:
            if not unfinished:
                finished = (out / "results.json").exists()
                what = "the run there is finished" if finished else "there is no run"
                raise StudyError(f"{out}: nothing to resume; {what}.")
            return
        if out.exists() and any(out.iterdir()):
            hint = "--resume to go on with it, or " if unfinished else ""
            raise StudyError(f"{out}: the folder is not empty; use {hint}another --out.")
        (out / WORK).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(f"{out}: cannot make this folder ({error.strerror}).") from None


def stake(out: Path, mark: str, resume: bool, facts: str) -> None:
    """Write the identity of a folder's run, or compare it with an earlier process's.

    Parameters
    ----------
    mark : text that determines the run.
    facts : its parts, in words.

    Raises
    ------
    StudyError : the run to resume has another mark.
    """
    note = claim(out)
    if not resume:
        write_text(note, mark)
    elif note.read_text(encoding="utf-8") != mark:
        raise StudyError(
            f"{out}: {facts} changed since this run began; start a new one with another --out."
        )


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a lock on a file; make the file if needed.

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
