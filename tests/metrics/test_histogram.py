"""C-index and AUC from counts: bounds that hold, and limits that are exact."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sksurv.metrics import cumulative_dynamic_auc

from fedcohort.metrics.sums.histogram import (
    auc,
    concordance,
    risk_time_counts,
    spread_pairs,
    uno_weights,
)
from fedcohort.metrics.survival.censoring import censoring_of
from fedcohort.metrics.survival.concordance import harrell, uno


def edges_between(values):
    """Edges that put every distinct value into a bin of its own."""
    distinct = np.unique(values)
    return (distinct[1:] + distinct[:-1]) / 2


@given(
    n=st.integers(2, 60),
    bins=st.integers(1, 12),
    cells=st.integers(0, 12),
    decimals=st.integers(0, 3),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=120, deadline=None)
def test_the_c_index_of_the_records_lies_between_the_bounds(n, bins, cells, decimals, seed):
    rng = np.random.default_rng(seed)
    risk = rng.normal(size=n).round(decimals)
    time = (0.1 + rng.exponential(size=n)).round(decimals)
    event = rng.random(n) < 0.6
    truth = harrell(risk, time, event)
    if math.isnan(truth):
        return
    edges = np.linspace(-2, 2, bins + 1)[1:-1]
    grid = np.linspace(0.1, 2.5, cells)
    got = concordance(risk_time_counts(risk, time, event, edges, grid))
    assert got.low - 1e-12 <= truth <= got.high + 1e-12
    if not math.isnan(got.estimate):
        assert got.low - 1e-12 <= got.estimate <= got.high + 1e-12


def test_bounds_by_hand():
    # Early cell: deaths of low and high risk, a low risk censored; late cell: a low risk censored.
    # Certain: high death before the late record (concordant). Tied: low death and the late record.
    # Unknown in the early cell: the two deaths; either death and the censored record.
    risk, time = np.array([0.0, 1.0, 0.0, 0.0]), np.array([0.2, 0.4, 0.6, 1.5])
    event = np.array([1, 1, 0, 0], bool)
    grid = np.array([1.0, 2.0])
    got = concordance(risk_time_counts(risk, time, event, np.array([0.5]), grid))
    assert_allclose(got.estimate, (2 + 0.5 * 2) / 4)
    assert_allclose(got.low, 1 / (1 + 1 + 1 + 1))
    assert got.high == 1.0
    flipped = concordance(risk_time_counts(-risk, time, event, np.array([-0.5]), grid))
    assert flipped.low == 0.0
    assert_allclose(flipped.high, 3 / 4)


def test_bins_and_cells_for_every_value_give_the_exact_index_despite_ties():
    rng = np.random.default_rng(4)
    risk, time = rng.normal(size=150).round(1), np.ceil(rng.exponential(8, 150))
    event = rng.random(150) < 0.5
    counts = risk_time_counts(risk, time, event, edges_between(risk), np.unique(time))
    assert_allclose(concordance(counts).estimate, harrell(risk, time, event), atol=1e-14)
    grid, followed = np.unique(time), censoring_of(time, event)
    weighted = concordance(counts, uno_weights(grid, followed, 9.0))
    assert_allclose(weighted.estimate, uno(time, event, time, event, risk, 9.0), atol=1e-13)


def test_finer_bins_close_the_bounds_on_the_truth(gbsg2):
    truth = harrell(gbsg2.risk, gbsg2.time, gbsg2.event)
    widths, errors = [], []
    for m in (10, 40, 160, 640):
        levels = np.arange(1, m) / m
        edges, grid = np.quantile(gbsg2.risk, levels), np.unique(np.quantile(gbsg2.time, levels))
        got = concordance(
            risk_time_counts(gbsg2.risk, gbsg2.time, gbsg2.event, np.unique(edges), grid)
        )
        widths.append(got.high - got.low)
        errors.append(abs(got.estimate - truth))
    assert np.all(np.diff(widths) < 0)
    assert widths[-1] < 0.01
    assert errors[1] < 0.005
    assert errors[-1] < 5e-4


def test_auc_of_fine_bins_is_that_of_the_records(whas500):
    c = whas500.rows(~(whas500.event & (whas500.time == whas500.time.max())))
    grid = np.unique(c.time)[:-1]
    counts = risk_time_counts(c.risk, c.time, c.event, edges_between(c.risk), grid)
    got = auc(counts, grid, censoring_of(c.time, c.event))
    values, mean = cumulative_dynamic_auc(c.y, c.y, c.risk, grid)
    assert_allclose(got.values, values, atol=1e-12)
    assert_allclose(got.mean, mean, atol=1e-8)


def test_there_is_no_auc_without_cases_or_controls():
    time, event, risk = np.array([2.0, 3.0]), np.ones(2, bool), np.array([1.0, 0.0])
    counts = risk_time_counts(risk, time, event, np.array([0.5]), np.array([1.0, 2.5]))
    got = auc(counts, np.array([1.0, 2.5]), censoring_of(time, event))
    assert math.isnan(got.values[0])
    assert got.values[1] == got.mean == 1.0
    early = risk_time_counts(risk, time, event, np.array([0.5]), np.array([1.0]))
    assert math.isnan(auc(early, np.array([1.0]), censoring_of(time, event)).mean)


def test_the_smallest_filled_cell_is_reported():
    risk, time, event = np.zeros(5), np.array([1.0, 1, 1, 2, 2]), np.ones(5, bool)
    counts = risk_time_counts(risk, time, event, np.empty(0), np.array([1.0]))
    assert concordance(counts).smallest_cell == 2
    assert concordance(counts).estimate == 0.5
    nobody = concordance(risk_time_counts(risk[:0], time[:0], event[:0], np.empty(0), np.empty(0)))
    assert math.isnan(nobody.estimate)
    assert (nobody.low, nobody.high, nobody.smallest_cell) == (0.0, 1.0, 0)


def test_records_each_in_a_cell_of_their_own_give_the_pairs_of_the_records():
    rng = np.random.default_rng(5)
    n = 90
    time, event = rng.permutation(n) + 1.0, rng.random(n) < 0.6
    risk = rng.permutation(n) - 0.1 * time
    edges = (np.sort(risk)[1:] + np.sort(risk)[:-1]) / 2
    counts = risk_time_counts(risk, time, event, edges, np.arange(1.0, n + 1))
    right, pairs = spread_pairs(counts, np.ones(n + 1))
    assert_allclose(right / pairs, harrell(risk, time, event), rtol=1e-12)


def test_pairs_in_one_cell_count_as_if_times_were_spread_evenly_over_it():
    risk, time = np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.5, 2.0])
    edges, grid = np.array([0.5, 1.5]), np.array([3.0])
    died = risk_time_counts(risk, time, np.ones(3, bool), edges, grid)
    assert spread_pairs(died, np.array([1.0, 1.0])) == (1.5, 3.0)
    one = risk_time_counts(risk, time, np.array([False, True, False]), edges, grid)
    # two were followed half of the time: one of lower risk, one of higher
    assert spread_pairs(one, np.array([1.0, 1.0])) == (0.5, 1.0)
