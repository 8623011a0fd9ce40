"""Runs the pieces of a study, in parallel where cores allow, so that it can be stopped at any time.

Until a study is complete, its folder holds `.work/`: the finished pieces, and the journals of
those that were under way. `resume` goes on from there; a finished study has no `.work/`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedcohort
from fedcohort.protocol import FedcohortError, NotSupported, StudyError, registry
from fedcohort.runtime import interrupts
from fedcohort.study import arithmetic, carbon, cluster_umap, results
from fedcohort.study.cells import Workshop
from fedcohort.study.layout import Table
from fedcohort.study.lock import locked
from fedcohort.study.pieces import Cell, cells_of, write_text
from fedcohort.study.plan import Plan

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


Tell = Callable[[Event], None]


def run(
    plan: Plan,
    table: Table,
    out: Path,
    *,
    resume: bool,
    workers: int,
    tell: Tell,
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
    began = time.monotonic()
    if plan.availability is not None and runtime != "local":
        raise NotSupported(f"availability is of sites in one process; runtime is {runtime!r}.")
    for arm in plan.arms:
        if lacking := registry.find(arm.method).lacking:
            raise NotSupported(f"arm {arm.name!r}: {lacking}")
    if plan.umap:
        cluster_umap.load()
    if plan.carbon:
        carbon.check(plan.carbon)
    open_folder(out, resume)
    with locked(out / WORK / "lock"):
        _claim(plan, table, out, resume, runtime)
        try:
            shop = Workshop(plan, table, out / WORK, out / "models", debug, runtime)
            return _finish(shop, table, out, workers, tell, command, began, resume)
        except OSError as error:
            raise FedcohortError(
                f"{error.filename or out}: {error.strerror or error}; what was finished is kept: "
                f"run the same command with --resume."
            ) from None


def _finish(
    shop: Workshop, table: Table, out: Path, workers: int, tell: Tell, command: str, began: float,
    resumed: bool,
) -> dict[str, Any]:  # fmt: skip
    """Do the pieces that are left, and write the files that describe them all."""
    stages = cells_of(shop.plan)
    total = sum(map(len, stages))
    done = 0
    with carbon.measured(shop.plan.carbon) as spent:
        for stage in stages:
            open_ = [cell for cell in stage if shop.result(cell) is None]
            done += len(stage) - len(open_)
            for event in _do(shop, table, open_, workers, out):
                name, rounds = event
                done += rounds is None
                tell(Event(done, total, name, rounds))
    if spent and resumed:
        spent["resumed"] = True  # what was done before is not measured
    found = results.write(shop, table, out, time.monotonic() - began, command, spent)
    claim(out).unlink()
    shutil.rmtree(out / WORK)
    return found


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


def _claim(plan: Plan, table: Table, out: Path, resume: bool, runtime: str) -> None:
    """Note whose run this is, or see that the one to resume is this study's."""
    mark = json.dumps(
        {
            "fedcohort": fedcohort.__version__,
            "study": plan.content,
            "seed": plan.seed,
            "data": table.mark,
        }
        | ({} if runtime == "local" else {"runtime": runtime}),
        indent=1,
        sort_keys=True,
        default=str,
    )
    stake(out, mark, resume, "the study, its data, the runtime or the version")
    if arithmetic.note(out / WORK, arithmetic.here(results.versions())):
        arithmetic.begin_anew(out / WORK / "scratch")


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
    kind = "tune " if cell.kind == "tune" else ""
    which = "all rows" if cell.kind == "final" else cell.repeat + 1
    return f"{kind}{arm.name} · {where} · {which}"


Told = tuple[str, tuple[int, int] | None]


def _do(shop: Workshop, table: Table, cells: list[Cell], workers: int, out: Path) -> Iterator[Told]:
    """Do cells; yield (name, rounds) on the way and (name, None) when one is complete."""
    if not cells:
        return
    spare = 1 if shop.debug else max(1, workers // len(cells))
    if workers <= 1 or len(cells) == 1:
        shop.workers = spare
        yield from _here(shop, cells)
        return
    context = multiprocessing.get_context("spawn")
    news: Any = context.Queue()
    given = (shop.plan, table, str(out), shop.debug, shop.runtime, spare, news)
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
                yield label(shop.plan, cell), None
        pool.shutdown()
    except BrokenProcessPool:
        raise FedcohortError(
            f"a worker process died (killed, or out of memory); what was finished is kept in "
            f"{out}: run the same command with --resume."
        ) from None
    finally:
        _end(pool)


def _here(shop: Workshop, cells: list[Cell]) -> Iterator[Told]:
    """Do cells in this process."""
    for cell in cells:
        name = label(shop.plan, cell)
        shop.do(cell, lambda done, of: None)
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

_shop: Workshop | None = None
_news: Any = None


def _start(
    plan: Plan, table: Table, out: str, debug: bool, runtime: str, spare: int, news: Any
) -> None:
    """Set a worker up with a study; one thread each, since the cells are the parallelism."""
    global _shop, _news
    interrupts.ignored()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    folder = Path(out)
    _shop = Workshop(plan, table, folder / WORK, folder / "models", debug, runtime)
    _shop.workers = spare
    _news = news


def _leave_with_parent() -> None:
    """End this process with the one that started it, so that nobody else writes to its journals."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(cell: Cell) -> None:
    assert _shop is not None
    name = label(_shop.plan, cell)
    _shop.do(cell, lambda done, of: _news.put((name, (done, of))))
