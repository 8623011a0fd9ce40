"""Quantiles of the sketch lie within the error that it states, whatever the column holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedcohort.data.prepare.sketch import (
    Moments,
    count_between,
    histograms,
    modes,
    quantiles,
    refine,
)

PROBABILITIES = (0.005, 0.25, 0.5, 0.75, 0.995)

SHAPES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "far from zero": lambda rng, n: 1e6 + rng.normal(size=n),
    "log-normal": lambda rng, n: np.exp(3 * rng.normal(size=n)),
    "whole": lambda rng, n: rng.poisson(3, n).astype(float),
    "mostly zero": lambda rng, n: rng.exponential(1, n) * (rng.random(n) < 0.1),
    "two values": lambda rng, n: np.where(rng.random(n) < 0.3, 5.1, 7.3),
    "one outlier": lambda rng, n: np.r_[rng.normal(size=n - 1), 1e9],
    "negative": lambda rng, n: -rng.exponential(1e-6, n),
}


def moments_of(x):
    return Moments(
        n=(~np.isnan(x)).sum(0).astype(float),
        mean=np.nanmean(x, 0),
        sd=np.nanstd(x, 0),
        whole=np.array([bool(np.all(c[~np.isnan(c)] % 1 == 0)) for c in x.T]),
    )


@given(
    shape=st.sampled_from(sorted(SHAPES)),
    n=st.integers(2, 400),
    seed=st.integers(0, 999),
    scale=st.sampled_from([1.0, 1e-7, 1e5]),
)
def test_quantiles_lie_within_the_error_they_state(shape, n, seed, scale):
    x = (SHAPES[shape](np.random.default_rng(seed), n) * scale)[:, None]
    found, error = quantiles(
        lambda edges: count_between(x.T, edges), moments_of(x), np.array([0]), PROBABILITIES, 5
    )
    truth = np.quantile(x[:, 0], PROBABILITIES, method="inverted_cdf")
    assert np.all(np.abs(found[0] - truth) <= error[0] * (1 + 1e-9) + 1e-12 * np.abs(truth))


def test_many_rows_make_the_error_small():
    x = np.random.default_rng(0).normal(size=(20_000, 3)) * [1, 100, 1e-4]
    found, error = quantiles(
        lambda edges: count_between(x.T, edges), moments_of(x), np.arange(3), (0.5,), 5
    )
    assert np.all(error[:, 0] < x.std(axis=0) / 200)
    assert_allclose(found[:, 0], np.median(x, axis=0), atol=np.max(error))


def test_the_first_histogram_holds_every_value_without_asking_for_the_largest():
    x = np.r_[np.zeros(500), 1e12][:, None]
    (h,) = histograms(lambda edges: count_between(x.T, edges), moments_of(x), np.array([0]))
    assert h.counts.sum() == 501
    assert len(h.counts) < 150


def test_cells_with_few_rows_are_never_split():
    x = np.random.default_rng(3).normal(size=(300, 1))
    column = np.array([0])

    def ask(edges):
        return count_between(x.T, edges)

    first = histograms(ask, moments_of(x), column)
    (last,) = refine(ask, first, column, 1, lambda h: np.arange(len(h.counts)), 10)
    few = (first[0].counts < 10).nonzero()[0]
    for low, high in zip(first[0].edges[few], first[0].edges[few + 1], strict=True):
        assert not np.any((last.edges > low) & (last.edges < high))
    assert len(last.edges) > len(first[0].edges)
    assert last.counts.sum() == 300


def test_the_median_of_whole_numbers_is_exact():
    x = np.random.default_rng(1).integers(0, 9, 501).astype(float)[:, None]
    found, error = quantiles(
        lambda edges: count_between(x.T, edges), moments_of(x), np.array([0]), (0.5,), 5
    )
    assert found[0, 0] == np.median(x)
    assert error[0, 0] == 0


def test_the_mode_of_small_whole_numbers_is_exact():
    x = np.random.default_rng(1).poisson(4, 800).astype(float)[:, None]
    found, error = modes(lambda edges: count_between(x.T, edges), moments_of(x), np.array([0]), 5)
    assert found[0] == np.bincount(x[:, 0].astype(int)).argmax()
    assert error[0] == 0


def test_counts_leave_out_missing_values_and_columns_that_were_not_asked():
    x = np.array([[1.0, 1.0], [np.nan, 2.0], [3.0, 3.0]])
    edges = np.array([[0.0, 1.0, 4.0], [np.inf, np.inf, np.inf]])
    assert_array_equal(count_between(x.T, edges), [[1, 1], [0, 0]])


@pytest.mark.parametrize("value", [0.0, 5.0, 5.1, -1e-9, 1e15])
def test_a_column_of_one_value_has_this_value_as_its_median(value):
    x = np.full((20, 1), value)
    found, _ = quantiles(
        lambda edges: count_between(x.T, edges), moments_of(x), np.array([0]), (0.5,), 5
    )
    assert_allclose(found[0, 0], value, rtol=1e-11)
