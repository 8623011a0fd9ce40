"""A site's own metrics of latent variables, on its own blind rows.

Errors are those of `pooled.latent`, in standard deviations of the site's own blind rows, so its own
model and a common one compare, without another site's data. They are reported if enough blind rows
have an entry and, for imputed views, a view and another one. A site without a model predicts the
mean of each column.

Revealed, of each site: these five numbers, for each model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcohort.arrays import Array
from fedcohort.metrics.sums import latent as sums_of_latent
from fedcohort.privacy.disclosure.counts import fewest
from fedcohort.privacy.disclosure.rounding import by_patients
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered
from fedcohort.study.at_site.coding import Coding, learnt_columns, views_there
from fedcohort.study.at_site.judging import Rows
from fedcohort.study.judge.pooled.latent import OF_PAIRS, OF_VIEWS, Latent
from fedcohort.study.kinds import LATENT
from fedcohort.study.run.engine import Problem

#: Metrics of a site's own blind rows, in the order of `OwnErrors`.
OWN = ("reconstruction_mae", *OF_VIEWS, *OF_PAIRS)


@message
class OwnErrors:
    """Metrics (m,) on the site's own blind rows, and which are ``told`` (m,)."""

    values: Array
    told: Array


@gathered
def tell_own_errors(site: Site[Coding | Rows, None], *, min_cell: int) -> OwnErrors:
    """Mean errors of reconstruction and imputation on the site's own blind rows."""
    d = site.data
    rows = d if isinstance(d, Rows) else d.data
    found = _own(rows, None if isinstance(d, Rows) else d, max(min_cell, rows.least))
    n, least = len(rows.halves.blind), max(min_cell, rows.least)
    values = np.array([by_patients(found.get(m, np.nan), n, least) for m in OWN])
    told = np.isfinite(values)
    return OwnErrors(np.where(told, values, 0.0), told)


STEPS = (tell_own_errors,)
#: Steps on training rows: if the study names G, the error of all rows together.
OF_TRAINING = (sums_of_latent.sum_rebuild_squares,)


def _own(rows: Rows, coding: Coding | None, least: int) -> dict[str, float]:
    """Return the metrics of a site's own blind rows, as far as these are enough."""
    blind, known = rows.halves.blind, learnt_columns(rows)
    there = views_there(known, blind)
    views = np.sum(list(there.values()), axis=0)
    enough = {m: int((views > (m in OF_VIEWS)).sum()) >= fewest(least) for m in OWN}
    wanted = tuple(m for m in OWN if enough[m])
    if not wanted:
        return {}
    dictionary = replace(rows.dictionary, variables={v.name: v for v in known})
    problem = Problem({"here": rows.halves.train}, dictionary, None, least, task=LATENT.name)
    judge = Latent.of(problem, blind)
    if coding is not None:
        said = judge.metrics(judge.predicted(coding.run, wanted), wanted)
        return {m: value for m, value in said.items() if value is not None}
    drawn = judge.unlearnt(np.ones((1, len(blind)), np.int64), wanted)
    return {m: float(values[0]) for m, values in drawn.items()}
