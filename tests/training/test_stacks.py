"""Sites trained at once: the bits of each are those of the site alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.models.network import Mlp, initial, network
from fedcohort.models.perceptrons import CURVES
from fedcohort.training.networks.local import train, train_each
from fedcohort.training.networks.optimisers import OPTIMISERS
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.stacks import ROOM, Stacks, fits, length_of
from fedcohort.training.rows import rows_of

LOSSES = ("cox", "logistic", "linear", "poisson")


def table(loss, n, rng, p=4):
    x = rng.normal(size=(n, p))
    if loss == "cox":
        return SurvivalTable(x, np.ceil(20 * rng.exponential(size=n)), rng.random(n) < 0.6)
    return LabelledTable(x, (rng.random(n) < 0.5).astype(float))


def a_plan(loss, activation="tanh", **changed):
    net = Mlp(inputs=4, hidden=(5, 3), activation=activation, intercept=loss != "cox")
    return Plan(**{"network": net.spec, "loss": loss, "epochs": 3, **changed})


def prepared(sizes, plan, rng):
    return [rows_of(table(plan.loss, n, rng), plan, (0, 0, 0)) for n in sizes]


def together(theta, tables, plan):
    return train_each(theta, tables, plan, 0.05, [(0, 0, 0)] * len(tables))


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=40),
    loss=st.sampled_from(LOSSES),
    activation=st.sampled_from(sorted(CURVES)),
    optimiser=st.sampled_from(sorted(OPTIMISERS)),
    seed=st.integers(0, 99),
)
def test_a_site_has_the_same_bits_alone_in_any_stack_and_in_any_order(
    sizes, loss, activation, optimiser, seed
):
    rng = np.random.default_rng(seed)
    plan = a_plan(loss, activation, optimiser=optimiser, l1=0.01, l2=0.1, mu=0.1, epochs=2)
    tables = prepared(sizes, plan, rng)
    theta = initial(plan.network, seed)
    alone = [train(theta, t, plan, 0.05, (0, 0, 0)) for t in tables]
    order, cut = rng.permutation(len(sizes)), rng.integers(0, len(sizes) + 1)
    for places in (range(len(sizes)), order[:cut], order[cut:]):
        found = together(theta, [tables[k] for k in places], plan) if len(places) else []
        for k, (left, loss_there) in zip(places, found, strict=True):
            assert left.tobytes() == alone[k][0].tobytes()
            assert loss_there == alone[k][1]


def by_autograd(theta, rows, plan):
    """The same visit by autograd, and Adam as its paper writes it, on the table as it is."""
    net = network(plan.network)
    other = net.module.of.build().double()
    torch.nn.utils.vector_to_parameters(torch.from_numpy(theta.copy()), other.parameters())
    first, m, v = None, 0.0, 0.0
    for t in range(1, plan.epochs + 1):
        other.zero_grad()
        out = other(rows.x)
        value, slope = rows.loss(out.detach().numpy()[:, 0])
        out.backward(torch.from_numpy(slope)[:, None])
        weights = next(other.parameters())
        penalty = plan.l1 * weights.abs().sum() + 0.5 * plan.l2 * (weights**2).sum()
        start = torch.from_numpy(theta)
        now = torch.nn.utils.parameters_to_vector(other.parameters())
        (penalty + 0.5 * plan.mu * ((now - start) ** 2).sum()).backward()
        first = value + penalty.item() if first is None else first
        grad = torch.cat([p.grad.ravel() for p in other.parameters()])
        m, v = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad**2
        step = 0.05 * m / (1 - 0.9**t) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        torch.nn.utils.vector_to_parameters(now.detach() - step, other.parameters())
    return torch.nn.utils.parameters_to_vector(other.parameters()).detach().numpy(), first


@pytest.mark.parametrize("loss", LOSSES)
def test_a_visit_in_a_stack_is_that_of_autograd_and_adam(loss):
    rng = np.random.default_rng(3)
    plan = a_plan(loss, "selu", l1=0.01, l2=0.1, mu=0.3)
    tables = prepared((7, 21, 24, 50), plan, rng)
    theta = initial(plan.network, 1)
    for rows, (left, value) in zip(tables, together(theta, tables, plan), strict=True):
        wanted, first = by_autograd(theta, rows, plan)
        np.testing.assert_allclose(left, wanted, rtol=1e-9, atol=1e-11)
        assert value == pytest.approx(first, rel=1e-12)


def test_tables_are_filled_up_to_few_lengths_and_by_at_most_half():
    lengths = [length_of(n) for n in range(1, 3000)]
    assert all(n <= length for n, length in enumerate(lengths, 1))
    assert all(length < 1.5 * n for n, length in enumerate(lengths, 1) if n > 16)
    assert len(set(lengths)) < 50
    assert [length_of(n) for n in (1, 17, 25, 190, 257, 1000)] == [16, 24, 32, 192, 288, 1024]


def test_a_stack_stays_near_the_processor_and_tables_that_do_not_fit_are_the_rest():
    rng = np.random.default_rng(2)
    plan = a_plan("cox")
    stacks = Stacks.of(prepared([200] * 90 + [3000 * 10], plan, rng), plan)
    assert stacks.rest == [90]
    assert sum(len(places) for places, _ in stacks.each) == 90
    assert len(stacks.each) > 1
    assert all(stack.x.size <= ROOM for _, stack in stacks.each)


@pytest.mark.parametrize(
    "changed",
    [
        {"batches": 2},
        {"batch_size": 10},
        {"dtype": "float32"},
        {"network": Mlp(inputs=4, dropout=0.1).spec},
        {"network": Mlp(inputs=4, outputs=2).spec},
        {"network": Mlp(inputs=4, hidden=(3000, 3000)).spec},
    ],
)
def test_other_trainings_are_never_in_a_stack(changed):
    plan = replace(a_plan("cox"), **changed)
    rows = prepared([40], a_plan("cox"), np.random.default_rng(0))[0]
    assert fits(rows, a_plan("cox"))
    assert not fits(rows, plan)


def test_a_table_without_a_death_and_one_row_are_answered_as_alone():
    rng, plan = np.random.default_rng(4), a_plan("cox")
    flat = SurvivalTable(rng.normal(size=(9, 4)), np.arange(1.0, 10.0), np.zeros(9, bool))
    ties = SurvivalTable(rng.normal(size=(9, 4)), np.ones(9), np.ones(9, bool))
    tables = [rows_of(t, plan, (0, 0, 0)) for t in (flat, ties, table("cox", 1, rng))]
    theta = initial(plan.network, 0)
    for rows, (left, loss) in zip(tables, together(theta, tables, plan), strict=True):
        wanted, value = train(theta, rows, plan, 0.05, (0, 0, 0))
        assert left.tobytes() == wanted.tobytes()
        assert loss == value
    assert (together(theta, tables, plan)[0][0] == theta).all()
