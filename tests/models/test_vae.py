"""The ELBO against closed forms, its slopes, and what is made of missing entries."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import subspace_angles
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.decomposition import FactorAnalysis
from torch.distributions import Independent, Normal, kl_divergence

from fedcohort.models.likelihoods import FLOOR
from fedcohort.models.mcvae import Mcvae
from fedcohort.models.objectives import Elbo, loss_of
from fedcohort.models.vae import Vae
from fedcohort.models.variational import Posterior, drawn
from models.vae_cases import (
    elbos,
    factors,
    linear_theta,
    loaded,
    of,
    ppca,
    some_rows,
    some_theta,
)

P, Q = 6, 2
NETS = {
    "linear": Vae(inputs=P, latent=Q),
    "deep": Vae(inputs=P, latent=Q, hidden=(5, 3), activation="tanh"),
    "told": Vae(inputs=P, latent=Q, hidden=(4,), activation="silu", sees_mask=True),
    "two views": Mcvae(views=(0, 1, 0, 1, 1, 0), latent=Q, hidden=(3,), sees_mask=True),
    "three views": Mcvae(views=(2, 1, 0, 1, 1, 0), latent=Q),
}
every_net = pytest.mark.parametrize("name", NETS)


def test_the_divergence_is_that_of_torch():
    rng = np.random.default_rng(0)
    m, log = torch.from_numpy(rng.normal(size=(2, 9, 4)))
    q, prior = Normal(m, (0.5 * log).exp()), Normal(torch.zeros(9, 4).double(), 1.0)
    expected = kl_divergence(Independent(q, 1), Independent(prior, 1))
    assert_allclose(Posterior(m, log).divergence(), expected, rtol=1e-12)


def by_formula(theta, x, beta, seed):
    """Eq. (3) of the linear network, a row and an entry at a time, from θ as it is documented."""
    sizes = [(Q, P), (Q,), (Q, P), (Q,), (P,), (P, Q), (P,)]
    cuts = np.cumsum([int(np.prod(s)) for s in sizes])[:-1]
    a, b, c, d, s, w, mean = (
        torch.from_numpy(part.reshape(shape))
        for part, shape in zip(np.split(theta, cuts), sizes, strict=True)
    )
    noise = drawn(seed, (len(x), Q), torch.zeros(0).double())
    found = []
    for row, e in zip(torch.from_numpy(x), noise, strict=True):
        known = [j for j in range(P) if not row[j].isnan()]
        seen = torch.zeros(P).double()
        seen[known] = row[known]
        q = Normal(a @ seen + b, (0.5 * (c @ seen + d)).exp())
        z = q.loc + q.scale * e
        fits = sum(
            Normal(w[j] @ z + mean[j], (FLOOR + s[j].exp()).sqrt()).log_prob(row[j]) for j in known
        )
        kl = kl_divergence(q, Normal(torch.zeros(Q).double(), 1.0)).sum()
        found.append(float(fits - beta * kl) if known else 0.0)
    return np.array(found)


@given(seed=st.integers(0, 2**16), beta=st.sampled_from([0.0, 0.4, 1.0]))
@settings(max_examples=10, deadline=None)
def test_the_elbo_of_a_draw_is_the_formula_over_known_entries(seed, beta):
    x, theta = some_rows(7, P, seed), some_theta(NETS["linear"], seed)
    found = elbos(loaded(NETS["linear"], theta), x, beta, seed)
    assert_allclose(found, by_formula(theta, x, beta, seed), rtol=1e-10)


def test_with_the_exact_encoder_the_elbo_is_the_likelihood_of_probabilistic_pca():
    x = factors(80, P, Q, seed=3)
    w, mean, noise, likelihood = ppca(x, Q)
    net = loaded(NETS["linear"], linear_theta(w, mean, np.full(P, noise)))
    each = multivariate_normal(mean, w @ w.T + noise * np.eye(P)).logpdf(x)
    assert_allclose(elbos(net, x), each, rtol=1e-10)
    assert_allclose(elbos(net, x).sum(), likelihood, rtol=1e-12)


def test_probabilistic_pca_is_where_the_elbo_is_flat():
    x = factors(80, P, Q, seed=3)
    w, mean, noise, _ = ppca(x, Q)
    theta = linear_theta(w, mean, np.full(P, noise))
    net = loaded(NETS["linear"], theta)
    net.descend(lambda module: Elbo()(module, torch.from_numpy(x)))
    slope = net.gradient()
    s = slice(2 * (P * Q + Q), 2 * (P * Q + Q) + P)
    assert_allclose(np.delete(slope, s), 0, atol=1e-10)
    assert abs(slope[s].sum()) < 1e-10  # σ² is one number there, and P numbers here
    net.load(theta + 0.01)
    net.descend(lambda module: Elbo()(module, torch.from_numpy(x)))
    assert np.abs(net.gradient()).max() > 1e-3


def best(x, start, tied):
    """Return the largest ELBO of a linear network, and W, μ and σ² there, by L-BFGS.

    tied : whether all σ_j are one.
    """
    p = x.shape[1]
    net, rows = loaded(Vae(inputs=p, latent=Q), start), torch.from_numpy(x)
    at = 2 * (p * Q + Q)

    def value(t):
        net.load(t)
        found = net.descend(lambda module: Elbo()(module, rows))
        slope = net.gradient()
        slope[at : at + p] = slope[at : at + p].mean() if tied else slope[at : at + p]
        return found, slope

    start[at : at + p] = 0.0
    options = {"maxiter": 3000, "maxfun": 5000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}
    found = minimize(value, start, jac=True, method="L-BFGS-B", options=options)
    s, w, mean = np.split(found.x[at:], [p, p + p * Q])
    return -found.fun, w.reshape(p, Q), mean, FLOOR + np.exp(s)


def test_the_best_linear_decoder_spans_the_principal_subspace():
    """Lucas et al. (2019), section 4: no maximum of the ELBO but that of the likelihood."""
    x = factors(150, 5, Q, seed=4)
    w, mean, noise, likelihood = ppca(x, Q)
    elbo, *found = best(x, some_theta(Vae(inputs=5, latent=Q), 1), tied=True)
    assert_allclose(elbo, likelihood / len(x), rtol=1e-8)
    assert subspace_angles(found[0], w).max() < 1e-3
    assert_allclose(found[1], mean, atol=1e-3)
    assert_allclose(found[2], noise, rtol=1e-3)


def test_with_a_variance_for_each_column_it_is_factor_analysis():
    rng = np.random.default_rng(5)
    x = factors(200, 8, Q, seed=5) + rng.normal(size=(200, 8)) * rng.uniform(0.2, 1.0, 8)
    theirs = FactorAnalysis(Q, tol=1e-9, max_iter=3000, svd_method="lapack").fit(x)
    elbo, *found = best(x, some_theta(Vae(inputs=8, latent=Q), 2), tied=False)
    assert_allclose(elbo, theirs.score(x), rtol=1e-7)
    assert_allclose(found[2], theirs.noise_variance_, rtol=1e-3)


def test_draws_are_about_the_points_that_stand_for_them():
    x, net = some_rows(8, P, 1), loaded(NETS["linear"], some_theta(NETS["linear"], 1))
    many = np.array([elbos(net, x, seed=seed) for seed in range(3000)])
    error = many.std(axis=0)[:-1] / np.sqrt(len(many))
    apart = (many.mean(axis=0) - elbos(net, x))[:-1] / error
    assert np.abs(apart).max() < 4.5
    assert many.std(axis=0)[:-1].min() > 0.01


@every_net
def test_draws_depend_on_the_seed_alone(name):
    x, net = some_rows(8, P, 1), loaded(NETS[name], some_theta(NETS[name], 1))
    torch.manual_seed(0)
    first = elbos(net, x, seed=5)
    torch.manual_seed(1)
    assert_array_equal(elbos(net, x, seed=5), first)
    assert (elbos(net, x, seed=6) != first)[:-1].all()


@every_net
@pytest.mark.parametrize("seed", [None, 11])
def test_slopes_are_those_of_finite_differences(name, seed):
    spec, x = NETS[name], some_rows(9, P, 2)
    theta, loss, rows = some_theta(spec, 3), Elbo(beta=0.7), torch.from_numpy(x)
    net = loaded(spec, theta)

    def value(t):
        net.load(t)
        return float(net.compute(lambda module: loss(module, rows, seed)))

    net.descend(lambda module: loss(module, rows, seed))
    slope, h = net.gradient(), 1e-6
    steps = h * np.eye(len(theta))
    expected = [(value(theta + e) - value(theta - e)) / (2 * h) for e in steps]
    assert_allclose(slope, expected, rtol=1e-5, atol=1e-7)
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("seed", [None, 4])
def test_a_column_that_is_missing_counts_as_one_that_is_not_there(seed):
    x, theta = some_rows(9, P, 6), some_theta(NETS["linear"], 6)
    x[:, 4] = np.nan
    keep = np.arange(P) != 4
    sizes = [(Q, P), (Q,), (Q, P), (Q,), (P,), (P, Q), (P,)]
    cuts = np.cumsum([int(np.prod(s)) for s in sizes])[:-1]
    a, b, c, d, s, w, mean = (
        part.reshape(shape) for part, shape in zip(np.split(theta, cuts), sizes, strict=True)
    )
    less = [a[:, keep], b, c[:, keep], d, s[keep], w[keep], mean[keep]]
    small = loaded(Vae(inputs=P - 1, latent=Q), np.concatenate([part.ravel() for part in less]))
    expected = elbos(small, x[:, keep], seed=seed)
    assert_allclose(elbos(loaded(NETS["linear"], theta), x, seed=seed), expected, rtol=1e-12)


@every_net
def test_a_row_without_entries_has_the_prior_and_teaches_nothing(name):
    net = loaded(NETS[name], some_theta(NETS[name], 1))
    empty = np.full((3, P), np.nan)
    assert_array_equal(elbos(net, empty, seed=1), 0.0)
    assert_array_equal(of(net, empty, lambda module, x: module.latent(x)), np.zeros((3, Q)))
    net.descend(lambda module: Elbo()(module, torch.from_numpy(empty), 1))
    assert_array_equal(net.gradient(), 0.0)


@every_net
def test_a_network_has_as_many_parameters_as_it_says(name):
    assert loaded(NETS[name], some_theta(NETS[name], 0)).theta.numel() == NETS[name].size


def test_an_objective_is_built_anew_from_its_spec():
    assert loss_of(Elbo(beta=0.3).spec, None) == Elbo(beta=0.3)


def imputed(net, x, passes):
    return of(net, x, lambda module, rows: module.impute(rows, passes))


def test_what_a_linear_network_imputes_is_the_conditional_mean():
    rng = np.random.default_rng(8)
    w, mean, noise = rng.normal(size=(P, Q)), rng.normal(size=P), rng.uniform(0.3, 1.0, P)
    covariance = w @ w.T + np.diag(noise)
    x = some_rows(12, P, 8)
    expected = x.copy()
    for row in expected:
        m = np.isnan(row)
        if m.all():
            continue
        there = np.linalg.solve(covariance[np.ix_(~m, ~m)], row[~m] - mean[~m])
        row[m] = mean[m] + covariance[np.ix_(m, ~m)] @ there
    expected[-1] = mean
    net = loaded(NETS["linear"], linear_theta(w, mean, noise))
    assert_allclose(imputed(net, x, 2000), expected, rtol=1e-8)
    errors = [np.abs(imputed(net, x, k) - expected)[:-1].max() for k in (1, 5, 20)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


@every_net
def test_a_row_is_filled_whatever_the_other_rows_are_and_known_entries_stay(name):
    x, net = some_rows(9, P, 3), loaded(NETS[name], some_theta(NETS[name], 3))
    whole = imputed(net, x, 4)
    assert np.isfinite(whole).all()
    known = ~np.isnan(x)
    assert_array_equal(whole[known], x[known])
    alone = np.concatenate([imputed(net, row[None], 4) for row in x])
    assert_allclose(whole, alone, rtol=1e-10)
    assert np.abs(imputed(net, x, 1) - whole).max() > 1e-3


@pytest.mark.parametrize("drawn_too", [False, True], ids=["means", "draws"])
def test_imputation_stays_near_where_encoder_and_decoder_enlarge_each_others_output(drawn_too):
    """The encoder is three times too steep: plain passes grow without end."""
    rng = np.random.default_rng(8)
    w, mean, noise = rng.normal(size=(P, Q)), rng.normal(size=P), rng.uniform(0.3, 1.0, P)
    theta = linear_theta(w, mean, noise)
    theta[: P * Q + Q] *= 3.0
    x, net = some_rows(12, P, 8), loaded(NETS["linear"], theta)

    def after(passes):
        if drawn_too:
            return of(net, x, lambda module, rows: module.impute_drawn(rows, passes, 5))
        return imputed(net, x, passes)

    def plain(module, rows):
        y = rows
        for _ in range(200):
            y = torch.where(rows.isnan(), module.decode(module.latent(y)), rows)
        return y

    assert np.abs(of(net, x, plain)).max() > 1e6
    assert np.abs(after(200)).max() < 10 * np.abs(after(1)).max()
