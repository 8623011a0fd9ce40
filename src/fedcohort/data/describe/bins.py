"""Histograms over sites: counts of a number between round edges, with small counts merged.

The edges follow from Table 1 over all sites: multiples of a round width
inside q₁ − 1.5 IQR and q₃ + 1.5 IQR (mean ± 2.7 sd without quartiles). Values beyond
are counted together, so no smallest or largest value is shown. Before its counts leave, with m the
`min_cell`, a site

    adds nothing               if it has fewer than 2m known values
    moves a count of 1 … m − 1 into the next cell towards its fullest one, until every         (1)
                               cell has none or at least m
    counts n − ⌊m/2⌋ values    of its n rows, by adjusting its fullest cell, if Table 1 hides  (2)
                               how many are missing

So the sum reveals nothing that Table 1 hides, and neither does the difference of two histograms.
If sites are small, the ends of a histogram are moved towards the middle.

Revealed: `Bins`, only as the sum over all sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort import mapped
from fedcohort.arrays import Array
from fedcohort.data.describe.summary import NORMAL_IQR, Summary
from fedcohort.data.encode import Encoded
from fedcohort.data.prepare import count_between
from fedcohort.privacy.disclosure.counts import hidden
from fedcohort.privacy.disclosure.rounding import round_number
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed

#: About the number of cells between the limits.
CELLS = 16
#: Distance of the limits from the quartiles, in interquartile ranges.
FENCE = 1.5


@message
class Bins:
    """Counts of c numbers between edges (c, b + 1), and the number of sites that add to them
    (c,).
    """

    counts: Array
    sites: Array


@dataclass(frozen=True)
class Bars:
    """A histogram of one number.

    Attributes
    ----------
    name, unit : of the variable.
    edges : (b,) ascending, in its unit.
    counts : (b + 1,) values up to the first edge, between two (the upper one included), and beyond
        the last; each is 0, or at least `min_cell`.
    """

    name: str
    unit: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values."""
        return {
            "name": self.name,
            "unit": self.unit,
            "edges": list(self.edges),
            "counts": list(self.counts),
        }

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Bars:
        """Rebuild a histogram from `to_dict`."""
        return cls(plain["name"], plain["unit"], tuple(plain["edges"]), tuple(plain["counts"]))


@summed(blocks="own")
def count_bins(site: Site[Encoded, None], *, edges: Array, min_cell: int) -> Bins:
    """Count the values of each number between edges, with small counts merged into neighbours.

    edges : (c, b), padded with inf.
    """
    between = count_between(site.data.numbers, edges)
    counts = np.zeros((len(edges), edges.shape[1] + 1), np.int64)
    adds = np.zeros(len(counts), np.int64)
    for j, (x, own) in enumerate(zip(mapped.each(site.data.numbers), edges, strict=True)):
        last = int(np.isfinite(own).sum())
        if not last:
            continue
        counts[j, 0] = np.count_nonzero(x <= own[0])
        counts[j, 1:last] = between[j, : last - 1]
        counts[j, last] = np.count_nonzero(x > own[last - 1])
        counts[j] = safe_bins(counts[j], len(x), min_cell)
        adds[j] = counts[j].any()
    return Bins(counts, adds)


def safe_bins(counts: Array, rows: int, min_cell: int) -> Array:
    """Return a site's counts (b + 1,) after eqs. (1) and (2).

    rows : of the site, with those without a value.
    """
    known = int(counts.sum())
    if min_cell <= 1:
        return counts
    if known < 2 * min_cell:
        return np.zeros_like(counts)
    out = counts.copy()
    top = int(np.argmax(out))
    for way in (range(top), range(len(out) - 1, top, -1)):
        carried = 0
        for i in way:
            carried, out[i] = out[i] + carried, 0
            if carried >= min_cell:
                carried, out[i] = 0, carried
        out[top] += carried
    if hidden(np.array([rows - known, known]), min_cell).any():
        out[top] += rows - min_cell // 2 - known
    if 0 < out[top] < min_cell:
        near = np.flatnonzero(out > 0)
        near = near[near != top]
        to = near[np.argmin(np.abs(near - top))]
        out[to], out[top] = out[to] + out[top], 0
    return out


def histograms(
    fed: Federation, shown: Sequence[Summary], *, min_cell: int = 5
) -> tuple[list[Bars], list[str]]:
    """Return histograms of numbers over all sites, and the names of those without one.

    Parameters
    ----------
    fed : sites, each seen through an encoding of numbers and codes.
    shown : Table 1 over all sites, of every number in the encoding's order.
    """
    limits = [edges_of(s) for s in shown]
    most = max([len(e) for e in limits], default=0)
    if not most:
        return [], [s.variable.name for s in shown]
    edges = np.full((len(limits), most), np.inf)
    for j, e in enumerate(limits):
        edges[j, : len(e)] = e
    counts = fed.sum(count_bins, edges=edges, min_cell=min_cell).counts
    bars: list[Bars] = []
    without: list[str] = []
    for s, e, row in zip(shown, limits, counts, strict=True):
        v = s.variable
        if len(e) and row.any():
            bars.append(_trimmed(v.name, v.unit, e, row[: len(e) + 1]))
        else:
            without.append(v.name)
    return bars, without


def _trimmed(name: str, unit: str, edges: Array, counts: Array) -> Bars:
    """Return a histogram with at most one empty cell at each end."""
    used = np.flatnonzero(counts)
    first, last = max(int(used[0]) - 1, 0), min(int(used[-1]) + 1, len(counts) - 1)
    kept = counts[first : last + 1].tolist()
    return Bars(name, unit, tuple(edges[first:last].tolist()), tuple(kept))


def edges_of(shown: Summary, cells: int = CELLS) -> Array:
    """Return the edges (b,) for a number's shown statistics; none if nothing is shown.

    cells : about the number of cells between the first and the last edge.
    """
    low, high = 0.0, 0.0
    if shown.quartiles is not None:
        q1, _, q3 = shown.quartiles
        low, high = q1 - FENCE * (q3 - q1), q3 + FENCE * (q3 - q1)
    if high <= low and shown.mean is not None and shown.sd is not None:
        reach = (0.5 + FENCE) * NORMAL_IQR * shown.sd
        low, high = shown.mean - reach, shown.mean + reach
    width = round_number((high - low) / cells)
    if shown.variable.type == "integer" and width > 0:
        width = max(width, 1.0)
    if width <= 0:
        return np.zeros(0)
    first, last = np.ceil(low / width - 1e-9), np.floor(high / width + 1e-9)
    return np.round(np.arange(first, last + 1) * width, 12) + 0.0
