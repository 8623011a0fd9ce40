"""Centroids: aggregations worked out by hand, and partitions compared with brute force."""

from __future__ import annotations

import ast
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

from fedcohort.numerics import centroids as c

#: Two sites' centroids on a line, at 0, 1 and 10, and at 2, 11 and 30.
LINE = np.array([0.0, 1.0, 10.0, 2.0, 11.0, 30.0])[:, None]
SIZES = np.array([8.0, 1.0, 5.0, 4.0, 5.0, 2.0])


class First:
    """Draws the number it was made with."""

    def __init__(self, number):
        self.number = number

    def integers(self, n):
        assert n == len(LINE)
        return self.number


@pytest.mark.parametrize(
    ("first", "chosen"),
    [
        # from 0: the farthest is 30; then min distances 1, 10, 2, 11 (to 0 and 30): 11; then
        # 1, 1, 2 of 1, 10 and 2: 2
        (0, [0, 30, 11, 2]),
        # from 10: 30 is 20 away; then 0 is 10 away; then 1, 2, 1 of 1, 2 and 11: 2
        (2, [10, 30, 0, 2]),
    ],
)
def test_max_min_adds_the_farthest_from_those_chosen(first, chosen):
    assert_array_equal(c.max_min(LINE, SIZES, 4, First(first))[:, 0], chosen)


def test_max_min_starts_at_any_centroid():
    rng = np.random.default_rng(0)
    starts = {float(c.max_min(LINE, SIZES, 1, rng)[0, 0]) for _ in range(100)}
    assert starts == set(LINE[:, 0])


def test_centroids_at_one_place_are_one_of_all_their_rows():
    at = np.array([[3.0, 0.0], [0.0, 1e3], [3.0 + 1e-5, -1e-5], [0.0, 1e3], [4.0, 0.0]])
    places, sizes = c.distinct(at, np.array([1.0, 2.0, 4.0, 8.0, 16.0]))
    assert_array_equal(places, at[[0, 1, 4]])
    assert_array_equal(sizes, [5.0, 10.0, 16.0])


@pytest.mark.parametrize("far", [0.0, 1e3, 1e8])
def test_centroids_at_one_place_are_one_however_far_from_0_they_are(far):
    """A date in seconds, say: groups some units apart are not one group."""
    at = far + np.array([[0.0], [4.0], [4.0], [9.0]])
    places, sizes = c.distinct(at, np.ones(4), "float64")
    assert_array_equal(places, at[[0, 1, 3]])
    assert_array_equal(sizes, [1.0, 2.0, 1.0])


@given(st.permutations(range(6)))
def test_centroids_at_places_of_their_own_stay_as_they_are(order):
    places, sizes = c.distinct(LINE[list(order)], SIZES[list(order)])
    assert_array_equal(places, LINE[list(order)])
    assert_array_equal(sizes, SIZES[list(order)])


def test_random_takes_each_centroid_as_often_and_none_twice():
    rng = np.random.default_rng(0)
    drawn = [c.random(LINE, SIZES, 3, rng)[:, 0] for _ in range(3000)]
    assert all(len(set(d)) == 3 for d in drawn)
    shares = [np.mean([v in d for d in drawn]) for v in LINE[:, 0]]
    assert_allclose(shares, 0.5, atol=0.04)  # 4 standard errors of a share of 3000


def test_random_weighted_draws_by_rows():
    rng = np.random.default_rng(0)
    drawn = np.array([c.random_weighted(LINE, SIZES, 1, rng)[0, 0] for _ in range(5000)])
    shares = [np.mean(drawn == v) for v in LINE[:, 0]]
    assert_allclose(shares, SIZES / 25.0, atol=0.03)


def test_double_kmeans_is_k_means_of_centroids_repeated_by_their_rows():
    rng = np.random.default_rng(3)
    points, sizes = rng.normal(size=(12, 2)), rng.integers(1, 9, 12)
    ours = c.double_kmeans(points, sizes, 3, np.random.default_rng(0))
    repeated = KMeans(3, n_init=50, random_state=0).fit(np.repeat(points, sizes, axis=0))
    order, theirs = np.lexsort(ours.T), repeated.cluster_centers_
    assert_allclose(ours[order], theirs[np.lexsort(theirs.T)], atol=1e-10)


BY_THREADS = """
import numpy as np
from fedcohort.numerics.centroids import kmeans
x = np.random.default_rng(0).normal(size=(1000, 9))
print({tuple(np.append(*kmeans(x, 3, starts=3, seed=1)).tolist()) for _ in range(15)})
"""


def test_k_means_gives_the_same_digits_whatever_the_number_of_threads():
    # with 4 threads scikit-learn's own gives some ten different sums in 60 runs
    said = {
        subprocess.run(
            [sys.executable, "-c", BY_THREADS], env={**os.environ, "OMP_NUM_THREADS": n},
            check=True, capture_output=True, text=True,
        ).stdout
        for n in ("1", "4")
    }  # fmt: skip
    assert len(said) == 1
    assert len(ast.literal_eval(said.pop())) == 1


def test_double_kmeans_of_a_line_by_hand():
    # clusters {0, 1, 2}, {10, 11}, {30}: (0·8 + 1·1 + 2·4)/13, (10·5 + 11·5)/10, 30
    found = c.double_kmeans(LINE, SIZES, 3, np.random.default_rng(0))
    assert_allclose(np.sort(found[:, 0]), [9 / 13, 10.5, 30.0])


@pytest.mark.parametrize("name", c.AGGREGATIONS)
def test_fewer_centroids_than_clusters_are_refused(name):
    with pytest.raises(ValueError, match="6 centroids give no 7 clusters"):
        c.AGGREGATIONS[name](LINE, SIZES, 7, np.random.default_rng(0))


@pytest.mark.parametrize("name", c.AGGREGATIONS)
def test_equal_centroids_are_no_obstacle(name):
    same = np.ones((5, 2))
    found = c.AGGREGATIONS[name](same, np.ones(5), 3, np.random.default_rng(0))
    assert_array_equal(found, np.ones((3, 2)))


def test_a_tie_goes_to_the_first_centroid_wherever_the_row_stands():
    at = np.array([[0.1], [0.3], [0.3]])
    x = np.full((20000, 1), 0.2)
    x[::2] = 0.3
    assert_array_equal(c.nearest(x, at), np.tile([1, 0], 10000))


@given(st.lists(st.integers(0, 9), min_size=9, max_size=9))
def test_the_least_difference_is_that_of_all_pairs_of_unions(counts):
    table = np.array(counts, float).reshape(3, 3)
    sides = list(itertools.product([False, True], repeat=3))
    apart = {
        float(table[np.array(a)[:, None] != np.array(b)].sum()) for a in sides for b in sides
    } - {0.0}
    assert c.least_difference(table) == min(apart, default=np.inf)


@given(
    st.lists(st.integers(0, 6), min_size=16, max_size=16), st.integers(1, 4), st.integers(2, 9)
)  # fmt: skip
def test_moves_that_are_allowed_leave_no_cut_of_few_rows_and_none_is_held_without_need(
    counts, k, least
):
    """Every split of the clusters in two, by brute force; rows that stay are many."""
    flow = np.array(counts).reshape(4, 4)[:k, :k]
    np.fill_diagonal(flow, 100)
    may = c.allowed(flow, least)
    left = np.where(may, flow, 0)

    def cuts(table):
        sides = [(s >> np.arange(k)) & 1 for s in range(1 << k)]
        return {table[one[:, None] != one].sum() for one in sides} - {0}

    assert may.diagonal().all()
    assert min(cuts(left), default=least) >= least
    if min(cuts(flow), default=least) >= least:
        assert (left == flow).all()
