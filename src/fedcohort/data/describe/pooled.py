"""Column of all sites in Table 1, and what single sites hide so that it can be shown.

The pooled column has priority over the sites' columns. Counts that sites hide are summed over them
(`sum_hidden`), and the shown counts are added. `agreed` decides which site hides which cell, and
which sums are shown. Nothing is summed if fewer than three sites hide each other: then the column
of all sites is made of what they show.

Sites with fewer than 2m rows, m being the `min_cell`, show neither statistics nor which of their
counts are 0. They form one column, `OTHERS`, together with the next larger sites until these are
two or more with 2m rows. `privacy.disclosure.tables` then decides what of the whole table may be
shown. It runs twice: columns that are missing together reveal each other's missing values, so
the second run takes the likely commonest count of them at a site as known.

Mean and standard deviation are of all rows: from the means that sites show, and from sums of n, d,
d² and d⁴ of the other sites, d = (x − c)/s, with public c and s. A site where a few values dominate
the moments cuts these to its m-th largest (`numbers.winsorised`). The sums are used only if m
values or more contribute, (Σ d²)² ≥ m Σ d⁴. If fewer than m values of a site differ from its most
frequent one, their number is a count, and sums of such sites alone would reveal it. So the other
sites in the sum must have m or more differing values. Sums that cannot be used are left out
if they are of less than `LITTLE` of all known values; otherwise there is no mean. Quartiles are
those of the mixture of `summary`. Rows of sites without quartiles get the shape of the others'
mixture, with their own mean and standard deviation.

Revealed: `CellStates` of each site, once; `Hidden`, once, as the sum over all sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcohort import mapped
from fedcohort.arrays import Array
from fedcohort.data.describe.agreed import OTHERS, Agreed, cells_of, own_line, shown_sums
from fedcohort.data.describe.shown_number import QUARTILES
from fedcohort.data.describe.summary import NORMAL_IQR, Summary, curve, mixture_quantiles
from fedcohort.data.encode import Encoded
from fedcohort.privacy.disclosure.counts import hidden_variable
from fedcohort.privacy.disclosure.numbers import differing, dominated
from fedcohort.privacy.disclosure.rounding import rounded, step
from fedcohort.privacy.disclosure.tables import Audit, protected
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed

#: Largest distance of a value from the centre, in standard deviations; values beyond are cut.
FARTHEST = 10.0
#: A mean leaves out sums that cannot be used if they are of less than this share of the values.
LITTLE = 0.02


@message
class Hidden:
    """Sums over sites of hidden counts and moments.

    ``counts`` (c + k, w).
    ``sums`` (c, 4): n, Σ d, Σ d², Σ d⁴ of numbers whose mean is hidden.
    ``apart`` (c, 2): number of sites where fewer than m values differ from the most frequent one,
    and number of differing values at the other sites. ``shut`` (): rows of the sites that hide
    everything.
    """

    counts: Array
    sums: Array
    apart: Array
    shut: Array


@summed(once=("n_levels", "marks", "closed", "own", "some", "centre", "spread"), blocks="own")
def sum_hidden(
    site: Site[Encoded, None],
    *,
    n_levels: Array,
    min_cell: int,
    marks: Array,
    closed: Array,
    own: Array,
    some: Array,
    centre: Array,
    spread: Array,
) -> Hidden:
    """Sum the counts that sites hide, and moments of numbers whose mean they hide.

    marks, closed, own, some : see `Agreed`; centre, spread (c,) of numbers, public.

    Raises
    ------
    Refused : the lines are of other sites than the sum, or this site's line differs from what it
        hides.
    """
    row, n = own_line(site, n_levels, min_cell, marks, closed, own, some)
    mine = row & shown_sums(closed, own, some)
    every = cells_of(site.data, n_levels)
    counts = np.zeros((len(row), row.shape[1] - 1), np.int64)
    for j, cells in enumerate(every):
        counts[j, : len(cells)] = np.where(mine[j, : len(cells)], cells, 0)
    sums, apart = np.zeros((len(centre), 4)), np.zeros((len(centre), 2), np.int64)
    for j, x in enumerate(mapped.each(site.data.numbers)):
        known = np.sort(x[~np.isnan(x)])
        if not mine[j, -1] or not len(known) or spread[j] <= 0:
            continue
        many = differing(known)
        few = many < min_cell <= len(known) / 2
        apart[j] = few, 0 if few else many
        with np.errstate(over="ignore", invalid="ignore"):
            d = np.clip((known - centre[j]) / spread[j], -FARTHEST, FARTHEST)
        if len(d) >= 2 * min_cell and dominated(known, min_cell):
            d[:min_cell], d[-min_cell:] = d[:min_cell].mean(), d[-min_cell:].mean()
        sums[j] = len(d), d.sum(), (d**2).sum(), (d**4).sum()
    rows = n if row.all() and closed.all(axis=(1, 2)).sum() > 1 else 0
    return Hidden(counts, sums, apart, np.array(rows))


# at the coordinator ---------------------------------------------------------------------


@dataclass(frozen=True)
class Pooled:
    """Combined replies of the sites.

    Attributes
    ----------
    agreed : which site hides which cell.
    held : sums of what they hide.
    centre, spread : (c,) as sent to the sites.
    shares : (q,) of quantiles besides the quartiles.
    common : by site name, None for all sites, the commonest count of missing values.
    """

    agreed: Agreed
    held: Hidden
    centre: Array
    spread: Array
    shares: Sequence[float]
    common: Mapping[str | None, int]

    def over(
        self, j: int, sites: Sequence[Summary], min_cell: int, *, rounding: bool, one: Summary
    ) -> list[Summary]:
        """Return the summary of variable j over all sites, then those of the shown sites.

        Parameters
        ----------
        sites : summary of each site, by name.
        one : over all sites, from these summaries alone (`summary.over_all`).
        """
        small = self.agreed.small
        large = [s for s in sites if s.site not in small]
        k = len(one.levels) + 1 if one.levels else 2
        alone = self.agreed.unshown()[j]
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
            few = hidden_variable(last, min_cell) if not np.isnan(last).any() else last < min_cell
            shown = np.vstack([shown, np.where(few & (last != 0), np.nan, last)])
            rows.append(rest)
            blank = (None,) * len(one.quantiles)
            more = Summary(one.variable, one.levels, OTHERS, int(rows[-1]), None, quantiles=blank)
            large.append(more)
        few = whole < min_cell if np.isnan(whole).any() else hidden_variable(whole, min_cell)
        allowed = np.where(few & (whole != 0), np.nan, whole)
        secret, closed = protected(shown, np.array(rows), allowed, float(n), min_cell)
        if one.levels:
            for _ in range(2):  # what is hidden then may be known as well
                guessed = self._guessed(j, large, np.vstack([shown, whole]))
                now = np.where(np.vstack([secret, closed]), np.nan, np.vstack([shown, allowed]))
                now[guessed, 0] = [self._guess(large, i) for i in np.flatnonzero(guessed).tolist()]
                known = np.zeros(now.shape, bool)
                known[guessed, 0] = True
                sums = np.append(np.array(rows), n)
                if Audit(now, sums, min_cell).fit is None:  # a guess is wrong
                    break
                more, over = protected(now[:-1], sums[:-1], now[-1], float(n), min_cell, known)
                secret, closed = secret | more, closed | over
        parts = [_with(s, c, h) for s, c, h in zip(large, shown, secret, strict=True)]
        first = _with(replace(one, rows=n), np.where(closed, np.nan, whole), closed)
        if not one.levels and not np.isnan(whole[1]):
            first = self._numbers(j, first, sites, int(whole[1]), min_cell, rounding)
        return [first, *parts]

    def _guess(self, large: Sequence[Summary], i: int) -> float:
        """Return the commonest count of missing values of row i, the last for all sites, or NaN."""
        found = self.common.get(large[i].site if i < len(large) else None)
        return float("nan") if found is None else float(found)

    def _guessed(self, j: int, large: Sequence[Summary], true: Array) -> Array:
        """Return at which rows (r + 1,) others may guess the count of missing values.

        true : (r + 1, k), NaN if the coordinator does not know it. A site that hides a cell as a
        partner of another is assumed to have the commonest count; one that hides its own is not.
        """
        out = np.zeros(len(true), bool)
        for i in range(len(true)):
            site = large[i].site if i < len(large) else None
            own = site in self.agreed.sites and self.agreed.own[self.agreed.sites.index(site), j, 0]
            guess = self._guess(large, i)
            partner = np.isnan(true[i, 0]) and site in self.agreed.sites and not own
            out[i] = not np.isnan(guess) and (partner or true[i, 0] == guess)
        return out

    @property
    def _shut(self) -> set[str]:
        a = self.agreed
        return {s for s, own in zip(a.sites, a.closed, strict=True) if own.all()}

    def _numbers(
        self, j: int, one: Summary, sites: Sequence[Summary], known: int, m: int, rounding: bool
    ) -> Summary:
        """Return the summary of a number over all sites with moments and quartiles."""
        seen = [s for s in sites if s.mean is not None and s.site not in self.agreed.small]
        n, s1, s2, s4 = self.held.sums[j].tolist()
        few, others_apart = self.held.apart[j].tolist()
        out = replace(one, mean=None, sd=None)  # quartiles are there where all sites show theirs
        if not seen or self.spread[j] <= 0:
            return out
        parts = np.array([_known(s, m) for s in seen], float)
        if self.agreed.unshown()[j, -1] or (few and others_apart < m) or s2 * s2 < m * s4 or n < m:
            left = n or known - parts.sum()
            if left > LITTLE * known:
                return out
            n = 0.0
        parts *= (known - n) / parts.sum()  # rows of those that show a mean
        means = np.array([s.mean for s in seen], float)
        mine = _joined(parts, means, np.array([s.sd for s in seen], float))
        c, s = float(self.centre[j]), float(self.spread[j])
        rest = (0.0, c, s)
        if n:
            rest = n, c + s * s1 / n, s * math.sqrt(max(s2 - s1 * s1 / n, 0.0) / max(n - 1, 1))
        total, mean, sd = _joined(*np.array([mine, rest]).T)
        by = step(sd, int(total), 0.0) if rounding else 0.0
        out = replace(out, mean=rounded(mean, by), sd=rounded(sd, by))
        full = [x for x in seen if x.quartiles is not None]
        if not full:
            return out
        given = [
            i for i, _ in enumerate(self.shares) if all(x.quantiles[i] is not None for x in full)
        ]
        asked = [*QUARTILES, *(self.shares[i] for i in given)]
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
        known_at = dict(zip(given, further, strict=True))
        quantiles = tuple(known_at.get(i) for i in range(len(self.shares)))
        return replace(out, quartiles=(q1, median, q3), quantiles=quantiles)


def _cells(s: Summary) -> list[float]:
    """Return a site's shown counts of missing and known values, NaN if hidden."""
    if s.levels:
        return [float("nan") if c is None else float(c) for c in (s.missing, *s.counts)]
    if s.missing is None or s.rows is None:
        return [float("nan")] * 2
    return [float(s.missing), float(s.rows - s.missing)]


def _with(s: Summary, cells: Array, secret: Array) -> Summary:
    counts = [None if h or np.isnan(c) else int(c) for c, h in zip(cells, secret, strict=True)]
    if not s.levels:
        return replace(s, missing=None if None in counts else counts[0])
    return replace(s, missing=counts[0], counts=tuple(counts[1:]))


def _known(s: Summary, min_cell: int) -> float:
    """Return the approximate number of a site's known values."""
    return max((s.rows or 0) - (min_cell / 2 if s.missing is None else s.missing), 1.0)


def _joined(n: Array, mean: Array, sd: Array) -> tuple[float, float, float]:
    """Return number of values, mean and standard deviation of groups taken together."""
    total = float(n.sum())
    middle = float(n @ mean / total)
    inside = np.maximum(n - 1, 0) @ sd**2 + n @ (mean - middle) ** 2
    return total, middle, math.sqrt(float(inside) / max(total - 1, 1.0))
