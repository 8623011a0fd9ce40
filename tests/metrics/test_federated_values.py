"""Metrics of classes and values over sites are those of the pooled records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.arrays import Array
from fedcohort.metrics import classification, regression
from fedcohort.metrics.calibration import calibration_slope, solve_slope
from fedcohort.metrics.sums import values as f
from fedcohort.metrics.sums import within_sites
from fedcohort.metrics.survival.concordance import harrell
from fedcohort.protocol.host import Host
from fedcohort.runtime.local import local


@dataclass
class Rows:
    """What the steps look at."""

    y: Array
    f: Array
    lost: int = 0


def over(y, p, n_sites, seed, steps=(*f.STEPS, *within_sites.STEPS)):
    where = np.random.default_rng(seed).integers(0, n_sites, len(y))
    return local(
        [Host(f"s{s}", Rows(y[where == s], p[where == s]), steps) for s in range(n_sites + 1)]
    )


splits = {"seed": st.integers(0, 2**16), "n_sites": st.integers(1, 5)}


@given(**splits)
@settings(max_examples=20, deadline=None)
def test_metrics_of_probabilities_are_those_of_the_pooled_rows(seed, n_sites):
    rng = np.random.default_rng(seed)
    p = rng.random(150).round(3)
    y = (rng.random(150) < 0.3 + 0.4 * p).astype(float)
    fed = over(y, p, n_sites, seed)
    got = f.federated_labels(fed)
    for name, value in got.items():
        assert value == pytest.approx(float(classification.METRICS[name](y, p, None)), rel=1e-7)
    edges = (np.unique(p)[1:] + np.unique(p)[:-1]) / 2
    assert f.federated_auc(fed, edges=edges).auc == pytest.approx(float(classification.auc(y, p)))


def test_no_slope_is_given_where_predictions_part_the_classes():
    p = np.linspace(0.01, 0.99, 60)
    for y in ((p > 0.5).astype(float), np.zeros(60)):
        assert np.isnan(classification.calibration_slope(y, p))
        assert np.isnan(f.federated_labels(over(y, p, 3, 0))["calibration_slope"])


@given(**splits)
@settings(max_examples=20, deadline=None)
def test_metrics_of_values_are_those_of_the_pooled_rows(seed, n_sites):
    rng = np.random.default_rng(seed)
    said = 1e3 + rng.gamma(3.0, 2.0, 90)
    y = rng.poisson(said).astype(float)
    got = f.federated_regression(over(y, said, n_sites, seed))
    for name, metric in regression.METRICS.items():
        assert got[name] == pytest.approx(float(metric(y, said, None)), rel=1e-6), name


def test_predictions_that_are_no_numbers_give_no_metric():
    rows = Rows(np.ones(9), np.zeros(9), lost=2)
    fed = local([Host("a", rows, f.STEPS)])
    assert np.isnan(list(f.federated_regression(fed).values())).all()
    assert np.isnan(list(f.federated_labels(fed).values())).all()


@dataclass
class Records:
    """What the steps within sites look at."""

    risk: Array
    time: Array
    event: Array


@given(seed=st.integers(0, 2**16))
@settings(max_examples=15, deadline=None)
def test_with_one_site_ranks_within_sites_are_those_of_its_records(seed):
    rng = np.random.default_rng(seed)
    risk = rng.normal(size=80).round(2)
    time = np.ceil(rng.exponential(9 * np.exp(-risk)))
    event = rng.random(80) < 0.7
    fed = local([Host("a", Records(risk, time, event), within_sites.STEPS)])
    one = np.array([1.0])
    s = fed.sum(within_sites.sum_own_pairs, known=one, followed=one, tau=np.inf)
    assert float(s.right) / float(s.pairs) == pytest.approx(harrell(risk, time, event))
    assert float(s.uno_right) == pytest.approx(float(s.right))

    def score_at(b):
        terms = fed.sum(within_sites.sum_own_slope, centre=risk.mean(), spread=risk.std(), b=b)
        return float(terms.score), float(terms.information)

    want = calibration_slope(risk, time, event)
    np.testing.assert_allclose(solve_slope(score_at, float(risk.std())), want, rtol=1e-7)
