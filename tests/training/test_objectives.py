"""Objectives in training: rows, steps, and rounds over sites, on scikit-learn's digits."""

import gc
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits

from fedcohort.data import tables as remembered_module
from fedcohort.data.tables import FeatureTable
from fedcohort.models.autoencoder import Autoencoder
from fedcohort.models.network import initial, network
from fedcohort.models.objectives import Reconstruction
from fedcohort.models.reconstruction import Noise
from fedcohort.protocol.host import Host
from fedcohort.protocol.ledger import Ledger
from fedcohort.runtime.local import local
from fedcohort.training import rows as rows_module
from fedcohort.training.networks import strategies
from fedcohort.training.networks.local import evaluate, train
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg
from fedcohort.training.networks.strategies import Update, Visit, Visits, train_here, visit
from fedcohort.training.robust import Aggregation
from fedcohort.training.rows import rows_of

DIGITS = load_digits().data[:200] / 16.0
NET = Autoencoder(inputs=64, widths=(20, 5), output="sigmoid").spec
PLAN = Plan(network=NET, loss=Reconstruction(beta=0.3).spec, epochs=1, optimiser="sgd")
ENTROPY = (0, 1, 2)


def trained(x, plan=PLAN, rate=0.5, entropy=ENTROPY):
    return train(initial(NET, 0), rows_of(FeatureTable(x), plan, entropy), plan, rate, entropy)


def by_autograd(x, rate, rounds, beta=0.3):
    """Full-batch steps of torch.optim on the pooled rows, the model and its loss written anew."""
    theta = initial(NET, 0)
    cuts = np.cumsum([64 * 20, 20, 20 * 5, 5, 20, 64])
    pieces = [torch.from_numpy(p).requires_grad_() for p in np.split(theta, cuts[:-1])]
    w1, b1, w2, b2, c2, c1 = pieces
    optimiser = torch.optim.SGD(pieces, lr=rate)
    losses = []
    rows = torch.from_numpy(x)
    for _ in range(rounds):
        z = torch.relu(rows @ w1.view(20, 64).T + b1) @ w2.view(5, 20).T + b2
        y = torch.sigmoid(torch.relu(z @ w2.view(5, 20) + c2) @ w1.view(20, 64) + c1)
        dice = (1 - 2 * (rows * y).sum(1) / (rows.sum(1) + y.sum(1))).mean()
        entropy = -(rows * y.log() + (1 - rows) * (1 - y).log()).mean()
        loss = (1 - beta) * ((y - rows) ** 2).mean() + beta * (dice + entropy)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return torch.cat([p.detach() for p in pieces]).numpy(), losses


def test_full_batch_training_is_that_of_autograd_and_torch_optim():
    theta, loss = trained(DIGITS, replace(PLAN, epochs=4))
    expected, losses = by_autograd(DIGITS, 0.5, 4)
    assert_allclose(theta, expected, rtol=0, atol=1e-12)
    assert loss == pytest.approx(losses[0], rel=1e-12)


def average(parts, rounds=3, centre=None, visits=None, plan=PLAN):
    hosts = [Host(f"site {k}", FeatureTable(x), STEPS) for k, x in enumerate(parts)]
    theta = initial(NET, 0)
    server = Server.at(theta, rate=1.0, beta1=0.9, beta2=0.99, tau=1e-3)
    schedule = Schedule(rounds=rounds, learning_rate=0.5, lr_rule="constant")
    more = {} if centre is None else {"centre": centre}
    more |= {} if visits is None else {"visits": visits}
    fed = local(hosts)
    course = strategies.averaging(fed, plan, schedule, fedavg, server, lambda t: 0.0, **more)
    return course.theta, fed.history


STEPS = strategies.STEPS


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(1, 199), min_size=1, max_size=5, unique=True))
def test_one_full_batch_step_a_round_is_the_pooled_step_however_rows_are_split(cuts):
    theta, _ = average(np.split(DIGITS, sorted(cuts)))
    expected, _ = by_autograd(DIGITS, 0.5, 3)
    assert_allclose(theta, expected, rtol=0, atol=1e-10)


def test_a_site_without_rows_changes_nothing():
    parts = np.split(DIGITS, [60])
    assert_allclose(average([*parts, DIGITS[:0]])[0], average(parts)[0], rtol=0, atol=1e-14)


# what strategies train by ------------------------------------------------------------------------


def test_other_steps_are_asked_with_the_arguments_given_for_each_rounds_model():
    seen = []

    def given_(theta):
        seen.append(theta.copy())
        return {}

    theta, _ = average(np.split(DIGITS, 4), visits=Visits(train_here, visit, given_))
    assert_allclose(theta, average(np.split(DIGITS, 4))[0], rtol=0)
    assert len(seen) == 3
    assert np.array_equal(seen[0], initial(NET, 0))
    assert not np.array_equal(seen[1], seen[2])


def test_a_robust_centre_gathers_by_the_same_visits():
    asked = []
    bound = Aggregation(name="norm_bound", norm_bound=1e9)
    visits = Visits(train_here, visit, lambda theta: asked.append(1) or {})
    theta, _ = average(np.split(DIGITS, 4), centre=bound, visits=visits)
    assert len(asked) == 3
    assert_allclose(theta, average(np.split(DIGITS, 4))[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("centre", [None, Aggregation(name="norm_bound", norm_bound=1e9)])
def test_a_float32_model_is_sent_in_half_the_bytes_and_ends_in_the_same_bits(centre, monkeypatch):
    """A site computes from θ rounded to float32, whether it was rounded before or after."""
    plan = replace(PLAN, dtype="float32", batch_size=32)
    parts = [*np.split(DIGITS, [60, 130]), DIGITS[:0]]
    short = bytes_down(lambda: average(parts, centre=centre, plan=plan))
    monkeypatch.setattr(Plan, "sent", lambda plan, theta: theta)
    whole = bytes_down(lambda: average(parts, centre=centre, plan=plan))
    assert short[0].tobytes() == whole[0].tobytes()
    assert whole[1] - short[1] == 3 * len(parts) * len(initial(NET, 0)) * 4


def bytes_down(fit):
    """Return a fit's θ, and what its ledger says was sent to all sites."""
    sent = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "sent", lambda ledger, size: sent.append(size))
        theta, _ = fit()
    return theta, sum(sent)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_joins_a_mean_is_the_rows_times_what_training_leaves(dtype):
    """Exact: a product of two numbers of 24 bits, or one rounded as NumPy rounds it."""
    plan, rate = replace(PLAN, dtype=dtype, batch_size=32), 0.5
    for n in (200, 7, 0):
        rows = rows_of(FeatureTable(DIGITS[:n]), plan, ENTROPY)
        given_ = initial(NET, 0).astype(dtype)
        part = Update.trained(given_, rows, plan, rate, ENTROPY)
        left = Visit.trained(given_, rows, plan, rate, ENTROPY)
        assert part.theta.dtype == left.theta.dtype == np.float64
        assert part.theta.tobytes() == (n * left.theta).tobytes()
        assert (part.rows, part.loss) == (left.rows, left.loss) == (n, left.loss)
        asked = {"theta": given_, "plan": plan.text, "rate": rate}
        assert part.fault(asked) == left.fault(asked) == ""


def test_a_model_replied_in_float32_is_refused():
    theta = initial(NET, 0)
    asked = {"theta": theta.astype("f4"), "plan": PLAN.text, "rate": 0.1}
    part = Update(theta.astype("f4"), np.array(1.0), np.array(0.0))
    assert "float32" in part.fault(asked)
    assert Update(theta, np.array(1.0), np.array(0.0)).fault(asked) == ""


# batches and noise -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "size", "parts"), [(200, 64, 4), (200, 100, 2), (7, 64, 1), (0, 8, 1)]
)
def test_a_batch_size_deals_rows_into_as_few_parts_as_it_allows(n, size, parts):
    plan = replace(PLAN, batch_size=size)
    assert plan.parts(n) == parts
    same = replace(PLAN, batches=parts)
    assert np.array_equal(trained(DIGITS[:n], plan)[0], trained(DIGITS[:n], same)[0])
    assert np.array_equal(trained(DIGITS[:n], plan)[0], initial(NET, 0)) == (n == 0)


def test_what_is_evaluated_has_no_noise():
    noise = Noise(kind="flip", rate=0.4, frequencies=tuple(DIGITS.mean(axis=0)))
    plan = replace(PLAN, batch_size=50, loss=Reconstruction(noise=noise).spec)
    rows = rows_of(FeatureTable(DIGITS), plan, ENTROPY)
    net = network(NET)
    net.load(initial(NET, 0))
    expected = float(((net.compute(lambda m: m(rows.x)) - DIGITS) ** 2).mean())
    assert evaluate(initial(NET, 0), rows, plan) == pytest.approx(expected, rel=1e-12)


def test_in_parts_the_loss_returned_is_the_mean_over_those_of_the_first_epoch():
    """At a rate of 0 each part is seen at the same vector, so that it is that over all rows."""
    for epochs in (1, 3):
        plan = replace(PLAN, batch_size=60, epochs=epochs)
        at_once = evaluate(initial(NET, 0), rows_of(FeatureTable(DIGITS), plan, ENTROPY), plan)
        assert trained(DIGITS, plan, rate=0.0)[1] == pytest.approx(at_once, rel=1e-12)
        assert trained(DIGITS, plan, rate=0.5)[1] < at_once
        first = trained(DIGITS, replace(plan, epochs=1), rate=0.5)[1]
        assert trained(DIGITS, plan, rate=0.5)[1] == pytest.approx(first, rel=1e-12)


@pytest.mark.parametrize("batch_size", [0, 64])
def test_noise_is_drawn_from_the_entropy_alone(batch_size):
    noise = Noise(kind="corruption", rate=0.3)
    plan = replace(PLAN, batch_size=batch_size, epochs=3, loss=Reconstruction(noise=noise).spec)
    first, again = trained(DIGITS, plan)[0], trained(DIGITS, plan)[0]
    assert np.array_equal(first, again)
    assert not np.array_equal(first, trained(DIGITS, plan, entropy=(0, 1, 3))[0])


def test_an_objective_over_blocks_is_that_over_all_rows(monkeypatch):
    rows = rows_of(FeatureTable(DIGITS), PLAN, ENTROPY)
    whole = evaluate(initial(NET, 0), rows, PLAN)
    monkeypatch.setattr(rows_module, "BLOCK", 37)
    assert evaluate(initial(NET, 0), rows, PLAN) == pytest.approx(whole, rel=1e-13)


def test_training_learns_to_reconstruct():
    plan = replace(PLAN, optimiser="adam", epochs=60, batch_size=32, dtype="float32")
    rows = rows_of(FeatureTable(DIGITS), plan, ENTROPY)
    theta, before = trained(DIGITS, plan, rate=0.003)
    assert evaluate(theta, rows, plan) < 0.6 * before


def test_an_objective_has_no_slope_of_one_row():
    rows = rows_of(FeatureTable(DIGITS), PLAN, ENTROPY)
    with pytest.raises(TypeError, match="no slope"):
        _ = rows.plain


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_of_a_table_without_an_outcome_are_kept_as_long_as_the_table(dtype):
    gc.collect()
    before = len(remembered_module._memories)
    table, plan = FeatureTable(DIGITS[:50].copy()), replace(PLAN, dtype=dtype)
    assert rows_of(table, plan, ENTROPY) is rows_of(table, plan, ENTROPY)
    assert len(remembered_module._memories) == before + 1
    held = replace(plan, validation_fraction=0.2)
    assert len(rows_of(table, held, ENTROPY).x) == 40
    del table
    gc.collect()
    assert len(remembered_module._memories) == before
