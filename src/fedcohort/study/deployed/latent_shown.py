"""What results.json shows of latent coordinates whose rows are at their sites: `study.latent_rows`.

latent_views, latent_numbers, latent_sites   what the model says of itself, as in one process
latent_errors                                of blind rows, from sums over sites (`latent_judging`)

All else of `latent_rows.KEYS` takes rows in one place, and is empty.

Revealed: what `latent_judging` does.
"""

from __future__ import annotations

from fedcohort.protocol import Method, Row
from fedcohort.study.deployed.latent_judging import Judge
from fedcohort.study.engine import Run
from fedcohort.study.latent_rows import of_model


def shown_rows(judge: Judge, method: Method, run: Run, order: int) -> dict[str, list[Row]]:
    """Return lists of rows by key of results.json, without arm, scenario and repeat.

    Parameters
    ----------
    order : which of the arms this is, from 1.

    Raises
    ------
    SiteUnavailable : a site left meanwhile.
    """
    return of_model(method, run) | {"latent_errors": judge.errors(order)}
