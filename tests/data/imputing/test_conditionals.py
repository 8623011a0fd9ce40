"""Regressions of one column on the others are those of scikit-learn and statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.linear_model import BayesianRidge, LogisticRegression

from fedcohort.data.imputing import conditionals
from fedcohort.data.imputing.conditionals import Terms
from fedcohort.data.prepare import Head

NUMBER = Head(name="y", kind="normal", at=(0,))
BINARY = Head(name="y", kind="bernoulli", at=(0,))
COUNT = Head(name="y", kind="negbinomial", at=(0,), low=0.0, whole=True)
LEVELS = Head(name="y", kind="categorical", at=(0, 1))


def table(kind: str, n: int, seed: int) -> np.ndarray:
    """Return the column first, then three predictors."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 3))
    eta = z @ [0.8, -0.5, 0.3] + 0.4
    if kind == "number":
        own = (eta + rng.standard_normal(n))[:, None]
    elif kind == "binary":
        own = (rng.random(n) < 1 / (1 + np.exp(-eta)))[:, None] * 1.0
    elif kind == "count":
        own = rng.poisson(np.exp(eta))[:, None] * 1.0
    else:
        level = rng.integers(0, 3, n) + (eta > 1) * (rng.random(n) < 0.5)
        own = (np.minimum(level, 2)[:, None] == [1, 2]) * 1.0
    return np.column_stack([own, z])


def settled(u: np.ndarray, head: Head, parts: int = 1) -> tuple[np.ndarray, Terms]:
    """Return the estimate after Newton's steps, with the sums there, over `parts` sites."""
    use = np.arange(len(head.at), u.shape[1])
    theta = conditionals.start(head, use)
    for _ in range(25):
        found = [conditionals.terms(u[k::parts], head, use, theta) for k in range(parts)]
        total = Terms(*(sum(values) for values in zip(*found, strict=True)))
        step = conditionals.newton(head, total, theta)
        theta = theta + step
    return theta, total


def test_a_number_has_the_coefficients_of_scikit_learns_bayesian_ridge():
    u = table("number", 150, 1)
    use = np.arange(1, 4)
    found = conditionals.ridge(conditionals.terms(u, NUMBER, use, np.zeros(4)))
    theirs = BayesianRidge(max_iter=1000, tol=1e-12).fit(u[:, 1:], u[:, 0])
    # the same evidence, but for a prior on both precisions and n − 1 in place of n
    assert_allclose(found.mean, np.r_[theirs.intercept_, theirs.coef_], rtol=2e-3, atol=2e-3)
    covariance = found.rest / found.freedom * (found.root @ found.root.T)[1:, 1:]
    assert_allclose(covariance, theirs.sigma_, rtol=0.03, atol=1e-5)


def test_levels_have_the_coefficients_of_a_penalised_logistic_regression():
    u = table("binary", 200, 2)
    theirs = LogisticRegression(C=1 / conditionals.PRIOR, tol=1e-10, max_iter=1000)
    theirs.fit(u[:, 1:], u[:, 0])
    assert_allclose(
        settled(u, BINARY)[0], np.r_[theirs.intercept_, theirs.coef_[0]], rtol=1e-4, atol=1e-5
    )


def test_a_count_has_the_coefficients_and_the_dispersion_of_statsmodels():
    u = table("count", 300, 3)
    theta, found = settled(u, COUNT)
    z = np.column_stack([np.ones(len(u)), u[:, 1:]])
    theirs = sm.GLM(u[:, 0], z, family=sm.families.Poisson()).fit(tol=1e-12)
    assert_allclose(theta, theirs.params, rtol=1e-3)  # the ridge of 1e-5 of the rows
    assert_allclose(found.extra, theirs.pearson_chi2, rtol=1e-3)


@pytest.mark.parametrize(
    ("kind", "head"), [("number", NUMBER), ("binary", BINARY), ("count", COUNT), ("levels", LEVELS)]
)
def test_sums_over_sites_give_the_fit_of_the_pooled_table(kind, head):
    u = table(kind, 120, 4)
    if kind == "number":
        use = np.arange(1, 4)
        parts = [conditionals.terms(u[k::3], head, use, np.zeros(4)) for k in range(3)]
        total = Terms(*(sum(values) for values in zip(*parts, strict=True)))
        whole = conditionals.ridge(conditionals.terms(u, head, use, np.zeros(4)))
        assert_allclose(conditionals.ridge(total).mean, whole.mean, rtol=1e-10)
        return
    assert_allclose(settled(u, head, 3)[0], settled(u, head)[0], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["number", "binary", "count"])
def test_posterior_draws_have_the_mean_and_the_spread_of_the_estimate(kind):
    head = {"number": NUMBER, "binary": BINARY, "count": COUNT}[kind]
    u, rng = table(kind, 400, 5), np.random.default_rng(0)
    use = np.arange(1, 4)
    if kind == "number":
        theta, found = np.zeros(4), conditionals.terms(u, head, use, np.zeros(4))
        z = np.column_stack([np.ones(len(u)), u[:, 1:]])
        theirs = sm.OLS(u[:, 0], z).fit()
    else:
        theta, found = settled(u, head)
        z = np.column_stack([np.ones(len(u)), u[:, 1:]])
        family = sm.families.Binomial() if kind == "binary" else sm.families.Poisson()
        theirs = sm.GLM(u[:, 0], z, family=family).fit()
    draws = np.array([conditionals.posterior(head, found, theta, rng)[0] for _ in range(3000)])
    # 3,000 draws give a standard deviation to 1.3 %, of which four, and the prior's share
    assert_allclose(draws.std(axis=0), theirs.bse, rtol=0.07)
    assert_allclose(draws.mean(axis=0), theirs.params, atol=0.15 * theirs.bse.max())


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    low=st.floats(0, 3),
    span=st.integers(1, 9),
    kind=st.sampled_from(["normal", "lognormal", "poisson", "negbinomial"]),
)
def test_drawn_numbers_are_in_the_dictionarys_range_and_whole_where_it_says_so(
    seed, low, span, kind
):
    low = float(np.ceil(low)) + (kind == "lognormal")
    head = Head(
        name="y", kind=kind, at=(0,), shift=low + span / 2, scale=1.7, low=low, high=low + span,
        whole=kind in ("poisson", "negbinomial"),
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((60, 3)) * 4
    theta = conditionals.start(head, np.array([1, 2])) + rng.standard_normal(3)
    u[:, :1] = conditionals.drawn(u, head, np.array([1, 2]), theta, 2.5, rng)
    value = head.shift + head.scale * conditionals.unscaled(u, [head])[:, 0]
    assert ((value >= low - 1e-9) & (value <= low + span + 1e-9)).all()
    if head.whole:
        assert_allclose(value, np.rint(value), atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**16), levels=st.integers(2, 5))
def test_drawn_levels_are_one_of_the_levels_with_their_probabilities(seed, levels):
    rng = np.random.default_rng(seed)
    head = Head(name="y", kind="categorical", at=tuple(range(levels - 1)))
    p = rng.dirichlet(np.ones(levels))
    found = conditionals.levels_drawn(head, np.tile(p[1:], (4000, 1)), rng)
    assert set(np.unique(found)) <= {0.0, 1.0} and found.sum(axis=1).max() <= 1
    # four standard deviations of a share of 4,000
    assert_allclose(found.mean(axis=0), p[1:], atol=4 * 0.5 / np.sqrt(4000))


def test_a_lognormal_column_is_scaled_and_back_without_loss():
    head = Head(name="y", kind="lognormal", at=(0,), shift=5.0, scale=3.0, low=0.1)
    x = (np.random.default_rng(0).uniform(0.2, 30, (50, 1)) - 5.0) / 3.0
    assert_allclose(conditionals.unscaled(conditionals.scaled(x, [head]), [head]), x, atol=1e-12)
