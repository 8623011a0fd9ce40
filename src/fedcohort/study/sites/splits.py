"""Training and test rows: drawn once per repeat, the same for every arm and scenario.

The order of a natural site's rows depends on their values and the study's seed, and its blind rows
are drawn from (seed, repeat, site, all its rows). So a network and one process train and evaluate
on the same rows of the same tables.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.on_disk import on_disk, selected
from fedcohort.data.outcome import Outcome


def stratified(strata: Array, fraction: float, rng: np.random.Generator) -> Array:
    """Return a mask (n,) of about `fraction` of the rows, proportionally from every stratum.

    Rows are shuffled and sorted by stratum, and every (1/fraction)-th is taken, so each stratum's
    share, and the total, is within one row of `fraction`.
    """
    n = len(strata)
    order = rng.permutation(n)
    order = order[np.argsort(strata[order], kind="stable")]
    position = np.arange(n) + rng.random()
    taken = np.floor((position + 1) * fraction) > np.floor(position * fraction)
    mask = np.zeros(n, bool)
    mask[order[taken]] = True
    return mask


def strata(frame: pd.DataFrame, outcome: Outcome | None) -> Array:
    """Return a stratum number for each row (n,): by event, class or fifth."""
    label = np.zeros(len(frame)) if outcome is None else outcome.strata(frame)
    return np.unique(label, return_inverse=True)[1].ravel()


def hashed(frame: pd.DataFrame, seed: int) -> Array:
    """Return a number for each row (n,) that depends only on its values and the seed."""
    key = f"{seed:016x}"[-16:]
    return pd.util.hash_pandas_object(frame, index=False, hash_key=key).to_numpy()


def _own_hashed(frame: pd.DataFrame, seed: int) -> Array:
    """Return `hashed` of a natural site's rows, without constant columns.

    So a site's own file with a site column gives the same as rows of one file for all sites.
    """
    some = (frame.nunique(dropna=False) > 1).to_numpy()
    if on_disk(frame):
        varied = selected(frame, [str(c) for c in frame.columns[some]])
    else:
        varied = frame.loc[:, some]
    return hashed(varied, seed) if varied.shape[1] else np.zeros(len(frame), np.uint64)


def own_order(frame: pd.DataFrame, seed: int) -> Array:
    """Return the order (n,) of a natural site's rows in the study, for any order of an export."""
    return np.argsort(_own_hashed(frame, seed), kind="stable")


def digest(frame: pd.DataFrame, seed: int) -> bytes:
    """Return a digest of all rows of a natural site, in the study's order."""
    return hashlib.sha256(_own_hashed(frame, seed).tobytes()).digest()


def own_blind(
    frame: pd.DataFrame,
    outcome: Outcome | None,
    *,
    site: str,
    digest: bytes,
    seed: int,
    repeat: int,
    fraction: float,
) -> Array:
    """Return whether each row (n,) of a natural site is blind in one repeat.

    Parameters
    ----------
    frame : the site's rows, in the study's order.
    outcome : outcome of fits, for stratification; None without.
    digest : of the site's rows.
    """
    own = (int.from_bytes(part, "big") for part in (site.encode(), digest))
    rng = np.random.default_rng((seed, repeat, 0x7465, *own))
    return stratified(strata(frame, outcome), fraction, rng)
