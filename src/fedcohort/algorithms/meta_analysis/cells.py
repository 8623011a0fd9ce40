"""Check that a site's own coefficients neither count nor single out few of its records.

Coefficients and standard errors of a 2 × 2 table give the table: with a records of class 1 and b of
class 0 at x = 0, b₀ = log(a/b), and its squared error is 1/a + 1/b. So, for yes/no outcomes, counts
above 0 and events, each of these numbers of records is 0 or at least `least`:

    margins    of each kind of outcome at each value of a covariate with two values
    patterns   the same at each pattern of covariates, if all have two values and the patterns are
               no more than the numbers that may be revealed, k (k + 3)/2

No single record may have nearly all of a column's spread. No group of few records may differ by a
weight, an offset, or a column that the others predict for all other records. These are the rules of
`data.isolation` and `data.differences` for one site.
"""

from __future__ import annotations

import numpy as np

from fedcohort.algorithms.meta_analysis.sitefit import SiteFit
from fedcohort.arrays import Array
from fedcohort.data.differences import own_differences
from fedcohort.data.isolation import STEEPEST, ways
from fedcohort.privacy.disclosure.records import lone

#: More reasons for no coefficients; the others are in `algorithms.meta_analysis.sitefit`.
SMALL_CELL, ALONE, HEAVY, NEAR, SAME = range(100, 105)


def singled_out(
    x: Array,
    outcome: Array,
    offset: Array,
    weight: Array,
    *,
    kind: Array | None,
    link: str,
    coefficients: int,
    least: int,
) -> SiteFit | None:
    """Return the refusal of a table whose coefficients would tell of few records, or None.

    Parameters
    ----------
    x : (n, p).
    outcome : (n, 1); (n, 0) for survival.
    offset, weight : (n,).
    kind : (n,) bool, the kind of each record's outcome; None without kinds.
    link : by which the offset acts.
    coefficients : k.
    """
    if least < 2:
        return None
    p, reason = x.shape[1], 0
    blame = np.zeros(p, bool)
    if heavy(weight, offset, link, least):
        reason = HEAVY
    elif (far := alone(np.column_stack([x, outcome]))).any():
        reason, blame = ALONE, far[:p]
    elif outcome.size and 0 < len(x) - np.unique(outcome, return_counts=True)[1].max() < least:
        reason = SAME
    elif (near := own_differences(_with(x, outcome, kind), least)[:p]).any():
        reason, blame = NEAR, near
    elif kind is not None and (small := small_cells(x, kind, coefficients, least)).any():
        reason, blame = SMALL_CELL, small
    if not reason:
        return None
    return SiteFit(reason, blame, np.zeros(coefficients), np.zeros((coefficients, coefficients)))


def small_cells(x: Array, kind: Array, coefficients: int, least: int) -> Array:
    """Return the covariates (p,) with a value that has few records of a kind of outcome."""
    places = [np.unique(column, return_inverse=True)[1] for column in x.T]
    two = np.array([place.max(initial=0) == 1 for place in places], bool)
    few = two & np.array([_few(place, kind, least) for place in places], bool)
    if few.any() or not two.all():
        return few
    pattern = np.unique(x, axis=0, return_inverse=True)[1].reshape(-1)
    revealed = coefficients * (coefficients + 3) // 2
    return two & (pattern.max(initial=0) < revealed and _few(pattern, kind, least))


def alone(columns: Array) -> Array:
    """Return the columns (q,) in which one record has nearly all of the squares about the median.

    `columns` is (n, q).
    """
    squares = (columns - np.median(columns, axis=0)) ** 2
    return lone(squares.sum(axis=0), (squares**2).sum(axis=0))


def heavy(weight: Array, offset: Array, link: str, least: int) -> bool:
    """Return whether few records have nearly all the weight, or another weight or offset (n,)."""
    for one in (weight, offset):
        different = len(one) - int(np.unique(one, return_counts=True)[1].max())
        if 0 < different < least:
            return True
    steep = np.clip(offset - np.median(offset), -STEEPEST, STEEPEST)
    count = [weight * np.exp(way * steep) for way in ways(link)]
    return bool(alone(offset[:, None])[0]) or any(c.sum() ** 2 < least * (c @ c) for c in count)


def _with(x: Array, outcome: Array, kind: Array | None) -> Array:
    """Return covariates and outcome; for survival the outcome is its kind."""
    last = outcome if outcome.shape[1] or kind is None else kind[:, None]
    return np.column_stack([x, last.astype(float)])


def _few(place: Array, kind: Array, least: int) -> bool:
    counts = np.bincount(2 * place + kind)
    return bool(((counts > 0) & (counts < least)).any())
