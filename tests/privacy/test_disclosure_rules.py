"""Rules for numbers, grids, leaves, parameters and cohorts: what each allows, by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.data.prepare.sketch import Moments, count_between, modes, quantiles
from fedcohort.privacy.disclosure import models
from fedcohort.privacy.disclosure.counts import nearly_same
from fedcohort.privacy.disclosure.numbers import holding, tail_rank, winsorised
from fedcohort.privacy.disclosure.records import effective, lone, over_few
from fedcohort.privacy.disclosure.steps import interval_ends

# a grid of times ------------------------------------------------------------------------


@given(
    events=st.lists(st.integers(0, 9), min_size=1, max_size=60).filter(any),
    m=st.integers(1, 8),
    share=st.floats(0, 30),
)
def test_every_interval_of_a_grid_holds_the_events_it_must_and_so_as_many_leavers(events, m, share):
    ends = interval_ends(np.array(events), m, share)
    starts = np.r_[0, ends[:-1] + 1]
    held = np.array([sum(events[a : b + 1]) for a, b in zip(starts, ends, strict=True)])
    assert held.sum() == sum(events)
    assert len(held) == 1 or (held >= m).all()


# leaves, parameters ---------------------------------------------------------------------


def test_a_leaf_holds_ten_counted_patients_and_a_split_gives_two_such():
    told = models.thin_leaves(np.array([0, 1, 9, 10, 400]))
    assert told.tolist() == [False, True, True, False, False]
    assert models.may_split(10, 10)
    assert not models.may_split(9, 400)


@given(left=st.integers(0, 60), right=st.integers(0, 60))
def test_no_node_less_a_leaf_within_it_is_of_fewer_than_a_leaf(left, right):
    if models.may_split(left, right):
        assert min(left, right, left + right - left, left + right - right) >= models.LEAF


def test_a_label_follows_from_a_leaf_of_one_and_not_from_its_sum_with_nine_others():
    # g = p − y: of one patient with p = 0.3 it is −0.7 or 0.3, and nothing else
    g = 0.3 - np.array([1.0, 0.0])
    assert len({round(v, 9) for v in g}) == 2
    ten = {tuple(np.roll([1] * 4 + [0] * 6, i)) for i in range(10)}
    sums = {round(sum(0.3 - y for y in labels), 9) for labels in ten}
    assert len(sums) == 1
    assert {labels[0] for labels in ten} == {0, 1}


@pytest.mark.parametrize(("rows", "most"), [(9, 0), (10, 1), (99, 9), (100, 10)])
def test_a_site_bears_a_parameter_for_ten_rows(rows, most):
    assert models.most_parameters(rows) == most


# cohorts --------------------------------------------------------------------------------


def test_two_cohorts_are_nearly_the_same_where_they_differ_in_one_to_four():
    assert [nearly_same(d, 5) for d in range(7)] == [False, *[True] * 4, False, False]


# numbers --------------------------------------------------------------------------------


@given(x=st.lists(st.integers(-50, 50), min_size=10, max_size=60), m=st.integers(1, 5))
def test_winsorised_values_have_no_extreme_of_fewer_than_m(x, m):
    cut = winsorised(np.sort(np.array(x)), m)
    assert (cut == cut[0]).sum() >= m
    assert (cut == cut[-1]).sum() >= m
    assert cut[0] == sorted(x)[m - 1]
    assert cut[-1] == sorted(x)[-m]


def test_a_tail_is_cut_at_m_values_or_more_and_not_at_all_of_few():
    assert tail_rank(0.01, 1000, 5) == 10
    assert tail_rank(0.001, 1000, 5) == 5
    assert tail_rank(0.01, 19, 5) is None


@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=40),
    cell=st.integers(0, 39),
    m=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_the_cells_of_a_quantile_hold_m_values_or_are_all(counts, cell, m, seed):
    cell %= len(counts)
    widths = 2.0 ** np.random.default_rng(seed).integers(0, 3, len(counts))
    low, high = holding(np.array(counts), widths, cell, m)
    assert low <= cell <= high
    assert sum(counts[low : high + 1]) >= m or (low, high) == (0, len(counts) - 1)


@pytest.mark.parametrize("what", ["median", "mode"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_fill_is_the_middle_of_cells_of_five_and_moves_with_nobody_alone(what, whole):
    rng = np.random.default_rng(3)
    for n in (20, 41, 200):
        x = rng.normal(50, 12, n)
        x = np.round(x) if whole else x
        asked: list[np.ndarray] = []

        def ask(edges, x=x, asked=asked):
            asked.append(edges[0][np.isfinite(edges[0])])
            return count_between([x], edges)

        moments = Moments(
            np.array([float(n)]), np.array([x.mean()]), np.array([x.std()]), np.array([whole])
        )
        if what == "median":
            found, error = (v[0, 0] for v in quantiles(ask, moments, np.array([0]), (0.5,), 5))
        else:
            found, error = (v[0] for v in modes(ask, moments, np.array([0]), 5))
        near = np.abs(x - found) <= (error + whole) / 2 + 1e-9
        assert near.sum() >= 5


# records --------------------------------------------------------------------------------


@given(n=st.integers(2, 50), k=st.integers(1, 20))
def test_equal_records_count_as_many_as_they_are(n, k):
    d = np.r_[np.full(k, 3.0), np.zeros(n)]
    squares, fourth = np.array([(d**2).sum()]), np.array([(d**4).sum()])
    assert effective(squares, fourth)[0] == pytest.approx(k)
    assert lone(squares, fourth)[0] == (k == 1)
    assert over_few(np.array(d.sum()), np.array((d**2).sum()), 5) == (k < 5)
