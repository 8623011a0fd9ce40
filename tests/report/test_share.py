import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from fedcohort.report.share import paired, share

ALONE = {0: 0.60, 1: 0.62, 2: 0.61, 3: 0.63}
TOGETHER = {0: 0.68, 1: 0.69, 2: 0.70, 3: 0.69}
POOLED = {0: 0.70, 1: 0.71, 2: 0.70, 3: 0.71}


def test_share_is_the_mean_gain_over_the_mean_gap():
    # gains 0.08, 0.07, 0.09, 0.06: mean 0.075; gaps 0.10, 0.09, 0.09, 0.08: mean 0.09
    found = share(ALONE, TOGETHER, POOLED, 0.25)
    assert_allclose((found.gain.value, found.gap.value), (0.075, 0.09), rtol=1e-12)
    assert_allclose(found.value, 75 / 90, rtol=1e-12)


def test_both_ends_of_the_interval_solve_fiellers_equation():
    found = share(ALONE, TOGETHER, POOLED, 0.25)
    d = np.array([0.08, 0.07, 0.09, 0.06])
    g = np.array([0.10, 0.09, 0.09, 0.08])
    v = (1 / 4 + 1 / 3) * np.cov(d, g)
    t = stats.t.ppf(0.975, 3)
    for rho in (found.low, found.high):
        spread = v[0, 0] - 2 * rho * v[0, 1] + rho**2 * v[1, 1]
        assert_allclose((d.mean() - rho * g.mean()) ** 2, t**2 * spread, rtol=1e-9)
    assert found.low < found.value < found.high


def test_paired_interval_without_a_test_set_is_students():
    found = paired(TOGETHER, ALONE, test_fraction=0.0)
    expected = stats.ttest_1samp([0.08, 0.07, 0.09, 0.06], 0).confidence_interval(0.95)
    assert_allclose((found.low, found.high), (expected.low, expected.high), rtol=1e-9)


def test_repeats_that_share_patients_widen_the_interval_by_nadeau_and_bengio():
    plain, wide = (paired(TOGETHER, ALONE, f) for f in (0.0, 0.25))
    ratio = (wide.high - wide.low) / (plain.high - plain.low)
    assert_allclose(ratio, math.sqrt((1 / 4 + 1 / 3) / (1 / 4)), rtol=1e-9)


@settings(max_examples=25, deadline=None)
@given(shift=st.floats(-2, 2), scale=st.floats(0.1, 10), flip=st.booleans())
def test_share_does_not_depend_on_the_metrics_unit_or_direction(shift, scale, flip):
    sign = -1 if flip else 1
    moved = [{r: shift + sign * scale * v for r, v in x.items()} for x in (ALONE, TOGETHER, POOLED)]
    found, expected = share(*moved, 0.25, sign), share(ALONE, TOGETHER, POOLED, 0.25)
    assert_allclose(
        (found.value, found.low, found.high),
        (expected.value, expected.low, expected.high),
        rtol=1e-6,
    )


def test_no_share_is_given_where_the_gap_may_be_chance():
    noisy = {0: 0.70, 1: 0.55, 2: 0.72, 3: 0.58}
    found = share(ALONE, TOGETHER, noisy, 0.25)
    assert math.isnan(found.value)
    assert found.gap.side == 0


def test_no_share_is_given_where_pooling_does_harm():
    assert math.isnan(share(POOLED, TOGETHER, ALONE, 0.25).value)


@pytest.mark.parametrize("n", [1, 2])
def test_below_three_repeats_there_is_a_share_and_no_interval(n):
    few = [{r: x[r] for r in range(n)} for x in (ALONE, TOGETHER, POOLED)]
    found = share(*few, 0.25)
    assert found.value > 0
    assert math.isnan(found.low)
    assert found.gain.side == 0


def test_repeats_that_one_arm_lacks_are_left_out():
    found = share(ALONE, {0: 0.68, 9: 0.10}, POOLED, 0.25)
    assert_allclose(found.value, 0.8, rtol=1e-12)
