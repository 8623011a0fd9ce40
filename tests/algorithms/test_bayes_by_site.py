"""`bayes_linear` and `bayes_logistic` with effects of sites have the posterior of the pooled table.

`Dense` has the covariance matrix of all rows with the effects in it, and integrates over τ by
SciPy's adaptive `quad`. `sampled` integrates a logistic site's effects on a fine grid and samples
the rest by importance. Neither shares a line with the code under test.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_expit, stdtr
from scipy.stats import multivariate_t, norm

from algorithms.mixed_cases import simulated, stacked
from algorithms.test_bayes_glm import fit
from fedcohort.algorithms.bayes_glm import LINEAR, LOGISTIC
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import NothingToLearn, SettingError
from fedcohort.training import site_effects as effects

#: The last site has few rows; few in all, for matrices of all rows in many quadratures.
SIZES = (12, 9, 14, 6)


class Dense:
    """The posterior of a linear model with effects of sites, from the matrix of all rows."""

    def __init__(self, parts, scale=1.0, prior=2.5):
        self.x, self.y, site = stacked(parts)
        self.mean, self.sd = self.x.mean(axis=0), self.x.std(axis=0)
        self.z = np.column_stack([np.ones(len(self.y)), (self.x - self.mean) / self.sd])
        self.same = (site[:, None] == site[None, :]).astype(float)
        self.scale = scale
        self.precision = np.diag(np.r_[0.0, np.full(self.x.shape[1], prior**-2.0)])
        self.shape = (len(self.y) - 1) / 2

    def at(self, rho, slopes=0.0):
        """Mean, inverse precision, rate and log density, given τ/σ of intercepts and slopes."""
        cov = np.eye(len(self.y)) + rho**2 * self.same
        cov += slopes**2 * self.same * (self.z[:, 1:] @ self.z[:, 1:].T)
        inverse = np.linalg.inv(cov)
        a = self.z.T @ inverse @ self.z + self.precision
        b = np.linalg.solve(a, self.z.T @ inverse @ self.y)
        rate = (self.y @ inverse @ self.y - b @ a @ b) / 2
        logs = -np.linalg.slogdet(cov)[1] / 2 - np.linalg.slogdet(a)[1] / 2
        logs -= (rho**2 + slopes**2) / 2 / self.scale**2 + self.shape * math.log(rate)
        return b, np.linalg.inv(a), rate, logs

    def mean_of(self, functions):
        """Posterior means of functions of τ/σ, for intercepts that differ."""
        top = self.at(0.5)[-1]

        def part(rho, function):
            *given, logs = self.at(rho)
            return function(rho, *given) * math.exp(logs - top)

        def whole(function):
            ends = {"limit": 200, "epsabs": 0, "epsrel": 1e-10, "points": [0.1, 0.5, 1.0]}
            return quad(part, 0, effects.FARTHEST * self.scale, args=(function,), **ends)[0]

        total = whole(lambda *_: 1.0)
        return np.array([whole(f) / total for f in functions])


def standard(model, dense):
    """Means and scale matrices of a model at the points, of standardised covariates."""
    to = np.diag(np.r_[1.0, dense.sd])
    to[0, 1:] = dense.mean
    return model.means @ to.T, to @ model.scales @ to.T


@pytest.mark.parametrize("by_site", ["intercept", "all"])
def test_at_each_point_of_tau_the_linear_posterior_is_that_of_the_matrix_of_all_rows(by_site):
    parts = simulated((30, 25, 40, 12, 14), 0.8, 1)
    ours, dense = fit(LINEAR, parts, by_site=by_site), Dense(parts)
    means, scales = standard(ours, dense)
    assert ours.sites == 5
    found = [dense.at(tau[0], tau[-1] * (by_site == "all")) for tau in ours.tau]
    for g, (b, inverse, rate, _) in enumerate(found):
        assert_allclose(means[g], b, rtol=1e-8, atol=1e-8)
        assert_allclose(scales[g], rate / dense.shape * inverse, rtol=1e-8, atol=1e-10)
        assert_allclose(ours.rates[g], rate, rtol=1e-8)
    weight = np.array([logs for *_, logs in found])
    grid = effects.Grid.over(1.0, len(dense.y), 2 * (by_site == "all"))
    weight += grid.log_prior + (grid.spread[:, [0, -1][: grid.kinds]] ** 2).sum(axis=1) / 2
    weight = np.exp(weight - weight.max())
    assert_allclose(ours.shares, weight / weight.sum(), rtol=1e-7, atol=1e-12)


def test_integrated_over_tau_the_linear_posterior_is_that_of_adaptive_quadrature():
    parts = simulated(SIZES, 0.8, 1)
    ours, dense = fit(LINEAR, parts, by_site="intercept"), Dense(parts)
    k = len(ours.tau[0]) + 2
    sigma = math.exp(math.lgamma(dense.shape - 0.5) - math.lgamma(dense.shape))
    wanted = dense.mean_of([
        *(lambda rho, b, *_, j=j: b[j] for j in range(k)),
        lambda rho, b, a, rate: rho * math.sqrt(rate) * sigma,
        lambda rho, *_: rho**2 / (1 + rho**2),
    ])  # fmt: skip
    means, _ = standard(ours, dense)
    assert_allclose(ours.shares @ means, wanted[:k], atol=1e-7)
    tau, share = (row["value"] for row in ours.parameters(np.zeros(0))[2:])
    assert_allclose([tau, share], wanted[k:], rtol=1e-5)


def test_intervals_are_those_of_the_mixture():
    """Their ends have the probabilities that quadrature over τ gives."""
    parts = simulated(SIZES, 0.8, 1)
    ours, dense = fit(LINEAR, parts, by_site="intercept", level=0.9), Dense(parts)
    free, intercept, sigma, tau, share = 2 * dense.shape, *ours.parameters(np.zeros(0))
    row = ours.summary()[1]
    at, new = np.array([[0.3, -1.0]]), np.r_[1.0, (np.array([0.3, -1.0]) - dense.mean) / dense.sd]
    low, high = ours.intervals(at, 0.9)[0]

    def below(x):
        def found(rho, b, inverse, rate):
            scale = rate / dense.shape * (new @ inverse @ new + rho**2 + 1)
            return stdtr(free, (x - new @ b) / math.sqrt(scale))

        return found  # fmt: skip

    def of_slope(x):
        return lambda rho, b, inverse, rate: stdtr(
            free, (x * dense.sd[1] - b[2]) / math.sqrt(rate / dense.shape * inverse[2, 2])
        )

    assert_allclose(dense.mean_of([below(low), below(high)]), [0.05, 0.95], atol=1e-6)
    ends = dense.mean_of([of_slope(row["low"]), of_slope(row["high"]), of_slope(0.0)])
    assert_allclose(ends, [0.05, 0.95, 1 - row["above_0"]], atol=1e-6)
    rho = [math.sqrt(one / (1 - one)) for one in (share["low"], share["high"])]
    inside = dense.mean_of([lambda r, *_: float(rho[0] < r < rho[1])])
    assert_allclose(inside, 0.9, atol=2e-3)
    assert tau["low"] < 0.8 * 1.2 and tau["high"] > 0.8 * 0.8
    assert sigma["low"] < sigma["value"] < sigma["high"]
    assert intercept["low"] < intercept["value"] < intercept["high"]


def test_with_a_flat_prior_the_most_likely_tau_is_that_of_restricted_maximum_likelihood():
    """statsmodels MixedLM; with p = 1 the degrees of freedom differ by one in 300."""
    parts = simulated((60, 50, 70, 40, 45, 35), 0.7, 3, p=1)
    ours = fit(LINEAR, parts, by_site="intercept", site_scale=100.0, prior_scale=1000.0)
    x, y, site = stacked(parts)
    frame = pd.DataFrame({"y": y, "x": x[:, 0], "site": site})
    theirs = smf.mixedlm("y ~ x", frame, groups="site").fit(reml=True)
    ratio = math.sqrt(float(theirs.cov_re.iloc[0, 0]) / theirs.scale)
    grid = effects.Grid.over(100.0, len(y), 0)
    likelihood = CubicSpline(grid.places, np.log(ours.shares) - grid.log_prior)
    top = minimize_scalar(lambda at: -likelihood(at), bounds=(0, 6), method="bounded").x
    delta = grid.axis[1] / math.sinh(grid.places[1])
    assert_allclose(delta * math.sinh(top), ratio, rtol=0.01)
    slope = CubicSpline(grid.places, ours.means[:, 1])(math.asinh(ratio / delta))
    assert_allclose(slope, theirs.params["x"], rtol=1e-5)


def test_the_order_of_sites_does_not_matter():
    parts = simulated((30, 25, 40), 0.8, 1)
    one, other = (fit(LINEAR, p, by_site="all", min_cell=2) for p in (parts, parts[::-1]))
    assert_allclose(other.coefficients, one.coefficients, rtol=1e-10)
    assert_allclose(other.shares, one.shares, rtol=1e-8, atol=1e-14)


def test_a_site_of_six_rows_is_pulled_to_the_common_effect():
    """Both sites are 1 above the others; over seeds 0 to 19 the shares below are 0.89 to 0.97 and
    0.51 to 0.79."""
    parts = simulated((40, 30, 50, 35, 60, 6), 0.0, 5)
    for k in (4, 5):
        parts[k] = LabelledTable(parts[k].x, parts[k].y + 1.0)
    ours = fit(LINEAR, parts, by_site="intercept", site_effects=True)
    left = [
        ours.own[f"site-{k}"].mean[0] / (parts[k].y - ours.predict(parts[k].x)).mean()
        for k in (4, 5)
    ]
    assert left[0] > 0.8
    assert 0.3 < left[1] < left[0] - 0.1
    assert ours.own["site-4"].sd[0] < ours.own["site-5"].sd[0]


def test_a_sites_own_effects_are_those_of_the_matrix_of_all_rows():
    """E[u_k | y] and its variance given τ, as regressions of u_k on y; then over τ by `quad`."""
    parts = simulated((30, 25, 12), 0.8, 1)
    ours, dense = fit(LINEAR, parts, by_site="intercept", site_effects=True), Dense(parts)
    _, _, site = stacked(parts)
    mine = (site == 2).astype(float)

    def moments(rho, b, inverse, rate):
        cov = np.linalg.inv(np.eye(len(site)) + rho**2 * dense.same)
        gain = rho**2 * mine @ cov
        mean = gain @ (dense.y - dense.z @ b)
        left = rho**2 - rho**2 * gain @ mine
        left += (gain @ dense.z) @ inverse @ (gain @ dense.z)
        return mean, rate / (dense.shape - 1) * left + mean**2

    first, second = dense.mean_of([lambda *a: moments(*a)[0], lambda *a: moments(*a)[1]])
    own = ours.own["site-2"]
    assert_allclose(own.mean[0], first, rtol=1e-6)
    assert_allclose(own.sd[0], math.sqrt(second - first**2), rtol=1e-5)


def yes_or_no(sizes, tau, slope, seed):
    rng = np.random.default_rng(seed)
    parts = []
    for n in sizes:
        x = rng.normal(size=(n, 1)) + 0.3 * rng.normal()
        f = -0.5 + tau * rng.normal() + x[:, 0] * (0.8 + slope * rng.normal())
        parts.append(LabelledTable(x, (rng.random(n) < expit(f)).astype(float)))
    return parts


def sampled(parts, rng, draws, slopes=False, points=141):
    """Means and sds of (b₀, β) about the mean and of τ by importance sampling; effective draws."""
    x = np.vstack([p.x for p in parts])[:, 0]
    middle, sd = x.mean(), x.std()
    u = np.linspace(-7, 7, points)
    weight = norm.pdf(u) * (u[1] - u[0])
    first, second = u[:, None], 0.0
    if slopes:
        first, second = (a.reshape(-1, 1) for a in np.meshgrid(u, u))
        weight = np.outer(weight, weight).ravel()

    def logs(point):
        b, tau = point[:2], np.exp(point[2:])
        if (np.abs(point[2:] + 3) > 6).any():
            return -1e9
        total = norm.logpdf(b, scale=[10, 2.5]).sum() - (tau**2).sum() / 2 + point[2:].sum()
        for part in parts:
            z = (part.x[:, 0] - middle) / sd
            f = b[0] + b[1] * z + tau[0] * first + tau[-1] * second * z
            height = log_expit((2 * part.y - 1) * f).sum(axis=1)
            total += height.max() + math.log(weight @ np.exp(height - height.max()))
        return total

    d = 3 + slopes
    start = minimize(lambda v: -logs(v), np.r_[0, 0.5, [-0.7] * (d - 2)], method="Nelder-Mead").x
    mean, cov = start, np.diag([0.3, 0.05, 0.5, 0.5][:d])
    for n in (draws // 5, draws // 5, draws):
        law = multivariate_t(mean, 1.3 * cov, 4, seed=rng)
        g = law.rvs(n)
        w = np.array([logs(one) for one in g]) - law.logpdf(g)
        w = np.exp(w - w.max())
        w /= w.sum()
        mean = w @ g
        cov = (g - mean).T @ ((g - mean) * w[:, None]) + 1e-6 * np.eye(d)
    sds = np.sqrt(np.diag(cov))[:2]
    return mean[:2], sds, w @ np.exp(g[:, 2:]), 1 / (w @ w), middle, sd


def far(parts, by_site, rng, draws, **how):
    """Differences from `sampled`: of means in sds, of log sds, of log E τ; effective draws."""
    ours = fit(LOGISTIC, parts, by_site=by_site, min_cell=2)
    mean, sds, tau, ess, middle, sd = sampled(parts, rng, draws, by_site == "all", **how)
    to = np.array([[1.0, middle], [0.0, sd]])
    m = ours.means @ to.T
    mid = ours.shares @ m
    var = np.einsum("g,gij->ij", ours.shares, to @ ours.scales @ to.T)
    var += ((m - mid) * ours.shares[:, None]).T @ (m - mid)
    mine = [row["value"] for row in ours.parameters(np.zeros(0))[1:]]
    return (
        (mid - mean) / sds, np.log(np.sqrt(np.diag(var)) / sds), np.log(np.array(mine) / tau), ess
    )  # fmt: skip


def test_the_logistic_posterior_is_close_to_the_true_one():
    """Over seeds 0 to 5 of the slow test the largest errors are 0.07, 0.045 and 0.047, where 1,000
    effective draws give errors of 0.03, 0.022 and 0.02."""
    parts = yes_or_no((40, 60, 30, 80, 6), 0.8, 0.0, 1)
    means, sds, tau, ess = far(parts, "intercept", np.random.default_rng(1), 600, points=57)
    assert ess > 300
    assert np.abs(means).max() < 4 / math.sqrt(ess)
    assert np.abs(np.r_[sds, tau]).max() < 4 / math.sqrt(ess)


@pytest.mark.slow
@pytest.mark.parametrize("by_site", ["intercept", "all"])
def test_the_logistic_posterior_is_close_to_the_true_one_over_seeds(by_site):
    """The mean over seeds of the errors of means (in sds), and of the logarithms of sds and τ.

    The sampler's own is 0.01 over six tables, and 0.04 of one table of `all`, where errors over
    seeds 0 to 2 are 0.09 at most.
    """
    errors = []
    for seed in range(6 if by_site == "intercept" else 1):
        slope, sizes = (
            (0.4, (30, 25, 35, 20, 30, 25)) if by_site == "all" else (0.0, (40, 60, 30, 80, 6))
        )
        parts = yes_or_no(sizes, 0.8, slope, seed)
        points, draws = (33, 1500) if by_site == "all" else (71, 3000)
        *found, ess = far(parts, by_site, np.random.default_rng(seed), draws, points=points)
        assert ess > 250
        errors.append(np.concatenate(found))
    wrong = np.abs(np.mean(errors, axis=0))
    assert wrong.max() < (0.05 if by_site == "intercept" else 0.12)


@pytest.mark.parametrize("method", [LINEAR, LOGISTIC], ids=["linear", "logistic"])
def test_a_saved_model_is_the_same(method):
    parts = yes_or_no((40, 60, 30), 0.8, 0.0, 1)
    ours = fit(method, parts, by_site="intercept", site_effects=True)
    again = method.model.restore(ours.arrays(), ours.meta())
    assert type(again) is type(ours)
    x = parts[0].x
    assert (again.predict(x) == ours.predict(x)).all()
    assert (again.intervals(x, 0.9) == ours.intervals(x, 0.9)).all()
    assert again.parameters(np.zeros(0)) == ours.parameters(np.zeros(0))
    assert again.summary() == ours.summary()
    plain = fit(method, parts)
    assert type(method.model.restore(plain.arrays(), plain.meta())) is type(plain)


def test_a_prediction_for_a_new_site_is_less_sure_than_without_effects_of_sites():
    parts = yes_or_no((40, 60, 30, 80, 70), 1.5, 0.0, 1)
    x = parts[0].x
    plain, ours = (fit(LOGISTIC, parts, by_site=one) for one in ("none", "intercept"))
    width = [np.diff(m.intervals(x, 0.9), axis=1).mean() for m in (plain, ours)]
    assert width[1] > 3 * width[0]
    f, s = ours.at_points(x)
    draws = np.random.default_rng(0).normal(size=(4000, len(ours.shares), 1))
    p = np.einsum("g,dgn->n", ours.shares, expit(f + np.sqrt(s) * draws)) / 4000
    assert_allclose(ours.predict(x), p, atol=0.01)
    assert_allclose(np.sum(ours.uncertainty(x), axis=0), ours.predict(x) * (1 - ours.predict(x)))


def test_one_site_tells_nothing_of_tau_and_the_fit_says_so():
    parts = simulated((30, 4, 3), 0.8, 1)
    with pytest.raises(NothingToLearn, match="1 of 3 sites with records can take part") as error:
        fit(LINEAR, parts, by_site="intercept")
    assert "\n" not in str(error.value)
    config = LINEAR.configure({"by_site": "all"})
    with pytest.raises(SettingError, match="1 site tells nothing about how sites differ"):
        config.check_sites(1)
    with pytest.raises(SettingError, match="by_site: intercept or all"):
        LINEAR.configure({"site_effects": True})


def test_with_two_sites_tau_is_nearly_its_prior_and_the_fit_says_so():
    parts = simulated((30, 30), 0.0, 1)
    parts[1] = LabelledTable(parts[1].x, parts[1].y + 1.0)
    ours = fit(LINEAR, parts, by_site="intercept")
    assert any("2 sites say little about how sites differ" in one for one in ours.cautions())
    assert 0.4 < float(ours.shares @ ours.tau[:, 0]) < 1.4  # of the prior 0.8


@pytest.mark.parametrize("method", [LINEAR, LOGISTIC], ids=["linear", "logistic"])
def test_a_site_with_few_rows_takes_no_part_and_its_rows_enter_no_sum(method):
    parts = yes_or_no((40, 60, 30, 4), 0.8, 0.0, 1)
    ours, without = (fit(method, p, by_site="intercept") for p in (parts, parts[:3]))
    assert (ours.sites, ours.rows) == (3, 130)
    assert_allclose(ours.coefficients, without.coefficients, rtol=1e-10)
    assert any(one.endswith("fewer than 5 records (min_cell): 1") for one in ours.cautions())


def test_with_effects_of_all_coefficients_a_site_with_a_rare_level_takes_no_part():
    """Its cross-products, which can be solved for, have the row of its one patient."""
    rng = np.random.default_rng(1)
    parts = []
    for n, ones in ((50, 20), (60, 25), (45, 15), (40, 1)):
        level = np.zeros(n)
        level[:ones] = 1.0
        x = np.column_stack([level, rng.normal(size=n)])
        parts.append(LabelledTable(x, x.sum(axis=1) + rng.normal(size=n)))
    assert fit(LINEAR, parts, by_site="all").sites == 3
    assert fit(LINEAR, parts, by_site="intercept").sites == 4
