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

from fedcohort.apps import (
    auditing,
    coordinator_app,
    data_app,
    network_app,
    node_service,
    plain_help,
)
from fedcohort.protocol.errors import DataError, FedcohortError, InputError, StudyError
from fedcohort.runtime import interrupts
from fedcohort.version import VERSION

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Federated learning for clinical cohorts: one study file, every method.",
)

plain_help.mend()

app.add_typer(data_app.app, name="data")
app.add_typer(auditing.app, name="audit")
app.add_typer(network_app.app, name="network")
app.add_typer(coordinator_app.app, name="coordinator")
app.add_typer(node_service.app, name="node")

#: The exit code of a command that Ctrl-C ended, as shells have it.
STOPPED = 130

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Folder = Annotated[Path, typer.Argument(help="The folder of a finished run.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]

#: Default file of `compare`.
COMPARED = Path("compare.html")


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"fedcohort {VERSION}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Hold the options of the command itself."""


@app.command()
def run(
    study: Annotated[Path, typer.Argument(help="The study file (YAML).")],
    out: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
    runtime: Annotated[
        str, typer.Option(help="Runtime: local, flare, flower, or flower-sim.")
    ] = "local",
    network: Annotated[
        Path | None, typer.Option(metavar="KIT", help="A lead's kit, for flare and flower.")
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(help="Seconds that sites may take to approve; without end by default.", min=0),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds that a site may be silent; 60 by default.", min=1)
    ] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="End this study's run in the network.")
    ] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY.PATH=VALUE", help="Override a key.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Override the study's seed.", min=0)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume a stopped run.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes; by default one per core. With slurm, jobs at once.", min=1),
    ] = None,
    cluster: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Run the fits on a Dask scheduler, tcp://HOST:PORT, or slurm."
        ),
    ] = "",
    debug: Debug = False,
) -> None:
    """Run every arm of a study and write its results and report."""
    from fedcohort.apps import runtimes

    runtimes.check(runtime, network, wait, timeout, cancel, cluster)
    if network is not None:
        from fedcohort.apps import deploying, screen

        found = deploying.run(
            study,
            out,
            network=network,
            runtime=runtime,
            wait=wait,
            timeout=timeout,
            overrides=set_ or (),
            seed=seed,
            resume=resume,
            cancel=cancel,
            command=_command(study, None, set_ or (), seed, runtime, network=True),
        )
        if found is not None:
            screen.show(found)
            _end_with(found.failures)
        return
    if not cluster:
        from fedcohort.study.run.workers import warm_for

        workers = workers or _cores()
        if workers > 1:
            warm_for(study, "fedcohort.apps.cli")  # it loads while this process reads the study

    from fedcohort.apps import screen
    from fedcohort.study.run.folder import default_folder
    from fedcohort.study.study import Study

    loaded = Study.from_file(study, overrides=set_ or (), seed=seed)
    folder = out or default_folder(loaded.plan, resume)
    command = _command(study, out, set_ or (), seed, runtime)
    with screen.progress(loaded.plan.study, folder) as tell:
        results = loaded.run(
            folder,
            resume=resume,
            workers=workers,
            tell=tell,
            command=command,
            debug=debug,
            runtime=runtime,
            cluster=cluster,
        )
    screen.show(results)
    _end_with(results.failures)


def _end_with(failures: list[str]) -> None:
    """Name failures, if any, and exit with 1."""
    for reason in failures:
        typer.echo(f"failed: {reason}", err=True)
    if failures:
        raise typer.Exit(1)


@app.command()
def report(folder: Folder, debug: Debug = False) -> None:
    """Write report.html anew from a run's files."""
    from fedcohort import report as pages

    typer.echo(pages.write(folder))


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="The folders of two or more runs.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = COMPARED,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Put several runs side by side: what was asked differently, and what came out."""
    from fedcohort.apps import outfile, screen
    from fedcohort.report import comparing
    from fedcohort.report.comparison import Comparison

    found = Comparison.of(folders)
    outfile.check(out, folders, force=force, page=out == COMPARED)
    screen.show_comparison(found)
    typer.echo(f"page: {comparing.write(found, out).resolve()}")


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
def init(
    task: Annotated[
        str,
        typer.Option(
            help="survival, classification, regression, clustering, latent, imputation or "
            "synthesis."
        ),
    ] = "survival",
    data: Annotated[
        str | None, typer.Option(help="The table to draft from: as a study's source.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the two files.")] = Path("."),
    sites: Annotated[str | None, typer.Option(help="The column of the hospitals.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="The outcome's columns: TIME,EVENT or Y.")
    ] = None,
    query: Annotated[str, typer.Option(help="What to ask a database: one SELECT.")] = "",
    drafts: Annotated[
        str, typer.Option(help="The sites' own drafts to merge, such as drafts/{site}.yaml.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    more: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    debug: Debug = False,
) -> None:
    """Write a commented study.yaml and a draft dictionary.yaml."""
    from fedcohort.apps import init as starts
    from fedcohort.apps import init_consortium

    conflicts: tuple[str, ...] = ()
    if drafts:
        for option, value in (("--data", data), ("--sites", sites), ("--query", query)):
            if value:
                raise StudyError(f"{option}: leave it out beside --drafts.")
        if more:
            raise StudyError(f"{more[0]}: give --drafts one path with {{site}}, in quotes.")
        study, dictionary, conflicts = init_consortium.write(
            task, drafts, out, outcome=outcome, force=force
        )
    else:
        study, dictionary = starts.write(
            task, data, out, sites=sites, outcome=outcome, query=query, force=force, more=more or ()
        )
    typer.echo(study)
    typer.echo(dictionary)
    if conflicts:
        typer.echo("The sites' drafts differ. Settle this with the sites:")
    for text in conflicts:
        typer.echo(f"  {text}")
    name = shlex.quote(str(study))
    typer.echo(f"Read both, above all the comments 'check'. Then: fedcohort data check {name}")


@app.command()
def predict(
    model: Annotated[
        Path, typer.Argument(help="A saved model's folder, or an XGBoost file in JSON.")
    ],
    table: Annotated[
        str, typer.Argument(help="The model's columns: CSV, Parquet, or a database's URL.")
    ],
    out: Annotated[Path | None, typer.Option(help="CSV to write; the screen by default.")] = None,
    times: Annotated[
        str | None, typer.Option(help="Times for survival probabilities, such as 365,730.")
    ] = None,
    query: Annotated[str, typer.Option(help="What to ask a database: one SELECT.")] = "",
    skip: Annotated[
        bool, typer.Option("--skip", help="Leave rows with errors empty and predict the others.")
    ] = False,
    id_: Annotated[
        str | None, typer.Option("--id", help="A column to repeat, to join the tables by.")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Name the rows of each column that is filled in.")
    ] = False,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Apply a saved model to a table; one row out for each row in."""
    from fedcohort.apps import outfile, predictions
    from fedcohort.data.read.sources import files_of

    if out is not None:
        outfile.check(out, [model, *files_of(table, Path())], force=force)
    found = predictions.predict(
        model, table, times=times, query=query, skip=skip, join=id_, details=details
    )
    for line in found.warnings:
        typer.echo(f"fedcohort: {line}", err=True)
    if out is None:
        typer.echo(found.csv, nl=False)
        return
    outfile.write(out, found.csv)
    typer.echo(out)


@app.command()
def synthesise(
    model: Annotated[Path, typer.Argument(help="A saved model's folder.")],
    n: Annotated[int, typer.Option("--n", help="Number of virtual patients.", min=1)],
    out: Annotated[Path, typer.Option(help="CSV to write; .json and .html are written beside it.")],
    where: Annotated[
        str, typer.Option(help="Condition of every row, such as 'age > 70 and sex = f'.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Seed of the draws.", min=0)] = 0,
    real: Annotated[
        str | None, typer.Option(help="Real rows to compare with: the model's training rows.")
    ] = None,
    blind: Annotated[
        str | None, typer.Option(help="Real rows that the model has not seen, besides --real.")
    ] = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Draw virtual patients from a model, with a page on their quality and privacy."""
    from fedcohort.apps import synthesising

    found = synthesising.synthesise(
        model, n, out, where=where, seed=seed, real=real, blind=blind, force=force
    )
    for line in found.warnings:
        typer.echo(f"fedcohort: {line}", err=True)
    for path in found.files:
        typer.echo(path)


@app.command()
def impute(
    study: Annotated[
        Path,
        typer.Argument(help="A study file that was run, its run's folder, or a model's folder."),
    ],
    table: Annotated[Path, typer.Argument(help="The table to fill: CSV.")],
    out: Annotated[Path | None, typer.Option(help="CSV to write; the screen by default.")] = None,
    multiple: Annotated[
        int | None,
        typer.Option(metavar="M", help="Write M drawn tables, not one.", min=2),
    ] = None,
    arm: Annotated[str | None, typer.Option(help="The arm; by default the first that can.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.", min=0)] = 0,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Fill a table's missing cells by a fitted model of a study; known cells stay as they are."""
    from fedcohort.apps import imputing, outfile

    model = imputing.model_of(study, arm)
    places = imputing.places(out, multiple)
    for place in places:
        outfile.check(place, [model, table], force=force)
    made = imputing.filled(model, table, multiple, seed)
    if made.warning:
        typer.echo(f"fedcohort: {made.warning}", err=True)
    if out is None:
        typer.echo(made.texts[0], nl=False)
        return
    for place, text in zip(places, made.texts, strict=False):
        outfile.write(place, text)
        typer.echo(place)
    outfile.write(places[-1], made.about)
    typer.echo(made.line, err=True)


@app.command()
def forget(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a finished run, or of an earlier forget.")
    ],
    site: Annotated[str, typer.Option(help="The hospital that withdraws.")],
    out: Annotated[
        Path | None, typer.Option(help="New folder; by default FOLDER-without-SITE.")
    ] = None,
    arm: Annotated[str | None, typer.Option(help="One arm; all by default.")] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="Rounds of the others; by default a fifth of the fit's.", min=1),
    ] = None,
    compare: Annotated[
        bool, typer.Option(help="Also fit anew without the hospital, and measure the distance.")
    ] = True,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where the study's relative paths start; by default its own folder."),
    ] = None,
    runtime: Annotated[
        str, typer.Option(help="local, or the network's engine: flare or flower.")
    ] = "local",
    network: Annotated[
        Path | None,
        typer.Option(metavar="KIT", help="The lead's kit: ask the hospitals of a deployed run."),
    ] = None,
    withdrawal: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="The hospital's withdrawal; by default its node is asked for it."
        ),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(help="Over a network: seconds to wait for approvals; no limit by default."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Over a network: seconds that a call may take.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Over a network: follow a forgetting that was begun.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Write a run's models without one hospital, and how far they are from a new fit."""
    from fedcohort.apps import forgetting, runtimes

    runtimes.check(runtime, network, wait, timeout, False)
    if network is not None:
        typer.echo(
            forgetting.forget_over(
                folder, site, out, network=network, runtime=runtime, withdrawals=withdrawal or (),
                arm=arm, rounds=rounds, compare=compare, wait=wait, timeout=timeout, resume=resume,
            )
        )  # fmt: skip
        return
    if withdrawal or resume or runtime != "local":
        raise InputError(
            "--withdrawal, --resume and --runtime are for a network; add --network KIT."
        )
    found = forgetting.forget(
        folder, site, out, arm=arm, rounds=rounds, compare=compare, data=data_dir
    )
    typer.echo(found)


@app.command()
def doctor(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="A party's kit.")],
    config: Annotated[
        Path | None,
        typer.Option(help="A site's node.toml; by default the one its node started with."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Check certificate, clock, ports, disk, versions, table and policy; say who has to act.

    Exits with 1 if something is wrong.
    """
    from fedcohort.apps import doctor as examination

    if not examination.run(kit, config, typer.echo):
        raise typer.Exit(1)


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _command(
    study: Path,
    out: Path | None,
    overrides: Iterable[str],
    seed: int | None,
    runtime: str = "local",
    *,
    network: bool = False,
) -> str:
    """Return the command that repeats a run: all that decides its results."""
    words = ["fedcohort", "run", str(study)]
    words += ["--out", str(out)] if out else []
    words += [word for assignment in overrides for word in ("--set", assignment)]
    words += ["--seed", str(seed)] if seed is not None else []
    words += ["--runtime", runtime] if runtime != "local" else []
    words += ["--network", "KIT"] if network else []  # where it lies is the lead's business
    return shlex.join(words)


def main() -> None:
    """Run the command line and exit with its code."""
    debug = "--debug" in sys.argv
    said = "stopped; run the same command with --resume to go on."
    try:
        with interrupts.kept():
            code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = STOPPED
    except Exception as error:
        if debug:
            raise
        code, said = _explain(error), ""
    if code == STOPPED and said:
        typer.echo(said, err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: Exception) -> int:
    """Print one line about an error; return the exit code."""
    usage = getattr(error, "format_message", None)
    if usage is not None:
        typer.echo(f"fedcohort: {usage()}", err=True)
        return 2
    if isinstance(error, FedcohortError):
        typer.echo(f"fedcohort: {' '.join(str(error).split())}", err=True)
        return getattr(error, "exit_code", 2 if isinstance(error, InputError) else 1)
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{error.filename}: "
        typer.echo(f"fedcohort: {where}{error.strerror}", err=True)
        return 1
    kind = type(error).__name__
    typer.echo(f"fedcohort: an unexpected {kind}; run again with --debug to see where.", err=True)
    return 1


if __name__ == "__main__":
    main()
