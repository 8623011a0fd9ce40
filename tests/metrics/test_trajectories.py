"""R, its alarm and their sums, against the paper's formula, ANOVA and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import f

from fedcohort.metrics.trajectories import (
    Contribution,
    Trajectories,
    freedom,
    level_of_look,
)
from mixing import mixing_of


def as_printed(x):
    """R = ((1−α) W + αB)/W of x (n, T), α = 1/T, T = m − 1: section 3.5 with the errata."""
    n, t = x.shape
    means = x.mean(axis=1)
    between = t / (n - 1) * ((means - means.mean()) ** 2).sum()
    within = np.mean([((row - row.mean()) ** 2).sum() / (t - 1) for row in x])
    alpha = 1 / t
    return ((1 - alpha) * within + alpha * between) / within


def test_r_is_the_papers_of_trajectories_without_a_common_course():
    x = np.random.default_rng(0).normal(size=(4, 9)) + np.array([[0], [1], [0], [2]])
    x -= x.mean(axis=0)
    found = mixing_of(x)
    paper = as_printed(x)
    # W there is divided by n(T − 1), here by (n − 1)(T − 1), as the course was estimated
    alpha = 1 / 9
    ratio = (paper - (1 - alpha)) / alpha
    assert found.r == pytest.approx(1 - alpha + alpha * ratio * 3 / 4)


def test_r_by_hand():
    # two sites, two rounds: means 1 and 3, course 1 and 3; what is left is 0, ±1
    x = np.array([[0.5, 1.5], [1.5, 4.5]])
    found = mixing_of(x)
    assert (found.between, found.within) == (pytest.approx(4.0), pytest.approx(1.0))
    assert found.r == pytest.approx(0.5 + 0.5 * 4.0)


@given(st.integers(2, 5), st.integers(3, 7), st.integers(0, 2**16))
def test_a_course_that_all_share_changes_nothing(n, t, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, t))
    one, two = mixing_of(x), mixing_of(x + 10 * rng.normal(size=t))
    assert two.r == pytest.approx(one.r, rel=1e-6)


@given(st.integers(0, 2**16))
def test_neither_order_nor_names_of_sites_count(seed):
    rng = np.random.default_rng(seed)
    x, w, order = rng.normal(size=(4, 6, 3)), rng.uniform(1, 9, 4), rng.permutation(4)
    assert_allclose(mixing_of(x, w), mixing_of(x[order], w[order]), rtol=1e-6)


def test_b_over_w_is_f_of_a_two_way_analysis_of_variance():
    x = np.random.default_rng(3).normal(size=(5, 8)) + np.arange(5)[:, None] * 0.4
    site, time = np.divmod(np.arange(40), 8)
    dummies = [np.ones(40), *(site == i for i in range(1, 5)), *(time == i for i in range(1, 8))]
    full = np.column_stack(dummies).astype(float)
    left, less = (
        float(np.linalg.lstsq(m, x.ravel(), rcond=None)[1][0])
        for m in (full, np.delete(full, range(1, 5), 1))
    )
    ratio = (less - left) / 4 / (left / 28)
    found = mixing_of(x)
    assert found.between / found.within == pytest.approx(ratio)
    assert found.p == pytest.approx(f.sf(ratio, 4, 28))
    limit = f.ppf(0.95, 4, 28)
    assert found.alarm == pytest.approx(1 - 1 / 8 + limit / 8)
    assert found.fires == (found.p < 0.05)


@pytest.mark.parametrize("spread", [np.ones(6), 0.6 ** np.arange(6)])
def test_sites_that_are_alike_alarm_as_often_as_the_level_allows(spread):
    rng = np.random.default_rng(8)
    w = np.array([1.0, 2.0, 4.0])
    x = rng.normal(size=(150, 3, 10, 6)) * np.sqrt(spread) / np.sqrt(w[:, None, None])
    share = np.mean([mixing_of(one, w, level=0.1).fires for one in x])
    assert 0.03 < share < 0.18


def test_sites_that_differ_alarm():
    x = np.random.default_rng(9).normal(size=(50, 4, 10, 6))
    x[:, 0] += 1.0
    assert np.mean([mixing_of(one, level=0.01).fires for one in x]) > 0.95


def test_levels_of_all_looks_add_up_to_no_more_than_the_level():
    for parts in (2, 3, 10):
        looks = [level_of_look(0.05, lap, t, parts) for lap in range(1, 400)
                 for t in range(2, parts + 1)]  # fmt: skip
        assert 0.0498 < sum(looks) <= 0.05 + 1e-12


def test_degrees_of_freedom_are_between_1_and_the_number_of_coordinates():
    assert freedom(np.eye(4), 10**6) == pytest.approx(4.0, rel=1e-4)
    assert freedom(np.diag([1.0, 0, 0, 0]), 10**6) == pytest.approx(1.0, rel=1e-4)
    assert freedom(np.array([[2.0]]), 3) == 1.0


def test_other_sites_than_before_are_no_part_of_the_trajectories():
    known = Trajectories()
    told = Contribution.of(np.ones(1), np.ones(1), 3.0)
    assert known.add(told)
    assert not known.add(
        Contribution(told.sites + 1, told.weight, told.first, told.products, told.past)
    )
    assert not known.add(
        Contribution(told.sites, told.weight + 1, told.first, told.products, told.past)
    )
    assert len(known.means) == 1


def test_trajectories_that_do_not_move_about_their_course():
    assert mixing_of(np.ones((3, 4))).r == 1.0
    assert mixing_of(np.ones((3, 4)) * [[1], [2], [3]]).r == math.inf
    assert mixing_of(np.ones((1, 4))) is None
    assert mixing_of(np.ones((3, 1))) is None
