"""Site steps of Cox regression. All are sums: no site's own numbers are ever seen.

Covariates are standardised by the pooled centre and scale; β then counts in log hazard ratio per
standard deviation. A site remembers where its records lie on the grid, while its table lives.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.numerics.coxph import Placed, pooled
from fedcohort.numerics.proportional import over_records, pooled_trend
from fedcohort.numerics.survival import dies_on_grid, slots
from fedcohort.protocol import Site, message, summed


@message
class Totals:
    """``rows`` (), and Σ x (p,) over all records."""

    rows: Array
    x: Array


@message
class Deaths:
    """Deaths (T,) by grid time, and censored records (T+1,), those never at risk first.

    Also Σ_deaths (x − c) (p,), and Σ (x − c)² (p,) over all records.
    """

    deaths: Array
    censored: Array
    x_dead: Array
    squares: Array


@message
class RiskWeights:
    """Σ r over those who leave at each grid time (T,), and over the tied deaths (G,)."""

    leaving: Array
    dying: Array


@message
class Expected:
    """Σ w x (p,) and Σ w x xᵀ (p, p), with w the deaths expected of each record."""

    first: Array
    second: Array


@message
class RiskMoments:
    """Σ r x over those who leave at each grid time (T, p), and over the tied deaths (G, p)."""

    leaving: Array
    dying: Array


@message
class OwnLikelihood:
    """ℓ (), U (p,) and I (p, p) of a site's records under its own baseline hazard."""

    log_likelihood: Array
    score: Array
    information: Array


@message
class TrendMoments:
    """Σ g x over deaths (p,), and Σ w⁽ᵏ⁾ x xᵀ over all records for k = 1 and 2 (p, p)."""

    dead: Array
    once: Array
    twice: Array


@message
class OwnTrend:
    """U_θ (p,), I_1 and I_2 (p, p) of a site's records under its own baseline hazard."""

    score: Array
    cross: Array
    information: Array


SurvivalSite = Site[SurvivalTable, None]


@summed
def totals(site: SurvivalSite) -> Totals:
    """Count and sum the records."""
    return Totals(np.array(float(len(site.data.x))), site.data.x.sum(axis=0))


@summed
def deaths(site: SurvivalSite, *, times: Array, centre: Array) -> Deaths:
    """Count deaths and censored records by time, and sum covariates about their centre c (p,)."""
    x, time, event = site.data
    slot, dead = slots(time, event, times), dies_on_grid(time, event, times)
    return Deaths(
        np.bincount(slot[dead], minlength=len(times)),
        np.bincount(slot[~dead] + 1, minlength=len(times) + 1),
        (x[dead] - centre).sum(axis=0),
        ((x - centre) ** 2).sum(axis=0),
    )


@summed
def risk_weights(
    site: SurvivalSite,
    *,
    times: Array,
    exits: Array,
    centre: Array,
    scale: Array,
    tied: Array,
    beta: Array,
) -> RiskWeights:
    """Sum the predicted hazards of all still at risk at each grid time.

    r at β (p,), so that the coordinator has S₀ and D₀. Censored records leave at the slots `exits`.
    """
    records = _placed(site.data, times, exits, centre, scale)
    risk = records.risk(beta)
    return RiskWeights(records.leaving(risk), records.dying(risk, tied))


@summed
def expected_deaths(
    site: SurvivalSite,
    *,
    times: Array,
    exits: Array,
    centre: Array,
    scale: Array,
    beta: Array,
    a: Array,
    b: Array,
) -> Expected:
    """Sum covariates and their squares, weighted by the deaths expected of each row.

    The pooled hazard is a, b (T,).
    """
    records = _placed(site.data, times, exits, centre, scale)
    return Expected(*records.expected(records.risk(beta), a, b))


@summed
def risk_moments(
    site: SurvivalSite,
    *,
    times: Array,
    exits: Array,
    centre: Array,
    scale: Array,
    tied: Array,
    beta: Array,
) -> RiskMoments:
    """Sum covariates over all still at risk at each grid time, once, at the end.

    r x at β (p,), so that the coordinator has S₁ and D₁.
    """
    records = _placed(site.data, times, exits, centre, scale)
    weighted = records.risk(beta)[:, None] * records.x
    return RiskMoments(records.leaving(weighted), records.dying(weighted, tied))


@summed
def own_likelihood(
    site: SurvivalSite, *, centre: Array, scale: Array, beta: Array, ties: str
) -> OwnLikelihood:
    """Sum the likelihood under each site's own baseline, with its slope and curvature.

    At β (p,) and at the site's own exact times.
    """
    own = _own_times(site.data)
    result = pooled(_placed(site.data, own, None, centre, scale), beta, ties)
    return OwnLikelihood(np.array(result.log_likelihood), result.score, result.information)


@summed
def trend_moments(
    site: SurvivalSite,
    *,
    times: Array,
    exits: Array,
    centre: Array,
    scale: Array,
    beta: Array,
    a: Array,
    b: Array,
    g: Array,
) -> TrendMoments:
    """Sum covariates of deaths, and squares of all records, weighted by a function of time, once.

    That is g (T,), of `numerics.proportional`; the pooled hazard is a, b (T,).
    """
    records = _placed(site.data, times, exits, centre, scale)
    return TrendMoments(*over_records(records, records.risk(beta), a, b, g))


@summed
def own_trend(
    site: SurvivalSite,
    *,
    times: Array,
    centre: Array,
    scale: Array,
    beta: Array,
    ties: str,
    g: Array,
) -> OwnTrend:
    """Sum how effects change with time under each site's own baseline, once.

    At the site's own times of death, where g is that of the grid's interval: `times`, g (T,).
    """
    own = _own_times(site.data)
    at = np.minimum(np.searchsorted(times, own), len(times) - 1)
    return OwnTrend(*pooled_trend(_placed(site.data, own, None, centre, scale), beta, ties, g[at]))


def _own_times(table: SurvivalTable) -> Array:
    """Return a site's distinct times of death."""
    return np.unique(table.time[np.asarray(table.event, bool)])


STEPS = (
    totals,
    deaths,
    risk_weights,
    expected_deaths,
    risk_moments,
    own_likelihood,
    trend_moments,
    own_trend,
)


#: A table's outcome, the grid, and how its records are placed on it.
How = tuple[Array | None, ...]


class _Memory:
    """The latest placing of each table, for as long as its x lives: a fit sorts it once."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Callable[[], Array | None], How, Placed]] = {}

    def __call__(
        self, table: SurvivalTable, times: Array, exits: Array | None, centre: Array, scale: Array
    ) -> Placed:
        key, how = id(table.x), (table.time, table.event, times, exits, centre, scale)
        held = self._held.get(key)
        if held is not None and held[0]() is table.x and _same(held[1], how):
            return held[2]
        x = (table.x - centre) / scale
        placed = Placed.on(times, x, table.time, np.asarray(table.event, bool), exits)
        alive = weakref.ref(table.x, lambda _: self._held.pop(key, None))
        self._held[key] = (alive, how, placed)
        return placed


def _same(these: How, those: How) -> bool:
    return all(a is b or _equal(a, b) for a, b in zip(these, those, strict=True))


def _equal(a: Array | None, b: Array | None) -> bool:
    return a is not None and b is not None and np.array_equal(a, b)


_placed = _Memory()
