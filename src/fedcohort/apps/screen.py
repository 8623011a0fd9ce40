"""Output of `fedcohort run`: progress with the time left, then the table and the report's path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedcohort.data.words import first_of
from fedcohort.report import summary_table, words
from fedcohort.report.comparison import Comparison, text_table
from fedcohort.report.same_files import said
from fedcohort.study.run.runner import Event
from fedcohort.study.run.warnings import FILLED_NAMED
from fedcohort.study.sites.exclusion import COORDINATOR_DATA, SITES
from fedcohort.study.study import Results


@contextmanager
def progress(study: str, folder: Path) -> Generator[Callable[[Event], None]]:
    """Show a bar with the time left while a study runs; a line now and then if not a terminal."""
    console = Console(stderr=True)
    title = f"[bold]{escape(study)}[/bold] → {escape(str(folder))}"
    if not sys.stderr.isatty():
        yield _lines(console, title)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        whole = bar.add_task(title, total=None)
        parts: dict[str, object] = {}

        def tell(event: Event) -> None:
            bar.update(whole, total=event.total, completed=event.done)
            if event.rounds is None:
                task = parts.pop(event.name, None)
                if task is not None:
                    bar.remove_task(task)  # pyright: ignore[reportArgumentType]
                return
            done, of = event.rounds
            if event.name not in parts:
                parts[event.name] = bar.add_task(f"  {escape(event.name)}", total=of)
            bar.update(parts[event.name], completed=done, total=of)  # pyright: ignore[reportArgumentType]

        yield tell


def _lines(console: Console, title: str) -> Callable[[Event], None]:
    """Return a display for logs: a line at each tenth of the way."""
    shown = [-1]

    def tell(event: Event) -> None:
        if shown[0] < 0:
            shown[0] = 0
            console.print(title, highlight=False, soft_wrap=True)
        tenth = 10 * event.done // max(1, event.total)
        if event.rounds is None and tenth > shown[0]:
            shown[0] = tenth
            console.print(f"  {event.done} of {event.total} fits", highlight=False)

    return tell


def show(results: Results) -> None:
    """Print every arm's main metric by scenario, the rows left out, and the report's path."""
    console = Console()
    header, *rows = summary_table(results.content)
    table = Table(title=escape(results.content.get("question") or results.content["study"]))
    for i, name in enumerate(header):
        table.add_column(escape(name), justify="right" if i else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
    if out := _left_out(results.content):
        console.print(f"left out by data.exclude: {escape(out)}", highlight=False, soft_wrap=True)
    if out := words.sites_left_out((results.content.get("data") or {}).get("sites_left_out") or ()):
        console.print(f"sites left out: {escape(out)}", highlight=False, soft_wrap=True)
    for text in (results.content.get("data") or {}).get("units") or ():
        console.print(f"units accepted: {escape(text)}", highlight=False, soft_wrap=True)
    if filled := _filled(results.content):
        console.print(f"filled in, of all rows: {escape(filled)}", highlight=False, soft_wrap=True)
    where = (results.folder / "report.html").resolve()
    console.print(f"report: {escape(str(where))}", highlight=False, soft_wrap=True)


def _left_out(content: Mapping[str, Any]) -> str:
    """Say the rows left out by each reason of `data.exclude`; small counts hidden."""
    flow: list[Mapping[str, Any]] = (content.get("cohort") or {}).get("flow") or []
    stages = {
        stage["stage"].removeprefix("excluded: "): stage["rows"]
        for stage in flow
        if stage["site"] is None
        and stage.get("note") not in (SITES, COORDINATOR_DATA)
        and stage["stage"].startswith("excluded: ")
    }
    said = [
        f"{'a hidden number of rows' if n is None else words.of(n, 'row')} ({reason})"
        for reason, n in stages.items()
        if n != 0
    ]
    return ", ".join(said)


def _filled(content: Mapping[str, Any]) -> str:
    """Name columns with many imputed rows."""
    share: dict[str, float] = {}
    for row in content.get("filled") or []:
        share[row["column"]] = max(share.get(row["column"], 0.0), row["share"])
    most = sorted(share, key=lambda name: -share[name])
    return first_of([f"{name} {share[name]:.0%}" for name in most], FILLED_NAMED)


def show_comparison(comparison: Comparison) -> None:
    """Print the differences between runs, and the main metric of every arm side by side."""
    console = Console()
    asked = [[key, *values] for key, values in comparison.differences()]
    if not asked:
        console.print("The study files say the same.")
    for title, (header, *rows) in (
        ("What was asked differently", [["key", *comparison.names], *asked]),
        ("What came out, with differences to the first", text_table(comparison)),
    ):
        if not rows:
            continue
        table = Table(title=title)
        for name in header:
            table.add_column(escape(name), overflow="fold")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)
    lines = comparison.lines()
    for note in comparison.notes(lines[0].metric) if lines else ():
        console.print(escape(note), highlight=False, soft_wrap=True)
    for name, files in comparison.files().items():
        console.print(f"Files of {escape(name)} beside those of {escape(comparison.names[0])}:")
        for line in said(files):
            console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)
