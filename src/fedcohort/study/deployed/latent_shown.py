"""What results.json shows of latent coordinates whose rows are at their sites: `study.latent_rows`.

latent_views, latent_numbers, latent_sites   what the model says of itself, as in one process
latent_errors                                of blind rows, from sums over sites (`latent_judging`)

All else of `latent_rows.KEYS` takes rows in one place, and is empty.

Revealed: what `latent_judging` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcohort.protocol import Method, Row
from fedcohort.study.deployed.latent_judging import Judge
from fedcohort.study.engine import Run
from fedcohort.study.latent_rows import KEYS
from fedcohort.study.rows import plain


def shown_rows(judge: Judge, method: Method, run: Run, order: int) -> dict[str, list[Row]]:
    """Return lists of rows by key of results.json, without arm, scenario and repeat.

    Parameters
    ----------
    order : which of the arms this is, from 1.

    Raises
    ------
    SiteUnavailable : a site left meanwhile.
    """
    found: dict[str, list[Row]] = {key: [] for key in KEYS}
    return found | _of_model(method, run) | {"latent_errors": judge.errors(order)}


def _of_model(method: Method, run: Run) -> dict[str, list[Row]]:
    """Return what the model says of itself."""
    found: dict[str, list[Row]] = {}
    if "summary" in method.gives:
        found["latent_views"] = [plain(row) for row in run.model.summary() if "view" in row]
    model: Any = run.model
    taken, numbers = getattr(model, "q", None), list[Row]()
    for row in getattr(model, "numbers", ()):
        errors: Mapping[int, float] = row.get("errors", {})
        told = {str(q): plain({"error": e})["error"] for q, e in errors.items()}
        numbers.append(plain({**row, "errors": told}) | {"taken": row["q"] == taken})
    found["latent_numbers"] = numbers
    if hasattr(model, "differences"):
        found["latent_sites"] = [plain(row) for row in model.differences()]
    return found
