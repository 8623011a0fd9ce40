"""Cross-products of covariates and outcome: asked for in one sum, checked, centred.

With z = (x, y) − centre and n rows, sites sum

    n,   Σ z,   Σ z zᵀ                                                                     (1)

and sums about any centre give those about the means,

    [S s; sᵀ t] = Σ z zᵀ − Σ z Σ zᵀ / n                                                    (2)

at a loss of digits that grows with the distance of the centre from the mean. Covariates are summed
about the public point that the design knows, which is within about one standard deviation. Where
a column, or the outcome, still lies 3,000 of its standard deviations away, the same sums are
asked for once more, about the means; they say nothing new, to more digits.

`moments` is for a method that began with `data.exact.exact_sums`. `collect` needs no other question
than this one: the same sum holds the counts that tell over how few records it is, and the
coordinator has seen it when it is checked. Let d be a row of covariates and outcome, less the
origin: the value that stands in for a missing one (a median, a mode; 0 of levels and of the
outcome). In a sum of d dᵀ,

    a column of which k rows differ from the origin                 tells about these k
    one with two values, as (Σd)² = k Σd² shows                     also about the n − k others
    two such columns, in units of d, their difference               about Σ (dᵢ − dⱼ)² rows
    the same, less one                                              about the others

and each must be over none, or over `min_cell` rows or more. Where the common value of a column is
not the origin to the last digit, k is at least (Σ d²)²/Σ d⁴, and, where all sites share that value,
the rows that differ from their site's median: the larger of the two stands for k. Of the outcome,
which has no fill, it is the latter where these are few. And a row that is nearly all of a column's
spread, eq. (1) of `data.isolation`, is told by the sums with that column: it is refused too, in a
fold only where it hides all else. Combinations of three covariates and more are looked at by
`data.differences` alone.

Revealed: `Products`, once or twice, as a sum over all sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.classes import Kind, check_classes
from fedcohort.data.differences import differences
from fedcohort.data.exact import Exact, check_covariates
from fedcohort.data.isolation import FARTHEST, Columns, nearly_given, too_far
from fedcohort.data.tables import LabelledTable
from fedcohort.numerics.collinearity import CONSTANT, SINGULAR, collinear
from fedcohort.numerics.residuals import own_powers
from fedcohort.privacy.disclosure.records import LONE, effective, lone
from fedcohort.protocol import (
    DataError,
    Federation,
    NothingToLearn,
    SingularInformation,
    Site,
    Task,
    message,
    summed,
)

#: What is said where there is no record.
NO_RECORDS = "no site holds any record; check their selection."
#: Σz² over Σ(z − mean)² above which sums are asked for again, about the means.
LOST = 1e7
#: The two sides of (Σd)² = k Σd² are equal when they differ by less than this share.
ALIKE = 1e-9
#: Of a fold's few rows one may be far from the others by chance: 0.99 of the squares are too much.
LONE_IN_A_FOLD = 1.02


@message
class Products:
    """Eq. (1): ``rows`` (), ``total`` (q,), ``inner`` (q, q); q is p + 1, and the outcome is last.

    To tell over how few rows a sum is, see `telling`: ``away`` (q,), how many differ from the
    origin in each column; ``odd`` (q,), from their site's own median; ``fourth`` (q,), Σ z⁴; and
    ``spread`` (2, q), sums of squares and of fourth powers about that median; ``rest`` (2, q),
    those of each column's residuals on the others at its site. Of F folds, every field has F as its
    first dimension, and ``rest`` is 0.
    """

    rows: Array
    total: Array
    inner: Array
    away: Array
    odd: Array
    fourth: Array
    spread: Array
    rest: Array


@summed
def products(site: Site[LabelledTable, None], *, origin: Array, centre: Array) -> Products:
    """Sum the cross-products of all rows, each column about one point, the same at all sites."""
    rows = joined(site.data)
    return products_of(rows, origin, centre, own_powers(rows))


def joined(table: LabelledTable) -> Array:
    """Return covariates and outcome of each row (n, q)."""
    return np.column_stack([table.x, table.y]).astype(float, copy=False)


def products_of(rows: Array, origin: Array, centre: Array, rest: Array) -> Products:
    """Return eq. (1) of `rows` (n, q); `rest` is told as it is."""
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


@dataclass(frozen=True)
class Moments:
    """Eq. (2).

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
        """Return eq. (2) from sums about `centre` (q,); there is a row at least."""
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

    @property
    def varying(self) -> Array:
        """S (p, p), with 0 for all products of covariates that do not vary."""
        varies = ~self.constant
        return self.xx * np.outer(varies, varies)

    def intercept(self, coefficients: Array) -> Array:
        """Return b₀ for β (…, p): (…)."""
        return self.middle - coefficients @ self.mean

    def residual(self, coefficients: Array) -> Array:
        """Return Σ (y − b₀ − xᵀβ)² for β (…, p), with the best b₀: (…)."""
        inner = ((coefficients @ self.xx) * coefficients).sum(axis=-1)
        return np.maximum(self.yy - 2 * coefficients @ self.xy + inner, 0.0)


def inverted(inner: Array, names: Sequence[str], remedy: str = "") -> Array:
    """Return the inverse of cross-products (p, p).

    Parameters
    ----------
    remedy : what helps besides dropping a covariate; "" for nothing.

    Raises
    ------
    SingularInformation : some covariates are collinear or constant; they are named.
    """
    unit = np.sqrt(np.diag(inner))
    unit[unit == 0] = 1.0
    values, vectors = np.linalg.eigh(inner / np.outer(unit, unit))
    flat = values <= SINGULAR * values[-1]
    if flat.any():
        ratio = float(values[0] / values[-1]) if values[-1] > 0 else 0.0
        raise SingularInformation(collinear(names, vectors[:, flat], ratio, remedy=remedy))
    root = vectors / unit[:, None]
    return (root / values) @ root.T


@dataclass(frozen=True)
class Pool:
    """What one sum over all sites gave.

    Attributes
    ----------
    fed : the sites that answered.
    moments : of all their rows.
    origin : (q,), that `rarest` counts from.
    rarest : (q, q), see `telling`.
    least : rows that any sum must be over.
    """

    fed: Federation
    moments: Moments
    origin: Array
    rarest: Array
    least: int


def collect(fed: Federation, task: Task) -> Pool:
    """Ask for the cross-products, once, and for nothing before.

    Raises
    ------
    DataError : no covariates, no rows, fewer than `min_cell` in a sum, an outcome that does not
        vary.
    SiteUnavailable : a site left between two sums.
    """
    check_covariates(task)
    origin = _origin(task)
    told = fed.sum(products, origin=origin, centre=origin)
    own = Columns(effective(*told.spread), told.spread[0], told.rest)
    sites = Exact.of(fed, task, own)
    rarest = telling(told, origin, origin, sites.least)
    check_cells(told, rarest, task.features, sites.least)
    found = _centred(sites, told, origin)
    if found.yy <= found.rows * (CONSTANT * found.middle) ** 2:
        raise NothingToLearn(
            f"the outcome has the same value in all {found.rows:.0f} records, so there is nothing "
            f"to explain. Check its column, or add sites."
        )
    return Pool(sites.fed, found, origin, rarest, sites.least)


def moments(sites: Exact, task: Task, kind: Kind) -> Moments:
    """Ask for the cross-products of sites that `exact_sums` has checked, and check the outcome.

    Parameters
    ----------
    kind : "class" of an outcome of 0 and 1, else "number".

    Raises
    ------
    DataError : an outcome of classes has other values than 0 and 1.
    NothingToLearn : fewer than `min_cell` records, or of one class; or few records differ from a
        combination of columns.
    SiteUnavailable : a site left.
    """
    origin = _origin(task)
    told = sites.sum(products, origin=origin, centre=origin)
    n = int(told.rows)
    if not n:
        raise NothingToLearn(NO_RECORDS)
    if n < sites.least:
        raise NothingToLearn(_too_few(sites.least, "at all sites together"))
    if kind == "class":
        ones = int(told.away[-1])
        if not told.total[-1] == told.inner[-1, -1] == told.fourth[-1] == ones:
            raise DataError(
                "the outcome has other values than 0 and 1, and this method tells two classes "
                "apart. Give an outcome of two levels."
            )
        check_classes(n, ones, sites.least)
    return _centred(sites, told, origin)


def _origin(task: Task) -> Array:
    """Return the public point (q,) that sums are about; 0 of the outcome."""
    origin = np.zeros(len(task.features) + 1)
    if task.origin is not None:
        origin[:-1] = task.origin
    return origin


def _centred(sites: Exact, told: Products, origin: Array) -> Moments:
    """Return eq. (2), asked for again where digits are lost, and refuse few that differ."""
    found = Moments.of(told, origin)
    within = np.r_[found.xx.diagonal(), found.yy]
    if (told.inner.diagonal() > LOST * within).any():
        told = sites.sum(products, origin=origin, centre=found.centre)
        found = Moments.of(told, found.centre)
    sites.related(found.inner, found.centre)
    return found


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
        raise NothingToLearn(NO_RECORDS)
    where, remedy = "at all sites together", "Leave it out"
    if told.rows.ndim:
        where, remedy = "in a fold", "Leave it out, set another seed or rule 'bic'"
    if ((told.rows > 0) & (told.rows < least)).any():
        raise NothingToLearn(_too_few(least, where))
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


def _too_few(least: int, where: str) -> str:
    return (
        f"there are fewer than {least} records (min_cell) {where}. Add sites or records; or lower "
        f"min_cell, if all sites agree."
    )


#: What `collect` and `moments` ask; `collect` needs no `isolation` before.
STEPS = (products, differences)
