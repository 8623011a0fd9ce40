"""Table 1 over sites: every variable described by each site and over all, small counts hidden.

Each site describes its own rows and hides what is of few patients before anything leaves, by the
rules of `disclosure` for counts: for each variable those of its levels and of missing values (of a
number: of known and missing ones), which add up to the site's rows; and by those of `shown_number`
for mean, standard deviation and quartiles. A level that everyone at a site has is shown.

The column of all sites is computed from what the sites show (`summary`), and tells nothing more.

Revealed: `SiteTable`, each site's own, once, and `SiteQuantiles` where further quantiles are asked
for. It is one table: against tables of other rows of the same patients (a later export, the sums of
a method's training rows) these rules do not protect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import Encoded, Encoding
from fedcohort.data.outcome import Binary, Category, Outcome, Survival
from fedcohort.data.shown_number import HIDDEN, ShownNumber
from fedcohort.data.summary import Summary, count_of, over_all
from fedcohort.data.variable import Variable
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered

#: What sites are called that are shown, or take part, together.
OTHERS = "other hospitals"

__all__ = ["OTHERS", "STEPS", "Summary", "describe", "describe_columns", "variables_of"]


@message
class SiteTable:
    """One site's description of c numbers and k categories; counts are `HIDDEN` where not shown.

    ``rows`` (); ``missing`` (c + k,), numbers first; ``levels`` (k, most levels), 0 beyond a
    variable's last; ``mean``, ``sd`` (c,) and ``quartiles`` (c, 3), 0 where ``shown`` (c, 2) says
    that they are not: of mean and sd, and of quartiles.
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


@gathered
def describe_columns(
    site: Site[Encoded, None], *, n_levels: Array, min_cell: int, rounding: bool = True
) -> SiteTable:
    """Describe the site's rows, with counts of few patients hidden.

    n_levels : (k,), of each category.
    """
    numbers, codes = site.data
    columns = (*numbers, *codes)
    n = len(columns[0]) if columns else 0
    if 0 < n < min_cell:
        n = HIDDEN
    missing = np.full(len(columns), HIDDEN)
    levels = np.zeros((len(codes), max([0, *n_levels.tolist()])), np.int64)
    found = [ShownNumber.of(x, min_cell, rounding=rounding) for x in numbers]
    missing[: len(numbers)] = [f.missing for f in found]
    for j, (column, most) in enumerate(zip(codes, n_levels.tolist(), strict=True)):
        cells = np.bincount(column + 1, minlength=most + 1)
        shown = np.where(hidden(cells, min_cell), HIDDEN, cells)
        missing[len(numbers) + j] = shown[0]
        levels[j, :most] = shown[1:]
    shown = [(f.mean is not None, f.quartiles is not None) for f in found]
    return SiteTable(
        np.array(n),
        missing,
        levels,
        np.array([f.mean or 0.0 for f in found], float),
        np.array([f.sd or 0.0 for f in found], float),
        np.array([f.quartiles or (0.0, 0.0, 0.0) for f in found], float).reshape(-1, 3),
        np.array(shown, bool).reshape(-1, 2),
    )


@gathered
def describe_quantiles(
    site: Site[Encoded, None], *, shares: Array, min_cell: int, rounding: bool
) -> SiteQuantiles:
    """Describe the site's numbers by further quantiles, each of several patients.

    shares : (q,).
    """
    probabilities: list[float] = shares.tolist()
    found = [
        ShownNumber.of(x, min_cell, shares=probabilities, rounding=rounding).quantiles
        for x in site.data.numbers
    ]
    values = np.array([[q or 0.0 for q in row] for row in found], float)
    shown = np.array([[q is not None for q in row] for row in found], bool)
    shape = len(found), len(probabilities)
    return SiteQuantiles(values.reshape(shape), shown.reshape(shape))


#: Every step of a study's Table 1.
STEPS = (describe_columns,)


# at the coordinator ---------------------------------------------------------------------


def variables_of(dictionary: Dictionary, outcome: Outcome | None) -> tuple[Variable, ...]:
    """Return what is described: the outcome's columns, then all features, in order."""
    known = dictionary.variables
    names = () if outcome is None else outcome.columns
    types = dict.fromkeys(names, "number")
    if isinstance(outcome, Survival):
        types |= {outcome.time: "time", outcome.event: "event"}
    elif isinstance(outcome, (Binary, Category)):
        types = dict.fromkeys(names, "binary")
    columns = [known.get(name, Variable(name, types[name])) for name in names]
    if isinstance(outcome, Survival):
        columns = [replace(v, type=types[v.name], levels=()) for v in columns]
    return (*columns, *dictionary.features(outcome))


class Reading:
    """How sites read variables: numbers as numbers, what has two values or levels as codes.

    Attributes
    ----------
    variables : in order.
    levels : by name; "0" and "1" of a binary variable, none of a number.
    view : what sites look through.
    n_levels : (k,), of each coded variable.
    place : of each variable among the numbers, then the codes.
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


def describe(
    fed: Federation,
    variables: Sequence[Variable],
    *,
    min_cell: int = 5,
    shares: Sequence[float] = (),
    rounding: bool = True,
) -> list[Summary]:
    """Describe variables over all sites, and at each; sites hold data frames.

    Parameters
    ----------
    variables : such as `variables_of` gives.
    min_cell : m of the header; 1 hides nothing.
    shares : (q,) of quantiles besides the quartiles, each between 0 and 1.
    rounding : False, for a `min_cell` of 1 only, gives exact numbers at each site.

    Returns
    -------
    summaries : of each variable in order, over all sites first, then of each site by name.

    Raises
    ------
    DataError : a site's table does not hold what the dictionary says.
    """
    reading = Reading(variables)
    inside, c = fed.through(reading.view), len(reading.view.numeric)
    n = reading.n_levels
    if rounding:
        tables = inside.gather(describe_columns, n_levels=n, min_cell=min_cell)
    else:
        tables = inside.gather(describe_columns, n_levels=n, min_cell=min_cell, rounding=False)
    more: dict[str, SiteQuantiles] = {}
    if shares:
        at = np.array(shares, float)
        more = inside.gather(describe_quantiles, shares=at, min_cell=min_cell, rounding=rounding)
    out: list[Summary] = []
    for v in variables:
        j, levels = reading.place[v.name], reading.levels[v.name]
        sites = [_summary(v, levels, name, tables[name], j, c) for name in sorted(tables)]
        if shares and not levels:
            sites = [replace(s, quantiles=_known(more[s.site or ""], j)) for s in sites]
        out += [over_all(sites, min_cell, shares=shares, rounding=rounding), *sites]
    return out


def _known(found: SiteQuantiles, j: int) -> tuple[float | None, ...]:
    """Return the further quantiles of number j."""
    pairs = zip(found.quantiles[j].tolist(), found.shown[j].tolist(), strict=True)
    return tuple(q if there else None for q, there in pairs)


def _summary(
    variable: Variable, levels: tuple[str, ...], site: str, t: SiteTable, j: int, n_numbers: int
) -> Summary:
    """Return one variable at one site from the site's reply; j is its place there."""
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
