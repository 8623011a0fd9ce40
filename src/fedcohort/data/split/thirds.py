"""Sites in thirds with different groups of rows, or different views.

Balelli, Silva, Lorenzi, "A differentially private probabilistic framework for modeling the
variability across federated datasets of heterogeneous multi-view observations", 2022, table 1. Of
C sites, in order, with m = C/3:

    by-group (G)   m sites have rows of both groups, m of the first alone, m of the second alone
    views (K)      m sites have all views, m lack one view, m lack another
    both (G/K)     the same thirds: sites with one group alone also lack a view

Sizes of by-group sites differ by at most one row if the groups are large enough: a group must fill
a third and leave `SHARE` of a third for the sites with both. Else its own sites are smaller, and
the others share the rest evenly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.encode import column_of
from fedcohort.data.words import known_name, level_text, rows, sorted_levels
from fedcohort.protocol.errors import DataError, StudyError

#: Rules of `partition` that make sites in thirds.
THIRDS = ("by-group", "views")
#: In the sites with both groups, each has at least this share of a third's rows.
SHARE = 0.1


def check_thirds(rule: str, n: int) -> None:
    """Check that the number of sites is a multiple of 3.

    Raises
    ------
    StudyError : it is not.
    """
    if n % 3:
        raise StudyError(
            f"split {rule!r} makes sites in thirds, and {n} is no multiple of 3. Give n: 3 or 6, "
            f"say."
        )


def by_group(frame: pd.DataFrame, n: int, rng: np.random.Generator, group: str) -> Array:
    """Return each row's site (r,), 0 to n − 1, by scenario G of the header.

    Parameters
    ----------
    group : column whose two values are the groups, numbers by size and text by alphabet.

    Raises
    ------
    DataError : there is no such column, a row has no group, there are more or fewer than two
        groups, or one has too few rows for the sites.
    """
    code = _two_groups(frame, group)
    m = n // 3
    sizes = np.bincount(code, minlength=2)
    if sizes.min() < 2 * m:
        raise DataError(
            f"column {group!r}: the smaller group has {sizes.min()} rows, and {2 * m} sites of "
            f"{n} need one at least. Use fewer sites."
        )
    small, large = np.argsort(sizes, kind="stable").tolist()
    alone = np.zeros(2, np.int64)
    left, least = len(frame), round(SHARE * len(frame) / 3)
    for parts, g in ((3, small), (2, large)):  # an equal part of the remaining rows, if possible
        kept = max(m, min(least, sizes[g] // 2))
        alone[g] = min(left // parts, sizes[g] - kept)
        left -= alone[g]
    site = np.zeros(len(frame), np.int64)
    both: list[Array] = []
    for g in (0, 1):
        inside = rng.permutation(np.flatnonzero(code == g))
        site[inside[: alone[g]]] = (1 + g) * m + np.arange(alone[g]) % m
        both.append(inside[alone[g] :])
    mixed = np.concatenate(both)
    site[mixed] = np.arange(len(mixed)) % m
    return site


def lacked(
    n: int, views: Mapping[str, Sequence[str]], lacking: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the view that each of n sites lacks (n,), by scenario K; "" for none.

    Parameters
    ----------
    views : columns by view, in the dictionary's order.
    lacking : the two views; by default the second and the third.

    Raises
    ------
    StudyError : these are not two views of the dictionary, or it has too few for the default.
    """
    names = list(views)
    if lacking is None:
        if len(names) < 3:
            raise StudyError(
                f"split 'views': its sites lack the second or the third view, and the dictionary "
                f"has {len(names)}. Give columns their 'view' there, or name two as 'lacking'."
            )
        lacking = names[1:3]
    if isinstance(lacking, str) or len(lacking) != 2 or lacking[0] == lacking[1]:
        raise StudyError("split 'views': lacking is a list of two views, such as [mri, pet].")
    for name in lacking:
        if name not in views:
            raise StudyError(f"split 'views': there is {known_name('view', name, names)}")
    return tuple(("", *lacking)[3 * i // n] for i in range(n))


def _two_groups(frame: pd.DataFrame, group: str) -> Array:
    """Return each row's group (r,), 0 or 1."""
    column = column_of(frame, group)
    if (bad := column.isna().to_numpy()).any():
        raise DataError(f"column {group!r} names no group in {rows(bad)}. Complete or drop them.")
    texts = column.map(level_text)
    levels = sorted_levels(texts.unique())
    if len(levels) != 2:
        n = f"{len(levels)} value{'s' * (len(levels) != 1)}"
        raise DataError(f"column {group!r} has {n}; a split by group needs one of two.")
    return (texts == levels[1]).to_numpy().astype(np.int64)
