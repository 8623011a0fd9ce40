"""Runs the pieces of a study, in parallel where cores allow, so that it can be stopped at any time.

Until a study is complete, its folder holds `.work/`: the finished pieces, and the journals of
those that were under way. `resume` goes on from there; a finished study has no `.work/`.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedcohort.protocol import FedcohortError, NotSupported, StudyError, registry
from fedcohort.runtime import interrupts
from fedcohort.study.file.plan import NETWORK, Plan
from fedcohort.study.judge.shown import cluster_umap
from fedcohort.study.results import files as results
from fedcohort.study.run import arithmetic, carbon
from fedcohort.study.run.local_fits import LocalFits
from fedcohort.study.run.pieces import Cell, cells_of, write_text
from fedcohort.study.sites.layout import Table
from fedcohort.version import VERSION

WORK = ".work"


@dataclass(frozen=True)
class Event:
    """What a progress display is told: a piece began, moved, or ended.

    Attributes
    ----------
    done, total : pieces finished, and all of them.
    name : the piece, such as "fedavg · iid · 3".
    rounds : rounds done and in all within the piece, where known.
    """

    done: int
    total: int
    name: str
    rounds: tuple[int, int] | None


OnEvent = Callable[[Event], None]


def run(
    plan: Plan,
    table: Table,
    out: Path,
    *,
    resume: bool,
    workers: int,
    tell: OnEvent,
    command: str,
    debug: bool = False,
    runtime: str = "local",
) -> dict[str, Any]:
    """Do all pieces that are not done yet, and write the study's files.

    Parameters
    ----------
    debug : let an error that nobody foresaw end the run, rather than fail the piece.
    runtime : "local", or "flower-sim".

    Raises
    ------
    StudyError : `out` cannot be written, holds another run, a finished one, or none to resume; or
        another process works there.
    NotSupported : a map by UMAP is asked for, or a method, and its package cannot be used.
    FedcohortError : a worker process died, or the disk is full; what was done is kept.
    """
    if plan.availability is not None and runtime != "local":
        raise NotSupported(f"availability is of sites in one process; runtime is {runtime!r}.")
    for arm in plan.arms:
        if lacking := registry.find(arm.method).lacking:
            raise NotSupported(f"arm {arm.name!r}: {lacking}")
    if plan.umap:
        cluster_umap.load()
    if plan.carbon:
        carbon.check(plan.carbon)
    facts: dict[str, Any] = {"study": plan.content, "seed": plan.seed, "data": table.mark}
    facts |= {} if runtime == "local" else {"runtime": runtime}

    def work(began: float) -> dict[str, Any]:
        fits = LocalFits(plan, table, out / WORK, out / "models", debug, runtime)
        stages = cells_of(plan)
        total, done = sum(map(len, stages)), 0
        with carbon.measured(plan.carbon) as spent:
            for stage in stages:
                open_ = [cell for cell in stage if fits.result(cell) is None]
                done += len(stage) - len(open_)
                for name, rounds in _do(fits, table, open_, workers, out):
                    done += rounds is None
                    tell(Event(done, total, name, rounds))
        if spent and resume:
            spent["resumed"] = True  # what was done before is not measured
        return results.write(fits, table, out, time.monotonic() - began, command, spent)

    return in_folder(
        out, resume, facts, "the study, its data, the runtime or the version",
        lambda: arithmetic.begin_anew(out / WORK / "scratch"), work,
    )  # fmt: skip


def in_folder(
    out: Path, resume: bool, facts: Mapping[str, Any], said: str, moved: Callable[[], None],
    work: Callable[[float], dict[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """Do the work of a run in its folder, and remove what was kept to resume it.

    Parameters
    ----------
    facts : what determines the run besides the version; a run to resume has the same.
    said : the same in words.
    moved : called where an earlier process computed with other libraries or another processor.
    work : what writes the study's files; given the time at which the run began.

    Raises
    ------
    StudyError : the folder cannot be written, holds another run, a finished one, or none to resume;
        or another process works there.
    FedcohortError : the disk is full, or a file cannot be written; what was done is kept.
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
                f"{error.filename or out}: {error.strerror or error}; what was finished is kept: "
                f"run the same command with --resume."
            ) from None


def default_folder(plan: Plan, resume: bool, parent: Path = Path("runs")) -> Path:
    """Return where a run goes if the user does not say: the first free name of the study's.

    Resuming takes the latest that is unfinished.
    """
    names = [plan.study, *(f"{plan.study}-{i}" for i in range(2, 10_000))]
    if resume:
        unfinished = [parent / n for n in names if (parent / n / WORK).is_dir()]
        if unfinished:
            return unfinished[-1]
    return next(parent / n for n in names if not (parent / n).exists())


def claim(out: Path) -> Path:
    """Return the file that says whose unfinished run is in a folder."""
    return out / WORK / "claim.json"


def open_folder(out: Path, resume: bool) -> None:
    """Make the folder of a new run, or see that there is one to resume."""
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
    """Write down whose run is in a folder, or compare it with what an earlier process wrote.

    Parameters
    ----------
    mark : text that determines the run.
    facts : what it is made of, in words.

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


def label(plan: Plan, cell: Cell) -> str:
    """Return how a piece is called on screen."""
    arm, scenario = plan.arms[cell.arm], plan.scenarios[cell.scenario]
    where = "pooled" if arm.scope == "centralised" else scenario.name
    where = "" if plan.source == NETWORK else f" · {where}"
    kind = "tune " if cell.kind == "tune" else ""
    which = "all rows" if cell.kind == "final" else cell.repeat + 1
    return f"{kind}{arm.name}{where} · {which}"


Told = tuple[str, tuple[int, int] | None]


def _do(
    fits: LocalFits, table: Table, cells: list[Cell], workers: int, out: Path
) -> Iterator[Told]:
    """Do cells; yield (name, rounds) on the way and (name, None) when one is complete."""
    if not cells:
        return
    spare = 1 if fits.debug else max(1, workers // len(cells))
    if workers <= 1 or len(cells) == 1:
        fits.workers = spare
        yield from _here(fits, cells)
        return
    context = multiprocessing.get_context("spawn")
    news: Any = context.Queue()
    given = (fits.plan, table, str(out), fits.debug, fits.runtime, spare, news)
    pool = ProcessPoolExecutor(min(workers, len(cells)), context, _start, given)
    try:
        with interrupts.later():  # a worker's start is no place for a traceback
            waiting: dict[Future[None], Cell] = {pool.submit(_work, cell): cell for cell in cells}
        while waiting:
            ended, _ = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            yield from _drain(news)
            for future in ended:
                cell = waiting.pop(future)
                future.result()
                yield label(fits.plan, cell), None
        pool.shutdown()
    except BrokenProcessPool:
        raise FedcohortError(
            f"a worker process died (killed, or out of memory); what was finished is kept in "
            f"{out}: run the same command with --resume."
        ) from None
    finally:
        _end(pool)


def _here(fits: LocalFits, cells: list[Cell]) -> Iterator[Told]:
    """Do cells in this process."""
    for cell in cells:
        name = label(fits.plan, cell)
        fits.do(cell, lambda done, of: None)
        yield name, None


def _drain(news: Any) -> Iterator[Told]:
    while True:
        try:
            yield news.get_nowait()
        except queue.Empty:
            return


def _end(pool: ProcessPoolExecutor) -> None:
    """End the workers by their own ids, whatever they are doing; their journals stay."""
    workers = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        if worker.is_alive():
            worker.terminate()
    for worker in workers:
        worker.join(timeout=5)


# in a worker process ------------------------------------------------------------------

_fits: LocalFits | None = None
_news: Any = None


def _start(
    plan: Plan, table: Table, out: str, debug: bool, runtime: str, spare: int, news: Any
) -> None:
    """Set a worker up with a study; one thread each, since the cells are the parallelism."""
    global _fits, _news
    interrupts.ignored()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    folder = Path(out)
    _fits = LocalFits(plan, table, folder / WORK, folder / "models", debug, runtime)
    _fits.workers = spare
    _news = news


def _leave_with_parent() -> None:
    """End this process with the one that started it, so that nobody else writes to its journals."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(cell: Cell) -> None:
    assert _fits is not None
    name = label(_fits.plan, cell)
    _fits.do(cell, lambda done, of: _news.put((name, (done, of))))


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
