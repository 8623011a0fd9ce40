"""Families and links equal statsmodels'; probabilities near 0 and 1 lose nothing to rounding."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose

from algorithms.glm_cases import LAWS, LINKS, PAIRS, simulated
from fedcohort.numerics.families import FAMILIES, Family, irls_terms

every_pair = pytest.mark.parametrize(("family", "link"), PAIRS)


def problem(family, link, seed=3):
    """Return the family, its records as arguments, γ, and statsmodels' model of them."""
    table = simulated(family, link, n=90, seed=seed, offset=True, weights=True)
    x = table.x[:, :-1] / [1e4, 1, 1]
    z = np.column_stack([np.ones(90), x])
    shift = table.x[:, -1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = sm.GLM(
            table.y, z, family=LAWS[family](link=LINKS[link]()), offset=shift,
            var_weights=table.weight,
        )  # fmt: skip
    gamma = np.array([2.5 if link in ("sqrt", "inverse", "identity") else 0.1, 0.2, -0.1, 0.2])
    return Family(family, link), (z, table.y, shift, table.weight), gamma, theirs


@every_pair
def test_deviance_pearson_and_expected_information_equal_statsmodels(family, link):
    law, records, gamma, theirs = problem(family, link)
    z, y, shift, w = records
    found = irls_terms(law, *records, gamma)
    mu = law.inverse(z @ gamma + shift)
    assert_allclose(found.deviance, theirs.family.deviance(y, mu, var_weights=w), rtol=1e-10)
    variance = theirs.family.variance(mu)
    assert_allclose(found.pearson, (w * (y - mu) ** 2 / variance).sum(), rtol=1e-10)
    expected = -theirs.hessian(gamma, scale=1, observed=False)
    assert_allclose(found.information, expected, rtol=1e-8)


@every_pair
def test_the_score_and_observed_information_are_derivatives_of_the_deviance(family, link):
    law, records, gamma, _ = problem(family, link)
    h = 1e-5 * np.eye(len(gamma))
    up, down = ([irls_terms(law, *records, gamma + s * e) for e in h] for s in (1, -1))
    here = irls_terms(law, *records, gamma)
    slope = [(a.deviance - b.deviance) / -4e-5 for a, b in zip(up, down, strict=True)]
    assert_allclose(here.score, slope, rtol=1e-6, atol=1e-5)
    bend = np.array([(a.score - b.score) / -2e-5 for a, b in zip(up, down, strict=True)])
    assert (here.observed.size == 0) == law.canonical
    curvature = here.information if law.canonical else here.observed
    assert_allclose(curvature, bend, rtol=1e-6, atol=1e-5)


@every_pair
@pytest.mark.parametrize("dispersion", [0.4, 1.0])
def test_the_log_likelihood_equals_statsmodels(family, link, dispersion):
    law, records, gamma, theirs = problem(family, link)
    z, y, shift, w = records
    phi = dispersion if law.dispersed else 1.0
    ours = law.saturated(y, w, phi) - irls_terms(law, *records, gamma).deviance / (2 * phi)
    mu = law.inverse(z @ gamma + shift)
    assert_allclose(ours, theirs.loglike_mu(mu, scale=phi), rtol=1e-9)


@every_pair
def test_the_link_is_the_inverse_of_its_inverse(family, link):
    law = Family(family, link)
    mean = {"binomial": 0.37}.get(family, 2.7)
    assert_allclose(law.inverse(np.array([law.predictor(mean)])), mean, rtol=1e-12)


@pytest.mark.parametrize("link", FAMILIES["binomial"])
@pytest.mark.parametrize("far", [-40.0, -9.0, 9.0, 40.0, 900.0])
def test_certain_predictions_lose_nothing_to_rounding(link, far):
    # log(1 − μ) of a logit is −η for large η; a probit's and a cloglog's are larger still
    law, one = Family("binomial", link), np.ones((1, 1))
    for y in (0.0, 1.0):
        found = irls_terms(law, one, np.array([y]), 0.0, 1.0, np.array([far]))
        assert np.isfinite([found.deviance, *found.score, *found.information.ravel()]).all()
        if link == "logit":
            assert_allclose(found.deviance, 2 * np.logaddexp(0, far if y == 0 else -far))


@pytest.mark.parametrize(("family", "link"), [("poisson", "sqrt"), ("gamma", "inverse")])
def test_an_impossible_mean_has_an_infinite_deviance(family, link):
    found = irls_terms(Family(family, link), np.ones((2, 1)), np.ones(2), 0.0, 1.0, -np.ones(1))
    assert found.deviance == np.inf


@pytest.mark.parametrize(("family", "link"), [("gamma", "logit"), ("weibull", "log")])
def test_an_unknown_pair_is_refused(family, link):
    with pytest.raises(ValueError, match="there is no family"):
        Family(family, link)
