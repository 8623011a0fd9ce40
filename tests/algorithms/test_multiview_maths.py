"""Multi-view PPCA at one place, against closed forms, brute force and other libraries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.linalg import subspace_angles
from scipy.optimize import approx_fprime
from scipy.stats import chi2, invgamma, kstest, multivariate_normal
from sklearn.decomposition import PCA, FactorAnalysis

from fedcohort.algorithms.multiview_ppca.maths import draws, em, latent, sites, start
from fedcohort.algorithms.multiview_ppca.maths.inverse_gamma import MOST, most_likely
from fedcohort.algorithms.multiview_ppca.maths.model import Prior, Theta, Views
from fedcohort.algorithms.multiview_ppca.maths.moments import patterns

ONE = Views(np.zeros(7, np.int64), 2, narrow=True)
THREE = Views(np.repeat([0, 1, 2], [4, 3, 5]), 2)


def drawn(views, n, seed, gaps=0.0):
    """Return rows of the model, entries missing at random, and its parameters."""
    rng = np.random.default_rng(seed)
    p = len(views.of)
    theta = Theta(
        rng.normal(size=p), rng.normal(size=(p, views.q)) * views.free,
        rng.uniform(0.2, 0.6, views.noises),
    )  # fmt: skip
    x = latent.sample(n, theta, views, rng)
    x[rng.random(x.shape) < gaps] = np.nan
    return x, theta


def some_prior(theta, views, seed=0):
    rng = np.random.default_rng((seed, 1))
    k, g = views.count, views.noises
    return Prior(
        theta.mu + 0.1 * rng.normal(size=theta.mu.shape),
        (theta.w + 0.1 * rng.normal(size=theta.w.shape)) * views.free,
        rng.uniform(0.01, 0.1, k), rng.uniform(0.01, 0.1, k), rng.uniform(3, 20, g),
        rng.uniform(1, 5, g),
    )  # fmt: skip


def covariance(theta, views):
    return theta.w @ theta.w.T + np.diag(theta.variance[views.noise])


def fitted(x, views, iterations, prior=None):
    found = patterns(x)
    prior = Prior.flat(views) if prior is None else prior
    theta = start.principal(found, views)
    for _ in range(iterations):
        theta = em.step(found, theta, prior, views, em.floors(found, views))
    return theta


def test_one_view_without_a_prior_ends_at_tipping_and_bishops_closed_form():
    x, _ = drawn(ONE, 300, 0)
    rng = np.random.default_rng(5)
    found = patterns(x)
    theta = start.principal(found, ONE, w=rng.normal(size=(7, 2)))
    for _ in range(600):
        theta = em.step(found, theta, Prior.flat(ONE), ONE, em.floors(found, ONE))
    # of scikit-learn's PCA: axes, and σ² the mean of the eigenvalues left, of sums over n
    pca = PCA(7).fit(x)
    values = pca.explained_variance_ * (299 / 300)
    assert subspace_angles(theta.w, pca.components_[:2].T).max() < 1e-6
    assert_allclose(theta.variance, values[2:].mean(), rtol=1e-8)
    assert_allclose(theta.mu, x.mean(axis=0), atol=1e-10)
    scale = np.linalg.svd(theta.w, compute_uv=False) ** 2
    assert_allclose(scale, values[:2] - values[2:].mean(), rtol=1e-7)


def test_a_noise_for_each_column_is_scikit_learns_factor_analysis():
    views = Views(np.zeros(8, np.int64), 2, narrow=True, each=True)
    x, _ = drawn(views, 400, 3)
    theta = fitted(x, views, 3000)
    other = FactorAnalysis(2, tol=1e-12, max_iter=20000, svd_method="lapack").fit(x)
    assert_allclose(covariance(theta, views), other.get_covariance(), rtol=1e-4, atol=1e-5)
    assert em.log_likelihood(patterns(x), theta, views) >= other.score(x) * 400 - 1e-4


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6), gaps=st.sampled_from([0.0, 0.15]), each=st.booleans(),
    flat=st.booleans(), tau2=st.sampled_from([0.0, 0.5, 50.0]),
)  # fmt: skip
def test_no_iteration_lets_the_log_posterior_fall(seed, gaps, each, flat, tau2):
    views = Views(THREE.of, 2, each=each)
    x, truth = drawn(views, 40, seed, gaps)
    x[:15, views.of == 1] = np.nan
    prior = Prior.flat(views) if flat else some_prior(truth, views, seed)
    prior = replace(prior, centre_variance=tau2)
    found = patterns(x)
    theta = Theta(np.zeros(12), np.random.default_rng(seed).normal(size=(12, 2)) * views.free,
                  np.ones(views.noises))  # fmt: skip
    last = em.log_posterior(found, theta, prior, views)
    for _ in range(12):
        theta = em.step(found, theta, prior, views, em.floors(found, views))
        now = em.log_posterior(found, theta, prior, views)
        assert now >= last - 1e-8 * abs(last)
        last = now


def test_where_iterations_end_the_log_posterior_has_no_slope():
    x, truth = drawn(THREE, 60, 2)
    x[:20, THREE.of == 1] = np.nan
    prior = some_prior(truth, THREE)
    theta = fitted(x, THREE, 300, prior)
    found, free = patterns(x), THREE.free

    def value(v):
        w = np.zeros_like(theta.w)
        w[free] = v[12:-3]
        return em.log_posterior(found, Theta(v[:12], w, np.exp(v[-3:])), prior, THREE)

    at = np.r_[theta.mu, theta.w[free], np.log(theta.variance)]
    # the mode in σ² itself, not in ln σ²: their slopes are the same at a stationary point
    assert_allclose(approx_fprime(at, value, 1e-6), 0, atol=2e-3)


def test_patients_with_a_mean_of_their_own_are_found_beside_offsets_that_are_known():
    _, truth = drawn(THREE, 2, 3)
    m = np.array([1.5, -0.8])
    rng = np.random.default_rng(4)
    x = latent.sample(4000, replace(truth, centre=m), THREE, rng)
    prior = Prior(
        truth.mu, truth.w, np.full(3, 1e-8), np.full(3, 1e-8), np.full(3, 10.0),
        10.0 * truth.variance, 25.0,
    )  # fmt: skip
    theta, found = replace(truth, centre=np.zeros(2)), patterns(x)
    for _ in range(30):
        theta = em.step(found, theta, prior, THREE, em.floors(found, THREE))
    assert_allclose(theta.centre, m, atol=0.06)
    assert_allclose(theta.offset, x.mean(axis=0), atol=0.05)


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_likelihood_latent_points_and_imputation_are_those_of_the_joint_gaussian(gaps):
    x, theta = drawn(THREE, 30, 4, gaps)
    theta = replace(theta, centre=np.array([0.7, -0.4]))
    mean = theta.mu + theta.w @ theta.centre
    x[:8, THREE.of == 2] = np.nan
    c = covariance(theta, THREE)
    found = latent.posterior(x, theta, THREE)
    filled = latent.complete(x, theta, THREE)
    value = latent.log_densities(x, theta, THREE)
    unusual = latent.unusual(x, theta, THREE)
    for i, row in enumerate(x):
        o, m = np.flatnonzero(~np.isnan(row)), np.flatnonzero(np.isnan(row))
        # the joint Gaussian of (x, t): conditioned on t_o by brute force
        gain = np.linalg.solve(c[np.ix_(o, o)], np.c_[theta.w[o], c[np.ix_(o, m)]]).T
        off = row[o] - mean[o]
        assert_allclose(found.mean[i], theta.centre + gain[:2] @ off, atol=1e-10)
        assert_allclose(found.covariance[i], np.eye(2) - gain[:2] @ theta.w[o], atol=1e-10)
        assert_allclose(filled.mean[i, m], mean[m] + gain[2:] @ off, atol=1e-10)
        spread = c[np.ix_(m, m)] - gain[2:] @ c[np.ix_(o, m)]
        assert_allclose(filled.sd[i, m] ** 2, np.diag(spread), atol=1e-10)
        assert_allclose(filled.mean[i, o], row[o])
        gauss = multivariate_normal(mean[o], c[np.ix_(o, o)])
        assert_allclose(value[i], gauss.logpdf(row[o]))
        d2 = off @ np.linalg.solve(c[np.ix_(o, o)], off)
        assert_allclose(unusual[i], chi2.sf(d2, len(o)), rtol=1e-8)
    assert_allclose(em.log_likelihood(patterns(x), theta, THREE), value.sum())


def test_a_row_without_entries_is_at_the_origin_and_like_any_other():
    x, theta = drawn(THREE, 3, 1)
    x[1] = np.nan
    assert_allclose(latent.posterior(x, theta, THREE).mean[1], 0)
    assert_allclose(latent.complete(x, theta, THREE).mean[1], theta.mu)
    assert latent.unusual(x, theta, THREE)[1] == 1
    assert sum(one.rows for one in patterns(x)) == 2


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_order_of_rows_changes_nothing(seed):
    x, truth = drawn(THREE, 25, seed, gaps=0.1)
    again = x[np.random.default_rng(seed).permutation(25)]
    prior = some_prior(truth, THREE)
    a, b = fitted(x, THREE, 3, prior), fitted(again, THREE, 3, prior)
    assert_allclose(a.w, b.w, atol=1e-9)
    assert_allclose(a.variance, b.variance, rtol=1e-9)


def test_columns_that_are_missing_everywhere_keep_what_the_prior_says():
    x, truth = drawn(THREE, 40, 0)
    x[:, THREE.of == 1] = np.nan
    prior = some_prior(truth, THREE)
    theta = fitted(x, THREE, 20, prior)
    away = THREE.of == 1
    assert_allclose(theta.mu[away], prior.mu[away])
    assert_allclose(theta.w[away], prior.w[away])
    spread = em.spread(patterns(x), theta, prior, THREE)
    assert spread.mu[1] == spread.w[1] == 0


def test_what_is_left_open_of_mu_and_w_is_the_inverse_of_their_precision():
    x, truth = drawn(THREE, 30, 6, gaps=0.1)
    prior = some_prior(truth, THREE)
    found = patterns(x)
    given_it = truth
    c = covariance(given_it, THREE)
    precision = np.diag(1 / prior.mu_variance[THREE.of])
    for one in found:
        at = np.ix_(one.columns, one.columns)
        precision[at] += one.rows * np.linalg.inv(c[at])
    expected = THREE.total(np.diag(np.linalg.inv(precision)))
    told = em.spread(found, given_it, prior, THREE)
    assert_allclose(told.mu, expected)
    # few patterns are solved by Woodbury's identity, many as they are: both are asked for here
    assert len(found) * THREE.q > 12
    whole, _ = drawn(THREE, 30, 6)
    assert len(patterns(whole)) == 1
    precision = 30 * np.linalg.inv(c) + np.diag(1 / prior.mu_variance[THREE.of])
    expected = THREE.total(np.diag(np.linalg.inv(precision)))
    assert_allclose(em.spread(patterns(whole), given_it, prior, THREE).mu, expected)
    point = latent.posterior(whole, given_it, THREE)
    inner = point.mean.T @ point.mean + point.covariance.sum(axis=0)
    for k in range(3):
        ratio = given_it.variance[k] / prior.w_variance[k]
        inverse = np.linalg.inv(inner + ratio * np.eye(2)) * given_it.variance[k]
        w = em.spread(patterns(whole), given_it, prior, THREE).w[k]
        assert_allclose(w, THREE.widths[k] * np.trace(inverse))


def test_views_of_q_columns_or_fewer_use_one_dimension_less_than_they_have():
    views = Views(np.repeat([0, 1, 2], [6, 2, 1]), 3)
    assert views.used.tolist() == [3, 1, 1]
    assert Views(views.of, 3, narrow=True).used.tolist() == [3, 3, 3]
    x, _ = drawn(views, 50, 0)
    theta = fitted(x, views, 5)
    assert not theta.w[~views.free].any()
    assert theta.w[views.free].all()


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_turning_makes_rotated_places_equal_and_changes_no_likelihood(seed):
    views = Views(np.repeat([0, 1], [5, 4]), 3)
    x, theta = drawn(views, 20, seed)
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    frame = rng.normal(size=(9, 3))
    other = Theta(theta.mu, theta.w @ turn, theta.variance)
    columns = np.arange(5)
    a, b = (start.turned(one, frame, columns, views) for one in (theta, other))
    assert_allclose(a.w, b.w, atol=1e-7)
    found = patterns(x)
    assert_allclose(em.log_likelihood(found, a, views), em.log_likelihood(found, theta, views))


def test_the_inverse_gamma_is_scipys_most_likely_one():
    values = invgamma.rvs(4.0, scale=2.0, size=200, random_state=1)
    alpha, beta = most_likely(np.log(values).mean(), (1 / values).mean())
    shape, _, scale = invgamma.fit(values, floc=0)
    assert_allclose([alpha, beta], [shape, scale], rtol=1e-3)

    def loss(v):
        return -invgamma.logpdf(values, v[0], scale=v[1]).sum()

    assert_allclose(approx_fprime([alpha, beta], loss, 1e-7), 0, atol=1e-2)


def test_equal_variances_cut_alpha_and_keep_their_middle():
    alpha, beta = most_likely(np.log(np.array([0.3, 2.0])), 1 / np.array([0.3, 2.0]))
    assert_allclose(alpha, MOST)
    assert_allclose(beta / alpha, [0.3, 2.0])


def test_draws_of_gibbs_have_the_mean_and_spread_of_a_posterior_known_in_closed_form():
    # with W held by its prior at 0, each column is a normal with unknown mean and known prior
    views = Views(np.zeros(3, np.int64), 1, narrow=True)
    rng = np.random.default_rng(0)
    x = rng.normal(1.0, 0.7, (25, 3))
    prior = Prior(
        np.zeros(3), np.zeros((3, 1)), np.array([0.5]), np.array([1e-12]), np.array([1e6]),
        np.array([0.49e6]),
    )  # fmt: skip
    theta = Theta(np.zeros(3), np.zeros((3, 1)), np.array([0.49]))
    mus = np.array([d.mu for d in draws.gibbs(x, theta, prior, views, rng, 1500)])
    precision = 25 / 0.49 + 1 / 0.5
    assert_allclose(mus.mean(axis=0), x.sum(axis=0) / 0.49 / precision, atol=0.01)
    assert_allclose(mus.var(axis=0), 1 / precision, rtol=0.15)


@pytest.mark.parametrize("column", [0, 5, 11])
@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_what_rows_tell_of_a_column_is_the_covariance_of_its_score(gaps, column):
    # Fisher's information: of many rows of the model, by differences of their log-densities
    x, theta = drawn(THREE, 60_000, 4, gaps)
    theta = replace(theta, centre=np.array([0.5, -0.3]))
    x += theta.w @ theta.centre
    sure = replace(Prior.flat(THREE), mu_variance=np.full(3, 1e-15), w_variance=np.full(3, 1e-15))
    told = draws.information(patterns(x), theta, sure, THREE) / len(x)
    used = [*np.flatnonzero(THREE.free[column]), 2]

    def moved(k, step):
        w, mu = theta.w.copy(), theta.mu.copy()
        if k < 2:
            w[column, k] += step
        else:
            mu[column] += step
        return latent.log_densities(x, replace(theta, w=w, mu=mu), THREE)

    score = np.column_stack([(moved(k, 1e-5) - moved(k, -1e-5)) / 2e-5 for k in used])
    expected = score.T @ score / len(x)
    size = np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))
    assert_allclose(told[column][np.ix_(used, used)] / size, expected / size, atol=0.03)


def test_a_dimension_without_any_loading_is_known_a_little():
    views = Views(np.zeros(6, np.int64), 1)
    x = np.random.default_rng(0).normal(size=(600, 6))
    theta = Theta(np.zeros(6), np.zeros((6, 1)), np.ones(1))
    sure = replace(Prior.flat(views), mu_variance=np.full(1, 1e-15), w_variance=np.full(1, 1e-15))
    told = draws.information(patterns(x), theta, sure, views)
    assert_allclose(told[:, 0, 0] / 600, 0.1 / 1.1)
    assert_allclose(told[:, 1, 1] / 600, 1.0)


def test_a_view_that_its_dimensions_explain_whole_is_still_told_of():
    # as many dimensions as columns, one of which is constant: σ² falls to nearly nothing
    views = Views(np.repeat([0, 1], [5, 3]), 5)
    rng = np.random.default_rng(4)
    theta = Theta(np.zeros(8), rng.normal(size=(8, 5)), np.array([6e-10, 0.7]))
    theta.w[0] = 1e-9 * rng.normal(size=5)
    x = (
        rng.normal(size=(80, 5)) @ theta.w.T
        + rng.normal(size=(80, 8)) * np.sqrt(theta.variance)[views.of]
    )
    told = draws.information(patterns(x), theta, Prior.flat(views), views)
    assert np.isfinite(told).all()
    for one in told:
        size = np.sqrt(np.outer(one.diagonal(), one.diagonal()))
        assert np.linalg.eigvalsh(one / np.maximum(size, 1e-300)).min() > -1e-9
    roots = draws.roots(told, views)
    assert np.isfinite(roots).all()


def test_the_criterion_is_watanabes_by_its_definition():
    x, truth = drawn(THREE, 30, 8, gaps=0.1)
    prior = some_prior(truth, THREE)
    shared = np.zeros((12, 3, 3))
    told = draws.waic(
        x, truth, prior, THREE, shared, np.random.default_rng(3), draws=40, burn=5
    )  # fmt: skip
    every = draws.gibbs(x, truth, prior, THREE, np.random.default_rng(3), 45, shared)
    values = np.array([latent.log_densities(x, d, THREE) for d in every])[5:]
    assert_allclose(told.fit, np.log(np.exp(values).mean(axis=0)))
    assert_allclose(told.cost, values.var(axis=0, ddof=1))


@pytest.mark.parametrize(("gaps", "noise"), [(0.0, 1.0), (0.15, 1.0), (0.0, 50.0)])
def test_offsets_and_the_mean_of_the_patients_are_those_of_their_joint_normal(gaps, noise):
    # t has the mean μ + W m: the joint precision of (μ, m), with all of it in one matrix
    x, theta = drawn(THREE, 40, 3, gaps)
    theta = replace(theta, variance=theta.variance * noise, centre=np.zeros(2))
    prior = replace(some_prior(theta, THREE), centre_variance=1.7)
    found, c = patterns(x), covariance(theta, THREE)
    both = np.hstack([np.eye(12), theta.w])
    precision = np.diag(np.r_[1 / prior.mu_variance[THREE.of], np.full(2, 1 / 1.7)])
    right = np.r_[prior.mu / prior.mu_variance[THREE.of], np.zeros(2)]
    for one in found:
        inverse = np.linalg.inv(c[np.ix_(one.columns, one.columns)])
        precision += one.rows * both[one.columns].T @ inverse @ both[one.columns]
        right += one.rows * both[one.columns].T @ inverse @ one.mean
    expected, open_ = np.linalg.solve(precision, right), np.linalg.inv(precision)
    step = em.step(found, theta, prior, THREE, em.floors(found, THREE))
    assert_allclose(np.r_[step.mu, step.centre], expected, rtol=1e-8, atol=1e-9)
    told = em.spread(found, theta, prior, THREE)
    assert_allclose(told.mu, THREE.total(open_.diagonal()[:12]))
    assert_allclose(told.centre, open_[12:, 12:])


def test_offsets_of_a_view_and_other_patients_are_told_apart():
    rng = np.random.default_rng(2)
    x, theta = drawn(THREE, 2000, 2)
    plain = sites.deviation(patterns(x), theta, THREE)
    assert max(plain.latent_chi2, *plain.chi2) < chi2.isf(1e-3, 5)
    assert_allclose(plain.noise, 1, atol=0.05)
    shifted = x.copy()
    shifted[:, THREE.of == 1] += 0.5 * np.sqrt(theta.variance[1])
    told = sites.deviation(patterns(shifted), theta, THREE)
    assert told.chi2[1] > chi2.isf(1e-6, 3)
    assert_allclose(told.shift[1], 0.5, atol=0.1)
    others = latent.sample(2000, theta, THREE, rng) + theta.w @ np.array([0.4, 0.0])
    told = sites.deviation(patterns(others), theta, THREE)
    assert told.latent_chi2 > chi2.isf(1e-6, 2)
    assert_allclose(told.latent, [0.4, 0.0], atol=0.1)
    assert max(told.chi2[k] - chi2.isf(1e-3, THREE.widths[k]) for k in range(3)) < 0
    gone = x.copy()
    gone[:, THREE.of == 2] = np.nan
    assert sites.deviation(patterns(gone), theta, THREE).chi2[2] == -1


@pytest.mark.parametrize("gaps", [0.0, 0.15])
def test_tests_of_deviation_are_chi_squared_for_rows_of_the_model(gaps):
    _, theta = drawn(THREE, 2, 5)
    rng = np.random.default_rng(9)
    told = []
    for _ in range(200):
        x = latent.sample(25, theta, THREE, rng)
        x[rng.random(x.shape) < gaps] = np.nan
        one = sites.deviation(patterns(x), theta, THREE)
        told.append([one.latent_chi2, *one.chi2])
    for column, df in zip(np.array(told).T, (2, 4, 3, 5), strict=True):
        assert kstest(column, chi2(df).cdf).pvalue > 0.001
