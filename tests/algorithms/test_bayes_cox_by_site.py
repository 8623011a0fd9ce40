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

from algorithms.cox_cases import split
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


@pytest.mark.parametrize("sizes", [(40, 60, 30, 50, 35, 45), (25,) * 8], ids=["six", "eight"])
def test_mean_sd_and_tau_are_within_2_percent_of_quadrature(sizes):
    parts = simulated(sizes, 0.5, 1)
    dense = Dense(parts, points=81, taus=30)
    mean, sd, tau = standard(fit(parts, by_site="all"), dense)
    assert np.abs((mean - dense.mean) / dense.sds).max() < 0.02
    assert_allclose(sd, dense.sds, rtol=0.03)
    assert_allclose(tau, dense.tau, rtol=0.04)
