"""Site steps of `ndoye`: a site's own model with its cross-validated loss, and sums for training.

Folds are drawn by (study seed, site); they have equal shares of the classes of an outcome.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import gathered, message, summed
from fedcohort.training.coalitions import Law, UserSite, ascend, judge_here, losses, sums_at
from fedcohort.training.disclosure import FINE, hidden

_TAG = 0x666F6C64


@message
class OwnModel:
    """A site's model and its cross-validated loss.

    ``reason`` () and ``blame`` (p,) explain a missing model, see `training.disclosure`; ``gamma``
    (k,), the intercept of a class first, for covariates centred at the origin; ``loss`` ().
    """

    reason: Array
    blame: Array
    gamma: Array
    loss: Array


@message
class Pooled:
    """Sums over rows at γ: ``rows`` (), deviance (), score (k,), information (k, k)."""

    rows: Array
    deviance: Array
    score: Array
    information: Array


@gathered
def own_model(
    site: UserSite, *, law: str, classes: int, origin: Array, l2: float, n_folds: int, least: int
) -> OwnModel:
    """Fit the site's own model, and cross-validate its loss.

    A site whose model would tell about few rows returns only the reason.
    """
    x, y = site.data.x - origin, np.asarray(site.data.y, float)
    by = Law(law, classes)
    k = by.size(x.shape[1])
    found = hidden(x, y, k, least, kinds=by.kinds, crossed=False, every=True)
    if found.reason != FINE:
        none = np.zeros(k)
        return OwnModel(np.array(found.reason), found.blame, none, np.array(0.0))
    fold = folds(y, n_folds, bool(by.kinds), site.entropy)
    total = 0.0
    for k in range(fold.max() + 1):
        out = fold == k
        gamma = fitted(by, x[~out], y[~out], l2)
        total += float(losses(by, x[out], y[out], gamma[None])[0]) * int(out.sum())
    return OwnModel(np.array(FINE), found.blame, fitted(by, x, y, l2), np.array(total / len(y)))


@summed
def pooled_here(site: UserSite, *, law: str, classes: int, origin: Array, point: Array) -> Pooled:
    """Sum the deviance, the score and the information over all rows at one point.

    The point is `point` (k,). Covariates are centred at `origin` (p,).
    """
    y = np.asarray(site.data.y, float)
    found = sums_at(Law(law, classes), site.data.x - origin, y, point[None])
    return Pooled(*(part[0] for part in found))


STEPS = (own_model, judge_here, pooled_here)


def folds(y: Array, n_folds: int, kinds: bool, entropy: tuple[int, ...]) -> Array:
    """Return the fold (n,) of each row, from 0; sizes differ by at most one row.

    Parameters
    ----------
    kinds : whether to stratify by y.
    """
    order = np.random.default_rng((*entropy[:2], _TAG)).permutation(len(y))
    if kinds:
        order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), int)
    fold[order] = np.arange(len(y)) % n_folds
    return fold


def fitted(law: Law, x: Array, y: Array, l2: float) -> Array:
    """Return γ (k,) of eq. (1) of `training.coalitions` over the rows of one table."""
    start = np.zeros((1, law.size(x.shape[1])))
    ridge = law.ridge(x.shape[1], l2)
    return ascend(lambda p, _: sums_at(law, x, y, p), start, ridge, straight=law.straight)[0]
