"""The decoder with a mixture of representations, against torch's distributions and closed forms."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import distributions as laws

from fedcohort.models.dgd import Dgd
from fedcohort.models.network import network
from fedcohort.models.objectives import Joint
from fedcohort.models.representations import Search, ascend, drawn, drawn_given, represented

P, Q, K = 6, 2, 3


def module_of(seed=0, scale=0.5, **settings):
    """Return a network with random parameters."""
    net = network(Dgd(**{"inputs": P, "latent": Q, "components": K, **settings}).spec)
    net.load(scale * np.random.default_rng(seed).normal(size=net.theta.shape))
    return net


def mixture_of(net):
    """Return torch's mixture with the module's weights, means and standard deviations."""
    means, logs = net.module.mixture()
    parts = laws.Independent(laws.Normal(means, (-0.5 * logs).exp()), 1)
    return laws.MixtureSameFamily(laws.Categorical(logits=net.module.log_weights), parts)


def test_the_density_of_representations_is_that_of_a_gaussian_mixture():
    net = module_of()
    z = torch.from_numpy(np.random.default_rng(1).normal(size=(5, 7, Q)))
    assert_allclose(
        net.module.log_prior(z).detach(), mixture_of(net).log_prob(z).detach(), rtol=1e-10
    )
    shares = net.module.log_components(z).softmax(dim=-1)
    assert_allclose(shares.sum(dim=-1).detach(), 1.0, rtol=1e-12)


@given(st.integers(0, 2**16), st.integers(1, 6), st.integers(1, 4), st.floats(0.1, 5.0))
def test_the_mixture_has_mean_0_and_the_radius_as_root_mean_square(seed, k, q, radius):
    """As torch's mixture computes both."""
    net = module_of(seed, 0.2, latent=q, components=k, radius=radius)
    there = mixture_of(net)
    assert_allclose(there.mean.detach(), np.zeros(q), atol=1e-9 * radius)
    assert_allclose(there.variance.detach(), np.full(q, radius**2 / q), rtol=1e-9)


def test_the_prior_of_the_mixture_is_softball_dirichlet_and_normal():
    """Up to constants: the difference of two mixtures' priors has none."""
    settings = {"alpha": 1.7, "radius": 0.8, "sharpness": 3.0, "spread": 0.2, "spread_sd": 0.6}

    def expected(net):
        means, logs = net.module.mixture()
        far = means.norm(dim=1) / 0.8
        ball = -torch.log(1 + torch.exp(3.0 * (far - 1))).sum()
        shares = laws.Dirichlet(torch.full((K,), 1.7, dtype=torch.float64))
        at, sd = torch.tensor([-2 * math.log(0.2), 0.6], dtype=torch.float64)
        widths = laws.Normal(at, sd).log_prob(logs).sum()
        return ball + shares.log_prob(net.module.log_weights.exp()) + widths

    found, wanted = [], []
    for seed in (0, 1):
        net = module_of(seed, 0.1, **settings)
        found.append(net.module.log_hyperprior().item())
        wanted.append(expected(net).item())
    assert_allclose(found[1] - found[0], wanted[1] - wanted[0], rtol=1e-9)


def linear(seed=2):
    """Return a linear decoder with one component, and its W (p, q), b and Ψ (p,)."""
    net = module_of(seed, 0.7, components=1, radius=1.5)
    w, b = (p.detach().numpy() for p in net.module._decoder.parameters())
    psi = net.module.entries._kinds["normal"].variance().detach().numpy()
    return net.module, w, b, psi


def posterior(x, w, b, psi, prior):
    """Return mean (q,) and covariance of z given the known entries of x: factor analysis."""
    at = ~np.isnan(x)
    precision = np.eye(Q) / prior + w[at].T @ (w[at] / psi[at, None])
    covariance = np.linalg.inv(precision)
    return covariance @ w[at].T @ ((x - b)[at] / psi[at]), covariance


def test_a_linear_decoder_gives_a_row_the_mean_of_factor_analysis():
    """Of known entries alone; Adam's last steps are 1e-5 of the first, so 1e-3 holds."""
    module, w, b, psi = linear()
    x = np.random.default_rng(3).normal(size=(8, P))
    x[np.random.default_rng(4).random(x.shape) < 0.3] = np.nan
    found, _ = represented(module, torch.from_numpy(x), Search(1, 200))
    expected = [posterior(row, w, b, psi, 1.5**2 / Q)[0] for row in x]
    assert_allclose(found.detach(), expected, atol=1e-3)


def test_draws_given_a_row_have_the_posterior_of_factor_analysis():
    """2000 draws: 5 standard errors of a mean, and of a variance."""
    module, w, b, psi = linear()
    x = np.random.default_rng(3).normal(size=P)
    x[0] = np.nan
    mean, covariance = posterior(x, w, b, psi, 1.5**2 / Q)
    rows = torch.from_numpy(np.tile(x, (2000, 1)))
    z = torch.from_numpy(np.tile(mean, (2000, 1)))
    found = drawn_given(module, rows, z, 30, seed=1).detach().numpy()
    assert_allclose(found.mean(axis=0), mean, atol=5 * np.sqrt(covariance.max() / 2000))
    assert_allclose(np.cov(found.T), covariance, atol=5 * covariance.max() * math.sqrt(2 / 2000))


def test_the_best_of_the_starts_is_taken():
    """With a start at every component the value is nowhere less than with one."""
    net = module_of(5, 1.0, hidden=(8,), components=6)
    x = torch.from_numpy(np.random.default_rng(6).normal(size=(40, P)))
    one, all_of_them = (represented(net.module, x, Search(n, 50))[1].detach() for n in (1, 6))
    assert (all_of_them >= one - 1e-12).all()
    assert (all_of_them > one + 1e-3).any()


def test_one_step_of_adam_is_that_of_torch():
    rng = np.random.default_rng(0)
    z = torch.from_numpy(rng.normal(size=(4, Q)))
    theirs = torch.nn.Parameter(z.clone())
    adam = torch.optim.Adam([theirs], lr=0.02, betas=(0.5, 0.7), maximize=True)
    first, second, taken = torch.zeros_like(z), torch.zeros_like(z), torch.zeros_like(z[:, :1])
    for _ in range(3):
        slope = torch.from_numpy(rng.normal(size=(4, Q)))
        theirs.grad = slope.clone()
        adam.step()
        taken += 1
        ascend(z, slope, first, second, taken, 0.02)
    assert_allclose(z, theirs.detach(), rtol=1e-9)


def test_the_slopes_of_the_loss_are_those_of_its_value():
    net, joint = module_of(7, hidden=(4,)), Joint(weight=0.3, decay=0.01)
    rng = np.random.default_rng(8)
    x, z = (torch.from_numpy(rng.normal(size=(5, d))) for d in (P, Q))
    theta = net.read()
    _, slope = net.descend_with(lambda m: joint.at(m, x, z), z.requires_grad_())
    grad, step = net.gradient(), 1e-6

    def value(theta, z):
        net.load(theta)
        return joint.at(net.module, x, z).item()

    weights = slice(
        2 * K * Q, 2 * K * Q + K
    )  # their slope leaves the scale of the mixture as it is
    way = rng.normal(size=theta.shape)
    way[weights] = 0
    up, down = (value(theta + s * step * way, z.detach()) for s in (1, -1))
    assert_allclose((up - down) / (2 * step), grad @ way, rtol=1e-6)
    way_z = torch.from_numpy(rng.normal(size=z.shape))
    up, down = (value(theta, z.detach() + s * step * way_z) for s in (1, -1))
    assert_allclose((up - down) / (2 * step), float((slope * way_z).sum()), rtol=1e-6)


def test_a_rescaled_decoder_gives_of_scaled_points_what_it_gave():
    net = module_of(9, hidden=(4,))
    z = torch.from_numpy(np.random.default_rng(0).normal(size=(5, Q)))
    shift, scale = torch.tensor([0.3, -1.0]).double(), torch.tensor([2.0, 0.1]).double()
    before = net.module.decode(z).detach()
    net.module.rescale(shift, scale)
    assert_allclose(net.module.decode((z - shift) / scale).detach(), before, atol=1e-12)


def test_draws_of_representations_have_the_moments_of_the_mixture():
    """20,000 draws: 5 standard errors."""
    net = module_of(scale=0.1)
    z = drawn(net.module, 20_000, 3).detach().numpy()
    assert_allclose(z.mean(axis=0), 0.0, atol=5 * math.sqrt(0.5 / 20_000))
    assert_allclose(z.var(axis=0), 0.5, atol=5 * 0.5 * math.sqrt(3 / 20_000))


@pytest.mark.parametrize("hidden", [(), (5, 4)])
def test_the_length_of_theta_is_known_without_a_network(hidden):
    net = Dgd(inputs=P, latent=Q, hidden=hidden, components=K)
    assert net.size == len(network(net.spec).theta)
