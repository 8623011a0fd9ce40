"""Quasi-random allocation of groups to sites: each site sees k of the m groups of a column.

Nolte et al., "Federated learning framework integrating REFINED CNN and Deep Regression Forests",
Bioinformatics Advances 3, 2023, section 3.5: of m = 24 drugs each of n = 12 clients is allocated k;
with k = 2 the clients' drugs are disjoint, for 2 < k < 24 each client has a random sample of k,
with k = 24 all. The rows of a group are split evenly among the sites that have it.

All of it is one draw: the groups in random order are dealt to the sites in turn, so that each group
has a site, and each site then draws its further groups among those that it lacks. By symmetry a
site's groups are a random sample of k (m a multiple of n); other than in independent draws, no
group is left out, and k = m / n is the disjoint case.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.encode import column_of
from fedcohort.data.words import rows
from fedcohort.protocol.errors import DataError


def allocated(m: int, n: int, k: int, rng: np.random.Generator) -> Array:
    """Return which of m groups each of n sites has, (n, m) bool: k each, and each group somewhere.

    Raises
    ------
    DataError : k is above m, or n sites of k groups do not take in all m.
    """
    if not 1 <= k <= m or n * k < m:
        raise DataError(
            f"split 'overlap': {n} sites with {k} of {m} groups each; give k from {-(-m // n)} to "
            f"{m}, so that each group has a site."
        )
    has = np.zeros((n, m), bool)
    has[np.arange(m) % n, rng.permutation(m)] = True
    for site in has:
        lacks = np.flatnonzero(~site)
        site[rng.permutation(lacks)[: k - site.sum()]] = True
    return has


def overlap(frame: pd.DataFrame, n: int, rng: np.random.Generator, group: str, k: int) -> Array:
    """Return each row's site (r,), 0 to n − 1.

    Of a group with fewer rows than sites, some of these get none.

    Parameters
    ----------
    group : column of the groups.
    k : groups of each site.

    Raises
    ------
    DataError : there is no such column, a row has no group, or k does not fit.
    """
    column = column_of(frame, group)
    if (bad := column.isna().to_numpy()).any():
        raise DataError(f"column {group!r} names no group in {rows(bad)}. Complete or drop them.")
    code = pd.factorize(column, sort=True)[0]
    has = allocated(int(code.max()) + 1, n, k, rng)
    site = np.zeros(len(frame), np.int64)
    for g in range(has.shape[1]):
        inside = rng.permutation(np.flatnonzero(code == g))
        own = rng.permutation(np.flatnonzero(has[:, g]))
        site[inside] = own[np.arange(len(inside)) % len(own)]
    if (empty := np.bincount(site, minlength=n) == 0).any():
        raise DataError(
            f"split 'overlap': {int(empty.sum())} of {n} sites would get no row of their groups. "
            f"Use fewer sites, or a larger k."
        )
    return site
