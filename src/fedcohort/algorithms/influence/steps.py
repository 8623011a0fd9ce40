"""Site steps of `influence`: sums for the fits of coalitions, and the user's losses."""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import gathered, message
from fedcohort.training.coalitions import Law, UserSite, halves, judge_here, sums_at
from fedcohort.training.disclosure import FINE, hidden


@message
class OwnSums:
    """A site's sums at C points, which coalitions add up.

    ``reason`` () and ``blame`` (p,) explain missing sums, see `training.disclosure`; ``rows`` (),
    ``deviance`` (C,), ``score`` (C, k), ``information`` (C, k, k).
    """

    reason: Array
    blame: Array
    rows: Array
    deviance: Array
    score: Array
    information: Array


@gathered
def own_sums(
    site: UserSite,
    *,
    law: str,
    classes: int,
    user: str,
    held: int,
    origin: Array,
    points: Array,
    least: int,
) -> OwnSums:
    """Sum the deviance, the score and the information over the site's rows, at several points.

    The points are `points` (C, k), for covariates centred at `origin` (p,). The user's site leaves
    out its private rows, `held` percent, and needs rows of every class. A site whose sums would
    tell about few rows returns only the reason.
    """
    x, y = site.data.x - origin, np.asarray(site.data.y, float)
    if site.name == user:
        rows, _ = halves(len(y), held, site.entropy)
        x, y = x[rows], y[rows]
    by, own = Law(law, classes), site.name == user
    k = by.size(x.shape[1])
    found = hidden(x, y, k, least, kinds=by.kinds, crossed=True, every=own)
    sums = sums_at(by, x, y, points[: len(points) * (not found.reason)])
    return OwnSums(
        np.array(found.reason),
        found.blame,
        np.array(len(y) if found.reason == FINE else 0),
        sums.deviance,
        sums.score,
        sums.information,
    )


STEPS = (own_sums, judge_here)
