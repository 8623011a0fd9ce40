"""Autoencoders against functional models written anew."""

import dataclasses
import json
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from fedcohort.models.autoencoder import ARCHITECTURES, Autoencoder
from fedcohort.models.dec import Dec
from fedcohort.models.latent import decoded, encoded, reconstructed
from fedcohort.models.network import initial, network
from fedcohort.models.objectives import Reconstruction
from fedcohort.models.reconstruction import Noise

BENT = {"relu": torch.relu, "sigmoid": torch.sigmoid, "linear": lambda x: x}


def some(n=9, p=6, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).random((n, p)))


def by_hand(theta, x, a):
    """z and y by eqs. (1) and (2); θ holds the encoder's weights and biases, then the decoder's."""
    at = 0

    def next_(*shape):
        nonlocal at
        taken = theta[at : at + int(np.prod(shape))].reshape(shape)
        at += taken.numel()
        return taken

    layers = [(next_(m, n), next_(m)) for n, m in pairwise([a.inputs, *a.widths])]
    h = x
    for k, (weight, bias) in enumerate(layers):
        h = h @ weight.T + bias
        h = BENT[a.activation](h) if k < len(layers) - 1 else h
    if a.unit_norm:
        h = h / (h**2).sum(1, keepdim=True).sqrt()
    z = h
    for k, (weight, _) in enumerate(reversed(layers)):
        m, n = weight.shape
        back = weight if a.tied else next_(n, m).T
        h = h @ back + next_(n)
        h = BENT[a.activation if k < len(layers) - 1 else a.output](h)
    assert at == len(theta)
    return z, h


CASES = [
    {"tied": True, "activation": "sigmoid", "output": "linear"},
    {"tied": True, "activation": "relu", "output": "sigmoid", "unit_norm": True},
    {"tied": False, "activation": "sigmoid", "output": "sigmoid"},
    {"tied": False, "activation": "relu", "output": "relu", "unit_norm": True},
]
NAMES = ["tied", "tied on the unit sphere", "untied", "untied on the unit sphere"]


def drawn(a, seed=1):
    """A vector with biases other than 0."""
    return initial(a.spec, seed) + 0.1 * np.random.default_rng(seed).normal(size=a.size)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_outputs_and_gradient_are_those_of_a_model_written_by_hand(case):
    a = Autoencoder(inputs=6, widths=(5, 4, 3), **case)
    theta, x = drawn(a), some()
    net = network(a.spec)
    net.load(theta)
    hand = torch.from_numpy(theta).requires_grad_()
    z, y = by_hand(hand, x, a)
    assert_allclose(encoded(net, x), z.detach().numpy(), rtol=1e-12, atol=1e-14)
    assert_allclose(reconstructed(net, x.numpy()), y.detach().numpy(), rtol=1e-12, atol=1e-14)
    assert_allclose(decoded(net, z.detach()), y.detach().numpy(), rtol=1e-12, atol=1e-14)
    loss = ((y - x) ** 2).mean()
    loss.backward()
    value = net.descend(lambda module: ((module(x) - x) ** 2).mean())
    assert value == pytest.approx(loss.item(), rel=1e-12)
    assert hand.grad is not None
    assert_allclose(net.gradient(), hand.grad.numpy(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_gradient_is_the_slope_of_the_value(case):
    a = Autoencoder(inputs=6, widths=(5, 3), **case)
    theta, x = drawn(a, 4), some(seed=2)
    net = network(a.spec)

    def value(at):
        net.load(at)
        return net.descend(lambda module: ((module(x) - x) ** 2).mean())

    slopes = np.array([value(theta + h) - value(theta - h) for h in 1e-6 * np.eye(a.size)]) / 2e-6
    value(theta)
    assert_allclose(net.gradient(), slopes, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_gradient_layer_by_layer_has_autograds_bits(tied, dtype):
    """The same products in the same order; a code of unit norm keeps autograd."""
    x = some(n=7).to(getattr(torch, dtype))
    noise = Noise(kind="corruption", rate=0.2)
    for widths, (curve, code), dropout, beta in product(
        [(4,), (5, 3), (40, 30, 4)], [("relu", "linear"), ("sigmoid", "relu")], (0, 0.3), (0, 0.4)
    ):
        a = Autoencoder(
            inputs=6, widths=widths, tied=tied, dropout=dropout, activation=curve,
            output="sigmoid" if beta else "linear", bottleneck=code,
        )  # fmt: skip
        net, loss = network(a.spec, dtype), Reconstruction(beta=beta, noise=noise)
        net.load(drawn(a))
        value, mine = loss.pull(net, x, 7), net.grad.clone()
        assert net.descend(lambda m, loss=loss: loss(m, x, 7), 7) == value
        assert torch.equal(mine, net.grad)
    sphere = network(dataclasses.replace(a, unit_norm=True).spec, dtype)
    assert net.layered
    assert not sphere.layered


def test_the_tied_decoder_has_no_weights_of_its_own():
    tied, untied = (Autoencoder(inputs=54, tied=t, widths=(500, 500, 2000, 10)) for t in (1, 0))
    weights = 54 * 500 + 500 * 500 + 500 * 2000 + 2000 * 10
    biases = 500 + 500 + 2000 + 10
    assert len(initial(tied.spec, 0)) == tied.size == weights + biases + (54 + 500 + 500 + 2000)
    assert untied.size == tied.size + weights


def test_the_first_vector_is_a_function_of_the_seed_whatever_the_network_held_before():
    for tied in (True, False):
        spec = Dec(inputs=6, widths=(5, 3), tied=tied, clusters=4).spec
        first = initial(spec, 3)
        network(spec).load(np.full(len(first), 7.0))
        assert np.array_equal(initial(spec, 3), first)
        assert not np.array_equal(initial(spec, 4), first)
        assert not first[30:35].any()  # biases of the first layer
        assert not first[-12:].any()  # centroids, set by whoever finds them
        assert np.abs(first[:30]).max() <= np.sqrt(6 / 11)


def test_dropout_silences_hidden_units_and_neither_inputs_nor_the_code():
    a = Autoencoder(inputs=6, widths=(400, 3), dropout=0.3, output="linear")
    net, x, seen = network(a.spec), some(1), []
    net.load(drawn(a))

    def watch(module):
        seen.append(module.encode(x).detach().numpy())
        return module(x).sum()

    values = [net.descend(watch, seed=s) for s in (5, 5, 6)]
    assert values[0] == values[1] != values[2]
    assert np.array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], encoded(net, x))
    assert all((z != 0).all() for z in seen)  # of 3 entries in 3 draws, 0.7⁹ = 4 % else
    plain = network(Autoencoder(inputs=6, widths=(3,), dropout=0.3).spec)
    assert not plain.draws


def test_dropout_keeps_the_expected_value_of_what_a_layer_sees():
    """Of a network without a bend: the mean over draws is what it gives with nothing silent."""
    a = Autoencoder(inputs=6, widths=(50, 3), dropout=0.3, activation="linear", output="linear")
    net, x = network(a.spec), some(2)
    net.load(drawn(a))
    draws = []
    for seed in range(4000):
        net.descend(lambda m: draws.append(m(x).detach().numpy()) or m(x).sum(), seed=2 * seed)
    error = np.std(draws, axis=0) / np.sqrt(len(draws))
    assert (np.abs(np.mean(draws, axis=0) - reconstructed(net, x)) < 5 * error).all()


def test_architectures_have_the_published_widths():
    found = {name: widths(54, 7) for name, widths in ARCHITECTURES.items()}
    assert found == {  # thesis 003, section 4.1.1; D6.2, section 7.4.1
        "dec": (500, 500, 2000, 10),
        "curves": (400, 200, 100, 50, 25, 6),
        "google": (1000, 500, 250, 10),
        "small": (26, 26, 100, 7),
    }


def test_the_spec_builds_the_same_network_again():
    dec = Dec.of(Autoencoder(inputs=6, widths=(5, 3), unit_norm=True), clusters=4, alpha=3.0)
    entries = json.loads(dec.spec)
    assert entries.pop("kind") == "dec"
    assert Dec(**entries) == dec
    assert [n for n, _ in dec.build().named_parameters()][-1].endswith("mu")


def test_a_long_table_is_encoded_in_blocks_as_at_once(monkeypatch):
    a = Autoencoder(inputs=6, widths=(5, 3))
    net, x = network(a.spec), some(23)
    net.load(drawn(a))
    whole = encoded(net, x)
    monkeypatch.setattr("fedcohort.models.latent.BLOCK", 5)
    assert_allclose(encoded(net, x), whole, rtol=1e-12)
    assert encoded(net, x[:0]).shape == (0, 3)
