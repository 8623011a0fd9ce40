"""Posterior predictive checks are those of the pooled table, and find what a model lacks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit
from scipy.stats import skew

from algorithms.mixed_cases import simulated
from algorithms.test_bayes_glm import fit
from fedcohort.algorithms.bayes_glm import LINEAR, LOGISTIC, checks
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Refused, Task
from fedcohort.protocol.step import Site


def rows_of(model):
    return {row["name"]: row for row in model.parameters(np.zeros(0)) if "share_above" in row}


def between(parts):
    y = np.concatenate([p.y for p in parts])
    return np.sqrt(sum(len(p.y) * (p.y.mean() - y.mean()) ** 2 for p in parts) / len(y))


def test_what_is_seen_of_a_value_is_that_of_the_pooled_table():
    parts = simulated((30, 25, 40), 0.8, 1)
    y = np.concatenate([p.y for p in parts])
    for by_site in ("none", "intercept"):
        found = rows_of(fit(LINEAR, parts, predictive_draws=20, by_site=by_site))
        seen = [row["value"] for row in found.values()]
        assert_allclose(seen, [y.mean(), y.std(), skew(y), between(parts)], rtol=1e-9)


def test_what_is_seen_of_a_class_is_that_of_the_pooled_table():
    rng = np.random.default_rng(1)
    parts = []
    for n in (60, 50, 40):
        x = rng.normal(size=(n, 2))
        parts.append(LabelledTable(x, (rng.random(n) < expit(x[:, 0])).astype(float)))
    found = rows_of(fit(LOGISTIC, parts, predictive_draws=20))
    y = np.concatenate([p.y for p in parts])
    share, _, sites = (row["value"] for row in found.values())
    assert_allclose([share, sites], [y.mean(), between(parts)], rtol=1e-9)


def test_sites_that_differ_are_found_and_effects_of_sites_explain_them():
    """Over seeds 0 to 19, p without effects of sites is at most 0.01, with them 0.2 to 0.8."""
    parts = simulated((60, 50, 40, 70, 55), 1.0, 1)
    without, within = (
        rows_of(fit(LINEAR, parts, predictive_draws=200, by_site=b))[checks.BETWEEN]["share_above"]
        for b in ("none", "intercept")
    )
    assert without < 0.05 < within < 0.95


def test_a_skewed_residual_is_found_and_a_normal_one_is_not():
    """Over seeds 0 to 19, p is at most 0.005 for an exponential error, 0.005 to 0.985 for a normal
    one, of which five have a median in between."""

    def p_of(seed, draw):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(200, 2))
        y = 0.3 * x[:, 0] + draw(rng)
        parts = [LabelledTable(x[k::2], y[k::2]) for k in (0, 1)]
        return rows_of(fit(LINEAR, parts, predictive_draws=200))["skewness"]["share_above"]

    assert p_of(0, lambda rng: rng.exponential(size=200)) < 0.02
    assert 0.05 < np.median([p_of(k, lambda rng: rng.normal(size=200)) for k in range(5)]) < 0.95


def test_a_u_shaped_risk_is_found_and_a_logistic_one_is_not():
    """Over seeds 0 to 19, p is 0 for a U, and 0.14 to 1 without, where p near 1 is where the square
    of x is significant in a logistic regression too."""

    def p_of(seed, f):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(400, 1))
        y = (rng.random(400) < expit(f(x[:, 0]))).astype(float)
        parts = [LabelledTable(x[k::2], y[k::2]) for k in (0, 1)]
        found = rows_of(fit(LOGISTIC, parts, predictive_draws=200, tol=1e-4))
        return found["mean square of the risk score in class 1"]["share_above"]

    assert p_of(0, lambda x: 2.5 * x**2 + x - 2.5) < 0.01
    assert 0.05 < np.median([p_of(k, lambda x: x) for k in range(5)]) < 0.95


def test_without_draws_nothing_is_asked():
    assert rows_of(fit(LINEAR, simulated((30, 25), 0.5, 1))) == {}


@pytest.mark.parametrize("change", [
    {"draws": np.zeros((1001, 3))}, {"draws": np.zeros((0, 3))}, {"draws": np.zeros((4, 2))},
    {"draws": np.full((4, 3), np.nan)}, {"unit": 0.0}, {"residual": np.zeros(4)},
    {"residual": np.zeros(0)}, {"residual": np.ones(3)}, {"linear": False}, {"number": 3},
    {"scale": np.zeros(2)}, {"tau": np.full((4, 1), -1.0)}, {"centre": np.full(3, np.inf)},
], ids=str)  # fmt: skip
def test_a_site_refuses_draws_that_no_honest_fit_has(change):
    part = simulated((20,), 0.5, 1)[0]
    asked = {
        "origin": np.zeros(3), "centre": np.zeros(3), "scale": np.ones(2), "unit": 1.0,
        "draws": np.zeros((4, 3)), "residual": np.ones(4), "tau": np.zeros((4, 0)),
        "slopes": False, "least": 5, "linear": True, "number": 4,
    } | change  # fmt: skip
    with pytest.raises(Refused, match="site 's' draws no outcomes"):
        checks.replicate.run(Site(name="s", data=part, state=None, entropy=(0,)), **asked)


def test_an_approved_study_pins_the_number_of_draws_and_the_kind_of_outcome():
    """Drawn classes of large coefficients are numbers of rows beyond a plane, which no regression
    tells."""
    for method, linear in ((LINEAR, True), (LOGISTIC, False)):
        task = Task(kind=method.tasks[0], features=("a", "b"), outcome=method.outcomes[0])
        rules = method.bounds(method.configure({"predictive_draws": 20}), task)
        assert (tuple(rules["linear"]), tuple(rules["number"])) == ((linear,), (20,))
