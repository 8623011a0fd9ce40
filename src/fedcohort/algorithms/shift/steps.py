"""Site steps of `shift`: a site's tables of counts, and its pull on a model without covariates.

Both are a site's own, so it hides what is of few rows before anything leaves, with m the
`min_cell`: of a variable's cells those of `privacy.disclosure.counts`, of a table by the outcome
those of `privacy.disclosure.groups`, and what is hidden of the variable. A number's cells are of
its known values; where Table 1 hides how many these are, all are, by groups too. Cells of a number
lie between multiples of one round step; edges at will, which could be moved past single values, are
refused. The same rows told of between other edges, in another study, are not looked at.

A gradient's part is told where `training.disclosure` finds nothing against its column, alone beside
the outcome, and where fewer than m rows do not make its mean and standard deviation, as one
followed for very long would (`privacy.disclosure.numbers`); it is rounded to a quarter of its
standard error, as means in Table 1 are (`privacy.disclosure.rounding`).
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.describe.agreed import NO_MARKS, NO_MORE, closed_at, secret
from fedcohort.data.describe.shown_number import HIDDEN
from fedcohort.data.encode import Encoded
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.privacy.disclosure.groups import hidden_levels
from fedcohort.privacy.disclosure.numbers import dominated
from fedcohort.privacy.disclosure.rounding import round_number, rounded, step, unit
from fedcohort.protocol import Refused, Site, gathered, message
from fedcohort.training import disclosure

#: What an outcome is: nothing, levels, a number, or time and event.
LAWS = ("", "levels", "number", "survival")
#: So far from a multiple of its step, in steps, an edge may be.
ROUNDING = 1e-6
#: Beyond this, in standard deviations, the squares of squares are no numbers.
MOST = 1e50


@message
class SiteCells:
    """One site's counts of v variables, numbers first; `HIDDEN` where not shown, 0 beyond the last.

    ``rows`` (); ``cells`` (v, w): of a number between its edges, of what has levels missing values
    first; ``crossed`` (v, w, g): the same, for a number missing values first, by the outcome's
    groups, without rows of which it is missing; `HIDDEN` of variables that are not told by groups.
    """

    rows: Array
    cells: Array
    crossed: Array


@message
class Pull:
    """A site's gradient at the model without covariates.

    ``reason`` () as in `training.disclosure`; ``shown`` (P,) parts that are told; ``mean`` (P,) and
    ``sd`` (P,) of the rows' gradients, 0 where not shown.
    """

    reason: Array
    shown: Array
    mean: Array
    sd: Array


Columns = Site[Encoded, None]


@gathered(once=("n_levels", "marks", "closed"))
def count_cells(
    site: Columns, *, edges: Array, n_levels: Array, label: int, cut: Array, within: Array,
    min_cell: int, marks: Array = NO_MARKS, closed: Array = NO_MORE,
) -> SiteCells:  # fmt: skip
    """Count the site's rows by the cells of each variable, and by the outcome's groups.

    edges : (c, b) of numbers, padded with inf. n_levels : (k,) of what has levels. label : place of
    the outcome among numbers and codes, −1 without. cut : (1,), one of its edges, above which a
    number counts as the second of two groups. within : (v,) whether a variable is told by groups.
    marks, closed : what sites hide of Table 1 of these rows (`data.describe.agreed.Agreed`); of a
    number of which anything is hidden there, all cells are: its mean follows from them.

    Raises
    ------
    Refused : edges that are not multiples of one round step, or a cut that is none of them.
    """
    row = closed_at(site.name, marks, closed)
    numbers, codes = site.data
    bins = [own[np.isfinite(own)] for own in edges]
    for own in bins:
        check_edges(own)
    divided = 0 <= label < len(numbers)
    if divided and not (bins[label] == cut[0]).any():
        raise Refused("edges", "groups of an outcome that are not divided at one of its edges.")
    n = len((*numbers, *codes)[0]) if numbers or codes else 0
    group, g = groups_of(site.data, n_levels, label, float(cut[0]))
    placed = [_placed(x, own) for x, own in zip(numbers, bins, strict=True)]
    placed += [(c + 1, int(k) + 1) for c, k in zip(codes, n_levels, strict=True)]
    widest = max((k for _, k in placed), default=0)
    cells = np.zeros((len(placed), widest), np.int64)
    crossed = np.full((len(placed), widest, g), HIDDEN)
    silent = 0 < n < min_cell or (row is not None and bool(row.all()))
    apart = None
    if label >= len(numbers):
        every = np.bincount(codes[label - len(numbers)] + 1, minlength=g + 1)
        apart = np.roll(secret(every, row, label, min_cell), -1)
    for j, (place, k) in enumerate(placed):
        table = np.bincount(place * (g + 1) + group, minlength=k * (g + 1)).reshape(k, g + 1)
        counts, number = table.sum(axis=1), j < len(numbers)
        known = counts[1:] if number else counts
        below = int(np.searchsorted(bins[j], cut[0])) + 1 if divided and j == label else None
        told = hidden_cells(known, counts[0] if number else None, below, min_cell) | silent
        if number:
            told |= row is not None and bool(row[j].any())
        else:
            told |= secret(counts, row, j, min_cell)
        cells[j, : len(known)] = np.where(told, HIDDEN, known)
        if not within[j] or silent:
            continue
        more = None if number else secret(counts, row, j, min_cell)
        lines, columns = hidden_levels(table, min_cell, more, apart)
        lines[int(number) :] |= hidden(known, min_cell)
        if number and (told.all() or hidden(known, min_cell).all()):
            lines[:] = True  # by groups they would tell more: how many are missing, or that all
            # cells are alike
        mask = (lines[:, None] | columns[None, :])[:, :g]
        crossed[j, :k] = np.where(mask, HIDDEN, table[:, :g])
    return SiteCells(np.array(HIDDEN if silent else n), cells, crossed)


def hidden_cells(known: Array, missing: int | None, below: int | None, min_cell: int) -> Array:
    """Return which cells (k,) of a variable are hidden.

    Parameters
    ----------
    missing : of a number, how many values are, which Table 1 may show; its cells are of the others.
    below : how many cells make the first of two groups, by which other variables are told: then
        how many values are in each group is known, and cells are hidden in either by itself.
    """
    if missing is not None and hidden(np.array([missing, known.sum()]), min_cell).any():
        return np.ones(len(known), bool)
    if below is None:
        return hidden(known, min_cell)
    parts = known[:below], known[below:]
    if hidden(np.array([p.sum() for p in parts]), min_cell).any():
        return np.ones(len(known), bool)
    return np.concatenate([hidden(p, min_cell) for p in parts])


def check_edges(edges: Array) -> None:
    """Refuse edges (b,) of one number that are at will.

    Raises
    ------
    Refused : they are not multiples of one step of 1, 2 or 5 times a power of ten, side by side.
    """
    if len(edges) < 2:
        if len(edges):
            raise Refused("edges", "one edge alone is none of a histogram.")
        return
    width = float(edges[-1] - edges[0]) / (len(edges) - 1)
    even = width > 0 and abs(round_number(width) / width - 1) < ROUNDING
    at = edges / width if even else edges
    if not even or np.abs(at - at[0] - np.arange(len(at))).max() > ROUNDING:
        raise Refused("edges", "cells of a number that are not all of one round width.")
    if np.abs(at - np.round(at)).max() > ROUNDING * max(1.0, float(np.abs(at).max())):
        raise Refused("edges", "edges that are no multiples of their step.")


def groups_of(data: Encoded, n_levels: Array, label: int, cut: float) -> tuple[Array, int]:
    """Return the outcome's group of each row (n,), and how many there are; the last without one."""
    numbers, codes = data
    if label < 0:
        n = len((*numbers, *codes)[0]) if numbers or codes else 0
        return np.zeros(n, np.int64), 1
    if label < len(numbers):
        x = numbers[label]
        return np.where(np.isnan(x), 2, x > cut).astype(np.int64), 2
    code, g = codes[label - len(numbers)], int(n_levels[label - len(numbers)])
    return np.where(code < 0, g, code), g


def _placed(x: Array, edges: Array) -> tuple[Array, int]:
    """Return the cell of each value, missing ones in the first, and how many cells there are."""
    cell = 1 + np.searchsorted(edges, x, side="left")
    return np.where(np.isnan(x), 0, cell), len(edges) + 2


@gathered(once=("marks", "closed"))
def pull_here(
    site: Columns, *, centre: Array, spread: Array, n_levels: Array, label: int, other: int,
    law: str, null: Array, min_cell: int, marks: Array = NO_MARKS, closed: Array = NO_MORE,
) -> Pull:  # fmt: skip
    """Tell the site's mean gradient of a common model without covariates.

    centre, spread : (c,) by which numbers are standardised; a spread of 0 leaves one out.
    n_levels : (k,) of codes; 0 leaves one out. label, other : places of the outcome, and of the
    time of an event. law : one of `LAWS`. null : the model: a share for each level, or mean and
    standard deviation, or events per unit of time. marks, closed : as `count_cells` has them; where
    Table 1 hides of the outcome, nothing is told, and nothing of a level that it hides.
    """
    row = closed_at(site.name, marks, closed)
    numbers, codes = site.data
    columns = (*numbers, *codes)
    y = np.asarray(columns[label], float)
    y = np.where(y < 0, np.nan, y) if label >= len(numbers) else y
    time = np.asarray(columns[other], float) if law == "survival" else np.zeros(len(y))
    rows = np.flatnonzero(np.isfinite(y) & np.isfinite(time))
    rest = np.clip(residuals(law, y[rows], time[rows], null), -MOST, MOST)
    parts = [
        np.clip(np.nan_to_num((x[rows] - c) / s), -MOST, MOST)[:, None]
        for x, c, s in zip(numbers, centre.tolist(), spread.tolist(), strict=True)
        if s > 0
    ]
    parts += [
        (code[rows, None] == np.arange(1, k)).astype(float)
        for code, k in zip(codes, n_levels.tolist(), strict=True)
        if k > 1
    ]
    x = np.concatenate([np.zeros((len(rows), 0)), *parts], axis=1)
    kinds = law != "number"
    size = (x.shape[1] + 1) * rest.shape[1]
    none = np.zeros(size)
    reason = _against(np.zeros((len(rows), 0)), y[rows], law, kinds, min_cell)
    taken = [label, other] if law == "survival" else [label]
    if reason == disclosure.FINE and row is not None and row[taken].any():
        reason = disclosure.FEW
    if reason != disclosure.FINE:
        return Pull(np.array(reason), none.astype(bool), none, none)
    fine = [True] + [
        _against(x[:, [j]], y[rows], law, kinds, min_cell) == disclosure.FINE
        for j in range(x.shape[1])
    ]
    if row is not None:
        kept = [not row[i].any() for i, s in enumerate(spread.tolist()) if s > 0]
        for line, k in zip(row[len(numbers) :], n_levels.tolist(), strict=True):
            kept += (~line[2 : k + 1]).tolist()
        fine = [a and b for a, b in zip(fine, [True, *kept], strict=True)]
    z = np.column_stack([np.ones(len(rows)), x])[:, :, None] * rest[:, None, :]
    z = z.reshape(len(rows), size)
    by_few = [dominated(z[:, j], max(min_cell, 1)) for j in range(size)]
    shown = np.repeat(fine, rest.shape[1]) & ~np.array(by_few)
    mean, sd = np.zeros(size), np.zeros(size)
    for j in np.flatnonzero(shown).tolist():
        own = z[:, j]
        sigma = float(own.std(ddof=1))
        width = step(sigma, len(rows), unit(own)) if sigma > 0 else 0.0
        mean[j], sd[j] = rounded(float(own.mean()), width), rounded(sigma, width)
    return Pull(np.array(disclosure.FINE), shown, mean, sd)


def _against(x: Array, y: Array, law: str, kinds: bool, least: int) -> int:
    """Return what there is against telling sums over rows (n, p); each level by itself."""
    levels = np.unique(y) if law == "levels" else [1.0]
    for level in levels:
        of = (y == level).astype(float) if kinds else y
        found = disclosure.hidden(x, of, 1 + x.shape[1], least, kinds=kinds, crossed=False)
        if found.reason != disclosure.FINE:
            return int(found.reason)
    return disclosure.FINE


def residuals(law: str, y: Array, time: Array, null: Array) -> Array:
    """Return outcomes less what the model without covariates says of them, (n, G)."""
    if law == "levels":
        return (y[:, None] == np.arange(1, len(null))) - null[1:]
    if law == "survival":
        return (y - null[0] * time)[:, None]
    return ((y - null[0]) / null[1])[:, None]


STEPS = (count_cells, pull_here)
