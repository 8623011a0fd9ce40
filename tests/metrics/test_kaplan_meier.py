"""Published values, lifelines' estimate, and the rule by which a curve may be shown."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from fedcohort.metrics.survival.censoring import Leavers, leavers
from fedcohort.metrics.survival.kaplan_meier import (
    followed,
    group_leavers,
    kaplan_meier,
    life_table,
    round_time,
    round_times,
)
from fedcohort.metrics.survival.published_curves import (
    published_at_risk,
    published_curve,
    published_groups,
)

# Remission in weeks under 6-MP: Freireich et al., Blood 21, 1963; + is censored.
WEEKS = "6 6 6 6+ 7 9+ 10 10+ 11+ 13 16 17+ 19+ 20+ 22 23 25+ 32+ 32+ 34+ 35+".split()
TIME = np.array([float(w.strip("+")) for w in WEEKS])
EVENT = np.array(["+" not in w for w in WEEKS])


def curve(time, event, level=0.95):
    grid = np.unique(time)
    return kaplan_meier(grid, leavers(time, event, grid), level)


def test_remission_under_6mp_as_kleinbaum_and_klein_have_it():
    # Survival Analysis, 3rd ed. 2012, section 2.III.
    got = curve(TIME, EVENT)
    at = np.searchsorted(got.times, [6, 7, 10, 13, 16, 22, 23])
    assert_allclose(
        got.survival[at], [0.8571, 0.8067, 0.7529, 0.6902, 0.6275, 0.5378, 0.4482], atol=5e-5
    )
    # Eqs. (2) and (3) by hand: at 6 weeks 3 of 21 relapse.
    v = 3 / (21 * 18) / math.log(18 / 21) ** 2
    want = [(18 / 21) ** math.exp(sign * norm.ppf(0.975) * math.sqrt(v)) for sign in (1, -1)]
    assert_allclose([got.low[at[0]], got.high[at[0]]], want, rtol=1e-12)


@pytest.mark.parametrize("name", ["gbsg2", "whas500", "rossi"])
@pytest.mark.parametrize("level", [0.95, 0.8])
def test_the_curve_and_its_interval_equal_lifelines(request, name, level):
    cohort = request.getfixturevalue(name)
    got = curve(cohort.time, cohort.event, level)
    fitted = KaplanMeierFitter(alpha=1 - level).fit(cohort.time, cohort.event)
    assert_allclose(got.survival, fitted.predict(got.times), rtol=1e-10)
    some = got.survival > 0  # where S is 0, lifelines' interval is (1, 1)
    want = fitted.confidence_interval_.loc[got.times[some]].to_numpy()
    assert_allclose(np.stack([got.low, got.high], axis=1)[some], want, rtol=1e-10)
    assert np.isnan(got.high[~some]).all()


def test_where_nobody_survives_there_is_no_interval_and_before_a_death_it_is_one():
    got = curve(np.array([1.0, 2.0, 3.0]), np.array([False, True, True]))
    assert_allclose(got.survival, [1, 0.5, 0])
    assert_array_equal([got.low[0], got.high[0]], 1)
    assert 0 < got.low[1] < 0.5 < got.high[1] < 1
    assert math.isnan(got.low[2])
    assert math.isnan(got.high[2])


@given(seed=st.integers(0, 2**16), sites=st.integers(1, 5))
def test_counts_of_sites_add_up_to_the_pooled_curves_of_the_groups(seed, sites):
    rng = np.random.default_rng(seed)
    n = 60
    time, event = rng.integers(1, 20, n).astype(float), rng.random(n) < 0.6
    group, site = rng.integers(0, 3, n), rng.integers(0, sites, n)
    grid = np.unique(time)
    parts = [
        group_leavers(group[site == s], 3, time[site == s], event[site == s], grid)
        for s in range(sites)
    ]
    pooled = kaplan_meier(
        grid, Leavers(sum(p.deaths for p in parts), sum(p.censored for p in parts))
    )
    for g in range(3):
        alone = kaplan_meier(grid, leavers(time[group == g], event[group == g], grid))
        for ours, want in zip(pooled[1:], alone[1:], strict=True):
            assert_array_equal(ours[g], want)


def test_who_ends_at_a_time_is_still_at_risk_at_it():
    assert_array_equal(
        followed(TIME, np.array([0, 6, 6.5, 10, 23, 35, 36])), [21, 21, 17, 15, 6, 1, 0]
    )


# what is shown ----------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**16),
    n=st.integers(1, 150),
    least=st.integers(1, 8),
    digits=st.integers(0, 3),
    rate=st.floats(0, 1),
)
def test_no_step_of_a_shown_curve_is_of_few_events_and_it_is_the_curve_of_its_cells(
    seed, n, least, digits, rate
):
    rng = np.random.default_rng(seed)
    time, event = np.round(rng.exponential(9, n), digits) + 10.0**-digits, rng.random(n) < rate
    got = published_curve(time, event, least)
    assert (got.times[0], got.survival[0]) == (0, 1)
    steps = np.histogram(time[event], np.r_[-1, got.times + 1e-9])[0][1:]
    assert set(steps[steps < least]) <= {0}
    assert len(got.times) <= 101
    if least > 1:
        beyond = (time[event] > got.times[-1] + 1e-9).sum() if len(got.times) > 1 else 0
        assert beyond == 0 or beyond >= least
    if len(got.times) > 1:
        assert (time >= got.times[-1]).sum() >= least
        if least == 1:
            fitted = KaplanMeierFitter().fit(time, event)
            assert_allclose(got.survival, fitted.predict(got.times), atol=1e-12)


def test_a_shown_curve_is_near_that_of_all_records():
    rng = np.random.default_rng(4)
    died, left = rng.exponential(900, 400), rng.uniform(200, 2500, 400)
    time, event = np.ceil(np.minimum(died, left)), died <= left
    got = published_curve(time, event, 5)
    fitted = KaplanMeierFitter().fit(time, event)
    assert len(got.times) > 20
    assert_allclose(got.survival, fitted.predict(got.times), atol=0.02)


def test_a_life_table_by_hand_tells_few_censored_late_and_no_few_that_are_left():
    # 40 people; cells (0, 10], (10, 20], (20, 30] of 6, 8, 5 deaths and 3, 4, 2 censored. With 5,
    # the 3 wait for the 4 and the 2 for ever: n is 40, 34, 19; 7 leave within the second cell.
    table = life_table(np.array([10, 20, 30]), np.array([6, 8, 5]), np.array([3, 4, 2]), 40, 5)
    first, second, third = 1 - 6 / 40, 1 - 8 / (34 - 3.5), 1 - 5 / 19
    want = np.cumprod([first, second, third])
    assert_allclose(table.survival, want, rtol=1e-14)
    variance = 6 / (40 * 34) + 8 / (30.5 * 22.5) + 5 / (19 * 14)
    spread = 1.959963984540054 * math.sqrt(variance) / -math.log(want[-1])
    assert_allclose([table.low[-1], table.high[-1]], want[-1] ** np.exp([spread, -spread]))
    # of 24 people, 24 - 19 - 7 would be two: the 7 wait as well
    few = life_table(np.array([10, 20, 30]), np.array([6, 8, 5]), np.array([3, 4, 2]), 28, 5)
    assert_allclose(few.survival, np.cumprod([1 - 6 / 28, 1 - 8 / 22, 1 - 5 / 14]), rtol=1e-14)


def test_where_few_were_censored_does_not_show():
    """Any of four leaves at any time before the last: the curve is the same to the last digit."""
    rng = np.random.default_rng(1)
    time, event = np.r_[np.arange(1.0, 81.0), np.full(30, 90.0)], np.arange(110) < 80
    curves = set()
    for _ in range(10):
        moved = time.copy()
        moved[80:84] = rng.uniform(1, 79, 4)
        curves.add(np.stack(published_curve(moved, event, 5)).tobytes())
    assert len(curves) == 1


def test_events_too_few_for_a_last_step_join_the_step_before():
    time, event = np.arange(1.0, 41.0), np.arange(40) % 4 == 0  # deaths at 1, 5, …, 37
    every = published_curve(time, event, 1)
    assert_array_equal(np.diff(every.survival) < 0, [True] * 10 + [False])
    steps = published_curve(time, event, 4)  # deaths 1–13; 17–37, of which 33 and 37 would be two
    assert_array_equal(steps.times, [0, 13, 37])
    # of 13, 9 are censored; then 18, which wait since else 3 would be left
    assert_allclose(steps.survival[1:], np.cumprod([1 - 4 / (40 - 4.5), 1 - 6 / 27]))
    assert steps.times[-1] == 37  # where four are still at risk


def test_fewer_events_than_a_cell_leave_the_start_alone():
    time, event = np.arange(1.0, 31.0), np.arange(30) < 4
    assert_array_equal(np.stack(published_curve(time, event, 5)), [[0], [1], [1], [1]])
    assert_array_equal(published_curve(time, event, 4).survival[1:], 26 / 30)
    assert len(published_curve(time[:3], event[:3], 4).times) == 1


def test_without_events_the_curve_is_flat_as_far_as_enough_are_followed():
    got = published_curve(np.arange(1.0, 31.0), np.zeros(30, bool), 5)
    assert_array_equal(got.times, [0, 26])
    assert_array_equal(got.survival, 1)


@pytest.mark.parametrize(
    ("low", "high", "most", "want"),
    [
        (0, 2659, 6, [0, 500, 1000, 1500, 2000, 2500]),
        (310, 1499, 14, list(range(400, 1401, 100))),
        (0.031, 0.088, 6, [0.04, 0.05, 0.06, 0.07, 0.08]),
        (0, 0, 6, []),
        (0.4, 0.4, 6, [0.4]),
    ],
)
def test_round_times_by_hand(low, high, most, want):
    assert_array_equal(round_times(low, high, most), want)


@given(low=st.floats(0, 1e4), span=st.floats(0.001, 1e5), most=st.integers(4, 100))
def test_round_times_lie_inside_and_are_as_many_as_they_may_be(low, span, most):
    got = round_times(low, low + span, most)
    assert most / 2 - 2 <= len(got) <= most
    assert low <= got[0] <= got[-1] <= low + span
    assert_allclose(np.diff(got), np.diff(got[:2]).sum(), rtol=1e-6)


@given(time=st.floats(0.01, 5000), further=st.floats(0, 3000))
def test_a_round_time_is_near_and_the_same_for_many(time, further):
    got = round_time(time, time + further)
    assert 0 < got <= time + further
    assert abs(got - time) <= 0.15 * time
    digits = f"{got:.6e}".partition("e")[0].replace(".", "").rstrip("0")
    assert len(digits) <= 3
    assert len({round_time(t, 9000.0) for t in np.linspace(100, 200, 500)}) <= 15


@given(
    seed=st.integers(0, 200),
    n=st.integers(5, 150),
    least=st.integers(1, 8),
    days=st.integers(5, 300),
)
def test_numbers_at_risk_of_any_two_groupings_tell_of_no_few(seed, n, least, days):
    rng = np.random.default_rng(seed)
    time = rng.integers(1, days, n).astype(float)
    at = round_times(0.0, time.max(), 6)
    totals = {}
    for groups in (3, 2, 3):
        group = np.arange(n) % groups
        rng.shuffle(group)
        times, numbers = published_at_risk(group, time, at, least)
        for t, row in zip(times, numbers, strict=True):
            assert [(time[group == g] >= t).sum() for g in range(groups)] == row.tolist()
            totals[t] = row.sum()
        for counts in (numbers, -np.diff(numbers, axis=0)):
            assert ((counts == 0) | (counts >= least)).all()
    known = np.array([totals[t] for t in sorted(totals)], int)
    for counts in (known, -np.diff(known)):
        assert ((counts == 0) | (counts >= least)).all()


def test_numbers_at_risk_by_hand():
    time = np.r_[np.repeat([10.0, 20.0, 30.0], [5, 3, 12]), np.repeat([20.0, 40.0], [10, 10])]
    group = np.repeat([0, 1], 20)
    times, numbers = published_at_risk(group, time, np.array([0.0, 15.0, 25.0, 35.0]), 5)
    # at 25, 3 have left the first group since 15; at 35 those and 12 more
    assert times.tolist() == [0, 15, 35]
    assert numbers.tolist() == [[20, 20], [15, 20], [0, 10]]


# groups together --------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**16),
    n=st.integers(10, 200),
    groups=st.integers(1, 4),
    least=st.integers(2, 6),
    rate=st.floats(0, 1),
)
def test_few_events_beyond_curves_of_groups_are_many_of_all_groups_and_told_of_none(
    seed, n, groups, least, rate
):
    rng = np.random.default_rng(seed)
    group = np.arange(n) % groups
    time, event = rng.exponential(9 * (1 + group)), rng.random(n) < rate
    found = published_groups(group, time, event, least, 6)
    beyond = [(time[event & (group == g)] > c.times[-1]).sum() for g, c in enumerate(found.curves)]
    assert sum(beyond) == 0 or sum(beyond) >= min(least, event.sum())
    assert found.events_told == all(b == 0 or b >= least for b in beyond)
    for g, curve in enumerate(found.curves):
        steps = np.histogram(time[event & (group == g)], np.r_[-1, curve.times + 1e-9])[0][1:]
        assert set(steps[steps < least]) <= {0}


def test_a_curve_goes_on_while_enough_patients_of_its_group_are_followed():
    """Few deaths of a group are late: alone they would end its curve, beside others they do not."""
    rng = np.random.default_rng(3)
    time = np.r_[rng.uniform(1, 100, 120), rng.uniform(1, 100, 120)]
    event = np.r_[np.arange(120) % 3 == 0, np.arange(120) % 3 == 1]
    group = np.repeat([0, 1], 120)
    late = np.sort(time[group == 0])[-2:]  # two who die when fewer than five are followed
    event[np.isin(time, late)] = True
    event[(group == 1) & (time > np.sort(time[group == 1])[-4])] = True
    found = published_groups(group, time, event, 5, 6)
    for g, curve in enumerate(found.curves):
        assert (time[group == g] >= curve.times[-1]).sum() >= 5
        assert (time[group == g] >= curve.times[-1] + 1.01).sum() < 5  # a cell is 1 wide
    assert not found.events_told


def test_numbers_at_risk_are_told_about_under_the_whole_axis_and_near_the_true_ones():
    rng = np.random.default_rng(8)
    n = 600
    group = np.arange(n) % 3
    died, left = rng.exponential(20 * (1 + group)), rng.uniform(5, 90, n)
    time, event = np.minimum(died, left), died <= left
    found = published_groups(group, time, event, 5, 6)
    last = [c.times[-1] for c in found.curves]
    assert found.times[0] == 0
    assert found.times[-1] > 0.8 * max(last)
    for g in range(3):
        within = found.times <= last[g]
        assert (np.isfinite(found.about[:, g]) == within).all()
        true = followed(time[group == g], found.times[within])
        assert np.abs(found.about[within, g] - true).max() <= 10
        assert found.about[0, g] == true[0] == 200
