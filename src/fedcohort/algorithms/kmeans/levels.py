"""Columns of levels, and modes of clusters: Huang, 1998 (`program`, eq. (1))."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import DataError
from fedcohort.training.clusters.seeding import Cloud

#: Shares of levels that differ by less than this are a tie.
EVEN = 1e-9


def groups_of(features: tuple[str, ...]) -> Array:
    """Return the number of the variable (p,) of which each feature is a level.

    A design names the column of a level "variable=level".
    """
    names = [name.partition("=")[0] for name in features]
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return np.array([place[name] for name in names], np.int64)


def check_levels(pooled: Cloud, points: Cloud, groups: Array, features: tuple[str, ...]) -> None:
    """Refuse columns that are not levels: values other than 0 and 1, or two levels in one row.

    Raises
    ------
    DataError : names the first such column, or variable.
    """
    for name, binary in zip(features, pooled.binary, strict=True):
        if not binary:
            raise DataError(
                f"column {name!r} has other values than 0 and 1, but kmodes needs levels. "
                f"Leave it out, make classes of it, or use kmeans."
            )
    starts = np.flatnonzero(first_levels(groups))
    squares = np.add.reduceat(points.variance + points.mean**2, starts)
    if len(several := np.flatnonzero(np.abs(squares - 0.5) * points.rows > 0.25)):
        name = features[int(np.flatnonzero(groups == several[0])[0])].partition("=")[0]
        raise DataError(
            f"rows have two levels of {name!r} at once, as columns are named. Rename columns so "
            f"that '=' stands only between a variable and its level."
        )


def first_levels(groups: Array) -> Array:
    """Return the coordinates of the points that are a variable's first level, (p + groups,)."""
    return np.concatenate([np.arange((groups == g).sum() + 1) == 0 for g in np.unique(groups)])


def modes_of(groups: Array) -> Callable[[Array], Array]:
    """Return the function from means (k, d) of points to modes (k, d), eq. (1)."""
    starts = np.flatnonzero(first_levels(groups))
    ends = [*starts[1:].tolist(), len(groups) + len(starts)]

    def modes(means: Array) -> Array:
        out = np.zeros(means.shape)
        for start, end in zip(starts, ends, strict=True):
            part = means[:, start:end]
            likeliest = (part >= part.max(axis=1, keepdims=True) - EVEN).argmax(axis=1)
            out[np.arange(len(means)), start + likeliest] = np.sqrt(0.5)
        return out

    return modes
