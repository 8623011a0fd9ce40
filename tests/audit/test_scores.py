"""Scores of membership: the AUC and its interval, the likelihoods, the ratio."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.metrics import log_loss, roc_auc_score

import fedcohort as fc
import several
from fedcohort.audit.scores import likelihood_ratios, scores
from fedcohort.metrics.membership import delong


@given(
    m=st.integers(2, 12), n=st.integers(2, 12), seed=st.integers(0, 2**16), levels=st.integers(2, 9)
)
def test_auc_and_its_variance_are_those_of_all_pairs(m, n, seed, levels):
    """DeLong's placements, computed pair by pair; ties are common here."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(levels, size=m) * 1.0, rng.integers(levels, size=n) * 1.0
    wins = (a[:, None] > b[None, :]) + 0.5 * (a[:, None] == b[None, :])
    se = np.sqrt(wins.mean(1).var(ddof=1) / m + wins.mean(0).var(ddof=1) / n)
    found = delong(a, b)
    assert found.value == pytest.approx(roc_auc_score([1] * m + [0] * n, np.concatenate([a, b])))
    assert found.high == pytest.approx(min(1, wins.mean() + 1.959964 * se), abs=1e-6)
    assert found.low == pytest.approx(max(0, wins.mean() - 1.959964 * se), abs=1e-6)


def test_interval_covers_the_true_auc_about_95_times_in_100():
    """Normal scores a distance 0.5 apart: AUC = Φ(0.5/√2)."""
    truth = stats.norm.cdf(0.5 / np.sqrt(2))
    rng = np.random.default_rng(3)
    runs = [delong(rng.normal(0.5, 1, 80), rng.normal(0, 1, 60)) for _ in range(400)]
    assert 0.92 < np.mean([r.low <= truth <= r.high for r in runs]) < 0.98


def frame(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return pd.DataFrame(
        {
            "a": x[:, 0],
            "b": x[:, 1],
            "site": rng.choice(["n", "s", "w"], n),
            "y": 2.0 * x[:, 0] + rng.normal(size=n),
            "ill": np.where(rng.random(n) < 1 / (1 + np.exp(-x[:, 1])), "yes", "no"),
        }
    )


def test_scores_of_values_are_minus_the_squared_errors():
    table = frame(150, 1)
    fed = fc.simulate(table.drop(columns="ill"), sites="site", outcome=fc.Continuous("y"), seed=0)
    fit = fc.fit("ridge", fed, penalty=0.01)
    said = fit.predict(table)
    run = fit.run if hasattr(fit, "run") else fit._run
    found = scores(run.model, run.design, table.drop(columns="ill"))
    assert_allclose(found, -((table["y"] - said) ** 2), rtol=1e-9)


def test_scores_of_several_classes_add_to_minus_the_log_loss():
    table = several.patients(150)
    with several.installed():
        fit = fc.fit("nearest", fc.simulate(table, sites="site", outcome=fc.Category("grade")))
    found = scores(fit.model, fit.parts.design, table)
    want = log_loss(table["grade"], fit.predict(table), labels=list(fit.classes))
    assert_allclose(-found.mean(), want)


def test_ratio_tells_rows_whose_score_moves_when_they_are_in():
    rng = np.random.default_rng(0)
    inside = rng.random((24, 200)) < 0.5
    base = 2.0 * rng.normal(size=200)
    shadows = base + 2.0 * inside + 0.3 * rng.normal(size=inside.shape)
    truth = np.arange(200) < 100
    target = base + 2.0 * truth + 0.3 * rng.normal(size=200)
    ratio = likelihood_ratios(target, shadows, inside)
    assert delong(ratio[truth], ratio[~truth]).value > 0.99
    assert delong(target[truth], target[~truth]).value < 0.85  # Φ(2/√(2 · 4.09)) = 0.757


def test_ratio_of_a_row_that_is_always_in_is_none():
    inside = np.ones((4, 3), bool)
    assert_allclose(likelihood_ratios(np.zeros(3), np.zeros((4, 3)), inside), 0.0)
