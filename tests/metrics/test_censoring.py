"""Kaplan–Meier of deaths and of censoring, against lifelines, scikit-survival and paper."""

from __future__ import annotations

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from numpy.testing import assert_allclose
from sksurv.nonparametric import CensoringDistributionEstimator

from fedcohort.metrics.survival.censoring import (
    Curve,
    Leavers,
    censoring,
    censoring_of,
    leavers,
    survival,
    survival_of,
)


def test_by_hand_where_a_death_and_a_censoring_share_a_time():
    time, event = np.array([1.0, 2.0, 2.0, 3.0]), np.array([0, 1, 0, 1], bool)
    # G: 1 of 4 leaves at 1; at 2 the death goes first, then 1 of 2 leaves.
    assert_allclose(censoring_of(time, event).at(np.array([0.5, 1, 2, 9])), [1, 0.75, 0.375, 0.375])
    # S: 1 of 3 dies at 2, the last one at 3.
    assert_allclose(survival_of(time, event).at(np.array([1, 2, 2.9, 3])), [1, 2 / 3, 2 / 3, 0])


@pytest.mark.parametrize("name", ["gbsg2", "whas500", "rossi"])
def test_curves_equal_scikit_survival_and_lifelines(request, name):
    cohort = request.getfixturevalue(name)
    at = np.linspace(cohort.time.min(), cohort.time.max(), 97)
    want = CensoringDistributionEstimator().fit(cohort.y).predict_proba(at)
    assert_allclose(censoring_of(cohort.time, cohort.event).at(at), want, atol=1e-12)
    fitter = KaplanMeierFitter().fit(cohort.time, cohort.event)
    want = fitter.survival_function_at_times(at)
    assert_allclose(survival_of(cohort.time, cohort.event).at(at), want, atol=1e-12)


def test_a_coarse_grid_counts_every_record_once(gbsg2):
    grid = np.quantile(gbsg2.time, [0.2, 0.5, 0.8])
    counts = leavers(gbsg2.time, gbsg2.event, grid)
    assert counts.deaths.sum() == gbsg2.event.sum()
    assert counts.censored.sum() == (~gbsg2.event).sum()
    exact = survival_of(gbsg2.time, gbsg2.event)
    assert_allclose(survival(grid, counts).values, exact.at(grid), atol=0.05)


def test_without_censoring_everybody_is_followed():
    time = np.array([3.0, 1.0, 2.0])
    assert_allclose(censoring_of(time, np.ones(3, bool)).at(time), 1.0)


def test_cells_that_nobody_reaches_change_nothing():
    counts = Leavers(np.array([1, 1, 0, 0]), np.array([0, 0, 0, 0]))
    assert_allclose(survival(np.array([1.0, 2.0, 3.0]), counts).values, [0.5, 0, 0])
    assert_allclose(censoring(np.array([1.0, 2.0, 3.0]), counts).values, [1, 1, 1])


def test_where_nobody_is_followed_there_is_no_weight():
    assert_allclose(Curve(np.array([1.0, 2.0]), np.array([0.5, 0.0])).inverse_at(2.0), 0.0)
