"""Site steps of `influence`: what coalitions are fitted by, and the user's losses."""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.numerics.families import CANONICAL, Family
from fedcohort.protocol import gathered, message
from fedcohort.training.coalitions import UserSite, halves, judge_here, sums_at
from fedcohort.training.disclosure import FINE, hidden


@message
class OwnSums:
    """A site's sums at C points, which coalitions add up.

    ``reason`` () and ``blame`` (p,) say why there are none, see `training.disclosure`; ``rows`` (),
    ``deviance`` (C,), ``score`` (C, k), ``information`` (C, k, k), k = 1 + p.
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
    user: str,
    held: int,
    origin: Array,
    points: Array,
    least: int,
) -> OwnSums:
    """Sum the deviance, its slope and its curvature over the site's rows, at several points.

    The points are `points` (C, k), of covariates counted from `origin` (p,). The user's site leaves
    out its private rows, `held` percent of all. A site whose sums would tell of few rows says that
    alone.
    """
    x, y = site.data.x - origin, np.asarray(site.data.y, float)
    if site.name == user:
        rows, _ = halves(len(y), held, site.entropy)
        x, y = x[rows], y[rows]
    kinds = law == "binomial"
    found = hidden(x, y, points.shape[1], least, kinds=kinds, crossed=True)
    told = sums_at(Family(law, CANONICAL[law]), x, y, points[: len(points) * (not found.reason)])
    return OwnSums(
        np.array(found.reason),
        found.blame,
        np.array(len(y) if found.reason == FINE else 0),
        told.deviance,
        told.score,
        told.information,
    )


STEPS = (own_sums, judge_here)
