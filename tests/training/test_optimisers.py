"""The flat optimisers against torch.optim."""

from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from fedcohort.training.networks.optimisers import LARGE, OPTIMISERS

THEIRS = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
}


@pytest.mark.parametrize("size", [30, LARGE + 7], ids=["small", "large"])
@pytest.mark.parametrize(("name", "theirs"), THEIRS.items(), ids=THEIRS)
def test_twenty_steps_are_those_of_torch(name, theirs, size):
    rng = np.random.default_rng(0)
    ours, mine = torch.zeros(size).double(), OPTIMISERS[name]
    reference = torch.nn.Parameter(torch.zeros(size).double())
    optimiser, step = theirs([reference], lr=0.03), mine(ours)
    for k in range(20):
        grad = torch.from_numpy(rng.normal(size=size))
        rate = 0.03 / (k + 1)
        step.step(ours, grad, rate)
        optimiser.param_groups[0]["lr"] = rate
        reference.grad = grad
        optimiser.step()
    assert_allclose(ours.numpy(), reference.detach().numpy(), rtol=1e-12, atol=1e-15)


def test_a_large_step_goes_on_from_moments_after_any_number_of_steps():
    """A mean over sites' optimisers has no whole number of steps."""
    rng = np.random.default_rng(0)
    theta, m, grad = rng.normal(size=(3, LARGE))
    v, t = rng.gamma(0.5, size=LARGE), 38.3
    found = torch.from_numpy(theta.copy())
    optimiser = OPTIMISERS["adam"](found)
    optimiser.moments.copy_(torch.from_numpy(np.stack([m, v])))
    optimiser.taken = t - 1
    optimiser.step(found, torch.from_numpy(grad), 0.01)
    m, v = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad**2
    move = 0.01 * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    assert_allclose(found.numpy(), theta - move, rtol=1e-12, atol=1e-14)
    assert_allclose(optimiser.moments.numpy(), [m, v], rtol=1e-12, atol=1e-15)
    assert optimiser.taken == t


def test_adam_does_not_move_where_the_gradient_is_0():
    theta = torch.ones(3)
    OPTIMISERS["adam"](theta).step(theta, torch.zeros(3), 0.1)
    assert torch.equal(theta, torch.ones(3))


def yogi(grads, rates, start):
    """Zaheer et al. (2018), Algorithm 2, entry by entry, with the thesis's division by 1 − βᵗ."""
    theta, m, v = (np.full(grads.shape[1], at) for at in (0.0, start, start))
    for t, (grad, rate) in enumerate(zip(grads, rates, strict=True), 1):
        for i, g in enumerate(grad):
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = v[i] - 0.001 * np.sign(v[i] - g**2) * g**2
            step = m[i] / (1 - 0.9**t) / (np.sqrt(v[i] / (1 - 0.999**t)) + 1e-8)
            theta[i] -= rate * step
    return theta


def test_a_large_yogi_is_a_small_one():
    """Torch's fused step is Adam's alone."""
    grad = torch.from_numpy(np.random.default_rng(0).normal(size=(5, LARGE)))
    large, small = torch.zeros(LARGE).double(), torch.zeros(9).double()
    of_large, of_small = OPTIMISERS["yogi"](large), OPTIMISERS["yogi"](small)
    for g in grad:
        of_large.step(large, g, 0.01)
        of_small.step(small, g[:9].clone(), 0.01)
    assert_allclose(large[:9].numpy(), small.numpy(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("name", "start"), [("yogi", 0.0), ("yogi_started", 1e-6)])
def test_yogi_is_the_papers_loop(name, start):
    """Slopes shrink by a thousand on the way, so that v falls as well as rises."""
    rng = np.random.default_rng(0)
    grads = rng.normal(size=(60, 30)) * np.r_[np.ones(30), np.full(30, 1e-3)][:, None]
    rates = 0.03 / np.arange(1, 61)
    theta = torch.zeros(30).double()
    optimiser = OPTIMISERS[name](theta)
    for grad, rate in zip(grads, rates, strict=True):
        optimiser.step(theta, torch.from_numpy(grad), rate)
    assert_allclose(theta.numpy(), yogi(grads, rates, start), rtol=1e-12, atol=1e-15)


def test_yogis_second_moment_falls_slower_than_adams_after_a_large_slope():
    """What the additive rule is for: v loses (1−β₂)∇² a step, not (1−β₂)v."""
    left = {}
    for name in ("adam", "yogi"):
        theta = torch.zeros(1).double()
        optimiser = OPTIMISERS[name](theta)
        for g in (10.0, *[0.01] * 500):
            optimiser.step(theta, torch.tensor([g]).double(), 0.0)
        left[name] = float(optimiser.moments[1])
    assert left["yogi"] == pytest.approx(0.001 * (100 - 500 * 1e-4), rel=1e-9)
    assert left["adam"] < 0.62 * left["yogi"]


def test_a_started_yogis_first_step_is_small_and_yogis_is_not():
    """Zaheer et al.'s rule moves each entry by η at first, however small its slope is."""
    moved = {}
    for name in ("yogi", "yogi_started"):
        theta = torch.zeros(1).double()
        OPTIMISERS[name](theta).step(theta, torch.tensor([1e-4]).double(), 0.037)
        moved[name] = -float(theta)
    assert moved["yogi"] == pytest.approx(0.037, rel=0.01)
    assert moved["yogi_started"] < 0.01 * moved["yogi"]
