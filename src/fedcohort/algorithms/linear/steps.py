"""Site steps of the linear methods. Both are sums: no site's own numbers are ever seen.

With z = (x, y) − centre, over the rows of a site, or over those of each fold:

    n,   Σ z,   Σ z zᵀ                                                                     (1)

A row's fold is its site's, or a hash of the row's own values and of the seed: it depends neither on
the order of the rows nor on the site that holds them. All sites are told how all are dealt, and
look at their own rows in each fold (`data.folds`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.differences import differences
from fedcohort.data.folds import BY_ROW, check_rows, own_fold
from fedcohort.data.isolation import FARTHEST, isolation
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics.residuals import own_powers
from fedcohort.protocol import SettingError, Site, message, summed

#: Steps and multipliers of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
STEP, FIRST, SECOND = (
    np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
#: A site sums over no more folds than these, which would come near to single rows.
MOST_FOLDS = 20


@message
class Products:
    """Eq. (1): ``rows`` (), ``total`` (q,), ``inner`` (q, q); q is p + 1, and the outcome is last.

    To tell over how few rows a sum is (`cells`): ``away`` (q,), how many differ from the origin in
    each column; ``odd`` (q,), from their site's own median; ``fourth`` (q,), Σ z⁴; and ``spread``
    (2, q), sums of squares and of fourth powers about that median; ``rest`` (2, q), those of each
    column's residuals on the others at its site. Of F folds, every field has F as its first
    dimension, and ``rest`` is 0.
    """

    rows: Array
    total: Array
    inner: Array
    away: Array
    odd: Array
    fourth: Array
    spread: Array
    rest: Array


LabelledSite = Site[LabelledTable, None]


@summed
def products(site: LabelledSite, *, origin: Array, centre: Array) -> Products:
    """Sum the cross-products of all rows, each column about one point, the same at all sites."""
    rows = _joined(site.data)
    return _products(rows, origin, centre, own_powers(rows))


@summed
def fold_products(
    site: LabelledSite,
    *,
    origin: Array,
    centre: Array,
    dealt: Mapping[str, int],
    n_folds: int,
    seed: int,
    min_cell: int,
) -> Products:
    """Sum the cross-products of each fold of rows.

    All rows of a site are in its fold of `dealt`, or, with `BY_ROW`, each is by a hash of its
    values.

    Raises
    ------
    SettingError : more than `MOST_FOLDS` folds.
    Refused : a deal that would tell of one site, or of fewer than `min_cell` rows.
    """
    if n_folds > MOST_FOLDS:
        raise SettingError(f"{n_folds} folds are asked for; give at most {MOST_FOLDS}.")
    rows = _joined(site.data)
    fold = own_fold(site.name, dealt, n_folds, min_cell)
    place = hashed(rows, seed) % np.uint64(n_folds) if fold == BY_ROW else np.full(len(rows), fold)
    check_rows(site.name, place, dealt, min_cell)
    nothing = np.zeros((2, rows.shape[1]))
    parts = [_products(rows[place == k], origin, centre, nothing) for k in range(n_folds)]
    names = Products.__dataclass_fields__
    return Products(**{name: np.stack([getattr(part, name) for part in parts]) for name in names})


def hashed(rows: Array, seed: int) -> Array:
    """Return a number below 2⁶⁴ for each of `rows` (n, q), from its values and the seed."""
    out = np.full(len(rows), seed % 2**64, np.uint64)
    for column in rows.T:
        bits = np.ascontiguousarray(column + 0.0).view(np.uint64)
        out = (out ^ bits) + STEP
        out = (out ^ (out >> np.uint64(30))) * FIRST
        out = (out ^ (out >> np.uint64(27))) * SECOND
        out ^= out >> np.uint64(31)
    return out


def _joined(table: LabelledTable) -> Array:
    return np.column_stack([table.x, table.y]).astype(float, copy=False)


def _products(rows: Array, origin: Array, centre: Array, rest: Array) -> Products:
    z = rows - centre
    square = z * z
    half = len(rows) // 2
    median = np.partition(rows, half, axis=0)[half] if len(rows) else origin
    apart = np.clip(rows - median, -FARTHEST, FARTHEST) ** 2
    return Products(
        rows=np.array(len(rows)),
        total=z.sum(axis=0),
        inner=z.T @ z,
        away=(rows != origin).sum(axis=0),
        odd=(rows != median).sum(axis=0),
        fourth=np.einsum("ij,ij->j", square, square),
        spread=np.array([apart.sum(axis=0), np.einsum("ij,ij->j", apart, apart)]),
        rest=rest,
    )


STEPS = (isolation, products, fold_products, differences)
