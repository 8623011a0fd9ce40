"""Table 1 over sites: every variable described at each site and over all, small counts hidden.

Each site describes its own rows and hides small counts before anything leaves. `disclosure` has the
rules for the counts of a variable, which add up to the site's rows: those of its levels and of
missing values (for a number: known and missing ones). `shown_number` has the rules for mean,
standard deviation and quartiles. A level that all rows of a site have is shown.

The column of all sites has priority: see `pooled` for how it is made, and `agreed` for what sites
hide so that it can be shown.

A site answers only for the first set of sites and partners, and only over this table: the
difference to a sum over another set of sites would reveal what one site hides (`protocol.once`).

Revealed: `CellStates` and `SiteTable`, each site's own, once, `Hidden` as a sum, and
`SiteQuantiles` if further quantiles are requested. The rules protect one table. They do not protect
against tables of other rows of the same patients, such as a later export, or the sums of a method's
training rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcohort import mapped
from fedcohort.arrays import Array
from fedcohort.data.describe.agreed import (
    NO_MARKS,
    NO_MORE,
    Agreed,
    closed_at,
    secret,
    tell_cells,
)
from fedcohort.data.describe.pooled import Pooled, sum_hidden
from fedcohort.data.describe.shown_number import HIDDEN, ShownNumber, shown_number
from fedcohort.data.describe.summary import Summary, count_of, over_all
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import Encoded, Encoding
from fedcohort.data.outcome import Outcome, columns_of
from fedcohort.data.variable import Variable
from fedcohort.protocol.errors import SiteUnavailable
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered


@message
class SiteTable:
    """One site's description of c numbers and k categories; hidden counts are `HIDDEN`.

    ``rows`` (); ``missing`` (c + k,), numbers first; ``levels`` (k, most levels), 0 beyond a
    variable's last; ``mean``, ``sd`` (c,) and ``quartiles`` (c, 3), 0 where ``shown`` (c, 2) is
    False: for mean and sd, and for quartiles.
    """

    rows: Array
    missing: Array
    levels: Array
    mean: Array
    sd: Array
    quartiles: Array
    shown: Array


@message
class SiteQuantiles:
    """Further quantiles of c numbers at one site (c, q), and which of them are ``shown``."""

    quantiles: Array
    shown: Array


# beside a site's rows -------------------------------------------------------------------


@gathered(once=("n_levels", "marks", "closed"), blocks="own")
def describe_columns(
    site: Site[Encoded, None],
    *,
    n_levels: Array,
    min_cell: int,
    rounding: bool = True,
    marks: Array = NO_MARKS,
    closed: Array = NO_MORE,
) -> SiteTable:
    """Describe the site's rows, with small counts hidden.

    n_levels : (k,), of each category; marks, closed : see `agreed.Agreed`.
    """
    row = closed_at(site.name, marks, closed)
    numbers, codes = site.data
    columns = (*numbers, *codes)
    rows = n = len(columns[0]) if columns else 0
    if 0 < n < min_cell:
        rows = HIDDEN
    missing = np.full(len(columns), HIDDEN)
    levels = np.zeros((len(codes), max([0, *n_levels.tolist()])), np.int64)
    found = [shown_number(x, min_cell, rounding=rounding) for x in mapped.each(numbers)]
    for j, x in enumerate(mapped.each(numbers)):
        cells = np.array([np.isnan(x).sum(), np.count_nonzero(~np.isnan(x))])
        if secret(cells, row, j, min_cell).any():
            found[j] = replace(found[j], missing=HIDDEN)
        if row is not None and row[j, -1]:
            found[j] = replace(found[j], mean=None, sd=None)
    missing[: len(numbers)] = [f.missing for f in found]
    for j, (column, most) in enumerate(zip(codes, n_levels.tolist(), strict=True)):
        cells = np.bincount(column + 1, minlength=most + 1)
        shown = np.where(secret(cells, row, len(numbers) + j, min_cell), HIDDEN, cells)
        missing[len(numbers) + j] = shown[0]
        levels[j, :most] = shown[1:]
    shown = [(f.mean is not None, f.quartiles is not None) for f in found]
    return SiteTable(
        np.array(rows),
        missing,
        levels,
        np.array([f.mean or 0.0 for f in found], float),
        np.array([f.sd or 0.0 for f in found], float),
        np.array([f.quartiles or (0.0, 0.0, 0.0) for f in found], float).reshape(-1, 3),
        np.array(shown, bool).reshape(-1, 2),
    )


@gathered(blocks="own")
def describe_quantiles(
    site: Site[Encoded, None], *, shares: Array, min_cell: int, rounding: bool
) -> SiteQuantiles:
    """Describe the site's numbers by further quantiles, each over several patients.

    shares : (q,).
    """
    probabilities: list[float] = shares.tolist()
    found = [
        ShownNumber.of(x, min_cell, shares=probabilities, rounding=rounding).quantiles
        for x in mapped.each(site.data.numbers)
    ]
    values = np.array([[q or 0.0 for q in row] for row in found], float)
    shown = np.array([[q is not None for q in row] for row in found], bool)
    shape = len(found), len(probabilities)
    return SiteQuantiles(values.reshape(shape), shown.reshape(shape))


#: Note if the column of all sites lacks what they hide.
UNSUMMED = (
    "The column of all hospitals is made of what they show, and lacks what one of them hides: with "
    "fewer than three hospitals, or sums that are not masked, whoever runs the study would see it."
)
#: Every step of a study's Table 1.
STEPS = (tell_cells, describe_columns, sum_hidden)


# at the coordinator ---------------------------------------------------------------------


def variables_of(dictionary: Dictionary, outcome: Outcome | None) -> tuple[Variable, ...]:
    """Return the variables to describe: the outcome's columns, then all features, in order."""
    known = dictionary.variables
    names = columns_of(outcome)
    usual = "binary" if outcome is not None and outcome.has_classes else "number"
    columns = [known.get(name, Variable(name, usual)) for name in names]
    types = {} if outcome is None else {name: outcome.type_of(name) for name in names}
    columns = [replace(v, type=t, levels=()) if (t := types[v.name]) else v for v in columns]
    return (*columns, *dictionary.features(outcome))


class Reading:
    """How sites read variables: numbers as numbers, variables with levels or two values as codes.

    Attributes
    ----------
    variables : in order.
    levels : by name; "0" and "1" of a binary variable, none of a number.
    view : through which sites read their tables.
    n_levels : (k,), of each coded variable.
    place : position of each variable among the numbers, then the codes.
    """

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.variables = tuple(variables)
        self.levels = {v.name: v.levels for v in variables}
        self.levels |= {
            v.name: ("0", "1") for v in variables if v.type in ("binary", "event") and not v.levels
        }
        read = [
            replace(v, type="category", levels=self.levels[v.name]) if self.levels[v.name] else v
            for v in variables
        ]
        self.view = Encoding(tuple(read))
        self.n_levels = np.array([len(v.levels) for v in self.view.coded], np.int64)
        found = (*self.view.numeric, *self.view.coded)
        self.place = {v.name: j for j, v in enumerate(found)}


@dataclass(frozen=True)
class TableOne:
    """Summaries of variables, and what sites hide beyond their own rules.

    Attributes
    ----------
    summaries : of each variable in order: over all sites first, then of each shown site.
    agreed : which site hides which cell; None if only their own rules apply.
    note : why the column of all sites lacks what sites hide; "" if it does not.
    """

    summaries: list[Summary]
    agreed: Agreed | None = None
    note: str = ""

    @property
    def asked(self) -> dict[str, Array]:
        """Arguments for steps that show another table of the same rows."""
        return {} if self.agreed is None else self.agreed.asked


def describe(
    fed: Federation,
    variables: Sequence[Variable],
    *,
    min_cell: int = 5,
    shares: Sequence[float] = (),
    rounding: bool = True,
) -> TableOne:
    """Describe variables at each site and over all sites; sites hold data frames.

    Parameters
    ----------
    variables : such as those of `variables_of`.
    min_cell : m of the header; 1 hides nothing.
    shares : (q,) of quantiles besides the quartiles, each between 0 and 1.
    rounding : False, for a `min_cell` of 1 only, gives exact numbers at each site.

    Raises
    ------
    DataError : a site's table does not match the dictionary.
    SiteUnavailable : a site left between two calls.
    """
    reading = Reading(variables)
    inside, n = fed.through(reading.view), reading.n_levels
    agreed, states = None, {}
    if min_cell > 1 and variables and inside.hides:
        states = inside.gather(tell_cells, n_levels=n, min_cell=min_cell)
        if len(states) < len(inside.sites):
            inside = inside.only(tuple(states))
    if states and inside.hides:
        agreed = Agreed.of(states, min_cell)
        tables = inside.gather(
            describe_columns, n_levels=n, min_cell=min_cell, rounding=rounding, **agreed.asked
        )
    elif rounding:
        tables = inside.gather(describe_columns, n_levels=n, min_cell=min_cell)
    else:
        tables = inside.gather(describe_columns, n_levels=n, min_cell=min_cell, rounding=False)
    more: dict[str, SiteQuantiles] = {}
    if shares:
        at = np.array(shares, float)
        more = inside.gather(describe_quantiles, shares=at, min_cell=min_cell, rounding=rounding)
    every = {v.name: _of_sites(v, reading, tables, more) for v in variables}
    wholes = {
        name: over_all(sites, min_cell, shares=shares, rounding=rounding)
        for name, sites in every.items()
    }
    if agreed is None:
        note = UNSUMMED if min_cell > 1 and len(tables) > 1 else ""
        return TableOne([s for name in every for s in (wholes[name], *every[name])], note=note)
    if set(tables) != set(states):
        raise SiteUnavailable(f"{', '.join(sorted(set(states) - set(tables)))} left meanwhile.")
    centre, spread = _scales(reading, every, min_cell)
    held = inside.awaiting().sum(
        sum_hidden, n_levels=n, min_cell=min_cell, centre=centre, spread=spread, **agreed.summed
    )  # fmt: skip
    if len(inside.answered) != len(states):
        raise SiteUnavailable("a site left while Table 1 was made; start again without it.")
    common = _commonest([*wholes.values(), *(s for sites in every.values() for s in sites)])
    pooled = Pooled(agreed, held, centre, spread, shares, common)
    out: list[Summary] = []
    for name, sites in every.items():
        j = reading.place[name]
        out += pooled.over(j, sites, min_cell, rounding=rounding, one=wholes[name])
    return TableOne(out, agreed)


def by_site(
    fed: Federation,
    variables: Sequence[Variable],
    *,
    min_cell: int = 5,
    asked: Mapping[str, Array] | None = None,
) -> list[Summary]:
    """Return the summaries of variables at each site, sorted by site.

    Parameters
    ----------
    asked : from Table 1 of the same rows (`TableOne.asked`); None applies the sites' own rules.
    """
    reading = Reading(variables)
    n = reading.n_levels
    tables = fed.through(reading.view).gather(
        describe_columns, n_levels=n, min_cell=min_cell, rounding=True, **(asked or {})
    )
    return [s for v in variables for s in _of_sites(v, reading, tables, {})]


def _of_sites(
    v: Variable,
    reading: Reading,
    tables: Mapping[str, SiteTable],
    more: Mapping[str, SiteQuantiles],
) -> list[Summary]:
    j, levels, c = reading.place[v.name], reading.levels[v.name], len(reading.view.numeric)
    sites = [_summary(v, levels, name, tables[name], j, c) for name in sorted(tables)]
    if more and not levels:
        return [replace(s, quantiles=_known(more[s.site or ""], j)) for s in sites]
    return sites


def _commonest(found: Sequence[Summary]) -> dict[str | None, int]:
    """Return the commonest shown count of missing values, by site."""
    seen: dict[str | None, Counter[int]] = {}
    for s in found:
        if s.missing is not None:
            seen.setdefault(s.site, Counter())[s.missing] += 1
    return {site: counts.most_common(1)[0][0] for site, counts in seen.items()}


def _scales(
    reading: Reading, every: Mapping[str, Sequence[Summary]], min_cell: int
) -> tuple[Array, Array]:
    """Return centre and spread (c,) of numbers, from the sites that show both; spread 0 if none."""
    found: list[tuple[float, float]] = []
    for v in reading.view.numeric:
        seen = [
            replace(s, quartiles=None, quantiles=()) for s in every[v.name] if s.mean is not None
        ]
        whole = over_all(seen, min_cell) if seen else None
        found.append((0.0, 0.0) if whole is None else (whole.mean or 0.0, whole.sd or 0.0))
    both = np.array(found, float).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _known(found: SiteQuantiles, j: int) -> tuple[float | None, ...]:
    pairs = zip(found.quantiles[j].tolist(), found.shown[j].tolist(), strict=True)
    return tuple(q if there else None for q, there in pairs)


def _summary(
    variable: Variable, levels: tuple[str, ...], site: str, t: SiteTable, j: int, n_numbers: int
) -> Summary:
    one = Summary(variable, levels, site, count_of(t.rows), count_of(t.missing[j]))
    if levels:
        counts = t.levels[j - n_numbers, : len(levels)]
        return replace(one, counts=tuple(count_of(c) for c in counts))
    moments, quartiles = t.shown[j].tolist()
    q1, median, q3 = t.quartiles[j].tolist()
    return replace(
        one,
        mean=float(t.mean[j]) if moments else None,
        sd=float(t.sd[j]) if moments else None,
        quartiles=(q1, median, q3) if quartiles else None,
    )
