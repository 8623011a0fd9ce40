"""`bayes_cox` with effects of sites has the posterior that quadrature gives.

`Dense` has each site's partial likelihood, by its definition, on a grid of its two coefficients;
its product with N(γ, τ² I) is integrated by matrix products, and all of (γ, τ) is summed. It shares
no line with the code under test.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.interpolate import RectBivariateSpline
from scipy.special import logsumexp

from algorithms.cox_cases import Overheard
from algorithms.test_bayes_cox import fit, log_likelihoods
from fedcohort.algorithms.cox import BAYES, site_steps
from fedcohort.data.tables import SurvivalTable
from fedcohort.protocol import NothingToLearn, Refused, SettingError, Task
from fedcohort.protocol.host import Host
from fedcohort.protocol.step import Site
from fedcohort.runtime.local import local


def simulated(sizes, tau, seed, beta=(0.6, -0.4)):
    """Sites with their own baseline hazards and coefficients, about a third censored."""
    rng = np.random.default_rng(seed)
    parts = []
    for n in sizes:
        x = rng.normal(size=(n, len(beta)))
        own = np.array(beta) + tau * rng.normal(size=len(beta))
        death = rng.exponential(np.exp(-x @ own) * rng.uniform(0.5, 2))
        leave = rng.exponential(1.5, size=n)
        parts.append(SurvivalTable(x, np.minimum(death, leave), death <= leave))
    return parts


class Dense:
    """Moments of γ of standardised covariates and of τ, by quadrature over all of them."""

    def __init__(self, parts, scale=1.0, prior=2.5, points=121, end=4.0, taus=60):
        x = np.vstack([p.x for p in parts])
        self.sd = x.std(axis=0)
        g, step = np.linspace(-end, end, points, retstep=True)
        one, two = np.meshgrid(g, g, indexing="ij")
        at = np.column_stack([one.ravel(), two.ravel()]) / self.sd
        likelihoods = [log_likelihoods(p, at).reshape(points, points) for p in parts]
        # midpoints of equal shares of the prior of τ, which has nearly all below 4 s
        tau = (np.arange(taus) + 0.5) * 4.0 * scale / taus
        log_prior = -((tau / scale) ** 2) / 2
        u, w = np.polynomial.hermite_e.hermegauss(9)
        every = []
        for t in tau:
            total = -(one**2 + two**2) / 2 / prior**2
            for one_site in likelihoods:
                if t > 2.5 * step:
                    away = np.exp(-(((g[:, None] - g) / t) ** 2) / 2) * step / t
                    top = one_site.max()
                    inside = away @ np.exp(one_site - top) @ away.T / 2 / math.pi
                    total = total + top + np.log(np.maximum(inside, 1e-300))
                else:  # narrower than the grid: Gauss and Hermite's rule on a spline
                    spline = RectBivariateSpline(g, g, one_site)
                    terms = [
                        math.log(a * b / w.sum() ** 2) + spline(g + t * i, g + t * j)
                        for i, a in zip(u, w, strict=True)
                        for j, b in zip(u, w, strict=True)
                    ]
                    total = total + logsumexp(terms, axis=0)
            every.append(total)
        logs = np.array(every) + log_prior[:, None, None]
        weight = np.exp(logs - logs.max())
        weight /= weight.sum()
        self.tau = float(np.einsum("t,tij->", tau, weight))
        common = weight.sum(axis=0)
        mean = np.array([(common * one).sum(), (common * two).sum()])
        square = np.array([(common * one**2).sum(), (common * two**2).sum()])
        self.mean, self.sds = mean, np.sqrt(square - mean**2)
        below = np.cumsum(common.sum(axis=1))
        self.ends = np.interp([0.025, 0.975], below, g + step / 2)


def standard(model, dense):
    """Means and standard deviations of standardised coefficients, and the mean of τ."""
    found = {r["name"]: r for r in model.parameters(np.zeros(0))}
    tau = found["sd between sites of coefficients, per SD of the covariate (log hazard ratio)"]
    return model.coefficients * dense.sd, model.standard_errors * dense.sd, tau["value"]


class OneCovariate:
    """The same of one covariate, with each site's own effect; also the moments of these."""

    def __init__(self, parts, scale=1.0, prior=2.5):
        self.sd = np.vstack([p.x for p in parts]).std(axis=0)
        g = np.linspace(-8, 8, 321)
        likelihoods = [log_likelihoods(p, g[:, None] / self.sd) for p in parts]
        likelihoods = [np.exp(one - one.max()) for one in likelihoods]
        tau = (np.arange(60) + 0.5) * 4 * scale / 60
        logs, first, second = [], [], []
        u = g[:, None] - g  # own less common
        for t in tau:
            law = np.exp(-((u / t) ** 2) / 2)
            law /= law[:, len(g) // 2].sum()
            inside = np.array([one @ law for one in likelihoods]) + 1e-200
            logs.append(np.log(inside).sum(axis=0) - (g / prior) ** 2 / 2 - (t / scale) ** 2 / 2)
            first.append([one @ (u * law) for one in likelihoods] / inside)
            second.append([one @ (u**2 * law) for one in likelihoods] / inside)
        weight = np.exp(np.array(logs) - np.max(logs))
        weight /= weight.sum()
        self.tau = float(tau @ weight.sum(axis=1))
        self.mean = float(weight.sum(axis=0) @ g)
        self.sds = math.sqrt(float(weight.sum(axis=0) @ g**2) - self.mean**2)
        self.own = np.einsum("tg,tkg->k", weight, first)
        self.own_sds = np.sqrt(np.einsum("tg,tkg->k", weight, second) - self.own**2)


def test_of_one_covariate_all_moments_are_near_those_of_quadrature():
    """Over seeds 0 to 19 means are apart by at most 0.0016 standard deviations, standard deviations
    by 0.7 %, the mean of τ by 1.0 %; sites' own effects by 0.043 and 1.4 %.
    """
    parts = simulated((40, 60, 30, 50, 25), 0.5, 1, (0.6,))
    dense = OneCovariate(parts)
    ours = fit(parts, by_site="all", site_effects=True)
    mean, sd, tau = standard(ours, dense)
    assert_allclose(mean[0], dense.mean, atol=0.01 * dense.sds, rtol=0)
    assert_allclose(sd[0], dense.sds, rtol=0.02)
    assert_allclose(tau, dense.tau, rtol=0.03)
    own = [r for r in ours.parameters(np.zeros(0)) if r["name"].startswith("effect of")]
    values, errors = (np.array([r[key] for r in own]) for key in ("value", "standard_error"))
    assert np.abs((values - dense.own) / dense.own_sds).max() < 0.1
    assert_allclose(errors, dense.own_sds, rtol=0.05)


@pytest.mark.parametrize("sizes", [(40, 60, 30, 50, 35, 45), (25,) * 8], ids=["six", "eight"])
def test_mean_sd_and_tau_are_within_2_percent_of_quadrature(sizes):
    """Six seeds: means by at most 0.008 standard deviations, sds by 1.6 %, τ by 2.5 %."""
    wrong = []
    for seed in range(3):
        parts = simulated(sizes, 0.5, seed)
        dense = Dense(parts)
        mean, sd, tau = standard(fit(parts, by_site="all"), dense)
        wrong.append([*(mean - dense.mean) / dense.sds, *np.log(sd / dense.sds)])
        assert_allclose(tau, dense.tau, rtol=0.05)
    assert np.abs(wrong).max() < 0.03
    assert np.abs(np.mean(wrong, axis=0)).max() < 0.02


def test_with_a_tau_that_must_be_0_the_posterior_is_that_of_own_baselines_alone():
    """But for the mean, which is that of the mode there."""
    parts = simulated((60, 50, 70), 0.0, 3)
    ours = fit(parts, by_site="all", site_scale=1e-4)
    plain = fit(parts, by_site="intercept")
    assert_allclose(ours.standard_errors, plain.standard_errors, rtol=1e-3)
    away = (ours.coefficients - plain.coefficients) / plain.standard_errors
    assert np.abs(away).max() < 0.1
    assert_allclose(ours.log_evidence, plain.log_evidence, atol=0.01)


def test_an_own_intercept_is_an_own_baseline_hazard():
    parts = simulated((60, 50, 70), 0.3, 3)
    one, other = fit(parts, by_site="intercept"), fit(parts, baseline="stratified")
    assert (one.coefficients == other.coefficients).all()
    assert (one.ph_chi2 == other.ph_chi2).all()


def test_the_order_of_sites_does_not_matter():
    parts = simulated((40, 30, 50), 0.5, 1)
    one, other = (fit(p, by_site="all") for p in (parts, parts[::-1]))
    assert_allclose(other.coefficients, one.coefficients, rtol=1e-8)
    assert_allclose(other.shares, one.shares, rtol=1e-6, atol=1e-12)


def test_a_weight_of_two_counts_as_two_records():
    parts = simulated((40, 30, 50), 0.5, 1)
    twice = [SurvivalTable(*(np.repeat(v, 2, axis=0) for v in p[:3])) for p in parts]
    heavy = [p._replace(weight=np.full(len(p.x), 2.0)) for p in parts]
    one, other = (fit(p, by_site="all", ties="breslow", time_grid="exact") for p in (twice, heavy))
    # the points of τ follow from the number of deaths; integrals over them agree
    assert_allclose(other.coefficients, one.coefficients, rtol=1e-4)
    assert_allclose(other.standard_errors, one.standard_errors, rtol=1e-3)


def test_a_constant_offset_and_strata_are_taken_as_by_cox():
    parts = simulated((60, 50, 70), 0.3, 3)
    plain = fit(parts, by_site="all")
    shifted = [p._replace(x=np.column_stack([p.x, np.full(len(p.x), 0.7)])) for p in parts]
    ours = fit(shifted, by_site="all", last_is_offset=True, offset="x2")
    assert_allclose(ours.coefficients, plain.coefficients, rtol=1e-6)
    # one site of two strata is two baselines with one effect
    levels = [p._replace(stratum=np.arange(len(p.x)) % 2) for p in parts]
    assert fit(levels, by_site="all", strata="s").sites == 3


def test_an_interval_of_a_new_site_is_that_of_draws_of_its_effects():
    parts, rng = simulated((40, 30, 50), 0.8, 1), np.random.default_rng(0)
    ours = fit(parts, by_site="all")
    at = rng.choice(len(ours.shares), 100_000, p=ours.shares)
    roots = np.linalg.cholesky(ours.scales)[at]
    draws = ours.means[at] + np.einsum("nij,nj->ni", roots, rng.normal(size=(len(at), 2)))
    draws += ours.tau[at] * rng.normal(size=(len(at), 2))
    x = parts[0].x[:3]
    found = np.quantile((x - ours.centre) @ draws.T, [0.05, 0.95], axis=1).T
    assert_allclose(ours.intervals(x, 0.9), found, rtol=0.05)
    plain = fit(parts, by_site="intercept")
    assert (np.diff(ours.intervals(x, 0.9)) > 1.2 * np.diff(plain.intervals(x, 0.9))).all()


def test_a_saved_model_is_the_same():
    parts = simulated((40, 30, 50), 0.8, 1)
    ours = fit(parts, by_site="all", site_effects=True)
    again = BAYES.model.restore(ours.arrays(), ours.meta())
    assert type(again) is type(ours)
    x = parts[0].x
    assert (again.intervals(x, 0.9) == ours.intervals(x, 0.9)).all()
    assert again.parameters(np.zeros(0)) == ours.parameters(np.zeros(0))
    assert again.summary() == ours.summary()
    assert again.cautions() == ours.cautions()
    plain = fit(parts)
    assert type(BAYES.model.restore(plain.arrays(), plain.meta())) is type(plain)


# who takes part --------------------------------------------------------------------------


def censored(part, deaths):
    """The site with only its first deaths."""
    return part._replace(event=part.event & (np.cumsum(part.event) <= deaths))


def test_one_site_tells_nothing_of_tau_and_the_fit_says_so():
    parts = simulated((40, 30, 50), 0.5, 1)
    few = [parts[0], censored(parts[1], 4), censored(parts[2], 3)]
    with pytest.raises(NothingToLearn, match="1 of 3 sites with records can take part") as error:
        fit(few, by_site="all")
    assert "\n" not in str(error.value)
    with pytest.raises(SettingError, match="1 site tells nothing about how sites differ"):
        BAYES.configure({"by_site": "all"}).check_sites(1)
    for wrong in ({"site_effects": True}, {"site_effects": True, "by_site": "intercept"}):
        with pytest.raises(SettingError, match="false, or by_site"):
            BAYES.configure(wrong)


def test_a_site_of_few_deaths_takes_no_part_and_a_caution_says_so():
    parts = simulated((40, 60, 30, 50), 0.5, 1)
    ours = fit([*parts[:3], censored(parts[3], 4)], by_site="all")
    assert ours.sites == 3
    (said,) = ours.cautions()
    assert "3 sites say little about how sites differ" in said
    assert said.endswith("fewer than 5 records (min_cell): 1")


@pytest.mark.parametrize("what", ["level", "level of the dead", "weight", "offset", "rows"])
def test_a_site_whose_own_coefficients_tell_of_few_records_takes_no_part(what):
    part = simulated((60,), 0.5, 1)[0]
    assert site_steps.takes_part(part, 2, 5)
    few = np.flatnonzero(part.event)[:2]
    x = part.x.copy()
    if what == "level":
        x[:, 0] = 0.0
        x[few, 0] = 1.0
        part = part._replace(x=x)
    elif what == "level of the dead":
        x[:, 0] = 0.0
        x[np.r_[few, np.flatnonzero(~part.event)[:8]], 0] = 1.0
        part = part._replace(x=x)
    elif what == "rows":
        part = SurvivalTable(*(None if v is None else v[:6] for v in part))
        part = part._replace(event=np.ones(6, bool))
    else:
        odd = np.ones(60)
        odd[few] = 3.0
        more = {"weight": odd} if what == "weight" else {"x": np.column_stack([x, odd])}
        part = part._replace(**more)
    assert not site_steps.takes_part(part, 2, 5)


# what is revealed ------------------------------------------------------------------------


def test_replies_are_sums_and_effects_of_a_site_leave_only_where_asked():
    parts = simulated((60, 40, 50), 0.5, 1)
    for asked in (False, True):
        fed = local([Host(f"site-{k}", part, BAYES.steps) for k, part in enumerate(parts)])
        task = Task(kind="survival", features=("u", "v"))
        config = BAYES.configure({"by_site": "all", "site_effects": asked})
        BAYES.fit(fed, config, task)
        used = {}
        for line in map(json.loads, fed.ledger.lines):
            used.setdefault(line["verb"], set()).add(line["step"])
            assert all(n not in field["shape"] for n in (60, 40, 50, 150)
                       for field in line["fields"].values())  # fmt: skip
        assert used.get("gather", set()) == ({"own_ratios"} if asked else set())
        assert ("each site's own effects" in BAYES.reveals_with(config)) == asked
        assert {step for steps in used.values() for step in steps} <= {
            step.name for step in BAYES.asks(config)
        }


def test_a_sites_likelihood_is_seen_at_few_points():
    """Some three common ones and one for each point of τ, or two: not all in every round."""
    seen = {}
    fit(simulated((60, 40, 50), 0.5, 1), by_site="all", watch=lambda fed: Overheard(fed, seen))
    each = [len(question["points"]) for question, _ in seen["expand_sites"]]
    assert sum(each) <= 4 + 2 * max(each)
    assert len(seen["own_likelihood"]) == 2


HONEST = {
    "centre": np.zeros(2), "scale": np.ones(2), "ties": "efron", "least": 5,
    "spread": np.array([[0.0, 0.0], [0.5, 0.5]]), "points": np.zeros((2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("change", [
    {"spread": np.zeros((0, 2))}, {"spread": np.zeros((101, 2))}, {"spread": np.zeros((2, 3))},
    {"spread": -np.ones((2, 2))}, {"spread": np.full((2, 2), np.nan)}, {"scale": np.zeros(2)},
    {"points": np.zeros((3, 2))}, {"points": np.full((2, 2), np.inf)},
    {"around": np.full((2, 2), -1.0)},
], ids=str)  # fmt: skip
def test_a_site_refuses_a_question_that_no_honest_round_asks(change):
    site = Site(name="s", data=simulated((60,), 0.5, 1)[0], state=None, entropy=(0,))
    asked = HONEST | {"around": np.full((2, 2), 0.5)}
    site_steps.expand_sites.run(site, **asked)
    with pytest.raises(Refused, match="site 's' approximates no likelihood") as error:
        site_steps.expand_sites.run(site, **(asked | change))
    assert "\n" not in str(error.value)


def test_a_site_refuses_a_posterior_that_is_wider_than_its_records_allow():
    site = Site(name="s", data=simulated((60,), 0.5, 1)[0], state=None, entropy=(0,))
    with pytest.raises(Refused, match="wider than this site's records allow"):
        site_steps.skew_sites.run(site, **HONEST, covariance=np.stack([100.0 * np.eye(2)] * 2))
