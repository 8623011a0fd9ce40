"""`fedcohort coordinator start|status|stop|runs`: the party in the middle of a network."""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedcohort.network.kits import Kit

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The party in the middle: takes studies from leads, asks the sites, runs them.",
)

KitFolder = Annotated[Path, typer.Argument(metavar="KIT", help="The coordinator's kit.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


@app.command()
def start(
    kit: KitFolder,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="This computer's own address, where the kit's is that of a router before it; "
            "0.0.0.0 for all.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Serve a network, in the foreground, until Ctrl-C or SIGTERM."""
    from fedcohort.apps import serving
    from fedcohort.network import engines
    from fedcohort.network.coordinator.coordinator import Coordinator
    from fedcohort.network.service import Service, leave

    found = serving.kit(kit, "coordinator")
    with Service(found.folder, "coordinator") as service:
        serving.log_to(found.folder / "state" / "coordinator.log")
        coordinator = Coordinator(found, partial(engines.hub, found, listen=listen), serving.say)
        engines.log.addHandler(serving.Aloud(coordinator.wrong))
        try:
            coordinator.start()
            serving.say(
                f"coordinator of {found.network}: listening on {_where(found, listen)} for "
                f"{', '.join(found.sites)}; end it with Ctrl-C"
            )
            disk = serving.Disk(found, "its runs cannot go on")
            while not service.wait(0.5):
                service.tell(**coordinator.facts())
                disk.look(service.fault)
        finally:
            coordinator.stop()
        serving.say("stopped")
    leave(0)


def _where(kit: Kit, listen: str | None) -> str:
    """Say where a coordinator listens, and the address by which parties reach it."""
    if listen is None:
        return kit.address
    host = f"[{listen}]" if ":" in listen else listen
    return f"{host}:{kit.port}, which parties reach as {kit.address},"


@app.command()
def status(kit: KitFolder, debug: Debug = False) -> None:
    """Say whether it runs, who is connected, and what it does."""
    from fedcohort.apps import serving
    from fedcohort.network.kits import as_line
    from fedcohort.network.service import read

    found = serving.kit(kit, "coordinator", check=False)
    note = read(found.folder)
    serving.running(found, note)
    assert note is not None
    facts = note.facts
    here = facts.get("connected", [])
    away = [name for name in facts.get("sites", []) if name not in here]
    typer.echo(f"connected: {', '.join(here) or 'no site'}")
    if away:
        typer.echo(f"not connected: {', '.join(away)}")
    for name, known in facts.get("parties", {}).items():
        if name in facts.get("sites", []):
            typer.echo(f"  {as_line(name, known, name in here)}")
    typer.echo(f"study: {facts.get('study') or 'none under way'}")
    if facts.get("open"):
        typer.echo(f"open: {', '.join(facts['open'])}")
    serving.health(found, note)
    serving.certificate(found)


@app.command()
def stop(kit: KitFolder, debug: Debug = False) -> None:
    """End it; studies that are under way go on at its next start."""
    from fedcohort.apps import serving

    serving.stop(serving.kit(kit, "coordinator", check=False), "coordinator")


@app.command()
def runs(kit: KitFolder, debug: Debug = False) -> None:
    """List the studies that it was given, the latest last."""
    from fedcohort.apps import serving
    from fedcohort.network.coordinator.runs import all_of, said

    found = all_of(serving.kit(kit, "coordinator", check=False).folder)
    if not found:
        typer.echo("no study was submitted yet.")
    for run in found:
        at = datetime.fromtimestamp(run.submitted).strftime("%Y-%m-%d %H:%M")
        took = ""
        if run.started is not None:
            took = f" ({(run.ended or time.time()) - run.started:.0f} s)"
        typer.echo(f"{at}  {run.hash[:12]}  {run.study} by {run.lead}: {run.state}{took}")
        if run.reason:
            typer.echo(f"    {run.reason}")
        if run.state == "waiting":
            typer.echo(f"    {'; '.join(said(run.sites))}")
        for name, why in sorted(run.absent.items()):
            typer.echo(f"    without {name}: {why}")
