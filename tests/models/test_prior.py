"""Priors of the latent space against SciPy, closed forms and integrals."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm

from fedcohort.models.network import initial, network
from fedcohort.models.objectives import Elbo
from fedcohort.models.prior import (
    Common,
    divided,
    drawn_from,
    experts,
    gaussians,
    matched,
    product,
    standard,
    without,
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
    return of(net, x, lambda m, rows: m.elbo(rows, 1.0, seed, 0.0, Common(prior)))


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


def descent(spec, theta, x, common):
    """Return the mean of −ELBO, and its slopes (P,)."""
    net = network(spec)
    net.load(theta)
    loss = Elbo(prior=common)
    value = net.descend(lambda m: loss(m, torch.from_numpy(x), 5), 5)
    return value, net.grad.numpy().copy()


@pytest.mark.parametrize("combine", ["experts", "product"])
def test_at_the_start_of_a_round_the_sites_own_part_gives_the_common_prior(combine):
    spec = Vae(inputs=4, latent=Q, hidden=(3,))
    theta, points, x = some_theta(spec, 1), np.ones((2, 4)) * [[0.5], [-1.0]], some_rows(6, 4, 2)
    net = loaded(spec, theta)
    held = of(net, points, lambda m, rows: torch.cat(m.of_pseudo(rows)[1:], dim=1))
    own, other = np.split(held, 2, axis=1), np.random.default_rng(3).normal(size=(2, 2, Q))
    means, logs = (own[0], other[0]), (own[1], other[1])
    if combine == "experts":
        prior = experts([30.0, 10.0], means, logs)
        common = without(prior, *own)
    else:
        moments = [matched(*part) for part in zip(means, logs, strict=True)]
        n = np.array([30.0, 10.0])[:, None]
        centres, spreads = (np.array(part) for part in zip(*moments, strict=True))
        prior = product(40.0, (n / spreads).sum(0), (n * centres / spreads).sum(0))
        common = divided(prior, 0.75, *own)
    given_, _ = descent(spec.spec, theta, x, Common(prior))
    start = np.append(theta, points)
    both, slopes = descent(with_pseudo(spec.spec, 2), start, x, common)
    assert_allclose(both, given_, rtol=1e-12)
    # Central differences of step 1e-6 are right to about 1e-9: encoder and pseudo-inputs move it.
    rng = np.random.default_rng(0)
    for way in rng.normal(size=(3, len(start))):
        ends = [
            descent(with_pseudo(spec.spec, 2), start + h * way, x, common)[0] for h in (1e-6, -1e-6)
        ]
        assert_allclose(slopes @ way, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-8)
    assert np.abs(slopes[-8:]).min() > 0


def test_divergences_of_marginals_are_integrals():
    prior = mixture(3, 4)
    m, log = np.random.default_rng(1).normal(size=(2, 1, Q))
    found = gaussians(prior, torch.zeros(0, dtype=torch.float64)).marginal_divergences(
        torch.from_numpy(m), torch.from_numpy(log)
    )
    means, logs = np.split(prior[:, 1:], 2, axis=1)
    for i in range(Q):
        own = norm(m[0, i], np.exp(log[0, i] / 2))

        def gap(z, i=i, own=own):
            return own.pdf(z) * (own.logpdf(z) - logsumexp(
                norm.logpdf(z, means[:, i], np.exp(logs[:, i] / 2)), b=prior[:, 0]
            ))  # fmt: skip

        expected = quad(gap, own.mean() - 12 * own.std(), own.mean() + 12 * own.std())[0]
        # ln of a mixture is no polynomial: 16 nodes are right to a few thousandths here.
        assert_allclose(float(found[0, i]), expected, rtol=0, atol=0.01)


def test_without_a_mixture_the_divergences_are_those_of_the_closed_form():
    m, log = (torch.from_numpy(a) for a in np.random.default_rng(1).normal(size=(2, 5, Q)))
    found = gaussians(standard(Q), m).marginal_divergences(m, log)
    assert_allclose(found, 0.5 * (log.exp() + m**2 - 1.0 - log), rtol=1e-12, atol=1e-13)


def test_hidden_entries_change_what_the_encoder_sees_in_training_alone():
    plain, hides = (Vae(inputs=4, latent=Q, hide=h) for h in (0.0, 1.0))
    theta, x = some_theta(plain, 1), some_rows(400, 4, 2)
    assert_array_equal(elbos(loaded(hides, theta), x), elbos(loaded(plain, theta), x))
    held, known = loaded(hides, theta).module.seen(torch.from_numpy(x), 3)
    there = ~np.isnan(x)
    assert not (known.numpy() & ~there).any()
    assert_array_equal(held.numpy(), np.where(known, np.nan_to_num(x), 0.0))
    # The share is uniform from 0 to 1, so half of the entries stay: sd of their mean below 0.02.
    assert abs(known.sum() / there.sum() - 0.5) < 0.06
    assert not np.array_equal(
        elbos(loaded(hides, theta), x, seed=3), elbos(loaded(plain, theta), x, seed=3)
    )


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
