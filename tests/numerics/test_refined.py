"""REFINED maps, against planar arrangements, SciPy's truncated normal, and full recomputation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from scipy.stats import truncnorm

from fedcohort.numerics import refined

SEEDS = st.integers(0, 2**16)


def table(seed, n=30, p=7):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + 10.0 * rng.normal(size=p)


def corr_of(x):
    centred = x - x.mean(axis=0)
    return refined.correlations(centred.T @ centred, len(x), x.mean(axis=0))


def placed(seed, p=11, side=4):
    """Return distances of some points, and a random map onto an image with empty pixels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(p, 3))
    return cdist(x, x), rng.permutation(side**2)[:p]


@pytest.mark.parametrize("side", [2, 3, 6])
def test_features_of_a_shuffled_grid_get_its_places_up_to_rotation_and_reflection(side):
    places = np.column_stack(np.divmod(np.arange(side**2), side)).astype(float)
    d = cdist(*[np.random.default_rng(side).permutation(places)] * 2)
    found = refined.refine(0.3 * d, side).pixels
    assert_allclose(cdist(*[np.column_stack(np.divmod(found, side))] * 2), d, atol=1e-12)


def test_distances_are_those_of_standardised_columns():
    x = table(1)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    assert_allclose(refined.distances(corr_of(x)), cdist(z.T, z.T) / np.sqrt(len(x)), atol=1e-7)


@given(seed=SEEDS, cuts=st.lists(st.integers(0, 30), max_size=4))
def test_distances_do_not_depend_on_how_rows_are_split(seed, cuts):
    x = table(seed)
    parts = np.split(x, sorted(cuts))
    n, total = sum(map(len, parts)), sum(p.sum(axis=0) for p in parts)
    inner = sum(p.T @ p for p in parts) - np.outer(total, total) / n
    found = refined.distances(refined.correlations(inner, n, total / n))
    # rounding of 30 products of numbers to 100, by the variance: 1e-12 of r, so 1e-6 of d near 0
    assert_allclose(found, refined.distances(corr_of(x)), atol=1e-6)


def test_a_constant_column_has_no_correlation_and_is_near_the_middle_of_all():
    x = table(2)
    x[:, 3] = 7.1
    x[:, 5] = 0.0
    corr = corr_of(x)
    d = refined.distances(corr)
    assert_array_equal(corr[[3, 5]], 0.0)
    assert d[3, 5] == 0.0
    assert_array_equal(np.delete(d[3], [3, 5]), 1.0)
    assert len(set(refined.refine(d, 3).pixels.tolist())) == 7


def test_columns_that_are_all_constant_still_get_a_pixel_each():
    found = refined.refine(np.zeros((5, 5)), 3)
    assert len(set(found.pixels.tolist())) == 5


@given(seed=SEEDS)
def test_the_objective_is_the_likelihood_of_normals_truncated_at_0(seed):
    d, pixels = placed(seed)
    ell = refined.Likelihood(d, pixels, 4)
    upper = np.triu_indices(len(d), 1)
    places = np.column_stack(np.divmod(pixels, 4))
    delta = ell.unit * cdist(places, places)[upper]
    expected = truncnorm(-delta / ell.sd, np.inf, delta, ell.sd).logpdf(d[upper]).sum()
    assert_allclose(ell.value(pixels), expected, rtol=1e-10, atol=1e-9)


@given(seed=SEEDS, feature=st.integers(0, 10))
def test_the_change_of_a_swap_is_that_of_the_whole_objective(seed, feature):
    d, pixels = placed(seed)
    ell = refined.Likelihood(d, pixels, 4)
    to = np.setdiff1d(np.arange(16), pixels[feature])
    there = np.full(16, -1)
    there[pixels] = np.arange(11)
    expected = []
    for pixel, other in zip(to, there[to], strict=True):
        swapped = pixels.copy()
        swapped[feature] = pixel
        if other >= 0:
            swapped[other] = pixels[feature]
        expected.append(ell.value(swapped) - ell.value(pixels))
    found = ell.gains(pixels, feature, to, there[to])
    assert_allclose(found, expected, rtol=1e-9, atol=1e-8)


@given(seed=SEEDS)
def test_climbing_never_lowers_the_objective_and_ends_where_no_neighbour_raises_it(seed):
    d, pixels = placed(seed)
    found = refined.climb(d, pixels, 4)
    assert (np.diff(found.likelihood) > 0).all()
    ell = refined.Likelihood(d, pixels, 4)
    assert_allclose(found.likelihood[-1], ell.value(found.pixels), rtol=1e-12)
    there = np.full(16, -1)
    there[found.pixels] = np.arange(11)
    places = np.column_stack(np.divmod(np.arange(16), 4))
    for feature, pixel in enumerate(found.pixels):
        near = np.flatnonzero(np.abs(places - places[pixel]).max(axis=1) == 1)
        assert ell.gains(found.pixels, feature, near, there[near]).max() < 1e-6


@given(seed=SEEDS, p=st.integers(1, 16))
def test_each_feature_gets_a_pixel_of_its_own(seed, p):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(p, 2)) * [1.0, rng.integers(2)]  # also on a line
    for pixels in (refined.assign(points, 4), refined.refine(cdist(points, points), 4).pixels):
        assert pixels.shape == (p,)
        assert len(set(pixels.tolist())) == p
        assert 0 <= pixels.min() <= pixels.max() < 16


def test_scaling_recovers_points_of_the_plane_and_lowers_the_stress_of_others():
    points = np.random.default_rng(0).normal(size=(20, 2))
    d = cdist(points, points)
    x = refined.scale(d)
    assert_allclose(cdist(x, x), d, atol=1e-8)
    d, _ = placed(0, p=20, side=5)
    x, classical = refined.scale(d), refined._classical(d)
    stress = [((d - cdist(y, y)) ** 2).sum() for y in (x, classical)]
    assert stress[0] < 0.9 * stress[1]


def test_the_side_is_that_of_the_papers_images():
    assert [refined.side_of(p) for p in (1, 2, 4, 5, 1084, 1089, 1090)] == [1, 2, 2, 3, 33, 33, 34]


def test_likeness_is_the_mean_correlation_with_pixels_around():
    corr = np.array([[1.0, 0.5, -0.2], [0.5, 1.0, 0.1], [-0.2, 0.1, 1.0]])
    assert_allclose(refined.likeness(corr, np.array([0, 1, 3]), 2), [0.15, 0.3, -0.05])
    assert_allclose(refined.likeness(corr, np.array([0, 1, 8]), 3), [0.5, 0.5, np.nan])
