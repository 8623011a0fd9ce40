"""`fedcohort node`: a hospital's node, and the commands of its data steward.

The steward's commands work on the files of the node's state, whether it runs or not; a running node
follows a decision at its next call.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="A hospital's end of a network, and its data steward's desk.",
)

Hash = Annotated[str, typer.Argument(metavar="HASH", help="A study: the first digits of its hash.")]
NodeKit = Annotated[
    Path,
    typer.Option("--node", metavar="KIT", envvar="FEDCOHORT_NODE", help="The site's kit."),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="The node.toml; by default the one the node started with."),
]
StewardKit = Annotated[
    Path | None, typer.Option("--kit", metavar="STEWARD_KIT", help="The steward's kit, to sign.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
HERE = Path()


@app.command()
def studies(
    hash_: Annotated[
        str | None, typer.Argument(metavar="[HASH]", help="One study, in plain words.")
    ] = None,
    node: NodeKit = HERE,
    config: Config = None,
    check: Annotated[
        bool, typer.Option("--check", help="Also see whether this site's table fits the study.")
    ] = False,
    details: Annotated[
        bool, typer.Option("--details", help="Also list every step and every reply.")
    ] = False,
    debug: Debug = False,
) -> None:
    """List the studies that came to this site, or show the page on which one is decided."""
    from fedcohort.apps import steward

    for line in steward.studies(node, config, hash_, check=check, details=details):
        typer.echo(line)


@app.command()
def export(
    hash_: Annotated[
        str | None, typer.Argument(metavar="[HASH]", help="One study; the whole desk by default.")
    ] = None,
    node: NodeKit = HERE,
    out: Annotated[
        Path | None,
        typer.Option(help="The page; by default study-HASH-SITE.html or desk-SITE.html, here."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Also see whether this site's table fits the study.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Write one page to print and sign: what a study asks, and the decision with its hash."""
    from fedcohort.apps import steward

    typer.echo(steward.export(node, config, hash_, out, check=check, force=force))


@app.command()
def approve(
    hash_: Hash,
    node: NodeKit = HERE,
    kit: StewardKit = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="The last day; by default approval_days from today."),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="How often it may run; by default approval_runs of node.toml."
        ),
    ] = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Let a study run at this site, until a day and for a number of runs."""
    from fedcohort.apps import steward

    typer.echo(steward.approve(node, config, hash_, kit, until, runs))


@app.command()
def refuse(
    hash_: Hash,
    reason: Annotated[str, typer.Option("--reason", help="Why; the study's lead reads it.")],
    node: NodeKit = HERE,
    kit: StewardKit = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Refuse a study, or take an approval back: its next call is refused."""
    from fedcohort.apps import steward

    typer.echo(steward.refuse(node, config, hash_, kit, reason))


@app.command()
def withdraw(
    hash_: Hash,
    reason: Annotated[str, typer.Option("--reason", help="Why; the study's lead reads it.")],
    node: NodeKit = HERE,
    kit: StewardKit = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The signed file for the lead; by default withdrawal-HASH-SITE.json."),
    ] = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Leave a study for good: refuse its calls, delete what is kept of it, let others forget us."""
    from fedcohort.apps import steward

    for line in steward.withdraw(node, config, hash_, kit, reason, out):
        typer.echo(line)


@app.command()
def kept(
    hash_: Annotated[
        str | None, typer.Argument(metavar="[HASH]", help="One study; all by default.")
    ] = None,
    node: NodeKit = HERE,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete what is kept of this study.")
    ] = False,
    debug: Debug = False,
) -> None:
    """List what this site keeps of fits so that a hospital can leave, or delete it."""
    from fedcohort.apps import steward

    for line in steward.keeps(node, hash_, delete=delete):
        typer.echo(line)


@app.command()
def history(
    hash_: Annotated[
        str | None, typer.Argument(metavar="[HASH]", help="One study; all by default.")
    ] = None,
    node: NodeKit = HERE,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """List all decisions: what, by whom, when, why, until when, runs left, revoked or not."""
    from fedcohort.apps import steward

    for line in steward.history(node, config, hash_):
        typer.echo(line)


@app.command()
def budget(node: NodeKit = HERE, config: Config = None, debug: Debug = False) -> None:
    """Show the privacy budget of this site's table: allowed, reserved, spent, left."""
    from fedcohort.apps import steward

    for line in steward.budget(node, config):
        typer.echo(line)


@app.command()
def ledger(
    hash_: Annotated[
        str | None, typer.Argument(metavar="[HASH]", help="One study; all by default.")
    ] = None,
    node: NodeKit = HERE,
    debug: Debug = False,
) -> None:
    """Say in plain words what left this site."""
    from fedcohort.apps import steward

    for line in steward.ledger(node, hash_):
        typer.echo(line)
