"""The cumulative hazard against lifelines, and against single deaths where deaths are grouped."""

import numpy as np
import pytest
from lifelines import NelsonAalenFitter
from numpy.testing import assert_allclose

from fedcohort.metrics.survival.kaplan_meier import nelson_aalen


def test_hazard_and_interval_are_lifelines():
    rng = np.random.default_rng(4)
    time, event = np.ceil(rng.exponential(10, 200)), rng.random(200) < 0.7
    theirs = NelsonAalenFitter(alpha=0.2, nelson_aalen_smoothing=False).fit(time, event)
    times = np.unique(time)
    deaths = np.array([np.sum(event & (time == t)) for t in times])
    risk = np.array([np.sum(time >= t) for t in times])
    ours = nelson_aalen(times, deaths, risk, 0.8)
    assert_allclose(ours.cumulative, theirs.cumulative_hazard_.loc[times].iloc[:, 0], rtol=1e-12)
    bounds = theirs.confidence_interval_.loc[times].to_numpy()
    assert_allclose(np.column_stack(ours[2:]), bounds, rtol=1e-12)


def test_a_cell_of_untied_deaths_is_near_the_sum_over_the_deaths():
    n, d = 200, 20
    one_by_one = nelson_aalen(np.arange(d), np.ones(d), n - np.arange(d))
    grouped = nelson_aalen(np.zeros(1), np.array([d]), np.array([n]), tied=False)
    assert grouped.cumulative[0] == pytest.approx(one_by_one.cumulative[-1], rel=1e-3)
    assert grouped.low[0] == pytest.approx(one_by_one.low[-1], rel=1e-2)
    tied = nelson_aalen(np.zeros(1), np.array([d]), np.array([n]))
    assert tied.cumulative[0] == d / n


def test_nobody_dying_or_at_risk_is_no_hazard():
    found = nelson_aalen(np.arange(3), np.zeros(3), np.array([4, 0, 0]))
    assert_allclose(np.stack(found[1:]), 0.0)
