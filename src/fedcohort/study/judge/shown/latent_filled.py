"""True and imputed values of hidden views, as two histograms a column.

A numeric column of the blind rows with a view and another one (`Latent.filled`) is expressed in
standard deviations from its mean, both by `ShownNumber`, in the cells

    (−∞, −2.5), [−2.5, −2), …, [2.5, ∞)                                                      (1)

Cells are joined with their neighbours, from below, until none holds 1 … m − 1 true values, with m
the `min_cell`; for the imputed values they are joined further in the same way. So the true cells
are the same for every fit, and no cell follows as the difference of two fits' cells.

Shares are rounded to a step that any number of rows from n − (m − 1) to n could have given, so that
they do not reveal how many rows lack the column. Columns have at least 4 m rows, and two cells with
a true value. The distance of two histograms is half the sum of absolute differences of shares: 0 if
equal, 1 if disjoint.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.describe.shown_number import ShownNumber
from fedcohort.privacy.disclosure.rounding import round_number, rounded
from fedcohort.protocol import Row
from fedcohort.study.judge.pooled.latent import Filled, Latent
from fedcohort.study.run.engine import Run

#: Edges of eq. (1), in standard deviations; the outermost stand for −∞ and ∞.
EDGES = np.linspace(-3.0, 3.0, 13)
#: Largest number of columns of a fit; those with the largest distances.
MOST = 60
#: Decimals of a distance.
DECIMALS = 2


class Cells(NamedTuple):
    """Edges (k + 1,) of cells, in standard deviations, and the number of values in each (k,)."""

    edges: Array
    counts: Array


def filled_rows(run: Run, judge: Latent) -> list[Row]:
    """Return a row for each publishable column, in descending order of distance.

    A row has ``view``, ``feature``, ``mean`` and ``sd``, ``edges`` and ``true`` shares,
    ``imputed_edges`` and ``imputed`` shares, and ``distance``.
    """
    found = [row for f in judge.filled(run) if (row := _row(f, judge.min_cell)) is not None]
    return sorted(found, key=lambda row: -row["distance"])[:MOST]


def _row(f: Filled, min_cell: int) -> Row | None:
    """Return a column's histograms; None if not publishable."""
    m, n = max(min_cell, 1), len(f.true)
    shape = ShownNumber.of(f.true, min_cell)
    if n < 4 * m or shape.mean is None or not shape.sd:
        return None
    true = joined(counted((f.true - shape.mean) / shape.sd), m)
    if np.count_nonzero(true.counts) < 2:
        return None
    said = joined(counted((f.imputed - shape.mean) / shape.sd, true.edges), m)
    step = round_number(1.0 / (n - (m - 1)))
    shares, imputed = (
        [rounded(c / n, step) for c in cells.counts.tolist()] for cells in (true, said)
    )
    coarse = np.add.reduceat(shares, np.searchsorted(true.edges, said.edges[:-1]))
    distance = float(np.abs(coarse - imputed).sum()) / 2
    return {
        "view": f.view, "feature": f.column, "mean": shape.mean, "sd": shape.sd,
        "edges": true.edges.tolist(), "true": shares,
        "imputed_edges": said.edges.tolist(), "imputed": imputed,
        "distance": round(distance, DECIMALS),
    }  # fmt: skip


def counted(z: Array, edges: Array = EDGES) -> Cells:
    """Return the number of z (n,) in each cell; the outermost reach to −∞ and ∞."""
    inner = np.searchsorted(edges[1:-1], z, side="right")
    return Cells(edges, np.bincount(inner, minlength=len(edges) - 1))


def joined(cells: Cells, least: int) -> Cells:
    """Return cells joined until none holds 1 … `least` − 1 values; from below, the rest backwards.

    Too few values give one cell.
    """
    ends: list[int] = []
    counts: list[int] = []
    held = 0
    for i, n in enumerate(cells.counts.tolist()):
        held += n
        if not 0 < held < least:
            ends.append(i + 1)
            counts.append(held)
            held = 0
    while 0 < held < least and counts:
        held += counts.pop()
        ends.pop()
    if held:
        ends.append(len(cells.counts))
        counts.append(held)
    return Cells(cells.edges[[0, *ends]], np.array(counts, np.int64))
