"""Summaries of a site's own columns, before any comparison.

For n known values, sorted, with m the `min_cell`:

    place    mean of the middle half                                                         (1)
    spread   mean distance from the place; values beyond 5 % at either end, and beyond the
             m-th, are cut to those                                                          (2)

Both change smoothly with the values, and are robust against a quarter (a twentieth) of them. For
comparisons both are rounded to a quarter of a standard error or more (`shown`), so that even a fine
grid tells no more. Columns are associated within the site: with z = (x − place)/spread cut to ±
`CUT` (also for a numeric outcome), and levels as 0 or 1, r is Pearson's correlation over the rows
with both values. So neither a unit nor a shift changes it, and no single row dominates it.

Revealed: see `steps`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.encode import Encoded
from fedcohort.privacy.disclosure.rounding import round_number, rounded, step, unit

#: Limit of standardised values, ±.
CUT = 4.0
#: Share of the values at either end that is cut before distances are averaged.
TAIL = 0.05
#: Most levels of a category in associations.
MOST_LEVELS = 8
#: Kinds of label: none, the codes of a yes/no outcome, a number, time and event.
NO_LABEL, CODES, NUMBER, TIME = range(4)


class Known(NamedTuple):
    """A numeric column: ``n`` known values, their ``place`` and ``spread``; 0 if too few."""

    n: int
    place: float
    spread: float


def enough(n: int, min_cell: int) -> bool:
    """Return whether n rows are enough to tell about: 4 `min_cell` and at least 20."""
    return n >= max(4 * min_cell, 20)


def shown_share(count: int, n: int, m: int) -> float:
    """Return a count's share of n; a count below m gives 0.

    Counts from m to n − m are rounded to multiples of 2 m, so that a share tells no count of a
    table whose other counts are known.
    """
    if m <= 1:
        return count / n
    if count < m or n - count < m:
        return float(count >= m)
    most = max((n - m) // (2 * m), 1)
    return 2 * m * min(max(round(count / (2 * m)), 1), most) / n


def rows_of(data: Encoded) -> int:
    """Return the number of rows of a site."""
    columns = (*data.numbers, *data.codes)
    return len(columns[0]) if columns else 0


def known(x: Array, min_cell: int) -> Known:
    """Return eqs. (1) and (2) of x (n,), NaN where missing."""
    seen = np.sort(x[~np.isnan(x)])
    n = len(seen)
    if not enough(n, min_cell):
        return Known(n, 0.0, 0.0)
    quarter, end = n // 4, max(int(TAIL * n), min_cell - 1)
    place = float(seen[quarter : n - quarter].mean())
    cut = np.clip(seen, seen[end], seen[n - 1 - end])
    spread = float(np.abs(cut - place).mean()) if cut[0] < cut[-1] else 0.0
    return Known(n, place, spread)


def shown(x: Array, min_cell: int) -> Known:
    """Return `known` with place and spread rounded like the means in Table 1."""
    found = known(x, min_cell)
    if not found.spread > 0:
        return found
    width = step(found.spread, found.n, unit(x[~np.isnan(x)]))
    spread = rounded(found.spread, width)
    return Known(found.n, rounded(found.place, width), spread if spread > 0 else found.spread)


def columns_of(data: Encoded, n_levels: Array, label: Array, min_cell: int) -> Array:
    """Return the columns for associations (n, d): numbers, levels, the label; NaN if missing.

    Parameters
    ----------
    n_levels : (k,), of each category. Each but the first level of a category of 2 to `MOST_LEVELS`
        is a column.
    label : (3,), the kind of label, and its place among numbers or codes; for `TIME` the place of
        the time among the numbers and of the event among the codes.
    """
    out = [_standard(x, min_cell) for x in data.numbers]
    for codes, k in zip(data.codes, n_levels.tolist(), strict=True):
        gone = codes < 0
        out += [np.where(gone, np.nan, codes == level) for level in levels_of(k)]
    y = label_of(data, label)
    out.append(_standard(y, min_cell) if int(label[0]) == NUMBER else y)
    return np.column_stack(out)


def _standard(x: Array, min_cell: int) -> Array:
    """Return z of the header (n,); all NaN without a spread."""
    place, spread = known(x, min_cell)[1:]
    return np.clip((x - place) / spread, -CUT, CUT) if spread > 0 else np.full(len(x), np.nan)


def events_of(data: Encoded, label: Array) -> Array | None:
    """Return whether each row has the event (n,), NaN if missing; None for other outcomes."""
    if int(label[0]) != TIME:
        return None
    return np.where(np.isnan(label_of(data, label)), np.nan, _binary(data.codes[int(label[2])]))


def _binary(codes: Array) -> Array:
    """Return codes of two levels as 0 and 1 (n,), other codes as NaN."""
    return np.where((codes < 0) | (codes > 1), np.nan, codes.astype(float))


def levels_of(k: int) -> range:
    """Return the levels of a category of k that have columns."""
    return range(1, k) if 2 <= k <= MOST_LEVELS else range(0)


def label_of(data: Encoded, label: Array) -> Array:
    """Return the outcome as one number a row (n,), NaN if missing.

    For times it is the martingale residual of the site's own Nelson–Aalen curve: observed less
    expected events, so that more is worse, as with an observed event.
    """
    kind, first, second = label.tolist()
    if kind == NO_LABEL:
        return np.full(rows_of(data), np.nan)
    if kind == NUMBER:
        return data.numbers[first]
    codes = data.codes[second if kind == TIME else first]
    event = _binary(codes)
    if kind == CODES:
        return event
    time = data.numbers[first]
    both = ~np.isnan(time) & ~np.isnan(event)
    out = np.full(len(time), np.nan)
    at, place = np.unique(time[both], return_inverse=True)
    dead = np.bincount(place, event[both], minlength=len(at))
    left = np.cumsum(np.bincount(place, minlength=len(at))[::-1])[::-1]
    out[both] = event[both] - np.cumsum(dead / left)[place]
    return out


class Pairs(NamedTuple):
    """Associations at a site, (d, d) each: complete rows ``n``, and ``r``; 0 if not told."""

    n: Array
    r: Array


def pairs(x: Array, min_cell: int, event: Array | None = None) -> Pairs:
    """Return the publishable correlations of columns x (n, d), rounded to ¼/√n or more.

    Not told: a pair with fewer than 4 `min_cell` complete rows; a pair of two-valued columns whose
    table, including missing values, has a cell of 1 … `min_cell` − 1; and a pair with a column in
    which fewer than `min_cell` of the complete rows differ from its most common value. If the last
    column is made of times to an `event` (n,), these rules use the event: with few events the
    correlations would be theirs. Complete rows are rounded down to a multiple of `min_cell`.
    """
    m = max(min_cell, 1)
    there = ~np.isnan(x)
    z = np.where(there, x, 0.0)
    k = there.astype(float)
    n = k.T @ k
    s, q, p = z.T @ k, (z * z).T @ k, z.T @ z
    safe = np.maximum(n, 1.0)
    spread = q - s * s / safe
    varies = spread > 1e-9 * n
    fine = (n >= max(4 * m, 20)) & varies & varies.T & ~_small_cells(x, there, m, event)
    product = np.sqrt(np.where(fine, spread * spread.T, 1.0))
    r = np.where(fine, (p - s * s.T / safe) / product, 0.0)
    steps = np.array([[round_number(0.25 / np.sqrt(v)) for v in row] for row in safe])
    r = np.clip(np.round(r / steps) * steps, -0.99, 0.99)
    np.fill_diagonal(fine, False)
    return Pairs(np.where(fine, n - n % m, 0.0), np.where(fine, r, 0.0))


def _small_cells(x: Array, there: Array, m: int, event: Array | None) -> Array:
    """Return the pairs (d, d) of columns (n, d) with a small cell; numbers have none."""
    if event is not None:
        x, there = np.column_stack([x[:, :-1], event]), there.copy()
        there[:, -1] = ~np.isnan(event)
    d = x.shape[1]
    out = np.zeros((d, d), bool)
    if m <= 1:
        return out
    parts: dict[int, Array] = {}
    for j in range(d):
        seen = x[there[:, j], j]
        values, counts = np.unique(seen, return_counts=True)
        if len(values) and len(seen) - counts.max() < m:
            out[j] = out[:, j] = True
        elif len(values) == 2:
            parts[j] = np.column_stack([x[:, j] == v for v in values] + [~there[:, j]]).astype(int)
    for i, one in parts.items():
        for j, other in parts.items():
            cells = one.T @ other
            out[i, j] |= i != j and bool(((cells > 0) & (cells < m)).any())
    return out


def fisher(r: Array) -> Array:
    """Return atanh r."""
    return np.arctanh(np.clip(r, -0.99, 0.99))


def copies(data: Encoded) -> int:
    """Return the number of rows that equal an earlier one in every column, also the outcome."""
    n = rows_of(data)
    columns = [np.where(np.isnan(x), np.inf, x) for x in data.numbers]
    table = np.column_stack([*columns, *(c.astype(float) for c in data.codes), np.zeros((n, 0))])
    return n - len(np.unique(table, axis=0)) if n else 0


def by_chance(data: Encoded) -> float:
    """Return the expected number of copies if columns were independent."""
    n = rows_of(data)
    chance = n * (n - 1) / 2
    for c in (*data.numbers, *data.codes):
        counts = np.unique(c, return_counts=True, equal_nan=True)[1]
        chance *= float(np.square(counts / n).sum()) if n else 0.0
    return chance
