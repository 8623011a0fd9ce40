"""Anderson acceleration from inner products alone: what it solves, and what it does not trust."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from fedcohort.training.admm.anderson import Anderson


def iterate(step, start, rounds, memory, *, linear=False):
    """Return the norms of the residuals of s ← step(s), accelerated as sites and coordinator do."""
    anderson, s = Anderson(memory, linear), start
    targets, residuals, norms = [], [], []
    for _ in range(rounds):
        residual = step(s) - s
        targets, residuals = [*targets, s + residual], [*residuals, residual]
        kept = residuals[-memory - 1 :]
        inner = np.zeros(memory + 1)
        inner[memory + 1 - len(kept) :] = [r @ residual for r in kept]
        mix = anderson.next(inner)
        s = mix @ np.array(targets[-len(mix) :])
        norms.append(np.linalg.norm(residual))
    return norms


def slow(d):
    """Return a linear contraction towards (1, …, 1) whose slowest factor is 0.999."""
    factors = np.linspace(0.5, 0.999, d)
    return lambda s: 1 + factors * (s - 1)


def test_a_linear_iteration_in_d_dimensions_is_solved_in_about_d_rounds():
    assert iterate(slow(5), np.zeros(5), 12, memory=10)[-1] < 1e-8
    assert iterate(slow(5), np.zeros(5), 12, memory=0)[-1] > 1e-3


def test_without_memory_it_is_the_plain_iteration():
    norms = iterate(slow(3), np.zeros(3), 30, memory=0)
    s, plain = np.zeros(3), []
    for _ in range(30):
        plain.append(np.linalg.norm(slow(3)(s) - s))
        s = slow(3)(s)
    assert_allclose(norms, plain)


def test_weights_sum_to_one_and_equal_residuals_give_a_finite_step():
    anderson = Anderson(5)
    for _ in range(4):
        mix = anderson.next(np.full(6, 2.0))
        assert np.isfinite(mix).all()
        assert_allclose(mix.sum(), 1)
    assert np.isfinite(Anderson(5).next(np.zeros(6))).all()


def test_a_point_that_is_worse_is_left_for_the_plain_step_from_the_one_before():
    anderson = Anderson(5)
    anderson.next(np.array([0, 0, 0, 0, 0, 1.0]))
    anderson.next(np.array([0, 0, 0, 0, 0.5, 0.8]))
    assert_allclose(anderson.next(np.array([0, 0, 0, 0.1, 0.1, 9.0])), [0, 1, 0])


def test_what_was_before_forgetting_counts_no_more():
    anderson = Anderson(5)
    anderson.next(np.array([0, 0, 0, 0, 0, 1.0]))
    anderson.forget()
    assert_allclose(anderson.next(np.array([0, 0, 0, 0, 0.7, 9.0])), [1.0])


def test_along_equal_residuals_steps_grow_and_a_step_too_far_is_taken_back():
    """From 0 to 5000 at 1 a round, then half of what is left: plain steps take 5000 rounds."""
    norms = iterate(
        lambda s: s - np.clip((s - 5000.3) / 2, -1, 1), np.zeros(1), 60, memory=10, linear=True
    )
    assert norms[-1] < 1e-8
