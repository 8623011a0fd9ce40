"""Site steps of the linear methods, all of them sums over sites.

They are the sums of `training.linear.cross_products`, over all rows of a site or over those of each
fold. A row's fold is its site's, or a hash of its own values and the seed: it depends neither on
the order of the rows nor on the site that holds them. Each site receives the folds of all sites,
and checks its own rows in each fold (`data.split.folds`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.differences import differences
from fedcohort.data.isolation import isolation
from fedcohort.data.split import BY_ROW, check_rows, own_fold
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import SettingError, Site, summed
from fedcohort.training.linear.cross_products import Products, joined, products, products_of

#: Steps and multipliers of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
STEP, FIRST, SECOND = (
    np.uint64(k) for k in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
#: Most folds; with more, sums would come near to single rows.
MOST_FOLDS = 20


LabelledSite = Site[LabelledTable, None]


@summed(blocks="rows")
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

    All rows of a site are in its fold of `dealt`; with `BY_ROW` a hash of its values gives each
    row's fold.

    Raises
    ------
    SettingError : more than `MOST_FOLDS` folds.
    Refused : the folds would tell about one site, or about fewer than `min_cell` rows.
    """
    if n_folds > MOST_FOLDS:
        raise SettingError(f"{n_folds} folds are asked for; give at most {MOST_FOLDS}.")
    rows = joined(site.data)
    fold = own_fold(site.name, dealt, n_folds, min_cell)
    place = hashed(rows, seed) % np.uint64(n_folds) if fold == BY_ROW else np.full(len(rows), fold)
    check_rows(site.name, place, dealt, min_cell)
    nothing = np.zeros((2, rows.shape[1]))
    parts = [products_of(rows[place == k], origin, centre, nothing) for k in range(n_folds)]
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


STEPS = (isolation, products, fold_products, differences)
