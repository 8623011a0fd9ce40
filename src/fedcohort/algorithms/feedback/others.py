"""Summary of the other sites from votes: each site adds 1 to one cell of a common grid.

A grid has cells on the scale asinh((v − centre)/unit): of equal width near the centre, and in a
constant ratio far from it, so that one grid covers a column in another unit too. The sum of the
votes lists the sites' numbers, up to a cell, without names. A site removes its own vote. From the k
others it computes

    middle  their median;   σ² = (ν s₀² + (k − 1) (1.4826 MAD)²)/(ν + k − 1)                 (1)

where s₀ is the expected distance between honest sites, with the weight of ν = `PRIOR` sites. So a
few sites that agree by chance flag nobody for a small difference, and one wrong site among many
hardly changes either number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcohort.arrays import Array

#: Width of a cell, in units near the centre.
WIDTH = 0.05
#: Cells on either side of the centre: up to sinh(20), 2.4e8 units.
HALF = 400
#: Cells of a spread: quarters of an octave, 2^-100 to 2^100.
OCTAVES, QUARTERS = 100, 4
#: Cells of a share.
SHARES = 40
#: Weight of the expectation, in sites, ν.
PRIOR = 4.0
#: s₀ of places (in spreads), of log spreads, of shares, of atanh r.
PLACE, SPREAD, SHARE, LINK = 0.5, 0.2, 0.08, 0.12
#: Ratio of a normal's standard deviation to its median distance.
MAD = 1.4826


class Usual(NamedTuple):
    """Eq. (1): number of sites ``k``, their ``middle`` and ``sd``."""

    k: int
    middle: float
    sd: float


def cell(value: float) -> int:
    """Return the cell of a value, in units from the centre."""
    return int(np.clip(np.round(np.arcsinh(value) / WIDTH), -HALF, HALF)) + HALF


def value_of(cells: Array) -> Array:
    """Return the values at the middle of cells."""
    return np.sinh((np.asarray(cells) - HALF) * WIDTH)


def octave(spread: float) -> int:
    """Return the cell of a spread above 0."""
    at = round(np.log2(spread) * QUARTERS)
    return int(np.clip(at, -OCTAVES * QUARTERS, OCTAVES * QUARTERS)) + OCTAVES * QUARTERS


def share_cell(share: float) -> int:
    """Return the cell of a share; the cells of 0 and 1 have half the width."""
    return round(share * SHARES)


def ballot(chosen: Sequence[int | None], cells: int) -> Array:
    """Return one row of votes (c, cells) per chosen cell; None is no vote."""
    out = np.zeros((len(chosen), cells), np.int64)
    for j, at in enumerate(chosen):
        if at is not None:
            out[j, at] = 1
    return out


def cast(votes: Array) -> Array:
    """Return the cell of each vote (k,), ascending, from votes (cells,)."""
    return np.repeat(np.arange(len(votes)), np.maximum(votes, 0))


def median_of(votes: Array) -> Array:
    """Return the median cell of each row of votes (c, cells); NaN without votes."""
    middles = [np.median(found) if len(found := cast(v)) else np.nan for v in votes]
    return np.array(middles, float)


def usual(values: Array, prior: float) -> Usual:
    """Return eq. (1) of the other sites' values (k,)."""
    k = len(values)
    if not k:
        return Usual(0, 0.0, prior)
    middle = float(np.median(values))
    own = MAD * float(np.median(np.abs(values - middle)))
    variance = (PRIOR * prior**2 + (k - 1) * own**2) / (PRIOR + k - 1)
    return Usual(k, middle, float(np.sqrt(variance)))
