"""The command line as a process of its own, and what a run of it leaves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

COMMAND = (sys.executable, "-m", "fedcohort.apps.cli")
RUN = (*COMMAND, "run", "s.yaml", "--out", "out")


def interruptible() -> None:
    """Hear Ctrl-C in a process that is about to start, also where the tests ignore it.

    A shell's job in the background does, and so would every program that it starts: it ended with
    0, as if no interrupt had come.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def running(folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Run s.yaml of a folder in a process group of its own, which is killed at the end."""
    process = subprocess.Popen(
        [*RUN, *more], cwd=folder, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=interruptible,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def without_times(out: Path) -> dict[str, bytes]:
    """Return every file of a run but the report, with the keys named `seconds` taken out.

    So is from the ledger whether a sum was masked, which is the runtime's, and changes no number.
    """
    found = {}
    for path in sorted(out.rglob("*")):
        if path.is_file() and path.name != "report.html":
            body = path.read_bytes()
            if path.name == "results.json":
                results = json.loads(body)
                for row in (results, *results["arms"], *results.get("final", ())):
                    row.pop("seconds")
                body = json.dumps(results).encode()
            if path.name == "ledger.jsonl":
                body = body.replace(b'"masked":true', b'"masked":false')
            found[str(path.relative_to(out))] = body
    return found


def workers_of(pid: int) -> list[int]:
    """Return the worker processes of a run: children of the process that forks them."""

    def children(of: int) -> list[int]:
        return [int(c) for c in Path(f"/proc/{of}/task/{of}/children").read_text().split()]

    forks = [c for c in children(pid) if b"forkserver" in Path(f"/proc/{c}/cmdline").read_bytes()]
    return [worker for server in forks for worker in children(server)]
