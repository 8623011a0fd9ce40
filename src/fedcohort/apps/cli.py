"""The command `fedcohort`.

Exit codes: 0 done; 1 the study failed, with the reason on one line; 2 the input is wrong, with
the file, the line, the key and what was expected. No traceback unless `--debug`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from fedcohort.protocol.errors import DataError, FedcohortError, InputError, StudyError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Federated learning for clinical cohorts: one study file, every method.",
)

#: The exit code of a command that Ctrl-C ended, as shells have it.
STOPPED = 130

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Folder = Annotated[Path, typer.Argument(help="The folder of a finished run.")]


@app.command()
def run(
    study: Annotated[Path, typer.Argument(help="The study file (YAML).")],
    out: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
    runtime: Annotated[str, typer.Option(help="Where sites live; this version: local.")] = "local",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY.PATH=VALUE", help="Override a key.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Override the study's seed.", min=0)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a stopped run.")] = False,
    workers: Annotated[
        int | None, typer.Option(help="Processes; by default one per core.", min=1)
    ] = None,
    debug: Debug = False,
) -> None:
    """Run every arm of a study and write its results and report."""
    if runtime != "local":
        raise StudyError(f"--runtime {runtime}: this version has the runtime 'local'.")
    from fedcohort.apps import screen
    from fedcohort.study.runner import default_folder
    from fedcohort.study.study import Study

    loaded = Study.from_file(study, overrides=set_ or (), seed=seed)
    folder = out or default_folder(loaded.plan, resume)
    command = _command(study, out, set_ or (), seed)
    with screen.progress(loaded.plan.study, folder) as tell:
        results = loaded.run(
            folder,
            resume=resume,
            workers=workers or _cores(),
            tell=tell,
            command=command,
        )
    screen.show(results)
    if results.failures:
        for reason in results.failures:
            typer.echo(f"failed: {reason}", err=True)
        raise typer.Exit(1)


@app.command()
def report(folder: Folder, debug: Debug = False) -> None:
    """Write report.html anew from a run's files."""
    from fedcohort.study.study import Results

    typer.echo(Results.from_folder(folder).report())


@app.command()
def ledger(folder: Folder, debug: Debug = False) -> None:
    """Say in plain words what left each site."""
    from fedcohort.report import plain_ledger
    from fedcohort.study.study import Results

    finished = Results.from_folder(folder).folder
    if not (finished / "ledger.jsonl").is_file():
        raise DataError(f"{finished}: its ledger.jsonl is missing; nothing is known of what left.")
    for line in plain_ledger(finished):
        typer.echo(line)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="One method; all by default.")] = None,
    debug: Debug = False,
) -> None:
    """Show the catalogue, or one method with its settings."""
    from fedcohort.apps import catalogue

    typer.echo(catalogue.one(name) if name else catalogue.all_methods())


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a saved model.")],
    table: Annotated[Path, typer.Argument(help="A CSV file with the model's columns.")],
    out: Annotated[Path | None, typer.Option(help="CSV to write; the screen by default.")] = None,
    times: Annotated[
        str | None, typer.Option(help="Comma-separated times for survival probabilities.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Apply a saved model to a table; one row out for each row in."""
    from fedcohort.apps import predictions

    text = predictions.csv_of(model, table, times)
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StudyError(f"--out {out}: cannot write there ({error.strerror}).") from None
    typer.echo(out)


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _command(study: Path, out: Path | None, overrides: Iterable[str], seed: int | None) -> str:
    """Return the command that repeats a run: what decides its results, however it was resumed."""
    words = ["fedcohort", "run", str(study)]
    words += ["--out", str(out)] if out else []
    words += [word for assignment in overrides for word in ("--set", assignment)]
    words += ["--seed", str(seed)] if seed is not None else []
    return shlex.join(words)


def main() -> None:
    """Run the command line and leave with its exit code."""
    debug = "--debug" in sys.argv
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = STOPPED
    except Exception as error:
        if debug:
            raise
        code = _explain(error)
    if code == STOPPED:
        typer.echo("stopped; run the same command with --resume to go on.", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: Exception) -> int:
    """Print one line about an error; return the exit code."""
    usage = getattr(error, "format_message", None)
    if usage is not None:
        typer.echo(f"fedcohort: {usage()}", err=True)
        return 2
    if isinstance(error, FedcohortError):
        typer.echo(f"fedcohort: {' '.join(str(error).split())}", err=True)
        return 2 if isinstance(error, InputError) else 1
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{error.filename}: "
        typer.echo(f"fedcohort: {where}{error.strerror}", err=True)
        return 1
    kind = type(error).__name__
    typer.echo(f"fedcohort: an unexpected {kind}; run again with --debug to see where.", err=True)
    return 1


if __name__ == "__main__":
    main()
