"""`fedcohort audit …`: attacks on a finished run of our own, and their findings.

Each writes its findings into `audit.json` beside the run's results, and prints them. With
`--strict`
the command exits with 1 if an attack succeeds against the study's protections.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedcohort.audit.findings import Findings

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Attack a finished run of your own, and see what its protections are worth.",
)

Run = Annotated[Path, typer.Argument(help="The folder of a finished run on simulated sites.")]
Arm = Annotated[str | None, typer.Option(help="Which arm; by default the first that serves.")]
Json = Annotated[Path | None, typer.Option("--json", help="A JSON file to write as well.")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="Where the study's relative paths start; by default its own folder."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the attack's random draws.", min=0)]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 if an attack succeeds.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


#: A table with more columns is turned on its side.
ABREAST = 6


@app.command()
def inversion(
    run: Run,
    arm: Arm = None,
    site: Annotated[str | None, typer.Option(help="Whose records; the first by name.")] = None,
    records: Annotated[int, typer.Option(help="Records that each site has.", min=1, max=256)] = 8,
    attempts: Annotated[int, typer.Option(help="Starts of the fit.", min=1, max=10_000)] = 40,
    hidden: Annotated[
        str | None, typer.Option(help="Other widths of the network, such as 512 or 8,4.")
    ] = None,
    activation: Annotated[str | None, typer.Option(help="Another activation: relu, tanh …")] = None,
    seed: Seed = 0,
    data_dir: Data = None,
    json: Json = None,
    strict: Strict = False,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Read records out of a site's first update: unprotected, in a masked sum, with noise.

    Takes a few minutes at most; fewer --attempts are quicker and weaker.
    """
    _check(run, json, force)
    from fedcohort.audit import inversion as audit
    from fedcohort.audit.rebuilt import rebuild

    found = audit.invert(
        rebuild(run, data_dir),
        arm=arm,
        site=site,
        records=records,
        attempts=attempts,
        hidden=_widths(hidden),
        activation=activation,
        seed=seed,
    )
    _tell(run, found, json, strict)


@app.command()
def membership(
    run: Run,
    arm: Arm = None,
    shadows: Annotated[
        int,
        typer.Option(help="Shadow models, each as costly as the fit; 0: none.", min=0, max=1000),
    ] = 16,
    seed: Seed = 0,
    data_dir: Data = None,
    json: Json = None,
    strict: Strict = False,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Tell from the final model who it was trained on: an AUC with its interval."""
    _check(run, json, force)
    from fedcohort.audit import membership as audit
    from fedcohort.audit.rebuilt import rebuild

    found = audit.infer(rebuild(run, data_dir), arm=arm, shadows=shadows, seed=seed)
    _tell(run, found, json, strict)


@app.command()
def epsilon(
    run: Run,
    arm: Arm = None,
    canaries: Annotated[int, typer.Option(help="Records put in.", min=10, max=20_000)] = 1000,
    guesses: Annotated[int, typer.Option(help="Number of guesses; even.", min=2)] = 100,
    seed: Seed = 0,
    data_dir: Data = None,
    json: Json = None,
    strict: Strict = False,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Bound the epsilon of a private run from below, by canaries; it must be below the claim."""
    _check(run, json, force)
    from fedcohort.audit import epsilon as audit
    from fedcohort.audit.rebuilt import rebuild
    from fedcohort.protocol.errors import SettingError

    if guesses % 2 or guesses > canaries:
        raise SettingError(
            f"--guesses is {guesses}; give an even number of at most {canaries}, the canaries."
        )
    found = audit.bound(
        rebuild(run, data_dir), arm=arm, canaries=canaries, guesses=guesses, seed=seed
    )
    _tell(run, found, json, strict)


@app.command()
def linkage(
    run: Run,
    arm: Arm = None,
    least: Annotated[
        int | None,
        typer.Option(
            help="Smallest group that hides one patient; default: the study's min_cell.",
            min=2,
        ),
    ] = None,
    data_dir: Data = None,
    json: Json = None,
    strict: Strict = False,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Look for patients whom the published curves and numbers at risk single out."""
    _check(run, json, force)
    import numpy as np

    from fedcohort.audit import linkage as audit
    from fedcohort.audit.rebuilt import rebuild
    from fedcohort.data.outcome import Survival

    rebuilt = rebuild(run, data_dir)
    outcome, test = rebuilt.table.outcome, rebuilt.laid.test
    time = event = None
    if isinstance(outcome, Survival):  # the curves of a run are of its held-out rows
        time = np.asarray(test[outcome.time], float)
        event = np.asarray(test[outcome.event], float) > 0
    found = audit.linkage(
        rebuilt.results, time, event, arm=arm or "", least=least or max(rebuilt.plan.min_cell, 2)
    )
    _tell(run, found, json, strict)


def _check(run: Path, json: Path | None, force: bool) -> None:
    from fedcohort.apps import outfile

    if json is not None:
        outfile.check(json, [run], force=force, option="--json")


def _tell(run: Path, found: Findings, json: Path | None, strict: bool) -> None:
    """Keep and print the findings; exit with 1 on an alarm with `--strict`."""
    from fedcohort.apps import outfile
    from fedcohort.audit.findings import keep

    kept = keep(run, found)
    if json is not None:
        outfile.write(json, found.json, option="--json")
    _show(found)
    typer.echo(f"kept in: {kept}")
    if strict and found.alarm:
        typer.echo(f"fedcohort: {found.audit}: {found.verdict}", err=True)
        raise typer.Exit(1)


def _show(found: Findings) -> None:
    """Print a table and the verdict."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    title = f"{found.audit} of {found.arm}" if found.arm else found.audit
    table = Table(title=escape(title), caption=escape(found.question))
    keys = list(dict.fromkeys(key for line in found.lines for key in line))
    if len(keys) > ABREAST:  # one column for each line
        table.show_header = False
        for key in keys:
            table.add_row(escape(key), *(escape(_cell(line, key)) for line in found.lines))
    else:
        for key in keys:
            words = any(isinstance(line.get(key), str) for line in found.lines)
            table.add_column(escape(key), justify="left" if words else "right")
        for line in found.lines:
            table.add_row(*(escape(_cell(line, key)) for key in keys))
    console = Console()
    console.print(table)
    console.print(escape(found.verdict), highlight=False)


def _cell(line: Mapping[str, Any], key: str) -> str:
    value = line.get(key)
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _widths(text: str | None) -> tuple[int, ...] | None:
    """Return the widths of hidden layers.

    Raises
    ------
    SettingError : not whole numbers above 0.
    """
    from fedcohort.protocol.errors import SettingError

    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) for part in parts):
        raise SettingError(f"--hidden is {text!r}; give widths such as 512 or 8,4.")
    return tuple(int(part) for part in parts)
