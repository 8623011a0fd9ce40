"""A perceptron's own outputs and gradients are those of torch's autograd."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.models.losses import CrossEntropy, Logistic, PartialLikelihood, Poisson, Spread
from fedcohort.models.network import FlatNet, Mlp, initial, network
from fedcohort.models.perceptrons import CURVES

CURVES_AND_DEPTHS = list(product(CURVES, [(), (5,), (6, 3), (4, 3, 2)]))


def by_torch(net: FlatNet):
    """The same network on autograd: what `FlatNet` does on another device."""
    other = FlatNet(net.module.of.build(), net.theta.dtype, "cpu")
    other._own = None
    other.theta.copy_(net.theta)
    return other


def made(shape: Mlp, rng, dtype="float64"):
    net = network(shape.spec, dtype)
    theta = initial(shape.spec, 3)
    net.load(theta + rng.normal(scale=0.1, size=len(theta)))
    return net, torch.from_numpy(rng.normal(size=(23, shape.inputs))).to(net.theta.dtype)


def losses(rng, outputs):
    time, event = np.ceil(9 * rng.exponential(size=23)), rng.random(23) < 0.6
    if outputs == 1:
        y = (rng.random(23) < 0.5).astype(float)
        return [PartialLikelihood(time, event), Logistic(y), Poisson(y)]
    return [CrossEntropy(rng.integers(0, outputs, 23), outputs)] + [Spread(time)] * (outputs == 2)


@pytest.mark.parametrize(("activation", "hidden"), CURVES_AND_DEPTHS)
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_values_and_slopes_of_every_curve_loss_and_depth_are_those_of_autograd(
    activation, hidden, outputs
):
    rng = np.random.default_rng(7)
    for intercept, dropout in product((True, False), (0.0, 0.4)):
        shape = Mlp(
            inputs=4, hidden=hidden, activation=activation, dropout=dropout,
            intercept=intercept, outputs=outputs,
        )  # fmt: skip
        net, x = made(shape, rng)
        other = by_torch(net)
        np.testing.assert_allclose(net.outputs(x), other.outputs(x), atol=1e-13)
        np.testing.assert_allclose(net.sampled(x, 5), other.sampled(x, 5), atol=1e-13)
        for loss in losses(rng, outputs):
            assert net.pull(x, loss, 5) == pytest.approx(other.pull(x, loss, 5), rel=1e-12)
            np.testing.assert_allclose(net.gradient(), other.gradient(), rtol=1e-11, atol=1e-12)
        s = rng.normal(size=(23, outputs))
        s = s[:, 0] if outputs == 1 else s
        np.testing.assert_allclose(net.pulls(x, s), other.pulls(x, s), atol=1e-12)


@pytest.mark.parametrize("activation", CURVES)
def test_in_single_precision_slopes_are_those_of_double(activation):
    rng = np.random.default_rng(8)
    shape = Mlp(inputs=4, hidden=(6, 3), activation=activation, dropout=0.2)
    net, x = made(shape, rng, "float32")
    wide, _ = made(shape, rng)
    wide.load(net.read())
    loss = losses(rng, 1)[0]
    assert net.pull(x, loss, 5) == pytest.approx(wide.pull(x.double(), loss, 5), rel=1e-5)
    np.testing.assert_allclose(net.gradient(), wide.gradient(), atol=1e-5)
    assert net.grad.dtype is torch.float32


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 300), seed=st.integers(0, 99))
def test_the_gradients_of_rows_add_up_to_that_of_all(rows, seed):
    rng = np.random.default_rng(seed)
    net, _ = made(Mlp(inputs=4, hidden=(6, 3), activation="silu", outputs=2), rng)
    x, s = torch.from_numpy(rng.normal(size=(rows, 4))), rng.normal(size=(rows, 2))
    net.pull(x, lambda f: (0.0, s))
    each = net.pulls(x, s)
    assert each.shape == (rows, len(net.grad))
    np.testing.assert_allclose(each.sum(0), net.gradient(), atol=1e-11)


def test_no_rows_have_no_slope():
    net, x = made(Mlp(inputs=4), np.random.default_rng(0))
    assert net.outputs(x[:0]).shape == (0,)
    net.pull(x[:0], lambda f: (0.0, f))
    assert not net.gradient().any()


def test_a_network_of_another_kind_or_on_another_device_computes_by_autograd():
    shape = Mlp(inputs=4)
    assert network(shape.spec)._own is not None
    assert FlatNet(torch.nn.Linear(4, 1), torch.float64, "cpu")._own is None
    assert FlatNet(shape.build(), torch.float64, "meta")._own is None
