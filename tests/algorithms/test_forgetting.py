"""`Method.forget`: the model without a site is that of a fit which never had it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit
from torch.distributions import Normal, kl_divergence

from algorithms.test_bayes_glm import by_pseudo_rows, valued
from algorithms.test_bayes_net import parts_of, table, task_of
from fedcohort.algorithms.bayes_glm import LINEAR, LOGISTIC
from fedcohort.algorithms.bayes_net import METHOD, steps
from fedcohort.algorithms.bayes_net.forgetting import without
from fedcohort.algorithms.bayes_net.steps import multiply_factors, places_of, posterior_at_start
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import NotSupported, Refused, Task
from fedcohort.protocol.host import Host
from fedcohort.protocol.step import Site, entropy
from fedcohort.runtime.local import local
from fedcohort.training.networks.variational import Natural, Prior

SMALL = {"hidden": (4,), "rounds": 3, "internal_epochs": 3, "samples": 20}


def hosts_of(method, parts, states=None):
    hosts = [Host(name, part, method.steps, seed=3) for name, part in parts.items()]
    for host in hosts:
        host.first = (states or {}).get(host.name)
    return hosts


def both(method, parts, gone, task, runtime=None, **options):
    """Return the model of all parts, that without `gone`, and that of a new fit without it."""
    config = method.configure(options)
    hosts = hosts_of(method, parts)
    whole = method.fit(local(hosts, **(runtime or {})), config, task)
    states = {h.name: h.state for h in hosts if h.state}
    rest = {k: part for k, part in parts.items() if k != gone}
    fed = local(hosts_of(method, rest, states), **(runtime or {}))
    left = method.forget(fed, config, task, whole)
    again = local(hosts_of(method, rest))
    return whole, left, method.fit(again, config, task), (fed, again)


def named(method, p, **more):
    names = tuple(f"x{j}" for j in range(p))
    return Task(kind=method.tasks[0], features=names, outcome=method.outcomes[0], seed=3, **more)


def split(whole, k):
    return {f"s{i}": part for i, part in enumerate(parts_of(whole, k))}


# conjugate and expectation propagation --------------------------------------------------------


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(2, 5))
def test_the_linear_posterior_without_a_site_is_least_squares_on_the_other_rows(seed, k):
    parts = split(valued(90, 2, seed), k)
    _, left, again, _ = both(LINEAR, parts, "s0", named(LINEAR, 2))
    rest = [part for name, part in parts.items() if name != "s0"]
    x, y = np.concatenate([p.x for p in rest]), np.concatenate([p.y for p in rest])
    mean, spread, variance = by_pseudo_rows(x, y, 2.5)
    assert_allclose(left.coefficients, mean[1:], rtol=1e-8)
    assert_allclose(left.covariance[1:, 1:], spread[1:, 1:], rtol=1e-8)
    assert_allclose(left.variance, variance, rtol=1e-8)
    assert left.divergence(again) < 1e-8


def outcomes(n, seed, tilt=0.0):
    """Rows with two classes; with a `tilt`, the sites' rows differ."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)) + tilt * (np.arange(n) % 4)[:, None]
    return LabelledTable(x, (rng.random(n) < expit(x @ [1.0, -1.0, 0.5])).astype(float))


@pytest.mark.parametrize("runtime", [{}, {"secure": "true"}], ids=str)
@pytest.mark.parametrize("tilt", [0.0, 1.0])
def test_the_logistic_posterior_without_a_site_is_that_of_a_new_fit_in_fewer_rounds(tilt, runtime):
    parts, task = split(outcomes(400, 0, tilt), 4), named(LOGISTIC, 3)
    whole, left, again, feds = both(LOGISTIC, parts, "s3", task, runtime, tol=1e-10)
    assert_allclose(left.coefficients, again.coefficients, rtol=1e-8)
    assert_allclose(left.covariance, again.covariance, rtol=1e-7)
    assert_allclose(left.log_evidence, again.log_evidence, rtol=1e-9)
    assert left.divergence(again) < 1e-8 < whole.divergence(again)
    first = [fed.history[0]["change"] for fed in feds]
    assert first[0] < first[1]
    assert left.rounds <= again.rounds


def test_a_regression_of_other_covariates_is_not_continued():
    parts = split(outcomes(80, 1), 2)
    model = LOGISTIC.fit(
        local(hosts_of(LOGISTIC, parts)), LOGISTIC.configure({}), named(LOGISTIC, 3)
    )
    other = Task(kind="classification", features=("a", "b", "c"), outcome="binary")
    with pytest.raises(NotSupported, match="other covariates"):
        LOGISTIC.forget(local(hosts_of(LOGISTIC, parts)), LOGISTIC.configure({}), other, model)


# partitioned variational inference ------------------------------------------------------------


@pytest.fixture
def linear_gaussian(monkeypatch):
    """Sites whose likelihood is Gaussian with independent weights, so that each visit is exact.

    With orthogonal columns and known noise, a linear model's likelihood has λ = Σ x²/σ² and
    η = Σ x y/σ². Here they are drawn, by the site's name.
    """
    known = {}

    def exact(site, q, cavity, plan, rate, prior, share):
        size = len(q.precision)
        if site.name not in known:
            rng = np.random.default_rng(len(known))
            known[site.name] = Natural(rng.gamma(2.0, 50.0, size), rng.normal(size=size) * 30)
        return cavity.plus(known[site.name]), len(site.data.x), 0.0

    monkeypatch.setattr(steps, "trained", exact)
    return known


def natural_of(model):
    return Natural.of(model.thetas[0], places_of(model.network))


def test_exact_factors_make_the_posterior_without_a_site_exact_in_no_more_than_one_round(
    linear_gaussian,
):
    task = task_of("binary", ("x0", "x1", "x2"))
    parts, options = split(table("binary"), 3), {**SMALL, "rounds": 1, "strategy": "sequential"}
    _, left, _, _ = both(METHOD, parts, "s1", task, **options)
    found, own = natural_of(left), linear_gaussian
    assert_allclose(found.precision, 1 + own["s0"].precision + own["s2"].precision, rtol=1e-12)
    assert_allclose(found.shift, own["s0"].shift + own["s2"].shift, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("runtime", [{}, {"secure": "true"}], ids=str)
@pytest.mark.parametrize("rounds", [1, 4])
def test_a_damped_factor_is_a_share_of_its_start_whoever_leaves(linear_gaussian, rounds, runtime):
    """t_k = c s + (1 − c) L_k, s the K-th root of the start's quotient by the prior, of K = 5 sites

    and c = (1 − 1/5)^R (1 − 1/4)^R after R rounds before and R after one left.
    """
    task = task_of("binary", ("x0", "x1", "x2"))
    parts = split(table("binary", 150), 5)
    _, left, _, _ = both(METHOD, parts, "s2", task, runtime, **{**SMALL, "rounds": rounds})
    start = posterior_at_start(left.network, 3)
    root = Natural((start.precision - 1.0) / 5, start.shift / 5)
    c = 0.8**rounds * 0.75**rounds
    rest = [one for name, one in linear_gaussian.items() if name != "s2"]
    found = natural_of(left)
    assert len(rest) == 4
    precision = 1.0 + 4 * c * root.precision + (1 - c) * sum(one.precision for one in rest)
    shift = 4 * c * root.shift + (1 - c) * sum(one.shift for one in rest)
    assert_allclose(found.precision, precision, rtol=1e-7)
    assert_allclose(found.shift, shift, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("prior", ["gaussian", "mixture"])
def test_a_precision_below_0_returns_to_the_prior_and_the_factors_multiply_to_it(prior):
    config = METHOD.configure({**SMALL, "prior": prior, "prior_narrow": 0.1})
    plan = config.plan(3, "logistic", 1).text
    size = len(posterior_at_start(config.network(3, 1), 3).shift)
    p = Prior(wide=1.0, narrow=0.1 if prior == "mixture" else 0.0, share=0.5)
    rng = np.random.default_rng(0)
    states = {
        f"s{k}": {"precision": rng.normal(1.0, 2.0, size), "shift": rng.normal(size=size)}
        for k in range(3)
    }
    hosts = hosts_of(METHOD, split(table("binary"), 3), states)
    q = without(local(hosts), p, plan, size)
    total = p.natural(size).precision + sum(s["precision"] for s in states.values())
    low = total < 0.1
    assert 0 < low.sum() < size
    assert_allclose(q.precision, np.where(low, 1.0, total))
    assert (q.shift[low] == 0).all()
    assert_allclose(q.shift[~low], sum(s["shift"] for s in states.values())[~low])
    kept = [host.state for host in hosts]
    assert_allclose(p.natural(size).precision + sum(s["precision"] for s in kept), q.precision)
    assert_allclose(sum(s["shift"] for s in kept), q.shift, atol=1e-12)


@pytest.mark.parametrize("strategy", ["pvi", "sequential"])
@pytest.mark.parametrize("outcome", ["binary", "category", "continuous", "count", "survival"])
def test_each_outcome_is_forgotten_and_predicted(outcome, strategy):
    levels = ("a", "b", "c") if outcome == "category" else ()
    task = task_of(outcome, ("x0", "x1", "x2"), levels=levels)
    whole, left, again, _ = both(
        METHOD, split(table(outcome), 3), "s0", task, **SMALL, strategy=strategy
    )
    x = table(outcome).x[:4]
    assert left.predict(x).shape == whole.predict(x).shape
    assert 0 < left.divergence(again) < np.inf
    assert left.scale == again.scale != (whole.scale if outcome in ("count", "survival") else 0)


def test_strategies_without_factors_and_other_columns_say_so():
    parts = split(table("binary"), 3)
    task = task_of("binary", ("x0", "x1", "x2"))
    for strategy in ("fedavg", "ensemble"):
        config = METHOD.configure({**SMALL, "strategy": strategy})
        with pytest.raises(NotSupported, match=f"{strategy!r} of bayes_net keeps no factors"):
            METHOD.forget(local(hosts_of(METHOD, parts)), config, task, None)
    config = METHOD.configure(SMALL)
    model = METHOD.fit(local(hosts_of(METHOD, parts)), config, task)
    other = task_of("binary", ("x0", "x1", "age"))
    with pytest.raises(NotSupported, match="other covariates"):
        METHOD.forget(local(hosts_of(METHOD, parts)), config, other, model)


@pytest.mark.parametrize("wrong", ["none", "size", "infinite"])
def test_a_site_multiplies_no_other_factor_than_its_own(wrong):
    plan = METHOD.configure(SMALL).plan(3, "logistic", 1).text
    size = len(posterior_at_start(METHOD.configure(SMALL).network(3, 1), 3).shift)
    given = np.zeros(size - (wrong == "size"))
    if wrong == "infinite":
        given[0] = np.inf
    state = None if wrong == "none" else steps.Factor(np.ones(size), np.ones(size))
    site = Site("s", table("binary"), state, entropy(0, "s", 0), ())
    with pytest.raises(Refused, match="keeps no factor of such a posterior"):
        multiply_factors.run(site, precision=given, shift=given, plan=plan)


# divergences ----------------------------------------------------------------------------------


def test_divergence_of_a_network_is_that_of_torch():
    task = task_of("binary", ("x0", "x1", "x2"))
    one, other, _, _ = both(METHOD, split(table("binary"), 3), "s0", task, **SMALL)
    at = places_of(one.network)
    q, r = (
        Normal(
            *(torch.from_numpy(v) for v in (m.thetas[0, at.mean], np.exp(m.thetas[0, at.log_sd])))
        )
        for m in (one, other)
    )
    assert_allclose(one.divergence(other), float(kl_divergence(q, r).sum()), rtol=1e-10)


def test_divergence_of_a_linear_posterior_is_the_mean_of_log_densities():
    parts = split(valued(40, 2, 5), 4)
    one, other, _, _ = both(LINEAR, parts, "s0", named(LINEAR, 2))
    rng = np.random.default_rng(0)
    n = 40_000
    variance = stats.invgamma(one.shape, scale=one.rate).rvs(n, random_state=rng)

    def mean(m):
        return np.r_[m.intercept, m.coefficients]

    root = np.linalg.cholesky(one.covariance / one.variance)
    drawn = mean(one) + np.sqrt(variance)[:, None] * (rng.normal(size=(n, 3)) @ root.T)

    def log_density(m):
        v = m.covariance / m.variance
        unit = (drawn - mean(m)) / np.sqrt(variance)[:, None]
        given = stats.multivariate_normal(np.zeros(3), v).logpdf(unit) - 1.5 * np.log(variance)
        return given + stats.invgamma(m.shape, scale=m.rate).logpdf(variance)

    ratio = log_density(one) - log_density(other)
    assert_allclose(one.divergence(other), ratio.mean(), atol=4 * ratio.std() / np.sqrt(n))


def test_divergence_of_other_parameters_is_not_given():
    parts = split(outcomes(80, 1), 2)
    logistic = LOGISTIC.fit(
        local(hosts_of(LOGISTIC, parts)), LOGISTIC.configure({}), named(LOGISTIC, 3)
    )
    linear = LINEAR.fit(local(hosts_of(LINEAR, parts)), LINEAR.configure({}), named(LINEAR, 3))
    net = METHOD.fit(
        local(hosts_of(METHOD, parts)),
        METHOD.configure(SMALL),
        task_of("binary", ("x0", "x1", "x2")),
    )
    for one, other in ((logistic, linear), (linear, logistic), (net, linear)):
        with pytest.raises(NotSupported, match="divergence"):
            one.divergence(other)
