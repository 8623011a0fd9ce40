"""Gradient inversion: the attack finds what is there to be found, and counts it honestly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedcohort.audit.gradients import Attacked, fitted, per_record, quotients
from fedcohort.audit.inversion import attack, match
from fedcohort.models.network import Mlp, initial, network

P = 6


def attacked(hidden: tuple[int, ...], activation: str, seed: int = 0, outputs: int = 1) -> Attacked:
    spec = Mlp(
        inputs=P, hidden=hidden, activation=activation, intercept=outputs > 1, outputs=outputs
    ).spec
    return Attacked(network(spec), initial(spec, seed), np.zeros(P), np.ones(P), outputs)


def test_gradient_of_a_record_is_the_networks_own():
    """`FlatNet.pull` computes Σ s ∇f by torch's backward pass, another way round."""
    a = attacked((5, 3), "tanh")
    x = np.random.default_rng(0).random((4, P))
    s = np.array([0.5, -1.0, 2.0, 0.1])
    a.net.load(a.theta)
    a.net.pull(torch.from_numpy(x), lambda f: (0.0, s))
    assert_allclose(s @ per_record(a, x), a.net.gradient(), rtol=1e-10)


def test_gradient_of_several_outputs_is_the_networks_own():
    a = attacked((5,), "tanh", outputs=3)
    rng = np.random.default_rng(0)
    x, s = rng.random((4, P)), rng.normal(size=(4, 3))
    a.net.load(a.theta)
    a.net.pull(torch.from_numpy(x), lambda f: (0.0, s))
    assert_allclose(s.ravel() @ per_record(a, x), a.net.gradient(), rtol=1e-10)


def test_fit_finds_every_record_behind_several_outputs():
    a = attacked((8,), "tanh", 3, outputs=3)
    rng = np.random.default_rng(5)
    x = rng.random((2, P))
    gradient = rng.normal(size=6) @ per_record(a, x)
    found = fitted(gradient, a, 2, np.zeros((0, P)), rng, 40)
    assert found.misfit < 1e-8
    assert match(found.x, x).count == 2


@given(seed=st.integers(0, 2**16))
def test_one_record_is_given_away_whole_by_any_first_layer(seed):
    """With a batch of one, ∂L/∂W_i over ∂L/∂b_i is the record itself."""
    a = attacked((7,), "tanh", 1)
    x = np.random.default_rng(seed).random((1, P))
    guesses = quotients(-0.3 * per_record(a, x)[0], a)
    assert len(guesses) == 7
    assert_allclose(guesses, np.repeat(x, 7, 0), atol=1e-6)


def test_fit_finds_every_record_of_a_small_networks_gradient():
    a = attacked((8, 4), "tanh", 3)
    rng = np.random.default_rng(5)
    x = rng.random((3, P))
    gradient = np.array([1.0, -0.7, 0.4]) @ per_record(a, x)
    found = fitted(gradient, a, 3, np.zeros((0, P)), rng, 40)
    assert found.misfit < 1e-8
    assert match(found.x, x).count == 3


def test_wide_rectified_layer_gives_records_away_and_noise_hides_them():
    a = attacked((512,), "relu")
    rng = np.random.default_rng(2)
    x, away = rng.random((8, P)), rng.random((8, P))
    slopes = rng.normal(size=8)
    gradient = slopes @ per_record(a, x)
    bare = attack(gradient, a, x, away, 8, rng, 1)
    assert bare.algebra >= 4
    assert bare.chance == 0
    noisy = gradient + np.linalg.norm(gradient) * rng.normal(size=len(gradient))
    hidden = attack(noisy, a, x, away, 8, rng, 1)
    assert hidden.either <= hidden.chance


def test_fit_is_not_tried_where_unknowns_exceed_numbers():
    a = attacked((4,), "tanh")
    rng = np.random.default_rng(0)
    x = rng.random((8, P))
    found = attack(per_record(a, x).sum(0), a, x, x + 5.0, 8, rng, 3)
    assert found.misfit is None
    assert found.fit == 0


@given(seed=st.integers(0, 2**16), n=st.integers(2, 7))
def test_records_themselves_are_recovered_and_their_order_does_not_matter(seed, n):
    rng = np.random.default_rng(seed)
    x = rng.random((n, P)) + 0.1
    found = match(x[rng.permutation(n)], x)
    assert found.count == n
    assert_allclose(found.error, 0.0, atol=1e-12)


def test_one_guess_recovers_one_record_at_most():
    x = np.ones((1, P)) + 1e-3 * np.arange(5)[:, None]
    assert match(x[:1], x).count == 1


def test_a_guess_nearer_to_another_record_than_that_is_to_it_counts_for_nothing():
    """Within 5 % of both of two neighbours: whose record it is, it does not tell."""
    x = np.array([[1.0, 0.0], [1.0, 0.01]])
    far = match(np.array([[1.0, 0.03]]), x)
    assert not far.recovered[0]
    assert match(np.zeros((0, 2)), x).count == 0


def test_mean_of_all_records_is_no_recovery():
    x = np.random.default_rng(4).random((8, P))
    assert match(x.mean(0, keepdims=True), x).count == 0


@pytest.mark.parametrize("scale", [0.04, 0.06])
def test_five_per_cent_is_the_line(scale):
    x = np.array([[3.0, 4.0], [40.0, 2.0]])
    guess = x[:1] + scale * 5.0 * np.array([[0.6, 0.8]])
    assert match(guess, x).count == int(scale < 0.05)
