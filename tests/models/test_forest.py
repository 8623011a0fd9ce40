"""Soft decision forests: routing, densities, steps of variational bounding, and their gradient."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from fedcohort.data.tables import LabelledTable, SurvivalTable
from fedcohort.models.forest import (
    FLOOR,
    SMALLEST,
    Forest,
    ForestNet,
    codes_of,
    from_curve,
    leaf_count,
    split_nodes,
)
from fedcohort.models.losses import scaled
from fedcohort.models.network import Mlp, initial, network
from fedcohort.models.objectives import (
    ForestLikelihood,
    Regridded,
    lifetimes,
    loss_of,
    times_of,
)
from fedcohort.training.networks.local import train
from fedcohort.training.networks.plan import Plan
from fedcohort.training.personal.ways import last_layer
from fedcohort.training.rows import rows_of

SEEDS = st.integers(0, 2**16)
OUTPUTS = 9


def made(seed=0, intervals=0, p=3, hidden=(4,), rng=None, **settings):
    """Return a forest, its loaded network, and θ with leaves drawn at random."""
    forest = Forest(**{"trees": 3, "depth": 3, "intervals": intervals} | settings)
    spec = forest.spec(Mlp(inputs=p, hidden=hidden, outputs=OUTPUTS).spec)
    rng = rng or np.random.default_rng(seed)
    theta = rng.normal(size=len(initial(spec, seed)))
    shape = (2, forest.trees, forest.leaves)
    drawn = rng.uniform(0.05, 0.9, forest.size)
    if not intervals:
        drawn.reshape(shape)[0] = rng.normal(size=shape[1:])
    theta[len(theta) - forest.size :] = drawn
    net = network(spec)
    net.load(theta)
    return forest, net, theta


def leaves_of(net):
    """Return the leaves' arrays, by name."""
    return {name: p.detach().numpy().copy() for name, p in net.module.leaves.named_parameters()}


def descend(outputs, nodes, depth, node=0, level=0):
    """Return the probability of each leaf below a node, by recursion in plain Python."""
    if level == depth:
        return [1.0]
    left = 1.0 / (1.0 + math.exp(-outputs[nodes[node]]))
    below = [descend(outputs, nodes, depth, 2 * node + side, level + 1) for side in (1, 2)]
    return [left * q for q in below[0]] + [(1.0 - left) * q for q in below[1]]


def routes(forest, net, x):
    """Return μ (n, T, L) by that recursion."""
    nodes = split_nodes(forest.trees, forest.leaves - 1, OUTPUTS)
    f = net.module.base(torch.from_numpy(x)).detach().numpy()
    return np.array([[descend(row, tree, forest.depth) for tree in nodes] for row in f])


def table(n=60, p=3, seed=0, survival=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    y = x[:, 0] * x[:, 1] + 0.3 * rng.normal(size=n)
    if not survival:
        return LabelledTable(x, y)
    time = np.ceil(10 * np.exp(-0.5 * y) * rng.exponential(size=n))
    return SurvivalTable(x, time, rng.random(n) < 0.7)


@given(seed=SEEDS, depth=st.integers(0, 5))
def test_a_row_reaches_each_leaf_with_the_product_of_the_probabilities_above_it(seed, depth):
    forest, net, _ = made(seed, depth=depth)
    x = np.random.default_rng(seed).normal(size=(3, 3))
    found = net.module.routed(net.module.base(torch.from_numpy(x))).exp().detach().numpy()
    assert_allclose(found, routes(forest, net, x), rtol=1e-10)
    assert_allclose(found.sum(2), 1.0, rtol=1e-12)


def test_a_tree_reads_no_output_twice_before_it_has_read_all():
    wide, narrow = split_nodes(4, 7, 9), split_nodes(4, 7, 3)
    assert all(len(set(tree)) == 7 for tree in wide.tolist())
    assert (np.apply_along_axis(np.bincount, 1, narrow) >= 2).all()
    assert len({tuple(tree) for tree in wide.tolist()}) == 4


def test_the_density_of_a_tree_adds_up_to_one_and_has_the_mean_that_is_predicted():
    forest, net, _ = made(1)
    x = np.random.default_rng(1).normal(size=(2, 3))
    grid = np.linspace(-12, 12, 4001)
    rows, y = torch.from_numpy(np.repeat(x, len(grid), axis=0)), np.tile(grid, 2)
    logs = net.module.log_likelihood(rows, torch.from_numpy(y)).detach().numpy()
    p = np.exp(logs).reshape(2, len(grid), forest.trees)
    assert_allclose(np.trapezoid(p, grid, axis=1), 1.0, rtol=1e-9)
    means = np.trapezoid(p * grid[None, :, None], grid, axis=1)
    assert_allclose(net.outputs(torch.from_numpy(x)), means.mean(1), rtol=1e-8)


def test_the_loss_is_that_of_mixtures_of_scipy_normals():
    forest, net, _ = made(2)
    data = table(seed=2)
    mu, leaves = routes(forest, net, data.x), leaves_of(net)
    density = norm.pdf(data.y[:, None, None], leaves["mean"], np.sqrt(leaves["variance"]))
    wanted = -np.log((mu * density).sum(2)).mean()
    found = loss_of("leaves", data)(net.module, torch.from_numpy(data.x))
    assert float(found.detach()) == pytest.approx(wanted, rel=1e-12)


@given(seed=SEEDS, intervals=st.sampled_from([0, 4]))
def test_the_gradient_of_the_network_is_that_of_finite_differences(seed, intervals):
    forest, net, theta = made(seed, intervals)
    data = table(20, seed=seed, survival=bool(intervals))
    name = lifetimes(np.array([2.0, 5.0, 9.0, 99.0])) if intervals else "leaves"
    x, loss = torch.from_numpy(data.x), loss_of(name, data)
    net.descend(lambda module: loss(module, x))
    gradient = net.gradient()
    free = len(theta) - forest.size
    assert not gradient[free:].any()
    way = np.random.default_rng(seed).normal(size=free)

    def value(h):
        net.load(np.r_[theta[:free] + h * way, theta[free:]])
        return float(net.compute(lambda module: loss(module, x)))

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    assert slope == pytest.approx(gradient[:free] @ way, rel=1e-6, abs=1e-8)


@given(seed=SEEDS, intervals=st.sampled_from([0, 4]), least=st.sampled_from([0.0, 3.0]))
def test_no_step_of_the_leaves_raises_the_loss_of_their_rows(seed, intervals, least):
    _, net, _ = made(seed, intervals, iterations=1, least=least)
    data = table(25, seed=seed, survival=bool(intervals))
    name = lifetimes(np.array([2.0, 5.0, 9.0, 99.0])) if intervals else "leaves"
    x, loss = torch.from_numpy(data.x), loss_of(name, data)
    values = [float(net.compute(lambda module: loss(module, x)))]
    for _ in range(6):
        loss.settle(net.module, x)
        values.append(float(net.compute(lambda module: loss(module, x))))
    assert (np.diff(values) <= 1e-10).all()
    assert values[-1] < values[0] - 1e-3  # from random leaves


def test_a_step_of_gaussian_leaves_is_em_with_the_routes_as_weights():
    forest, net, _ = made(3, iterations=1)
    data = table(40, seed=3)
    mu, before = routes(forest, net, data.x), leaves_of(net)
    joint = mu * norm.pdf(data.y[:, None, None], before["mean"], np.sqrt(before["variance"]))
    zeta = joint / joint.sum(2, keepdims=True)
    n = zeta.sum(0)
    mean = (zeta * data.y[:, None, None]).sum(0) / n
    variance = (zeta * (data.y[:, None, None] - mean) ** 2).sum(0) / n
    loss_of("leaves", data).settle(net.module, torch.from_numpy(data.x))
    after = leaves_of(net)
    assert_allclose(after["mean"], mean, rtol=1e-9, atol=1e-12)
    assert_allclose(after["variance"], np.maximum(variance, FLOOR), rtol=1e-8)


def test_blocks_of_rows_change_no_step():
    _, net, theta = made(4)
    data = table(50, seed=4)
    x, loss = torch.from_numpy(data.x), loss_of("leaves", data)
    found = []
    for block in (7, 1000):
        net.load(theta)
        net.module.block = block
        loss.settle(net.module, x)
        found.append(net.read())
    assert_allclose(*found, rtol=1e-10)


def test_leaves_with_few_rows_or_one_value_stay_finite():
    forest, net, _ = made(5, least=4.0, iterations=3)
    before = leaves_of(net)
    rows = torch.zeros(3, 3).double()
    ForestLikelihood(torch.ones(3)).settle(net.module, rows)
    for name, kept in leaves_of(net).items():
        assert_array_equal(kept, before[name])  # 3 rows are fewer than 4
    ForestLikelihood(torch.ones(30)).settle(net.module, torch.zeros(30, 3).double())
    after = leaves_of(net)
    assert (after["variance"] >= FLOOR).all()
    assert (after["variance"] == FLOOR).any()
    assert np.isfinite(net.outputs(rows)).all()
    assert len(net.read()) - forest.size == len(net.read()[: -leaf_count(_spec(forest))])


def _spec(forest):
    return forest.spec(Mlp(inputs=3, hidden=(4,), outputs=OUTPUTS).spec)


@pytest.mark.parametrize("times", [None, np.array([3.0, 6.0, 14.0, 1000.0])], ids=["exact", "grid"])
def test_one_survival_leaf_is_the_kaplan_meier_curve_of_lifelines(times):
    data = table(80, seed=6, survival=True)
    together = times is not None
    if times is None:
        times = np.unique(data.time[data.event])
        shown = data.time
    else:  # as the grid sees the records: all leave at the ends of intervals
        shown = times[np.searchsorted(times, data.time)]
    _, net, _ = made(6, intervals=len(times), trees=2, depth=0, iterations=1)
    codes = codes_of(data.time, data.event, times, together=together)
    ForestLikelihood(torch.from_numpy(codes)).settle(net.module, torch.from_numpy(data.x))
    wanted = KaplanMeierFitter().fit(shown, data.event).predict(times).to_numpy()
    found = net.outputs(torch.from_numpy(data.x[:1]))[0]
    assert_allclose(found, wanted, atol=2 * SMALLEST)


@given(seed=SEEDS)
def test_the_loss_of_survival_leaves_is_the_mixture_of_their_curves(seed):
    forest, net, _ = made(seed, intervals=3)
    data = table(12, seed=seed, survival=True)
    times = np.array([4.0, 9.0, 10_000.0])
    curves = np.cumprod(1 - leaves_of(net)["hazard"], axis=2)
    mu = routes(forest, net, data.x)
    mixed = np.concatenate([np.ones((12, forest.trees, 1)),
                            np.einsum("ntl,tlk->ntk", mu, curves)], axis=2)  # fmt: skip
    slot = np.searchsorted(times, data.time)
    alive = np.take_along_axis(mixed, slot[:, None, None] + 1, axis=2)[..., 0]
    before = np.take_along_axis(mixed, slot[:, None, None], axis=2)[..., 0]
    wanted = -np.log(np.where(data.event[:, None], before - alive, alive)).mean()
    loss = loss_of(lifetimes(times), data)
    found = float(net.compute(lambda module: loss(module, torch.from_numpy(data.x))))
    assert found == pytest.approx(wanted, rel=1e-9)


def test_records_as_numbers_tell_their_intervals_and_who_died():
    time, event = np.array([1.0, 2.0, 2.0, 7.0, 5.0]), np.array([0, 1, 0, 1, 1], bool)
    times = np.array([2.0, 5.0])
    assert codes_of(time, event, times, together=False).tolist() == [0, 1, 2, 4, 3]
    assert codes_of(time, event, times, together=True).tolist() == [2, 1, 2, 4, 3]


def test_at_the_start_a_forest_has_the_outcomes_mean_and_variance_or_is_normal():
    x = torch.randn(5, 3, generator=torch.manual_seed(0)).double()
    for start, mean, second in (("moments", 0.0, 1.0), ("normal", 1.0, 2.0)):
        spec = Forest(trees=3, depth=3, start=start).spec(
            Mlp(inputs=3, hidden=(4,), outputs=OUTPUTS).spec
        )
        net = network(spec)
        net.load(initial(spec, 0))
        leaves = leaves_of(net)
        assert_allclose(leaves["mean"].mean(1), mean, atol=1e-12)
        assert_allclose((leaves["mean"] ** 2 + leaves["variance"]).mean(1), second, rtol=1e-12)
        assert np.isfinite(net.outputs(x)).all()


def test_survival_leaves_start_around_the_curve_of_all_rows():
    forest, net, theta = made(8, intervals=3)
    hazard = np.array([0.1, 0.0, 1.0])
    net.load(from_curve(_spec(forest), theta, hazard))
    found = leaves_of(net)["hazard"]
    assert (np.diff(found[0, :, 0]) > 0).all()
    assert found[0, 3, 0] < 0.1 < found[0, 4, 0]
    assert_allclose(net.read()[: -forest.size], theta[: -forest.size])


def test_a_site_takes_a_plan_on_any_grid_of_times_and_no_other_plan():
    plan = Plan(network="{}", loss="lifetimes", epochs=3)
    rule = Regridded(plan.text, "lifetimes", 3)
    times = np.array([0.1, 1 / 3, 1e5])
    asked = replace(plan, loss=lifetimes(times))
    assert rule(asked.text)
    assert_array_equal(times_of(asked.loss), times)
    for grid in ([1.0, 1.0], [2.0, 1.0], [0.0, 1.0], [1.0, np.inf], [np.nan], [1.0, 2.0, 3.0, 4.0]):
        assert not rule(replace(plan, loss=lifetimes(np.array(grid))).text)
    for other in (replace(asked, epochs=9), replace(asked, loss="leaves 1.0"), plan):
        assert not rule(other.text)
    assert not rule(3)


def test_an_outcome_in_another_unit_is_the_same_after_standardising():
    data = table(seed=9)
    far = LabelledTable(data.x, 1e6 + 1e3 * data.y)
    _, net, _ = made(9)
    x = torch.from_numpy(data.x)
    near = loss_of(scaled("leaves", 0.5, 2.0), data)(net.module, x)
    same = loss_of(scaled("leaves", 1e6 + 500.0, 2e3), far)(net.module, x)
    assert float(same.detach()) == pytest.approx(float(near.detach()), rel=1e-9)


def test_a_visit_moves_the_network_by_its_optimiser_and_then_the_leaves():
    forest, _, theta = made(10)
    spec, data = _spec(forest), table(40, seed=10)
    plan = Plan(network=spec, loss="leaves", epochs=3, optimiser="sgd")
    rows = rows_of(data, plan, (0, 0, 0))
    found, _ = train(theta, rows, plan, 0.1, (0, 0, 0))
    module = network(spec).module
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    network(spec).load(theta)
    free = list(module.base.parameters())
    for _ in range(3):
        value = -module.log_likelihood(x, y).mean()
        for p, slope in zip(free, torch.autograd.grad(value, free), strict=True):
            with torch.no_grad():
                p -= 0.1 * slope
    module.settle(x, y)
    assert_allclose(found, network(spec).read(), rtol=1e-12, atol=1e-14)


def test_the_last_layer_of_a_forest_is_the_last_of_its_network_with_its_leaves():
    forest, _, theta = made(11)
    spec = _spec(forest)
    layer = OUTPUTS * 4 + OUTPUTS
    ranges = last_layer(spec)
    assert ranges[0][0] == len(theta) - forest.size - layer
    assert ranges[-1][1] == len(theta)
    assert sum(b - a for a, b in ranges) == layer + forest.size


@pytest.mark.parametrize("intervals", [0, 4])
def test_all_that_a_forest_computes_is_on_the_device_of_its_network(intervals):
    """An operation on tensors of the device `meta` and of the CPU fails, as of a GPU's and these.

    Targets come from the CPU: a site makes them with NumPy.
    """
    forest = Forest(trees=3, depth=2, intervals=intervals, iterations=2, least=1.0)
    nodes = np.zeros((forest.trees, 3), int)
    net = ForestNet(forest, torch.nn.Linear(4, 5), nodes).double().to("meta")
    x = torch.empty(7, 4, dtype=torch.float64, device="meta")
    targets = torch.zeros(7, dtype=torch.int64 if intervals else torch.float64)
    sums = net.leaf_sums(x, targets)
    net.update(torch.zeros_like(sums))
    net.settle(x, targets)
    found = [sums, net(x), net.log_likelihood(x, targets), *net.parameters(), *net.buffers()]
    assert {one.device.type for one in found} == {"meta"}
