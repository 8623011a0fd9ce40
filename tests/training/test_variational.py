"""The local free energy has its maximum where closed forms have it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal, norm
from statsmodels.duration.hazard_regression import PHReg

from fedcohort.algorithms.bayes_net.steps import posterior_at_start, refine
from fedcohort.data.tables import LabelledTable
from fedcohort.models.bayes import Bayes, places
from fedcohort.models.layers import PIECE
from fedcohort.models.losses import PartialLikelihood, Squares
from fedcohort.models.network import Mlp, initial, network
from fedcohort.protocol.step import Site, entropy
from fedcohort.training.networks.plan import Plan
from fedcohort.training.networks.variational import Goal, Natural, Prior, _Divergence, maximise
from fedcohort.training.rows import Rows

SPEC = Bayes(start=0.1).spec(Mlp(inputs=2, hidden=(), outputs=1).spec)
AT = places(network(SPEC).module)


def normal(precision, shift):
    return Natural(np.full(3, precision), np.full(3, shift))


def test_a_linear_network_finds_the_factorised_posterior():
    """Of y = z'w + N(0, 1): means are those of the exact posterior, precisions the diagonal of
    its precision (Bishop, "Pattern Recognition and Machine Learning", 2006, eq. 10.13)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)) @ [[1.0, 0.6], [0.0, 0.8]]
    y = x @ [1.0, -0.5] + 0.3 + rng.normal(size=40)
    rows = Rows(torch.from_numpy(x), Squares(y))
    theta = initial(SPEC, 0)
    goal = Goal(normal(2.0, 0.5), Prior(wide=1.0))
    for rate, epochs in ((0.03, 400), (0.003, 400), (0.0005, 800)):
        plan = Plan(network=SPEC, loss="linear", epochs=epochs)
        theta, _ = maximise(theta, rows, plan, rate, (0, epochs), goal)
    z = np.column_stack([x, np.ones(40)])
    exact = z.T @ z + 2.0 * np.eye(3)
    assert_allclose(theta[AT.mean], np.linalg.solve(exact, z.T @ y + 0.5), atol=0.015)
    assert_allclose(np.exp(-2 * theta[AT.log_sd]), np.diag(exact), rtol=0.06)


COX = Bayes(start=0.2, shared=True).spec(Mlp(inputs=2, hidden=(), intercept=False).spec)
AT_COX = places(network(COX).module)


def test_a_linear_network_finds_the_factorised_posterior_of_coxs_likelihood():
    """Where the local free energy is at its maximum, λ = λ₀ + E_q[I_jj(β)] and λ₀ μ = E_q[U(β)]
    (Opper, Archambeau, Neural Computation 21, 2009). Score U and information I are statsmodels',
    their means over q by Gauss and Hermite. Of five tables λ was off by at most 7 %, and the slope
    by 0.14 posterior standard deviations. Covariates have the mean 2, which Cox's model does not
    see: with draws of each row's own λ is five times as large.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)) @ [[1.0, 0.6], [0.0, 0.8]] + 2.0
    death, leave = rng.exponential(np.exp(-x @ [1.0, -0.5])), rng.exponential(1.0, 60)
    time, event = np.minimum(death, leave), death <= leave
    rows = Rows(torch.from_numpy(x), PartialLikelihood(time, event))
    theta = initial(COX, 0)
    goal = Goal(Natural(np.full(2, 4.0), np.zeros(2)), Prior(wide=0.5))
    for rate, epochs in ((0.1, 60), (0.02, 150), (0.003, 250)):
        plan = Plan(network=COX, loss="cox", epochs=epochs)
        theta, _ = maximise(theta, rows, plan, rate, (0, epochs), goal)
    mean, sd = theta[AT_COX.mean], np.exp(theta[AT_COX.log_sd])
    theirs = PHReg(time, x, event.astype(int), ties="breslow")
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    score, information = np.zeros(2), np.zeros(2)
    for a, u in zip(nodes, weights / weights.sum(), strict=True):
        for b, v in zip(nodes, weights / weights.sum(), strict=True):
            beta = mean + sd * [a, b]
            score += u * v * theirs.score(beta)
            information -= u * v * np.diag(theirs.hessian(beta))
    assert_allclose(sd**-2, 4.0 + information, rtol=0.15)
    assert_allclose((score - 4.0 * mean) * sd, 0.0, atol=0.25)


@pytest.mark.parametrize("size", [0, 5], ids=["all rows at once", "mini-batches"])
def test_rows_without_a_death_leave_the_posterior_to_the_cavity(size):
    rows = Rows(torch.ones(10, 2, dtype=torch.float64),
                PartialLikelihood(np.arange(10.0), np.zeros(10, bool)))  # fmt: skip
    theta, goal = initial(COX, 0), Goal(Natural(np.array([9.0, 4.0]), np.ones(2)), Prior(wide=1.0))
    plan = Plan(network=COX, loss="cox", epochs=400, batch_size=size)
    theta, loss = maximise(theta, rows, plan, 0.03, (0,), goal)
    assert loss == 0.0
    assert_allclose(theta[AT_COX.mean], [1 / 9, 1 / 4], atol=1e-3)
    assert_allclose(np.exp(-2 * theta[AT_COX.log_sd]), [9.0, 4.0], rtol=1e-3)


# several sites ------------------------------------------------------------------------------


def linear_sites(seed, sites=3, n=45):
    """Return tables of y = z'w + N(0, 1) at sites that see other parts of x; z (n, 3) and y."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)) @ [[1.0, 0.6], [0.0, 0.8]]
    x = x[np.argsort(x[:, 0])]
    y = x @ [1.0, -0.5] + 0.3 + rng.normal(size=n)
    parts = [LabelledTable(x[i], y[i]) for i in np.array_split(np.arange(n), sites)]
    return parts, np.column_stack([x, np.ones(n)]), y


@cache
def propagated(in_turn, seed=0):
    """Return q, the sites' factors, and each site's change in the last round, by `refine`.

    The coordinator's loop of `bayes_net`, with a learning rate that falls."""
    parts, *_ = linear_sites(seed)
    k = len(parts)
    q = posterior_at_start(SPEC, seed)
    kept, last = [None] * k, [None] * k
    for number, rate in enumerate(RATES):
        plan = Plan(network=SPEC, loss="linear", epochs=8, batch_size=64).text
        told = []
        for j, part in enumerate(parts):
            asked = {
                "plan": plan, "rate": rate, "prior": PRIOR.text, "seed": seed, "sites": k,
                "parts": 1 if in_turn else k, "damping": 1.0 if in_turn else 1 / k,
            }  # fmt: skip
            site = Site(f"s{j}", part, kept[j], entropy(seed, f"s{j}", number))
            answer = refine.run(site, precision=q.precision, shift=q.shift, **asked)
            kept[j] = Natural(answer.state.precision, answer.state.shift)
            last[j] = Natural(answer.reply.precision, answer.reply.shift)
            told.append(last[j])
            if in_turn:
                q = q.plus(told.pop())
        for change in told:
            q = q.plus(change)
    return q, kept, last


PRIOR = Prior(wide=0.8)
RATES = [0.05] * 30 + np.geomspace(0.05, 0.0005, 30).tolist()


@pytest.mark.parametrize("in_turn", [False, True], ids=["synchronous", "sequential"])
def test_pvi_over_sites_ends_at_the_factorised_posterior_of_the_pooled_table(in_turn):
    """Closed form as above. Over seeds 0 to 5 means differ by at most 0.09 posterior standard
    deviations, and precisions by 17 %, from the noise of the slopes. Without one of the three
    sites the bias's precision would be a third smaller."""
    _, z, y = linear_sites(0)
    q, _, _ = propagated(in_turn)
    exact = z.T @ z + np.eye(3) / PRIOR.wide**2
    apart = (q.shift / q.precision - np.linalg.solve(exact, z.T @ y)) * np.diag(exact) ** 0.5
    assert np.abs(apart).max() < 0.25
    assert_allclose(q.precision, np.diag(exact), rtol=0.25)


def expected_log(z, y, q):
    """E_q[ln p(y | z, w)] of y = z'w + N(0, 1) in closed form."""
    residual = y - z @ (q.shift / q.precision)
    return norm.logpdf(residual).sum() - 0.5 * (z**2 @ (1 / q.precision)).sum()


def log_integral(g):
    """ln ∫ exp(η'w − ½ λ w²) dw, of a Gaussian in natural parameters."""
    return 0.5 * (g.shift**2 / g.precision + np.log(2 * np.pi / g.precision)).sum()


def divergence(q, p):
    """KL(q ‖ p) of independent normals."""
    ratio, apart = p.precision / q.precision, q.shift / q.precision - p.shift / p.precision
    return 0.5 * (ratio + p.precision * apart**2 - 1 - np.log(ratio)).sum()


@pytest.mark.parametrize("in_turn", [False, True], ids=["synchronous", "sequential"])
def test_local_free_energies_add_to_the_global_one_at_the_fixed_point(in_turn):
    """D6.2, eq. (4.28). With q = p Π t_k/Z, the local free energy of eq. (1) at q_k = q is

        F_k = E_q[ln p(D_k | w)] − E_q[ln t_k],   Σ F_k = E_q[ln p(D | w)] − KL(q ‖ p) − ln Z

    for factors in natural parameters, whose constants are Z = 1 in the papers. The largest free
    energy is ln p(D) less the divergence of the factorised posterior from the exact one; over seeds
    0 to 5 it is at most 0.012 larger than that of q."""
    parts, z, y = linear_sites(0)
    q, kept, last = propagated(in_turn)
    p = PRIOR.natural(3)
    mean, second = q.shift / q.precision, 1 / q.precision + (q.shift / q.precision) ** 2
    local = 0.0
    for part, own in zip(parts, kept, strict=True):
        rows = np.column_stack([part.x, np.ones(len(part.y))])
        local += expected_log(rows, part.y, q) - (own.shift @ mean - 0.5 * own.precision @ second)
    constant = log_integral(q) - log_integral(p)
    whole = expected_log(z, y, q) - divergence(q, p)
    assert_allclose(local + constant, whole, rtol=1e-9)
    exact = z.T @ z + np.diag(p.precision)
    evidence = multivariate_normal.logpdf(y, cov=np.eye(len(y)) + z @ z.T * PRIOR.wide**2)
    best = evidence - 0.5 * (np.log(np.diag(exact)).sum() - np.linalg.slogdet(exact)[1])
    assert 0 < best - whole < 0.05
    for one in last:  # no site's q_k differs from q
        assert np.abs(one.precision / q.precision).max() < 0.03
        assert np.abs(one.shift * q.precision**-0.5).max() < 0.15


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_products_and_quotients_of_gaussians_are_sums_of_natural_parameters(seed):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=6)
    q = Natural.of(theta, AT)
    assert_allclose(q.into(AT), theta, rtol=1e-12, atol=1e-12)
    w = rng.normal(size=3)
    other = Natural(rng.uniform(0.1, 2, 3), rng.normal(size=3))

    def log(n):  # up to a constant
        return n.shift * w - 0.5 * n.precision * w**2

    assert_allclose(log(q.plus(other)), log(q) + log(other), rtol=1e-9, atol=1e-9)
    assert_allclose(log(q.plus(other).less(other)), log(q), rtol=1e-6, atol=1e-6)


def test_without_rows_the_posterior_stays():
    theta = initial(SPEC, 0)
    none = Rows(torch.zeros(0, 2, dtype=torch.float64), Squares(np.zeros(0)))
    plan = Plan(network=SPEC, loss="linear")
    goal = Goal(normal(1.0, 0.0), Prior(wide=1.0))
    assert (maximise(theta, none, plan, 0.1, (0,), goal)[0] == theta).all()


def test_the_mixtures_slope_is_that_of_its_density():
    prior = Prior(wide=1.0, narrow=0.05, share=0.25)
    w = np.linspace(-0.5, 0.5, 21)

    def log(v):
        return np.log(0.25 * norm.pdf(v, 0, 1.0) + 0.75 * norm.pdf(v, 0, 0.05))

    slope = -(log(w + 1e-6) - log(w - 1e-6)) / 2e-6
    given = torch.from_numpy(w)
    factor = prior.factor(given, prior.constants(given), torch.empty_like(given)).numpy()
    assert_allclose(factor * w, slope, rtol=1e-5, atol=1e-6)


def test_far_from_0_the_mixtures_slope_is_that_of_its_wide_part():
    prior = Prior(wide=2.0, narrow=0.0025, share=0.5)
    given = torch.tensor([0.034, 0.05, 1.0, 100.0])
    factor = prior.factor(given, prior.constants(given), torch.empty_like(given))
    assert_allclose(factor, 2.0**-2, atol=160_000 * 2.0**-23)  # a + b − b in float32


@pytest.mark.parametrize("batches", [1, 5, 30])
def test_the_parts_of_the_divergence_add_to_the_whole(batches):
    for weights in ("uniform", "blundell"):
        parts = Prior(wide=1.0, weights=weights).parts(batches)
        once = [next(parts) for _ in range(batches)]
        assert_allclose(sum(once), batches)
    assert_allclose(once[:-1], 2 * np.array(once[1:]))


def added(prior, cavity, start, share=1.0):
    """Return means and log σ, and the slopes by both that a step adds, of more than one piece."""
    spec = Bayes(start=start).spec(Mlp(inputs=300, hidden=(120,), outputs=1).spec)
    net = network(spec)
    at = places(net.module)
    assert len(at.mean) > PIECE
    net.load(initial(spec, 0))
    net.grad.zero_()
    size = len(at.mean)
    goal = Goal(Natural(np.full(size, cavity[0]), np.full(size, cavity[1])), prior, share)
    _Divergence(net, goal, 50).add(1.0, 7)
    theta, slope = net.read(), net.gradient()
    return theta[at.mean], theta[at.log_sd], slope[at.mean], slope[at.log_sd]


def test_the_slope_of_the_divergence_is_torchs():
    mean, log_sd, by_mean, by_log_sd = added(Prior(wide=1.0, weight=0.5), (2.0, 0.6), 0.3)
    m, s = (torch.tensor(v, requires_grad=True) for v in (mean, log_sd))
    cavity = torch.distributions.Normal(torch.tensor(0.3), torch.tensor(0.5**0.5))
    kl = torch.distributions.kl_divergence(torch.distributions.Normal(m, s.exp()), cavity)
    (0.5 * kl.sum() / 50).backward()
    assert_allclose(by_mean, m.grad, rtol=1e-6, atol=1e-9)
    assert_allclose(by_log_sd, s.grad, rtol=1e-6, atol=1e-9)


def test_the_slope_of_a_mixture_is_that_of_its_mean_over_the_posterior():
    """By quadrature. 3,000 weights, each with one draw: the margin is 5 standard errors."""
    prior = Prior(wide=1.0, narrow=0.1, share=0.4)
    every = added(prior, (0.0, 0.0), 0.2, share=0.25)
    mean, log_sd, *found = (values[::12] for values in every)
    drawn, weight = np.polynomial.hermite_e.hermegauss(99)
    weight = weight / weight.sum()

    def expected(m, s):
        w = m[:, None] + s[:, None] * drawn
        log = np.log(0.4 * norm.pdf(w, 0, 1.0) + 0.6 * norm.pdf(w, 0, 0.1))
        return -0.25 * (log @ weight) - np.log(s)

    sd = np.exp(log_sd)
    for slope, (up, down) in zip(found, [
        (expected(mean + 1e-5, sd), expected(mean - 1e-5, sd)),
        (expected(mean, sd * np.exp(1e-5)), expected(mean, sd * np.exp(-1e-5))),
    ], strict=True):  # fmt: skip
        gap = 50 * slope - (up - down) / 2e-5
        assert abs(gap.mean()) < 5 * gap.std() / np.sqrt(len(gap))
        assert gap.std() < 10
