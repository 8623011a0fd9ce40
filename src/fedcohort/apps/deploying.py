"""`fedcohort run` over a network: submit, follow, fetch, report.

The run belongs to the coordinator. Ctrl-C, a closed laptop or a lost connection end only the view;
`--resume` follows it again and fetches its results, `--cancel` ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from fedcohort.apps.following import following
from fedcohort.network import engines
from fedcohort.network.coordinator import lead
from fedcohort.network.coordinator.lead import Office, Status
from fedcohort.network.kits import Kit
from fedcohort.network.study_offer import offer
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
    _check(kit, runtime)
    terms = Terms.of(study, overrides, seed)
    signed = offer(terms.to_json(), kit)
    with _reached(kit) as office:
        if cancel:
            ended = lead.cancel(office, signed.hash)
            folder = out or default_folder(terms.plan, True)
            if not ended.open and lead.is_of(folder, signed.hash):
                lead.release_folder(folder)
            word = "is being ended" if ended.open else ended.state
            typer.echo(f"{ended.study} ({ended.run[:12]}): {word}")
            return None
        folder = out or default_folder(terms.plan, resume)
        made = lead.open_folder(folder, signed.hash, kit, resume=resume)
        try:
            first = lead.submit(
                office, signed, wait=wait, timeout=timeout, resume=resume, command=command,
                loss=FIRST,
            )  # fmt: skip
        except FedcohortError:
            if made:
                lead.release_folder(folder)
            raise
        status = _follow(office, first)
        _check_end(status, folder)
        lead.fetch(office, status.run, folder)
    results = Results.from_folder(folder)
    results.report()
    for name, why in sorted(status.absent.items()):
        typer.echo(f"without {name}: {why}", err=True)
    return results


def _check(kit: Kit, runtime: str) -> None:
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
def _reached(kit: Kit) -> Any:
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
