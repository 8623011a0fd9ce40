"""Swaps of clusters: what they promise against brute force, and optima that they leave behind."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

from algorithms.cluster_cases import federation, scattered
from fedcohort.training.clusters.lloyd import lloyd
from fedcohort.training.clusters.swaps import swapped, swaps


def inertia(parts):
    return sum(((p - p.mean(axis=0)) ** 2).sum() for p in parts)


def four_groups(seed=0):
    """Return rows of four groups on a line, the first two of them far from the last two."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(m, 1.0, 60) for m in (0.0, 8.0, 100.0, 108.0)])[:, None]


def known(parts):
    return (
        np.stack([p.mean(axis=0) for p in parts]),
        np.stack([p.var(axis=0) for p in parts]),
        np.array([len(p) for p in parts]),
    )


@given(st.integers(0, 2**16))
def test_the_first_merge_is_the_cheapest_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(rng.normal(0, 5, 3), 1e-3, (rng.integers(5, 30), 3)) for _ in range(5)]
    j, partner, _ = swaps(*known(parts))[0]

    def merged(a, b):
        rest = [p for i, p in enumerate(parts) if i not in (a, b)]
        return inertia([*rest, np.vstack([parts[a], parts[b]])])

    every = {frozenset((a, b)): merged(a, b) for a in range(5) for b in range(a)}
    assert frozenset((j, partner)) == min(every, key=lambda pair: every[pair])


def test_a_normal_cluster_is_cut_into_the_means_of_its_halves():
    x = np.random.default_rng(1).normal(3.0, 2.0, (200_000, 1))
    parts = [x, x[:50] + 500.0, x[:50] + 900.0]
    at = swapped(*known(parts), (1, 2, 0))
    halves = sorted([x[x < x.mean()].mean(), x[x >= x.mean()].mean()])
    assert_allclose(sorted([at[0, 0], at[1, 0]]), halves, rtol=0.01)
    assert_allclose(at[2], np.vstack(parts[1:]).mean(axis=0))


def test_with_two_clusters_there_is_nothing_to_swap():
    assert swaps(np.zeros((2, 3)), np.ones((2, 3)), np.array([4, 5])) == []


@pytest.mark.parametrize("sites", [1, 3])
def test_rounds_leave_an_optimum_that_cuts_one_group_and_joins_two(sites):
    x = four_groups()
    bad = np.array([[-0.7], [0.7], [8.0], [104.0]])
    best = KMeans(4, n_init=25, random_state=0).fit(x).inertia_
    parts = [x] if sites == 1 else scattered(x, sites)
    found = {
        n: lloyd(federation(parts), bad, rng=np.random.default_rng(0), least=5, swaps=n)
        for n in (0, 1)
    }
    assert found[0].inertia > 3 * best
    assert found[1].inertia == pytest.approx(best, rel=1e-3 if sites > 1 else 1e-9)
    assert_array_equal(np.sort(found[1].counts), [60, 60, 60, 60])


@given(st.integers(0, 30))
def test_swaps_never_leave_a_larger_sum_of_squares(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(90, 2)) + 4.0 * rng.integers(0, 3, (90, 1))
    start = x[rng.choice(90, 4, replace=False)]
    parts = scattered(x, 2, seed)
    plain, further = (
        lloyd(federation(parts), start, rng=np.random.default_rng(0), least=5, swaps=n)
        for n in (0, 4)
    )
    assert (further.dropped, further.inertia) <= (plain.dropped, plain.inertia)


def test_rounds_of_all_swaps_together_are_no_more_than_asked_for():
    x = four_groups(2)
    bad = np.array([[-0.7], [0.7], [8.0], [104.0]])
    for most in (0, 1, 2, 3, 5):
        fed = federation(scattered(x, 3))
        lloyd(fed, bad, rng=np.random.default_rng(0), least=5, rounds=most, swaps=3)
        lines = map(json.loads, fed.ledger.lines)
        asked = {line["call"] for line in lines if line["step"] == "sum_near"}
        assert len(asked) <= most
