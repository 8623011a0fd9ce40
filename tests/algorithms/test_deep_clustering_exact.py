"""Phase 2 over sites against a plain loop over all rows, written from the papers' equations."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch.nn import functional

from algorithms.deep_clustering_cases import config_of, federation, fitted, groups, split, task_of
from fedcohort.algorithms.deep_clustering.program import sharpen
from fedcohort.models.network import initial

P, H, D, K = 6, 5, 2, 3
ROUNDS = 5
X = groups(40, P, K, seed=4)[0] * 0.9 + 0.05
EXACT = {
    "n_clusters": K, "architecture": (H, D), "dtype": "float64", "optimiser": "sgd",
    "cluster_learning_rate": 0.5, "cluster_batch_size": 0, "tol": 0.0, "activation": "sigmoid",
}  # fmt: skip


def start(config, seed=2):
    rng = np.random.default_rng(seed)
    theta = initial(config.plan(P).network, seed)
    return theta + 0.5 * rng.standard_normal(len(theta)), rng.standard_normal((K, D))


def plainly(x, theta, mu, *, make, epochs, alpha, gamma, rounds=ROUNDS):
    """Yield θ and μ after each round of deep clustering of one table, by torch alone.

    Xie et al. (2016), eqs. 1 to 3, the Kullback–Leibler divergence averaged over rows; Guo et al.
    (2017), eq. 7, with their weights swapped to 1 and γ. The target is made once a round, as is the
    optimiser, which is what a visit to a site does.
    """
    sizes = [(H, P), (H,), (D, H), (D,), (H,), (P,)]
    ends = np.cumsum([int(np.prod(s)) for s in sizes])
    parts = np.split(theta, ends[:-1])
    w1, b1, w2, b2, c2, c1, m = (
        torch.tensor(a.reshape(s), requires_grad=True)
        for a, s in zip([*parts, mu.ravel()], [*sizes, (K, D)], strict=True)
    )
    every, rows = [w1, b1, w2, b2, c2, c1, m], torch.tensor(x)

    def forward():
        z = functional.linear(torch.sigmoid(functional.linear(rows, w1, b1)), w2, b2)
        kernel = (1 + torch.cdist(z, m) ** 2 / alpha) ** (-(alpha + 1) / 2)
        return z, kernel / kernel.sum(1, keepdim=True)

    for _ in range(rounds):
        with torch.no_grad():
            q = forward()[1]
            weight = q**2 / q.sum(0)
            p = weight / weight.sum(1, keepdim=True)
        optimiser = make(every)
        for _ in range(epochs):
            optimiser.zero_grad()
            z, q = forward()
            loss = (p * (p / q).log()).sum() / len(rows)
            if gamma:
                back = torch.sigmoid(functional.linear(z, w2.t(), c2))
                y = torch.sigmoid(functional.linear(back, w1.t(), c1))
                loss = loss + gamma * ((y - rows) ** 2).mean()
            loss.backward()
            for a in every:
                a.grad = torch.zeros_like(a) if a.grad is None else a.grad
            optimiser.step()
        found = [a.detach().numpy().ravel() for a in every]
        yield np.concatenate(found[:-1]), found[-1].reshape(K, D)


def over_sites(parts, config, theta, mu):
    """Yield θ and μ after each round over sites."""
    for rounds in range(1, ROUNDS + 1):
        short = config_of(**{**vars(config), "cluster_rounds": rounds})
        yield sharpen(federation(parts), short, task_of(X), theta, mu)[:2]


@given(
    sites=st.integers(2, 5),
    seed=st.integers(0, 2**16),
    alpha=st.sampled_from([1.0, 2.0]),
    gamma=st.sampled_from([0.0, 0.3]),
)
@settings(max_examples=8, deadline=None)
def test_rounds_of_one_gradient_step_over_sites_are_those_of_the_pooled_rows(
    sites, seed, alpha, gamma
):
    at = np.random.default_rng(seed).integers(sites, size=len(X))
    config = config_of(**EXACT, alpha=alpha, gamma=gamma)
    theta, mu = start(config)
    rounds = plainly(
        X, theta, mu, make=lambda a: torch.optim.SGD(a, lr=0.5), epochs=1, alpha=alpha, gamma=gamma
    )
    for ours, expected in zip(over_sites(split(X, at), config, theta, mu), rounds, strict=True):
        for a, b in zip(ours, expected, strict=True):
            assert_allclose(a, b, rtol=0, atol=1e-11)
    assert np.abs(ours[0] - theta).max() > 1e-3
    assert np.abs(ours[1] - mu).max() > 1e-3


OPTIMISERS = {
    "sgd": lambda a: torch.optim.SGD(a, lr=0.02),
    "momentum": lambda a: torch.optim.SGD(a, lr=0.02, momentum=0.9),
    "adam": lambda a: torch.optim.Adam(a, lr=0.02),
}


@pytest.mark.parametrize("optimiser", sorted(OPTIMISERS))
@pytest.mark.parametrize("target", ["global", "site"])
@pytest.mark.parametrize("named", ["optimiser", "cluster_optimiser"])
def test_rounds_at_one_site_are_those_of_its_table_with_any_optimiser(optimiser, target, named):
    config = config_of(
        **EXACT | {named: optimiser, "cluster_learning_rate": 0.02},
        gamma=0.2, internal_epochs=4, target=target,
    )  # fmt: skip
    theta, mu = start(config)
    rounds = plainly(X, theta, mu, make=OPTIMISERS[optimiser], epochs=4, alpha=1.0, gamma=0.2)
    for ours, expected in zip(over_sites({"a": X}, config, theta, mu), rounds, strict=True):
        for a, b in zip(ours, expected, strict=True):
            assert_allclose(a, b, rtol=0, atol=1e-9)


def test_a_target_of_each_site_alone_is_another_where_sites_differ():
    theta, mu = start(config_of(**EXACT))
    order = np.argsort(X[:, 0], kind="stable")
    unlike = split(X[order], np.arange(len(X)) * 2 // len(X))
    whole = list(over_sites({"a": X}, config_of(**EXACT), theta, mu))[-1]
    parts = {
        t: list(over_sites(unlike, config_of(**EXACT, target=t), theta, mu))[-1]
        for t in ("global", "site")
    }
    assert_allclose(parts["global"][1], whole[1], rtol=0, atol=1e-11)
    assert np.abs(parts["site"][1] - whole[1]).max() > 1e-4


@pytest.mark.parametrize("sites", [2, 5])
def test_a_whole_fit_by_single_gradient_steps_is_that_of_the_pooled_rows(sites):
    x, _ = groups(120)
    given = {
        "optimiser": "sgd", "batch_size": 0, "cluster_batch_size": 0, "learning_rate": 1.0,
        "cluster_learning_rate": 0.1, "dtype": "float64", "min_cell": 1, "beta": 0.5,
    }  # fmt: skip
    pooled = fitted({"all": x}, **given)
    over = fitted(split(x, np.random.default_rng(sites).integers(sites, size=len(x))), **given)
    assert_allclose(over.theta, pooled.theta, rtol=0, atol=1e-8)
    assert_allclose(over.means, pooled.means, rtol=0, atol=1e-8)
    assert over.counts.tolist() == pooled.counts.tolist()
