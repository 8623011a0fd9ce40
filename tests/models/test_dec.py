"""Soft assignment, its target and the divergence between them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedcohort.models.autoencoder import Autoencoder
from fedcohort.models.dec import Dec, log_assignment, target
from fedcohort.models.latent import encoded
from fedcohort.models.network import initial, network
from fedcohort.models.objectives import KlObjective, Reconstruction
from fedcohort.models.reconstruction import mixed


def shares_of(z, mu, alpha):
    """q (n, k) of `log_assignment`, as an array."""
    return log_assignment(torch.tensor(z), torch.tensor(mu), alpha).exp().numpy()


def by_formula(z, mu, alpha):
    """Thesis 003, eq. 2.18, with a difference and a negative exponent (errata)."""
    kernel = np.empty((len(z), len(mu)))
    for i, point in enumerate(z):
        for j, centre in enumerate(mu):
            kernel[i, j] = (1 + np.sum((point - centre) ** 2) / alpha) ** (-(alpha + 1) / 2)
    return kernel / kernel.sum(axis=1, keepdims=True)


def target_by_formula(q):
    """Eq. 2.20, with f_j = Σ_i q_ij and the denominator's index put right."""
    p = np.empty_like(q)
    f = [sum(q[i, j] for i in range(len(q))) for j in range(q.shape[1])]
    for i in range(len(q)):
        whole = sum(q[i, j] ** 2 / f[j] for j in range(q.shape[1]))
        for j in range(q.shape[1]):
            p[i, j] = q[i, j] ** 2 / f[j] / whole
    return p


def some(n=11, d=3, k=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(k, d))


@pytest.mark.parametrize("alpha", [1.0, 3.0, 9.0])
def test_assignment_and_target_are_the_corrected_formulas(alpha):
    z, mu = some()
    q = shares_of(z, mu, alpha)
    assert_allclose(q, by_formula(z, mu, alpha), rtol=1e-12)
    assert_allclose(target(q, q.sum(axis=0)), target_by_formula(q), rtol=1e-12)


def test_the_nearest_centroid_has_the_largest_share():
    z, mu = some(n=50)
    nearest = ((z[:, None] - mu) ** 2).sum(axis=2).argmin(axis=1)
    assert np.array_equal(shares_of(z, mu, 1.0).argmax(axis=1), nearest)


def test_points_far_from_everything_have_shares_that_are_numbers():
    z = np.array([[1e12, 0.0], [0.0, 0.0]], np.float32)
    q = shares_of(z, np.array([[0.0, 0.0], [1.0, 0.0]], np.float32), 1.0)
    assert q.dtype == np.float32
    assert_allclose(q.sum(axis=1), 1.0, rtol=1e-6)
    assert_allclose(q[0], 0.5, rtol=1e-4)


@pytest.mark.parametrize("alpha", [1.0, 5.0])
def test_slopes_of_the_divergence_are_those_of_the_thesis(alpha):
    """Eqs. 2.21 and 2.22, which are right as printed once q has its negative exponent."""
    z, mu = some(seed=5)
    q = by_formula(z, mu, alpha)
    p = target_by_formula(q)
    apart = z[:, None] - mu
    weight = (p - q) / (1 + (apart**2).sum(axis=2) / alpha)
    of_z = (alpha + 1) / alpha * (weight[..., None] * apart).sum(axis=1)
    of_mu = -(alpha + 1) / alpha * (weight[..., None] * apart).sum(axis=0)

    def divergence(z, mu):
        return (p * np.log(p / by_formula(z, mu, alpha))).sum()

    def differences(of, at):
        slopes = np.empty_like(at)
        for i in np.ndindex(at.shape):
            step = np.zeros_like(at)
            step[i] = 1e-6
            slopes[i] = (of(at + step) - of(at - step)) / 2e-6
        return slopes

    assert_allclose(of_z, differences(lambda a: divergence(a, mu), z), rtol=1e-5, atol=1e-8)
    assert_allclose(of_mu, differences(lambda a: divergence(z, a), mu), rtol=1e-5, atol=1e-8)
    points, centres = (torch.from_numpy(a).requires_grad_() for a in (z, mu))
    ours = -(torch.from_numpy(p) * log_assignment(points, centres, alpha)).sum()
    ours.backward()
    assert points.grad is not None
    assert centres.grad is not None
    assert_allclose(points.grad.numpy(), of_z, rtol=1e-9, atol=1e-12)
    assert_allclose(centres.grad.numpy(), of_mu, rtol=1e-9, atol=1e-12)


@given(
    n=st.integers(1, 40), k=st.integers(1, 5), cuts=st.lists(st.integers(0, 40), max_size=4),
    seed=st.integers(0, 2**16),
)  # fmt: skip
def test_the_target_of_summed_frequencies_does_not_depend_on_how_rows_are_split(n, k, cuts, seed):
    z, mu = some(n, 2, k, seed)
    pooled = target_by_formula(by_formula(z, mu, 1.0))
    sites = np.split(z, sorted(min(c, n) for c in cuts))
    shares = [shares_of(part, mu, 1.0) for part in sites]
    f = np.sum([q.sum(axis=0) for q in shares], axis=0)
    assert_allclose(np.concatenate([target(q, f) for q in shares]), pooled, rtol=1e-10)


def test_a_cluster_without_any_share_is_no_division_by_0():
    q = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert_allclose(target(q, q.sum(axis=0)), q)


# the objective -----------------------------------------------------------------------------------


def placed(gamma=0.0, tied=True, seed=0):
    """A network with its centroids last, rows, and an objective for them."""
    dec = Dec.of(Autoencoder(inputs=6, widths=(5, 3), tied=tied), clusters=4, alpha=2.0)
    rng = np.random.default_rng(seed)
    mu, x = rng.normal(size=(4, 3)), torch.from_numpy(rng.random((10, 6)))
    theta = np.concatenate([initial(dec.spec, seed)[: dec.size], mu.ravel()])
    net = network(dec.spec)
    net.load(theta)
    p = rng.dirichlet(np.ones(4), 10)
    return net, theta, mu, x, p, KlObjective(torch.from_numpy(p), gamma, Reconstruction())


def test_the_objective_is_the_divergence_averaged_over_rows_from_the_centroids_at_the_end():
    net, _, mu, x, p, objective = placed()
    q = by_formula(encoded(net, x), mu, 2.0)
    expected = (p * np.log(p / q)).sum() / 10
    assert net.descend(lambda m: objective(m, x)) == pytest.approx(expected, rel=1e-12)
    fewer = objective.take(np.array([1, 4]))
    expected = (p * np.log(p / q))[[1, 4]].sum() / 2
    assert net.descend(lambda m: fewer(m, x[[1, 4]])) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.7])
def test_the_objectives_gradient_is_its_slope(gamma):
    net, theta, _, x, _, objective = placed(gamma, tied=False)

    def value(at):
        net.load(at)
        return net.descend(lambda m: objective(m, x))

    steps = 1e-6 * np.eye(len(theta))
    slopes = np.array([value(theta + h) - value(theta - h) for h in steps]) / 2e-6
    value(theta)
    assert_allclose(net.gradient(), slopes, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.7])
def test_the_untied_decoder_is_left_alone_but_for_a_reconstruction_term(gamma):
    half = 6 * 5 + 5 + 5 * 3 + 3
    net, _, _, x, _, objective = placed(gamma, tied=False)
    plain = net.descend(lambda m: KlObjective(objective.targets)(m, x))
    value = net.descend(lambda m: objective(m, x))
    assert bool(net.gradient()[half:-12].any()) == bool(gamma)
    assert net.gradient()[-12:].any()
    rebuilt = net.compute(lambda m: mixed(m(x), x, 0.0))
    assert value == pytest.approx(plain + gamma * float(rebuilt), rel=1e-12)


def test_a_target_of_0_costs_nothing():
    net, _, _, x, p, _ = placed()
    p[:] = [1.0, 0.0, 0.0, 0.0]
    value = net.descend(lambda m: KlObjective(torch.from_numpy(p))(m, x))
    q = np.exp(net.compute(lambda m: m.log_assign(m.encode(x))))
    assert value == pytest.approx(-np.log(q[:, 0]).mean(), rel=1e-12)
    assert np.isfinite(net.gradient()).all()
