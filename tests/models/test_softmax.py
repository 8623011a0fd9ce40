"""Networks with an output for each class: loss, gradient and predictions, against torch."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from torch import nn

from fedcohort.data.tables import LabelledTable
from fedcohort.models.losses import CrossEntropy, Logistic, built, several
from fedcohort.models.network import Mlp, initial, network
from fedcohort.models.predictor import Predictor, loss_name, model_of, outputs_of, spec_of
from fedcohort.protocol import Task
from fedcohort.training.networks.local import train
from fedcohort.training.networks.plan import Plan
from fedcohort.training.private import clipped, clipped_sum
from fedcohort.training.rows import rows_of


class Plain(Predictor):
    """A predictor that nobody saves."""

    arrays = meta = restore = None


def drawn(n=60, p=4, k=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    y = (x @ rng.normal(size=(p, k)) + rng.gumbel(size=(n, k))).argmax(axis=1)
    return x, y.astype(float)


@settings(max_examples=10, deadline=None)
@given(n=st.integers(1, 30), k=st.integers(2, 6), seed=st.integers(0, 2**16))
def test_value_and_slope_are_those_of_torchs_cross_entropy(n, k, seed):
    rng = np.random.default_rng(seed)
    f, y = 5.0 * rng.normal(size=(n, k)), rng.integers(k, size=n)
    value, slope = CrossEntropy(y, k)(f)
    there = torch.tensor(f, requires_grad=True)
    expected = nn.functional.cross_entropy(there, torch.tensor(y))
    expected.backward()
    assert_allclose(value, expected.item(), rtol=1e-12)
    assert_allclose(slope, there.grad.numpy(), rtol=1e-10, atol=1e-15)


def test_far_outputs_overflow_nothing():
    value, slope = CrossEntropy(np.array([0.0, 2.0]), 3)(np.array([[-1e5, 1e5, 0], [1e308, 0, 0]]))
    assert np.isfinite(slope).all()
    assert_allclose(value, (2e5 + 1e308) / 2)


def test_two_classes_are_the_logistic_loss_of_the_difference():
    y, f = np.array([0.0, 1, 1, 0, 1]), np.random.default_rng(0).normal(size=(5, 2))
    value, slope = CrossEntropy(y, 2)(f)
    expected, its = Logistic(y)(f[:, 1] - f[:, 0])
    assert_allclose(value, expected, rtol=1e-12)
    assert_allclose(slope, np.column_stack([-its, its]), rtol=1e-12)


def test_its_kinds_count_each_class_also_of_rows_taken():
    loss = built(several(4), LabelledTable(np.zeros((5, 1)), np.array([0.0, 2, 2, 0, 1])))
    assert loss.kinds == (2, 1, 2, 0)
    assert loss.take(np.array([1, 2])).kinds == (0, 0, 2, 0)


@pytest.mark.parametrize("hidden", [(), (6, 3)])
def test_the_pulled_gradient_is_that_of_plain_torch(hidden):
    x, y = drawn()
    spec = Mlp(inputs=4, hidden=hidden, outputs=3).spec
    theta = np.random.default_rng(1).normal(size=len(initial(spec, 0)))
    net = network(spec)
    net.load(theta)
    value = net.pull(torch.from_numpy(x), CrossEntropy(y, 3))
    widths = [4, *hidden, 3]
    layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    parts = [part for layer in layers for part in (layer, nn.Tanh())][:-1]
    plain = nn.Sequential(*parts).double()
    nn.utils.vector_to_parameters(torch.from_numpy(theta), plain.parameters())
    out = plain(torch.from_numpy(x))
    loss = nn.functional.cross_entropy(out, torch.from_numpy(y).long())
    loss.backward()
    assert net.outputs(torch.from_numpy(x)).shape == (60, 3)
    assert_allclose(net.outputs(torch.from_numpy(x)), out.detach().numpy(), rtol=1e-12)
    assert_allclose(value, loss.item(), rtol=1e-12)
    expected = torch.cat([p.grad.ravel() for p in plain.parameters()]).numpy()
    assert_allclose(net.gradient(), expected, rtol=1e-10, atol=1e-14)


def test_a_spec_of_one_output_says_nothing_of_outputs():
    assert "outputs" not in json.loads(Mlp(inputs=3).spec)
    assert json.loads(Mlp(inputs=3, outputs=2).spec)["outputs"] == 2


def test_a_linear_softmax_trained_to_its_end_is_the_optimum_of_scikit_learn():
    x, y = drawn(n=200)
    l2 = 0.01
    plan = Plan(
        network=spec_of("softmax", 4, (), "tanh", 3), loss=loss_name("softmax", 3), epochs=800,
        optimiser="momentum", l2=l2,
    )  # fmt: skip
    theta, _ = train(np.zeros(15), rows_of(LabelledTable(x, y), plan, (0, 0)), plan, 0.1, (0, 0))
    # scikit-learn minimises Σ loss + ½‖β‖²/C
    reference = LogisticRegression(C=1 / (l2 * len(x)), tol=1e-12, max_iter=10000).fit(x, y)
    model = Plain(
        features=tuple("abcd"), model="softmax", network=plan.network, theta=theta,
        levels=("u", "v", "w"),
    )  # fmt: skip
    assert_allclose(model.coefficients, reference.coef_, atol=1e-6)
    assert_allclose(model.predict(x), reference.predict_proba(x), atol=1e-6)
    assert_allclose(model.predict(x).sum(axis=1), 1.0, rtol=1e-12)
    assert_allclose(model.intercepts - model.intercepts.mean(),
                    reference.intercept_ - reference.intercept_.mean(), atol=1e-5)  # fmt: skip
    rows = {(r["class"], r["covariate"]): r for r in model.summary()}
    assert [*rows] == [(c, f) for c in "vw" for f in "abcd"]
    apart = (reference.coef_[1:] - reference.coef_[0]).ravel()
    assert_allclose([r["coefficient"] for r in rows.values()], apart, atol=2e-6)
    ratios = [r["relative_risk_ratio"] for r in rows.values()]
    assert_allclose(ratios, np.exp(apart), rtol=2e-6)
    assert {r["reference"] for r in rows.values()} == {"u"}


def test_without_a_penalty_it_is_the_maximum_of_the_likelihood():
    x, y = drawn(n=150, p=2)
    plan = Plan(
        network=spec_of("softmax", 2, (), "tanh", 3), loss=loss_name("softmax", 3), epochs=1500,
        optimiser="momentum",
    )  # fmt: skip
    theta, _ = train(np.zeros(9), rows_of(LabelledTable(x, y), plan, (0, 0)), plan, 0.1, (0, 0))

    def loss(free):
        f = np.column_stack([np.zeros(len(x)), x @ free.reshape(3, 2)[:2] + free[4:]])
        return float(np.mean(np.logaddexp.reduce(f, axis=1) - f[np.arange(len(x)), y.astype(int)]))

    best = minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-8})
    ours = CrossEntropy(y, 3)(x @ theta[:6].reshape(3, 2).T + theta[6:])[0]
    assert ours <= best.fun + 1e-9
    assert abs(theta[:6].reshape(3, 2).sum(axis=0)).max() < 1e-12  # as the module's header says


def test_the_model_is_chosen_by_the_outcome_and_has_an_output_for_each_class():
    task = Task(kind="classification", outcome="category", features=("x",), levels=("a", "b", "c"))
    assert model_of("auto", task, "personal") == "softmax"
    assert outputs_of("softmax", task) == 3
    assert outputs_of("logistic", task) == 1


def test_private_sums_clip_the_gradient_of_each_row():
    x, y = drawn(n=9)
    spec = Mlp(inputs=4, hidden=(3,), outputs=3).spec
    plan = Plan(network=spec, loss=several(3))
    theta, rows = initial(spec, 4), rows_of(LabelledTable(x, y), plan, (0, 0))
    net, expected = network(spec), 0.0
    for j in range(9):
        net.load(theta)
        net.pull(torch.from_numpy(x[j : j + 1]), CrossEntropy(y[j : j + 1], 3))
        expected = expected + clipped(net.gradient(), 0.3)
    found = clipped_sum(theta, rows, plan, np.arange(9), 0.3)
    assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


def test_the_initial_vector_of_one_output_does_not_depend_on_what_is_new():
    assert_array_equal(
        initial(Mlp(inputs=3, hidden=(2,)).spec, 5)[:6],
        initial(Mlp(inputs=3, hidden=(2,), outputs=1).spec, 5)[:6],
    )
