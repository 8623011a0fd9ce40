"""Robust centres against plain implementations, closed forms and their papers' properties."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedcohort.protocol import SettingError, SiteUnavailable
from fedcohort.training.robust import (
    AGGREGATIONS,
    Aggregation,
    krum,
    multi_krum,
    norm_bound,
    scores,
)

K, P = 7, 4
ROBUST = ("median", "trimmed_mean", "krum", "multi_krum")
seeds = st.integers(0, 2**16)


def drawn(seed, k=K, p=P):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(k, p)), rng.integers(5, 90, k).astype(float), rng.normal(size=p)


def rule(name, **constants):
    return Aggregation(name=name, **{"byzantine": 2, "trim": 0.3, **constants})


# references, written anew from the papers, one number at a time -----------------------------------


def plain_median(thetas):
    out = []
    for column in thetas.T.tolist():
        column.sort()
        n = len(column)
        out.append(column[n // 2] if n % 2 else (column[n // 2 - 1] + column[n // 2]) / 2)
    return out


def plain_trimmed(thetas, b):
    out = []
    for column in thetas.T.tolist():
        for _ in range(b):
            column.remove(min(column))
            column.remove(max(column))
        out.append(sum(column) / len(column))
    return out


def plain_scores(thetas, f):
    """By every subset of the right size: the nearest are those of the least sum."""
    out, everyone = [], range(len(thetas))
    for k in everyone:
        far = {
            i: sum((a - b) ** 2 for a, b in zip(thetas[k], thetas[i], strict=True))
            for i in everyone
        }
        others = [i for i in everyone if i != k]
        size = len(thetas) - f - 2
        out.append(min(sum(far[i] for i in s) for s in itertools.combinations(others, size)))
    return out


@given(seeds, st.integers(1, 9))
def test_the_median_is_that_of_each_coordinate(seed, k):
    thetas, rows, start = drawn(seed, max(k, 3))
    assert_allclose(rule("median")(thetas, rows, start), plain_median(thetas), rtol=1e-14)


@given(seeds, st.integers(3, 9), st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.49]))
def test_the_trimmed_mean_leaves_out_the_same_part_at_either_end(seed, k, trim):
    thetas, rows, start = drawn(seed, k)
    b = next(b for b in range(k) if b >= trim * k - 1e-9)
    if 2 * b < k:
        found = rule("trimmed_mean", trim=trim)(thetas, rows, start)
        assert_allclose(found, plain_trimmed(thetas, b), rtol=1e-12, atol=1e-14)


@given(seeds, st.sampled_from([(3, 0), (5, 1), (7, 2), (8, 2), (9, 3)]))
def test_krum_scores_are_sums_over_the_nearest_of_the_others(seed, sizes):
    k, f = sizes
    thetas, _, _ = drawn(seed, k)
    expected = plain_scores(thetas.tolist(), f)
    assert_allclose(scores(thetas, f), expected, rtol=1e-12)
    order = sorted(range(k), key=lambda i: expected[i])
    assert_array_equal(krum(thetas, f), thetas[order[0]])
    mean = [sum(thetas[i][j] for i in order[: k - f]) / (k - f) for j in range(P)]
    assert_allclose(multi_krum(thetas, f), mean, rtol=1e-12, atol=1e-14)


def test_krum_on_a_line_in_closed_form():
    # s = |x_k − nearest|² summed over 5 − 1 − 2 = 2 others: 0: 1+4, 1: 1+1, 2: 1+4, 10: 64+81, -30
    thetas = np.array([[0.0], [1.0], [2.0], [10.0], [-30.0]])
    assert_allclose(scores(thetas, 1), [5.0, 2.0, 5.0, 145.0, 1861.0])
    assert krum(thetas, 1) == 1.0
    assert multi_krum(thetas, 1) == (0 + 1 + 2 + 10) / 4


def test_norm_bounding_in_closed_form():
    start = np.array([1.0, 1.0])
    thetas = start + np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    rows = np.array([1.0, 2.0, 1.0])
    # lengths 5, 0.5, 0: with M = 1 the first becomes (0.6, 0.8)
    expected = start + 0.25 * np.array([0.6, 0.8]) + 0.5 * np.array([0.3, 0.4])
    assert_allclose(norm_bound(thetas, rows, start, 1.0), expected, rtol=1e-14)
    # their median is 0.5: the first becomes (0.3, 0.4)
    assert_allclose(norm_bound(thetas, rows, start, None), start + 0.75 * np.array([0.3, 0.4]))


@given(seeds)
def test_norm_bounding_moves_no_further_than_the_bound(seed):
    thetas, rows, start = drawn(seed)
    found = norm_bound(1e6 * thetas, rows, start, 0.1)
    assert np.linalg.norm(found - start) <= 0.1 * (1 + 1e-12)


# properties --------------------------------------------------------------------------------------


@given(seeds, st.sampled_from(AGGREGATIONS))
def test_the_order_of_the_sites_does_not_matter(seed, name):
    thetas, rows, start = drawn(seed)
    order = np.random.default_rng(seed + 1).permutation(K)
    found = rule(name)(thetas[order], rows[order], start)
    assert_allclose(found, rule(name)(thetas, rows, start), rtol=1e-12, atol=1e-12)


@given(seeds, st.sampled_from(AGGREGATIONS))
def test_what_moves_all_models_moves_the_centre_alike(seed, name):
    thetas, rows, start = drawn(seed)
    by = 3.0 * np.random.default_rng(seed + 1).normal(size=P)
    found = rule(name)(thetas + by, rows, start + by)
    assert_allclose(found, rule(name)(thetas, rows, start) + by, rtol=1e-9, atol=1e-9)


@given(seeds)
def test_without_trimming_bounding_or_liars_they_are_means(seed):
    thetas, rows, start = drawn(seed)
    weighted = np.average(thetas, axis=0, weights=rows)
    assert_allclose(rule("mean")(thetas, rows, start), weighted, atol=1e-12)
    assert_allclose(rule("norm_bound", norm_bound=1e9)(thetas, rows, start), weighted, atol=1e-12)
    for name in ("trimmed_mean", "multi_krum"):
        found = rule(name, trim=0.0, byzantine=0)(thetas, rows, start)
        assert_allclose(found, thetas.mean(axis=0), atol=1e-12)


@given(seeds, st.sampled_from(ROBUST), st.sampled_from([1e3, 1e9, 1e300, -1e300]))
def test_two_liars_of_seven_cannot_move_the_centre_out_of_the_others(seed, name, lie):
    thetas, rows, start = drawn(seed)
    honest = thetas[2:]
    thetas[:2] = lie
    found = rule(name, trim=0.25)(thetas, rows, start)
    slack = 1e-12
    assert (found >= honest.min(axis=0) - slack).all()
    assert (found <= honest.max(axis=0) + slack).all()


@given(seeds)
def test_one_liar_moves_the_mean_anywhere(seed):
    thetas, rows, start = drawn(seed)
    thetas[0] = 1e12
    assert (rule("mean")(thetas, rows, start) > 1e8).all()


def test_beyond_the_breakdown_point_the_centre_is_the_liars():
    thetas, rows, start = drawn(0)
    thetas[:4] = 1e9
    assert (rule("median")(thetas, rows, start) == 1e9).all()
    assert (rule("krum")(thetas, rows, start) == 1e9).all()


@given(seeds, st.sampled_from(ROBUST))
def test_rows_that_a_site_makes_up_give_it_no_more_say(seed, name):
    thetas, rows, start = drawn(seed)
    more = rows.copy()
    more[0] = 1e9
    assert_array_equal(rule(name)(thetas, rows, start), rule(name)(thetas, more, start))


@given(seeds, st.sampled_from(AGGREGATIONS))
def test_a_site_without_rows_has_no_vote(seed, name):
    thetas, rows, start = drawn(seed)
    more = np.vstack([thetas, np.full(P, 5.0)])
    found = rule(name)(more, np.append(rows, 0.0), start)
    assert_array_equal(found, rule(name)(thetas, rows, start))


# too few -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "f", "sites"), [("krum", 1, 4), ("multi_krum", 2, 6), ("median", 0, 2)]
)
def test_fewer_sites_than_the_proof_needs_are_refused(name, f, sites):
    one = rule(name, byzantine=f)
    with pytest.raises(SettingError, match=f"needs {sites + 1} sites; this federation has {sites}"):
        one.check(sites)
    one.check(sites + 1)


def test_trimming_everything_is_refused():
    with pytest.raises(SettingError, match=r"'trim' is 0.4, which leaves none of 4 sites"):
        rule("trimmed_mean", trim=0.4).check(4)
    rule("trimmed_mean", trim=0.4).check(5)


def test_too_few_votes_in_a_round_stop_it_in_one_line():
    thetas, rows, start = drawn(0)
    rows[:2] = 0
    with pytest.raises(SiteUnavailable, match=r"5 of 7 sites .* needs 7"):
        rule("krum")(thetas, rows, start)
