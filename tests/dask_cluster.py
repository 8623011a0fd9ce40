"""A Dask scheduler and workers on the loopback interface, processes that end with the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SCHEDULER = (
    "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
    "--no-show", "--scheduler-file",
)  # fmt: skip
WORKER = ("distributed.cli.dask_worker", "--nthreads", "1", "--no-dashboard", "--no-nanny",
          "--host", "127.0.0.1")  # fmt: skip


@dataclass
class Running:
    """A scheduler's address, its process, and those of its workers."""

    address: str
    scheduler: subprocess.Popen[bytes]
    environment: Mapping[str, str]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add(self, *options: str) -> subprocess.Popen[bytes]:
        """Start one more worker."""
        self.workers.append(_start(self.environment, *WORKER, *options, self.address))
        return self.workers[-1]

    def kill(self, worker: int) -> None:
        """Kill a worker by its process id."""
        self.workers[worker].send_signal(signal.SIGKILL)
        self.workers[worker].wait()


def _start(environment: Mapping[str, str], *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", *words], env={**os.environ, **environment, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@contextmanager
def dask(
    folder: Path, workers: int = 2, *options: str, environment: Mapping[str, str] = os.environ
) -> Iterator[Running]:
    """Run a scheduler on a free port, and workers."""
    note = folder / "scheduler.json"
    note.unlink(missing_ok=True)
    scheduler = _start(environment, *SCHEDULER, str(note), *options)
    started = Running("", scheduler, environment)
    try:
        while not note.exists() or not note.read_text():
            assert scheduler.poll() is None
            time.sleep(0.02)
        started.address = json.loads(note.read_text())["address"]
        for _ in range(workers):
            started.add()
        yield started
    finally:
        for process in (*started.workers, scheduler):
            process.kill()
            process.wait()
