"""Common parts of the commands of coordinator and node: kit, lines, log."""

from __future__ import annotations

import logging
import logging.handlers
import shlex
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import typer

from fedcohort.network import clocks
from fedcohort.network.kits import Kit
from fedcohort.network.service import BEAT, Note, unwritable
from fedcohort.network.service import stop as end
from fedcohort.protocol.errors import FedcohortError, InputError
from fedcohort.secure.certificates import Certificate

#: Seconds after which a service that runs has noted something, unless it cannot; and after which it
#: mostly has, so that it is seen whether it can.
STALE, LATE = 15.0, 2 * BEAT
#: What each role's process is called.
COMMANDS = {"coordinator": "coordinator", "site": "node"}


def kit(folder: Path, role: str, *, check: bool = True) -> Kit:
    """Read a kit that must be of some role.

    Raises
    ------
    InputError, Refused : it is none, it is another party's, or it cannot be used now.
    """
    found = Kit.open(folder)
    if found.role != role:
        command = COMMANDS.get(found.role)
        hint = f" Its command is: fedcohort {command}." if command else ""
        raise InputError(f"{folder}: this is the kit of a {found.role}, not of a {role}.{hint}")
    return Kit.read(folder) if check else found


def say(text: str) -> None:
    """Print one line with the time, at once."""
    clean = "".join(c if c.isprintable() else "?" for c in text)
    typer.echo(f"{datetime.now():%H:%M:%S} {clean}")


def log_to(path: Path) -> None:
    """Send the engine's warnings and our own log to a file of limited size."""
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=1 << 20, backupCount=3, encoding="utf-8"
    )
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    path.chmod(0o600)
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.raiseExceptions = False  # a full disk must not end a service


class Aloud(logging.Handler):
    """Passes an engine's warnings to the service's terminal, at most some in a minute."""

    MOST = 20

    def __init__(self, tell: Callable[[str], None]):
        super().__init__(logging.WARNING)
        self._tell = tell
        self._minute = self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Hand one line on."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._count = minute, 0
        self._count += 1
        if self._count <= self.MOST:
            self._tell(" ".join(record.getMessage().split()))
        elif self._count == self.MOST + 1:
            self._tell("more of these lines in this minute are in the log alone.")


class Disk:
    """Reports once that a service's state cannot be written, and once that it can again.

    Parameters
    ----------
    means : the consequence in the meantime.
    """

    def __init__(self, found: Kit, means: str, tell: Callable[[str], None] = say):
        self._state, self._means, self._say = found.folder / "state", means, tell
        self._fault = ""

    def look(self, fault: str) -> None:
        """Report a change; `fault` is the system's text, "" without one."""
        if fault and not self._fault:
            self._say(
                f"{self._state} cannot be written ({fault}): {self._means} until there is room, "
                f"or the right to write"
            )
        elif self._fault and not fault:
            self._say(f"{self._state} can be written again")
        self._fault = fault


def running(found: Kit, note: Note | None) -> None:
    """Say that a service runs and since when; exit with 1 if it does not."""
    what = COMMANDS[found.role]
    who = found.network if found.role == "coordinator" else f"{found.name} in {found.network}"
    if note is None or not note.alive:
        config = " --config node.toml" if found.role == "site" else ""
        kit = shlex.quote(str(found.folder))
        typer.echo(f"{what} of {who}: not running; start it: fedcohort {what} start {kit}{config}")
        if note is not None and (at := clocks.number(note.facts.get("ended"))) is not None:
            when = datetime.fromtimestamp(at)
            typer.echo(f"its last process ended on {when:%Y-%m-%d at %H:%M:%S} by itself")
        elif note is not None:
            typer.echo("its last process ended without saying so (killed, or the machine stopped)")
        if note is not None:
            typer.echo(f"last error: {note.facts.get('error') or 'none'}")
        try:
            found.check()
        except FedcohortError as error:
            typer.echo(f"it cannot start: {error}")
        raise typer.Exit(1)
    since = datetime.fromtimestamp(note.since).strftime("%Y-%m-%d %H:%M:%S")
    took = time.time() - note.since
    typer.echo(f"{what} of {who}: running since {since} ({took:.0f} s), process {note.pid}")


def health(found: Kit, note: Note) -> None:
    """Report a running service's faults: its clock, its disk, its last error."""
    offset = clocks.received(note.facts.get("offset"))
    if offset is not None:
        word = offset.text if offset.wrong else "agrees with"
        typer.echo(f"clock: {word} the coordinator's (±{clocks.spell(offset.bound)})")
    error, state = note.facts.get("error") or "none", found.folder / "state"
    if note.age > LATE and (why := unwritable(state)):
        error = f"nothing was noted for {clocks.spell(note.age)}: {state} cannot be written ({why})"
    elif note.age > STALE:
        error = (
            f"nothing was noted for {clocks.spell(note.age)}: {state} cannot be "
            f"written (full, or no right to write), or the process is stopped"
        )
    typer.echo(f"last error: {error}")


def certificate(found: Kit) -> None:
    """Say until when a kit's certificate is good."""
    until = Certificate.parse(found.certificate.read_bytes()).until
    days = (until - datetime.now(until.tzinfo)).days
    when = f"{days} days from now" if days >= 0 else "which is past by this computer's clock"
    typer.echo(f"certificate: until {until:%Y-%m-%d}, {when}")


def stop(found: Kit, what: str) -> None:
    """End a service by its own process id."""
    typer.echo(f"{what} stopped" if end(found.folder) else f"no {what} runs from {found.folder}")
