"""Private training: what one record can change, by brute force, and what noise and clipping do."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from fedcohort.arrays import Array
from fedcohort.data.tables import SurvivalTable
from fedcohort.models.losses import LOSSES, PartialLikelihood
from fedcohort.models.network import Mlp, initial, network
from fedcohort.protocol import Site
from fedcohort.training import private
from fedcohort.training.networks.plan import Plan
from fedcohort.training.rows import Rows, tensor

ROUNDING = 1 + 1e-9


class SquaredSum:
    """½Σ(f − y)²: a loss that is a sum over records."""

    informative = True

    def __init__(self, y: Array):
        self.y = y

    def __call__(self, outputs: Array, /) -> tuple[float, Array]:
        return float(0.5 * ((outputs - self.y) ** 2).sum()), outputs - self.y

    def take(self, rows: Array) -> SquaredSum:
        return SquaredSum(self.y[rows])


def plan(p: int, hidden: tuple[int, ...] = (3,), loss: str = "cox") -> Plan:
    net = Mlp(inputs=p, hidden=hidden, activation="tanh", intercept=False)
    return Plan(network=net.spec, loss=loss)


def survival(n: int, p: int, seed: int, far: float = 1.0) -> SurvivalTable:
    rng = np.random.default_rng(seed)
    x = rng.normal(0, far, (n, p))
    return SurvivalTable(x, rng.integers(1, 6, n).astype(float), rng.random(n) < 0.5)


def without(table: Any, i: int) -> Any:
    return type(table)(*(None if c is None else np.delete(c, i, axis=0) for c in table))


def rows_of(table: SurvivalTable, p: Plan) -> Rows:
    return Rows(tensor(table.x, p), LOSSES["cox"](table))


@settings(max_examples=examples(60), deadline=None)
@given(
    n=st.integers(2, 14),
    groups=st.integers(1, 6),
    clip=st.sampled_from([0.05, 1.0, 30.0]),
    far=st.sampled_from([0.1, 3.0, 300.0]),
    seed=st.integers(0, 10_000),
    sampled=st.sampled_from([0.5, 1.0]),
)
def test_any_record_removed_changes_the_sum_of_groups_by_two_clips_at_most(
    n: int, groups: int, clip: float, far: float, seed: int, sampled: float
):
    table, rng = survival(n, 2, seed, far), np.random.default_rng(seed)
    p = plan(2)
    theta = rng.normal(0, far, len(initial(p.network, 0)))
    labels = np.where(rng.random(n) < sampled, rng.integers(groups, size=n), -1)
    whole = private.clipped_sum(theta, rows_of(table, p), p, labels, clip)
    for i in range(n):
        rest = rows_of(without(table, i), p)
        less = private.clipped_sum(theta, rest, p, np.delete(labels, i), clip)
        moved = np.linalg.norm(whole - less)
        assert moved <= 2 * clip * ROUNDING
        if labels[i] < 0:
            assert moved <= 1e-12 * clip


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 10), clip=st.sampled_from([0.05, 1.0, 30.0]), seed=st.integers(0, 10_000))
def test_any_record_removed_changes_a_sum_over_records_by_one_clip_at_most(
    n: int, clip: float, seed: int
):
    rng = np.random.default_rng(seed)
    x, y, p = rng.normal(0, 3, (n, 2)), rng.normal(0, 10, n), plan(2)
    theta = initial(p.network, seed)
    whole = private.clipped_sum(theta, Rows(tensor(x, p), SquaredSum(y)), p, np.arange(n), clip)
    for i in range(n):
        rest = Rows(tensor(np.delete(x, i, 0), p), SquaredSum(np.delete(y, i)))
        labels = np.delete(np.arange(n), i)  # the others keep their own groups
        less = private.clipped_sum(theta, rest, p, np.unique(labels, return_inverse=True)[1], clip)
        assert np.linalg.norm(whole - less) <= clip * ROUNDING


def test_two_clips_are_needed_where_a_record_turns_its_group_around():
    # one death against one survivor on either side: without record 2 the group's gradient is the
    # other way round, so that a sensitivity of one clip would be too little
    table = SurvivalTable(
        np.array([[0.0], [1.0], [-50.0]]), np.array([1.0, 2.0, 3.0]), np.array([True, False, False])
    )
    p, clip = plan(1, hidden=()), 1e-3
    theta = np.array([0.01])
    labels = np.zeros(3, int)
    whole = private.clipped_sum(theta, rows_of(table, p), p, labels, clip)
    less = private.clipped_sum(theta, rows_of(without(table, 2), p), p, labels[:2], clip)
    assert np.linalg.norm(whole - less) == pytest.approx(2 * clip, rel=1e-6)


def test_groups_gradients_are_those_of_autograd_on_each_group_alone():
    table, p = survival(40, 3, 5), plan(3, (4, 2))
    theta = initial(p.network, 3)
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 5, 40)
    total = private.clipped_sum(theta, rows_of(table, p), p, labels, 0.2)
    expected = np.zeros_like(theta)
    for k in range(5):
        take = np.flatnonzero(labels == k)
        net = network(p.network)
        net.load(theta)
        loss = PartialLikelihood(table.time[take], table.event[take])
        net.pull(tensor(table.x[take], p), loss)
        g = net.gradient()
        expected += g * min(1.0, 0.2 / np.linalg.norm(g))
    np.testing.assert_allclose(total, expected, rtol=1e-9, atol=1e-12)


def test_blocks_of_groups_leave_the_sum_as_it_is(monkeypatch: pytest.MonkeyPatch):
    table, p = survival(60, 2, 1), plan(2)
    theta, labels = initial(p.network, 0), np.arange(60) % 13
    whole = private.clipped_sum(theta, rows_of(table, p), p, labels, 0.1)
    monkeypatch.setattr(private, "BLOCK", 7)
    parts = private.clipped_sum(theta, rows_of(table, p), p, labels, 0.1)
    np.testing.assert_allclose(whole, parts, rtol=1e-12)


def test_the_jacobian_holds_each_record_s_own_gradient():
    p = plan(3, (4, 2))
    net, x = network(p.network), torch.randn(6, 3, dtype=torch.float64)
    net.load(initial(p.network, 2))
    each = net.jacobian(x)
    for i in range(6):
        net.pull(x[i : i + 1], lambda f: (0.0, np.ones(len(f))))
        np.testing.assert_allclose(each[i], net.gradient(), rtol=1e-12)


def site(table: Any, entropy: tuple[int, ...] = (1, 2, 3)) -> Site[Any, None]:
    return Site("north", table, None, entropy)


def test_the_steps_state_two_clips_for_groups_one_for_records_and_one_for_a_site():
    table, p = survival(30, 2, 0), plan(2)
    theta = initial(p.network, 0)
    asked = {"theta": theta, "plan": p.text, "clip": 0.3}
    groups = private.pull_privately.run(site(table), **asked, groups=4, sampling=1.0)
    single = private.pull_privately.run(site(table), **asked, groups=0, sampling=1.0)
    whole = private.move_privately.run(site(table), **asked, rate=0.1)
    assert groups.sensitivity == {"gradient": 0.6}
    assert single.sensitivity == {"gradient": 0.3}
    assert whole.sensitivity == {"change": 0.3}
    assert np.linalg.norm(whole.reply.change) <= 0.3 * ROUNDING


def test_what_a_site_s_training_changed_is_cut_and_else_left_alone():
    table, p = survival(30, 2, 0), plan(2)
    theta = initial(p.network, 0)
    asked = {"theta": theta, "plan": dataclasses.replace(p, epochs=1).text, "rate": 0.01}
    free = private.move_privately.run(site(table), **asked, clip=1e6).reply.change
    cut = private.move_privately.run(site(table), **asked, clip=1e-3).reply.change
    assert np.linalg.norm(cut) == pytest.approx(1e-3)
    np.testing.assert_allclose(cut / 1e-3, free / np.linalg.norm(free), rtol=1e-9)


def test_samples_and_groups_are_drawn_from_the_entropy_alone():
    table, p = survival(200, 2, 0), plan(2)
    asked = {"theta": initial(p.network, 0), "plan": p.text, "groups": 9, "clip": 1.0}
    a, b, other = (
        private.pull_privately.run(site(table, e), **asked, sampling=0.5).reply.gradient
        for e in ((1, 2, 3), (1, 2, 3), (1, 2, 4))
    )
    np.testing.assert_array_equal(a, b)
    assert not np.allclose(a, other)


def test_a_gradient_that_is_not_finite_counts_as_none():
    rows = np.array([[3.0, 4.0], [np.nan, 1.0], [np.inf, 0.0], [0.3, 0.4]])
    np.testing.assert_allclose(
        private.clipped(rows, 1.0), [[0.6, 0.8], [0.0, 0.0], [0.0, 0.0], [0.3, 0.4]]
    )


# courses of noisy steps at a site -------------------------------------------------------


def visited(step: Any, table: SurvivalTable, **change: Any) -> Any:
    p = dataclasses.replace(plan(2), epochs=3, batches=2, optimiser="sgd")
    asked = {"theta": initial(p.network, 0), "plan": p.text, "rate": 1.0, "groups": 4}
    return step.run(site(table), **asked, clip=0.3, sampling=1.0, **change), asked, p


@settings(max_examples=25, deadline=None)
@given(n=st.integers(4, 14), seed=st.integers(0, 10_000), far=st.sampled_from([0.3, 30.0]))
def test_one_record_s_part_of_every_answer_of_a_visit_is_within_what_the_step_states(
    n: int, seed: int, far: float
):
    # the step as it is, asked where its course may come to, with the records' draws held fixed:
    # a record that takes part in no answer (its covariates 0, its time the least, no death) is
    # replaced by any other, which is one removed and one added
    rng = np.random.default_rng(seed)
    table = survival(n, 2, seed, far)
    out, asked, _ = visited(private.train_privately, table)
    for _ in range(3):
        theta = rng.normal(0, far, len(asked["theta"]))
        i = int(rng.integers(n))
        x, time, event = (c.copy() for c in (table.x, table.time, table.event))
        x[i], time[i], event[i] = rng.normal(0, 10 * far, 2), rng.integers(1, 6), True
        other, _, _ = visited(private.train_privately, SurvivalTable(x, time, event))
        out, _, _ = visited(private.train_privately, table)  # the same draws as the other's
        here, there = out.ask(theta), other.ask(theta)
        moved = np.linalg.norm(here.reply.gradient - there.reply.gradient)
        assert here.sensitivity == there.sensitivity == {"gradient": 0.6}
        assert moved <= here.sensitivity["gradient"] * ROUNDING


@pytest.mark.parametrize("step", [private.train_privately, private.leave_privately])
def test_a_visit_steps_along_its_answers_and_looks_at_nothing_else(step: Any):
    more = {} if step is private.train_privately else {"rounds": 1, "keep": np.zeros(0, int)}
    out, asked, p = visited(step, survival(30, 2, 0), **more)
    rng, theta = np.random.default_rng(0), asked["theta"]
    course, told, steps = out.course(**asked, clip=0.3, sampling=1.0, **more), None, 0
    with pytest.raises(StopIteration) as end:
        while True:
            point = course.send(told)
            np.testing.assert_allclose(point, theta, rtol=1e-12)
            told = private.Pulled(rng.normal(0, 1, len(theta)))
            theta, steps = theta - told.gradient / 4, steps + 1
    assert steps == p.epochs * p.batches
    reply = end.value.value
    found = reply.thetas[0] if more else reply.theta
    np.testing.assert_allclose(found, theta)


def test_a_pull_towards_the_common_model_bends_a_visit_as_fedprox_says():
    p = dataclasses.replace(plan(2), epochs=2, optimiser="sgd", mu=0.5)
    start = initial(p.network, 1)
    course = private.visit_course(theta=start, plan=p.text, rate=0.1, groups=1)
    g = np.random.default_rng(1).normal(0, 1, (2, len(start)))
    next(course)
    course.send(private.Pulled(g[0]))
    with pytest.raises(StopIteration) as end:
        course.send(private.Pulled(g[1]))
    first = start - 0.1 * g[0]
    second = first - 0.1 * (g[1] + 0.5 * (first - start))
    np.testing.assert_allclose(end.value.value.theta, second, rtol=1e-12)


def test_mini_batches_are_samples_into_groups_of_the_same_size():
    draws = private.Draws.dealt(128, 0.3, 0.8, 4)
    assert (draws.groups, draws.clip, draws.sampling) == (32, 0.3, 0.2)
    assert private.Draws.dealt(0, 1.0, 1.0, 2).groups == 0


def test_rows_held_out_by_a_plan_are_trained_on_as_which_they_are_depends_on_how_many_there_are():
    table, p = survival(40, 2, 3), plan(2)
    cut = dataclasses.replace(p, validation_fraction=0.5)
    theta = initial(p.network, 0)
    asked = {"theta": theta, "groups": 5, "clip": 0.2, "sampling": 1.0}
    a, b = (private.pull_privately.run(site(table), **asked, plan=q.text) for q in (p, cut))
    np.testing.assert_array_equal(a.reply.gradient, b.reply.gradient)


def test_the_result_is_the_mean_of_the_later_half_of_the_points():
    points = np.random.default_rng(0).normal(0, 1, (7, 3))
    mean = private.LaterMean(7)
    last = [mean.add(x) for x in points][-1]
    np.testing.assert_allclose(last, points[3:].mean(axis=0), rtol=1e-12)
