"""The table that a run ends with on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcohort.report import words
from fedcohort.report.run import Run


def summary_table(results: Mapping[str, Any], metric: str | None = None) -> list[list[str]]:
    """Return arms × scenarios, each cell ``mean ± sd`` over repeats.

    Parameters
    ----------
    results : the content of `results.json`.
    metric : its leading metric by default.

    Returns
    -------
    rows : the head (the metric's label, then the scenarios), then one row an arm, both by the
        names that they have in the study; a dash where there is no value.
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
