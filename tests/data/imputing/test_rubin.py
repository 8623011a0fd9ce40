"""Rubin's rules: by hand, as statsmodels combines, and what must hold for any estimates."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats
from statsmodels.imputation.mice import MICE

from fedcohort.data.imputing.rubin import Rubin
from fedcohort.protocol import Estimates


def estimates(values, variance, freedom=math.inf) -> Estimates:
    values = np.atleast_1d(np.asarray(values, float))
    covariance = np.diag(np.broadcast_to(np.asarray(variance, float), len(values)))
    names = tuple(f"x{j}" for j in range(len(values)))
    return Estimates(names, values, covariance, freedom, 0.95, "")


def test_three_tables_are_pooled_as_by_hand():
    # Q 1, 2, 3 with U = 1 and ν_c = 20: W = 1, B = 1, T = 7/3, λ = 4/7, ν_1 = 2 · 49/16,
    # ν_2 = 21/23 · 20 · 3/7, fmi = (4/3 + 2/(ν + 3))/(7/3)
    found = Rubin.of([estimates([q], 1.0, 20) for q in (1.0, 2.0, 3.0)])
    first, second = 2 * 49 / 16, 21 / 23 * 20 * 3 / 7
    freedom = first * second / (first + second)
    assert_allclose(found.values, 2.0)
    assert_allclose(found.total, 7 / 3)
    assert_allclose(found.freedom, freedom)
    assert_allclose(found.missing, (4 / 3 + 2 / (freedom + 3)) / (7 / 3))
    (row,) = found.rows()
    half = stats.t.ppf(0.975, freedom) * math.sqrt(7 / 3)
    assert_allclose([row["low"], row["high"]], [2 - half, 2 + half])
    assert_allclose(row["p"], 2 * stats.t.sf(2 / math.sqrt(7 / 3), freedom))


def test_estimate_and_variance_are_those_that_statsmodels_combines():
    rng = np.random.default_rng(0)
    values, variances = rng.standard_normal((5, 3)), rng.uniform(0.5, 2, (5, 3))
    theirs = SimpleNamespace(
        results_list=[
            SimpleNamespace(
                _results=SimpleNamespace(params=q, cov_params=lambda u=u: np.diag(u)), scale=1.0
            )
            for q, u in zip(values, variances, strict=True)
        ],
        exog_names=list("abc"), endog_names="y", model_class=None, model=None,
    )  # fmt: skip
    combined = MICE.combine(theirs)
    ours = Rubin.of([estimates(q, u) for q, u in zip(values, variances, strict=True)])
    assert_allclose(ours.values, combined.params)
    assert_allclose(np.sqrt(ours.total), combined.bse)
    # they report λ = (1 + 1/M) B/T in its place
    assert_allclose(1.2 * ours.between / ours.total, combined.frac_miss_info)


def test_equal_tables_give_the_estimate_of_one_and_no_missing_information():
    found = Rubin.of([estimates([0.7], 0.04, 50)] * 4)
    assert_allclose(found.total, 0.04)
    assert_allclose(found.missing, 0.0)
    assert_allclose(found.freedom, 51 / 53 * 50)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**16), m=st.integers(2, 30), scale=st.floats(1e-3, 1e3))
def test_a_unit_of_the_covariate_scales_estimates_and_changes_neither_df_nor_fmi(seed, m, scale):
    rng = np.random.default_rng(seed)
    values, variances = rng.standard_normal((m, 2)), rng.uniform(0.1, 2, (m, 2))
    one = Rubin.of([estimates(q, u, 80) for q, u in zip(values, variances, strict=True)])
    other = Rubin.of(
        [estimates(scale * q, scale**2 * u, 80) for q, u in zip(values, variances, strict=True)]
    )
    assert_allclose(other.values, scale * one.values, rtol=1e-9, atol=1e-12)
    assert_allclose(other.freedom, one.freedom, rtol=1e-9)
    assert_allclose(other.missing, one.missing, rtol=1e-9)
    assert ((one.missing >= 0) & (one.missing <= 1)).all() and (one.freedom <= 80).all()
    assert (one.total >= one.within).all()
