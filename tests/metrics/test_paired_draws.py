"""Differences of two arms by the same draws of the patients, against other ways to have them."""

from __future__ import annotations

import lifelines.utils
import numpy as np
import pytest
from scipy import stats

from fedcohort.metrics import classification, intervals, resampled


def delong(y, a, b):
    """Return AUC(a) − AUC(b) and its standard error, after DeLong et al., Biometrics 44, 1988."""
    ones, zeros = y == 1, y == 0
    both = []
    for f in (a, b):
        wins = np.sign(f[ones][:, None] - f[zeros][None, :]) / 2 + 0.5
        both.append((wins.mean(), wins.mean(axis=1), wins.mean(axis=0)))
    (x, xs, xt), (z, zs, zt) = both
    error = np.var(xs - zs, ddof=1) / ones.sum() + np.var(xt - zt, ddof=1) / zeros.sum()
    return x - z, float(np.sqrt(error))


@pytest.mark.parametrize("gain", [0.0, 0.5])
def test_the_interval_of_a_difference_of_aucs_is_that_of_delong(gain):
    rng = np.random.default_rng(3)
    n = 400
    truth = rng.normal(size=n)
    y = (truth + rng.normal(size=n) > 0.3).astype(float)
    a = truth + rng.normal(size=n) * 0.7
    b = truth + rng.normal(size=n) * (0.7 + gain * 2)
    drawn = resampled.multiplicities(n, 4000, rng)
    value, error = delong(y, a, b)
    each = [classification.auc(y, f, drawn) for f in (a, b)]
    found = intervals.paired_draws([each[0]], [each[1]], value)
    assert found.difference == value
    np.testing.assert_allclose((found.high - found.low) / 2 / 1.96, error, rtol=0.07)
    expected = 2 * stats.norm.sf(abs(value) / error)
    assert abs(np.log(found.p / expected)) < 0.35 or max(found.p, expected) < 2e-3
    assert (found.low > 0 or found.high < 0) == (found.p < 0.05)


def test_draws_of_c_indices_are_those_of_lifelines_on_the_repeated_rows():
    rng = np.random.default_rng(5)
    n = 120
    time = rng.integers(1, 60, n).astype(float)
    event = rng.random(n) < 0.6
    one = -time + rng.normal(0, 25, n)
    other = -time + rng.normal(0, 60, n)
    drawn = resampled.multiplicities(n, 60, rng)
    mine = [resampled.harrell(drawn, f, time, event) for f in (one, other)]
    theirs = np.array([
        [lifelines.utils.concordance_index(time[i], -f[i], event[i]) for f in (one, other)]
        for i in (np.repeat(np.arange(n), m) for m in drawn)
    ])  # fmt: skip
    np.testing.assert_allclose(np.array(mine).T, theirs, atol=1e-12)
    found = intervals.paired_draws([mine[0]], [mine[1]], 0.0)
    low, high = np.quantile(theirs[:, 0] - theirs[:, 1], [0.025, 0.975])
    np.testing.assert_allclose([found.low, found.high], [low, high], atol=1e-12)


def test_two_repeats_count_by_the_mean_of_their_differences_in_each_draw():
    a, b = np.array([[0.7, 0.8, 0.9], [0.5, 0.6, 0.4]]), np.array([[0.6, 0.6, 0.6]] * 2)
    found = intervals.paired_draws(a, b, 0.05)
    np.testing.assert_allclose(
        [found.low, found.high], np.quantile([0.0, 0.1, 0.05], [0.025, 0.975])
    )
    assert (found.difference, found.n) == (0.05, 2)
    assert found.p == 1.0


def test_a_draw_in_which_no_arm_is_better_than_the_other_is_no_evidence():
    same = intervals.paired_draws(np.full((1, 99), 0.7), np.full((1, 99), 0.7), 0.0)
    assert (same.low, same.high, same.p) == (0.0, 0.0, 1.0)
    better = intervals.paired_draws(np.full((1, 99), 0.8), np.full((1, 99), 0.7), 0.1)
    assert better.p == pytest.approx(0.02)  # 2 / (99 + 1): no fewer draws can be told


def test_a_share_has_an_interval_where_the_gap_is_clear_and_only_there():
    rng = np.random.default_rng(0)
    low = rng.normal(0.60, 0.01, (2, 500))
    mid, top = low + 0.05 + rng.normal(0, 0.002, (2, 500)), low + 0.1
    part = (mid - low).mean(axis=0) / 0.1
    expected = np.quantile(part, [0.025, 0.975])
    np.testing.assert_allclose(intervals.drawn_share(low, mid, top), expected, atol=1e-9)
    np.testing.assert_allclose(intervals.drawn_share(-low, -mid, -top, -1), expected, atol=1e-9)
    unclear = low + rng.normal(0, 0.05, (2, 500))
    assert np.isnan(intervals.drawn_share(low, mid, unclear)).all()
