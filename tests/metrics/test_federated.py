"""Over sites, every metric is that of the pooled records, however these are split."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedcohort.data.tables import SurvivalTable
from fedcohort.metrics.calibration import (
    calibration_groups,
    calibration_slope,
    d_calibration,
    fit_slope,
    groups_of,
    own_survival,
)
from fedcohort.metrics.sums import predictions as f
from fedcohort.metrics.sums.histogram import auc, concordance, uno_weights
from fedcohort.metrics.survival import over_time
from fedcohort.metrics.survival.brier import brier
from fedcohort.metrics.survival.censoring import censoring, censoring_of, survival, survival_of
from fedcohort.metrics.survival.concordance import harrell, uno
from fedcohort.protocol.errors import DataError
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local

TIMES = np.array([2.0, 5.0, 9.0])


@dataclass(frozen=True)
class Exponential:
    """The view of a model with hazard exp(x·β): what a coordinator sends instead of an object."""

    beta: tuple[float, ...]

    @property
    def spec(self) -> str:
        return json.dumps({"model": "exponential", "beta": self.beta})

    def __call__(self, table: SurvivalTable) -> f.Scored:
        risk = table.x @ np.array(self.beta)
        surv = np.exp(-0.1 * np.exp(risk)[:, None] * TIMES)
        return f.Scored(risk, surv, table.time, table.event)


MODEL = Exponential((0.8, -0.4))


def cohort(seed, n=120):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)).round(2)
    death = rng.exponential(10 * np.exp(-x @ MODEL.beta))
    leaves = rng.exponential(15, n)
    return SurvivalTable(x, np.ceil(np.minimum(death, leaves)), death <= leaves)


def sites(table, n_sites, seed, reverse=False):
    """Deal the records out at random; the last site stays empty."""
    where = np.random.default_rng(seed).integers(0, n_sites, len(table.time))
    hosts = [
        Host(f"site{s}", SurvivalTable(*(a[where == s] for a in table[:3])), f.STEPS)
        for s in range(n_sites + 1)
    ]
    return local(hosts[::-1] if reverse else hosts).through(MODEL)


def followed_of(fed, grid):
    """G of all sites' records."""
    return censoring(grid, fed.sum(f.count_leavers, grid=grid))


def slope_of(fed, grid):
    """The calibration slope of all sites' risks, of mean `centre` and deviation `spread`."""
    moments = fed.sum(f.score_moments, centre=0.0)
    centre = float(moments.total / moments.rows)
    spread = math.sqrt(fed.sum(f.score_moments, centre=centre).squares / moments.rows)
    asked = {"grid": grid, "centre": centre, "spread": spread}
    return fit_slope(lambda b: fed.sum(f.sum_slope, b=b, **asked), spread)


splits = {"seed": st.integers(0, 2**16), "n_sites": st.integers(1, 5)}


@given(**splits)
@settings(max_examples=15, deadline=None)
def test_every_metric_is_that_of_the_pooled_records(seed, n_sites):
    table = cohort(seed)
    fed, scored = sites(table, n_sites, seed), MODEL(table)
    time, event = table.time, table.event
    grid = np.unique(time)

    followed = followed_of(fed, grid)
    assert_array_equal(followed.values, censoring_of(time, event).values)
    alive = survival(grid, fed.sum(f.count_leavers, grid=grid))
    assert_array_equal(alive.values, survival_of(time, event).values)

    scores = f.federated_brier(fed, times=TIMES, followed=followed)
    want = brier(time, event, time, event, scored.surv, TIMES)
    assert_allclose(scores, want, atol=1e-12)

    got = f.federated_d_calibration(fed, times=TIMES)
    want = d_calibration(*own_survival(scored.surv, TIMES, time, event))
    assert_allclose(got.counts, want.counts, atol=1e-12)
    assert_allclose([got.statistic, got.p], [want.statistic, want.p], atol=1e-11)

    predicted = scored.surv[:, 1]
    want = calibration_groups(predicted, time, event, TIMES[1], groups=4)
    asked = {
        "column": 1,
        "edges": np.unique(np.quantile(predicted, [0.25, 0.5, 0.75])),
        "grid": np.unique(np.r_[time[time < TIMES[1]], TIMES[1]]),
    }
    for ours, theirs in zip(groups_of(fed.sum(f.sum_groups, **asked)), want, strict=True):
        assert_allclose(ours, theirs, atol=1e-12)

    got = slope_of(fed, np.unique(time[event]))
    assert_allclose(got, calibration_slope(scored.risk, time, event), rtol=1e-7)


@given(**splits, bins=st.integers(1, 30), cells=st.integers(1, 20))
@settings(max_examples=15, deadline=None)
def test_the_pooled_c_index_lies_within_the_stated_grid_error(seed, n_sites, bins, cells):
    table = cohort(seed)
    fed = sites(table, n_sites, seed)
    edges = f.federated_risk_edges(fed, bins=bins)
    got = concordance(
        fed.sum(f.count_risk_by_time, risk_edges=edges, grid=np.linspace(1, 20, cells))
    )
    truth = harrell(MODEL(table).risk, table.time, table.event)
    assert got.low - 1e-12 <= truth <= got.high + 1e-12


def test_with_a_bin_for_every_risk_pairs_across_sites_are_compared_exactly():
    table = cohort(1)
    fed, risk = sites(table, 4, seed=1), MODEL(table).risk
    time, event = table.time, table.event
    distinct, grid = np.unique(risk.round(9)), np.unique(time)
    fine = {"risk_edges": (distinct[1:] + distinct[:-1]) / 2, "grid": grid}
    followed = followed_of(fed, grid)
    counts = fed.sum(f.count_risk_by_time, **fine)
    assert_allclose(concordance(counts).estimate, harrell(risk, time, event), atol=1e-12)
    weighted = concordance(counts, uno_weights(grid, followed, 8.0))
    assert_allclose(weighted.estimate, uno(time, event, time, event, risk, 8.0), atol=1e-12)
    got = auc(counts, grid, followed).values[np.searchsorted(grid, TIMES)]
    want = over_time.auc(np.ones((1, len(time))), time, event, time, event, risk, TIMES)[0]
    assert_allclose(got, want, atol=1e-12)


@given(**splits)
@settings(max_examples=10, deadline=None)
def test_the_order_of_the_sites_does_not_matter(seed, n_sites):
    table = cohort(seed)
    results = []
    for reverse in (False, True):
        fed = sites(table, n_sites, seed, reverse)
        followed = followed_of(fed, np.unique(table.time))
        edges = f.federated_risk_edges(fed, bins=8)
        c = concordance(fed.sum(f.count_risk_by_time, risk_edges=edges, grid=TIMES))
        b = f.federated_brier(fed, times=TIMES, followed=followed)
        results.append(np.r_[edges, c, b, slope_of(fed, TIMES)])
    assert_array_equal(*results)


def test_risk_edges_split_the_pooled_records_evenly():
    table = cohort(3, n=2000)
    edges = f.federated_risk_edges(sites(table, 3, seed=0), bins=10)
    counts = np.histogram(MODEL(table).risk, np.r_[-np.inf, edges, np.inf])[0]
    assert len(edges) == 9
    assert_allclose(counts, 200, atol=25)


def test_a_constant_model_is_a_coin():
    table = cohort(2)._replace(x=np.zeros((120, 2)))
    fed = sites(table, 3, seed=2)
    edges = f.federated_risk_edges(fed)
    assert len(edges) == 0
    counts = fed.sum(f.count_risk_by_time, risk_edges=edges, grid=TIMES)
    assert concordance(counts).estimate == 0.5


def test_only_sums_leave_the_sites():
    assert {step.verb for step in f.STEPS} == {"sum"}


def test_a_view_that_predicts_at_other_times_is_refused():
    fed = sites(cohort(0), 2, seed=0)
    followed = followed_of(fed, TIMES)
    with pytest.raises(DataError, match="Predict at the times of the evaluation"):
        f.federated_brier(fed, times=TIMES[:2], followed=followed)
