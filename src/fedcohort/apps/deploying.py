"""`fedcohort run` over a network: submit, follow, fetch, report.

The run belongs to the coordinator. Ctrl-C, a closed laptop or a lost connection end only the view;
`--resume` follows it again and fetches its results, `--cancel` ends it. A terminal shows one
updated picture: approvals, current fit, rounds, replies, bytes. Elsewhere a line is printed at each
change, and every ten seconds during rounds.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedcohort.network import engines
from fedcohort.network.coordinator import lead
from fedcohort.network.coordinator.lead import LOSS, Office, Status
from fedcohort.network.coordinator.runs import lapse_of
from fedcohort.network.kits import Kit
from fedcohort.network.study_offer import Offer, offer
from fedcohort.protocol.errors import FedcohortError, InputError, Refused
from fedcohort.study.file.terms import Terms
from fedcohort.study.run.folder import default_folder
from fedcohort.study.study import Results

#: Seconds to reach the coordinator at first.
FIRST = 30.0


class Detached(FedcohortError):
    """The lead stopped following a run, which goes on."""

    exit_code = 130


def run(
    study: Path,
    out: Path | None,
    *,
    network: Path,
    runtime: str,
    wait: float | None = None,
    timeout: float | None = None,
    overrides: Iterable[str] = (),
    seed: int | None = None,
    resume: bool = False,
    cancel: bool = False,
    command: str = "",
) -> Results | None:
    """Run a study over a network; return its results, or None if it was only cancelled.

    Raises
    ------
    InputError : the kit, the study or the folder is wrong.
    FedcohortError : the study was refused, failed or was cancelled; or the coordinator is away.
    """
    kit = Kit.read(network)
    check_kit(kit, runtime)
    terms = Terms.of(study, overrides, seed)
    signed = offer(terms.to_json(), kit)
    with reached(kit) as office:
        if cancel:
            ended = lead.cancel(office, signed.hash)
            folder = out or default_folder(terms.plan, True)
            if not ended.open and lead.is_of(folder, signed.hash):
                lead.release_folder(folder)
            word = "is being ended" if ended.open else ended.state
            typer.echo(f"{ended.study} ({ended.run[:12]}): {word}")
            return None
        folder = out or default_folder(terms.plan, resume)
        status = fetched(
            office, kit, signed, folder, wait=wait, timeout=timeout, resume=resume, command=command
        )
    results = Results.from_folder(folder)
    results.report()
    for name, why in sorted(status.absent.items()):
        typer.echo(f"without {name}: {why}", err=True)
    return results


def fetched(
    office: Office, kit: Kit, signed: Offer, folder: Path, *, wait: float | None,
    timeout: float | None, resume: bool, command: str,
) -> Status:  # fmt: skip
    """Submit a signed study, follow it, and bring its files into a folder; parameters as of `run`.

    Raises
    ------
    FedcohortError : see `run`.
    """
    made = lead.open_folder(folder, signed.hash, kit, resume=resume)
    try:
        first = lead.submit(
            office, signed, wait=wait, timeout=timeout, resume=resume, command=command, loss=FIRST
        )
    except FedcohortError:
        if made:
            lead.release_folder(folder)
        raise
    status = _follow(office, first)
    _check_end(status, folder)
    lead.fetch(office, status.run, folder)
    return status


def check_kit(kit: Kit, runtime: str) -> None:
    """Check that a kit is a lead's, and of the requested engine."""
    if kit.role != "lead":
        raise InputError(
            f"{kit.folder}: this is the kit of a {kit.role}; a study is submitted with a lead's, "
            f"such as NETWORK/people/lead."
        )
    if kit.engine != runtime:
        raise InputError(
            f"{kit.folder}: the network {kit.network} uses {kit.engine}; say --runtime "
            f"{kit.engine}."
        )


@contextmanager
def reached(kit: Kit) -> Any:
    """Yield the coordinator as a lead asks it."""
    logging.getLogger("fedcohort").addHandler(logging.NullHandler())  # what counts is told
    spoke = engines.spoke(kit)
    why = engines.preflight(kit)
    spoke.start()
    try:
        if why:
            typer.echo(f"fedcohort: {why.rstrip('.')}; trying for {FIRST:.0f} s", err=True)
        yield Office(kit, spoke)
    finally:
        spoke.stop()


def _follow(office: Office, first: Status) -> Status:
    """Show the run until it ends; Ctrl-C leaves it going."""
    try:
        with following() as tell:
            return lead.follow(office, first, tell)
    except KeyboardInterrupt:
        raise Detached(
            "the run goes on at the coordinator; the same command with --resume follows it and "
            "fetches its results, with --cancel ends it."
        ) from None


def _check_end(status: Status, folder: Path) -> None:
    """Check that a run has results.

    Raises
    ------
    Refused : the sites did not agree.
    FedcohortError : it failed or was cancelled.
    """
    if status.state == "done":
        return
    if status.state in ("refused", "cancelled"):
        lead.release_folder(folder)
    if status.state == "refused":
        raise Refused("study", f"{status.study} was refused: {status.reason.rstrip('.')}.")
    if status.state == "cancelled":
        raise FedcohortError(f"{status.study} was cancelled {status.reason}".rstrip() + ".")
    kept = " What was computed is kept: the same command with --resume goes on."
    raise FedcohortError(
        f"{status.study} failed: {status.reason.rstrip('.')}." + kept * (not status.final)
    )


#: Seconds between two lines about rounds, where there is no terminal.
EVERY = 10.0
_WORDS = {
    "approved": "approved", "waiting": "waiting for the steward", "refused": "refused",
    "away": "not reached yet",
}  # fmt: skip


@contextmanager
def following(console: Console | None = None) -> Generator[Callable[[Status], None]]:
    """Show a run while it goes on."""
    console = console or Console(stderr=True)
    if not (console.is_terminal and sys.stderr.isatty()):
        yield Lines(console)
        return
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        yield lambda status: live.update(picture(status))


def picture(status: Status) -> Group:
    """Return a run as one picture."""
    head = Text.from_markup(f"[bold]{escape(status.study)}[/bold] {status.run[:12]}  ")
    head.append(where(status))
    sites = Table.grid(padding=(0, 2))
    for name in sorted(status.sites):
        site = status.sites[name]
        word, more = _standing(status, name), ""
        if status.state == "running" and not site.get("silent"):
            seconds = site.get("seconds")
            more = "" if seconds is None else f"answered in {_short(float(seconds))}"
        elif site.get("silent"):
            more = f"silent: {site['silent']}"
        sites.add_row(f"  {escape(name)}", escape(word), escape(more))
    parts = [head, sites]
    if status.state == "running":
        parts.append(Text(f"  {_fit(status)}"))
        parts.append(Text(f"  {_carried(status)}", style="dim"))
    if status.away:
        parts.append(Text(_away(status), style="yellow"))
    return Group(*parts)


class Lines:
    """A run as lines, for logs."""

    def __init__(self, console: Console):
        self._console = console
        self._said: dict[str, str] = {}
        self._when = time.monotonic()
        self._away = -1

    def __call__(self, status: Status) -> None:
        """Print what changed."""
        for name in sorted(status.sites):
            standing = _standing(status, name)
            if status.state == "running" and status.sites[name].get("silent"):
                standing = f"silent: {status.sites[name]['silent']}"
            if status.open or status.sites[name].get("state") != "approved":
                self._say(f"site {name}", f"{name}: {standing}")
        self._say("state", f"{status.study} ({status.run[:12]}): {where(status)}", status.state)
        if status.state == "running" and status.total and not status.away:
            due = time.monotonic() - self._when >= EVERY
            text = f"{_fit(status)}; {_left(status)}; {_carried(status)}"
            self._say("piece", text, f"{status.done}", force=due)
        if status.away:
            tens = int(status.away // EVERY)
            if tens > self._away:
                self._print(_away(status))
            self._away = tens
        elif self._away >= 0:
            self._print("the coordinator is back")
            self._away = -1

    def _say(self, key: str, text: str, mark: str | None = None, force: bool = False) -> None:
        mark = text if mark is None else mark
        if force or self._said.get(key) != mark:
            self._said[key] = mark
            self._print(text)

    def _print(self, text: str) -> None:
        self._when = time.monotonic()
        self._console.print(f"  {text}", highlight=False, soft_wrap=True, markup=False)


def where(status: Status) -> str:
    """Say a run's position in a few words."""
    if status.state == "waiting":
        return f"asking the sites, {_time(status.seconds)}"
    if status.state == "queued":
        ahead = status.ahead
        return "next in the queue" if not ahead else f"in the queue, {ahead} before it"
    if status.state == "running":
        return f"running, {_time(status.seconds)}, {_left(status)}"
    return f"{status.state} after {_time(status.seconds)}"  # the command itself says why


def _standing(status: Status, name: str) -> str:
    """Say where one site stands."""
    site = status.sites[name]
    if name in status.absent:
        return f"without it: {status.absent[name]}"
    word = _WORDS.get(str(site.get("state")), str(site.get("state")))
    if site.get("state") == "waiting":
        word = f"waiting for the steward at {name}"
        if why := lapse_of(str(site.get("reason") or "")):
            word += f" ({why})"
    if site.get("state") == "away" and site.get("reason"):
        return f"cannot take part now: {site['reason']}"
    if site.get("state") == "refused":
        word = f"refused: {site.get('reason')}"
    if not site.get("connected") and status.open and site.get("state") != "refused":
        word += ", not connected"
    return word


def _fit(status: Status) -> str:
    """Say the current fit and round."""
    traffic = status.traffic
    words = f"{status.done} of {status.total} fits done" if status.total else "beginning"
    if status.piece:
        words += f"; {status.piece}"
    if traffic.get("rounds"):
        words += f"; round {int(traffic['round']) + 1} of {traffic['rounds']}"
    if traffic.get("asked"):
        words += f"; {traffic['answered']} of {traffic['asked']} answered"
        words += f" {str(traffic['step']).replace('_', ' ')}"
    return words


def _carried(status: Status) -> str:
    """Say the amount of traffic."""
    t = status.traffic
    if not t:
        return "nothing sent yet"
    return f"{t['calls']} calls, {_bytes(t['up'])} from the sites, {_bytes(t['down'])} to them"


def _away(status: Status) -> str:
    return (
        f"the coordinator has not answered for {_time(status.away)}; it is asked again for "
        f"{_time(max(0.0, LOSS - status.away))}. The run goes on once it is back, also without "
        f"this command (--resume follows it). If it stays away, its IT has to start it"
    )


def _left(status: Status) -> str:
    """Say the estimated time left."""
    return "time left not known yet" if status.left is None else f"about {_time(status.left)} left"


def _bytes(n: float) -> str:
    for unit in ("B", "kB", "MB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} GB"


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
