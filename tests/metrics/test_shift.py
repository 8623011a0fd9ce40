"""Divergence, its value by chance, the test and the map, against SciPy and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.spatial.distance import jensenshannon, pdist, squareform
from scipy.stats import chi2, chi2_contingency

from fedcohort.metrics import shift

counts = st.lists(st.integers(0, 200), min_size=2, max_size=9).filter(lambda c: sum(c) > 0)


@given(st.integers(2, 9), st.integers(0, 2**16))
def test_divergence_is_that_of_scipy(k, seed):
    a, b = np.random.default_rng(seed).integers(0, 50, (2, k)) + np.eye(2, k, dtype=int)
    assert shift.js_bits(a, b) == pytest.approx(jensenshannon(a, b, base=2) ** 2, abs=1e-12)


@given(counts, st.integers(1, 5))
def test_alike_is_0_and_disjoint_is_1(a, times):
    assert shift.js_bits(a, np.multiply(a, times)) == pytest.approx(0.0, abs=1e-12)
    apart = shift.js_bits([*a, *np.zeros(len(a))], [*np.zeros(len(a)), *a])
    assert apart == pytest.approx(1.0, abs=1e-12)


@given(st.integers(2, 9), st.integers(0, 2**16))
def test_neither_the_order_of_sites_nor_of_cells_counts(k, seed):
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 60, (2, k)) + 1
    found = shift.divergence(table)
    assert_allclose(shift.divergence(table[::-1])[:3], found[:3], rtol=1e-9)
    assert_allclose(shift.divergence(table[:, rng.permutation(k)])[:3], found[:3], rtol=1e-9)


def test_the_test_is_pearsons():
    table = np.array([[30, 52, 18, 61], [41, 33, 25, 20]])
    assert shift.divergence(table).p == pytest.approx(
        chi2_contingency(table, correction=False).pvalue
    )


def test_cells_of_few_expected_rows_are_joined():
    found = shift.joined(np.array([[50, 1, 2, 40], [50, 2, 1, 60]]))
    assert sorted(found.sum(axis=0)) == [100, 106]
    found = shift.joined(np.array([[50, 6, 40], [50, 6, 60]]))
    assert found.shape == (2, 3)


@pytest.mark.parametrize(("n", "m"), [(60, 60), (40, 400)])
def test_what_chance_gives_is_the_mean_over_samples_of_one_distribution(n, m):
    rng = np.random.default_rng(4)
    share = np.array([0.1, 0.2, 0.3, 0.4])
    a, b = rng.multinomial(n, share, 4000), rng.multinomial(m, share, 4000)
    seen = np.mean([shift.js_bits(*pair) for pair in zip(a, b, strict=True)])
    assert shift.by_chance(4, n, m) == pytest.approx(seen, rel=0.1)  # of first order


def test_p_values_are_uniform_where_nothing_differs():
    rng = np.random.default_rng(5)
    share = np.array([0.02, 0.08, 0.3, 0.6])
    pairs = zip(rng.multinomial(80, share, 1000), rng.multinomial(300, share, 1000), strict=True)
    p = np.array([shift.divergence(np.stack(pair)).p for pair in pairs])
    assert 0.03 < (p < 0.05).mean() < 0.07


def test_hidden_cells_are_one_cell_of_both():
    a, b = np.array([40, -1, -1, 30]), np.array([35, 12, -1, 20])
    hidden = np.array([False, True, True, False])
    found = shift.together(a, b, hidden, 78, 70)
    assert found.tolist() == [[40, 30, 8], [35, 20, 15]]


def test_conditional_shift_is_of_the_groups_within_cells():
    # groups by cells: the cells differ, the groups within them do not
    one = np.array([[80, 20], [10, 10]])
    two = np.array([[8, 2], [100, 100]])
    assert shift.divergence_within(np.stack([one, two])).js == pytest.approx(0, abs=1e-12)
    assert shift.divergence(np.stack([one.sum(axis=1), two.sum(axis=1)])).js > 0.3
    # and the other way round; expected by hand from SciPy's parts
    two = np.array([[40, 60], [15, 5]])
    found = shift.divergence_within(np.stack([one, two]))
    shares = (one.sum(axis=1) / one.sum() + two.sum(axis=1) / two.sum()) / 2
    js = [jensenshannon(x, y, base=2) ** 2 for x, y in zip(one, two, strict=True)]
    assert found.js == pytest.approx(shares @ js)
    each = [chi2_contingency([x, y], correction=False) for x, y in zip(one, two, strict=True)]
    assert found.p == pytest.approx(chi2.sf(sum(e.statistic for e in each), 2), rel=1e-9)


def test_a_site_without_rows_is_not_compared():
    assert math.isnan(shift.divergence(np.array([[0, 0], [3, 4]])).js)
    assert math.isnan(shift.divergence_within(np.array([[[0, 0]], [[3, 4]]])).js)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_as_the_step_down_procedure_does(p):
    """The smallest of m against level/m, the next against level/(m − 1), until one fails."""
    found = shift.holm([*p, math.nan])
    for level in (0.01, 0.05, 0.3):
        rejected, left = set(), len(p)
        for i in sorted(range(len(p)), key=lambda i: p[i]):
            if p[i] * left > level:
                break
            rejected, left = rejected | {i}, left - 1
        assert {i for i in range(len(p)) if found[i] <= level} == rejected
    assert math.isnan(found[-1])


def test_the_map_keeps_distances_of_points_in_a_plane():
    at = np.random.default_rng(1).normal(size=(6, 2)) * [3, 1]
    found, share = shift.scaled(squareform(pdist(at)))
    assert_allclose(pdist(found), pdist(at), atol=1e-9)
    assert share == pytest.approx(1.0)


def test_the_map_is_the_singular_vectors_of_centred_points():
    at = np.random.default_rng(2).normal(size=(7, 5))
    found, share = shift.scaled(squareform(pdist(at)))
    u, s, _ = np.linalg.svd(at - at.mean(axis=0), full_matrices=False)
    assert_allclose(np.abs(found), np.abs(u[:, :2] * s[:2]), atol=1e-9)
    assert share == pytest.approx((s[:2] ** 2).sum() / (s**2).sum())


@given(st.integers(2, 6), st.integers(0, 2**16))
def test_the_map_does_not_depend_on_the_order_of_sites(s, seed):
    rng = np.random.default_rng(seed)
    d = squareform(pdist(rng.normal(size=(s, 4))))
    order = rng.permutation(s)
    one, two = shift.scaled(d)[0], shift.scaled(d[np.ix_(order, order)])[0]
    assert_allclose(pdist(two), pdist(one[order]), atol=1e-7)


def test_sites_that_do_not_differ_lie_on_one_point():
    assert_allclose(shift.scaled(np.zeros((3, 3)))[0], np.zeros((3, 2)))


def test_the_map_owns_up_to_distances_that_no_points_have():
    """From b to a and to c is 0.1, from a to c 1: a line holds the 1, and no plane the rest."""
    d = np.array([[0, 0.1, 1], [0.1, 0, 0.1], [1, 0.1, 0]])
    found, share = shift.scaled(d)
    inner = -0.5 * (np.eye(3) - 1 / 3) @ d**2 @ (np.eye(3) - 1 / 3)
    values = np.sort(np.linalg.eigvalsh(inner))
    assert values[0] < -0.05
    assert share == pytest.approx(values[-1] / np.abs(values).sum(), rel=1e-9)
    assert_allclose(abs(found[0, 0] - found[2, 0]), 1.0)
