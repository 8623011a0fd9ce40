"""Sums of regressions of several classes, against derivatives of log-likelihoods by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from algorithms.multinomial_cases import CHEESES, cheeses
from fedcohort.numerics.classes import (
    assembled,
    multinomial_terms,
    ordered_probabilities,
    ordinal_terms,
    probabilities,
    wider_terms,
)

P, K, N = 3, 4, 40


def drawn(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(N, P)), rng.integers(0, K, N)
    gamma = rng.normal(size=(K - 1, P + 1))
    thresholds = np.sort(rng.normal(size=K - 1)) + np.array([0.0, 0.1, 0.2])
    return x, np.column_stack([np.ones(N), x]), y, rng.uniform(0.5, 2.0, N), gamma, thresholds


def derivative(function, point, h=1e-5):
    steps = h * np.eye(len(point))
    return np.array([(function(point + s) - function(point - s)) / (2 * h) for s in steps])


@given(seed=st.integers(0, 2**16))
def test_score_and_information_of_unordered_classes_are_derivatives(seed):
    _, z, y, w, gamma, _ = drawn(seed)

    def value(g):
        odds = np.exp(np.column_stack([np.zeros(N), z @ g.reshape(K - 1, -1).T]))
        return w @ np.log(odds[np.arange(N), y] / odds.sum(axis=1))

    found = multinomial_terms(z, y, w, gamma)
    assert_allclose(found.log_likelihood, value(gamma.ravel()), rtol=1e-10)
    assert_allclose(found.score, derivative(value, gamma.ravel()), atol=1e-6)
    slopes = derivative(
        lambda g: multinomial_terms(z, y, w, g.reshape(K - 1, -1)).score, gamma.ravel()
    )
    assert_allclose(found.information, -slopes, atol=1e-6)
    chance = probabilities(z @ gamma.T)
    omega = w[:, None] * chance * (1 - chance)
    assert_allclose(found.squares, [omega.sum(axis=0), (omega**2).sum(axis=0)])


@given(seed=st.integers(0, 2**16))
def test_score_and_information_of_ordered_classes_are_derivatives(seed):
    x, _, y, w, gamma, thresholds = drawn(seed)
    point = np.r_[thresholds, gamma[0, 1:]]

    def value(g):
        return w @ np.log(ordered_probabilities(g[: K - 1], x @ g[K - 1 :]))[np.arange(N), y]

    found = ordinal_terms(x, y, w, point, K)
    assert_allclose(found.log_likelihood, value(point), rtol=1e-10)
    assert_allclose(found.score, derivative(value, point), atol=1e-5)
    slopes = derivative(lambda g: ordinal_terms(x, y, w, g, K).score, point)
    assert_allclose(found.information, -slopes, atol=1e-4, rtol=1e-5)
    assert np.linalg.eigvalsh(found.information)[0] > 0
    chance = ordered_probabilities(thresholds, x @ point[K - 1 :])
    below = np.cumsum(chance, axis=1)[:, :-1]
    assert_allclose(below, 1 / (1 + np.exp(-(thresholds - (x @ point[K - 1 :])[:, None]))))


@pytest.mark.parametrize("far", [-50.0, 50.0, 600.0])
def test_sums_stay_finite_where_probabilities_vanish(far):
    x, _, y, w, gamma, thresholds = drawn(0)
    x = x + far
    found = ordinal_terms(x, y, w, np.r_[thresholds, gamma[0, 1:]], K)
    wide = wider_terms(np.column_stack([np.ones(N), x]), y, w, thresholds, gamma[0, 1:])
    other = multinomial_terms(np.column_stack([np.ones(N), x]), y, w, gamma)
    for part in (*found, *wide, *other):
        assert np.isfinite(part).all()


def test_standard_errors_by_the_expected_information_are_those_of_sas():
    """SAS/STAT User's Guide 14.1, PROC LOGISTIC, example 72.3: the cheeses' table of estimates."""
    table = cheeses()
    n = len(table.y)
    assert n == np.sum(CHEESES)
    point = np.r_[np.linspace(-4, 4, 8), 0.0, 0.0, 0.0]
    for _ in range(30):
        found = ordinal_terms(table.x, table.y, np.ones(n), point, 9)
        step = np.linalg.solve(found.information, found.score)
        while (np.diff((point + step)[:8]) <= 0).any():
            step = step / 2
        point = point + step
    z = np.column_stack([np.ones(n), table.x])
    wide = wider_terms(z, table.y, np.ones(n), point[:8], point[8:])
    unit = np.eye(8 * 4).reshape(8, 4, -1)
    narrow = np.array([*unit[:, 0], *unit[:, 1:].sum(axis=0)])
    expected = narrow @ assembled(wide.own, wide.next).reshape(32, 32) @ narrow.T
    assert_allclose(
        np.sqrt(np.diag(np.linalg.inv(expected))),
        [0.5624, 0.4755, 0.4272, 0.3902, 0.3431, 0.3086, 0.2658, 0.3310, 0.3778, 0.4741, 0.4251],
        atol=1.1e-4,
    )
    assert_allclose(narrow @ wide.score.ravel(), 0.0, atol=1e-9)
