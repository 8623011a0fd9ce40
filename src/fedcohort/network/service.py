"""A long-running process of a kit: one per kit, listed, and ended by its own process id.

A coordinator or node runs in the foreground as an ordinary user. It holds the lock
`KIT/state/lock` and writes `KIT/state/service.json`: process id, start time of the process (which
tells it from a later process with the same id) and its facts. `status` reads the note; `stop` sends
SIGTERM to that process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self, cast

from filelock import FileLock, Timeout

from fedcohort.protocol.errors import InputError, StudyError

#: Seconds between two notes of a service about itself, unless something happened.
BEAT = 2.0
#: Seconds that a service may take to end.
GRACE = 1.5
_UNWRITABLE = "{}: cannot be written ({}). Make room there, or give this user the right to write."


def born(pid: int) -> str | None:
    """Return when a process began, as its system writes it; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        after = stat.rpartition(")")[2].split()
        return None if after[0] in "ZX" else f"{_boot()}{after[19]}"
    except (OSError, IndexError):
        if Path("/proc/self/stat").exists():
            return None
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        found = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=5
        )
        return found.stdout.strip() or None
    return None


def _boot() -> str:
    """Return an identifier of this computer's start, from which process times count."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() + " "
    except OSError:
        return ""


@dataclass(frozen=True)
class Note:
    """A service's note about itself.

    Attributes
    ----------
    pid, began : process id and start time.
    since : Unix time at which the service was ready.
    facts : connected parties, current study, last error.
    age : seconds since the process wrote the note; a file server's clock may differ.
    """

    pid: int
    began: str
    since: float
    facts: dict[str, Any]
    age: float = 0.0

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        return born(self.pid) == self.began


def unwritable(state: Path) -> str:
    """Return why a kit's state cannot be written, in the system's words; "" where it can."""
    probe = state / f".probe-{os.getpid()}-{threading.get_ident()}"
    try:
        try:
            probe.write_bytes(b"0")
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def read(folder: Path) -> Note | None:
    """Return the note in a kit's folder; None if it cannot be read."""
    try:
        path = folder / "state" / "service.json"
        found = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
        at = float(found["at"]) if "at" in found else path.stat().st_mtime
        return Note(
            int(found["pid"]), str(found["began"]), float(found["since"]), dict(found["facts"]),
            max(0.0, time.time() - at),
        )  # fmt: skip
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return None


def stop(folder: Path, patience: float = 10.0) -> bool:
    """End the service of a kit by its process id; return whether there was one.

    Raises
    ------
    StudyError : it did not end in time, or is another user's.
    """
    note = read(folder)
    if note is None or not note.alive:
        return False
    try:
        os.kill(note.pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    except PermissionError:
        raise StudyError(f"process {note.pid} is another user's; stop it as that user.") from None
    limit = time.monotonic() + patience
    while note.alive:
        if time.monotonic() > limit:
            raise StudyError(f"process {note.pid} got the signal to end and still runs.")
        time.sleep(0.05)
    return True


class Service:
    """The process that serves a kit; use it as a context.

    Parameters
    ----------
    folder : the kit's.
    what : "coordinator" or "node", for messages.

    Raises
    ------
    InputError : another process serves this kit, or its folder cannot be written.

    Attributes
    ----------
    fault : why its note cannot be written now; "" while it can.
    """

    def __init__(self, folder: Path, what: str):
        self._state = folder / "state"
        self._what = what
        self._ended = False
        self._facts: dict[str, Any] = {}
        self._guard = threading.Lock()
        self._written = 0.0
        self._since = time.time()
        self._lock = FileLock(self._state / "lock")
        self._last = ""
        self.fault = ""

    def __enter__(self) -> Self:
        """Take the lock, note who runs, and listen to SIGTERM and Ctrl-C."""
        try:
            self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(_UNWRITABLE.format(self._state, error.strerror)) from None
        if why := unwritable(self._state):
            raise InputError(_UNWRITABLE.format(self._state, why))
        _remember_temporary()
        running = read(self._state.parent)
        with contextlib.suppress(Timeout):
            self._lock.acquire(timeout=0)
        if not self._lock.is_locked or (running is not None and running.alive):
            who = "" if running is None else f" (process {running.pid})"
            self._lock.release()
            raise InputError(
                f"{self._state.parent}: a {self._what} runs from this kit already{who}; one kit "
                f"serves one process. Stop it first: fedcohort {self._what} stop KIT."
            )
        self.tell()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the note, unless it says why the service ended, and give the lock back."""
        if self._last:
            self._written = 0.0
            self.tell(error=self._last, ended=time.time())
        with self._guard:
            if not self._last:
                with contextlib.suppress(OSError):
                    (self._state / "service.json").unlink(missing_ok=True)
            self._written = float("inf")
        self._lock.release()

    def tell(self, **facts: Any) -> None:
        """Note what the service says of itself; written if something changed, or now and then."""
        with self._guard:
            changed = any(self._facts.get(k) != v for k, v in facts.items())
            self._facts |= facts
            if self._written and not changed and time.monotonic() - self._written < BEAT:
                return
            if self._written == float("inf"):
                return
            self._written = time.monotonic()
            note = {
                "pid": os.getpid(),
                "began": born(os.getpid()),
                "since": self._since,
                "at": time.time(),
                "facts": self._facts,
            }
            fresh = self._state / "service.new"
            try:  # a full disk must not end a service
                fresh.write_text(json.dumps(note, indent=1), encoding="utf-8")
                os.replace(fresh, self._state / "service.json")
                self.fault = ""
            except OSError as error:
                self.fault = error.strerror or type(error).__name__

    @property
    def ended(self) -> bool:
        """Whether the service was asked to end."""
        return self._ended

    def end(self) -> None:
        """Ask the service to end."""
        self._ended = True

    def last(self, why: str) -> None:
        """Let the note stay behind, and say why the service ended."""
        self._last = why

    def wait(self, seconds: float) -> bool:
        """Wait; return True at once when the service is asked to end."""
        limit = time.monotonic() + seconds
        while not self._ended and time.monotonic() < limit:  # no lock: a signal may come anywhere
            time.sleep(min(0.1, seconds))
        return self._ended

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._ended = True


def _remember_temporary() -> None:
    """Choose the folder of temporary files now.

    PyTorch asks for it while it loads one of its parts; a failure then leaves a half-loaded module.

    Raises
    ------
    InputError : none can be written.
    """
    try:
        tempfile.gettempdir()
    except OSError:
        raise InputError(
            "no folder for temporary files can be written (TMPDIR, /tmp, /var/tmp). Make room, or "
            "set TMPDIR to a folder that this user may write."
        ) from None


def within(seconds: float, work: Callable[[], object]) -> None:
    """Do some work in a thread of its own, and wait for it for so long and not longer."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)


def leave(code: int) -> None:
    """End this process now, whatever its engine's threads are doing; all files are written."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
