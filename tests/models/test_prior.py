"""Priors of the latent space against SciPy, closed forms and integrals."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm

from fedcohort.models.network import initial, network
from fedcohort.models.objectives import Elbo
from fedcohort.models.prior import (
    drawn_from,
    experts,
    gaussians,
    matched,
    product,
    standard,
)
from fedcohort.models.vae import Vae, with_pseudo
from models.vae_cases import elbos, loaded, of, some_rows, some_theta

Q = 2


def mixture(components, seed):
    """Return a mixture (C, 1 + 2q)."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(components))
    return np.column_stack(
        [weights, rng.normal(size=(components, Q)), rng.normal(size=(components, Q))]
    )


def directly(prior, z):
    """Return ln p(z) of points (n, q) by SciPy."""
    means, logs = np.split(prior[:, 1:], 2, axis=1)
    each = norm.logpdf(z[:, None], means, np.exp(logs / 2)).sum(axis=2)
    return logsumexp(each, axis=1, b=prior[:, 0])


def vamp_elbo(net, x, prior, seed):
    return of(net, x, lambda m, rows: m.elbo(rows, 1.0, seed, 0.0, gaussians(prior, rows)))


@given(components=st.integers(1, 5), seed=st.integers(0, 2**16))
def test_the_density_is_that_of_a_direct_mixture(components, seed):
    prior = mixture(components, seed)
    z = np.random.default_rng(seed + 1).normal(size=(4, Q))
    like = torch.zeros(0, dtype=torch.float64)
    found = gaussians(prior, like).log_density(torch.from_numpy(z))
    assert_allclose(found.numpy(), directly(prior, z), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", [None, 3], ids=["points", "draw"])
def test_with_one_standard_component_the_elbo_is_that_of_the_normal_prior(seed):
    spec = Vae(inputs=4, latent=Q, hidden=(3,))
    net, x = loaded(spec, some_theta(spec, 1)), some_rows(6, 4, 2)
    found = vamp_elbo(net, x, standard(Q), seed)
    assert_allclose(found, elbos(net, x, seed=seed), rtol=1e-12, atol=1e-12)


def test_with_one_component_the_divergence_is_its_closed_form():
    rng = np.random.default_rng(0)
    m, log, mu, v = rng.normal(size=(4, 1, Q))
    prior = np.column_stack([[1.0], mu, v])
    at = [torch.from_numpy(a) for a in (m, log)]
    found = gaussians(prior, at[0]).divergence(*at, at[0][None])
    whole = 0.5 * (v - log + (np.exp(log) + (m - mu) ** 2) / np.exp(v) - 1).sum()
    assert_allclose(found.numpy(), whole, rtol=1e-12)


def test_the_mean_over_draws_is_the_divergence_from_a_mixture():
    # One dimension, by quadrature; 100,000 draws have a standard error of 0.003.
    prior = np.array([[0.3, -1.0, -0.5], [0.7, 1.5, 0.2]])
    m, log = np.array([[0.4]]), np.array([[-0.3]])
    sd = np.exp(log[0, 0] / 2)

    def integrand(z):
        means, logs = prior[:, 1], prior[:, 2]
        p = logsumexp(norm.logpdf(z, means, np.exp(logs / 2)), b=prior[:, 0])
        return norm.pdf(z, m[0, 0], sd) * (norm.logpdf(z, m[0, 0], sd) - p)

    expected = quad(integrand, -8, 8)[0]
    noise = np.random.default_rng(1).standard_normal((100_000, 1, 1))
    at = [torch.from_numpy(a) for a in (m, log, m + sd * noise)]
    found = gaussians(prior, at[0]).divergence(*at)
    assert_allclose(float(found), expected, atol=0.012)


def test_a_product_of_normal_distributions_is_the_closed_form():
    # The mean of ln N(z; μ_m, v_m) weighted by rows is ln of the product, up to a constant.
    rng = np.random.default_rng(4)
    rows = np.array([50.0, 500.0, 10.0])
    means, variances = rng.normal(size=(3, Q)), rng.uniform(0.2, 3.0, (3, Q))
    found = product(
        rows.sum(), (rows[:, None] / variances).sum(0), (rows[:, None] * means / variances).sum(0)
    )
    z = rng.normal(size=(5, Q))
    each = norm.logpdf(z[:, None], means, np.sqrt(variances)).sum(axis=2) @ (rows / rows.sum())
    apart = directly(found, z) - each
    assert_allclose(apart, apart[0], rtol=1e-10)


@given(sites=st.integers(1, 6), seed=st.integers(0, 2**16))
def test_a_product_of_equal_sites_is_one_of_them(sites, seed):
    means, logs = np.random.default_rng(seed).normal(size=(2, 3, Q))
    mean, variance = matched(means, logs)
    n = 7.0 * sites
    found = product(n, n / variance, n * mean / variance)
    assert_allclose(found[0, 1:], [*mean, *np.log(variance)], rtol=1e-12, atol=1e-12)


def test_matched_moments_are_those_of_draws():
    # 200,000 draws: three standard errors of mean and variance are below 0.02 and 0.06.
    means, logs = np.random.default_rng(2).normal(size=(2, 3, Q))
    prior = np.column_stack([np.full(3, 1 / 3), means, logs])
    draws = drawn_from(prior, 200_000, np.random.default_rng(0))
    mean, variance = matched(means, logs)
    assert_allclose(draws.mean(axis=0), mean, atol=0.02)
    assert_allclose(draws.var(axis=0), variance, atol=0.06)


def test_experts_are_the_mixture_of_the_sites_by_rows():
    parts = [np.random.default_rng(s).normal(size=(2, 3, Q)) for s in range(3)]
    rows = [30.0, 0.0, 10.0]
    found = experts(rows, [p[0] for p in parts], [p[1] for p in parts])
    z = np.random.default_rng(9).normal(size=(4, Q))
    own = [directly(np.column_stack([np.full(3, 1 / 3), *p]), z) for p in (parts[0], parts[2])]
    assert len(found) == 6
    assert_allclose(np.exp(directly(found, z)), 0.75 * np.exp(own[0]) + 0.25 * np.exp(own[1]))
    assert_allclose(experts([0.0], [parts[0][0]], [parts[0][1]]), standard(Q))


def slopes(spec, theta, x, prior):
    net = loaded(spec, theta) if isinstance(spec, Vae) else network(spec)
    net.load(theta)
    loss = Elbo(prior=prior)
    value = net.descend(lambda m: loss(m, torch.from_numpy(x), 5), 5)
    return value, net.grad.numpy().copy()


def test_pseudo_inputs_do_not_change_the_slopes_of_the_network():
    spec = Vae(inputs=4, latent=Q, hidden=(3,))
    x, prior, theta = some_rows(6, 4, 2), mixture(3, 1), some_theta(spec, 1)
    points = np.random.default_rng(0).normal(size=8)
    value, plain = slopes(spec.spec, theta, x, prior)
    both, found = slopes(with_pseudo(spec.spec, 2), np.append(theta, points), x, prior)
    assert_allclose(both, value, rtol=1e-12)
    assert_allclose(found[:-8], plain, rtol=1e-12, atol=1e-14)
    assert np.abs(found[-8:]).min() > 0


def test_pseudo_inputs_climb_the_mean_log_density_of_the_sites_own_mixture():
    spec = Vae(inputs=4, latent=Q, hidden=(3,))
    x, prior, theta = some_rows(6, 4, 2, missing=0.0)[:5], mixture(3, 1), some_theta(spec, 1)
    points = np.random.default_rng(0).normal(size=(2, 4))

    def follows(a):
        net = loaded(spec, theta)
        held = of(net, a, lambda m, rows: torch.cat([*m.encoder(rows, rows == rows)], dim=1))
        own = np.column_stack([np.full(2, 0.5), held])
        q = of(net, x, lambda m, rows: m.latent_draw(rows, 5))
        return directly(own, q).mean()

    _, found = slopes(with_pseudo(spec.spec, 2), np.append(theta, points.ravel()), x, prior)
    step = 1e-6 * np.eye(8).reshape(8, 2, 4)
    expected = [(follows(points + s) - follows(points - s)) / 2e-6 for s in step]
    # Central differences of step 1e-6 are right to about 1e-9; the loss is the negative.
    assert_allclose(-found[-8:], expected, rtol=1e-6, atol=1e-8)


def test_components_begin_apart_and_with_equal_weights():
    spec = Vae(inputs=3, latent=Q, components=4)
    net = loaded(spec, initial(spec.spec, 0))
    assert len(net.theta) == spec.size
    log_weights, means, logs = net.module.mixture()
    assert_allclose(log_weights.exp().detach().numpy(), 0.25)
    assert not logs.any()
    assert torch.pdist(means).min() > 0.05


@pytest.mark.parametrize("seed", [None, 3], ids=["points", "draw"])
def test_a_learnt_mixture_gives_the_elbo_of_the_same_mixture_given(seed):
    spec, given_ = Vae(inputs=4, latent=Q, components=3), Vae(inputs=4, latent=Q)
    theta, x = some_theta(spec, 1), some_rows(6, 4, 2)
    net = loaded(spec, theta)
    log_weights, means, logs = net.module.mixture()
    prior = np.column_stack([a.detach().numpy() for a in (log_weights.exp(), means, logs)])
    plain = loaded(given_, theta[: given_.size])
    assert_allclose(vamp_elbo(plain, x, prior, seed), elbos(net, x, seed=seed), rtol=1e-10)


def test_the_text_of_a_network_without_prior_and_label_is_as_before():
    text = Vae(inputs=3, latent=2).spec
    assert text == (
        '{"activation": "tanh", "hidden": [], "inputs": 3, "kind": "vae", "latent": 2, '
        '"sees_mask": false}'
    )


def test_the_encoder_does_not_see_the_label_and_its_density_has_the_weight():
    rest = [0.0, 1.0, None, None, False]
    heads = [["normal", [0], *rest], ["categorical", [1, 2], *rest]]
    one, three = (Vae(inputs=3, latent=1, heads=heads, label=1, label_weight=w) for w in (1.0, 3.0))
    theta = some_theta(one, 0)
    known = np.array([[0.5, 1.0, 0.0], [0.5, 0.0, 1.0]])
    without = np.array([[0.5, np.nan, np.nan]])
    latent = of(loaded(one, theta), np.vstack([known, without]), lambda m, rows: m.latent(rows))
    assert_allclose(latent, np.broadcast_to(latent[0], latent.shape), rtol=0, atol=0)
    # ELBO with the label less ELBO without it is w E ln p(label | z), at the same z.
    by_weight = []
    for net in (one, three):
        here = loaded(net, theta)
        each = elbos(here, known)
        assert_allclose(elbos(here, without), elbos(loaded(one, theta), without))
        by_weight.append(each - elbos(here, without))
    assert_allclose(by_weight[1], 3.0 * by_weight[0], rtol=1e-10)
