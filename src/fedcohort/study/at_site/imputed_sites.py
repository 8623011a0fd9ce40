"""A site's own errors of imputation, on its own blind rows.

Errors are those of `pooled.imputed`, with entries that the site hides by a seed of its own, in
standard deviations of its own blind rows. They are reported if enough blind rows have a hidden
entry. A site without a model imputes the best constant of each column.

Revealed, of each site: these seven numbers, rounded so that no patient follows from them, for each
model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcohort.arrays import Array
from fedcohort.privacy.disclosure.rounding import by_patients
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered
from fedcohort.study.at_site.coding import Coding, learnt_columns
from fedcohort.study.at_site.judging import Rows
from fedcohort.study.judge.pooled.imputed import MEASURES, Imputed
from fedcohort.study.kinds import IMPUTATION
from fedcohort.study.run.engine import Problem

#: Metrics of a site's own blind rows, in the order of `OwnMasked`.
OWN = tuple(MEASURES)


@message
class OwnMasked:
    """Metrics (m,) on the site's own blind rows, and which are ``told`` (m,)."""

    values: Array
    told: Array


@gathered
def tell_own_masked(site: Site[Coding | Rows, None], *, min_cell: int) -> OwnMasked:
    """Mean errors of imputing hidden entries of the site's own blind rows."""
    d = site.data
    rows = d if isinstance(d, Rows) else d.data
    n, least = len(rows.halves.blind), max(min_cell, rows.least)
    dictionary = replace(rows.dictionary, variables={v.name: v for v in learnt_columns(rows)})
    problem = Problem({"here": rows.halves.train}, dictionary, None, least, task=IMPUTATION.name)
    judge = Imputed.of(problem, rows.halves.blind, site.seed % 2**32)
    if isinstance(d, Rows):
        drawn = judge.unlearnt(np.ones((1, n)), OWN)
        found = {m: float(values[0]) for m, values in drawn.items()}
    else:
        said = judge.metrics(judge.predicted(d.run, OWN), OWN)
        found = {m: np.nan if v is None else v for m, v in said.items()}
    values = np.array([by_patients(found.get(m, np.nan), n, least) for m in OWN])
    told = np.isfinite(values)
    return OwnMasked(np.where(told, values, 0.0), told)


STEPS = (tell_own_masked,)
