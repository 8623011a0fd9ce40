"""Site steps of regressions of several classes. All replies are sums over sites.

Covariates are standardised by the pooled centre and scale, so coefficients are in log odds per
standard deviation. Parameters are those of `numerics.classes`, of all K classes.
"""

from __future__ import annotations

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data import exact
from fedcohort.data.isolation import by_class
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics.classes import multinomial_terms, ordinal_terms, wider_terms
from fedcohort.protocol import Site, message, summed

#: Laws of the outcome.
LAWS = ("multinomial", "ordinal")


@message
class Tally:
    """Number of records ``rows`` (), and by class ``ones`` (K,).

    Sums over the records of each class: weights w (K,), and w x (K, p).
    """

    rows: Array
    ones: Array
    weight: Array
    x: Array


@message
class Slopes:
    """The sums of `numerics.classes` at a point: log-likelihood (), score (k,), information (k, k).

    ``squares`` (2, m): Σ ω and Σ ω² of what records count in the information.
    """

    log_likelihood: Array
    score: Array
    information: Array
    squares: Array


@message
class Freed:
    """Score and information of a model whose effects differ between thresholds, at equal effects.

    ``score`` (K − 1, p + 1); ``own`` (K − 1, p + 1, p + 1), information of each threshold's
    parameters, and ``next`` (K − 2, p + 1, p + 1), with the next one's; the others are 0.
    """

    score: Array
    own: Array
    next: Array


ClassSite = Site[LabelledTable, None]


@summed
def tally(site: ClassSite, *, classes: int) -> Tally:
    """Count the records of each class, and sum their weights and covariates."""
    table = site.data
    w = weight_of(table)
    mine = by_class(np.asarray(table.y, float), classes)
    return Tally(
        rows=np.array(len(w)),
        ones=mine.sum(axis=0).astype(np.int64),
        weight=w @ mine,
        x=(mine.T * w) @ table.x,
    )


@summed
def slopes(
    site: ClassSite, *, law: str, classes: int, centre: Array, scale: Array, gamma: Array
) -> Slopes:
    """Sum the log-likelihood, its gradient and its curvature over all records.

    At `gamma`, ((K − 1)(p + 1),) or (K − 1 + p,), with `centre` and `scale` (p,).
    """
    z, y, w = _columns(site.data, centre, scale)
    if law == "ordinal":
        found = ordinal_terms(z[:, 1:], y, w, gamma, classes)
    else:
        found = multinomial_terms(z, y, w, gamma.reshape(classes - 1, -1))
    return Slopes(np.array(found.log_likelihood), *found[1:])


@summed
def freed(site: ClassSite, *, classes: int, centre: Array, scale: Array, gamma: Array) -> Freed:
    """Sum what tells whether the effects differ between the thresholds, once, at the end."""
    z, y, w = _columns(site.data, centre, scale)
    return Freed(*wider_terms(z, y, w, gamma[: classes - 1], gamma[classes - 1 :]))


STEPS = (*exact.STEPS, tally, slopes, freed)


def weight_of(table: LabelledTable) -> Array:
    """Return the weight of each record (n,)."""
    return np.ones(len(table.y)) if table.weight is None else table.weight


def _columns(table: LabelledTable, centre: Array, scale: Array) -> tuple[Array, Array, Array]:
    """Return z (n, p + 1), standardised after a column of ones, class (n,) and weight (n,)."""
    z = np.ones((len(table.y), 1 + len(centre)))
    z[:, 1:] = (table.x - centre) / scale
    return z, np.asarray(table.y, np.int64), weight_of(table)
