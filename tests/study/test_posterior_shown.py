"""Rows of results.json about models with a posterior."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binomtest

import fedcohort as fc
from fedcohort.data.dictionary import Dictionary
from fedcohort.protocol import NotSupported
from fedcohort.study.judge.shown.posterior import posterior_rows

N = 60
VALUE = fc.Continuous("y")


def run_of(outcome, epistemic=1.0):
    """Return a fit whose intervals are 0 to 1, with an aleatoric variance of 3."""

    def uncertainty(x):
        if epistemic is None:
            raise NotSupported("parts of a time's uncertainty")
        return np.full(len(x), epistemic), np.full(len(x), 3.0)

    def intervals(x, level):
        if epistemic is None:
            raise NotSupported("intervals")
        return np.tile([0.0, 1.0], (len(x), 1))

    def log_density(x, y, event):
        if epistemic is None:
            raise NotSupported("log_density")
        return np.where(y > 1, -3.0, -1.0)

    model = SimpleNamespace(intervals=intervals, uncertainty=uncertainty, log_density=log_density)
    design = SimpleNamespace(outcome=outcome, matrix=lambda test: test[["x"]].to_numpy())
    made: Any = SimpleNamespace(model=model, design=design)
    return made


def rows(outside, n=N, outcome: Any = VALUE, min_cell=5, epistemic: float | None = 1.0):
    y = np.r_[np.full(n - outside, 1.0), np.full(outside, 2.0)]
    test = pd.DataFrame({"x": np.zeros(n), "y": y})
    known = {"variables": {"y": {"type": "number"}, "x": {"type": "number"}}}
    problem: Any = SimpleNamespace(min_cell=min_cell, dictionary=Dictionary.from_dict(known))
    return posterior_rows(run_of(outcome, epistemic), problem, test).get("posterior", [])


def test_coverage_is_the_share_of_outcomes_inside_with_scipys_exact_interval():
    (row,) = rows(9)
    low, high = binomtest(51, N).proportion_ci(0.95, "exact")
    assert_allclose([row["covered"], row["low"], row["high"]], [51 / 60, low, high], rtol=1e-10)
    assert (row["n"], row["level"], row["epistemic"]) == (N, 0.9, 0.25)
    assert row["nlpd"] == pytest.approx((51 * 1 + 9 * 3) / 60)


@pytest.mark.parametrize("outside", [1, 4, 56, 59])
def test_no_coverage_tells_of_fewer_patients_than_min_cell(outside):
    (row,) = rows(outside)
    assert row["covered"] is None
    assert "low" not in row


def test_few_blind_rows_have_no_row():
    assert rows(0, n=9) == []
    assert len(rows(0, n=10)) == 1


def test_an_interval_of_a_mean_count_is_not_compared_with_outcomes():
    (row,) = rows(20, outcome=fc.Count("y"))
    assert row["covered"] is None


def test_a_model_without_a_posterior_of_this_outcome_has_no_row():
    assert rows(9, epistemic=None) == []
