"""One table's regression: lifelines with entries and weights, and what refuses to be fitted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from lifelines import CoxPHFitter
from numpy.testing import assert_allclose

from fedcohort.algorithms.meta_analysis import sitefit
from fedcohort.algorithms.meta_analysis.sitefit import Records, cox_fit, family_fit, too_little
from fedcohort.numerics.coxph import Extra
from fedcohort.numerics.families import Family


def survival(seed, n=120):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(50, 10, n), rng.normal(size=n)])
    time = rng.exponential(1 / np.exp(0.03 * (x[:, 0] - 50) + 0.5 * x[:, 1])) + 0.1
    return x, time, rng.random(n) < 0.7


def test_a_cox_model_with_late_entry_is_lifelines():
    x, time, event = survival(0)
    entry = time * np.random.default_rng(1).uniform(0, 0.6, len(time))
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(t=time, e=event, s=entry)
    fit = CoxPHFitter().fit(frame, "t", "e", entry_col="s", fit_options={"precision": 1e-12})
    ours = cox_fit(x, time, event, Extra(entry=entry), "efron", 1e-9, 50)
    assert_allclose(ours.coefficients, fit.params_, rtol=1e-6)
    assert_allclose(ours.covariance, fit.variance_matrix_, rtol=1e-5, atol=1e-12)


def test_a_weight_of_two_counts_a_record_twice():
    x, time, event = survival(2)
    weight = np.random.default_rng(3).integers(1, 4, len(time))
    twice = np.repeat(np.arange(len(time)), weight)
    ours = cox_fit(x, time, event, Extra(weight=weight.astype(float)), "breslow", 1e-9, 50)
    plain = cox_fit(x[twice], time[twice], event[twice], Extra(), "breslow", 1e-9, 50)
    assert_allclose(ours.coefficients, plain.coefficients, rtol=1e-8)
    assert_allclose(ours.covariance, plain.covariance, rtol=1e-7, atol=1e-14)


def test_an_offset_takes_the_effect_that_is_known():
    x, time, event = survival(4)
    whole = cox_fit(x, time, event, Extra(), "efron", 1e-9, 50)
    known = whole.coefficients[0] * x[:, 0]
    part = cox_fit(x[:, 1:], time, event, Extra(offset=known), "efron", 1e-9, 50)
    assert_allclose(part.coefficients, whole.coefficients[1:], rtol=1e-7)


@pytest.mark.filterwarnings("ignore:The .* link function")
@pytest.mark.parametrize(("name", "link"), [("poisson", "sqrt"), ("gamma", "inverse")])
def test_links_with_bounds_are_statsmodels(name, link):
    rng = np.random.default_rng(5)
    x = rng.uniform(0, 1, (150, 2))
    eta = 1 + x @ [0.7, 0.4]
    links = sm.families.links
    if name == "poisson":
        y, kind = rng.poisson(eta**2).astype(float), sm.families.Poisson(links.Sqrt())
    else:
        y, kind = rng.gamma(3, 1 / eta / 3), sm.families.Gamma(links.InversePower())
    theirs = sm.GLM(y, sm.add_constant(x), family=kind).fit(tol=1e-13, maxiter=200)
    one = Records(x, y, np.zeros(150), np.ones(150))
    ours = family_fit(Family(name, link), one, 1e-10, 50)
    assert ours.reason == sitefit.FINE
    assert_allclose(ours.coefficients, theirs.params, rtol=1e-6)
    assert_allclose(np.sqrt(np.diag(ours.covariance)), theirs.bse, rtol=1e-6)


def test_each_rule_about_few_records_has_its_own_reason():
    x = np.random.default_rng(6).normal(size=(20, 2))
    assert too_little(x, 20, 20, 3, 5) is None
    assert too_little(x, 20, 20, 3, 17) is None
    for marked, others, least, reason in (
        (20, 20, 18, sitefit.FEW_RECORDS),
        (4, 16, 5, sitefit.FEW_EVENTS),
        (16, 4, 5, sitefit.FEW_EVENTS),
    ):
        found = too_little(x, marked, others, 3, least)
        assert found is not None
        assert found.reason == reason
        assert not found.blame.any()
        assert not found.coefficients.any()
    for few in (4, 5):
        x[:, 1] = np.arange(20) < few
        found = too_little(x, 20, 20, 3, 5)
        assert (found is None) == (few == 5)
    x[:, 1] = 3.0
    found = too_little(x, 20, 20, 3, 1)
    assert found is not None
    assert (found.reason, found.blame.tolist()) == (sitefit.RARE, [False, True])
