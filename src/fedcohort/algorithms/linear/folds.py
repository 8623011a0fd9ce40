"""Held-out error along a path of penalties, from the cross-products of each fold.

D6.2, section 8.2.5: centre-based K-fold; a fold is a group of sites. With P_f the cross-products of
fold f, the coefficients β_f come from Σ_g P_g − P_f, and their error on the rows of f from P_f:

    e_f = Σ_{i in f} (y_i − b₀ − x_iᵀβ_f)²                                                 (1)
    error = Σ_f e_f / n,   its square standard error = Σ_f (n_f/n)(e_f/n_f − error)²/(F − 1)  (2)

as in glmnet (Friedman, Hastie, Tibshirani, J. Stat. Software 33(1), 2010).

A fold of one site would show that site's cross-products, so sites refuse it (`data.split.folds`).
With several sites a fold has two sites or more, or rows of all sites. The number of folds is
limited so that on average each holds `PER_FOLD` × `min_cell` rows (with two sites, twice as many),
also of the rows that tell about a covariate. The sums themselves are then checked for each fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.algorithms.linear.settings import PathSettings
from fedcohort.algorithms.linear.steps import fold_products
from fedcohort.arrays import Array
from fedcohort.data.split import BY_ROW, HIDDEN
from fedcohort.protocol import NothingToLearn, Task, check_all_answered
from fedcohort.training.linear.cross_products import (
    Moments,
    Pool,
    Products,
    called,
    check_cells,
    telling,
)

#: Mean rows of a fold, in `min_cell`. With 15 expected, 1 of 1,200 folds has fewer than 5.
PER_FOLD = 3


@dataclass(frozen=True)
class Fold:
    """Held-out rows, by their sums about the pooled means, and the other rows.

    Attributes
    ----------
    told : sums over the held-out rows, about the point `centre` (q,).
    others : moments of the other rows.
    """

    told: Products
    others: Moments
    centre: Array

    def squares(self, coefficients: Array) -> Array:
        """Return eq. (1) (L,) for β (L, p), fitted to the others."""
        shift = self.others.intercept(coefficients) - self.centre[-1]
        shift = shift + coefficients @ self.centre[:-1]
        slope = np.column_stack([-coefficients, np.ones(len(shift))])
        inner = ((slope @ self.told.inner) * slope).sum(axis=1)
        return inner - 2 * shift * (slope @ self.told.total) + self.told.rows * shift**2


@dataclass(frozen=True)
class Folded:
    """All folds.

    Attributes
    ----------
    kind : "centre" or "rows".
    folds : folds with rows.
    """

    kind: str
    folds: tuple[Fold, ...]


def fold(pool: Pool, config: PathSettings, task: Task) -> Folded:
    """Return the cross-products of each fold, from one question.

    Raises
    ------
    NothingToLearn : a fold would hold too few rows, or does.
    Refused : with two sites, one has fewer than `min_cell` rows in a fold.
    SiteUnavailable : a site left.
    """
    kind, count = _plan(pool, config, task.features)
    sites = pool.fed.sites
    dealt = task.rng.permutation(len(sites)) % count if kind == "centre" else [BY_ROW] * len(sites)
    m = pool.moments
    sums = pool.fed.sum(
        fold_products,
        origin=pool.origin,
        centre=m.centre,
        dealt={site: int(k) for site, k in zip(sites, dealt, strict=True)},
        n_folds=count,
        seed=task.seed,
        min_cell=pool.least,
    )
    check_all_answered(pool.fed)
    rarest = telling(sums, pool.origin, m.centre, pool.least)
    check_cells(sums, rarest, task.features, pool.least)
    parts = [_part(sums, k) for k in range(count)]
    every = Products(**{f: getattr(sums, f).sum(axis=0) for f in Products.__dataclass_fields__})
    return Folded(
        kind,
        tuple(
            Fold(part, Moments.of(_less(every, part), m.centre), m.centre)
            for part in parts
            if part.rows
        ),
    )


def _plan(pool: Pool, config: PathSettings, names: Sequence[str]) -> tuple[str, int]:
    """Return the kind and the number of folds."""
    alone = 1 if pool.least == 1 else 2
    groups = len(pool.fed.sites) // alone
    kind = "centre" if config.folds == "centre" and groups >= 2 else "rows"
    rarest = np.where(pool.rarest > 0, pool.rarest, pool.moments.rows)
    fewest = divmod(int(np.argmin(rarest)), len(rarest))
    sharing = len(pool.fed.sites) if len(pool.fed.sites) < HIDDEN else 1  # each looks at its own
    most = PER_FOLD * pool.least * sharing
    safe = int(rarest[fewest]) // most if pool.least > 1 else pool.moments.rows
    count = int(min(config.n_folds, safe, groups if kind == "centre" else pool.moments.rows // 2))
    if count < 2:
        about = " and ".join(dict.fromkeys(called(names, k) for k in fewest))
        raise NothingToLearn(
            f"folds for penalty 'auto' would hold too few records that tell about {about}: fewer "
            f"than {2 * most} in all. Set rule 'bic', which needs no folds, or "
            f"give a penalty."
        )
    return kind, count


def _part(sums: Products, k: int) -> Products:
    return Products(**{f: getattr(sums, f)[k] for f in Products.__dataclass_fields__})


def _less(every: Products, part: Products) -> Products:
    return Products(
        **{f: getattr(every, f) - getattr(part, f) for f in Products.__dataclass_fields__}
    )
