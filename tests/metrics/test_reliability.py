"""Calibration error and parts of the Brier score against scikit-learn, SciPy and sums over rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import binom
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from fedcohort.metrics.classification import calibration_groups
from fedcohort.metrics.reliability import mean_deviation, reliability


def drawn(n, seed, slope=1.0):
    """Return outcomes, and predictions whose log odds are `slope` times the right ones."""
    rng = np.random.default_rng(seed)
    f = rng.normal(-0.3, 1.2, n)
    y = (rng.random(n) < 1 / (1 + np.exp(-f))).astype(float)
    return y, 1 / (1 + np.exp(-slope * f))


def found(y, p, groups=10, least=1):
    return reliability(calibration_groups(y, p, groups, least), float(np.mean((p - y) ** 2)))


def test_the_calibration_error_is_that_of_scikit_learns_calibration_curve():
    y, p = drawn(400, 1, slope=2.0)
    share, mean = calibration_curve(y, p, n_bins=10, strategy="quantile")
    assert_allclose(found(y, p).ece, np.abs(share - mean).mean(), rtol=1e-12)  # 40 rows a bin


@given(st.integers(0, 2**16), st.integers(1, 60), st.integers(1, 12))
def test_the_parts_of_the_brier_score_are_sums_over_rows(seed, n, k):
    y, p = drawn(n, seed, slope=1.7)
    group = np.searchsorted(np.unique(np.quantile(p, np.arange(1, k) / k)), p, side="right")
    rows = [(p[group == g], y[group == g]) for g in np.unique(group)]
    parts = found(y, p, k)
    variance = sum(((a - a.mean()) ** 2).sum() for a, _ in rows) / n
    covariance = 2 * sum(((a - a.mean()) * (b - b.mean())).sum() for a, b in rows) / n
    expected = (
        sum(len(a) * (a.mean() - b.mean()) ** 2 for a, b in rows) / n,
        sum(len(a) * (b.mean() - y.mean()) ** 2 for a, b in rows) / n,
        y.var(),
        variance - covariance,
        brier_score_loss(y, p, pos_label=1),
    )
    assert_allclose(parts[2:], expected, atol=1e-12)


@given(st.integers(0, 2**16), st.integers(1, 60), st.integers(1, 9))
def test_the_parts_of_the_brier_score_add_up_also_of_joined_groups(seed, n, least):
    y, p = drawn(n, seed, slope=1.7)
    parts = found(y, p, least=least)
    if not np.isnan(parts.brier):  # too few records for a group
        total = parts.reliability - parts.resolution + parts.uncertainty + parts.within
        assert_allclose(total, brier_score_loss(y, p, pos_label=1), atol=1e-12)


@pytest.mark.parametrize(("n", "p"), [(1, 0.3), (7, 0.5), (40, 0.02), (55, 0.98), (9, 0.0), (9, 1)])
def test_the_mean_deviation_of_a_share_is_the_sum_over_scipys_distribution(n, p):
    counts = np.arange(n + 1)
    expected = binom.pmf(counts, n, p) @ np.abs(counts / n - p)
    assert_allclose(mean_deviation(np.array(float(n)), np.array(float(p))), expected, atol=1e-12)


def test_predictions_that_are_right_have_the_calibration_error_of_chance():
    # over six sets of 200 seeds the ratio is 0.980 to 1.037, sd 0.021
    each = [found(*drawn(150, seed)) for seed in range(200)]
    errors, chance = np.array([(e.ece, e.ece_by_chance) for e in each]).T
    assert errors.mean() == pytest.approx(chance.mean(), rel=0.07)
    assert found(*drawn(150, 0, slope=4.0)).ece > 2 * chance.mean()


def test_groups_without_records_have_no_calibration_error():
    none = calibration_groups(np.empty(0), np.empty(0))
    assert np.isnan(reliability(none, np.nan)).all()
