"""Iterative imputation reaches the maximum of the observed-data likelihood, from sums alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats

from data_cases import federation, mixed, scatter
from fedcohort.data.outcome import Survival
from fedcohort.data.prepare import fit_design
from fedcohort.data.read.drafting import draft


def designed(frame, n_sites=3, seed=0, outcome=None, **options):
    dictionary = draft(frame, outcome)
    fed = federation(scatter(frame, n_sites, seed))
    return fit_design(fed, dictionary, outcome, scale="none", impute="iterative", **options)


def correlated(n, d, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d)) + np.eye(d)
    return pd.DataFrame(
        rng.normal(size=(n, d)) @ root + 3 * np.arange(d), columns=[f"x{j}" for j in range(d)]
    )


def test_a_monotone_pair_has_the_closed_form_of_anderson_1957():
    frame = correlated(80, 2, 0)
    frame.loc[50:, "x1"] = np.nan
    joint = designed(frame).joint
    x, (a, b) = frame["x0"], frame.iloc[:50].T.to_numpy()
    slope = np.cov(a, b, ddof=0)[0, 1] / a.var()
    mean = b.mean() + slope * (x.mean() - a.mean())
    residual = b.var() - slope**2 * a.var()
    variance = x.var(ddof=0)
    assert_allclose(joint.mean, [x.mean(), mean], rtol=1e-5)
    assert_allclose(
        joint.covariance,
        [[variance, slope * variance], [slope * variance, residual + slope**2 * variance]],
        rtol=1e-5,
    )


def test_the_observed_data_likelihood_has_its_maximum_there():
    frame = correlated(60, 3, 1).mask(np.random.default_rng(2).random((60, 3)) < 0.25)
    frame = frame.dropna(how="all").reset_index(drop=True)
    rows = frame.to_numpy()
    lower = np.tril_indices(3)

    def parts(theta):
        root = np.zeros((3, 3))
        root[lower] = theta[3:]
        return theta[:3], root @ root.T

    def loss(theta):
        mean, covariance = parts(theta)
        return -sum(
            stats.multivariate_normal.logpdf(
                r[s], mean[s], covariance[np.ix_(s, s)], allow_singular=True
            )
            for r, s in zip(rows, ~np.isnan(rows), strict=True)
        )

    start = np.r_[frame.mean(), np.diag(frame.std())[lower]]
    best = optimize.minimize(loss, start, method="BFGS", options={"gtol": 1e-4})
    mean, covariance = parts(best.x)
    joint = designed(frame).joint
    assert_allclose(joint.mean, mean, rtol=2e-3)
    assert_allclose(joint.covariance, covariance, rtol=5e-3, atol=5e-3)
    mine = np.linalg.cholesky(np.array(joint.covariance))[lower]
    assert loss(np.r_[joint.mean, mine]) <= best.fun + 1e-3


def test_without_missing_values_it_is_the_mean_and_the_covariance():
    frame = correlated(70, 4, 3)
    joint = designed(frame).joint
    assert_allclose(joint.mean, frame.mean(), rtol=1e-9)
    assert_allclose(joint.covariance, np.cov(frame.T, ddof=0), rtol=1e-6)
    assert joint.rounds == 2


def test_what_other_columns_determine_is_filled_with_that():
    frame = correlated(90, 2, 4)
    frame = frame.assign(total=frame["x0"] + 2 * frame["x1"])
    truth = frame["total"].copy()
    frame.loc[::3, "total"] = np.nan
    x = designed(frame).matrix(frame)
    assert_allclose(x[:, 2], truth, atol=1e-3 * truth.std())


def test_levels_and_binary_values_become_the_most_probable():
    rng = np.random.default_rng(5)
    grade = rng.choice(["low", "mid", "high"], 240, p=[0.2, 0.5, 0.3])
    size = pd.Series(grade).map({"low": 0.0, "mid": 5.0, "high": 10.0}) + rng.normal(size=240)
    frame = pd.DataFrame({"size": size, "grade": grade, "big": (size > 5).astype(float)})
    frame["other"] = (frame["grade"] == "high").astype(float) + rng.normal(size=240) / 10
    holes = frame.copy()
    holes.loc[:39, ["grade", "big"]] = None
    design = designed(holes)
    x = pd.DataFrame(design.matrix(holes), columns=design.features)
    assert set(np.unique(x[["grade=low", "grade=mid", "big"]])) == {0.0, 1.0}
    filled = np.select([x["grade=low"] == 1, x["grade=mid"] == 1], ["low", "mid"], "high")
    assert (filled[:40] == frame["grade"][:40]).mean() > 0.8
    assert (x["big"][:40] == frame["big"][:40]).mean() > 0.8
    assert_array_equal(filled[40:], frame["grade"][40:])


def test_a_row_of_missing_values_gets_the_means_whatever_was_missing_in_the_fit():
    frame = correlated(50, 3, 6)
    design = designed(frame)
    assert_allclose(design.matrix(frame.iloc[:1] * np.nan)[0], frame.mean(), rtol=1e-9)
    x = design.matrix(frame.iloc[:1].assign(x2=np.nan))[0]
    beta = np.linalg.lstsq(np.c_[np.ones(50), frame[["x0", "x1"]]], frame["x2"], rcond=None)[0]
    assert_allclose(x[2], beta @ [1, *frame.iloc[0, :2]], rtol=1e-5)


@settings(max_examples=10)
@given(n_sites=st.integers(2, 5), seed=st.integers(0, 999))
def test_the_distribution_does_not_depend_on_how_rows_are_split(n_sites, seed):
    frame = mixed(80, seed, missing=0.2).drop(columns=["time", "event"])
    one, many = (designed(frame, n, seed) for n in (1, n_sites))
    assert_allclose(many.joint.mean, one.joint.mean, rtol=1e-5)
    assert_allclose(many.joint.covariance, one.joint.covariance, rtol=1e-4, atol=1e-9)
    assert_allclose(many.matrix(frame), one.matrix(frame), rtol=1e-4, atol=1e-6)


def test_rounds_are_bounded_and_only_sums_are_asked_for(monkeypatch):
    frame = mixed(60, 0, missing=0.4)
    fed = federation(scatter(frame, 3))
    outcome = Survival("time", "event")
    design = fit_design(fed, draft(frame, outcome), outcome, impute="iterative")
    asked = [line for line in fed.ledger.lines if '"step":"expected_moments"' in line]
    assert len(asked) == 3 * design.joint.rounds
    assert all('"verb":"sum"' in line for line in asked)
    assert design.joint.rounds <= 100
    assert np.isfinite(design.matrix(frame)).all()


@pytest.mark.parametrize("winsorise", [0.0, 0.1])
def test_a_fill_stays_inside_the_limits(winsorise):
    frame = correlated(100, 2, 7)
    frame.loc[:9, "x1"] = np.nan
    frame.loc[0, "x0"] = 50.0
    design = designed(frame, winsorise=winsorise)
    c = design.columns[1]
    x = design.matrix(frame)[:, 1]
    assert np.isfinite(x).all()
    if winsorise:
        assert c.low <= x.min()
        assert x.max() <= c.high
