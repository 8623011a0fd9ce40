"""How few records a cross-product is over: what the coordinator must not be able to read off.

A sum over few records is those records. Let d be a row of covariates and outcome, less the origin:
the value that stands in for a missing one (a median, a mode; 0 of levels and of the outcome). In a
sum of d dᵀ,

    a column of which k rows differ from the origin                 tells about these k
    one with two values, as (Σd)² = k Σd² shows                     also about the n − k others
    two such columns, in units of d, their difference               about Σ (dᵢ − dⱼ)² rows
    the same, less one                                              about the others

and each must be over none, or over `min_cell` rows or more. Where the common value of a column is
not the origin to the last digit, k is at least (Σ d²)²/Σ d⁴, and, where all sites share that value,
the rows that differ from their site's median: the larger of the two stands for k. Of the outcome,
which has no fill, it is the latter where these are few. And a row that is nearly all of a column's
spread, eq. (1) of `data.isolation`, is told by the sums with that column: it is refused too, in a
fold only where it hides all else.

Preprocessing has pooled rare levels and left out rare 0/1 columns before any of this is asked;
numbers of which nearly all are the same are refused, and 0/1 columns that nearly agree. The
coordinator has then seen the sums. Combinations of three covariates and more are not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcohort.algorithms.linear.steps import Products
from fedcohort.arrays import Array
from fedcohort.data.isolation import nearly_given, too_far
from fedcohort.privacy.disclosure.records import LONE, lone
from fedcohort.protocol import NothingToLearn

#: The two sides of (Σd)² = k Σd² are equal when they differ by less than this share.
ALIKE = 1e-9
#: Of a fold's few rows one may be far from the others by chance: 0.99 of the squares are too much.
LONE_IN_A_FOLD = 1.02


def telling(told: Products, origin: Array, centre: Array, least: int = 0) -> Array:
    """Return over how few rows a cross-product is, by the header's list: (q, q) or (F, q, q).

    The first two lines stand on the diagonal, the others beside it; 0 where nothing is told.

    Parameters
    ----------
    told : of all rows, or by fold.
    origin, centre : (q,), what `away` counts from, and what the sums are about.
    least : rows below which those count of which the outcome is not their site's median.
    """
    shift, rows = centre - origin, told.rows[..., None].astype(float)
    total = told.total + rows * shift
    inner = told.inner + told.total[..., :, None] * shift + shift[:, None] * total[..., None, :]
    squares, away = _diagonal(inner), told.away.astype(float)
    two = (np.abs(total**2 - away * squares) <= ALIKE * away * squares) & (away > 0) & (away < rows)
    size = np.where(two, squares / np.where(two, total, 1.0), 1.0)
    both = inner / (size[..., :, None] * size[..., None, :])
    differ = away[..., :, None] + away[..., None, :] - 2 * both
    pairs = np.rint(_fewer(differ, rows[..., None])) * (two[..., :, None] & two[..., None, :])
    own = _diagonal(told.inner) ** 2
    shown = np.divide(own, told.fourth, out=np.zeros_like(own), where=told.fourth > 0)
    some = np.minimum(away, np.maximum(told.odd, np.ceil(shown)))
    odd = told.odd[..., -1]
    some[..., -1] = np.where((odd > 0) & (odd < least), odd, some[..., -1])
    alone = np.where(two, _fewer(away, rows), some)
    return np.where(np.eye(len(shift), dtype=bool), alone[..., None], pairs).astype(int)


def _diagonal(matrices: Array) -> Array:
    return np.diagonal(matrices, axis1=-2, axis2=-1)


def _fewer(some: Array, rows: Array) -> Array:
    """Return the smaller of two parts of the rows, or the other where one is empty."""
    others = rows - some
    return np.where((some > 0.5) & (others > 0.5), np.minimum(some, others), 0.0)


def check_cells(told: Products, rarest: Array, names: Sequence[str], least: int) -> None:
    """Refuse sums over fewer than `least` rows, but over none.

    Parameters
    ----------
    names : of the covariates, p.

    Raises
    ------
    NothingToLearn : there are too few rows, or rows that differ; the columns are named.
    """
    if not told.rows.sum():
        raise NothingToLearn("no site holds any record; check their selection.")
    where, remedy = "at all sites together", "Leave it out"
    if told.rows.ndim:
        where, remedy = "in a fold", "Leave it out, set another seed or rule 'bic'"
    if ((told.rows > 0) & (told.rows < least)).any():
        raise NothingToLearn(
            f"there are fewer than {least} records (min_cell) {where}. Add sites or records; or "
            f"lower min_cell, if all sites agree."
        )
    few = ((rarest > 0) & (rarest < least)).reshape(-1, *rarest.shape[-2:]).any(axis=0)
    if not few.any() and least > 1:
        share = LONE if told.rows.ndim == 0 else LONE_IN_A_FOLD
        alone = lone(told.spread[..., 0, :], told.spread[..., 1, :], share)
        for column in np.flatnonzero(alone.reshape(-1, alone.shape[-1]).any(axis=0)).tolist():
            raise NothingToLearn(too_far(called(names, column), where))
        given = lone(told.rest[..., 0, :], told.rest[..., 1, :])
        if given.any():
            blame = [called(names, j) for j in np.flatnonzero(given).tolist()]
            raise NothingToLearn(nearly_given(blame, where, least))
    if not few.any():
        return
    i, j = np.argwhere(few)[0].tolist()
    what = f"{called(names, i)} has the same value in"
    if i != j:
        what = f"{called(names, i)} and {called(names, j)} agree in"
    raise NothingToLearn(
        f"{what} all but a few records (fewer than min_cell, {least}) {where}, so that sums are "
        f"over those few. {remedy}, or lower min_cell, if all sites agree."
    )


def called(names: Sequence[str], column: int) -> str:
    """Return what a column of `Products` is called."""
    return repr(names[column]) if column < len(names) else "the outcome"
