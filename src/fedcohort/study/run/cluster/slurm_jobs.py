"""Pieces of a study as jobs of Slurm, by submitit.

A job does a few pieces, one after the other, and leaves the text of each in a file below
`.work/jobs/`. No result that submitit pickles is read. If a job ends early, the pieces that it left
are handed out again, up to `TRIES` times. Partition, account, memory and time are those of sbatch's
own variables (`SBATCH_PARTITION`, `SBATCH_ACCOUNT`, `SBATCH_MEM_PER_NODE`, `SBATCH_TIMELIMIT`).
"""

from __future__ import annotations

import importlib
import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcohort.protocol import FedcohortError
from fedcohort.study.run.cluster import at_worker
from fedcohort.study.run.cluster.at_worker import KEPT
from fedcohort.study.run.folder import WORK
from fedcohort.study.run.pieces import Cell

JOBS = "jobs"
#: Minutes of a job, if SBATCH_TIMELIMIT does not say; its rest is handed out again.
MINUTES = 240
#: Jobs for each of those at once: more are fairer, fewer start less often.
SHARES = 4
#: How often a piece is handed out again.
TRIES = 3
#: Seconds between two looks, between two questions to Slurm whether jobs have ended, and until the
#: files of an ended job must be visible here.
POLL, ASK, VISIBLE = 0.1, 15.0, 10.0


@dataclass
class _Job:
    """A job with the pieces that it has not finished, and when it was first seen to have ended."""

    job: Any
    name: str
    cells: list[Cell]
    ended: float = 0.0


class Slurm:
    """Jobs of Slurm, or processes of this machine in their place.

    Parameters
    ----------
    kind : "slurm", or "local" for processes of this machine.
    jobs : largest number of jobs at once.

    Raises
    ------
    FedcohortError : this machine has no Slurm.
    """

    def __init__(self, kind: str, out: Path, jobs: int):
        if kind == "slurm" and (shutil.which("sbatch") is None or shutil.which("srun") is None):
            raise FedcohortError(
                "--cluster slurm: there is no sbatch or srun on this machine. Run fedcohort on a "
                "login node of the cluster."
            )
        self._kind, self._jobs = kind, jobs
        self._folder = Path(out).absolute() / WORK / JOBS
        self._queue: deque[list[Cell]] = deque()
        self._running: list[_Job] = []
        self._ending: list[Any] = []
        self._tries: dict[Cell, int] = {}
        self._order = ""
        self._asked = time.monotonic()

    def check(self, order: str) -> None:
        """Do nothing: each job checks its own machine before it begins."""

    def begin(self, order: str, cells: Sequence[Cell]) -> None:
        """Put pieces into the queue, a few for each job."""
        self._order = order
        size = max(1, -(-len(cells) // (SHARES * self._jobs)))
        self._queue.extend(list(cells[i : i + size]) for i in range(0, len(cells), size))

    def ended(self) -> Iterator[tuple[Cell, str]]:
        """Submit jobs, and return the pieces that ended, with their text."""
        while self._queue and len(self._running) < self._jobs:
            self._submit(self._queue.popleft())
        for job in list(self._running):
            for cell in list(job.cells):
                path = self._folder / f"{job.name}.{cell.name}.json"
                if path.exists():
                    job.cells.remove(cell)
                    yield cell, path.read_text(encoding="utf-8")
            if not job.cells:
                self._running.remove(job)
                self._ending.append(job.job)
            elif job.job.done(force_check=self._asks()):
                job.ended = job.ended or time.monotonic()
                if time.monotonic() - job.ended > VISIBLE * (self._kind == "slurm"):
                    self._running.remove(job)
                    self._again(job)
        time.sleep(POLL)

    def _asks(self) -> bool:
        """Return whether to ask Slurm now; its one answer is about all jobs."""
        now = time.monotonic()
        if now - self._asked < ASK:
            return False
        self._asked = now
        return True

    def _submit(self, cells: list[Cell]) -> None:
        submitit: Any = importlib.import_module("submitit")
        executor = submitit.AutoExecutor(folder=self._folder, cluster=self._kind)
        executor.update_parameters(name="fedcohort", timeout_min=MINUTES, cpus_per_task=1)
        if self._kind == "slurm":
            names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
            executor.update_parameters(slurm_setup=[f"export {name}=1" for name in names])
        name = at_worker.token(self._order, *cells, self._tries.get(cells[0], 0))
        numbers = [[c.kind, c.scenario, c.repeat, c.arm] for c in cells]
        try:
            job = executor.submit(at_worker.job, self._order, numbers, str(self._folder / name))
        except submitit.core.utils.FailedJobError as error:
            why = " ".join(str(error).split())
            raise FedcohortError(f"sbatch refused a job ({why}); {KEPT}") from None
        self._running.append(_Job(job, name, cells))

    def _again(self, job: _Job) -> None:
        """Hand out the rest of a job that ended early."""
        first = job.cells[0]
        self._tries[first] = self._tries.get(first, 0) + 1
        if self._tries[first] > TRIES:
            raise FedcohortError(
                f"jobs ended one after the other while they did {first.name}; the last one said "
                f"why in {job.job.paths.stderr}; {KEPT}"
            )
        self._queue.appendleft(job.cells)

    def close(self) -> None:
        """End all jobs; those that did all of their pieces may write their own last files."""
        self._queue.clear()
        for job in self._running:
            job.job.cancel(check=False)
        began = time.monotonic()
        while time.monotonic() - began < VISIBLE:
            if all(job.done() for job in [*self._ending, *(j.job for j in self._running)]):
                break
            time.sleep(POLL)
        self._running.clear()
        self._ending.clear()
