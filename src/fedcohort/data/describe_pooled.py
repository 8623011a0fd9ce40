"""The column of all sites of Table 1, and what single sites hide so that it can be shown.

The pooled column is worth more than any site's, so it comes first: counts that sites hide are
summed over them (`sum_hidden`), and with what the others show give the counts of all. Such a sum
may not be of one site alone, whose count it would be. So sites first say which of their counts they
hide, and not how large they are (`tell_cells`), and agree on the rest by the number of their rows
(`Agreed`): what a site of few rows hides alone, the next larger one hides with it.

Sites with fewer than 2m rows show nothing of their own, m being the `min_cell`, if they are two or
more of 2m rows together: they are one column, `OTHERS`. What may be shown of the whole table is
then decided by `privacy.disclosure.tables`.

Mean and standard deviation are of all rows, from those that sites show and from sums of n, d, d²
and d⁴, d = (x − c)/s, of the others, c and s being public. These sums count where m values or more
make them, (Σ d²)² ≥ m Σ d⁴, and no site has a count in disguise; a site of which few values make
the moments cuts these to its m-th largest (`numbers.winsorised`). Quartiles are those of the
mixture of `summary`, in which the rows of sites that show none have the shape of the others'
mixture, with their own mean and standard deviation.

Revealed: `CellStates` of each site, once; `Hidden`, once, as the sum over all sites.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.encode import Encoded
from fedcohort.data.shown_number import HIDDEN, QUARTILES, ShownNumber
from fedcohort.data.summary import NORMAL_IQR, Summary, curve, mixture_quantiles
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.privacy.disclosure.numbers import counts_in_disguise, dominated, winsorised
from fedcohort.privacy.disclosure.rounding import rounded, step
from fedcohort.privacy.disclosure.tables import protected
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered, summed

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
    n, Σ d, Σ d², Σ d⁴, and ``closed`` (c,), the sites of which it is a count in disguise.
    """

    counts: Array
    sums: Array
    closed: Array


def cells_of(data: Encoded, n_levels: Array) -> list[Array]:
    """Return the cells of each variable: missing values, then known ones or levels."""
    known = [np.count_nonzero(~np.isnan(x)) for x in data.numbers]
    out = [np.array([len(x) - n, n]) for x, n in zip(data.numbers, known, strict=True)]
    pairs = zip(data.codes, n_levels.tolist(), strict=True)
    return [*out, *(np.bincount(c + 1, minlength=n + 1) for c, n in pairs)]


def secret(cells: Array, n: int, also: Array, j: int, min_cell: int) -> Array:
    """Return which cells (k,) of variable j a site of n rows hides, by `also` of `Agreed`."""
    own = hidden(cells, min_cell)
    return own | (n <= also[j, : len(cells)]) if n and len(also) else own


@gathered
def tell_cells(site: Site[Encoded, None], *, n_levels: Array, min_cell: int) -> CellStates:
    """Which counts of the site are 0, which it hides, and whether it shows a mean; no count."""
    every = cells_of(site.data, n_levels)
    n = int(every[0].sum()) if every else 0
    state = np.zeros((len(every), max([2, *(len(c) for c in every)]) + 1), np.int64)
    for j, cells in enumerate(every):
        own = hidden(cells, min_cell)
        state[j, : len(cells)] = np.where(own, OWN, np.where(cells > 0, SHOWN, NONE))
    for j, x in enumerate(site.data.numbers):
        if not np.isnan(x).all():
            state[j, -1] = OWN if ShownNumber.of(x, min_cell).mean is None else SHOWN
    return CellStates(np.array(HIDDEN if 0 < n < min_cell else n), state)


@summed(once=("n_levels", "also", "centre", "spread"))
def sum_hidden(
    site: Site[Encoded, None],
    *,
    n_levels: Array,
    min_cell: int,
    also: Array,
    centre: Array,
    spread: Array,
) -> Hidden:
    """Sum the counts that the site hides, and moments of numbers whose mean it hides.

    also : as `Agreed` has it; centre, spread (c,) of numbers, public.
    """
    every = cells_of(site.data, n_levels)
    n = int(every[0].sum()) if every else 0
    counts = np.zeros((len(also), also.shape[1] - 1), np.int64)
    for j, cells in enumerate(every):
        counts[j, : len(cells)] = np.where(secret(cells, n, also, j, min_cell), cells, 0)
    sums, closed = np.zeros((len(centre), 4)), np.zeros(len(centre), np.int64)
    for j, x in enumerate(site.data.numbers):
        known = np.sort(x[~np.isnan(x)])
        shows = n > also[j, -1] and ShownNumber.of(x, min_cell).mean is not None
        if shows or not len(known) or spread[j] <= 0:
            continue
        if len(known) >= 2 * min_cell:
            closed[j] = counts_in_disguise(known, min_cell)
            known = winsorised(known, min_cell) if dominated(known, min_cell) else known
        with np.errstate(over="ignore", invalid="ignore"):
            d = np.clip((known - centre[j]) / spread[j], -FARTHEST, FARTHEST)
        sums[j] = len(d), d.sum(), (d**2).sum(), (d**4).sum()
    return Hidden(counts, sums, closed)


# at the coordinator ---------------------------------------------------------------------


@dataclass(frozen=True)
class Agreed:
    """Who hides what beyond the own rule.

    Attributes
    ----------
    small : sites that are shown together as `OTHERS`.
    also : (c + k, w + 1); a site of no more rows hides the cell, or the mean.
    """

    small: tuple[str, ...]
    also: Array

    @classmethod
    def of(cls, told: Mapping[str, CellStates], min_cell: int) -> Agreed:
        """Return what all sites are to hide, so that no sum is of one of them."""
        rows = {s: max(int(t.rows), 1) for s, t in told.items() if t.rows != 0}
        order = sorted(rows, key=lambda s: (rows[s], s))
        shape = next(iter(told.values())).state.shape
        if min_cell <= 1:
            return cls((), np.full(shape, -1))
        small = [s for s in order if rows[s] < 2 * min_cell or s == OTHERS]
        if len(small) == 1 and int(told[small[0]].rows) != HIDDEN and small[0] != OTHERS:
            small = []
        for s in order:
            if (
                small
                and s not in small
                and (len(small) == 1 or sum(rows[x] for x in small) < 2 * min_cell)
            ):
                small.append(s)
        if len(small) < 2:
            small = []
        large = [s for s in order if s not in small]
        also = np.full(shape, max((rows[s] for s in small), default=-1))
        n = np.array([rows[s] for s in large])
        count = np.arange(shape[1]) < shape[1] - 1
        for j in range(shape[0] if len(large) > 1 else 0):
            state = np.array([told[s].state[j] for s in large])
            for i, of in itertools.product(range(len(large)), (count, ~count)):
                closed = (state == OWN) | (n[:, None] <= also[j])
                part = closed[i] & of
                if (part & (closed.sum(axis=0) + bool(small) == 1)).any():
                    open_ = [(state[t, part] == SHOWN).sum() for t in range(len(large))]
                    able = [
                        t for t in range(len(large)) if t != i and open_[t] >= min(2, part.sum())
                    ]
                    partner = (able or [t for t in range(len(large)) if t != i])[0]
                    also[j, part] = np.maximum(also[j, part], n[partner])
        return cls(tuple(small), also)


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
        held = self.held.counts[j, :k].astype(float)
        shown = np.array([_cells(s) for s in large]).reshape(-1, k)
        whole = np.nansum(shown, axis=0) + held
        rows = [float("nan") if s.rows is None else float(s.rows) for s in large]
        if small:
            last = np.where(np.isnan(shown).any(axis=0), np.nan, held)
            few = hidden(last, min_cell) if not np.isnan(last).any() else last < min_cell
            shown = np.vstack([shown, np.where(few & (last != 0), np.nan, last)])
            rows.append(float(whole.sum() - sum(rows)))
            blank = (None,) * len(one.quantiles)
            more = Summary(one.variable, one.levels, OTHERS, int(rows[-1]), None, quantiles=blank)
            large.append(more)
        told = np.where(hidden(whole, min_cell), np.nan, whole)
        secret, closed = protected(shown, np.array(rows), told, float(whole.sum()), min_cell)
        parts = [_with(s, c, h) for s, c, h in zip(large, shown, secret, strict=True)]
        n = int(whole.sum())
        first = _with(replace(one, rows=n), np.where(closed, np.nan, whole), closed)
        if not one.levels:
            first = self._numbers(j, first, sites, int(whole[1]), min_cell, rounding)
        return [first, *parts]

    def _numbers(
        self, j: int, one: Summary, sites: Sequence[Summary], known: int, m: int, rounding: bool
    ) -> Summary:
        """Return a number over all sites with moments and quartiles."""
        seen = [s for s in sites if s.mean is not None and s.site not in self.agreed.small]
        n, s1, s2, s4 = self.held.sums[j].tolist()
        out = replace(one, mean=None, sd=None)  # quartiles are there where all sites show theirs
        if self.held.closed[j] or not seen or self.spread[j] <= 0:
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
