"""Check for columns that differ from a combination of others in few records only.

Let r_j be the residual of column z_j on all other columns, z_j − Σ b_i z_i. With S the
cross-products, S_j − Σ b_i S_i = Σ r_j z. So S, or a saved covariance, which is its inverse,
reveals the row of a single record that makes up r_j, or a sum over few. This happens if a column
copies another, or a sum of others, except in few records. A column is refused if these are few by

    (Σ r²)² < `LONE` · Σ r⁴;  or, where R_j² > 1 − `NEAR`,  (Σ r²)² < m · Σ r⁴               (1)

with m = `min_cell`, or n/`CHANCE` for small numbers of rows n. Sites first sum r² and r⁴ of
residuals of their own regressions (`data.isolation`, and in the same sum as `ridge`). If other
columns determine z_j in all but one record, these are that record's, with share 1 − h of those over
all sites, h being its leverage at its site. So if they are not over few, and are at least half of
those over all sites, only columns are asked for that others determine up to rounding. Otherwise
residuals over all sites are summed, for columns with

    R_j² > 1 − `NEAR`,  or  (Σ r²)² < `FEW` · Σ d⁴,                                         (2)

d from the column's own median: Σ d⁴ is close to Σ r⁴ if one record makes up both.

Revealed: `Differences` of those columns, if any, once, as a sum over all sites. The coordinator has
then seen the cross-products; (1) protects against the readers of saved results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.isolation import Columns, by_class, nearly_given
from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.numerics.residuals import powers, residual_parts, roots
from fedcohort.privacy.disclosure.records import effective, lone
from fedcohort.protocol.errors import NothingToLearn, SiteUnavailable
from fedcohort.protocol.federation import Federation
from fedcohort.protocol.message import message
from fedcohort.protocol.step import Site, summed

#: Largest 1 − R² of a column that others nearly determine.
NEAR = 0.1
#: Factor on the number of few records, below which (Σ r²)²/Σ d⁴, or that of sites' own residuals,
#: makes a column suspect.
FEW = 4.0
#: If sites' own residuals are a smaller share of those over all sites, the latter are summed.
SHARE = 0.5
#: n over this is at most the (Σ r²)²/Σ r⁴ of n residuals by chance.
CHANCE = 6.0
#: Smallest coefficient of a named column, as a share of the largest.
PART = 0.05


@message
class Differences:
    """``rows`` (), and Σ r² and Σ r⁴ (2, k) of k residuals, about a centre and sites' medians."""

    rows: Array
    squares: Array
    fourth: Array


@summed(blocks="rows")
def differences(
    site: Site[LabelledTable | SurvivalTable, None],
    *,
    centre: Array,
    parts: Array,
    offset: bool,
    n_classes: int,
) -> Differences:
    """Sum powers of combinations of columns about `centre` (q,), with coefficients `parts` (k, q).

    The columns are the covariates and, if there are more, the outcome less the offset, or of more
    than two `n_classes` the 0/1 columns of those after the first.
    """
    table = site.data
    covariates = table.x[:, : table.x.shape[1] - offset]
    columns = [covariates]
    if isinstance(table, LabelledTable) and len(centre) > covariates.shape[1]:
        left = table.y - table.x[:, -1] if offset else table.y
        columns.append(by_class(left, n_classes)[:, 1 if n_classes else 0 :])
    joined = np.hstack(columns).astype(float, copy=False)
    return Differences(np.array(len(joined)), *powers(joined - centre, parts))


def check_differences(
    fed: Federation,
    names: Sequence[str],
    inner: Array,
    centre: Array,
    own: Columns,
    *,
    least: int,
    offset: bool = False,
    classes: Sequence[str] = (),
) -> None:
    """Sum `Differences` of suspect columns, and refuse columns that differ in few records.

    A single site is not asked, nor any site if `min_cell` is 1.

    Parameters
    ----------
    names : of the covariates, (p,); the outcome's columns may follow.
    inner, centre : (q, q) and (q,), cross-products about the means, by any weights, and a point
        near the means.
    own : of the columns, (q,).
    least : `min_cell`.
    classes : of an outcome of more than two, which is as many columns less one.

    Raises
    ------
    NothingToLearn : a column is refused; the message names it and the others.
    SiteUnavailable : a site has left.
    """
    if len(fed.sites) < 2 or least < 2:
        return
    parts, left = suspects(inner, own, least)
    if not len(parts):
        return
    ask: dict[str, Any] = {"centre": centre, "parts": parts / roots(inner), "offset": offset}
    found = fed.sum(differences, n_classes=len(classes), **ask)
    if missing := sorted(set(fed.sites) - set(fed.answered)):
        raise SiteUnavailable(
            f"{', '.join(missing)} left during the fit, and an exact fit needs the same sites in "
            f"every sum. Bring them back and --resume, or start again without them."
        )
    for part in parts[in_few(found.squares, found.fourth, left, float(found.rows), least)]:
        ends = [f"class {one!r} of the outcome" for one in classes[1:]] or ["the outcome"]
        called = [*map(repr, names), *ends]
        order = np.argsort(-np.abs(part), kind="stable").tolist()
        raise NothingToLearn(
            nearly_given(
                [called[i] for i in order if abs(part[i]) > PART * np.abs(part).max()],
                "at all sites together",
                least,
            )
        )


def suspects(inner: Array, own: Columns, least: int) -> tuple[Array, Array]:
    """Return residuals (k, q) that few records may make up, eq. (2), and their 1 − R² (k,)."""
    parts, left = residual_parts(inner)
    near, some = left < NEAR, np.isfinite(left)
    left = np.where(some, left, 1.0)
    asked = some & (near | (left**2 < FEW / own.shown))
    few = effective(*own.rest) < FEW * np.where(near, least, 1)
    asked &= few | (left == 0) | (own.rest[0] < SHARE * left * own.squares)
    asked &= parts.any(axis=1)
    return parts[asked], left[asked]


def in_few(squares: Array, fourth: Array, left: Array, rows: float, least: int) -> Array:
    """Return which residuals (k,) few records make up, eq. (1), of sums (m, k) of m kinds."""
    some = min(least, rows / CHANCE)
    few = (left < NEAR) & (squares > 0) & (squares**2 < some * fourth)
    found: Array = few | lone(squares, fourth)
    return np.any(found, axis=0)


def own_differences(columns: Array, least: int) -> Array:
    """Return which columns (n, q) of one table are in a relation that few records break, (q,)."""
    centred = columns - columns.mean(axis=0)
    inner = centred.T @ centred
    parts, left = residual_parts(inner)
    few = in_few(*powers(centred, parts / roots(inner)), left, len(columns), least)
    part = np.abs(parts[few])
    blamed: Array = part > PART * part.max(axis=1, keepdims=True)
    return np.any(blamed, axis=0)
