"""The bound of the one-run audit, against printed numbers and an exact count of all outcomes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedcohort.audit.canaries import MOST, lower_bound, p_value, play


def test_p_value_is_the_papers():
    """Steinke et al. (2023), arXiv 2305.08846v1, Appendix D: 75 of 100 right, ε = log 3, δ = 0."""
    assert p_value(100, 100, 75, math.log(3), 0.0) == pytest.approx(0.553, abs=5e-4)


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "printed"),
    [
        (100, 100, 75, 0.0, 0.702),  # Appendix D
        (100, 100, 75, 1e-4, 0.699),
        (1000, 100, 75, 1e-4, 0.673),
        (100_000, 1510, 1439, 1e-5, 2.675),  # section 7, figure 11; printed without rounding
    ],
)
def test_bound_is_the_papers(m: int, r: int, v: int, delta: float, printed: float):
    assert lower_bound(m, r, v, delta) == pytest.approx(printed, abs=1e-3)


@given(r=st.integers(1, 9), epsilon=st.floats(0.0, 3.0), spare=st.integers(0, 3), data=st.data())
def test_pure_tail_is_that_of_randomised_response(r: int, epsilon: float, spare: int, data):
    """With δ = 0 the bound is attained: count all outcomes of r answers, each right with q."""
    v = data.draw(st.integers(0, r))
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    exact = sum(
        math.prod(q if right else 1 - q for right in outcome)
        for outcome in itertools.product((True, False), repeat=r)
        if sum(outcome) >= v
    )
    assert p_value(r + spare, r, v, epsilon, 0.0) == pytest.approx(min(exact, 1.0), abs=1e-12)


@given(
    r=st.integers(1, 9),
    epsilon=st.floats(0.0, 3.0),
    delta=st.floats(0.0, 0.2),
    data=st.data(),
)
def test_no_leaking_randomised_response_exceeds_the_bound(r, epsilon, delta, data):
    """Each answer is the truth for sure with probability δ, else randomised response: (ε, δ)-DP."""
    v = data.draw(st.integers(0, r))
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    right = delta + (1 - delta) * q
    exact = float(stats.binom.sf(v - 1, r, right))
    assert exact <= p_value(r, r, v, epsilon, delta) + 1e-12


@given(r=st.integers(1, 9), epsilon=st.floats(0.0, 2.0), delta=st.floats(0.0, 0.3), data=st.data())
def test_no_mechanism_that_shows_everything_at_once_exceeds_the_bound(r, epsilon, delta, data):
    """With probability δ all coins are published at once; of each alone that is (ε, δ)-DP."""
    v = data.draw(st.integers(0, r))
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    exact = delta + (1 - delta) * float(stats.binom.sf(v - 1, r, q))
    assert exact <= p_value(r, r, v, epsilon, delta) + 1e-12


@given(r=st.integers(2, 200), delta=st.sampled_from([0.0, 1e-6, 1e-4]), data=st.data())
def test_bound_rises_with_right_guesses_and_is_refuted_below_alone(r, delta, data):
    v = data.draw(st.integers(0, r - 1))
    low = lower_bound(2 * r, r, v, delta)
    assert lower_bound(2 * r, r, v + 1, delta) >= low
    if 0 < low < MOST:
        assert p_value(2 * r, r, v, low - 1e-5 if low > 1e-5 else 0.0, delta) < 0.05
        assert p_value(2 * r, r, v, low + 1e-5, delta) >= 0.05


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="0 ≤ v ≤ r ≤ m"):
        p_value(10, 8, 9, 1.0, 0.0)
    with pytest.raises(ValueError, match="even number"):
        play(lambda coins: coins, 10, 3, 1.0, 0.0, np.random.default_rng(0))


def test_a_mechanism_that_tells_all_is_refuted_and_one_that_tells_nothing_is_not():
    rng = np.random.default_rng(1)
    told = play(lambda coins: coins.astype(float), 1000, 200, 1.0, 1e-5, rng)
    assert told.right == 200
    assert told.refuted
    silent = play(lambda coins: rng.normal(size=(3, len(coins))), 1000, 200, 1.0, 1e-5, rng)
    assert not silent.refuted
    assert silent.epsilon_low < 0.3
