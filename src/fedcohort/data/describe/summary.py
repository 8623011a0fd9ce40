"""Summary of one variable: at a site, in a group of its rows, and over all sites.

A summary over all sites is computed from the sites' summaries. A statistic that one site hides is
hidden over all sites. So it reveals nothing more, even if some sites' summaries are subtracted. A
mean weighs each site by its known values (by n − m/2 if their number is hidden). A quantile is that
of a mixture of the sites. Each site is a normal distribution, stretched to its quantiles x_i at
the shares p_i:

    F(x) = Σ_s w_s Φ(z_i + (x − x_i)/(x_{i+1} − x_i) (z_{i+1} − z_i)),   z_i = Φ⁻¹(p_i)       (1)

between two neighbours, and along the first and the last of these lines beyond them. So a quantile
over several sites is close to that of the pooled rows, and a mean equals theirs up to rounding.

Revealed: nothing beyond the sites' summaries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from fedcohort.arrays import Array
from fedcohort.data.describe.shown_number import HIDDEN, QUARTILES
from fedcohort.data.variable import Variable
from fedcohort.privacy.disclosure.rounding import rounded, step

#: Interquartile range of a normal distribution, in standard deviations.
NORMAL_IQR = 2 * float(ndtri(QUARTILES[2]))


@dataclass(frozen=True)
class Summary:
    """Statistics of one variable at one site, or over all; None for hidden ones.

    Attributes
    ----------
    variable : as in the dictionary.
    levels : of a category, or "0" and "1"; none for a number.
    site : None for all sites.
    rows, missing : counts.
    mean, sd, quartiles : of a number, in its unit.
    counts : of `levels`, in order.
    quantiles : of a number, at the requested shares besides the quartiles.
    group : level of the grouping column; None for all rows.
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
    quantiles: tuple[float | None, ...] = ()
    group: str | None = None

    @property
    def n_hidden(self) -> int:
        """Number of hidden counts."""
        return [self.rows, self.missing, *self.counts].count(None)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values of a summary of all rows, for a run's files."""
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


def count_of(value: Any) -> int | None:
    """Return a count of a site's reply; None if it is hidden."""
    return None if value == HIDDEN else int(value)


def over_all(
    sites: Sequence[Summary],
    min_cell: int,
    *,
    shares: Sequence[float] = (),
    rounding: bool = True,
) -> Summary:
    """Return the summary of one variable over all sites, computed from the sites' summaries.

    Parameters
    ----------
    sites : summaries of one variable, and one group, at each site.
    shares : (q,) of the sites' further quantiles.
    """
    first = sites[0]
    one = Summary(
        first.variable,
        first.levels,
        None,
        _total([s.rows for s in sites]),
        _total([s.missing for s in sites]),
        counts=tuple(_total(column) for column in zip(*(s.counts for s in sites), strict=True)),
        quantiles=(None,) * len(first.quantiles),
        group=first.group,
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
        s = step(sd, int(w.sum()), 0.0) if rounding else 0.0
        one = replace(one, mean=rounded(mean, s), sd=rounded(sd, s))
    if not any(x.quartiles is None for x in known):
        curves = [curve(x, shares) for x in known]
        q1, median, q3 = mixture_quantiles(w, curves, QUARTILES)
        s = step((q3 - q1) / NORMAL_IQR, int(w.sum()), 0.0) if rounding else 0.0
        more = [
            q if all(x.quantiles[i] is not None for x in known) else None
            for i, q in enumerate(shares)
        ]
        found = mixture_quantiles(w, curves, [q for q in more if q is not None])
        values = iter(rounded(x, s) for x in found)
        one = replace(
            one,
            quartiles=(rounded(q1, s), rounded(median, s), rounded(q3, s)),
            quantiles=tuple(None if q is None else next(values) for q in more),
        )
    return one


def curve(site: Summary, shares: Sequence[float]) -> tuple[Array, Array]:
    """Return the shares of a site's shown quantiles, ascending, and the quantiles."""
    found = dict(zip(QUARTILES, site.quartiles or (), strict=True))
    found |= {q: x for q, x in zip(shares, site.quantiles, strict=True) if x is not None}
    at = np.array(sorted(found))
    return at, np.maximum.accumulate([found[q] for q in at.tolist()])


def _total(values: Sequence[int | None]) -> int | None:
    shown = [v for v in values if v is not None]
    return sum(shown) if len(shown) == len(values) else None


def _weight(site: Summary, min_cell: int) -> float:
    """Return the approximate number of a site's known values; m/2 if it hides its rows."""
    if site.rows is None:
        return min_cell / 2
    hidden = min_cell / 2 if site.missing is None else site.missing
    return max(site.rows - hidden, 0.0)


def mixture_quantiles(
    weights: Array, curves: Sequence[tuple[Array, Array]], wanted: Sequence[float]
) -> list[float]:
    """Return quantiles of the mixture of eq. (1).

    Parameters
    ----------
    weights : (s,) > 0.
    curves : per site, two or more shares and its quantiles there, both ascending.
    wanted : shares, each within those of every curve.
    """
    share = weights / weights.sum()
    most = max(float(np.abs(x).max()) for _, x in curves)
    tiny = max(1e-12 * most, 1e-300)
    last = np.array([len(x) - 2 for _, x in curves])
    values = np.full((len(curves), int(last.max()) + 2), np.inf)
    scores = np.zeros(values.shape)
    for row, z, (q, x) in zip(values, scores, curves, strict=True):
        row[: len(x)] = x + tiny * np.arange(len(x))
        z[: len(x)] = ndtri(q)
    own = np.arange(len(curves))[:, None]

    def at(x: Array) -> Array:
        """Return the mixture's distribution function at points (q,)."""
        i = np.clip((values[:, :, None] < x).sum(axis=1) - 1, 0, last[:, None])
        left, low = values[own, i], scores[own, i]
        slope = (scores[own, i + 1] - low) / (values[own, i + 1] - left)
        return share @ ndtr(low + slope * (x - left))

    a = np.full(len(wanted), values[:, 0].min())
    b = np.full(len(wanted), values[own[:, 0], last + 1].max())
    for _ in range(200):
        centre = (a + b) / 2
        if ((centre == a) | (centre == b)).all():
            break
        below = at(centre) < wanted
        a, b = np.where(below, centre, a), np.where(below, b, centre)
    return ((a + b) / 2).tolist()
