"""Training and test rows: drawn once per repeat, the same for every arm and scenario.

Rows of a hospital's own, a natural site, are put in an order that depends on what they hold and on
the study's seed, and the site's blind rows are drawn from (seed, repeat, site, all its rows). A
network and a study of the same tables in one process so train and judge on the same rows.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.outcome import Outcome


def stratified(strata: Array, fraction: float, rng: np.random.Generator) -> Array:
    """Return a mask (n,) of about `fraction` of the rows, in proportion from every stratum.

    Rows are shuffled, laid out stratum by stratum, and every (1/fraction)-th is taken, so each
    stratum's share is within one row of `fraction` and the total is too.
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
    """Return a number for each row (n,) that depends on its values and the seed alone."""
    key = f"{seed:016x}"[-16:]
    return pd.util.hash_pandas_object(frame, index=False, hash_key=key).to_numpy()


def _own_hashed(frame: pd.DataFrame, seed: int) -> Array:
    """Return `hashed` of a natural site's rows, without columns of one value.

    So a file of one site that names it gives what rows of one file for all sites give.
    """
    varied = frame.loc[:, frame.nunique(dropna=False) > 1]
    return hashed(varied, seed) if varied.shape[1] else np.zeros(len(frame), np.uint64)


def own_order(frame: pd.DataFrame, seed: int) -> Array:
    """Return a natural site's rows (n,) in the study's order, whatever that of an export."""
    return np.argsort(_own_hashed(frame, seed), kind="stable")


def digest(frame: pd.DataFrame, seed: int) -> bytes:
    """Return what all rows of a natural site have a part in; they are in the study's order."""
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
    """Return which rows (n,) of a natural site are the blind ones of one repeat.

    Parameters
    ----------
    frame : the site's rows, in the study's order.
    outcome : what fits learn, in proportion of which rows are drawn; None without.
    digest : of the site's rows.
    """
    own = (int.from_bytes(part, "big") for part in (site.encode(), digest))
    rng = np.random.default_rng((seed, repeat, 0x7465, *own))
    return stratified(strata(frame, outcome), fraction, rng)
