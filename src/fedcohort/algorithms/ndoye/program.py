"""Adapted Ndoye factor: sites are ranked by the loss of their own models on the user's rows.

Grimberg, "Privacy-preserving and personalized federated machine learning for medical data", EPFL
2020, section 4.3, after Ndoye et al., "Collaborative privacy", 2020. Site i fits f_i to its rows
S_i, and cross-validates it there; with the user's rows S_0 and L as eq. (2) of
`training.coalitions`,

    L̂_i = L_{S_0}(f_i) − L̂CV_{S_i}(f_i)                                                  (1)

is the transfer loss. For a site of the user's population it is near 0, whatever its size. Sites are
ranked by it, the smallest first; the first k, or those up to a threshold, are trained with:

    f = eq. (1) of `training.coalitions` over the rows of the user and of these sites        (2)

The user's rows train f, so they do not judge it. Sites state their own L̂CV, and a lie is not
detected: the ranking withstands no attack.

Revealed: `OwnModel` of each site, once, unless it could tell about few rows
(`training.disclosure`); `Losses` of the user's site, once; `Pooled` every round, as a sum over the
user and the chosen sites. With no other site chosen, f is the user's own f_0, which is known.
"""

from __future__ import annotations

import math

import numpy as np

from fedcohort.algorithms.ndoye.model import NdoyeModel
from fedcohort.algorithms.ndoye.settings import NdoyeSettings
from fedcohort.algorithms.ndoye.steps import own_model, pooled_here
from fedcohort.arrays import Array
from fedcohort.protocol import DataError, Federation, SettingError, Task, check_all_answered
from fedcohort.training.coalitions import (
    Law,
    Sums,
    ascend,
    gone,
    judged,
    law_of,
    origin_of,
    unshifted,
    user_of,
)
from fedcohort.training.disclosure import FINE, Hidden, why

#: Default of the fewest chosen sites: two hide each other.
FEWEST = 2


def fit(fed: Federation, config: NdoyeSettings, task: Task) -> NdoyeModel:
    """Rank the other sites for the user, and train with the first.

    Raises
    ------
    SettingError : no user, an unknown user, a model that does not fit the outcome, or more sites
        requested than are ranked.
    DataError : no covariates, or the user's rows are too few.
    SiteUnavailable : the user's site, or a chosen one, does not answer.
    """
    law, origin = law_of(config.model, task, "ndoye"), origin_of(task)
    user = user_of(fed, config.user, "ndoye")
    least = max(task.min_cell, 1) if len(fed.sites) > 1 else 1
    next(iter(fed.rounds(1)))
    replies = fed.gather(
        own_model, law=law.name, classes=law.classes, origin=origin, l2=config.l2,
        n_folds=config.n_folds, least=least,
    )  # fmt: skip
    if user not in replies:
        raise gone(user)
    refused = {
        site: why(Hidden(int(one.reason), one.blame), task.features, least)
        for site, one in replies.items()
        if one.reason != FINE
    }
    if user in refused:
        raise DataError(f"site {user!r}, the user, cannot tell its model: {refused[user]}.")
    sites = [site for site in replies if site != user and site not in refused]
    transfer = np.zeros(0)
    if sites:
        points = np.stack([replies[site].gamma for site in sites])
        transfer = judged(fed, user, law, 0, origin, points, least)
    own = np.array([float(replies[site].loss) for site in sites])
    order = np.argsort(transfer - own, kind="stable")
    chosen = how_many((transfer - own)[order], config)
    with_user = [user, *(sites[i] for i in order[:chosen])]
    fed.record(ranked=float(len(sites)), chosen=float(chosen), own_loss=float(replies[user].loss))
    gamma = replies[user].gamma
    if config.train and chosen:
        gamma = trained(fed.only(with_user).awaiting(), law, config.l2, origin)
    intercept, beta = unshifted(law, gamma, origin)
    return NdoyeModel(
        features=task.features,
        user=user,
        law=law.name,
        levels=task.levels if law.classes else (),
        intercept=intercept,
        coefficients=beta,
        left_out=refused,
        sites=tuple(sites[i] for i in order),
        transfer=transfer[order],
        own=own[order],
        chosen=chosen,
        user_loss=float(replies[user].loss),
        trained=config.train,
    )


def how_many(factors: Array, config: NdoyeSettings) -> int:
    """Return the number of chosen sites, from L̂ of all (m,), the smallest first.

    Raises
    ------
    SettingError : more are requested than there are.
    """
    m = len(factors)
    if config.k is not None:
        if config.k > m:
            raise SettingError(
                f"setting 'k' of method 'ndoye' is {config.k}, but only {m} other sites are "
                f"ranked. Give {m} or fewer."
            )
        return config.k
    if config.threshold is not None:
        return int((factors <= config.threshold).sum())
    return min(m, max(FEWEST, math.ceil(m / 2)))


def trained(fed: Federation, law: Law, l2: float, origin: Array) -> Array:
    """Return γ (k,) of eq. (2) over all sites of `fed`."""
    steps = 0

    def at(points: Array, _: Array) -> Sums:
        nonlocal steps
        sums = fed.sum(
            pooled_here, law=law.name, classes=law.classes, origin=origin, point=points[0]
        )
        check_all_answered(fed)
        steps += 1
        fed.record(step=float(steps), deviance=float(sums.deviance))
        return Sums(*(np.asarray(part, float)[None] for part in vars(sums).values()))

    start = np.zeros((1, law.size(len(origin))))
    return ascend(at, start, law.ridge(len(origin), l2), straight=law.straight)[0]
