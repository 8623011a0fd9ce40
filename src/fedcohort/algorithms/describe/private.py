"""Table 1 with differential privacy: one noisy vector over all sites, and arithmetic on it.

A variable with levels has one part, and a number two. With u ∈ [−1, 1] a number clipped to its
limits in the dictionary, from their middle in half widths, a record adds to a part

    levels, missing       1 in one cell of its counts                 norm 1
    number: histogram     1 in one of its cells, or in "missing"      norm 1
    number: moments       (u, u²)/√2, nothing if missing              norm ≤ √((1 + 1)/2) = 1

so to all K parts together, as one vector, it adds a norm of √K at most, whatever its values. One
Gaussian release of multiplier z covers this: each entry gets noise of z √K. A part alone would be a
release of multiplier z √K, and Σ 1/(z √K)² = 1/z²: every part takes the same share of 1/z², so a
number takes twice that of a variable with levels.

The published numbers follow by arithmetic (`noisy`), which costs nothing more. There are no sites,
groups, further quantiles or correlations: each would have to share ε.

Revealed: `NoisyTable` once, with noise, as a sum over the sites.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from fedcohort.algorithms.describe.noisy import Layout, Shown, read
from fedcohort.algorithms.describe.settings import DescribeSettings
from fedcohort.arrays import Array
from fedcohort.data.describe import Reading
from fedcohort.data.encode import Encoded
from fedcohort.privacy.statistics import histogram, moments
from fedcohort.protocol import (
    Dp,
    Federation,
    Private,
    Release,
    SettingError,
    Site,
    message,
    summed,
)


@message
class NoisyTable:
    """All parts of the header one after the other (d,): numbers first, each histogram, moments."""

    cells: Array


@summed
def describe_privately(
    site: Site[Encoded, None], *, low: Array, high: Array, bins: Array, n_levels: Array
) -> Private[NoisyTable]:
    """Count levels and cells, and sum moments, of all columns.

    low, high, bins : (c,), limits of each number and its number of cells between them. n_levels :
    (k,), of each category.
    """
    numbers, codes = site.data
    parts: list[Array] = []
    for x, a, b, n in zip(numbers, low, high, bins, strict=True):
        parts += [
            histogram(cell_of(x, float(a), float(b), int(n)) + 1, int(n) + 1).value,
            moments(x[~np.isnan(x)][:, None], np.array([a]), np.array([b])).value[1:]
            / math.sqrt(2.0),
        ]
    parts += [
        histogram(c + 1, int(n) + 1).value for c, n in zip(codes, n_levels, strict=True)
    ]  # a missing value is −1
    cells = np.concatenate(parts)
    return Private(NoisyTable(cells), {"cells": math.sqrt(len(parts))})


def cell_of(x: Array, low: float, high: float, bins: int) -> Array:
    """Return the cell (n,) of each value, including its upper end; −1 if missing."""
    place = np.ceil((np.clip(np.nan_to_num(x, nan=low), low, high) - low) / (high - low) * bins) - 1
    return np.where(np.isnan(x), -1, np.clip(place, 0, bins - 1)).astype(np.int64)


# coordinator --------------------------------------------------------------------------


def releases(config: DescribeSettings, dp: Dp) -> Sequence[Release]:
    """Return the one release of a private description.

    Raises
    ------
    SettingError : a setting has no private description, or (ε, δ) cannot be met.
    """
    if dp.unit != "record":
        raise SettingError(
            f"dp.unit is {dp.unit!r}, but a description protects only records; choose 'record'."
        )
    for name in ("by", "quantiles"):
        if value := getattr(config, name):
            raise SettingError(
                f"setting {name!r} of method 'describe' is {value!r}, but a private description "
                f"has only one table of all rows. Leave it out."
            )
    return _releases(dp)


def reveals(config: DescribeSettings, dp: Dp) -> str:
    """Return, in plain words, what leaves a site in any private description."""
    del config, dp
    return "Once, one sum over sites of counts of levels and cells, and of moments of numbers."


@lru_cache(maxsize=64)
def _releases(dp: Dp) -> tuple[Release, ...]:
    from fedcohort.privacy import accounting  # slow to import

    def make(z: float) -> tuple[Release, ...]:
        return (Release(step=describe_privately.name, noise=z),)

    return make(accounting.calibrate(make, dp))


def asked_of(layout: Layout) -> dict[str, Array]:
    """Return the step's arguments, which follow from the dictionary."""
    return {
        "low": layout.low,
        "high": layout.high,
        "bins": layout.bins,
        "n_levels": layout.reading.n_levels,
    }


def described(
    fed: Federation, reading: Reading, release: Release, *, min_cell: int, bars: bool
) -> Shown:
    """Return the published numbers of the noisy table, from one question.

    Raises
    ------
    DataError : numbers without limits in the dictionary.
    """
    layout = Layout.of(reading)
    reply = fed.through(reading.view).sum(describe_privately, **asked_of(layout))
    noise = release.noise * math.sqrt(layout.parts * len(fed.sites))
    return read(layout, reply.cells, noise, min_cell=min_cell, bars=bars)
