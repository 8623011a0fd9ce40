"""Pairs of layers, and the autoencoder that they are stacked to."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from fedcohort.models.autoencoder import Autoencoder
from fedcohort.models.latent import decoded, encoded, reconstructed
from fedcohort.models.network import initial, network
from fedcohort.models.objectives import Reconstruction
from fedcohort.models.reconstruction import Noise
from fedcohort.models.stacking import lower, objectives, pairs, stack


def whole(tied, unit_norm=False):
    return Autoencoder(inputs=7, widths=(6, 5, 3), tied=tied, output="sigmoid", unit_norm=unit_norm)


def drawn(a):
    rng = np.random.default_rng(2)
    return [initial(p.spec, k) + 0.2 * rng.normal(size=p.size) for k, p in enumerate(pairs(a))]


def loaded(spec, theta):
    net = network(spec)
    net.load(theta)
    return net


@pytest.mark.parametrize("unit_norm", [False, True])
@pytest.mark.parametrize("tied", [True, False])
def test_the_stack_does_what_its_pairs_do_one_after_the_other(tied, unit_norm):
    a = whole(tied, unit_norm)
    thetas, x = drawn(a), np.random.default_rng(0).random((9, 7))
    h, codes = x, []
    for pair, theta in zip(pairs(a), thetas, strict=True):
        h = encoded(loaded(pair.spec, theta), h)
        codes.append(h)
    y = h
    for pair, theta in reversed(list(zip(pairs(a), thetas, strict=True))):
        y = decoded(loaded(pair.spec, theta), y)
    net = loaded(a.spec, stack(a, thetas))
    assert_allclose(encoded(net, x), h, rtol=1e-12, atol=1e-14)
    assert_allclose(reconstructed(net, x), y, rtol=1e-12, atol=1e-14)
    for layers in (1, 2):
        under = lower(a, layers)
        below = loaded(under.spec, stack(under, thetas[:layers]))
        assert_allclose(encoded(below, x), codes[layers - 1], rtol=1e-12, atol=1e-14)


def test_only_the_last_code_is_unbent_and_only_the_first_pair_rebuilds_data():
    found = [
        (p.inputs, p.widths, p.bottleneck, p.output, p.unit_norm) for p in pairs(whole(False, True))
    ]
    assert found == [
        (7, (6,), "relu", "sigmoid", False),
        (6, (5,), "relu", "relu", False),
        (5, (3,), "linear", "relu", True),
    ]


def test_a_pair_silences_its_code_where_that_is_a_hidden_layer():
    a = Autoencoder(inputs=7, widths=(6, 3), dropout=0.4)
    hidden, last = (network(p.spec) for p in pairs(a))
    assert hidden.draws
    assert not last.draws
    hidden.load(np.abs(initial(pairs(a)[0].spec, 0)))
    x = torch.ones(3, 7).double()
    values = [hidden.descend(lambda m: m(x).sum(), seed) for seed in (1, 1, 2)]
    assert values[0] == values[1] != values[2]


def test_later_pairs_are_trained_by_mse_with_corruption():
    first = Reconstruction(beta=0.4, noise=Noise(kind="flip", rate=0.2, frequencies=(0.5,) * 7))
    goals = objectives(whole(False), first)
    later = Reconstruction(noise=Noise(kind="corruption", rate=0.2))
    assert goals == (first, later, later)
    assert objectives(whole(False), Reconstruction(beta=0.1))[1] == Reconstruction()
