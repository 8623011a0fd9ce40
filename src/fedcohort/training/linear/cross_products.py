"""Cross-products of covariates and outcome over all sites: sum, check, centre.

With z = (x, y) − centre and n rows, sites sum

    n,   Σ z,   Σ z zᵀ                                                                     (1)

and sums about any centre give those about the means,

    [S s; sᵀ t] = Σ z zᵀ − Σ z Σ zᵀ / n                                                    (2)

which loses digits when the centre is far from the mean. Covariates are summed about the design's
public point, which is within about one standard deviation. If a column, or the outcome, is still
3,000 of its standard deviations away, the same sums are asked for again about the means; they
reveal nothing new, with more digits.

`moments` is for a method that began with `data.exact.exact_sums`. `collect` asks for nothing else:
the same sum has the counts that tell over how few records it is, and they are checked after the
coordinator has them. Let d be a row of covariates and outcome, less the origin: the fill value of
missing entries (a median, a mode; 0 for levels and the outcome). A sum of d dᵀ tells,

    for a column with k rows different from the origin,             about these k rows
    for one with two values, as (Σd)² = k Σd² shows,                also about the n − k others
    for two such columns, in units of d, by their difference,       about Σ (dᵢ − dⱼ)² rows
    the same, less one,                                             about the others

Each of these numbers must be 0 or at least `min_cell`. If a column's common value differs from the
origin by rounding, then k is at least (Σ d²)²/Σ d⁴; if all sites share that value, k is the number
of rows that differ from their site's median; the larger of the two is used. The outcome has no
fill, so the latter is used if it is small. A row with nearly all of a column's spread, eq. (1) of
`data.isolation`, is told by the sums with that column, and is refused too; in a fold, only if it
hides all else. Only `data.differences` checks combinations of three and more covariates.

Revealed: `Products`, once or twice, as a sum over all sites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

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

#: Error text without records.
NO_RECORDS = "no site holds any record; check their selection."
#: Ratio of Σz² to Σ(z − mean)² above which sums are repeated about the means.
LOST = 1e7
#: The two sides of (Σd)² = k Σd² are equal when they differ by less than this share.
ALIKE = 1e-9
#: In a fold's few rows one may be far from the others by chance, so the limit is higher.
LONE_IN_A_FOLD = 1.02


@message
class Products:
    """Eq. (1): ``rows`` (), ``total`` (q,), ``inner`` (q, q); q is p + 1, and the outcome is last.

    Used to check over how few rows a sum is, see `telling`: number of rows that differ from the
    origin, ``away`` (q,), and from their site's median, ``odd`` (q,); ``fourth`` (q,), Σ z⁴;
    ``spread`` (2, q), sums of squares and of fourth powers about that median; ``rest`` (2, q),
    those of each column's residuals on the others at its site. With F folds, every field has F as
    its first dimension, and ``rest`` is 0.
    """

    rows: Array
    total: Array
    inner: Array
    away: Array
    odd: Array
    fourth: Array
    spread: Array
    rest: Array


@summed(blocks="rows")
def products(site: Site[LabelledTable, None], *, origin: Array, centre: Array) -> Products:
    """Sum the cross-products of all rows, about the same centre at all sites."""
    rows = joined(site.data)
    return products_of(rows, origin, centre, own_powers(rows))


def joined(table: LabelledTable) -> Array:
    """Return covariates and outcome of each row (n, q)."""
    return np.column_stack([table.x, table.y]).astype(float, copy=False)


def products_of(rows: Array, origin: Array, centre: Array, rest: Array) -> Products:
    """Return eq. (1) of `rows` (n, q); `rest` is passed on."""
    z = rows - centre
    square = z * z
    half = len(rows) // 2
    median = np.partition(rows, half, axis=0)[half] if len(rows) else origin
    squared = np.clip(rows - median, -FARTHEST, FARTHEST) ** 2
    return Products(
        rows=np.array(len(rows)),
        total=z.sum(axis=0),
        inner=z.T @ z,
        away=(rows != origin).sum(axis=0),
        odd=(rows != median).sum(axis=0),
        fourth=np.einsum("ij,ij->j", square, square),
        spread=np.array([squared.sum(axis=0), np.einsum("ij,ij->j", squared, squared)]),
        rest=rest,
    )


@dataclass(frozen=True)
class Moments:
    """Eq. (2).

    Attributes
    ----------
    rows : n.
    mean, middle : (p,) and (), means of covariates and outcome.
    xx, xy, yy : S (p, p), s (p,), t ().
    """

    rows: float
    mean: Array
    middle: float
    xx: Array
    xy: Array
    yy: float

    @classmethod
    def of(cls, sums: Products, centre: Array) -> Moments:
        """Return eq. (2) from sums about `centre` (q,), over at least one row."""
        n = float(sums.rows)
        shift = sums.total / n
        inner = sums.inner - n * np.outer(shift, shift)
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
        """Means (q,), of the covariates and then the outcome."""
        return np.r_[self.mean, self.middle]

    @property
    def inner(self) -> Array:
        """S, s and t as one matrix (q, q)."""
        xy = self.xy[:, None]
        return np.block([[self.xx, xy], [xy.T, np.array([[self.yy]])]])

    @property
    def constant(self) -> Array:
        """Covariates (p,) that do not vary."""
        return np.diag(self.xx) <= self.rows * (CONSTANT * self.mean) ** 2

    @property
    def varying(self) -> Array:
        """S (p, p), with 0 for products of covariates that do not vary."""
        varies = ~self.constant
        return self.xx * np.outer(varies, varies)

    def deviations(self, names: Sequence[str]) -> Array:
        """Return the standard deviations of the covariates (p,).

        Raises
        ------
        SingularInformation : a covariate is constant; it is named.
        """
        if self.constant.any():
            named = ", ".join(repr(names[j]) for j in np.flatnonzero(self.constant).tolist())
            raise SingularInformation(
                f"{named} has the same value in all records, so its coefficient has no scale. "
                f"Leave it out."
            )
        return np.sqrt(np.diag(self.xx) / self.rows)

    def intercept(self, coefficients: Array) -> Array:
        """Return b₀ (…) for β (…, p)."""
        return self.middle - coefficients @ self.mean

    def residual(self, coefficients: Array) -> Array:
        """Return Σ (y − b₀ − xᵀβ)² (…) for β (…, p), with the best b₀."""
        inner = ((coefficients @ self.xx) * coefficients).sum(axis=-1)
        return np.maximum(self.yy - 2 * coefficients @ self.xy + inner, 0.0)


def inverted(inner: Array, names: Sequence[str], remedy: str = "") -> Array:
    """Return the inverse of cross-products (p, p).

    Parameters
    ----------
    remedy : another remedy than to drop a covariate, or "".

    Raises
    ------
    SingularInformation : names covariates that are collinear or constant.
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


def with_intercept(inverse: Array, m: Moments) -> Array:
    """Return the covariance (p + 1, p + 1) of (b₀, β) over σ², from that of β (p, p)."""
    out = np.empty((len(inverse) + 1, len(inverse) + 1))
    slope = -inverse @ m.mean
    out[1:, 1:], out[0, 1:], out[1:, 0] = inverse, slope, slope
    out[0, 0] = 1 / m.rows - slope @ m.mean
    return out


@dataclass(frozen=True)
class Pool:
    """Result of one sum over all sites.

    Attributes
    ----------
    fed : the sites that answered.
    moments : of all their rows.
    origin : (q,), origin of `rarest`.
    rarest : (q, q), see `telling`.
    least : fewest rows of any sum.
    """

    fed: Federation
    moments: Moments
    origin: Array
    rarest: Array
    least: int


def collect(fed: Federation, task: Task) -> Pool:
    """Return the cross-products of all sites, from one checked sum.

    Raises
    ------
    DataError : no covariates, no rows, fewer than `min_cell` in a sum, an outcome that does not
        vary.
    SiteUnavailable : a site left between two sums.
    """
    check_covariates(task)
    origin = origin_of(task)
    sums = fed.sum(products, origin=origin, centre=origin)
    own = Columns(effective(*sums.spread), sums.spread[0], sums.rest)
    sites = Exact.of(fed, task, own)
    rarest = telling(sums, origin, origin, sites.least)
    check_cells(sums, rarest, task.features, sites.least)
    found = _centred(
        sites,
        sums,
        origin,
        lambda origin, centre: sites.sum(products, origin=origin, centre=centre),
    )
    if found.yy <= found.rows * (CONSTANT * found.middle) ** 2:
        raise NothingToLearn(
            f"the outcome has the same value in all {found.rows:.0f} records, so there is nothing "
            f"to explain. Check its column, or add sites."
        )
    return Pool(sites.fed, found, origin, rarest, sites.least)


def moments(
    sites: Exact, task: Task, kind: Kind, asked: Callable[[Array, Array], Products] | None = None
) -> Moments:
    """Return the cross-products of sites that `exact_sums` has checked; check the outcome.

    Parameters
    ----------
    kind : "class" for an outcome of 0 and 1, else "number".
    asked : origin and centre → the sums, where some sites take no part; by default `products`.

    Raises
    ------
    DataError : a class outcome has values other than 0 and 1.
    NothingToLearn : fewer than `min_cell` records, or of one class; or few records differ from a
        combination of columns.
    SiteUnavailable : a site left.
    """
    origin = origin_of(task)
    ask = asked or partial(_asked, sites)
    sums = ask(origin, origin)
    n = int(sums.rows)
    if not n:
        raise NothingToLearn(NO_RECORDS)
    if n < sites.least:
        raise NothingToLearn(_too_few(sites.least, "at all sites together"))
    if kind == "class":
        ones = int(sums.away[-1])
        if not sums.total[-1] == sums.inner[-1, -1] == sums.fourth[-1] == ones:
            raise DataError(
                "the outcome has other values than 0 and 1, but this method needs two classes. "
                "Give an outcome of two levels."
            )
        check_classes(n, ones, sites.least)
    return _centred(sites, sums, origin, ask)


def _asked(sites: Exact, origin: Array, centre: Array) -> Products:
    """Return eq. (1) about `centre` (q,), of all rows."""
    return sites.sum(products, origin=origin, centre=centre)


def origin_of(task: Task) -> Array:
    """Return the public centre of sums (q,); 0 for the outcome."""
    origin = np.zeros(len(task.features) + 1)
    if task.origin is not None:
        origin[:-1] = task.origin
    return origin


def _centred(
    sites: Exact, sums: Products, origin: Array, ask: Callable[[Array, Array], Products]
) -> Moments:
    """Return eq. (2), summed again if digits are lost; refuse columns in which few rows differ."""
    found = Moments.of(sums, origin)
    within = np.r_[found.xx.diagonal(), found.yy]
    if (sums.inner.diagonal() > LOST * within).any():
        sums = ask(origin, found.centre)
        found = Moments.of(sums, found.centre)
    sites.related(found.inner, found.centre)
    return found


def telling(sums: Products, origin: Array, centre: Array, least: int = 0) -> Array:
    """Return the number of rows that a cross-product tells about, see the header: (q, q) or (F, q,
    q).

    The diagonal has the list's first two lines, the rest the others; 0 if nothing is told.

    Parameters
    ----------
    told : over all rows, or by fold.
    origin, centre : (q,), origin of `away`, and centre of the sums.
    least : below it, the number of outcomes that differ from their site's median is used.
    """
    shift, rows = centre - origin, sums.rows[..., None].astype(float)
    total = sums.total + rows * shift
    inner = sums.inner + sums.total[..., :, None] * shift + shift[:, None] * total[..., None, :]
    squares, away = _diagonal(inner), sums.away.astype(float)
    two = (np.abs(total**2 - away * squares) <= ALIKE * away * squares) & (away > 0) & (away < rows)
    size = np.where(two, squares / np.where(two, total, 1.0), 1.0)
    both = inner / (size[..., :, None] * size[..., None, :])
    differ = away[..., :, None] + away[..., None, :] - 2 * both
    pairs = np.rint(_fewer(differ, rows[..., None])) * (two[..., :, None] & two[..., None, :])
    own = _diagonal(sums.inner) ** 2
    shown = np.divide(own, sums.fourth, out=np.zeros_like(own), where=sums.fourth > 0)
    some = np.minimum(away, np.maximum(sums.odd, np.ceil(shown)))
    odd = sums.odd[..., -1]
    some[..., -1] = np.where((odd > 0) & (odd < least), odd, some[..., -1])
    alone = np.where(two, _fewer(away, rows), some)
    return np.where(np.eye(len(shift), dtype=bool), alone[..., None], pairs).astype(int)


def _diagonal(matrices: Array) -> Array:
    return np.diagonal(matrices, axis1=-2, axis2=-1)


def _fewer(some: Array, rows: Array) -> Array:
    """Return the smaller of two parts of the rows, or 0 if one is empty."""
    others = rows - some
    return np.where((some > 0.5) & (others > 0.5), np.minimum(some, others), 0.0)


def check_cells(sums: Products, rarest: Array, names: Sequence[str], least: int) -> None:
    """Refuse sums over fewer than `least` rows, except over none.

    Parameters
    ----------
    names : of the covariates, p.

    Raises
    ------
    NothingToLearn : too few rows, or too few that differ; names the columns.
    """
    if not sums.rows.sum():
        raise NothingToLearn(NO_RECORDS)
    where, remedy = "at all sites together", "Leave it out"
    if sums.rows.ndim:
        where, remedy = "in a fold", "Leave it out, set another seed or rule 'bic'"
    if ((sums.rows > 0) & (sums.rows < least)).any():
        raise NothingToLearn(_too_few(least, where))
    few = ((rarest > 0) & (rarest < least)).reshape(-1, *rarest.shape[-2:]).any(axis=0)
    if not few.any() and least > 1:
        share = LONE if sums.rows.ndim == 0 else LONE_IN_A_FOLD
        alone = lone(sums.spread[..., 0, :], sums.spread[..., 1, :], share)
        for column in np.flatnonzero(alone.reshape(-1, alone.shape[-1]).any(axis=0)).tolist():
            raise NothingToLearn(too_far(called(names, column), where))
        given = lone(sums.rest[..., 0, :], sums.rest[..., 1, :])
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
    """Return the name of a column of `Products` in an error."""
    return repr(names[column]) if column < len(names) else "the outcome"


def _too_few(least: int, where: str) -> str:
    return (
        f"there are fewer than {least} records (min_cell) {where}. Add sites or records; or lower "
        f"min_cell, if all sites agree."
    )


#: Steps of `collect` and `moments`; `collect` needs no `isolation` before.
STEPS = (products, differences)
