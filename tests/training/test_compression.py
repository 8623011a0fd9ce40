"""Compressed updates with error feedback, against loops in NumPy, with and without masks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedcohort.data.tables import LabelledTable
from fedcohort.models.network import Mlp
from fedcohort.protocol.errors import SiteUnavailable
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training.networks import compression
from fedcohort.training.networks.compression import bits_of, pack, unpack
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg
from fedcohort.training.networks.strategies import STEPS, averaging
from fedcohort.training.networks.thinning import coordinates

P, ROUNDS, EPOCHS, RATE = 12, 6, 3, 0.2
NET = Mlp(inputs=P, hidden=(), intercept=False)
PLAN = Plan(network=NET.spec, loss="linear", epochs=EPOCHS, optimiser="sgd")
ROWS = {"a": 40, "b": 70, "c": 23}
EFFECTS = np.linspace(-1.5, 2.0, P)


def tables() -> dict[str, LabelledTable]:
    made = {}
    for k, (name, n) in enumerate(ROWS.items()):
        rng = np.random.default_rng(k)
        x = rng.normal(size=(n, P))
        made[name] = LabelledTable(x, x @ (EFFECTS + 0.3 * k) + 0.1 * rng.normal(size=n))
    return made


def trained(
    plan: Plan, rounds: int = ROUNDS, hosts: Any = None, lr_rule: str = "constant", **options: Any
) -> Any:
    hosts = hosts or [Host(n, t, STEPS, 5) for n, t in tables().items()]
    schedule = Schedule(rounds=rounds, learning_rate=RATE, lr_rule=lr_rule)
    server = Server.at(np.zeros(P), rate=1, beta1=0, beta2=0, tau=1)
    return averaging(
        local(hosts, **options), plan, schedule, fedavg, server, lambda theta: 0.0
    ).theta


def visit(theta: Any, table: LabelledTable) -> Any:
    """Return the site's θ_k after its steps of gradient descent on ½(y − xθ)², averaged."""
    for _ in range(EPOCHS):
        theta = theta - RATE * table.x.T @ (table.x @ theta - table.y) / len(table.x)
    return theta


def loop(compress: Any, rounds: int = ROUNDS) -> Any:
    """Return θ by equation (1); compress : (v, number of the round) → C(v)."""
    theta, data = np.zeros(P), tables()
    rest, n = {name: np.zeros(P) for name in data}, sum(ROWS.values())
    for r in range(1, rounds + 1):
        step = np.zeros(P)
        for name, table in data.items():
            v = visit(theta, table) - theta + rest[name]
            sent = compress(v, r)
            rest[name] = v - sent
            step += len(table.x) / n * sent
        theta = theta + step
    return theta


def only(v: Any, at: Any) -> Any:
    out = np.zeros(P)
    out[at] = v[at]
    return out


def test_the_loop_without_compression_is_plain_averaging():
    assert_allclose(trained(PLAN), loop(lambda v, r: v), atol=1e-7)


@pytest.mark.parametrize("secure", ["auto", "true"])
@pytest.mark.parametrize("share", [0.25, 1.0])
def test_random_coordinates_with_their_residuals_are_the_papers_loop(share, secure):
    plan = replace(PLAN, compression="random_k", share=share)
    expected = loop(lambda v, r: only(v, coordinates(plan, P, r)))
    assert_allclose(trained(plan, secure=secure), expected, atol=1e-7)
    if share == 1.0:
        assert_allclose(trained(plan), trained(PLAN), atol=1e-7)


def test_the_largest_coordinates_of_each_site_with_their_residuals_are_the_papers_loop():
    plan = replace(PLAN, compression="top_k", share=0.25)
    expected = loop(lambda v, r: only(v, np.argsort(-np.abs(v), kind="stable")[:3]))
    assert_allclose(trained(plan), expected, atol=1e-10)


def test_coordinates_are_as_many_as_asked_for_and_others_in_each_round():
    plan = replace(PLAN, compression="random_k", share=0.25)
    drawn = [coordinates(plan, 1000, r) for r in range(1, 41)]
    assert all(len(at) == 250 and (np.diff(at) > 0).all() for at in drawn)
    times = np.bincount(np.concatenate(drawn), minlength=1000)
    assert times.min() > 0  # each coordinate is missed by all 40 in one case of 100,000
    assert abs(times.var() / (40 * 0.25 * 0.75) - 1) < 0.2


@pytest.mark.parametrize("secure", ["auto", "true"])
def test_rounded_numbers_and_what_a_site_keeps_are_what_training_changed(secure):
    hosts = [Host(n, t, STEPS, 5) for n, t in tables().items()]
    plan = replace(PLAN, compression="int8")
    theta = trained(plan, rounds=1, hosts=hosts, secure=secure)
    n, moved, worst = sum(ROWS.values()), np.zeros(P), 0.0
    for host in hosts:
        change = visit(np.zeros(P), tables()[host.name])
        kept = host.state["Moments.residual"]
        moved += ROWS[host.name] / n * (change - kept)
        worst += ROWS[host.name] / n * np.abs(change).max()
        assert np.abs(kept).max() > 0
    assert_allclose(theta, moved, atol=1e-7)
    for host in hosts:  # an error of at most one unit of the common scale
        kept = ROWS[host.name] / n * np.abs(host.state["Moments.residual"])
        assert kept.max() <= worst / 127 * (1 + 1e-6)


def test_rounding_is_right_in_the_mean():
    """One round by 100 seeds, against the change without compression, within 4 standard errors."""
    found = [
        trained(
            replace(PLAN, compression="int8"), rounds=1,
            hosts=[Host(n, t, STEPS, seed) for n, t in tables().items()],
        )
        for seed in range(100)
    ]  # fmt: skip
    off = np.mean(found, axis=0) - trained(PLAN, rounds=1)
    assert (np.abs(off) < 4 * np.std(found, axis=0) / 10 + 1e-8).all()


@pytest.mark.parametrize("name", ["random_k", "top_k", "int8"])
def test_nothing_is_lost_for_good_training_ends_where_it_does_without_compression(name):
    """With a rate that falls to 0: with a constant one the residuals keep θ moving about."""
    falls = {"rounds": 80, "lr_rule": "cosine"}
    plan = replace(PLAN, compression=name, share=0.25, epochs=1)
    assert_allclose(trained(plan, **falls), trained(replace(PLAN, epochs=1), **falls), atol=0.01)


def test_an_optimiser_that_goes_on_and_compressed_updates_go_together():
    plan = replace(PLAN, optimiser="momentum", optimiser_state="kept", epochs=1)
    whole = trained(replace(plan, compression="random_k", share=1.0))
    assert_allclose(whole, trained(plan), atol=1e-7)
    hosts = [Host(n, t, STEPS, 5) for n, t in tables().items()]
    trained(replace(plan, compression="int8"), hosts=hosts)
    assert all(np.abs(host.state["Moments.moments"]).max() > 0 for host in hosts)


def test_a_site_that_was_away_between_the_two_calls_of_a_round_sends_it_later():
    hosts = [Host(n, t, STEPS, 5) for n, t in tables().items()]
    away = {"quorum": 0.5, "absent": lambda call, site: site == "c" and call == 1}
    plan = replace(PLAN, compression="int8")
    once = trained(plan, rounds=1, hosts=hosts, **away)
    change = {name: visit(np.zeros(P), table) for name, table in tables().items()}
    assert_allclose(hosts[2].state["Moments.residual"], change["c"], atol=1e-7)
    mean = (40 * change["a"] + 70 * change["b"]) / 110
    assert_allclose(once, mean, atol=2 * np.abs(mean).max() / 127)


def test_a_site_that_missed_the_training_joins_no_sum_of_rounded_updates():
    """Its zeros left the sum to fewer other sites: to one, if the coordinator chose them so."""
    hosts = [Host(n, t, STEPS, 5) for n, t in tables().items()]
    fed = local(hosts, quorum=0.3)
    plan = replace(PLAN, compression="int8")
    schedule = Schedule(rounds=1, learning_rate=RATE, lr_rule="constant")
    server = Server.at(np.zeros(P), rate=1, beta1=0, beta2=0, tau=1)
    averaging(fed, plan, schedule, fedavg, server, lambda theta: 0.0)
    again = {"plan": plan.text, "scales": np.ones(1), "total": 133.0, "bits": 10}
    step = next(s for s in compression.STEPS if s.name == "send_rounded")
    with pytest.raises(SiteUnavailable, match="missed the training of this round"):
        fed.sum(step, **again)


@given(sites=st.integers(1, 300), seed=st.integers(0, 999), size=st.integers(1, 40))
def test_sums_of_packed_numbers_are_the_sums_of_the_numbers(sites, seed, size):
    rng = np.random.default_rng(seed)
    bits = bits_of(sites)
    q = rng.choice([0, 254, 127, rng.integers(255)], size=(sites, size))
    words = [pack(one, size, bits) for one in q]
    assert max(int(w.max()) for w in words) <= (2**63 - 1) // sites  # `ring` takes no more
    assert_array_equal(unpack(np.sum(words, axis=0), size, bits), q.sum(axis=0))


@pytest.mark.parametrize(
    ("name", "numbers"), [("random_k", 8 * 100), ("int8", 8 * (4 + 200)), ("top_k", 16 * 100)]
)
def test_the_bytes_of_a_round_are_those_of_the_header(name, numbers):
    """1,000 parameters: 8,000 bytes; int8 packs five numbers in a word for ten sites."""
    rng = np.random.default_rng(0)
    data = {f"s{k}": LabelledTable(rng.normal(size=(20, 1000)), np.zeros(20)) for k in range(10)}
    sent: list[int] = []

    class Weighing(Host):
        def answer(self, *args: Any, **kwargs: Any) -> Any:
            answer = super().answer(*args, **kwargs)
            sent.extend(a.nbytes for a in answer.reply.values() if a.shape)
            return answer

    plan = replace(
        PLAN, network=Mlp(inputs=1000, hidden=(), intercept=False).spec, compression=name, share=0.1
    )
    schedule = Schedule(rounds=1, learning_rate=RATE, lr_rule="constant")
    server = Server.at(np.ones(1000), rate=1, beta1=0, beta2=0, tau=1)
    fed = local([Weighing(n, t, STEPS, 5) for n, t in data.items()])
    averaging(fed, plan, schedule, fedavg, server, lambda theta: 0.0)
    assert sum(sent) == 10 * numbers


@pytest.mark.parametrize(("field", "value"), [("places", 2**40), ("places", 0), ("values", np.nan)])
def test_places_beyond_the_model_twice_or_values_that_are_no_numbers_are_refused(field, value):
    reply = {"values": np.ones(3), "places": np.array([0, 4, 7]), "rows": np.array(3.0)}
    reply[field][1] = value
    found = compression.Largest(**reply).fault({"size": 12})
    assert bool(found) == (field == "places")
