"""Grids cover all deaths, and protected intervals hold enough of them, in any unit of time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifelines.datasets import load_gbsg2
from numpy.testing import assert_array_equal

from data_cases import deaths_at, federation
from fedcohort.data.tables import SurvivalTable
from fedcohort.data.timegrid import MOST, STEPS, time_grid
from fedcohort.protocol import DataError, SettingError


def per_interval(grid, times):
    """Return deaths in each (t_{k−1}, t_k], and last those beyond the grid."""
    return np.bincount(np.searchsorted(grid, times), minlength=len(grid) + 1)


@given(
    n=st.integers(1, 300),
    n_sites=st.integers(1, 4),
    unit=st.sampled_from([1.0, 1e-3, 1e6, 1 / 365.25]),
    whole=st.booleans(),
    ties=st.sampled_from([3, 50, 10_000]),
    min_cell=st.integers(1, 8),
    rule=st.sampled_from(["protected", 1, 4, 1000]),
    seed=st.integers(0, 999),
)
def test_every_interval_holds_min_cell_deaths_and_none_lies_beyond(
    n, n_sites, unit, whole, ties, min_cell, rule, seed
):
    rng = np.random.default_rng(seed)
    times = np.ceil(rng.exponential(1, n) * ties) * (1 if whole else unit)
    grid = time_grid(deaths_at(times, min(n_sites, n), seed), rule, min_cell)
    held = per_interval(grid, times)
    assert held[-1] == 0
    assert np.all(np.diff(grid) > 0)
    assert np.all(held[:-1] >= min(min_cell, n))
    if n < 2 * min_cell:
        assert len(grid) == 1
    if rule != "protected":
        assert len(grid) <= rule


@given(n=st.integers(4, 200), n_sites=st.integers(2, 4), seed=st.integers(0, 999))
def test_the_grid_does_not_depend_on_how_deaths_are_split(n, n_sites, seed):
    times = np.random.default_rng(seed).exponential(400, n)
    one = time_grid(deaths_at(times), "protected", 5)
    assert_array_equal(time_grid(deaths_at(times, n_sites, seed), "protected", 5), one)


def test_the_last_bits_of_a_moment_on_a_threshold_do_not_move_the_grid():
    # a mean of 92/3, which no float is; standard deviation 16, a power of two, up to rounding
    times = [18, 58, 39, 40, 36, 55, 8, 16, 11, 16, 3, 30, 26, 37, 31, 39, 57, 32]
    assert np.var(times) == pytest.approx(256, rel=1e-12)
    one = time_grid(deaths_at(times), "protected", 2)
    for seed in range(12):
        assert_array_equal(time_grid(deaths_at(times, 3, seed), "protected", 2), one)


def test_the_grid_of_gbsg2_is_fine_and_ends_near_the_last_recurrence():
    times = load_gbsg2().query("cens == 1")["time"].to_numpy(float)
    grid = time_grid(deaths_at(times, 8), "protected", 5)
    assert 35 <= len(grid) <= 60
    assert times.max() <= grid[-1] < 1.05 * times.max()
    assert np.all(grid % 1 == 0)


def test_many_deaths_give_at_most_the_stated_number_of_intervals():
    times = np.random.default_rng(0).weibull(1.5, 20_000)
    grid = time_grid(deaths_at(times, 2), "protected", 5)
    assert MOST / 2 < len(grid) <= MOST


def test_a_number_of_intervals_gives_quantiles():
    times = np.random.default_rng(0).weibull(1.5, 5_000)
    grid = time_grid(deaths_at(times, 2), 10, 5)
    assert len(grid) == 10
    assert np.all(np.abs(per_interval(grid, times)[:-1] - 500) < 100)


def test_exact_gives_the_distinct_times_of_deaths_only():
    x = np.zeros((3, 1))
    fed = federation(
        {
            "a": SurvivalTable(x, np.array([3.0, 1.0, 2.0]), np.array([True, True, False])),
            "b": SurvivalTable(x, np.array([3.0, 5.0, 9.0]), np.array([True, True, False])),
        },
        STEPS,
    )
    assert_array_equal(time_grid(fed, "exact", 5), [1.0, 3.0, 5.0])


@pytest.mark.parametrize("rule", ["protected", "exact", 5])
def test_no_deaths_are_one_clear_error(rule):
    alive = SurvivalTable(np.zeros((3, 1)), np.arange(1.0, 4), np.zeros(3, bool))
    with pytest.raises(DataError, match="none of the 2 sites has seen an event"):
        time_grid(federation({"a": alive, "b": alive}), rule, 5)


@pytest.mark.parametrize("rule", ["protectd", 0, -3, True])
def test_an_impossible_rule_is_refused(rule):
    with pytest.raises(SettingError, match="time_grid is"):
        time_grid(deaths_at([1, 2, 3]), rule, 5)


def test_only_sums_leave_a_site_for_a_protected_grid():
    fed = deaths_at(np.arange(1.0, 100), 3)
    time_grid(fed, "protected", 5)
    assert all('"verb":"sum"' in line for line in fed.ledger.lines)
