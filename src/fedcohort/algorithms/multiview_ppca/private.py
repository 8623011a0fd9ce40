"""Multi-view PPCA with differential privacy: one noisy sum of products, and arithmetic on it.

The paper (section 3.2) adds noise to every site's parameters in every round, so that 100 rounds of
its budgets are spent (`differences`). But the likelihood of a linear Gaussian model looks at rows
through their first and second moments alone. With m_k = 1 where a row has all of view k and x = 0
where it has not, each row is shortened to C and adds

    v vᵀ,  v = min(1, C/‖(m, x)‖) (m, x)                                                   (1)

to one sum, which a row that is added or taken away changes by a matrix of norm ≤ C². Everything
else is free: of columns i of view k and j of view l, over the rows that have both views, with
weights n_kl,

    cov_ij = (Σ x_i x_j − Σ m_l x_i · Σ m_k x_j / n_kl) / n_kl                              (2)

whose eigenvalues are raised to `LEAST`, and EM of `numerics.multiview.em` on that. Views that no
row has together are taken as uncorrelated. All sites are one table here: nothing is known of how
they differ.

Revealed: `ViewProducts` once, with noise, as a sum over the sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.algorithms.multiview_ppca import differences
from fedcohort.algorithms.multiview_ppca.settings import Settings
from fedcohort.arrays import Array
from fedcohort.data.tables import FeatureTable
from fedcohort.numerics.inverse_gamma import MOST
from fedcohort.numerics.multiview import em, start
from fedcohort.numerics.multiview.model import Prior, Views
from fedcohort.numerics.multiview.moments import Pattern
from fedcohort.privacy.statistics import crossed
from fedcohort.protocol import (
    Dp,
    Federation,
    NothingToLearn,
    Private,
    Release,
    SettingError,
    Site,
    Task,
    message,
    summed,
)
from fedcohort.training.crossed import Products, unpacked

#: C, where the study says none. Columns are within [−1, 1], and most of them near 0.
CLIPS = {"record": 1.5}
#: Least eigenvalue of the covariance.
LEAST = 1e-4
#: Iterations of EM, and how many standard deviations of the noise a count must be to be believed.
EPOCHS, SEEN = 200, 3.0


@message
class ViewProducts(Products):
    """Eq. (1), ((K + p)(K + p + 1)/2,): what is on the diagonal, and times √2 what is above."""


@summed
def views_privately(
    site: Site[FeatureTable, None], *, of: Array, clip: float
) -> Private[ViewProducts]:
    """Sum products of the columns of the views that rows have, eq. (1).

    Parameters
    ----------
    of : view of each column (p,).
    clip : C.
    """
    found = crossed(marked(site.data.x, of), clip)
    return Private(ViewProducts(found.value), {"upper": found.l2})


def marked(x: Array, of: Array) -> Array:
    """Return (m, x) of each row (n, K + p): 0 in views of which a row lacks an entry."""
    there = ~np.isnan(x)
    views = int(of.max()) + 1
    has = np.column_stack([there[:, of == k].all(axis=1) for k in range(views)])
    return np.column_stack([has, np.where(has[:, of], np.nan_to_num(x), 0.0)])


def releases(config: Settings, dp: Dp) -> Sequence[Release]:
    """Return the one release of a private fit.

    Raises
    ------
    SettingError : settings without a private fit; or (ε, δ) cannot be met.
    """
    if dp.unit != "record" and config.dp_route == "moments":
        raise SettingError(
            f"dp.unit is {dp.unit!r}, and one sum of products protects records; choose 'record', "
            f"or dp_route: differences."
        )
    if config.q == "auto":
        raise SettingError(
            "setting 'q' is 'auto', which looks at rows for each q, and a private fit asks once "
            "alone. Give a number."
        )
    if config.compare:
        raise SettingError(
            "setting 'compare' is true, which asks each site about its rows without noise. Leave "
            "it out of a private fit."
        )
    if config.dp_route == "differences":
        return differences.releases(config.dp_rounds, dp)
    return _releases(dp)


@lru_cache(maxsize=64)
def _releases(dp: Dp) -> tuple[Release, ...]:
    from fedcohort.privacy import accounting  # slow to import: only where noise is asked for

    def make(z: float) -> tuple[Release, ...]:
        return (Release(step=views_privately.name, noise=z),)

    return make(accounting.calibrate(make, dp))


def held(config: Settings, task: Task) -> Mapping[str, Mapping[str, Any]]:
    """Return by step the arguments that a site demands: the norm that rows are shortened to."""
    del config
    assert task.dp is not None
    clip, unit = {"clip": task.dp.norm}, {"unit": task.dp.unit}
    return {
        views_privately.name: clip,
        differences.changes_privately.name: clip | unit,
        differences.levels_privately.name: unit,
    }


def reveals(config: Settings, dp: Dp) -> str:
    """Say in plain words what leaves a site in a private fit."""
    del dp
    if config.dp_route == "differences":
        return (
            f"{config.dp_rounds} times, the sums over sites of by how much their parameters differ "
            f"from the common ones, cut by view."
        )
    return "Once, the sum over sites of products of the columns, and of rows that have each view."


def fit_privately(fed: Federation, config: Settings, task: Task, views: Views) -> Prior:
    """Ask once, and fit; or by rounds.

    Raises
    ------
    NothingToLearn : a view that too few rows have, to be told from the noise.
    """
    assert task.dp is not None
    if config.dp_route == "differences":
        frame = task.rng.standard_normal((len(views.of), views.q))
        return differences.fit(
            fed, frame, views, task.dp, rounds=config.dp_rounds, epochs=config.internal_epochs
        )
    (release,) = releases(config, task.dp)
    clip = task.dp.norm
    told = fed.sum(views_privately, of=views.of, clip=clip)
    noise = release.noise * clip**2 * math.sqrt(len(fed.sites))
    pattern = moments(unpacked(told.upper), views.of, noise)
    theta = start.principal([pattern], views)
    least = np.maximum(em.floors([pattern], views), LEAST)
    for _ in range(EPOCHS):
        theta = em.step([pattern], theta, Prior.flat(views), views, least)
    k, g = views.count, views.noises
    unknown = np.full(k, np.nan)
    alpha = np.full(g, MOST)
    return Prior(theta.mu, theta.w, unknown, unknown, alpha, alpha * theta.variance)


def moments(products: Array, of: Array, noise: float) -> Pattern:
    """Return eq. (2) as the pattern of a table that has all entries.

    Parameters
    ----------
    products : the sum of eq. (1) (K + p, K + p).
    noise : no less than the standard deviation of what was added to a diagonal entry.

    Raises
    ------
    NothingToLearn : as `fit_privately`.
    """
    k = int(of.max()) + 1
    counts, firsts, inner = products[:k, :k], products[:k, k:], products[k:, k:]
    own = counts.diagonal()
    if (few := own < max(SEEN * noise, 2.0)).any():
        raise NothingToLearn(
            f"{int(few.sum())} of {k} views cannot be told from the noise: too few rows have them, "
            f"at this epsilon. Ask for a larger epsilon, or add sites."
        )
    both = counts[of][:, of]
    seen = both >= max(SEEN * noise / math.sqrt(2.0), 2.0)
    seen |= of[:, None] == of
    pairs = np.where(seen, both, 1.0)
    cross = firsts[of]  # Σ of column j over the rows that have the view of column i
    covariance = np.where(seen, (inner - cross * cross.T / pairs) / pairs, 0.0)
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2.0)
    rows = max(round(float(own.max())), 2)
    root = np.sqrt(np.maximum(values, LEAST) * rows)
    mean = np.clip(firsts[of, np.arange(len(of))] / own[of], -1.0, 1.0)
    return Pattern(np.arange(len(of)), rows, mean, (vectors * root).T)
