"""Results of a run as one offline page, and as plain words for the command line.

Pictures are static SVG drawn by Vega: the file has no script, font, image or outside address. It
can be sent, archived and printed, and needs no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcohort.report import words
from fedcohort.report.disclosure import plain_ledger
from fedcohort.report.helper import Helper
from fedcohort.report.run import Run

__all__ = ["plain_ledger", "summary_table", "write"]


def write(dir: Path, out: Path | None = None) -> Path:
    """Write the report of a run's folder; the same folder gives the same bytes.

    Parameters
    ----------
    out : the file to write, ``report.html`` in the folder by default.

    Returns
    -------
    path : the file written.

    Raises
    ------
    DataError : the folder holds no results, or its ledger is damaged.
    """
    helper = Helper()
    try:
        # Sections are slow to import, and the command line needs this package for its tables too.
        from fedcohort.report.page import render
        from fedcohort.report.run import read

        path = out or Path(dir) / "report.html"
        page = render(read(Path(dir)), helper)
    finally:
        helper.close()
    path.write_bytes(page.encode("utf-8", "replace"))
    return path


def summary_table(results: Mapping[str, Any], metric: str | None = None) -> list[list[str]]:
    """Return arms × scenarios, each cell ``mean ± sd`` over repeats.

    Parameters
    ----------
    results : the content of `results.json`.
    metric : its leading metric by default.

    Returns
    -------
    rows : the head (the metric's label, then the scenarios), then one row per arm, by the study's
        names; a dash if there is no value.
    """
    run = Run(results, Path())
    name = metric or run.metric
    known = run.known(name)
    rows = [[known.axis, *run.scenarios]]
    for arm in run.arms:
        row = [arm.name]
        for scenario in run.scenarios:
            found = run.summary(arm.name, scenario, name)
            if found is None:
                row.append("failed" if run.failures(arm.name, scenario) else words.MISSING)
            elif found.n < 2 or words.fixed(found.sd) == words.MISSING:
                row.append(words.fixed(found.mean, known.digits))
            else:
                mean, sd = (words.fixed(v, known.digits) for v in (found.mean, found.sd))
                row.append(f"{mean} ± {sd}")
        rows.append(row)
    return rows
