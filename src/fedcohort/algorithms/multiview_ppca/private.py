"""Multi-view PPCA with differential privacy: noisy sums of products, once.

The paper (section 3.2) adds noise to every site's parameters in every round, so the budget is spent
100 times (`differences`). But the likelihood of a linear Gaussian model depends only on the number
and the first and second moments of the rows with the same views. So each row is clipped to C and
adds

    v vᵀ,  v = min(1, C/‖(1, x)‖) (1, x)                                                   (1)

with the columns of its complete views, to the sum of the rows with these views: one sum for each
set of views, 2^K − 1 side by side. Each row is in one of them, so adding or removing a row changes
all together by a matrix of norm ≤ C². The rest costs nothing: EM
(`algorithms.multiview_ppca.maths.em`) needs the mean and the covariance of each set with more rows
than the noise could give, with eigenvalues raised to `LEAST`. A row may lack a view for reasons
that depend on its other views.

If these would be more than `MOST_NUMBERS`, there is one sum, with m_k = 1 if a row has all of view
k, else m_k = 0 and x = 0 there:

    v vᵀ,  v = min(1, C/‖(m, x)‖) (m, x)                                                   (2)

For columns i of view k and j of view l, over the rows with both views, with weights n_kl,

    cov_ij = (Σ x_i x_j − Σ m_l x_i · Σ m_k x_j / n_kl) / n_kl                              (3)

Views that no row has together are taken as uncorrelated. If the rows that lack a view differ in the
others, eq. (3) is over other patients for each pair of views, and imputations are biased.

All sites are one table here: differences between sites are not estimated.

Revealed: `ViewProducts` once, with noise, as a sum over the sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fedcohort.algorithms.multiview_ppca import differences
from fedcohort.algorithms.multiview_ppca.maths import em, start
from fedcohort.algorithms.multiview_ppca.maths.inverse_gamma import MOST
from fedcohort.algorithms.multiview_ppca.maths.model import Prior, Views
from fedcohort.algorithms.multiview_ppca.maths.moments import Pattern
from fedcohort.algorithms.multiview_ppca.settings import Settings
from fedcohort.arrays import Array
from fedcohort.data.tables import FeatureTable
from fedcohort.privacy.statistics import Statistic, cross_products
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
from fedcohort.training.linear.private_products import Products, unpacked

#: Default of C. Columns are within [−1, 1], and most values near 0.
CLIPS = {"record": 1.5}
#: Least eigenvalue of the covariance.
LEAST = 1e-4
#: Iterations of EM; smallest credible count, in standard deviations of the noise.
EPOCHS, SEEN = 100, 2.0
#: Most entries of the sums over all sets of views, and most views.
MOST_NUMBERS, MOST_VIEWS = 250_000, 8


@message
class ViewProducts(Products):
    """Eq. (1) for each of `sets`, one after the other; or eq. (2), ((K + p)(K + p + 1)/2,).

    Of each matrix the diagonal, and the entries above it times √2.
    """


@summed
def views_privately(
    site: Site[FeatureTable, None], *, of: Array, clip: float
) -> Private[ViewProducts]:
    """Sum products of the columns of complete views, eq. (1) or (2).

    Parameters
    ----------
    of : view of each column (p,).
    clip : C.
    """
    found = products(site.data.x, of, clip)
    return Private(ViewProducts(found.value), {"upper": found.l2})


def products(x: Array, of: Array, clip: float) -> Statistic:
    """Return the sum of a site's rows x (n, p), eq. (1) or (2), before noise."""
    kinds = sets(of)
    if not kinds:
        return cross_products(marked(x, of), clip)
    which = _has(x, of) @ (1 << np.arange(int(of.max()) + 1))
    parts: list[Statistic] = []
    for code, columns in enumerate(kinds, 1):
        rows = x[which == code][:, columns]
        parts.append(cross_products(np.column_stack([np.ones(len(rows)), rows]), clip))
    # a row is in one part, so the sensitivity is the largest of the parts'
    value = np.concatenate([part.value for part in parts])
    return Statistic(value, max(part.l1 for part in parts), max(part.l2 for part in parts))


def sets(of: Array) -> list[Array]:
    """Return the columns of each set of views; the c-th set, from 1, has view k if c has bit k.

    Empty if eq. (1) would be more than `MOST_NUMBERS`, or views more than `MOST_VIEWS`.
    """
    k = int(of.max()) + 1
    if k > MOST_VIEWS:
        return []
    bits = (np.arange(1, 1 << k)[:, None] >> np.arange(k)) & 1
    found = [np.flatnonzero(row[of]) for row in bits]
    return found if sum(map(_size, found)) <= MOST_NUMBERS else []


def _size(columns: Array) -> int:
    """Return the number of entries of eq. (1) for so many columns."""
    return (len(columns) + 1) * (len(columns) + 2) // 2


def _has(x: Array, of: Array) -> Array:
    """Return the complete views of each row (n, K)."""
    there = ~np.isnan(x)
    return np.column_stack([there[:, of == k].all(axis=1) for k in range(int(of.max()) + 1)])


def marked(x: Array, of: Array) -> Array:
    """Return (m, x) of each row (n, K + p), with x = 0 in incomplete views."""
    has = _has(x, of)
    return np.column_stack([has, np.where(has[:, of], np.nan_to_num(x), 0.0)])


def releases(config: Settings, dp: Dp) -> Sequence[Release]:
    """Return the releases of a private fit.

    Raises
    ------
    SettingError : a setting has no private fit, or (ε, δ) cannot be met.
    """
    if dp.unit != "record" and config.dp_route == "moments":
        raise SettingError(
            f"dp.unit is {dp.unit!r}, but one sum of products protects only records; choose "
            f"'record', or dp_route: differences."
        )
    if config.q == "auto":
        raise SettingError(
            "setting 'q' is 'auto', which needs the rows for each q, but a private fit asks only "
            "once. Give a number."
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
    from fedcohort.privacy import accounting  # slow to import

    def make(z: float) -> tuple[Release, ...]:
        return (Release(step=views_privately.name, noise=z),)

    return make(accounting.calibrate(make, dp))


def held(config: Settings, task: Task) -> Mapping[str, Mapping[str, Any]]:
    """Return the arguments that a site checks, by step: clipping norm and protected unit."""
    del config
    assert task.dp is not None
    clip, unit = {"clip": task.dp.norm}, {"unit": task.dp.unit}
    return {
        views_privately.name: clip,
        differences.changes_privately.name: clip | unit,
        differences.levels_privately.name: unit,
    }


def reveals(config: Settings, dp: Dp) -> str:
    """Return, in plain words, what leaves a site in a private fit."""
    del dp
    if config.dp_route == "differences":
        return (
            f"{config.dp_rounds} times, the sums over sites of by how much their parameters differ "
            f"from the common ones, cut by view."
        )
    return (
        "Once, the sum over sites of rows and of products of their columns, for each set of views "
        "that a row has."
    )


def fit_privately(fed: Federation, config: Settings, task: Task, views: Views) -> Prior:
    """Return the common distribution of a private fit, from one sum or by rounds.

    Raises
    ------
    NothingToLearn : a view has too few rows to be told from the noise.
    """
    assert task.dp is not None
    if config.dp_route == "differences":
        frame = task.rng.standard_normal((len(views.of), views.q))
        return differences.fit(
            fed, frame, views, task.dp, rounds=config.dp_rounds, epochs=config.internal_epochs
        )
    (release,) = releases(config, task.dp)
    clip = task.dp.norm
    reply = fed.sum(views_privately, of=views.of, clip=clip)
    noise = release.noise * clip**2 * math.sqrt(len(fed.sites))
    found = read(reply.upper, views.of, noise)
    theta = start.principal(found, views)
    least = np.maximum(em.floors(found, views), LEAST)
    for _ in range(EPOCHS):
        theta = em.step(found, theta, Prior.flat(views), views, least)
    k, g = views.count, views.noises
    unknown = np.full(k, np.nan)
    alpha = np.full(g, MOST)
    return Prior(theta.mu, theta.w, unknown, unknown, alpha, alpha * theta.variance)


def read(upper: Array, of: Array, noise: float) -> list[Pattern]:
    """Return the patterns of noisy sums of `products`.

    Parameters
    ----------
    noise : at least the standard deviation of the noise of a diagonal entry.

    Raises
    ------
    NothingToLearn : as `fit_privately`.
    """
    kinds = sets(of)
    if not kinds:
        return [moments(unpacked(upper), of, noise)]
    ends = np.cumsum([_size(columns) for columns in kinds])
    found: list[Pattern] = []
    seen = np.zeros(len(of), bool)
    for columns, own in zip(kinds, np.split(upper, ends[:-1]), strict=True):
        total = unpacked(own)
        n = float(total[0, 0])
        if n < max(SEEN * noise, 2.0):
            continue
        mean = np.clip(total[0, 1:] / n, -1.0, 1.0)
        covariance = total[1:, 1:] / n - np.outer(mean, mean)
        found.append(_pattern(columns, n, mean, covariance))
        seen[columns] = True
    _check_seen(np.isin(np.arange(int(of.max()) + 1), of[seen]))
    return found


def _pattern(columns: Array, n: float, mean: Array, covariance: Array) -> Pattern:
    """Return rows with this mean and covariance, its eigenvalues raised to `LEAST`."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2.0)
    rows = max(round(n), 2)
    root = np.sqrt(np.maximum(values, LEAST) * rows)
    return Pattern(columns, rows, mean, (vectors * root).T)


def _check_seen(seen: Array) -> None:
    if not seen.all():
        raise NothingToLearn(
            f"{int((~seen).sum())} of {len(seen)} views cannot be told from the noise: too few "
            f"rows have them, at this epsilon. Ask for a larger epsilon, or add sites."
        )


def moments(products: Array, of: Array, noise: float) -> Pattern:
    """Return eq. (3) as the pattern of a table without missing entries.

    Parameters
    ----------
    products : the sum of eq. (2) (K + p, K + p).
    noise : at least the standard deviation of the noise of a diagonal entry.

    Raises
    ------
    NothingToLearn : as `fit_privately`.
    """
    k = int(of.max()) + 1
    counts, firsts, inner = products[:k, :k], products[:k, k:], products[k:, k:]
    own = counts.diagonal()
    _check_seen(own >= max(SEEN * noise, 2.0))
    both = counts[of][:, of]
    seen = both >= max(SEEN * noise / math.sqrt(2.0), 2.0)
    seen |= of[:, None] == of
    pairs = np.where(seen, both, 1.0)
    cross = firsts[of]  # Σ of column j over the rows that have the view of column i
    covariance = np.where(seen, (inner - cross * cross.T / pairs) / pairs, 0.0)
    mean = np.clip(firsts[of, np.arange(len(of))] / own[of], -1.0, 1.0)
    return _pattern(np.arange(len(of)), float(own.max()), mean, covariance)
