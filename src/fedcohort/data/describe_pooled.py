"""The column of all sites of Table 1, and what single sites hide so that it can be shown.

The pooled column is worth more than any site's, so it comes first: counts that sites hide are
summed over them (`sum_hidden`), and with what the others show give the counts of all. Such a sum
may not be of one site alone, whose count it would be. So sites first say which of their counts they
hide, and not how large they are (`tell_cells`), and the coordinator says which further cells each
of them hides (`Agreed`): what a site hides alone, another one with rows there hides with it.

The coordinator's word is not trusted. In the sum every site finds its own line of `Agreed`, and
refuses where that is not what it hides; all sites are sent the same lines, or masks do not cancel
(`secure`), and the lines are of the sites of the sum. So the sum is told where all lines are true,
and each site can count who gives to a cell: to one to which one site alone would give, none does.
What is hidden in a site's table is fixed with the lines (`Step.once`). A coordinator that names
others can only hide more. Nothing is summed where fewer than three sites hide each other: then the
column of all sites is of what they show.

Sites with fewer than 2m rows show nothing of their own, m being the `min_cell`, nor which of their
counts are 0: they are one column, `OTHERS`, with the next larger sites until they are two or more
of 2m rows together. What may be shown of the whole table is then decided by
`privacy.disclosure.tables`.

Mean and standard deviation are of all rows, from those that sites show and from sums of n, d, d²
and d⁴, d = (x − c)/s, of the others, c and s being public. These sums count where m values or more
make them, (Σ d²)² ≥ m Σ d⁴, and no site has a count in disguise; a site of which few values make
the moments cuts these to its m-th largest (`numbers.winsorised`). Quartiles are those of the
mixture of `summary`, in which the rows of sites that show none have the shape of the others'
mixture, with their own mean and standard deviation.

Revealed: `CellStates` of each site, once; `Hidden`, once, as the sum over all sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.encode import Encoded
from fedcohort.data.shown_number import HIDDEN, QUARTILES, ShownNumber
from fedcohort.data.summary import NORMAL_IQR, Summary, curve, mixture_quantiles
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.privacy.disclosure.numbers import counts_in_disguise, dominated, winsorised
from fedcohort.privacy.disclosure.rounding import rounded, step
from fedcohort.privacy.disclosure.tables import protected
from fedcohort.protocol.errors import Refused
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered, mark_of, summed

#: What sites are called that are shown, or take part, together.
OTHERS = "other hospitals"
#: A value farther from the centre, in standard deviations, counts as that.
FARTHEST = 1e3
#: What a site says of a cell: it is 0, hidden by the site's own rule, or shown.
NONE, OWN, SHOWN = 0, 1, 2


@message
class CellStates:
    """What one site would show: ``rows`` (), `HIDDEN` below m, and ``state`` (c + k, w + 1).

    The w cells of a variable are missing values, then levels (of a number, known values); the last
    column is a number's mean.
    """

    rows: Array
    state: Array


@message
class Hidden:
    """Sums over sites of what each hides.

    ``counts`` (c + k, w); of numbers without a mean ``sums`` (c, 4):
    n, Σ d, Σ d², Σ d⁴, and ``closed`` (c,), the sites of which it is a count in disguise; ``shut``
    (), rows of the sites that hide everything.
    """

    counts: Array
    sums: Array
    closed: Array
    shut: Array


def cells_of(data: Encoded, n_levels: Array) -> list[Array]:
    """Return the cells of each variable: missing values, then known ones or levels."""
    known = [np.count_nonzero(~np.isnan(x)) for x in data.numbers]
    out = [np.array([len(x) - n, n]) for x, n in zip(data.numbers, known, strict=True)]
    pairs = zip(data.codes, n_levels.tolist(), strict=True)
    return [*out, *(np.bincount(c + 1, minlength=n + 1) for c, n in pairs)]


def states_of(data: Encoded, n_levels: Array, min_cell: int) -> tuple[int, Array]:
    """Return a site's rows and `CellStates.state`, by its own rule alone."""
    every = cells_of(data, n_levels)
    n = int(every[0].sum()) if every else 0
    state = np.zeros((len(every), max([2, *(len(c) for c in every)]) + 1), np.int64)
    for j, cells in enumerate(every):
        own = hidden(cells, min_cell)
        state[j, : len(cells)] = np.where(own, OWN, np.where(cells > 0, SHOWN, NONE))
    for j, x in enumerate(data.numbers):
        if not np.isnan(x).all():
            state[j, -1] = OWN if ShownNumber.of(x, min_cell).mean is None else SHOWN
    if 0 < n < 2 * min_cell and min_cell > 1:
        state[:] = OWN
    return n, state


def closed_at(name: str, marks: Array, closed: Array) -> Array | None:
    """Return which cells (c + k, w + 1) the site of that name hides by `Agreed`; None without.

    Raises
    ------
    Refused : the lines do not have the site.
    """
    if not len(marks):
        return None
    at = np.flatnonzero(marks == mark_of(name))
    if len(at) != 1 or closed.ndim != 3 or len(closed) != len(marks):
        raise Refused("agreed", f"site {name!r}: what sites hide of Table 1 has no line of it.")
    return closed[at[0]].astype(bool)


def secret(cells: Array, row: Array | None, j: int, min_cell: int) -> Array:
    """Return which cells (k,) of variable j a site hides, `row` being that of `closed_at`."""
    own = hidden(cells, min_cell)
    if row is None:
        return own
    if row.shape[0] <= j or row.shape[1] <= len(cells):
        raise Refused("agreed", "what sites hide of Table 1 is of other columns than are asked.")
    return own | row[j, : len(cells)]


@gathered
def tell_cells(site: Site[Encoded, None], *, n_levels: Array, min_cell: int) -> CellStates:
    """Which counts of the site are 0, which it hides, and whether it shows a mean; no count."""
    n, state = states_of(site.data, n_levels, min_cell)
    return CellStates(np.array(HIDDEN if 0 < n < min_cell else n), state)


@summed(once=("n_levels", "marks", "closed", "some", "centre", "spread"))
def sum_hidden(
    site: Site[Encoded, None],
    *,
    n_levels: Array,
    min_cell: int,
    marks: Array,
    closed: Array,
    some: Array,
    centre: Array,
    spread: Array,
) -> Hidden:
    """Sum the counts that sites hide, and moments of numbers whose mean they hide.

    marks, closed, some : as `Agreed` has them; centre, spread (c,) of numbers, public.

    Raises
    ------
    Refused : the lines are of other sites than the sum, or that of this site is not what it hides.
    """
    row, (n, state) = _own_line(site, n_levels, min_cell, marks, closed, some)
    gives = (closed & some).sum(axis=0) > 1
    mine = row & gives
    every = cells_of(site.data, n_levels)
    counts = np.zeros((len(state), state.shape[1] - 1), np.int64)
    for j, cells in enumerate(every):
        counts[j, : len(cells)] = np.where(mine[j, : len(cells)], cells, 0)
    sums, disguised = np.zeros((len(centre), 4)), np.zeros(len(centre), np.int64)
    for j, x in enumerate(site.data.numbers):
        known = np.sort(x[~np.isnan(x)])
        if not mine[j, -1] or not len(known) or spread[j] <= 0:
            continue
        if len(known) >= 2 * min_cell:
            disguised[j] = counts_in_disguise(known, min_cell)
            known = winsorised(known, min_cell) if dominated(known, min_cell) else known
        with np.errstate(over="ignore", invalid="ignore"):
            d = np.clip((known - centre[j]) / spread[j], -FARTHEST, FARTHEST)
        sums[j] = len(d), d.sum(), (d**2).sum(), (d**4).sum()
    apart = closed.all(axis=(1, 2))
    rows = n if row.all() and apart.sum() > 1 else 0
    return Hidden(counts, sums, disguised, np.array(rows))


def _own_line(
    site: Site[Encoded, None], n_levels: Array, min_cell: int, marks: Array, closed: Array,
    some: Array,
) -> tuple[Array, tuple[int, Array]]:  # fmt: skip
    """Return what the site hides by its line of `Agreed`, and its own `states_of`."""
    row = closed_at(site.name, marks, closed)
    n, state = states_of(site.data, n_levels, min_cell)
    fine = row is not None and closed.shape == some.shape and row.shape == state.shape
    if site.among:
        known = sorted(mark_of(s) for s in site.among)
        fine = fine and sorted(int(v) for v in marks.tolist()) == known
    if fine and row is not None:
        here = some[marks == mark_of(site.name)][0]
        fine = bool((row | (state != OWN)).all() and (here == (state != NONE)).all())
    if not fine or row is None:
        raise Refused(
            "agreed",
            f"site {site.name!r} is told that sites hide other cells of Table 1 than it does, or "
            f"that others are in the sum: a hidden count could be alone in it.",
        )
    return row, (n, state)


# at the coordinator ---------------------------------------------------------------------


@dataclass(frozen=True)
class Agreed:
    """Who hides what of Table 1; S sites by name.

    Attributes
    ----------
    sites : their names, sorted.
    small : those that are shown together as `OTHERS`.
    closed : (S, c + k, w + 1), bool: the site hides the cell, or the mean.
    some : the same shape: the cell may be above 0.
    """

    sites: tuple[str, ...]
    small: tuple[str, ...]
    closed: Array
    some: Array

    @property
    def marks(self) -> Array:
        """What stands for the sites' names (S,)."""
        return np.array([mark_of(s) for s in self.sites], np.int64)

    @property
    def asked(self) -> dict[str, Array]:
        """What sites are told that show a table."""
        return {"marks": self.marks, "closed": self.closed}

    def alone(self) -> Array:
        """Return the cells (c + k, w + 1) to which one site alone would give, so that none does."""
        return (self.closed & self.some).sum(axis=0) == 1

    def to_dict(self) -> dict[str, Any]:
        """Return what can be written as JSON."""
        packed = [np.packbits(a).tobytes().hex() for a in (self.closed, self.some)]
        shape = list(self.closed.shape)
        return {"sites": [*self.sites], "small": [*self.small], "shape": shape, "cells": packed}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Agreed:
        """Return what `to_dict` wrote."""
        shape = tuple(plain["shape"])
        closed, some = (
            np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8), count=math.prod(shape))
            for text in plain["cells"]
        )
        cells = closed.reshape(shape).astype(bool), some.reshape(shape).astype(bool)
        return cls(tuple(plain["sites"]), tuple(plain["small"]), *cells)

    @classmethod
    def of(cls, told: Mapping[str, CellStates], min_cell: int) -> Agreed:
        """Return what all sites are to hide, so that no sum is of one of them."""
        names = tuple(sorted(told))
        state = np.array([told[s].state for s in names])
        closed, some = state == OWN, state != NONE
        rows = {s: max(int(t.rows), 1) for s, t in told.items() if t.rows != 0}
        order = sorted(rows, key=lambda s: (rows[s], s))
        small = [s for s in order if rows[s] < 2 * min_cell or s == OTHERS]
        for s in order:
            few = len(small) == 1 or sum(rows[x] for x in small) < 2 * min_cell
            if small and s not in small and few:
                small.append(s)
        small = small if len(small) > 1 else []
        closed[[names.index(s) for s in small]] = True
        large = [names.index(s) for s in order if s not in small]
        count = np.arange(state.shape[2]) < state.shape[2] - 1
        for j in range(state.shape[1]):
            for of in (count, ~count):
                _with_partners(closed[:, j], some[:, j], of, large)
        return cls(names, tuple(small), closed, some)


def _with_partners(closed: Array, some: Array, of: Array, large: Sequence[int]) -> None:
    """Let another site hide with each that would be alone in a sum; one variable, in place.

    Parameters
    ----------
    closed, some : (S, w + 1). of : (w + 1,) of which columns. large : who can, fewest rows first.
    """
    for i in [*large, *(i for i in range(len(closed)) if i not in large)]:
        gives = closed & some & of
        if not (gives[i] & (gives.sum(axis=0) == 1)).any():
            continue
        part = closed[i] & of
        able = [t for t in large if t != i and (some[t] & part).sum() >= min(2, part.sum())]
        if able:
            closed[able[0]] |= part


@dataclass(frozen=True)
class Pooled:
    """What the sites' replies come to.

    Attributes
    ----------
    agreed : who hides what.
    held : the sums of what they hide.
    centre, spread : (c,) as asked with.
    shares : (q,) of quantiles besides the quartiles.
    """

    agreed: Agreed
    held: Hidden
    centre: Array
    spread: Array
    shares: Sequence[float]

    def over(
        self, j: int, sites: Sequence[Summary], min_cell: int, *, rounding: bool, one: Summary
    ) -> list[Summary]:
        """Return variable j over all sites, then at each that is shown, as they may be.

        Parameters
        ----------
        sites : what each of them shows, by name.
        one : of all sites, from nothing but what they show (`summary.over_all`).
        """
        small = self.agreed.small
        large = [s for s in sites if s.site not in small]
        k = len(one.levels) + 1 if one.levels else 2
        alone = self.agreed.alone()[j]
        held = np.where(alone[:k], np.nan, self.held.counts[j, :k].astype(float))
        shown = np.array([_cells(s) for s in large]).reshape(-1, k)
        whole = np.nansum(shown, axis=0) + held
        rows = [float("nan") if s.rows is None else float(s.rows) for s in large]
        shut = self._shut
        twice = sum(n for s, n in zip(large, rows, strict=True) if s.site in shut)
        rest = float(self.held.shut) - twice if small else 0.0
        n = int(sum(rows) + rest)
        if small:
            last = np.where(np.isnan(shown).any(axis=0), np.nan, held)
            few = hidden(last, min_cell) if not np.isnan(last).any() else last < min_cell
            shown = np.vstack([shown, np.where(few & (last != 0), np.nan, last)])
            rows.append(rest)
            blank = (None,) * len(one.quantiles)
            more = Summary(one.variable, one.levels, OTHERS, int(rows[-1]), None, quantiles=blank)
            large.append(more)
        few = whole < min_cell if np.isnan(whole).any() else hidden(whole, min_cell)
        told = np.where(few & (whole != 0), np.nan, whole)
        secret, closed = protected(shown, np.array(rows), told, float(n), min_cell)
        parts = [_with(s, c, h) for s, c, h in zip(large, shown, secret, strict=True)]
        first = _with(replace(one, rows=n), np.where(closed, np.nan, whole), closed)
        if not one.levels and not np.isnan(whole[1]):
            first = self._numbers(j, first, sites, int(whole[1]), min_cell, rounding)
        return [first, *parts]

    @property
    def _shut(self) -> set[str]:
        """The sites that hide everything."""
        a = self.agreed
        return {s for s, own in zip(a.sites, a.closed, strict=True) if own.all()}

    def _numbers(
        self, j: int, one: Summary, sites: Sequence[Summary], known: int, m: int, rounding: bool
    ) -> Summary:
        """Return a number over all sites with moments and quartiles."""
        seen = [s for s in sites if s.mean is not None and s.site not in self.agreed.small]
        n, s1, s2, s4 = self.held.sums[j].tolist()
        out = replace(one, mean=None, sd=None)  # quartiles are there where all sites show theirs
        alone = self.agreed.alone()[j, -1]  # the one site that hides its mean gives nothing
        if alone or self.held.closed[j] or not seen or self.spread[j] <= 0:
            return out
        if n > 0 and (n < m or s2 * s2 < m * s4):
            return out
        w = np.array([known - n], float)  # rows of those that show a mean
        parts = np.array([_known(s, m) for s in seen], float)
        parts *= w[0] / parts.sum()
        means = np.array([s.mean for s in seen], float)
        mine = _joined(parts, means, np.array([s.sd for s in seen], float))
        c, s = float(self.centre[j]), float(self.spread[j])
        rest = (
            (n, c + s * s1 / n, s * math.sqrt(max(s2 - s1 * s1 / n, 0.0) / max(n - 1, 1)))
            if (n)
            else (0.0, c, s)
        )
        total, mean, sd = _joined(*np.array([mine, rest]).T)
        by = step(sd, int(total), 0.0) if rounding else 0.0
        out = replace(out, mean=rounded(mean, by), sd=rounded(sd, by))
        full = [x for x in seen if x.quartiles is not None]
        if not full:
            return out
        told = [
            i for i, _ in enumerate(self.shares) if all(x.quantiles[i] is not None for x in full)
        ]
        asked = [*QUARTILES, *(self.shares[i] for i in told)]
        curves = [curve(x, self.shares) for x in full]
        weights = np.array([_known(x, m) for x in full], float)
        shape = np.array(mixture_quantiles(weights, curves, asked))
        theirs = _joined(weights, *np.array([[x.mean, x.sd] for x in full], float).T)
        left = total - theirs[0]
        others = [x for x in seen if x.quartiles is None]
        if left >= 1 and theirs[2] > 0 and (n or others):  # hidden counts make `left` inexact
            lots = [rest, *((_known(x, m), x.mean, x.sd) for x in others)]
            _, middle, width = _joined(*np.array(lots, float).T)
            moved = middle + (shape - theirs[1]) * width / theirs[2]
            order = np.argsort(asked)
            curves.append((np.array(asked)[order], np.maximum.accumulate(moved[order])))
            weights = np.append(weights, left)
        found = mixture_quantiles(weights, curves, asked)
        by = step((found[2] - found[0]) / NORMAL_IQR, int(total), 0.0) if rounding else 0.0
        q1, median, q3, *further = (rounded(x, by) for x in found)
        known_at = dict(zip(told, further, strict=True))
        quantiles = tuple(known_at.get(i) for i in range(len(self.shares)))
        return replace(out, quartiles=(q1, median, q3), quantiles=quantiles)


def _cells(s: Summary) -> list[float]:
    """Return what a site shows of its missing and known values, NaN where it is hidden."""
    if s.levels:
        return [float("nan") if c is None else float(c) for c in (s.missing, *s.counts)]
    if s.missing is None or s.rows is None:
        return [float("nan")] * 2
    return [float(s.missing), float(s.rows - s.missing)]


def _with(s: Summary, cells: Array, secret: Array) -> Summary:
    """Return a summary with such counts, but for those that are hidden."""
    told = [None if h or np.isnan(c) else int(c) for c, h in zip(cells, secret, strict=True)]
    if not s.levels:
        return replace(s, missing=None if None in told else told[0])
    return replace(s, missing=told[0], counts=tuple(told[1:]))


def _known(s: Summary, min_cell: int) -> float:
    """Return about how many values a site knows."""
    return max((s.rows or 0) - (min_cell / 2 if s.missing is None else s.missing), 1.0)


def _joined(n: Array, mean: Array, sd: Array) -> tuple[float, float, float]:
    """Return values, mean and standard deviation of groups put together."""
    total = float(n.sum())
    middle = float(n @ mean / total)
    inside = np.maximum(n - 1, 0) @ sd**2 + n @ (mean - middle) ** 2
    return total, middle, math.sqrt(float(inside) / max(total - 1, 1.0))
