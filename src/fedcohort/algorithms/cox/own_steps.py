"""Site steps of Cox regression with a baseline hazard of each site, or each stratum of a site.

All replies are sums over sites, and over a site's own risk sets: no risk set is seen. All sites
receive the folds of all sites, and each checks its own records in them (`data.split.folds`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcohort.algorithms.cox.placing import SurvivalSite, own_grid, placed, weights
from fedcohort.algorithms.cox.proportional import pooled_trend
from fedcohort.arrays import Array
from fedcohort.data.split import BY_ROW, check_rows, own_fold
from fedcohort.data.tables import SurvivalTable
from fedcohort.numerics.coxph import at_risk, pooled
from fedcohort.numerics.strata import by_stratum, rows_of, starts
from fedcohort.protocol import message, summed


@message
class OwnLikelihood:
    """ℓ (), U (p,) and I (p, p) of a site's records with its own baseline hazard."""

    log_likelihood: Array
    score: Array
    information: Array


@message
class OwnTrend:
    """U_θ (p,), I_1 and I_2 (p, p) of a site's records with its own baseline hazard."""

    score: Array
    cross: Array
    information: Array


@message
class OwnHazard:
    """A site's baseline hazard in each interval (T,), times the ``weight`` of its records (K,)."""

    hazard: Array
    weight: Array


@message
class Sizes:
    """Deaths and weight of the records of each fold (folds,)."""

    deaths: Array
    weight: Array


@message
class HeldOut:
    """Σ over folds of ℓ of all records less ℓ without the fold, for L penalties (L,)."""

    log_likelihood: Array


@summed
def own_likelihood(
    site: SurvivalSite, *, centre: Array, scale: Array, beta: Array, ties: str
) -> OwnLikelihood:
    """Sum the log-likelihood of each site's own baseline, with its gradient and curvature.

    At β (p,) and at the site's own exact times.
    """
    return _own_likelihood(site.data, centre, scale, beta, ties)


def _own_likelihood(
    table: SurvivalTable, centre: Array, scale: Array, beta: Array, ties: str
) -> OwnLikelihood:
    result = pooled(placed(table, *own_grid(table), centre, scale), beta, ties)
    return OwnLikelihood(np.array(result.log_likelihood), result.score, result.information)


@summed
def own_trend(
    site: SurvivalSite,
    *,
    times: Array,
    sizes: Array,
    centre: Array,
    scale: Array,
    beta: Array,
    ties: str,
    g: Array,
) -> OwnTrend:
    """Sum the test statistics for effects that change with time, with each site's own baseline.

    Asked once. At the site's own times of death, g is that of the interval of `times` (T,).
    """
    own = own_grid(site.data)
    records = placed(site.data, *own, centre, scale)
    at = _intervals(own[0], records.sizes, times, sizes)
    return OwnTrend(*pooled_trend(records, beta, ties, g[at]))


@summed
def own_hazard(
    site: SurvivalSite, *, times: Array, sizes: Array, centre: Array, scale: Array, beta: Array
) -> OwnHazard:
    """Sum each site's own baseline hazard in the grid's intervals, times its weight, once."""
    table, own = site.data, own_grid(site.data)
    records = placed(table, *own, centre, scale)
    s0 = at_risk(records.leaving(records.risk(beta)), records.sizes)
    interval = _intervals(own[0], records.sizes, times, sizes)
    by_time = np.bincount(interval, records.death_weight / s0, minlength=len(times))
    weight = weights(table)
    held = np.array([weight[rows_of(table.stratum, k)].sum() for k in range(len(sizes))])
    return OwnHazard(by_time * np.repeat(held, sizes), held)


def _intervals(own: Array, own_sizes: Array | None, times: Array, sizes: Array) -> Array:
    """Return the index of the grid's interval of each of a site's own times, by stratum."""
    at = [own] if own_sizes is None else by_stratum(own, own_sizes)
    grids = zip(at, by_stratum(times, sizes), starts(sizes), strict=False)
    return np.concatenate(
        [first + np.minimum(np.searchsorted(grid, t), len(grid) - 1) for t, grid, first in grids]
    )


@summed
def fold_sizes(site: SurvivalSite, *, dealt: Mapping[str, int], folds: int, min_cell: int) -> Sizes:
    """Count the deaths of each fold, and sum the records' weights.

    Raises
    ------
    Refused : folds that would tell of one site, or of fewer than `min_cell` records.
    """
    table, at = site.data, _dealt(site, dealt, folds, min_cell)
    return Sizes(
        np.bincount(at, np.asarray(table.event, float), minlength=folds),
        np.bincount(at, weights(table), minlength=folds),
    )


@summed
def fold_likelihood(
    site: SurvivalSite,
    *,
    centre: Array,
    scale: Array,
    beta: Array,
    ties: str,
    dealt: Mapping[str, int],
    folds: int,
    min_cell: int,
    without: int,
) -> OwnLikelihood:
    """Sum the log-likelihood of each site's own baseline, without the records of one fold.

    Raises
    ------
    Refused : as of `fold_sizes`.
    """
    rest = _rows(site.data, _dealt(site, dealt, folds, min_cell) != without)
    return _own_likelihood(rest, centre, scale, beta, ties)


@summed
def held_out(
    site: SurvivalSite,
    *,
    centre: Array,
    scale: Array,
    betas: Array,
    ties: str,
    dealt: Mapping[str, int],
    folds: int,
    min_cell: int,
) -> HeldOut:
    """Sum the log-likelihood of all records less that without each fold, over the folds.

    With the coefficients of the fits without the fold, β (folds, L, p).

    Raises
    ------
    Refused : as of `fold_sizes`.
    """
    at, every = _dealt(site, dealt, folds, min_cell), site.data
    total = np.zeros(betas.shape[1])
    for k in np.unique(at).tolist():
        for table, sign in ((every, 1), (_rows(every, at != k), -1)):
            records = placed(table, *own_grid(table), centre, scale)
            total += [sign * pooled(records, beta, ties).log_likelihood for beta in betas[k]]
    return HeldOut(total)


def _dealt(site: SurvivalSite, dealt: Mapping[str, int], folds: int, min_cell: int) -> Array:
    """Return the fold of each record (n,); refuse folds of too few records."""
    at = folds_of(site.data, own_fold(site.name, dealt, folds, min_cell), folds)
    check_rows(site.name, at, dealt, min_cell)
    return at


def folds_of(table: SurvivalTable, fold: int, folds: int) -> Array:
    """Return the fold of each record (n,): `fold`, or for `BY_ROW` in turn in the order of times.

    Records of equal times and events are ordered by their covariates, so that the order of rows
    has no effect.
    """
    n = len(table.x)
    if fold != BY_ROW:
        return np.full(n, fold)
    order = np.lexsort((*table.x.T, table.event, table.time))
    out = np.empty(n, np.int64)
    out[order] = np.arange(n) % folds
    return out


def _rows(table: SurvivalTable, kept: Array) -> SurvivalTable:
    if kept.all():
        return table
    x, time, event, *more = table
    return SurvivalTable(
        x[kept], time[kept], event[kept], *(v if v is None else v[kept] for v in more)
    )


STEPS = (
    own_likelihood,
    own_trend,
    own_hazard,
    fold_sizes,
    fold_likelihood,
    held_out,
)
