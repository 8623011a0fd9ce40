"""Layer-wise pretraining over sites, on scikit-learn's digits."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits

from fedcohort.algorithms.deep_clustering import layerwise
from fedcohort.data.tables import FeatureTable
from fedcohort.models.autoencoder import Autoencoder
from fedcohort.models.latent import encoded, reconstructed
from fedcohort.models.network import initial, network
from fedcohort.models.objectives import Reconstruction
from fedcohort.models.stacking import lower, pairs
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local
from fedcohort.training.networks import strategies
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.schedule import Schedule
from fedcohort.training.networks.server import Server, fedavg
from fedcohort.training.robust import Aggregation

DIGITS = load_digits().data[:150] / 16.0
NET = Autoencoder(inputs=64, widths=(20, 12, 4), tied=False, output="linear")
PLAN = Plan(network="", loss="", epochs=1, optimiser="sgd")
SCHEDULE = Schedule(rounds=4, learning_rate=0.3, lr_rule="constant")


def server(theta):
    return Server.at(theta, rate=1.0, beta1=0.9, beta2=0.99, tau=1e-3)


def pretrained(parts, plan=PLAN, schedule=SCHEDULE, net=NET, **more):
    steps = (*strategies.STEPS, *layerwise.STEPS)
    fed = local([Host(f"site {k}", FeatureTable(x), steps) for k, x in enumerate(parts)])
    theta = layerwise.pretrain(
        fed, net, Reconstruction(), plan, schedule, fedavg, server, 5, **more
    )
    return theta, fed.history


def by_autograd(x, rate, rounds):
    """Pair by pair on the pooled rows, with modules, autograd and torch.optim."""
    h, forth, back = torch.from_numpy(x), [], []
    for k, (pair, last) in enumerate(zip(pairs(NET), (False, False, True), strict=True)):
        n, m = pair.inputs, pair.widths[0]
        cuts = np.cumsum([n * m, m, n * m])
        pieces = [
            torch.from_numpy(p).requires_grad_() for p in np.split(initial(pair.spec, 5 + k), cuts)
        ]
        w, b, v, c = pieces
        optimiser = torch.optim.SGD(pieces, lr=rate)

        def code(h, w=w, b=b, n=n, m=m, last=last):
            code = h @ w.view(m, n).T + b
            return code if last else torch.relu(code)

        for _ in range(rounds):
            y = code(h) @ v.view(n, m).T + c
            loss = (((torch.relu(y) if k else y) - h) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        h = code(h).detach()
        forth += [w, b]
        back = [v, c, *back]
    return torch.cat([p.detach().ravel() for p in (*forth, *back)]).numpy()


@pytest.mark.parametrize("cuts", [[], [60], [1, 40, 149]], ids=["one site", "two", "four"])
def test_one_step_a_round_is_pooled_layer_wise_training_however_rows_are_split(cuts):
    theta, history = pretrained(np.split(DIGITS, cuts))
    assert_allclose(theta, by_autograd(DIGITS, 0.3, 4), rtol=0, atol=1e-10)
    assert len(history) == 3 * 4


def test_a_robust_centre_sees_each_sites_pair():
    parts = np.split(DIGITS, 3)
    bound = Aggregation(name="norm_bound", norm_bound=1e9)
    assert_allclose(pretrained(parts, centre=bound)[0], pretrained(parts)[0], rtol=0, atol=1e-12)


def test_pretraining_rebuilds_digits_and_is_reproducible():
    """Of ReLUs as few as `NET` has, too many are dead from the start for that."""
    wide = replace(NET, widths=(100, 50, 10))
    plan = replace(PLAN, optimiser="adam", batch_size=25, epochs=2, dtype="float32")
    schedule = Schedule(rounds=20, learning_rate=0.005, lr_rule="constant")
    parts = np.split(DIGITS, 2)
    theta, _ = pretrained(parts, plan, schedule, wide)
    assert np.array_equal(theta, pretrained(parts, plan, schedule, wide)[0])
    net = network(wide.spec)
    net.load(theta)
    error = ((reconstructed(net, DIGITS) - DIGITS) ** 2).mean()
    assert error < 0.5 * DIGITS.var(axis=0).mean()  # the columns' means alone leave all of it


def test_codes_are_those_of_the_weights_given():
    table = FeatureTable(DIGITS)
    under = lower(NET, 1)
    for seed in (1, 2):
        weights = initial(under.spec, seed)
        site = SimpleNamespace(data=table)
        seen = layerwise._seen(site, PLAN, under.spec, weights)
        net = network(under.spec)
        net.load(weights)
        assert_allclose(seen.numpy(), encoded(net, DIGITS), rtol=0)
