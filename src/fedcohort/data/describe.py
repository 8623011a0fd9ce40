"""Table 1 over sites: every variable described by each site and over all, small counts hidden.

Each site describes its own rows and hides what is of few patients before anything leaves, by the
rules of `suppression` for counts: for each variable those of its levels and of missing values (of a
number: of known and missing ones), which add up to the site's rows; and by those of `shown_number`
for mean, standard deviation and quartiles. A level that everyone at a site has is shown.

The column of all sites is computed from what the sites show, each statistic where all of them do,
and is hidden otherwise: so it tells nothing more, and taking sites off it recovers nothing. A mean
weighs each site by its known values (by n − m/2 where they are hidden). A quartile is that of the
mixture of the sites, each a normal distribution whose halves are stretched to its quartiles:

    F(x) = Σ_s w_s Φ(z₇₅ (x − q₂)/(q₂ − q₁)),   q₃ − q₂ in place of q₂ − q₁ where x > q₂     (1)

Revealed: `SiteTable`, each site's own, once. It is one table: against tables of other rows of the
same patients (a later export, the sums of a method's training rows) these rules do not protect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from fedcohort.arrays import Array
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import Encoded, Encoding
from fedcohort.data.outcome import Binary, Category, Outcome, Survival
from fedcohort.data.shown_number import HIDDEN, QUARTILES, ShownNumber
from fedcohort.data.suppression import hidden, rounded, step
from fedcohort.data.variable import Variable
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, gathered

#: Between its quartiles a normal distribution has so many standard deviations.
NORMAL_IQR = 2 * float(ndtri(QUARTILES[2]))


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


@dataclass(frozen=True)
class Summary:
    """What is shown of one variable at one site, or at all; None stands for what is hidden.

    Attributes
    ----------
    variable : as in the dictionary.
    levels : of a category, or "0" and "1"; none of a number.
    site : None for all sites.
    rows, missing : counts.
    mean, sd, quartiles : of a number, in its unit.
    counts : of `levels`, in order.
    """

    variable: Variable
    levels: tuple[str, ...]
    site: str | None
    rows: int | None
    missing: int | None
    mean: float | None = None
    sd: float | None = None
    quartiles: tuple[float, float, float] | None = None
    counts: tuple[int | None, ...] = ()

    @property
    def n_hidden(self) -> int:
        """How many counts are hidden."""
        return [self.rows, self.missing, *self.counts].count(None)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values."""
        return {
            "name": self.variable.name,
            "type": self.variable.type,
            "unit": self.variable.unit,
            "levels": list(self.levels),
            "site": self.site,
            "n": self.rows,
            "missing": self.missing,
            "mean": self.mean,
            "sd": self.sd,
            "quartiles": None if self.quartiles is None else list(self.quartiles),
            "counts": dict(zip(self.levels, self.counts, strict=True)),
        }


# beside a site's rows -------------------------------------------------------------------


@gathered
def describe_columns(site: Site[Encoded, None], *, n_levels: Array, min_cell: int) -> SiteTable:
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
    found = [ShownNumber.of(x, min_cell) for x in numbers]
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


#: Every step that `describe` asks for.
STEPS = (describe_columns,)


# at the coordinator ---------------------------------------------------------------------


def variables_of(dictionary: Dictionary, outcome: Outcome | None) -> tuple[Variable, ...]:
    """Return what is described: the outcome's columns, then all features, in order."""
    known = dictionary.variables
    names = () if outcome is None else outcome.columns
    types = dict.fromkeys(names, "number")
    if isinstance(outcome, Survival):
        types = {outcome.time: "time", outcome.event: "event"}
    elif isinstance(outcome, (Binary, Category)):
        types = dict.fromkeys(names, "binary")
    columns = [known.get(name, Variable(name, types[name])) for name in names]
    if isinstance(outcome, Survival):
        columns = [replace(v, type=types[v.name], levels=()) for v in columns]
    return (*columns, *dictionary.features(outcome))


def describe(fed: Federation, variables: Sequence[Variable], *, min_cell: int = 5) -> list[Summary]:
    """Describe variables over all sites, and at each; sites hold data frames.

    Parameters
    ----------
    variables : such as `variables_of` gives.
    min_cell : m of the header; 1 hides nothing.

    Returns
    -------
    summaries : of each variable in order, over all sites first, then of each site by name.

    Raises
    ------
    DataError : a site's table does not hold what the dictionary says.
    """
    levels = {v.name: v.levels for v in variables}
    levels |= {
        v.name: ("0", "1") for v in variables if v.type in ("binary", "event") and not v.levels
    }
    read = [
        replace(v, type="category", levels=levels[v.name]) if levels[v.name] else v
        for v in variables
    ]
    view = Encoding(tuple(read))
    n_levels = np.array([len(v.levels) for v in view.coded], np.int64)
    tables = fed.through(view).gather(describe_columns, n_levels=n_levels, min_cell=min_cell)
    place = {v.name: j for j, v in enumerate((*view.numeric, *view.coded))}
    out: list[Summary] = []
    for v in variables:
        sites = [
            _summary(v, levels[v.name], name, tables[name], place[v.name], len(view.numeric))
            for name in sorted(tables)
        ]
        out += [_over_all(sites, min_cell), *sites]
    return out


def _summary(
    variable: Variable, levels: tuple[str, ...], site: str, t: SiteTable, j: int, n_numbers: int
) -> Summary:
    """Return one variable at one site from the site's reply; j is its place there."""
    one = Summary(variable, levels, site, _count(t.rows), _count(t.missing[j]))
    if levels:
        counts = t.levels[j - n_numbers, : len(levels)]
        return replace(one, counts=tuple(_count(c) for c in counts))
    moments, quartiles = t.shown[j].tolist()
    q1, median, q3 = t.quartiles[j].tolist()
    return replace(
        one,
        mean=float(t.mean[j]) if moments else None,
        sd=float(t.sd[j]) if moments else None,
        quartiles=(q1, median, q3) if quartiles else None,
    )


def _count(value: Any) -> int | None:
    return None if value == HIDDEN else int(value)


def _over_all(sites: Sequence[Summary], min_cell: int) -> Summary:
    """Return one variable over all sites, from nothing but what they show."""
    first = sites[0]
    one = Summary(
        first.variable,
        first.levels,
        None,
        _total([s.rows for s in sites]),
        _total([s.missing for s in sites]),
        counts=tuple(_total(column) for column in zip(*(s.counts for s in sites), strict=True)),
    )
    known = [s for s in sites if _weight(s, min_cell) > 0]
    if first.levels or not known:
        return one
    w = np.array([_weight(s, min_cell) for s in known])
    if not any(s.mean is None for s in known):
        means = np.array([s.mean for s in known], float)
        mean = float(w @ means / w.sum())
        inside = (w - 1) @ np.array([s.sd for s in known], float) ** 2
        sd = math.sqrt(float(inside + w @ (means - mean) ** 2) / max(float(w.sum()) - 1, 1.0))
        s = step(sd, int(w.sum()), 0.0)
        one = replace(one, mean=rounded(mean, s), sd=rounded(sd, s))
    if not any(x.quartiles is None for x in known):
        q1, median, q3 = mixture_quartiles(w, np.array([x.quartiles for x in known], float))
        s = step((q3 - q1) / NORMAL_IQR, int(w.sum()), 0.0)
        one = replace(one, quartiles=(rounded(q1, s), rounded(median, s), rounded(q3, s)))
    return one


def _total(values: Sequence[int | None]) -> int | None:
    """Return the sum, or None where a part is hidden."""
    shown = [v for v in values if v is not None]
    return sum(shown) if len(shown) == len(values) else None


def _weight(site: Summary, min_cell: int) -> float:
    """Return about how many values a site knows; one that hides its rows counts as m/2."""
    if site.rows is None:
        return min_cell / 2
    hidden = min_cell / 2 if site.missing is None else site.missing
    return max(site.rows - hidden, 0.0)


def mixture_quartiles(weights: Array, quartiles: Array) -> tuple[float, float, float]:
    """Return the quartiles of eq. (1).

    Parameters
    ----------
    weights : (s,) > 0.
    quartiles : (s, 3), ascending.
    """
    share = weights / weights.sum()
    low, middle, high = quartiles.T
    z = float(ndtri(QUARTILES[2]))
    tiny = 1e-12 * max(float(np.abs(quartiles).max()), 1e-300)
    below, above = ((np.maximum(d, tiny)) / z for d in (middle - low, high - middle))

    def at(x: float) -> float:
        away = x - middle
        return float(share @ ndtr(away / np.where(away < 0, below, above)))

    found: list[float] = []
    for column, q in zip(quartiles.T, QUARTILES, strict=True):
        a, b = float(column.min()), float(column.max())
        for _ in range(200):
            centre = (a + b) / 2
            a, b = (centre, b) if at(centre) < q else (a, centre)
        found.append((a + b) / 2)
    return found[0], found[1], found[2]
