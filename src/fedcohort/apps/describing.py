"""`fedcohort data describe`: Table 1 of tables by site and by group, safe to show.

It is the method `describe` with its sites in this process, with the inputs of `data check`. Its
output holds no count of a few patients, nor any from which one follows.
"""

from __future__ import annotations

import csv
import io
import json
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedcohort.algorithms.describe import Description
from fedcohort.apps.checking import STUDIES, outcome_of, site_of
from fedcohort.data.outcome import Outcome
from fedcohort.data.read import sources
from fedcohort.data.read.csvcells import harmless
from fedcohort.data.read.dictionaries import read_dictionary
from fedcohort.data.read.sql import is_url, masked
from fedcohort.protocol.errors import StudyError
from fedcohort.report import table_one
from fedcohort.study.api import Cohort, fit, simulate
from fedcohort.study.file import yamlfile
from fedcohort.study.file.plan import check as checked_plan
from fedcohort.study.sites import layout
from fedcohort.version import VERSION

#: What `--out` may end with.
SUFFIXES = (".csv", ".json", ".html")
#: Width of the lines below the tables.
WIDTH = 80


def described(
    files: Sequence[str],
    dictionary: Path | None,
    *,
    outcome: str | None = None,
    sites: str | None = None,
    query: str = "",
    by: str = "",
    quantiles: str = "",
    min_cell: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
) -> Description:
    """Describe tables, or the rows that a study analyses.

    Parameters
    ----------
    files : as for `checking.check`.
    outcome : "TIME,EVENT" or "Y"; None for the dictionary's.
    sites : the column of the sites, if one table holds several.
    by : the column of the groups.
    quantiles : shares besides the quartiles, such as "0.05,0.95".
    min_cell : by default the study's, or 5.
    epsilon, delta : of differential privacy; None without. The noise comes from the system's
        generator,
        so it cannot be removed, and two runs differ.

    Raises
    ------
    StudyError : the options do not go together.
    InputError : a table or dictionary is wrong, or there is no such column.
    """
    if delta is not None and epsilon is None:
        raise StudyError("--delta is of differential privacy; give --epsilon with it, or neither.")
    study = [f for f in files if Path(f).suffix.lower() in STUDIES and not is_url(f)]
    if study:
        given = {"--dictionary": dictionary, "--outcome": outcome, "--sites": sites}
        extra = [k for k, v in {**given, "--query": query}.items() if v]
        if len(files) > 1 or extra:
            what = extra[0] if extra else "a second file"
            raise StudyError(f"{study[0]}: a study file names its own tables; leave out {what}.")
        cohort, least = _of_study(Path(study[0]))
    else:
        cohort, least = _of_files(files, dictionary, outcome, sites, query), 5
    m = least if min_cell is None else min_cell
    asked: dict[str, Any] = {"by": by, "quantiles": _shares(quantiles), "min_cell": m}
    if epsilon is not None:
        asked["dp"] = {"epsilon": epsilon, **({} if delta is None else {"delta": delta})}
    return fit("describe", cohort, **asked).model


def _shares(text: str) -> list[float]:
    """Return the shares that `--quantiles` names."""
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise StudyError(f"--quantiles {text}: expected shares such as 0.05,0.95.") from None


def _of_study(path: Path) -> tuple[Cohort, int]:
    """Return the rows that a study analyses, at the sites of its data, and its min_cell."""
    plan = checked_plan(yamlfile.read(path), path.parent)
    table = layout.load(plan)
    if table.site is None:
        frames = {plan.study: table.frame}
    else:
        frames = {
            str(s): table.frame[table.site == s].reset_index(drop=True)
            for s in np.unique(table.site)
        }
    return Cohort(frames, table.dictionary, table.outcome, plan.seed), plan.min_cell


def _of_files(
    files: Sequence[str],
    dictionary: Path | None,
    outcome: str | None,
    column: str | None,
    query: str,
) -> Cohort:
    """Return tables as sites."""
    known = read_dictionary(dictionary) if dictionary else None
    if column and len(files) > 1:
        raise StudyError("--sites is for one table that holds all sites; leave it out, or join.")
    texts = [column] if column else []
    loaded = [sources.load(f, Path(), query=query, dictionary=known, texts=texts) for f in files]
    known = known or loaded[0].dictionary
    if known is None:
        raise StudyError(
            "name the data dictionary by --dictionary. `fedcohort init --data FILE` drafts one."
        )
    about: Outcome | None = outcome_of(outcome, known) if outcome else loaded[0].outcome
    frames: dict[str, Any] = {}
    for file, source in zip(files, loaded, strict=True):
        if isinstance(source.frames, dict):
            if column:
                raise StudyError(f"{masked(file)}: its files are sites; leave out --sites.")
            frames |= source.frames
        elif column:
            return simulate(source.frames, outcome=about, sites=column, dictionary=known)
        else:
            frames["all" if is_url(file) else site_of(file, files)] = source.frames
    return simulate(frames, outcome=about, dictionary=known)


# files and output ------------------------------------------------------------


def check_suffix(out: Path) -> None:
    """Check that `--out` names a file that can be written.

    Raises
    ------
    StudyError : it ends otherwise.
    """
    if out.suffix.lower() not in SUFFIXES:
        raise StudyError(f"--out {out}: expected a file that ends with {', '.join(SUFFIXES)}.")


def text_of(found: Description, out: Path) -> str:
    """Return the content of a file of that name."""
    suffix = out.suffix.lower()
    if suffix == ".csv":
        return _csv(found)
    if suffix == ".json":
        return json.dumps(plain(found), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    from fedcohort.report import describing

    return describing.page(plain(found), "Table 1", VERSION)


def plain(found: Description) -> dict[str, Any]:
    """Return a description as JSON-able values; see `docs/data-describe.md`."""
    pairs = found.correlation
    r: list[list[float | None]] = []
    if pairs is not None:
        r = [[None if math.isnan(x) else x for x in row] for row in pairs.r.tolist()]
    return {
        "schema": 1,
        "min_cell": found.min_cell,
        "by": found.by,
        "groups": list(found.groups),
        "table": found.table,
        "histograms": [h.to_dict() for h in found.histograms],
        "correlation": None if pairs is None else {"names": list(pairs.names), "r": r},
        "suppressed": found.suppressed,
        "refusals": list(found.refusals),
        **({} if found.noise is None else {"dp": _dp(found)}),
    }


def _dp(found: Description) -> dict[str, float | None]:
    """Return a private description's cost, and the noise in its counts."""
    return {"epsilon": found.epsilon, "delta": found.delta, "noise": found.noise}


def _csv(found: Description) -> str:
    """Return Table 1, a line for each number or level; hidden values are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = list(found.table[0])
    writer.writerow(map(harmless, head))
    writer.writerows([harmless(row.get(name, "")) for name in head] for row in found.table)
    return text.getvalue()


def show(found: Description) -> None:
    """Print Table 1 by site and by group, its legend, and hidden parts."""
    console = Console()
    tables = [("Table 1", table_one.by_site(found.table))]
    if found.by:
        rows = table_one.by_group(found.table, found.by, found.groups)
        tables.append((f"Table 1 by {found.by}", rows))
    for title, (head, *rows) in tables:
        drawn = Table(title=escape(title))
        for i, name in enumerate(head):
            drawn.add_column(escape(name), justify="right" if i else "left", overflow="fold")
        for row in rows:
            drawn.add_row(*map(escape, row))
        console.print(drawn)
    lines = table_one.legend(found.min_cell, found.by)
    if found.noise is not None:
        lines.append(table_one.noisy(_dp(found)))
    if found.refusals:
        n = len(found.refusals)
        lines.append(f"Not shown, with the rule ({n} in all; --out FILE.json lists each):")
        lines += [f"- {line}." for line in table_one.refused(found.refusals)]
    for line in lines:
        for part in textwrap.wrap(
            line, WIDTH, subsequent_indent="  " if line.startswith("- ") else ""
        ):
            console.print(part, highlight=False, markup=False, soft_wrap=True)
