"""Networks that compute from one flat vector."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from fedcohort.models.layers import ACTIVATIONS
from fedcohort.models.network import Mlp, initial, network


def plain(spec, theta):
    """The same perceptron in NumPy, for tanh."""
    widths = [spec.inputs, *spec.hidden, 1]
    layers, start = [], 0
    for a, b in pairwise(widths):
        weight = theta[start : start + a * b].reshape(b, a)
        layers.append((weight, theta[start + a * b : start + a * b + b]))
        start += a * b + b
    assert start == len(theta)

    def forward(x):
        for k, (weight, bias) in enumerate(layers):
            x = x @ weight.T + bias
            x = np.tanh(x) if k < len(layers) - 1 else x
        return x[:, 0]

    return forward


def some(n=12, p=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p))


def test_the_flat_vector_holds_weights_then_bias_layer_by_layer():
    spec = Mlp(inputs=5, hidden=(8, 4), activation="tanh")
    theta = np.random.default_rng(1).normal(size=5 * 8 + 8 + 8 * 4 + 4 + 4 + 1)
    net = network(spec.spec)
    net.load(theta)
    x = some()
    assert_allclose(net.outputs(torch.from_numpy(x)), plain(spec, theta)(x), rtol=1e-12)
    assert net.first == slice(0, 40)
    assert_allclose(net.read(), theta, rtol=0)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_the_pulled_gradient_is_that_of_plain_autograd(activation):
    spec = Mlp(inputs=5, hidden=(6, 3), activation=activation)
    theta, x, s = initial(spec.spec, 3), some(), some(12, 1, 9)[:, 0]
    net = network(spec.spec)
    net.load(theta)
    value = net.pull(torch.from_numpy(x), lambda f: (float(f @ s), s))
    first = net.gradient()
    net.pull(torch.from_numpy(x), lambda f: (0.0, s))
    reference = nn.Sequential(
        nn.Linear(5, 6), ACTIVATIONS[activation](),
        nn.Linear(6, 3), ACTIVATIONS[activation](), nn.Linear(3, 1),
    ).double()  # fmt: skip
    nn.utils.vector_to_parameters(torch.from_numpy(theta), reference.parameters())
    out = (reference(torch.from_numpy(x))[:, 0] * torch.from_numpy(s)).sum()
    out.backward()
    expected = torch.cat([p.grad.ravel() for p in reference.parameters()]).numpy()
    assert_allclose(value, float(out.detach()), rtol=1e-12)
    assert_allclose(first, expected, rtol=1e-10, atol=1e-12)
    assert_allclose(net.gradient(), first, rtol=0)  # a second pull starts from zero


def test_the_first_vector_is_a_function_of_the_seed_and_leaves_torchs_generator_alone():
    spec = Mlp(inputs=7).spec
    before = torch.random.get_rng_state()
    a, b, other = initial(spec, 1), initial(spec, 1), initial(spec, 2)
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.array_equal(a, b)
    assert not np.array_equal(a, other)
    assert np.abs(a[:56]).max() <= np.sqrt(6 / 15)
    assert_allclose(a[56:64], 0.0)


def test_the_spec_is_json_that_names_the_kind():
    assert json.loads(Mlp(inputs=3).spec)["kind"] == "mlp"


def test_dropout_is_drawn_from_the_seed_and_is_off_when_predicting():
    spec = Mlp(inputs=5, hidden=(30,), dropout=0.5).spec
    net, x = network(spec), torch.from_numpy(some())
    net.load(initial(spec, 0))
    seen = []
    net.pull(x, lambda f: (0.0, seen.append(f.copy()) or f), seed=4)
    assert np.array_equal(net.sampled(x, 4), seen[0])
    assert not np.array_equal(net.sampled(x, 5), seen[0])
    assert np.array_equal(net.outputs(x), net.outputs(x))
    assert not np.array_equal(net.outputs(x), seen[0])


def test_float32_is_computed_in_float32_and_leaves_as_float64():
    spec = Mlp(inputs=5).spec
    net = network(spec, "float32")
    net.load(initial(spec, 0))
    assert net.theta.dtype == torch.float32
    assert net.read().dtype == np.float64
    assert_allclose(net.read(), initial(spec, 0), atol=1e-7)


def test_the_slope_of_what_a_value_does_not_depend_on_is_0_whatever_it_was_before():
    net = network(Mlp(inputs=3, hidden=(4,)).spec)
    net.load(np.random.default_rng(0).normal(size=len(net.theta)))
    x = torch.ones(5, 3).double()
    net.descend(lambda module: module(x).square().sum())
    assert net.gradient().all()
    first = next(iter(net.module.parameters()))
    net.descend(lambda module: (first * torch.arange(3)).sum())
    assert_array_equal(net.gradient()[:12], np.tile([0.0, 1.0, 2.0], 4))
    assert not net.gradient()[12:].any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_number_times_the_vector_is_numpys_product_in_float64(dtype, monkeypatch):
    """In pieces of which the last is shorter."""
    monkeypatch.setattr("fedcohort.models.network.PIECE", 8)
    net = network(Mlp(inputs=3, hidden=(4,)).spec, dtype)
    net.load(np.random.default_rng(0).normal(size=len(net.theta)))
    assert len(net.theta) % 8
    for n in (204, 3):
        assert_array_equal(net.times(n), net.read() * n, strict=True)
