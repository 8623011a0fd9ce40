"""The flat optimisers against torch.optim."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from fedcohort.training.optimisers import OPTIMISERS


@pytest.mark.parametrize(("name", "theirs"), [("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)])
def test_twenty_steps_are_those_of_torch(name, theirs):
    rng = np.random.default_rng(0)
    ours, mine = torch.zeros(30).double(), OPTIMISERS[name]
    reference = torch.nn.Parameter(torch.zeros(30).double())
    optimiser, step = theirs([reference], lr=0.03), mine(ours)
    for k in range(20):
        grad = torch.from_numpy(rng.normal(size=30))
        rate = 0.03 / (k + 1)
        step.step(ours, grad, rate)
        optimiser.param_groups[0]["lr"] = rate
        reference.grad = grad
        optimiser.step()
    assert_allclose(ours.numpy(), reference.detach().numpy(), rtol=1e-12, atol=1e-15)


def test_adam_does_not_move_where_the_gradient_is_0():
    theta = torch.ones(3)
    OPTIMISERS["adam"](theta).step(theta, torch.zeros(3), 0.1)
    assert torch.equal(theta, torch.ones(3))
