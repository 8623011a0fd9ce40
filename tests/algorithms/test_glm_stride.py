"""Longer steps than Newton's: the first is scikit-learn's discriminant, the next a cubic's root."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from algorithms.logistic_cases import simulated
from fedcohort.algorithms.glm import stride
from fedcohort.algorithms.glm.stride import LONGEST, Seen
from fedcohort.numerics.families import Family, irls_terms


@pytest.mark.parametrize("seed", range(4))
def test_the_first_step_goes_to_the_linear_discriminant_of_the_pooled_table(seed):
    table = simulated(500, 3, seed)
    x = (table.x - table.x.mean(axis=0)) / table.x.std(axis=0)
    z = np.column_stack([np.ones(500), x])
    share = table.y.mean()
    null = np.r_[np.log(share / (1 - share)), 0, 0, 0]
    here = irls_terms(Family("binomial", "logit"), z, table.y, 0.0, 1.0, null)
    newton = np.linalg.solve(here.information, here.score)
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(x, table.y)
    found = null + stride.discriminant(newton, here.score, 500.0, share)
    assert_allclose(found, np.r_[theirs.intercept_, theirs.coef_[0]], rtol=1e-9)


@pytest.mark.parametrize("bend", [0.0, 0.05, -0.03])
def test_where_the_slope_is_a_cubic_the_next_step_ends_at_its_root(bend):
    # U(γ) = (2 − γ)(1 + 0.2 γ + bend γ²), whose root is 2; with F so large that eq. (2) is Newton's
    def seen(gamma):
        tail, rise = 1 + 0.2 * gamma + bend * gamma**2, 0.2 + 2 * bend * gamma
        slope, curvature = (2 - gamma) * tail, tail - (2 - gamma) * rise
        return Seen(np.array([gamma]), np.array([slope]), np.array([[curvature]]), 1e12, 0.0)

    points = [seen(0.5), seen(1.6)]
    newton = points[1].slope / points[1].curvature[0]
    step = stride.stride(points, newton)
    # a root that is nearer than Newton's point is left to Newton's step
    wanted = max(0.4, float(newton[0]))
    assert_allclose(step, [wanted], rtol=1e-9)


def test_no_step_is_much_longer_than_newtons_and_all_become_it():
    def seen(gamma, slope, value):
        return Seen(np.array([gamma, 0.0]), np.array([slope, 0.0]), np.eye(2), value, 0.0)

    for slope, value in ((1.0, 1.1), (1.0, 50.0), (1e-6, 1.0)):
        points = [seen(0.0, 2 * slope, 3 * value), seen(1.0, slope, value)]
        step = stride.stride(points, points[1].slope)
        assert 1.0 <= step[0] / slope <= max(LONGEST[1:])
    assert_allclose(step, points[1].slope, rtol=1e-9)
