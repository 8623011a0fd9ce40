"""R of trajectories that are all known: the reference of `metrics.trajectories` over sites."""

from __future__ import annotations

import numpy as np

from fedcohort.metrics.trajectories import Contribution, Mixing, Trajectories


def mixing_of(
    points: np.ndarray, weights: np.ndarray | None = None, level: float = 0.05
) -> Mixing | None:
    """Return R of trajectories that are all known.

    Parameters
    ----------
    points : x, (n, T) or (n, T, q).
    weights : w (n,); None for equal ones.
    """
    x = np.asarray(points, float)
    x = x[:, :, None] if x.ndim == 2 else x
    w = np.ones(len(x)) if weights is None else np.asarray(weights, float)
    found = Trajectories()
    for t in range(x.shape[1]):
        total = x[:, : t + 1].sum(axis=1)
        parts = [Contribution.of(*one) for one in zip(x[:, t], total, w.tolist(), strict=True)]
        found.add(
            Contribution(*(np.sum([vars(p)[k] for p in parts], axis=0) for k in vars(parts[0])))
        )
    return found.mixing(level)
