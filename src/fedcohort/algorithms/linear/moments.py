"""The pooled cross-products: asked for in one sum, checked, centred.

With z = (x, y) − centre and n rows, sums about any centre give those about the means,

    [S s; sᵀ t] = Σ z zᵀ − Σ z Σ zᵀ / n                                                    (1)

at a loss of digits that grows with the distance of the centre from the mean. Covariates are summed
about the public point that the design knows, which is within about one standard deviation. Where
a column, or the outcome, still lies 3,000 of its standard deviations away, the same sums are
asked for once more, about the means; they say nothing new, to more digits. And where a column may
differ in few rows from a combination of others, what `data.differences` asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedcohort.algorithms.linear.cells import check_cells, telling
from fedcohort.algorithms.linear.steps import Products, products
from fedcohort.arrays import Array
from fedcohort.data.exact import Exact
from fedcohort.data.isolation import Columns
from fedcohort.numerics.scaling import CONSTANT
from fedcohort.privacy.disclosure.records import effective
from fedcohort.protocol import DataError, Federation, NothingToLearn, Task

#: Σz² over Σ(z − mean)² above which sums are asked for again, about the means.
LOST = 1e7


@dataclass(frozen=True)
class Moments:
    """Eq. (1).

    Attributes
    ----------
    rows : n.
    mean, middle : (p,) and (), of covariates and outcome.
    xx, xy, yy : S (p, p), s (p,), t ().
    """

    rows: float
    mean: Array
    middle: float
    xx: Array
    xy: Array
    yy: float

    @classmethod
    def of(cls, told: Products, centre: Array) -> Moments:
        """Return eq. (1) from sums about `centre` (q,); there is a row at least."""
        n = float(told.rows)
        shift = told.total / n
        inner = told.inner - n * np.outer(shift, shift)
        inner, mean = (inner + inner.T) / 2, centre + shift
        return cls(
            n,
            mean[:-1],
            float(mean[-1]),
            inner[:-1, :-1],
            inner[:-1, -1],
            max(float(inner[-1, -1]), 0.0),
        )

    @property
    def centre(self) -> Array:
        """The means (q,), of the covariates and then of the outcome."""
        return np.r_[self.mean, self.middle]

    @property
    def inner(self) -> Array:
        """S, s and t as one matrix (q, q)."""
        xy = self.xy[:, None]
        return np.block([[self.xx, xy], [xy.T, np.array([[self.yy]])]])

    @property
    def constant(self) -> Array:
        """Which covariates (p,) do not vary."""
        return np.diag(self.xx) <= self.rows * (CONSTANT * self.mean) ** 2

    def intercept(self, coefficients: Array) -> Array:
        """Return b₀ for β (…, p): (…)."""
        return self.middle - coefficients @ self.mean

    def residual(self, coefficients: Array) -> Array:
        """Return Σ (y − b₀ − xᵀβ)² for β (…, p), with the best b₀: (…)."""
        inner = ((coefficients @ self.xx) * coefficients).sum(axis=-1)
        return np.maximum(self.yy - 2 * coefficients @ self.xy + inner, 0.0)


@dataclass(frozen=True)
class Pool:
    """What one sum over all sites gave.

    Attributes
    ----------
    fed : the sites that answered.
    moments : of all their rows.
    origin : (q,), that `rarest` counts from.
    rarest : (q, q), see `cells.telling`.
    least : rows that any sum must be over.
    """

    fed: Federation
    moments: Moments
    origin: Array
    rarest: Array
    least: int


def collect(fed: Federation, task: Task) -> Pool:
    """Ask for the cross-products, once.

    Raises
    ------
    DataError : no covariates, no rows, fewer than `min_cell` in a sum, an outcome that does not
        vary.
    SiteUnavailable : a site left between two sums.
    """
    names = task.features
    if not names:
        raise DataError("there are no covariates; name at least one column besides the outcome.")
    origin = np.zeros(len(names) + 1)
    if task.origin is not None:
        origin[:-1] = task.origin
    told = fed.sum(products, origin=origin, centre=origin)
    own = Columns(effective(*told.spread), told.spread[0], told.rest)
    sites = Exact.of(fed, task, own)
    least = sites.least
    rarest = telling(told, origin, origin, least)
    check_cells(told, rarest, names, least)
    found = Moments.of(told, origin)
    within = np.r_[found.xx.diagonal(), found.yy]
    if (told.inner.diagonal() > LOST * within).any():
        told = sites.sum(products, origin=origin, centre=found.centre)
        found = Moments.of(told, found.centre)
    sites.related(found.inner, found.centre)
    if found.yy <= found.rows * (CONSTANT * found.middle) ** 2:
        raise NothingToLearn(
            f"the outcome has the same value in all {found.rows:.0f} records, so there is nothing "
            f"to explain. Check its column, or add sites."
        )
    return Pool(sites.fed, found, origin, rarest, least)
