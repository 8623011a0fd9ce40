"""Correlations of numbers and of two-valued columns, over the complete pairs of all sites.

With K 1 where a value is known and z = x − c about a public origin c, 0 where it is not, sites sum

    n = KᵀK,   s = zᵀK,   q = (z²)ᵀK,   p = zᵀz                                              (1)
    r_ij = (p_ij − s_ij s_ji / n_ij) / √((q_ij − s_ij²/n_ij) (q_ji − s_ji²/n_ij))           (2)

which is Pearson's r of the pooled rows with both values. For two columns of two values, r and the
counts of the values determine their 2 × 2 table. So, with m the `min_cell`, a site

    adds nothing to a pair     if fewer than m of its rows have both values                  (3)
    closes a pair              of two-valued columns, if their table, with missing
                               values as a third value, has a count of 1 … m − 1
    counts n − ⌊m/2⌋ pairs     of its n rows, if fewer than m rows lack one of the values

A pair is shown if no site closes it, at least m rows have both values, and either value of a
two-valued column has m of these rows. r is rounded to a quarter of 1/√n or more, so that the
covariance of many rows reveals no few of them.

Revealed: `Pairs`, only as the sum over all sites. The coordinator also sees the sums of pairs that
are not shown: the counts of pairs and, for two-valued columns, of either value among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort import mapped
from fedcohort.arrays import Array
from fedcohort.data.describe.summary import Summary
from fedcohort.data.describe.table import Reading
from fedcohort.data.encode import Encoded
from fedcohort.privacy.disclosure.rounding import round_number, rounded, step
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed

#: Reasons why a pair has no correlation.
ALONE, CLOSED, FEW, RARE, FLAT = "alone", "closed", "few", "rare", "flat"


@message
class Pairs:
    """Sums of eq. (1), each (p, p), and the number of sites that close a pair (p, p)."""

    n: Array
    s: Array
    q: Array
    p: Array
    closed: Array


@dataclass(frozen=True)
class Correlation:
    """Pearson's r between columns.

    Attributes
    ----------
    names : of the columns.
    r : (p, p), NaN if not shown.
    refused : pair of names → reason, one of the constants above.
    """

    names: tuple[str, ...]
    r: Array
    refused: dict[tuple[str, str], str]


@summed(blocks="own")
def sum_pairs(
    site: Site[Encoded, None], *, numbers: Array, codes: Array, origin: Array, min_cell: int
) -> Pairs:
    """Sum products of columns about a public origin (p,), over the rows with both values.

    numbers, codes : positions of the columns among the numbers, and the codes.
    """
    known = [site.data.numbers[j] for j in numbers.tolist()]
    known += [np.where(c < 0, np.nan, c) for c in (site.data.codes[j] for j in codes.tolist())]
    n, total, squares, inner = np.zeros((4, len(known), len(known)))
    for rows in mapped.blocks(len(known[0]), len(known)):
        x = np.column_stack([column[rows] for column in known])
        k = ~np.isnan(x)
        z = np.where(k, x - origin, 0.0)
        k = k.astype(float)
        n += k.T @ k
        total += z.T @ k
        squares += (z * z).T @ k
        inner += z.T @ z
        for column in known:
            mapped.release(column)
    closed = _closed(known, min_cell)
    out = closed | (n < max(min_cell, 1))
    lacking = len(known[0]) - n
    few = (lacking > 0) & (lacking < min_cell)
    pairs = np.where(few, len(known[0]) - min_cell // 2, n)

    def shown(sums: Array) -> Array:
        return np.where(out, 0.0, sums)

    return Pairs(shown(pairs), shown(total), shown(squares), shown(inner), closed.astype(np.int64))


def _closed(columns: Sequence[Array], min_cell: int) -> Array:
    """Return which pairs of columns (n,) are closed by (3): two-valued, with a small count."""
    p = len(columns)
    closed = np.zeros((p, p), bool)
    if min_cell <= 1:
        return closed
    halves: dict[int, Array] = {}
    for j, x in enumerate(mapped.each(columns)):
        lacks = np.isnan(x)
        values = np.unique(x[~lacks])
        if len(values) <= 2:
            parts = [lacks, *(x == v for v in values)]
            halves[j] = np.column_stack(parts).astype(np.int64)
    for i, one in halves.items():
        for j, other in halves.items():
            cells = one.T @ other
            closed[i, j] = i != j and bool(((cells > 0) & (cells < min_cell)).any())
    return closed


def correlate(
    fed: Federation,
    reading: Reading,
    shown: Sequence[Summary],
    *,
    min_cell: int = 5,
    rounding: bool = True,
) -> Correlation:
    """Return the correlations of numbers and two-valued columns over all sites.

    Parameters
    ----------
    fed : sites, each seen through `reading`.
    shown : Table 1 over all sites; a number without mean and sd there has no correlation.
    rounding : False gives exact numbers.
    """
    told = {s.variable.name: s for s in shown}
    names = [v.name for v in reading.variables if len(reading.levels[v.name]) in (0, 2)]
    alone = {v for v in names if not reading.levels[v] and not told[v].sd}
    numeric = [v.name for v in reading.view.numeric if v.name in names and v.name not in alone]
    coded = [v.name for v in reading.view.coded if v.name in names]
    asked = [*numeric, *coded]
    r = np.eye(len(names))
    refused = {(a, b): ALONE for a, b in _pairs(names) if a in alone or b in alone}
    if len(asked) > 1:
        origin = np.array([_origin(told[v]) for v in asked])
        c = len(reading.view.numeric)
        found = fed.sum(
            sum_pairs,
            numbers=np.array([reading.place[v] for v in numeric], np.int64),
            codes=np.array([reading.place[v] - c for v in coded], np.int64),
            origin=origin,
            min_cell=min_cell,
        )
        two = np.array([v in coded for v in asked])
        for a, b in _pairs(asked):
            i, j = asked.index(a), asked.index(b)
            value, why = _r(found, i, j, two, min_cell, rounding)
            at = names.index(a), names.index(b)
            r[at] = r[at[::-1]] = value
            if why:
                refused[names[min(at)], names[max(at)]] = why
    for a, b in refused:
        at = names.index(a), names.index(b)
        r[at] = r[at[::-1]] = np.nan
    return Correlation(tuple(names), r, refused)


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]


def _origin(shown: Summary) -> float:
    """Return a round number near a column's mean; 0 for a two-valued one."""
    if shown.mean is None or shown.sd is None:
        return 0.0
    return rounded(shown.mean, round_number(shown.sd / 4))


def _r(
    found: Pairs, i: int, j: int, two: Array, min_cell: int, rounding: bool
) -> tuple[float, str]:
    """Return r of eq. (2), or the reason why there is none."""
    n = float(found.n[i, j])
    if found.closed[i, j]:
        return np.nan, CLOSED
    if n < max(min_cell, 2):
        return np.nan, FEW
    for a, b in ((i, j), (j, i)):
        ones = float(found.s[a, b])
        if two[a] and min(ones, n - ones) < min_cell:
            return np.nan, RARE
    s, t = float(found.s[i, j]), float(found.s[j, i])
    spread = (found.q[i, j] - s * s / n) * (found.q[j, i] - t * t / n)
    if not spread > 1e-24 * found.q[i, j] * found.q[j, i]:
        return np.nan, FLAT
    r = float((found.p[i, j] - s * t / n) / np.sqrt(spread))
    r = min(max(r, -1.0), 1.0)
    return (rounded(r, step(1.0, int(n), 0.0)) if rounding else r), ""
