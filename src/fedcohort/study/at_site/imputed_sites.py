"""A site's own errors of imputation, on its own blind rows.

Errors are those of `pooled.imputed`, with entries that the site hides by a seed of its own, in
standard deviations of its own blind rows. They are reported if enough blind rows have a hidden
entry. A site without a model imputes the best constant of each column.

A model that a coordinator makes up can err by any amount for the rows that satisfy a condition. So
that fewer than `min_cell` such rows do not show, the `min_cell` − 1 rows with the largest errors of
numbers have at most the error of the next one (`cut`). A metric is rounded by the number of its
entries, divided by those of the row with the most (`patients`).

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
from fedcohort.study.judge.pooled.imputed import MEASURES, WAYS, Imputed
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
    least = max(min_cell, rows.least)
    dictionary = replace(rows.dictionary, variables={v.name: v for v in learnt_columns(rows)})
    problem = Problem({"here": rows.halves.train}, dictionary, None, least, task=IMPUTATION.name)
    judge = Imputed.of(problem, rows.halves.blind, site.seed % 2**32)
    if isinstance(d, Rows):
        said = {way: judge.constants(way) for way in WAYS}
    else:
        said = judge.predicted(d.run, OWN)
    said = {way: errors._replace(off=cut(errors.off, least)) for way, errors in said.items()}
    found = {m: np.nan if v is None else v for m, v in judge.metrics(said, OWN).items()}
    rows_of = {m: patients(said[way].of(kind)) for m, (way, kind) in MEASURES.items()}
    values = np.array([by_patients(found[m], rows_of[m], least) for m in OWN])
    told = np.isfinite(values)
    return OwnMasked(np.where(told, values, 0.0), told)


STEPS = (tell_own_masked,)


def cut(off: Array, least: int) -> Array:
    """Return errors (n, p) of which the `least` − 1 rows with the largest have the next one's."""
    known = ~np.isnan(off)
    worst = np.sort(np.where(known, off, -np.inf).max(axis=1, initial=-np.inf)[known.any(axis=1)])
    return np.minimum(off, worst[-least]) if 1 < least <= len(worst) else off


def patients(terms: Array) -> int:
    """Return the number of known terms (n, p) per terms of the row with the most."""
    each = (~np.isnan(terms)).sum(axis=1)
    return int(each.sum()) // max(int(each.max(initial=0)), 1)
