"""A column that the prediction does not use loses nothing; the interval is a bootstrap's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedcohort.metrics.permutation import drop, permutations
from fedcohort.metrics.survival.concordance import harrell, influence


def cohort(n, rng):
    x = rng.normal(size=(n, 2))
    return x, rng.exponential(np.exp(-x[:, 0])), rng.random(n) < 0.7


def dropped(x, time, event, swaps):
    risk = x[:, 0]
    return drop(influence(risk, time, event), [influence(risk[s], time, event) for s in swaps])


def test_a_prediction_that_does_not_change_loses_nothing():
    x, time, event = cohort(60, np.random.default_rng(0))
    same = influence(x[:, 0], time, event)
    assert drop(same, [same] * 3) == (0, 0, 0)


def test_the_drop_is_the_mean_loss_of_the_c_index():
    rng = np.random.default_rng(1)
    x, time, event = cohort(80, rng)
    swaps = permutations(80, 1, 10**6, rng)
    lost = [harrell(x[:, 0], time, event) - harrell(x[s, 0], time, event) for s in swaps]
    got = dropped(x, time, event, swaps)
    assert_allclose(got.value, np.mean(lost))
    assert_allclose(got.value - got.low, got.high - got.value)
    assert got.low > 0


def test_the_interval_is_as_wide_as_that_of_a_bootstrap():
    rng = np.random.default_rng(2)
    x, time, event = cohort(150, rng)
    got = dropped(x, time, event, permutations(150, 1, 10**6, rng))
    values = []
    for _ in range(300):
        r = rng.integers(0, 150, 150)
        swaps = permutations(150, 1, 10**6, rng)
        values.append(dropped(x[r], time[r], event[r], swaps).value)
    assert_allclose((got.high - got.low) / 2 / 1.96, np.std(values), rtol=0.15)


@pytest.mark.parametrize(
    ("rows", "columns", "want"), [(700, 10, 10), (700, 60, 4), (2000, 200, 3), (0, 0, 10)]
)
def test_the_work_decides_how_often_a_column_is_permuted(rows, columns, want):
    got = permutations(rows, columns, 200_000, np.random.default_rng(0))
    assert got.shape == (want, rows)
    assert_array_equal(np.sort(got, axis=1), np.tile(np.arange(rows), (want, 1)))


def test_without_concordance_there_is_no_drop():
    none = influence(np.zeros(3), np.arange(1.0, 4.0), np.zeros(3, bool))
    assert all(map(math.isnan, drop(none, [none] * 3)))
