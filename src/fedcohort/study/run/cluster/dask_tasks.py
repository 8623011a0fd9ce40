"""Pieces of a study as tasks of a Dask scheduler.

A task whose worker was lost is given to another worker by the scheduler, up to its setting
`distributed.scheduler.allowed-failures`. Certificates of `tls://` are those of Dask's own settings
`distributed.comm.tls`.
"""

from __future__ import annotations

import importlib
import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

from fedcohort.protocol import FedcohortError, NotSupported
from fedcohort.study.run.cluster import at_worker
from fedcohort.study.run.cluster.at_worker import KEPT
from fedcohort.study.run.pieces import Cell

#: Seconds to wait for a scheduler, and for workers between two messages.
CONNECT, SILENT = 10, 60
#: Seconds between two looks at tasks, and at workers.
POLL, LOOK = 0.02, 1.0

_log = logging.getLogger(__name__)


class Dask:
    """A Dask scheduler with its workers.

    Raises
    ------
    FedcohortError : no scheduler answers at the address.
    """

    def __init__(self, address: str):
        distributed: Any = importlib.import_module("distributed")
        for name in ("distributed.client", "distributed.core", "distributed.comm"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are raised here
        self._address = address
        self._waiting: dict[Any, Cell] = {}
        self._killed: type[Exception] = distributed.KilledWorker
        self._looked = self._said = 0.0
        secure = address.startswith("tls:")
        try:
            security = distributed.Security() if secure else None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # versions are compared by `check`
                self._client = distributed.Client(
                    address, timeout=CONNECT, security=security, set_as_default=False
                )
        except (OSError, ValueError, RuntimeError, TypeError) as error:
            hint = " and its certificates (docs/cluster.md)" if secure else ""
            why = type(error).__name__
            raise FedcohortError(
                f"--cluster {address}: no Dask scheduler answers there ({why}). Check the "
                f"address{hint}, and that 'dask scheduler' runs."
            ) from None

    def check(self, order: str) -> None:
        """Wait for a worker, and ask all workers whether they can do pieces."""
        while not (workers := self._workers()):
            time.sleep(POLL)
        for address, worker in workers.items():
            if (fits := worker["nthreads"]) != 1:
                raise NotSupported(
                    f"worker {address} would do {fits} fits in one process. Start it again with "
                    f"'dask worker {self._address} --nthreads 1', one for each core; then run the "
                    f"same command with --resume."
                )
        found: dict[str, Any] = self._client.run(at_worker.check, order, on_error="return")
        for address, why in found.items():
            if isinstance(why, BaseException):
                why = f"worker {address} cannot do tasks of fedcohort: {_first_line(why)}."
            if why:
                raise NotSupported(f"{why} Then run the same command with --resume.")

    def begin(self, order: str, cells: Sequence[Cell]) -> None:
        """Hand out pieces as tasks with unique names, so that several studies share workers."""
        run = at_worker.token(order)
        for cell in cells:
            numbers = cell.kind, cell.scenario, cell.repeat, cell.arm
            task = self._client.submit(
                at_worker.piece, order, *numbers, key=f"fedcohort-{run}-{cell.name}", pure=False
            )
            self._waiting[task] = cell

    def ended(self) -> Iterator[tuple[Cell, str]]:
        """Return the pieces that ended, with their text."""
        done = [task for task in self._waiting if task.done()]
        if not done:
            time.sleep(POLL)
            self._workers()
        for task in done:
            cell = self._waiting.pop(task)
            try:
                yield cell, task.result()
            except self._killed:
                raise FedcohortError(
                    f"workers ended one after the other while they did {cell.name} (killed, or out "
                    f"of memory); {KEPT}"
                ) from None
            except CancelledError:
                raise FedcohortError(self._gone()) from None
            except Exception as error:
                raise FedcohortError(
                    f"a worker cannot do tasks of fedcohort: {_first_line(error)}; {KEPT}"
                ) from None

    def close(self) -> None:
        """Drop the tasks, and the connection."""
        self._waiting.clear()
        self._client.close(timeout=2)

    def _workers(self) -> dict[str, Any]:
        """Return the scheduler's workers by address; say so if there are none."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return {}
        self._looked = now
        try:
            workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, TypeError, KeyError):
            raise FedcohortError(self._gone()) from None
        if not workers and now - self._said > SILENT:
            self._said = now
            _log.warning(
                f"no worker is connected to {self._address}; waiting. To start one: dask worker "
                f"{self._address} --nthreads 1"
            )
        return workers

    def _gone(self) -> str:
        return f"the scheduler at {self._address} has ended, or dropped this study's tasks; {KEPT}"


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
