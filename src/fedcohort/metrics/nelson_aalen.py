"""The cumulative hazard with its uncertainty: Nelson and Aalen's estimate.

Nelson, Technometrics 14(4), 1972; Aalen, Ann. Stat. 6(4), 1978; variance and interval as Klein,
Scand. J. Stat. 18(4), 1991, recommends. With d_k deaths of n_k at risk in cell k of a grid,

    H(t_k) = Σ_{l ≤ k} d_l/n_l                                                              (1)
    v(t_k) = Σ_{l ≤ k} d_l (n_l − d_l) / n_l³                                               (2)
    low, high = H exp(∓z √v / H)                                                            (3)

Where cells are intervals, and each death in one has a time of its own, a cell's d deaths are d
cells of one death in (1) and (2), of whom the first finds n at risk and the last n − d + 1: to a
term of second order in d/n, all find

    n − (d − 1)/2                                                                           (4)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from fedcohort.arrays import Array


class Hazard(NamedTuple):
    """A cumulative hazard on a grid, with its interval: each (…, T)."""

    times: Array
    cumulative: Array
    low: Array
    high: Array


def nelson_aalen(
    times: Array, deaths: Array, risk: Array, level: float = 0.95, *, tied: bool = True
) -> Hazard:
    """Return H and its interval, eqs. (1) to (3), of ``deaths`` among ``risk`` (…, T).

    Parameters
    ----------
    tied : whether the deaths of a cell share their time; eq. (4) is used if not.
    """
    n = np.where(risk > 0, risk, 1.0)
    together = deaths if tied else np.minimum(deaths, 1)
    n = n - (deaths - together) / 2
    hazard = np.cumsum(deaths / n, axis=-1)
    spread = np.sqrt(np.cumsum(deaths * (n - together) / n**3, axis=-1))
    z = float(ndtri((1.0 + level) / 2.0))
    factor = np.exp(z * spread / np.where(hazard > 0, hazard, 1.0))
    return Hazard(np.asarray(times, float), hazard, hazard / factor, hazard * factor)
