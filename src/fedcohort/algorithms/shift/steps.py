"""Site steps of `shift`: a site's tables of counts, and its gradient at a model without covariates.

Replies are a site's own, so the site hides what is of fewer than m = `min_cell` rows: cells of a
variable by `privacy.disclosure.counts`; cells of a table by the outcome by
`privacy.disclosure.groups`, with the variable's hidden cells. Cells of a number count its known
values; if Table 1 hides their number, all these cells are hidden, by groups too. Edges of a number
are multiples of one round step; other edges, which could be moved past single values, are refused.
Cells of the same rows between other edges, in another study, are not checked.

A part of the gradient is shown if `training.disclosure` allows its column alone with the outcome,
and if fewer than m rows do not dominate its mean and standard deviation, as one very long follow-up
would (`privacy.disclosure.numbers`). It is rounded to a quarter of its standard error, as means in
Table 1 are (`privacy.disclosure.rounding`).
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

#: Kinds of outcome: none, levels, a number, or time and event.
LAWS = ("", "levels", "number", "survival")
#: Largest distance of an edge from a multiple of its step, in steps.
ROUNDING = 1e-6
#: Largest value in standard deviations, so that fourth powers stay finite.
MOST = 1e50


@message
class SiteCells:
    """One site's counts for v variables, numbers first; `HIDDEN` if not shown, padded with 0.

    ``rows`` (); ``cells`` (v, w): of a number between its edges, of levels with missing values
    first; ``crossed`` (v, w, g): the same by the outcome's groups, for rows with an outcome, with
    missing values first for numbers, too; `HIDDEN` for variables that are not crossed.
    """

    rows: Array
    cells: Array
    crossed: Array


@message
class Pull:
    """A site's gradient at the model without covariates.

    ``reason`` () as in `training.disclosure`; ``shown`` (P,) which parts are shown; ``mean`` (P,)
    and ``sd`` (P,) of the rows' gradients, 0 if not shown.
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

    Parameters
    ----------
    edges : (c, b) of numbers, padded with inf.
    n_levels : (k,) of variables with levels.
    label : place of the outcome among numbers and codes; −1 without.
    cut : (1,), the edge between two groups of an outcome that is a number.
    within : (v,), variables that are crossed with the outcome.
    marks, closed : what sites hide in Table 1 of these rows (`data.describe.agreed.Agreed`). If
        anything of a number is hidden there, all its cells are: its mean follows from them.

    Raises
    ------
    Refused : edges are not multiples of one round step, or the cut is none of them.
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
    secret_groups = None
    if label >= len(numbers):
        every = np.bincount(codes[label - len(numbers)] + 1, minlength=g + 1)
        secret_groups = np.roll(secret(every, row, label, min_cell), -1)
    for j, (place, k) in enumerate(placed):
        table = np.bincount(place * (g + 1) + group, minlength=k * (g + 1)).reshape(k, g + 1)
        counts, number = table.sum(axis=1), j < len(numbers)
        inside = counts[1:] if number else counts
        below = int(np.searchsorted(bins[j], cut[0])) + 1 if divided and j == label else None
        closed_cells = hidden_cells(inside, counts[0] if number else None, below, min_cell) | silent
        if number:
            closed_cells |= row is not None and bool(row[j].any())
        else:
            closed_cells |= secret(counts, row, j, min_cell)
        cells[j, : len(inside)] = np.where(closed_cells, HIDDEN, inside)
        if not within[j] or silent:
            continue
        more = None if number else secret(counts, row, j, min_cell)
        lines, columns = hidden_levels(table, min_cell, more, secret_groups)
        lines[int(number) :] |= hidden(inside, min_cell)
        if number and (closed_cells.all() or hidden(inside, min_cell).all()):
            # groups would show the number of missing values, or more of the hidden cells
            lines[:] = True
        mask = (lines[:, None] | columns[None, :])[:, :g]
        crossed[j, :k] = np.where(mask, HIDDEN, table[:, :g])
    return SiteCells(np.array(HIDDEN if silent else n), cells, crossed)


def hidden_cells(counts: Array, missing: int | None, below: int | None, min_cell: int) -> Array:
    """Return which cells (k,) of a variable are hidden.

    Parameters
    ----------
    missing : number of missing values, which Table 1 may show; None if the cells include them.
    below : number of cells in the first of two groups, by which other variables are crossed. The
        size of each group is then known, so cells are hidden in each group separately.
    """
    if missing is not None and hidden(np.array([missing, counts.sum()]), min_cell).any():
        return np.ones(len(counts), bool)
    if below is None:
        return hidden(counts, min_cell)
    parts = counts[:below], counts[below:]
    if hidden(np.array([p.sum() for p in parts]), min_cell).any():
        return np.ones(len(counts), bool)
    return np.concatenate([hidden(p, min_cell) for p in parts])


def check_edges(edges: Array) -> None:
    """Raise `Refused` for edges (b,) that are not consecutive multiples of one round step.

    A step is 1, 2 or 5 times a power of ten; one edge alone is refused.
    """
    if len(edges) < 2:
        if len(edges):
            raise Refused("edges", "a single edge makes no histogram.")
        return
    width = float(edges[-1] - edges[0]) / (len(edges) - 1)
    even = width > 0 and abs(round_number(width) / width - 1) < ROUNDING
    at = edges / width if even else edges
    if not even or np.abs(at - at[0] - np.arange(len(at))).max() > ROUNDING:
        raise Refused("edges", "cells of a number that are not all of one round width.")
    if np.abs(at - np.round(at)).max() > ROUNDING * max(1.0, float(np.abs(at).max())):
        raise Refused("edges", "edges that are no multiples of their step.")


def groups_of(data: Encoded, n_levels: Array, label: int, cut: float) -> tuple[Array, int]:
    """Return the outcome's group of each row (n,), and their number g; g without an outcome."""
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
    """Return the cell of each value, 0 if missing, and the number of cells."""
    cell = 1 + np.searchsorted(edges, x, side="left")
    return np.where(np.isnan(x), 0, cell), len(edges) + 2


@gathered(once=("marks", "closed"))
def pull_here(
    site: Columns, *, centre: Array, spread: Array, n_levels: Array, label: int, other: int,
    law: str, null: Array, min_cell: int, marks: Array = NO_MARKS, closed: Array = NO_MORE,
) -> Pull:  # fmt: skip
    """Return the site's mean gradient at a common model without covariates.

    Parameters
    ----------
    centre, spread : (c,) of numbers; a number with spread 0 is left out.
    n_levels : (k,) of codes; a code with 0 is left out.
    label, other : places of the outcome, and of the time of an event.
    law : one of `LAWS`.
    null : the model: a share for each level, or mean and standard deviation, or events per time.
    marks, closed : as in `count_cells`. If Table 1 hides part of the outcome, nothing is shown;
        nothing is shown of a level that it hides.
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
    """Return the reason against showing sums over rows (n, p), of each level separately."""
    levels = np.unique(y) if law == "levels" else [1.0]
    for level in levels:
        of = (y == level).astype(float) if kinds else y
        found = disclosure.hidden(
            x, of, 1 + x.shape[1], least, kinds=2 * kinds, crossed=False, every=True
        )
        if found.reason != disclosure.FINE:
            return int(found.reason)
    return disclosure.FINE


def residuals(law: str, y: Array, time: Array, null: Array) -> Array:
    """Return the outcomes less their predictions without covariates, (n, G)."""
    if law == "levels":
        return (y[:, None] == np.arange(1, len(null))) - null[1:]
    if law == "survival":
        return (y - null[0] * time)[:, None]
    return ((y - null[0]) / null[1])[:, None]


STEPS = (count_cells, pull_here)
