"""Two published meta-analyses, and what the estimates must do at their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import norm, t

from fedcohort.metrics.heterogeneity import pooled_share, random_effects, share_interval

# Trials of the BCG vaccine, cases and others, vaccinated then not: Colditz et al., JAMA 271, 1994.
BCG = np.array(
    """4 119 11 128   6 300 29 274   3 228 11 209   62 13536 248 12619   33 5036 47 5761
    180 1361 372 1079   8 2537 10 619   505 87886 499 87892   29 7470 45 7232   17 1699 65 1600
    186 50448 141 27197   5 2493 3 2338   27 16886 29 17825""".split(),
    float,
).reshape(13, 4)
# Drugs against high blood pressure, differences and standard errors: Riley et al., BMJ 342, 2011,
# d549, with the digits of the data set `sbp` of the R package pimeta.
SBP = np.array([0.0, 0.1, -0.4, -0.8, -0.63, 0.22, -0.34, -0.51, 0.03, -0.81])
SBP_ERRORS = np.array(
    [
        0.42347717, 0.21939179, 0.02551067, 0.19898325, 0.30102594, 0.30102594, 0.07142988,
        0.10204269, 0.12245123, 0.30102594,
    ]
)  # fmt: skip


def log_risk_ratios():
    a, b, c, d = BCG.T
    return np.log(a / (a + b) * (c + d) / c), np.sqrt(1 / a - 1 / (a + b) + 1 / c - 1 / (c + d))


def test_bcg_trials_as_viechtbauer_has_them():
    # J. Stat. Softw. 36(3), 2010, section 4.2: rma(method = "REML") gives τ² 0.3132, Q 152.2330 on
    # 12 degrees of freedom, mean −0.7145 with standard error 0.1798.
    got = random_effects(*log_risk_ratios())
    assert_allclose([got.tau2, got.q, got.df], [0.3132, 152.2330, 12], atol=5e-5)
    assert_allclose(got.mean, -0.7145, atol=5e-5)
    assert_allclose(got.i2, (152.2330 - 12) / 152.2330, atol=1e-6)
    assert got.p < 1e-4
    # Hartung and Knapp's factor is just above 1 here.
    error = (got.high - got.low) / 2 / t.ppf(0.975, 12)
    assert 0.1798 < error < 0.1798 * 1.01


def test_blood_pressure_trials_as_pimeta_has_them():
    # Example of pima_htsreml in the manual of pimeta (Partlett & Riley, Stat. Med. 36, 2017); its
    # τ² is an iteration's that ends where it changes by less than 1e-5.
    got = random_effects(SBP, SBP_ERRORS)
    assert_allclose([got.mean, got.tau2], [-0.3287403, 0.06995102], atol=1e-5)
    assert_allclose([got.prediction_low, got.prediction_high], [-0.9886995, 0.3312188], atol=4e-5)
    assert_allclose([got.low, got.high], [-0.5761, -0.0814], atol=5e-5)


def test_without_heterogeneity_it_is_the_fixed_effect_mean():
    # Values that differ by less than their errors: the likelihood is highest at τ² = 0.
    y, s = np.array([0.50, 0.52, 0.49, 0.51]), np.array([0.05, 0.1, 0.08, 0.06])
    got = random_effects(y, s)
    w = 1 / s**2
    assert got.tau2 == 0
    assert_allclose(got.mean, np.average(y, weights=w))
    assert_allclose(got.high - got.mean, t.ppf(0.975, 3) / math.sqrt(w.sum()))
    assert_allclose(got.prediction_high - got.mean, t.ppf(0.975, 2) / math.sqrt(w.sum()))
    assert (got.i2, got.df) == (0.0, 3)
    assert got.p > 0.9


def test_with_errors_of_nothing_it_is_the_sample_of_the_centres():
    y = np.array([0.2, 0.5, 0.9, 1.4])
    got = random_effects(y, np.full(4, 1e-7))
    assert_allclose([got.mean, got.tau2], [y.mean(), y.var(ddof=1)], rtol=1e-6)
    half = t.ppf(0.975, 3) * y.std(ddof=1) / 2
    assert_allclose([got.low, got.high], [y.mean() - half, y.mean() + half], rtol=1e-6)
    assert got.i2 > 0.999


@given(
    seed=st.integers(0, 2**16),
    k=st.integers(2, 9),
    shift=st.floats(-5, 5),
    scale=st.floats(0.1, 10),
)
def test_units_order_and_origin_do_not_matter(seed, k, shift, scale):
    rng = np.random.default_rng(seed)
    y, s = rng.normal(size=k), rng.uniform(0.2, 1, k)
    got = random_effects(y, s)
    order = rng.permutation(k)
    moved = random_effects(shift + scale * y[order], scale * s[order])
    assert_allclose(
        [moved.mean, moved.low, moved.prediction_high],
        shift + scale * np.array([got.mean, got.low, got.prediction_high]),
        rtol=1e-6,
        atol=1e-6,
    )
    assert_allclose([moved.tau2, moved.q], [scale**2 * got.tau2, got.q], rtol=1e-6, atol=1e-8)
    assert got.tau2 >= 0
    assert 0 <= got.i2 < 1


def test_what_few_centres_cannot_support_is_nan():
    one, two = random_effects([0.7], [0.1]), random_effects([0.7, 0.8], [0.1, 0.1])
    assert one.mean == 0.7
    assert all(map(math.isnan, (one.low, one.tau2, one.q, one.p, one.prediction_low)))
    assert two.low < 0.75 < two.high
    assert math.isnan(two.prediction_low)
    assert math.isnan(random_effects([], []).mean)


def test_shares_are_pooled_by_their_logits():
    c, s = np.array([0.61, 0.70, 0.66, 0.75]), np.array([0.03, 0.02, 0.04, 0.03])
    got = pooled_share(c, s)
    of_logits = random_effects(np.log(c / (1 - c)), s / (c * (1 - c)))
    assert_allclose(np.log(got.mean / (1 - got.mean)), of_logits.mean)
    assert_allclose(np.log(got.high / (1 - got.high)), of_logits.high)
    assert_allclose(got[5:], of_logits[5:])
    assert 0 < got.prediction_low < got.low < got.mean < got.high < got.prediction_high < 1
    turned = pooled_share(1 - c, s)
    assert_allclose([turned.mean, turned.low], [1 - got.mean, 1 - got.high])


def test_the_interval_of_a_share_stays_inside_zero_and_one():
    low, high = share_interval(0.97, 0.05)
    assert 0 < low < 0.97 < high < 1
    half = norm.ppf(0.975) * 0.05 / (0.97 * 0.03)
    assert_allclose(np.log(high / (1 - high)), np.log(0.97 / 0.03) + half)


@pytest.mark.parametrize(("value", "error"), [(1.0, 0.0), (0.0, 0.1), (0.6, 0.0), (math.nan, 0.1)])
def test_a_share_without_spread_has_no_interval(value, error):
    assert all(map(math.isnan, share_interval(value, error)))


def test_intervals_cover_the_mean_of_all_centres():
    # 8 centres, τ = 0.15, errors 0.05 to 0.25; of 400 such studies, 95 % intervals hold the mean.
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        s = rng.uniform(0.05, 0.25, 8)
        got = random_effects(rng.normal(0.8, np.sqrt(0.15**2 + s**2)), s)
        covered += got.low <= 0.8 <= got.high
    assert 0.93 <= covered / 400 <= 0.985


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_values_of_any_size_have_the_same_heterogeneity(unit):
    # coefficients per unit of a covariate in large units, such as platelets, are small
    y, s = log_risk_ratios()
    plain, scaled = random_effects(y, s), random_effects(y * unit, s * unit)
    assert_allclose(scaled.tau2 / unit**2, plain.tau2, rtol=1e-10)
    assert_allclose([scaled.low / unit, scaled.i2, scaled.p], [plain.low, plain.i2, plain.p])
