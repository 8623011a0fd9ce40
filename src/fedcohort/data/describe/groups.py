"""Table 1 by group over sites: every variable described in each group of a column's levels.

Each site divides its rows by the levels of one column and hides small counts before
anything leaves: counts of levels and of missing values by `privacy.disclosure.groups`, means,
standard deviations and quantiles of each group by `shown_number`. The mean of a hidden group
follows from the mean of all rows and of the other groups. So further means are hidden, those of
the fewest known values first,

    until no group lacks a mean, or two or more do, with m or more known values together      (1)

Rows without a group count as a group. A site's reply depends on its own rows alone, so
that asking some of the sites, or asking again, reveals nothing new.

Groups over all sites are computed from the sites that show the number of rows of each group; a
site with a small group would hide the groups of all.

Revealed: `GroupTables`, each site's own, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedcohort import mapped
from fedcohort.arrays import Array
from fedcohort.data.describe.agreed import NO_MARKS, NO_MORE, closed_at, secret
from fedcohort.data.describe.shown_number import HIDDEN, ShownNumber
from fedcohort.data.describe.summary import Summary, count_of, over_all
from fedcohort.data.describe.table import Reading, TableOne
from fedcohort.data.encode import Encoded
from fedcohort.privacy.disclosure.groups import hidden_levels
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered


@message
class GroupTables:
    """One site's description of g groups; hidden counts are `HIDDEN`.

    ``rows`` (g,); ``missing`` (c + k, g), numbers first; ``levels`` (k, most levels, g);
    ``numbers`` (c, 5 + q, g): mean, sd, quartiles and q further quantiles, 0 where ``shown``, of
    the same shape, is False.
    """

    rows: Array
    missing: Array
    levels: Array
    numbers: Array
    shown: Array


@gathered(once=("n_levels", "marks", "closed"), blocks="own")
def describe_by_group(
    site: Site[Encoded, None],
    *,
    by: int,
    n_levels: Array,
    shares: Array,
    min_cell: int,
    rounding: bool,
    marks: Array = NO_MARKS,
    closed: Array = NO_MORE,
) -> GroupTables:
    """Describe the site's rows in each group, with small counts hidden.

    by : position of the grouping column among the codes.
    n_levels (k,), of each code; shares (q,) of quantiles.
    marks, closed : cells that sites hide in Table 1 so that the column of all sites can be shown.
    """
    row = closed_at(site.name, marks, closed)
    numbers, codes = site.data
    g, most = int(n_levels[by]), int(n_levels.max())
    probabilities: list[float] = shares.tolist()
    group = np.where(codes[by] < 0, g, codes[by])
    rows = np.bincount(group, minlength=g + 1)
    tables = [
        _crossed(np.isnan(x).astype(np.int64), group, 2, g)[::-1] for x in mapped.each(numbers)
    ]
    tables += [_crossed(c + 1, group, n + 1, g) for c, n in zip(codes, n_levels, strict=True)]
    missing = np.full((len(tables), g), HIDDEN)
    levels = np.zeros((len(codes), most, g), np.int64)
    found = np.zeros((len(numbers), 5 + len(probabilities), g + 1))
    shown = np.zeros(found.shape, bool)
    small = row is not None and bool(row.all())
    whole = np.bincount(codes[by] + 1, minlength=g + 1)
    also = np.roll(secret(whole, row, len(numbers) + by, min_cell), -1)
    gone = hidden_levels(rows[None, :], min_cell, None, also)[1] | small
    for j, table in enumerate(tables):
        more = secret(table.sum(axis=1), row, j, min_cell)
        # cells of a number: known values, then missing ones; both are hidden, or none
        lines, shut = hidden_levels(table, min_cell, more, also)
        shut = shut | small
        counts = np.where(lines[:, None] | shut, HIDDEN, table)[:, :g]
        missing[j] = counts[0]
        if j >= len(numbers):
            levels[j - len(numbers), : len(table) - 1] = counts[1:]
            continue
        for i in np.flatnonzero(~shut).tolist():
            one = ShownNumber.of(
                numbers[j][group == i],
                min_cell,
                shares=probabilities,
                rounding=rounding,
                secret=bool(lines.any()),
            )
            values = (one.mean, one.sd, *(one.quartiles or (None,) * 3), *one.quantiles)
            shown[j, :, i] = [v is not None for v in values]
            found[j, :, i] = [v or 0.0 for v in values]
        if row is not None and row[j, -1]:
            shown[j, :2] = False
        shown[j, :2] &= ~_left_over(table[1], ~shown[j, 0], min_cell)
    found[~shown] = 0.0
    return GroupTables(
        np.where(gone, HIDDEN, rows)[:g], missing, levels, found[..., :g], shown[..., :g]
    )


def _crossed(code: Array, group: Array, n_levels: int, g: int) -> Array:
    """Return the rows of each level in each group, (n_levels, g + 1); rows without group last."""
    cells = np.bincount(code * (g + 1) + group, minlength=n_levels * (g + 1))
    return cells.reshape(n_levels, g + 1)


def _left_over(known: Array, without: Array, min_cell: int) -> Array:
    """Return which groups (g,) have no mean to be shown, eq. (1).

    known : (g,) known values.
    without : (g,) groups without a mean by themselves.
    """
    out = without.copy()
    if min_cell <= 1:
        return out
    for i in np.argsort(known, kind="stable").tolist():
        few = out & (known > 0)
        if not few.any() or (few.sum() > 1 and known[few].sum() >= min_cell):
            break
        out[i] |= known[i] > 0
    return out


def describe_groups(
    fed: Federation,
    reading: Reading,
    by: str,
    *,
    min_cell: int = 5,
    shares: Sequence[float] = (),
    rounding: bool = True,
    one: TableOne | None = None,
) -> tuple[list[Summary], tuple[str, ...]]:
    """Describe variables in the groups of one of them, at each site and over sites.

    Parameters
    ----------
    fed : sites that hold data frames.
    by : a variable of `reading` with levels.
    shares, rounding : as for `describe`.
    one : Table 1; levels that it hides are hidden in all groups.

    Returns
    -------
    summaries : of each variable but `by`, of each group: over sites first, then of each by name.
        Over sites, a group without rows in the sum is hidden if sites are left out.
    left_out : sites that hide the number of rows of a group, and are in no sum over sites.
    """
    replies = fed.through(reading.view).gather(
        describe_by_group,
        by=reading.place[by] - len(reading.view.numeric),
        n_levels=reading.n_levels,
        shares=np.array(shares, float),
        min_cell=min_cell,
        rounding=rounding,
        **({} if one is None else one.asked),
    )
    known = {(s.variable.name, s.site): s for s in (one.summaries if one else ())}
    shut = {s: _shut(known.get((by, s)), one, len(reading.levels[by])) for s in replies}
    left_out = tuple(
        s for s in sorted(replies) if (replies[s].rows == HIDDEN).any() or any(shut[s])
    )
    out: list[Summary] = []
    for v in (v for v in reading.variables if v.name != by):
        for i, group in enumerate(reading.levels[by]):
            sites = [_summary(reading, v.name, s, group, i, replies[s]) for s in sorted(replies)]
            if one is not None:
                sites = [
                    _as_in_table_one(s, known.get((v.name, s.site)), shut[s.site or ""][i])
                    for s in sites
                ]
            open_ = [s for s in sites if s.site not in left_out]
            if open_ and (not left_out or any(s.rows for s in open_)):
                out.append(over_all(open_, min_cell, shares=shares, rounding=rounding))
            else:
                secret = (None,) * len(sites[0].counts), (None,) * len(sites[0].quantiles)
                first = Summary(v, sites[0].levels, None, None, None, group=group)
                out.append(replace(first, counts=secret[0], quantiles=secret[1]))
            out += sites
    return out, left_out


def _shut(shown: Summary | None, one: TableOne | None, levels: int) -> list[bool]:
    """Return which groups (levels,) of a site Table 1 hides; all of a site that is not in it."""
    if one is None:
        return [False] * levels
    return [True] * levels if shown is None else [n is None for n in shown.counts]


def _as_in_table_one(s: Summary, shown: Summary | None, shut: bool) -> Summary:
    """Return a group's summary without the levels that Table 1 hides."""
    if shown is None or shut:
        blank = Summary(s.variable, s.levels, s.site, None, None, group=s.group)
        secret = (None,) * len(s.counts)
        return replace(blank, counts=secret, quantiles=(None,) * len(s.quantiles))
    pairs = zip(s.counts, shown.counts, strict=True)
    return replace(
        s,
        missing=None if shown.missing is None else s.missing,
        counts=tuple(None if b is None else a for a, b in pairs),
    )


def _summary(reading: Reading, name: str, site: str, group: str, i: int, t: GroupTables) -> Summary:
    j, levels, c = reading.place[name], reading.levels[name], len(reading.view.numeric)
    variable = next(v for v in reading.variables if v.name == name)
    one = Summary(
        variable, levels, site, count_of(t.rows[i]), count_of(t.missing[j, i]), group=group
    )
    if levels:
        return replace(one, counts=tuple(map(count_of, t.levels[j - c, : len(levels), i])))
    there: list[bool] = t.shown[j, :, i].tolist()
    found: list[float] = t.numbers[j, :, i].tolist()
    mean, sd, q1, median, q3, *more = found
    return replace(
        one,
        mean=mean if there[0] else None,
        sd=sd if there[1] else None,
        quartiles=(q1, median, q3) if there[2] else None,
        quantiles=tuple(q if ok else None for q, ok in zip(more, there[5:], strict=True)),
    )
