"""`fedcohort data`: check and describe tables, and convert their dictionaries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Tables and dictionaries.")

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]


@app.command("check")
def check_data(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="CSV, Parquet, a path with {site}, a URL; or a study file."
        ),
    ],
    dictionary: Annotated[Path | None, typer.Option(help="The data dictionary.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="TIME,EVENT or Y; by default what the dictionary marks.")
    ] = None,
    sites: Annotated[str | None, typer.Option(help="The column of the hospitals.")] = None,
    query: Annotated[str, typer.Option(help="What to ask a database: one SELECT.")] = "",
    json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write; the screen by default.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Name everything that is wrong with tables: columns, rules and rows, never a value.

    Exits with 2 if there are errors.
    """
    from fedcohort.apps import checking, outfile

    if out is not None:
        outfile.check(out, checking.inputs(files, dictionary), force=force)
    found = checking.check(files, dictionary, outcome=outcome, sites=sites, query=query)
    text = found.to_json() if json else found.to_text()
    if out is None:
        typer.echo(text, nl=False)
    else:
        outfile.write(out, text)
        typer.echo(out)
    wrong, strange = found.counts
    if wrong or (strict and strange):
        raise typer.Exit(2)


@app.command("describe")
def describe_data(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="CSV, Parquet, a path with {site}, a URL; or a study file."
        ),
    ],
    dictionary: Annotated[Path | None, typer.Option(help="The data dictionary.")] = None,
    by: Annotated[str, typer.Option(help="The column whose levels are the groups.")] = "",
    quantiles: Annotated[
        str, typer.Option(help="Quantiles besides the quartiles, such as 0.05,0.95.")
    ] = "",
    outcome: Annotated[
        str | None, typer.Option(help="TIME,EVENT or Y; by default what the dictionary marks.")
    ] = None,
    sites: Annotated[str | None, typer.Option(help="The column of the hospitals.")] = None,
    query: Annotated[str, typer.Option(help="What to ask a database: one SELECT.")] = "",
    min_cell: Annotated[
        int | None, typer.Option(help="The smallest count that is shown; 5 by default.", min=1)
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Add noise: ε of differential privacy of each record.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="δ, with --epsilon; 1e-5 by default.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="A .csv, .json or .html file; the screen by default.")
    ] = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Describe tables by site and by group, with small counts hidden: Table 1."""
    from fedcohort.apps import checking, describing, outfile

    if out is not None:
        describing.check_suffix(out)
        outfile.check(out, checking.inputs(files, dictionary), force=force)
    found = describing.described(
        files,
        dictionary,
        outcome=outcome,
        sites=sites,
        query=query,
        by=by,
        quantiles=quantiles,
        min_cell=min_cell,
        epsilon=epsilon,
        delta=delta,
    )
    if out is None:
        describing.show(found)
        return
    outfile.write(out, describing.text_of(found, out))
    typer.echo(out)


@app.command("convert")
def convert(
    dictionary: Annotated[
        Path, typer.Argument(help="YAML, Frictionless Table Schema (.json) or REDCap's (.csv).")
    ],
    out: Annotated[Path, typer.Argument(help="The file to write: .yaml, .yml or .json.")],
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Write a data dictionary in another format."""
    from fedcohort.apps import converting

    typer.echo(converting.convert(dictionary, out, force=force))
