"""Training and test rows: drawn once per repeat, the same for every arm and scenario."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedcohort.arrays import Array
from fedcohort.data.outcome import Continuous, Count, Outcome, Survival

#: Where a value or a count is cut into strata.
FIFTHS = (0.2, 0.4, 0.6, 0.8)


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


def strata(frame: pd.DataFrame, outcome: Outcome | None, site: Array | None) -> Array:
    """Return a stratum number for each row: by event, class or fifth, and by natural site."""
    if isinstance(outcome, Survival):
        label = np.asarray(frame[outcome.event], float)
    elif outcome is not None and outcome.kind == "classification":
        label = pd.factorize(frame[outcome.y], sort=True)[0]
    elif isinstance(outcome, (Continuous, Count)):
        y = np.asarray(frame[outcome.y], float)
        label = np.searchsorted(np.quantile(y, FIFTHS), y)
    else:
        label = np.zeros(len(frame))
    parts = [label] if site is None else [pd.factorize(site, sort=True)[0], label]
    return np.unique(np.column_stack(parts), axis=0, return_inverse=True)[1].ravel()
