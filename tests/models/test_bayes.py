"""Layers with a posterior draw the sums that drawn weights would give."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from fedcohort.models.bayes import Bayes, Noisy, Sums, places
from fedcohort.models.conv import Conv
from fedcohort.models.losses import CrossEntropy
from fedcohort.models.network import Mlp, initial, network

DENSE = Mlp(inputs=3, hidden=(4,), activation="tanh", outputs=2).spec
IMAGE = Conv(image=(6, 6), filters=(2,), hidden=(3,), outputs=2).spec


@pytest.mark.parametrize("base", [DENSE, IMAGE])
def test_at_the_means_the_outputs_are_those_of_the_network_itself(base):
    plain, net = network(base), network(Bayes().spec(base))
    theta = initial(Bayes().spec(base), 1)
    net.load(theta)
    at = places(net.module)
    assert len(at.mean) == len(at.log_sd) == len(plain.theta)
    named = {name.replace("layer.", ""): p for name, p in net.module.named_parameters()}
    for name, p in plain.module.named_parameters():
        p.data.copy_(named[name])
    x = torch.randn(5, 3 if base is DENSE else 36, dtype=torch.float64)
    assert_allclose(net.outputs(x), plain.outputs(x), rtol=1e-12)
    assert np.unique(theta[at.log_sd]).tolist() == [math.log(0.05)]


@pytest.mark.parametrize("layer", [
    nn.Linear(6, 2, dtype=torch.float64),
    nn.Linear(6, 2, bias=False, dtype=torch.float64),
    nn.Conv2d(1, 2, 3, padding=1, dtype=torch.float64),
    nn.Conv1d(1, 2, 3, stride=2, dtype=torch.float64),
])  # fmt: skip
def test_sums_have_the_mean_and_variance_of_those_by_drawn_weights(layer):
    """Of 4,000 draws each, sd of a mean 0.016 sd, of a variance 2.2 %: margins of 5 such."""
    torch.manual_seed(0)
    noisy = Noisy(layer, 0.0).double()
    with torch.no_grad():
        for p in noisy.parameters(recurse=False):
            p.copy_(torch.randn_like(p) * 0.3 - 1.0)
    shape = {nn.Linear: (3, 6), nn.Conv2d: (3, 1, 4, 5), nn.Conv1d: (3, 1, 9)}[type(layer)]
    x = torch.randn(*shape, dtype=torch.float64)
    noisy.train()
    noisy.generator.manual_seed(1)
    with torch.no_grad():
        ours = torch.stack([noisy(x) for _ in range(4000)]).numpy()
        drawn = []
        spread = noisy.weight_log_sd.exp()
        for _ in range(4000):
            named = {"weight": layer.weight + spread * torch.randn_like(layer.weight)}
            if layer.bias is not None:
                b = noisy.bias_log_sd.exp()
                named["bias"] = layer.bias + b * torch.randn_like(layer.bias)
            drawn.append(torch.func.functional_call(layer, named, (x,)))
    theirs = torch.stack(drawn).numpy()
    sd = theirs.std(axis=0)
    assert np.abs((ours.mean(axis=0) - theirs.mean(axis=0)) / sd).max() < 5 * 0.016 * math.sqrt(2)
    assert np.abs(ours.var(axis=0) / theirs.var(axis=0) - 1).max() < 5 * 0.022 * math.sqrt(2)


def test_shared_weights_are_one_draw_for_all_rows():
    """A linear network's f is linear in x; over draws its variance is Σ x² σ²."""
    spec = Bayes(start=0.3, shared=True).spec(Mlp(inputs=3, hidden=(), intercept=False).spec)
    net = network(spec)
    net.load(initial(spec, 1))
    a, b = torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]], dtype=torch.float64)
    found = np.array([net.sampled(torch.stack([a, b, a + b]), seed) for seed in range(2000)])
    np.testing.assert_allclose(found[:, 2], found[:, 0] + found[:, 1], rtol=1e-9, atol=1e-12)
    # a variance of 2000 normal draws has a standard error of 3.2 %
    expected = 0.09 * np.array([6.0, 9.25, 10.25])
    np.testing.assert_allclose(found.var(axis=0), expected, rtol=0.16)


@pytest.mark.parametrize("shared", [False, True], ids=["sums", "shared weights"])
@pytest.mark.parametrize("base", [DENSE, IMAGE])
def test_slopes_are_those_of_the_sampled_loss(base, shared):
    net = network(Bayes(start=0.3, shared=shared).spec(base))
    theta = initial(Bayes(start=0.3, shared=shared).spec(base), 2)
    x = torch.randn(7, 3 if base is DENSE else 36, dtype=torch.float64)
    loss = CrossEntropy(np.arange(7) % 2, 2)
    net.load(theta)
    net.pull(x, loss, 5)
    slope = net.gradient()
    rng = np.random.default_rng(0)
    for i in rng.choice(len(theta), 12, replace=False):
        ends = []
        for step in (1e-6, -1e-6):
            moved = theta.copy()
            moved[i] += step
            net.load(moved)
            ends.append(loss(net.sampled(x, 5))[0])
        assert_allclose(slope[i], (ends[0] - ends[1]) / 2e-6, rtol=1e-4, atol=1e-8)


def test_a_seed_gives_the_same_draw_and_another_seed_another():
    net = network(Bayes().spec(DENSE))
    net.load(initial(Bayes().spec(DENSE), 0))
    x = torch.ones(2, 3, dtype=torch.float64)
    first = net.sampled(x, 3)
    assert (net.sampled(x, 3) == first).all()
    assert (net.sampled(x, 4) != first).all()


@pytest.mark.parametrize("biased", [True, False])
def test_slopes_of_sums_are_finite_differences_also_of_each_row_alone(biased):
    torch.manual_seed(0)
    shapes = [(5, 3), (5, 4), (4, 3), (4, 3), *([(4,), (4,)] if biased else [])]
    given = [torch.randn(*shape, dtype=torch.float64) for shape in shapes]
    given[3] -= 1.0
    needs = [g.requires_grad_() if i != 1 else g for i, g in enumerate(given)]
    assert torch.autograd.gradcheck(lambda *g: Sums.apply(*g)[0], needs)

    def total(w, x, e):
        return Sums.apply(x[None], e[None], w, *needs[3:])[0].square().sum()

    x, noise, mean = needs[0].detach(), needs[1], needs[2]
    each = torch.func.vmap(torch.func.grad(total), in_dims=(None, 0, 0))(mean, x, noise)
    for j in range(5):
        (alone,) = torch.autograd.grad(total(mean, x[j], noise[j]), mean)
        assert_allclose(each[j].detach(), alone.detach(), rtol=1e-12)


def test_where_no_input_has_a_variance_slopes_are_finite():
    x = torch.zeros(2, 3, requires_grad=True)
    found, *_ = Sums.apply(x, torch.randn(2, 4), torch.randn(4, 3), torch.zeros(4, 3))
    assert torch.isfinite(torch.autograd.grad(found.sum(), x)[0]).all()


@pytest.mark.parametrize("base", [DENSE, IMAGE])
@pytest.mark.parametrize("largest", [1, 5, 1000])
def test_pieces_have_each_weight_once_in_order(base, largest):
    at = places(network(Bayes().spec(base)).module)
    theta = np.arange(2 * len(at.mean))
    weights, mean, log_sd = zip(*at.pieces(largest), strict=True)
    every = np.arange(len(at.mean))
    assert (np.concatenate([every[i] for i in weights]) == every).all()
    assert (np.concatenate([theta[i] for i in mean]) == at.mean).all()
    assert (np.concatenate([theta[i] for i in log_sd]) == at.log_sd).all()
    assert max(len(every[i]) for i in weights) <= largest


def slopes_both_ways(spec, dtype, inputs, there):
    """Return the slopes of the sum of outputs by `pull`, over what was there, and by `descend`,
    which has them from `torch.autograd.grad`."""
    net = network(spec, dtype)
    net.load(initial(spec, 1))
    x = torch.randn(5, inputs, generator=torch.Generator().manual_seed(0)).to(net.theta)
    net.descend(lambda module: module(x).sum(), 7)
    theirs = net.gradient()
    net.grad.fill_(there)
    net.pull(x, lambda f: (0.0, np.ones_like(f)), 7)
    return net.gradient(), theirs


@pytest.mark.parametrize(("dtype", "close"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("wide", [3, 250], ids=["one piece", "several pieces"])
def test_a_step_writes_autograds_slopes_over_whatever_was_there(wide, dtype, close):
    """Both add the same products; σ² may differ in its last bit, by where a piece ends."""
    spec = Bayes(start=0.1).spec(Mlp(inputs=150, hidden=(wide,), outputs=2).spec)
    found, theirs = slopes_both_ways(spec, dtype, 150, math.nan)
    assert_allclose(found, theirs, rtol=close, atol=close * np.abs(theirs).max())


@pytest.mark.parametrize(("spec", "inputs"), [
    (Bayes(start=0.1).spec(IMAGE), 36), (Bayes(start=0.1, shared=True).spec(DENSE), 3),
], ids=["convolution", "shared draws"])  # fmt: skip
def test_layers_that_add_their_slopes_start_from_zeros(spec, inputs):
    found, theirs = slopes_both_ways(spec, "float64", inputs, 1.0)
    assert_allclose(found, theirs, rtol=1e-12, atol=1e-12 * np.abs(theirs).max())
