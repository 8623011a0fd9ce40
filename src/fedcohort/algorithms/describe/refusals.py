"""Hidden numbers, with the rule in words.

A reason names the rule, but not its case if that would tell a small count.

Revealed: nothing more than sites show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedcohort.data.describe.pairs import ALONE, CLOSED, FEW, FLAT, RARE, Correlation
from fedcohort.data.describe.summary import Summary
from fedcohort.protocol import Row


def of_sites(left_out: Iterable[str], by: str, min_cell: int) -> list[Row]:
    """Return the sites that are not in the groups over all sites."""
    rule = (
        f"the site hides how many rows a group has: 1 to {min_cell - 1}, one of the next larger, "
        f"or one that would tell another site's; groups are summed over the other sites"
    )
    return [_row(by, site, None, "groups over all sites", rule) for site in left_out]


def of_summaries(summaries: Iterable[Summary], min_cell: int, note: str) -> list[Row]:
    """Return the hidden numbers of Table 1.

    Parameters
    ----------
    note : of `data.describe.TableOne`.
    """
    return [
        _row(s.variable.name, s.site, s.group, what, rule)
        for s in summaries
        for what, rule in (_over_sites(s, note) if s.site is None else _at_site(s, min_cell))
    ]


def of_bars(without: Iterable[str], min_cell: int) -> list[Row]:
    """Return the numbers without a histogram."""
    rule = (
        f"over all sites, neither quartiles nor mean and sd are shown, all values are the same, or "
        f"no site knows {2 * min_cell} values"
    )
    return [_row(name, None, None, "histogram", rule) for name in without]


def of_pairs(found: Correlation | None, min_cell: int) -> list[Row]:
    """Return the pairs without a correlation."""
    m = min_cell
    rules = {
        ALONE: "mean and sd of one of the two are not shown over all sites, or it is constant",
        CLOSED: f"both have two values, and their table has a count of 1 to {m - 1} at a site, "
        f"missing values counted: the correlation would tell it",
        FEW: f"fewer than {m} rows know both",
        RARE: f"a value of one of the two has fewer than {m} of the rows that know both",
        FLAT: "one of the two is the same in all rows that know both",
    }
    pairs = {} if found is None else found.refused
    return [_row(f"{a} × {b}", None, None, "correlation", rules[w]) for (a, b), w in pairs.items()]


LOUD = "noise is more than half of its standard deviation; a larger epsilon shows it"


def of_noise(
    summaries: Iterable[Summary],
    drowned: Iterable[str],
    loud: Iterable[tuple[str, str]],
    min_cell: int,
) -> list[Row]:
    """Return the hidden numbers of a private Table 1.

    Parameters
    ----------
    drowned, loud : see `noisy.Shown`.
    """
    m, few, noisy = min_cell, set(drowned), set(loud)
    small = f"a noisy count of 1 to {m - 1}, or one of the next larger"
    out: list[Row] = []
    for s in summaries:
        name = s.variable.name
        number = "so few known values that noise would drown it"
        if name not in few:
            number = f"fewer than {2 * m} known values; of quartiles, {4 * m}"
        numbers = ("mean and sd", "quartiles")
        rules = {what: LOUD if (name, what) in noisy else number for what in numbers}
        out += [_row(name, None, None, what, rules.get(what, small)) for what, g in _parts(s) if g]
        if name in few:
            out.append(_row(name, None, None, "histogram", number))
    return out


def _row(variable: str, site: str | None, group: str | None, what: str, rule: str) -> Row:
    return {"variable": variable, "site": site, "group": group, "what": what, "rule": rule}


def _over_sites(s: Summary, note: str) -> list[tuple[str, str]]:
    """Return what is hidden over all sites, with the rule."""
    rule = note or (
        "over all sites, a count of few patients, what taking the shown sites off would tell, and "
        "numbers that few make or no site shows"
    )
    return [(what, rule) for what, gone in _parts(s) if gone]


def _parts(s: Summary) -> Sequence[tuple[str, bool]]:
    """Return the parts of a summary, and whether each is hidden."""
    number = not s.levels and not _empty(s)
    return (
        ("rows", s.rows is None),
        ("missing values", s.missing is None),
        ("counts of levels", None in s.counts),
        ("mean and sd", number and s.mean is None),
        ("quartiles", number and s.quartiles is None),
        ("quantiles", number and None in s.quantiles),
    )


def _empty(s: Summary) -> bool:
    return s.rows is not None and s.rows == s.missing


def _at_site(s: Summary, m: int) -> list[tuple[str, str]]:
    """Return what is hidden at a site, with the rules."""
    if s.rows is None:
        rule = f"the site has fewer than {m} rows"
        if s.group is not None:
            rule = f"the site has fewer than {m} rows in a group, or this is one of the next larger"
        return [("all", rule)]
    where = "in some group; such levels are hidden in all" if s.group is not None else "of a level"
    counts = (
        f"a count of 1 to {m - 1} {where}, or one of the next larger, hidden so that subtracting "
        f"does not tell it"
    )
    known = None if s.missing is None else s.rows - s.missing
    few = f"fewer than {2 * m} known values"
    if known is None or known >= 2 * m:
        few += f", of fewer than {m} different from the rest, or {m - 1} or fewer make the spread"
        few += "; or what would be left over for a group that is so" if s.group is not None else ""
    if known is None or s.mean is not None:
        fourfold = f"fewer than {4 * m} known values"
    else:
        fourfold = few if known >= 4 * m else f"fewer than {4 * m} known values"
    rules = {
        "missing values": counts,
        "counts of levels": counts,
        "mean and sd": few,
        "quartiles": fourfold,
        "quantiles": f"fewer than {m} known values on one side, or no quartiles",
    }
    return [(what, rules[what]) for what, gone in _parts(s) if gone]
