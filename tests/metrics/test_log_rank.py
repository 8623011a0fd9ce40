"""Freireich's remissions as textbooks have them, lifelines' test, and what groups may be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifelines.statistics import multivariate_logrank_test
from numpy.testing import assert_allclose, assert_array_equal

from fedcohort.metrics.survival.censoring import Leavers
from fedcohort.metrics.survival.kaplan_meier import group_leavers
from fedcohort.metrics.survival.log_rank import log_rank

# Remission in weeks: Freireich et al., Blood 21, 1963; + is censored.
MP = "6 6 6 6+ 7 9+ 10 10+ 11+ 13 16 17+ 19+ 20+ 22 23 25+ 32+ 32+ 34+ 35+".split()
PLACEBO = "1 1 2 2 3 4 4 5 5 8 8 8 8 11 11 12 12 15 17 22 23".split()


def test(group, time, event, groups=None):
    group = np.asarray(group)
    counts = group_leavers(group, groups or group.max() + 1, time, event, np.unique(time))
    return log_rank(counts)


test.__test__ = False


def test_remissions_as_kleinbaum_and_klein_have_them():
    # Survival Analysis, 3rd ed. 2012, section 2.IV: χ² 16.793, expected 19.251 and 10.749.
    weeks = MP + PLACEBO
    time = np.array([float(w.strip("+")) for w in weeks])
    got = test(np.repeat([0, 1], 21), time, np.array(["+" not in w for w in weeks]))
    assert_allclose(got.chi2, 16.793, atol=5e-4)
    assert_array_equal(got.observed, [9, 21])
    assert_allclose(got.expected, [19.251, 10.749], atol=5e-4)
    assert got.df == 1
    assert_allclose(got.p, 4.17e-5, atol=5e-8)


@pytest.mark.parametrize("name", ["gbsg2", "whas500", "rossi"])
@pytest.mark.parametrize("groups", [2, 3, 5])
def test_it_equals_lifelines(request, name, groups):
    cohort = request.getfixturevalue(name)
    group = np.argsort(np.argsort(cohort.x[:, 0] + 1e-9 * cohort.risk)) * groups // len(cohort.time)
    got = test(group, cohort.time, cohort.event)
    want = multivariate_logrank_test(cohort.time, group, cohort.event)
    assert_allclose(got.chi2, want.test_statistic, rtol=1e-10)
    assert_allclose(got.p, want.p_value, rtol=1e-9)
    assert got.df == groups - 1
    assert_allclose(got.expected.sum(), got.observed.sum())


@given(seed=st.integers(0, 2**16), groups=st.integers(2, 4))
def test_neither_the_groups_names_nor_the_sites_matter(seed, groups):
    rng = np.random.default_rng(seed)
    time, event = rng.integers(1, 15, 80).astype(float), rng.random(80) < 0.7
    group = np.r_[np.arange(groups), rng.integers(0, groups, 80 - groups)]
    got = test(group, time, event)
    renamed = test(rng.permutation(groups)[group], time, event)
    assert_allclose([renamed.chi2, renamed.df], [got.chi2, got.df], rtol=1e-9, atol=1e-12)
    grid, half = np.unique(time), np.arange(80) < 33
    a, b = (group_leavers(group[s], groups, time[s], event[s], grid) for s in (half, ~half))
    over_sites = log_rank(Leavers(a.deaths + b.deaths, a.censored + b.censored))
    assert over_sites.chi2 == got.chi2


def test_a_group_that_left_before_the_first_death_has_no_degree_of_freedom():
    time = np.array([1.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    event = np.array([0, 0, 1, 1, 1, 1], bool)
    got = test([0, 0, 1, 1, 2, 2], time, event)
    want = test([0, 0, 1, 1], time[2:], event[2:])
    assert_allclose([got.chi2, got.df, got.p], [want.chi2, 1, want.p])
    assert got.expected[0] == 0


def test_without_deaths_or_with_one_group_there_is_no_test():
    time = np.array([1.0, 2.0, 3.0])
    for found in (
        test([0, 1, 1], time, np.zeros(3, bool)),
        test([0, 0, 0], time, np.ones(3, bool), 2),
    ):
        assert found.df == 0
        assert math.isnan(found.chi2)
        assert math.isnan(found.p)


def test_equal_groups_do_not_differ():
    time = np.tile(np.arange(1.0, 11.0), 2)
    got = test(np.repeat([0, 1], 10), time, np.ones(20, bool))
    assert_allclose([got.chi2, got.p], [0, 1], atol=1e-12)
