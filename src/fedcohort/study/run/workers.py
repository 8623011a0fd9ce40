"""The worker processes of a study: one pool for all its stages.

Where the system has it, one process loads the packages and forks the workers ("forkserver"). It has
no threads of Python, and libraries of linear algebra have one thread in it, so that a fork is safe.
`warm` starts it early: it loads while the first process reads the study. Elsewhere each worker is
a new process.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcohort.protocol import FedcohortError, registry
from fedcohort.runtime import interrupts
from fedcohort.study.file import yamlfile
from fedcohort.study.run import preloaded

if TYPE_CHECKING:
    from fedcohort.study.run.pieces import Cell

#: Variables that limit the threads of linear algebra.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
#: Modules that the fits of every study use.
ALWAYS = ("fedcohort.study.run.local_fits",)

#: Progress: the name of a piece, and rounds done and in all; None when it is complete.
Told = tuple[str, tuple[int, int] | None]


def warm(modules: Iterable[str] = ()) -> BaseContext:
    """Start the process that forks workers, if the system has it, and return the context.

    Parameters
    ----------
    modules : what it loads, with the modules of every study. No effect if it runs already.
    """
    if "forkserver" in multiprocessing.get_all_start_methods():
        from multiprocessing import forkserver, resource_tracker

        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([preloaded.__name__])
        alone = dict.fromkeys(THREADS, "1")
        with suppress(OSError):
            resource_tracker.ensure_running()  # its start lets interrupts through
        with (
            suppress(OSError),  # its socket cannot be made
            interrupts.later(),
            _environment({**alone, preloaded.MODULES: " ".join((*ALWAYS, *modules))}),
        ):
            forkserver.ensure_running()
            return context
    return multiprocessing.get_context("spawn")


def warm_for(study: Path, *modules: str) -> None:
    """Call `warm` with the methods that a study file names; the file is checked later."""
    with suppress(FedcohortError, OSError):
        arms = yamlfile.read(study).content.get("arms")
        named = [arm.get("method") for arm in arms or () if isinstance(arm, dict)]
        warm((*modules, *registry.modules(map(str, named))))


@contextmanager
def _environment(given: dict[str, str]) -> Generator[None]:
    """Set variables for the processes that are started within this block."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


class Workers:
    """The pool; it starts with the first stage that uses it, and ends with this block.

    Parameters
    ----------
    most : number of processes.
    made : makes the fits in a worker; it can be pickled.
    methods : of the study.
    out : the study's folder, for messages.
    """

    def __init__(self, most: int, made: Callable[[], Any], methods: Iterable[str], out: Path):
        self._most = most
        self._made = made
        self._modules = registry.modules(methods)
        self._out = out
        self._pool: ProcessPoolExecutor | None = None
        self._news: Any = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            _end(self._pool)

    def do(self, cells: Sequence[tuple[str, Cell]], threads: int) -> Iterator[Told]:
        """Do named cells; yield (name, rounds) on the way and (name, None) when one is complete.

        Parameters
        ----------
        threads : of the sites within a fit.

        Raises
        ------
        FedcohortError : a worker process died.
        """
        try:
            with interrupts.later():  # one during a worker's start would print a traceback
                pool = self._started()
                waiting: dict[Future[None], str] = {
                    pool.submit(_work, name, cell, threads): name for name, cell in cells
                }
            while waiting:
                ended, _ = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                yield from _drain(self._news)
                for future in ended:
                    name = waiting.pop(future)
                    future.result()
                    yield name, None
        except BrokenProcessPool:
            raise FedcohortError(
                f"a worker process died (killed, or out of memory); finished pieces are kept in "
                f"{self._out}. Run the same command with --resume."
            ) from None

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = warm(self._modules)
            self._news = context.Queue()
            given = (self._made, dict(os.environ), self._news)
            self._pool = ProcessPoolExecutor(self._most, context, _start, given)
        return self._pool


def _drain(news: Any) -> Iterator[Told]:
    while True:
        try:
            yield news.get_nowait()
        except queue.Empty:
            return


def _end(pool: ProcessPoolExecutor) -> None:
    """End the workers by their process ids; their journals stay."""
    workers = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        if worker.is_alive():
            worker.terminate()
    for worker in workers:
        worker.join(timeout=5)


# in a worker process ------------------------------------------------------------------

_fits: Any = None
_news: Any = None


def _start(made: Callable[[], Any], environment: dict[str, str], news: Any) -> None:
    """Set up a worker with a study, at one thread each, since cells run in parallel."""
    global _fits, _news
    interrupts.ignored()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    os.environ.update(environment | dict.fromkeys(THREADS, "1"))
    _fits, _news = made(), news


def _leave_with_parent() -> None:
    """End this process with its parent, so that only one process writes to its journals."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(name: str, cell: Cell, threads: int) -> None:
    def on_progress(done: int, of: int) -> None:
        _news.put((name, (done, of)))

    _fits.workers = threads
    _fits.do(cell, on_progress)
