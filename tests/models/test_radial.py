"""The losses of a RadialGAN site against eqs. (5.5) and (5.6) of D6.2, written out row by row."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedcohort.data.prepare import heads_from
from fedcohort.models.network import initial, network
from fedcohort.models.radial import Decoded, Radial

# x0 a number, x1 binary (standardised), x2 and x3 three levels, y the outcome
HEADS = [
    ["normal", [0], 0.0, 1.0, None, None, False],
    ["bernoulli", [1], 0.4, 0.5, 0.0, 1.0, False],
    ["categorical", [2, 3], 0.0, 1.0, None, None, False],
    ["bernoulli", [4], 0.0, 1.0, 0.0, 1.0, False],
]
P, Q = 5, 2


def spec_of(carried=()):
    return Radial(inputs=P, latent=Q, heads=HEADS, hidden=(3,), activation="tanh", carried=carried)


def by_hand(theta, r, z, alpha, site, own, carried):
    """Eqs. (5.5), (5.6) with loops; `site` is the number of the site of each code."""
    c, start = len(carried), 0

    def take(*shape):
        nonlocal start
        size = int(np.prod(shape))
        part = theta[start : start + size].reshape(shape)
        start += size
        return part

    f1, f0, f3, f2 = take(3, P), take(3), take(Q, 3), take(Q)
    g1, g0, g3, g2 = take(3, Q + c), take(3), take(P, 3), take(P)
    d1, d0, d3, d2 = take(3, P), take(3), take(1, 3), take(1)
    assert start == len(theta)

    def encode(a):
        return np.r_[f3 @ np.tanh(f1 @ a + f0) + f2, a[list(carried)]]

    def decode(b):
        y = g3 @ np.tanh(g1 @ b + g0) + g2
        e = np.exp([0.0, y[2], y[3]])
        a = np.array([y[0], (1 / (1 + np.exp(-y[1])) - 0.4) / 0.5, *(e / e.sum())[1:],
                      1 / (1 + np.exp(-y[4]))])  # fmt: skip
        a[list(carried)] = b[Q:]
        return a * own

    def judge(a):
        return float(1 / (1 + np.exp(-(d3 @ np.tanh(d1 @ a + d0) + d2)[0])))

    adversarial = np.mean([np.log(judge(a)) for a in r])
    cycle = np.mean([np.linalg.norm(a - decode(encode(a))) for a in r])
    for j, weight in enumerate(alpha):
        codes = z[site == j]
        adversarial += weight * np.mean([np.log(1 - judge(decode(b))) for b in codes])
        cycle += weight * np.mean([np.linalg.norm(b - encode(decode(b))) for b in codes])
    return adversarial, cycle


def some(seed, carried):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=network(spec_of(carried).spec).read().size)
    own = np.array([1.0, seed % 2, 1.0, 1.0, 1.0])
    r = rng.normal(size=(6, P)) * own
    site = np.array([0, 0, 1, 1, 1])
    z = rng.normal(size=(5, Q + len(carried)))
    return theta, r, z, own, site


def computed(spec, theta, r, z, weights, own):
    net = network(spec.spec)
    net.load(theta)
    return net.module.losses(*map(torch.from_numpy, (r, z, weights, own)))


@pytest.mark.parametrize("carried", [(), (4,), (0, 4)])
@given(seed=st.integers(0, 1000))
def test_the_losses_are_those_of_the_paper_row_by_row(seed, carried):
    theta, r, z, own, site = some(seed, carried)
    alpha = np.array([0.3, 0.7])
    weights = alpha[site] / np.array([2.0, 3.0])[site]
    found = computed(spec_of(carried), theta, r, z, weights, own)
    wanted = by_hand(theta, r, z, alpha, site, own, carried)
    assert_allclose([v.detach().numpy() for v in found[:2]], wanted, rtol=1e-9)


def test_slopes_are_those_of_finite_differences():
    theta, r, z, own, _ = some(2, (4,))
    weights = np.full(5, 0.2)
    net = network(spec_of((4,)).spec)
    net.load(theta)
    net.descend(lambda m: _game(m.losses(*map(torch.from_numpy, (r, z, weights, own)))))
    slope, step = net.gradient(), 1e-6
    for k in range(0, len(theta), 7):
        ends = []
        for sign in (1, -1):
            moved = theta.copy()
            moved[k] += sign * step
            ends.append(_game(computed(spec_of((4,)), moved, r, z, weights, own)).item())
        # central differences of a curvature below 1e2 and values near 1: error below 1e-8
        assert_allclose(slope[k], (ends[0] - ends[1]) / (2 * step), atol=1e-7)


def _game(found):
    return found.fooled + 0.7 * found.cycle


@given(seed=st.integers(0, 1000))
def test_what_is_carried_returns_unchanged_and_what_a_site_lacks_stays_0(seed):
    spec = spec_of((0, 4))
    theta, r, _, own, _ = some(seed, (0, 4))
    net = network(spec.spec)
    net.load(theta)
    back = net.compute(lambda m: m.decode(m.encode(torch.from_numpy(r)), torch.from_numpy(own)))
    assert_array_equal(back[:, [0, 4]], r[:, [0, 4]])
    assert_array_equal(back * (1 - own), 0 * back)


def test_levels_of_a_decoded_record_are_probabilities():
    y = torch.tensor([[0.0, 0.0, 1.0, 2.0, 0.0]], dtype=torch.float64)
    made = Decoded(heads_from(HEADS), P)(y)[0].numpy()
    shares = np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum()
    assert_allclose(made[2:4], shares[1:])
    assert_allclose(made[[1, 4]], [0.2, 0.5])  # (0.5 − 0.4)/0.5, and 0.5


def test_heads_in_another_order_than_their_places_are_put_back():
    heads = [HEADS[2], HEADS[0], HEADS[3], HEADS[1]]
    y = torch.arange(5, dtype=torch.float64)[None]  # levels 0, 1; number 2; outcome 3; binary 4
    made = Decoded(heads_from(heads), P)(y)[0].numpy()
    assert made[0] == 2.0
    assert_allclose(made[4], 1 / (1 + np.exp(-3.0)))
    assert_allclose(made[1], (1 / (1 + np.exp(-4.0)) - 0.4) / 0.5)


def test_a_spec_makes_the_same_network_again():
    spec = spec_of((4,)).spec
    entries = json.loads(spec)
    entries.pop("kind")
    assert Radial(**entries).spec == spec
    assert_array_equal(initial(spec, 3), initial(spec, 3))
    assert network(spec).module.size_of_judge == 3 * P + 3 + 3 + 1
