"""Rows that a site draws in secret, so that no difference of two sums is over known rows.

Many trees ask for sums over many overlapping sets of rows. With all rows in each sum, the
difference of two sets that differ in one row is that row's outcome; and with the covariates known,
all outcomes solve one linear system. So each sum over a region (the rows of one leaf, or one side
of a split) is over a share of its rows, drawn by the site for this region alone:

    row i is in the sum over region r   ⇔   h(k_r ⊕ h(k + i)) < share · 2⁶⁴                 (1)
    k_child = h(h(k_parent ⊕ split) + side),   k_root = k                                    (2)

with h a 64-bit mixing function (Steele, Lea, Flood, OOPSLA 2014, `splitmix64`), and k a digest of
the site's whole table: the coordinator, which knows the study's seed, does not know it. A region is
known by its splits. So the same question has the same answer, in every tree and in every run, and
repeating it does not average the draw away; another region has a draw of its own.

Whoever knows all rows of a site but one can compute k for each guess of that row.

Revealed: nothing; this module computes at a site.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np

from fedcohort.algorithms.forest.settings import PARTS
from fedcohort.arrays import Array
from fedcohort.data.tables import remembered
from fedcohort.numerics.trees.nodes import Trees
from fedcohort.protocol import Site

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mixed(z: Array) -> Array:
    """Return h(z) (…,) of 64-bit numbers z (…,)."""
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


def secret(site: Site[Any, Any]) -> int:
    """Return k, a digest of the site's table, its name and the study's seed, below 2⁶⁴."""

    def made() -> int:
        found = blake2b(digest_size=8, person=b"forest")
        found.update(repr((site.entropy[:2], len(site.data.x))).encode())
        for part in site.data:
            if part is not None:
                found.update(np.ascontiguousarray(part, np.float64).tobytes())
        return int.from_bytes(found.digest(), "big")

    return remembered(site.data, ("forest", site.entropy[:2]), made)


def of_rows(key: int, n: int) -> Array:
    """Return h(k + i) of each row (n,)."""
    return mixed(np.uint64(key) + np.arange(n, dtype=np.uint64) * _STEP)


def of_children(keys: Array, covariate: Array, cut: Array, missing_left: Array) -> Array:
    """Return the keys (…, 2) of the left and the right side of splits, eq. (2).

    Parameters
    ----------
    keys : (…,) of the nodes.
    covariate, cut, missing_left : (…,) of their splits.
    """
    bits = np.ascontiguousarray(cut, np.float32).view(np.uint32).astype(np.uint64)
    split = (np.asarray(covariate).astype(np.uint64) << np.uint64(33)) | bits
    split |= np.asarray(missing_left).astype(np.uint64) << np.uint64(32)
    first = mixed(keys ^ split)[..., None]
    return mixed(first + np.array([1, 2], np.uint64) * _STEP)


def of_nodes(key: int, trees: Trees) -> Array:
    """Return the key of each node (N,)."""
    keys = np.zeros(len(trees.feature), np.uint64)
    at = np.asarray(trees.roots)
    keys[at] = np.uint64(key)
    while len(at := at[~trees.leaf[at]]):
        below = of_children(
            keys[at], trees.feature[at], trees.threshold[at], trees.missing_left[at]
        )
        keys[trees.left[at]], keys[trees.right[at]] = below[:, 0], below[:, 1]
        at = np.concatenate([trees.left[at], trees.right[at]])
    return keys


def drawn(keys: Array, rows: Array, parts: int) -> Array:
    """Return which rows are in the sums over regions, eq. (1): bool (m,).

    Parameters
    ----------
    keys : (m,) of the regions.
    rows : (m,) h(k + i) of the rows.
    parts : share of the rows, in thousandths; 1000: all.
    """
    if parts >= PARTS:
        return np.ones(len(rows), bool)
    return mixed(keys ^ rows) < np.uint64((parts << 64) // PARTS)
