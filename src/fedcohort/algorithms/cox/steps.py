"""Site steps of Cox regression. All are sums: no site's own numbers are ever seen.

Covariates are standardised by the pooled centre (p,) and scale (p,); β then counts in log hazard
ratio per standard deviation. An offset is the column of x behind them; the centre has an entry for
it. A site remembers where its records lie on the grid, while its table lives. Strata, of which each
has a baseline hazard, have their times in a row, `sizes` (K,) of each; there is one without strata.
Where times are ends of intervals, `shared` (T,) says in which all leavers share their time, and not
the deaths alone; it is empty where times are those of death.
"""

from __future__ import annotations

import numpy as np

from fedcohort.algorithms.cox.placing import SurvivalSite, placed, weights
from fedcohort.algorithms.cox.proportional import over_records
from fedcohort.arrays import Array
from fedcohort.data import exact
from fedcohort.data.words import rows
from fedcohort.numerics.strata import laid
from fedcohort.protocol import DataError, message, summed

#: Offsets beyond ± this are no logarithm of a hazard ratio.
FAR = 300.0


@message
class Totals:
    """``rows`` (), their ``weight`` (), and Σ x (p,) over all records."""

    rows: Array
    weight: Array
    x: Array


@message
class Deaths:
    """Deaths (T,) by grid time, and censored records (T+K,), those never at risk first.

    Also the ``weight`` of the deaths (T,), Σ_deaths (x − c) (p,) by weight, Σ (x − c)² (p,) over
    all records, and how many ``enter`` at each time but the first (T+K,), last those who then are
    never at risk. First and last are those of each of K strata.
    """

    deaths: Array
    weight: Array
    censored: Array
    enter: Array
    x_dead: Array
    squares: Array


@message
class StratumSizes:
    """``rows`` and ``deaths`` of each stratum (K,)."""

    rows: Array
    deaths: Array


@message
class RiskWeights:
    """Σ r over those who leave at each grid time (T,), and over those tied (G,)."""

    leaving: Array
    dying: Array


@message
class Expected:
    """Σ w x (p,) and Σ w x xᵀ (p, p), with w the deaths expected of each record."""

    first: Array
    second: Array


@message
class RiskMoments:
    """Σ r x over those who leave at each grid time (T, p), and over those tied (G, p)."""

    leaving: Array
    dying: Array


@message
class TrendMoments:
    """Σ g x over deaths (p,), and Σ w⁽ᵏ⁾ x xᵀ over all records for k = 1 and 2 (p, p)."""

    dead: Array
    once: Array
    twice: Array


@message
class Disorder:
    """Σ κ r² ((x − x̄)ᵀ C)² (p,) over all records."""

    squares: Array


@summed
def totals(site: SurvivalSite, *, offset: bool) -> Totals:
    """Count the records, and sum their weights and covariates.

    Raises
    ------
    DataError : it is beyond ± `FAR`; rows are named by number.
    """
    x, weight = site.data.x, weights(site.data)
    if offset and (far := np.abs(x[:, -1]) > FAR).any():
        raise DataError(
            f"site {site.name!r}: the offset is beyond ±{FAR:g} in {rows(far)}; it is added to the "
            f"logarithm of the hazard. Give the logarithm of a hazard ratio."
        )
    return Totals(np.array(float(len(x))), np.array(weight.sum()), x.sum(axis=0))


@summed
def stratum_sizes(site: SurvivalSite, *, strata: int) -> StratumSizes:
    """Count records and deaths of each stratum, to see that they bear a grid."""
    table = site.data
    at = np.zeros(len(table.x), np.int64) if table.stratum is None else table.stratum
    return StratumSizes(
        np.bincount(at, minlength=strata),
        np.bincount(at[np.asarray(table.event, bool)], minlength=strata),
    )


@summed
def deaths(
    site: SurvivalSite, *, times: Array, sizes: Array, together: bool, centre: Array
) -> Deaths:
    """Count who dies, is censored or enters by time, and sum covariates about their mean.

    All who leave in an interval are at risk until its end if they leave `together`.
    """
    x, time, event, _, entry, stratum = site.data
    there = laid(time, event, times, sizes, entry, stratum, together=together)
    dead, cells = there.dies, len(times) + len(sizes)
    # each stratum has one cell more than it has times
    last, start = there.slot + there.start, there.start + there.stratum
    if there.enter is None:
        late = np.zeros(0, np.int64)
    else:
        never = there.slot < 0
        late = np.where(never, sizes[there.stratum], there.enter) + start
        late = late[there.enter > 0]
    weight = weights(site.data)[dead]
    return Deaths(
        np.bincount(last[dead], minlength=len(times)),
        np.bincount(last[dead], weight, minlength=len(times)),
        np.bincount((there.slot + 1 + start)[~dead], minlength=cells),
        np.bincount(late, minlength=cells),
        weight @ (x[dead] - centre),
        ((x - centre) ** 2).sum(axis=0),
    )


@summed
def risk_weights(
    site: SurvivalSite,
    *,
    times: Array,
    sizes: Array,
    shared: Array,
    centre: Array,
    scale: Array,
    tied: Array,
    beta: Array,
) -> RiskWeights:
    """Sum the predicted hazards of all still at risk at each grid time.

    r at β (p,), so that the coordinator has S₀, and D₀ at the times `tied` (G,).
    """
    records = placed(site.data, times, sizes, shared, centre, scale)
    risk = records.risk(beta)
    return RiskWeights(records.leaving(risk), records.sharing_sum(risk, tied))


@summed
def expected_deaths(
    site: SurvivalSite,
    *,
    times: Array,
    sizes: Array,
    shared: Array,
    centre: Array,
    scale: Array,
    beta: Array,
    a: Array,
    b: Array,
) -> Expected:
    """Sum covariates and their squares, weighted by the deaths expected of each row.

    The pooled hazard is a, b (T,).
    """
    records = placed(site.data, times, sizes, shared, centre, scale)
    return Expected(*records.expected(records.risk(beta), a, b))


@summed
def risk_moments(
    site: SurvivalSite,
    *,
    times: Array,
    sizes: Array,
    shared: Array,
    centre: Array,
    scale: Array,
    tied: Array,
    beta: Array,
) -> RiskMoments:
    """Sum covariates over all still at risk at each grid time, once, at the end.

    r x at β (p,), so that the coordinator has S₁, and D₁ at the times `tied` (G,).
    """
    records = placed(site.data, times, sizes, shared, centre, scale)
    weighted = records.risk(beta)[:, None] * records.x
    return RiskMoments(records.leaving(weighted), records.sharing_sum(weighted, tied))


@summed
def trend_moments(
    site: SurvivalSite,
    *,
    times: Array,
    sizes: Array,
    shared: Array,
    centre: Array,
    scale: Array,
    beta: Array,
    a: Array,
    b: Array,
    g: Array,
) -> TrendMoments:
    """Sum covariates of deaths, and squares of all records, weighted by a function of time, once.

    That is g (T,), of `algorithms.cox.proportional`; the pooled hazard is a, b (T,).
    """
    records = placed(site.data, times, sizes, shared, centre, scale)
    return TrendMoments(*over_records(records, records.risk(beta), a, b, g))


@summed
def disorder(
    site: SurvivalSite,
    *,
    times: Array,
    sizes: Array,
    shared: Array,
    centre: Array,
    scale: Array,
    beta: Array,
    mean: Array,
    covariance: Array,
    dead: Array,
    censored: Array,
) -> Disorder:
    """Sum what the unknown order within intervals may do to each coefficient, squared, once.

    Parameters
    ----------
    mean, covariance : x̄ (p,) and C (p, p).
    dead, censored : κ (T,) of either.
    """
    records = placed(site.data, times, sizes, shared, centre, scale)
    kappa = censored[records.slot]
    kappa[records.dead] = dead[records.slot[records.dead]]
    pull = records.risk(beta)[:, None] * ((records.x - mean) @ covariance)
    return Disorder(kappa @ pull**2)


STEPS = (
    *exact.STEPS,
    totals,
    stratum_sizes,
    deaths,
    risk_weights,
    expected_deaths,
    risk_moments,
    trend_moments,
    disorder,
)
