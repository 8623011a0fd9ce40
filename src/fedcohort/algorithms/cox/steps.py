"""Site steps of Cox regression. All replies are sums over sites.

`placing` standardises covariates and places records on the grid. The times of the K strata, each
with its own baseline hazard, are concatenated, with `sizes` (K,); K is 1 without strata. If times
are ends of intervals, `shared` (T,) says in which all leavers tie, not only the deaths; it is empty
if times are those of death.
"""

from __future__ import annotations

import numpy as np

from fedcohort.algorithms.cox.placing import SurvivalSite, placed, risks, weights
from fedcohort.algorithms.cox.proportional import over_records
from fedcohort.arrays import Array
from fedcohort.data import exact
from fedcohort.data.words import rows
from fedcohort.numerics.strata import laid
from fedcohort.protocol import DataError, message, summed

#: Largest absolute value of an offset, a log hazard ratio.
FAR = 300.0


@message
class Totals:
    """``rows`` (), their ``weight`` (), and Σ x (p,) over all records."""

    rows: Array
    weight: Array
    x: Array


@message
class Deaths:
    """Counts by grid time, and sums of covariates about c.

    Deaths (T,) and their ``weight`` (T,); censored records (T+K,), in each of K strata first those
    never at risk; records that ``enter`` (T+K,) at each time but the first, in each stratum last
    those never at risk; weighted Σ_deaths (x − c) (p,); Σ (x − c)² (p,) over all records.
    """

    deaths: Array
    weight: Array
    censored: Array
    enter: Array
    x_dead: Array
    squares: Array


@message
class Squares:
    """Σ (x − c)(x − c)ᵀ (p, p) over all records, of the covariates."""

    inner: Array


@message
class StratumSizes:
    """``rows`` and ``deaths`` of each stratum (K,)."""

    rows: Array
    deaths: Array


@message
class RiskWeights:
    """Σ r over the records that leave at each grid time (T,), and over those tied (G,)."""

    leaving: Array
    dying: Array


@message
class Expected:
    """Σ w x (p,) and Σ w x xᵀ (p, p), with w the expected deaths of each record."""

    first: Array
    second: Array


@message
class RiskMoments:
    """Σ r x over the records that leave at each grid time (T, p), and over those tied (G, p)."""

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


@summed(blocks="rows")
def totals(site: SurvivalSite, *, offset: bool) -> Totals:
    """Count the records, and sum their weights and covariates.

    Raises
    ------
    DataError : an offset is beyond ± `FAR`; the rows' numbers are named.
    """
    x, weight = site.data.x, weights(site.data)
    if offset and (far := np.abs(x[:, -1]) > FAR).any():
        raise DataError(
            f"site {site.name!r}: the offset is beyond ±{FAR:g} in {rows(far)}; it is added to the "
            f"logarithm of the hazard. Give the logarithm of a hazard ratio."
        )
    return Totals(np.array(float(len(x))), np.array(weight.sum()), x.sum(axis=0))


@summed(blocks="rows")
def squares(site: SurvivalSite, *, centre: Array) -> Squares:
    """Sum the products of the covariates about their mean.

    Of a prior's covariates alone, `centre` (p,): an offset in x, which comes last, is left out.
    """
    z = site.data.x[:, : len(centre)] - centre
    return Squares(z.T @ z)


@summed(blocks="rows")
def stratum_sizes(site: SurvivalSite, *, strata: int) -> StratumSizes:
    """Count the records and the deaths of each stratum."""
    table = site.data
    at = np.zeros(len(table.x), np.int64) if table.stratum is None else table.stratum
    return StratumSizes(
        np.bincount(at, minlength=strata),
        np.bincount(at[np.asarray(table.event, bool)], minlength=strata),
    )


@summed(blocks="rows")
def deaths(
    site: SurvivalSite, *, times: Array, sizes: Array, together: bool, centre: Array
) -> Deaths:
    """Count deaths, censored records and entries by time; sum covariates about their mean.

    If `together`, all who leave in an interval are at risk until its end.
    """
    x, time, event, _, entry, stratum = site.data
    there = laid(time, event, times, sizes, entry, stratum, together=together)
    dead, cells = there.dies, len(times) + len(sizes)
    # each stratum has one cell more than times
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


@summed(blocks="rows")
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
    """Sum the predicted hazards of all patients at risk at each grid time.

    The reply gives S₀, and D₀ at the times `tied` (G,), at β (p,).
    """
    records = placed(site.data, times, sizes, shared, centre, scale)
    risk = risks(records, beta)
    return RiskWeights(records.leaving(risk), records.sharing_sum(risk, tied))


@summed(blocks="rows")
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
    """Sum covariates and their products, weighted by each patient's expected deaths.

    The pooled hazard is a, b (T,).
    """
    records = placed(site.data, times, sizes, shared, centre, scale)
    return Expected(*records.expected(risks(records, beta), a, b))


@summed(blocks="rows")
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
    """Sum weighted covariates of all patients at risk at each grid time, once, at the end.

    The reply gives S₁, and D₁ at the times `tied` (G,), at β (p,).
    """
    records = placed(site.data, times, sizes, shared, centre, scale)
    weighted = risks(records, beta)[:, None] * records.x
    return RiskMoments(records.leaving(weighted), records.sharing_sum(weighted, tied))


@summed(blocks="rows")
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
    """Sum covariates of deaths, and products of all records, weighted by a function of time, once.

    The function is g (T,) of `algorithms.cox.proportional`; the pooled hazard is a, b (T,).
    """
    records = placed(site.data, times, sizes, shared, centre, scale)
    return TrendMoments(*over_records(records, risks(records, beta), a, b, g))


@summed(blocks="rows")
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
    """Sum squared errors of each coefficient due to the unknown order within intervals, once.

    Parameters
    ----------
    mean, covariance : x̄ (p,) and C (p, p).
    dead, censored : κ (T,) of deaths and of censored records.
    """
    records = placed(site.data, times, sizes, shared, centre, scale)
    kappa = censored[records.slot]
    kappa[records.dead] = dead[records.slot[records.dead]]
    pull = risks(records, beta)[:, None] * ((records.x - mean) @ covariance)
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
