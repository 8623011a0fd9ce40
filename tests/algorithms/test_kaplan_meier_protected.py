"""Protected grids: how near the curves are to the exact ones, and what nobody gets to see."""

from __future__ import annotations

from functools import reduce
from itertools import chain, combinations, pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter, NelsonAalenFitter
from lifelines.statistics import multivariate_logrank_test
from numpy.testing import assert_allclose, assert_array_equal

from algorithms.curve_cases import records, run, split
from examples import examples
from fedcohort.algorithms.survival_curves.steps import cell_counts
from fedcohort.protocol import DataError, NothingToLearn, Site

MIN_CELL = 5
METHODS = ("kaplan_meier", "nelson_aalen", "log_rank")
COUNTS = ("at_risk", "events", "censored", "followed", "about", "records", "observed")
frames = st.builds(records, n=st.integers(60, 400), seed=st.integers(0, 2**16), whole=st.booleans())


def few(values) -> np.ndarray:
    """Which of the counts are of 1 to 4 people."""
    values = np.asarray(values, float)
    return (values > 0) & (values < MIN_CELL)


def exact(frame: pd.DataFrame, times) -> np.ndarray:
    """Survival at times, from the ungridded records."""
    return KaplanMeierFitter().fit(frame.time, frame.event).survival_function_at_times(times)


@settings(max_examples=12, deadline=None)
@given(frame=frames, n_sites=st.integers(1, 5))
def test_the_exact_curve_lies_between_the_bounds_at_every_time_of_the_grid(frame, n_sites):
    for by in ("", "g"):
        curves, _ = run("kaplan_meier", split(frame, n_sites), by=by)
        hazards, _ = run("nelson_aalen", split(frame, n_sites), by=by)
        for i, (s, h, note) in enumerate(
            zip(curves.shown, hazards.shown, curves.notes, strict=True)
        ):
            if s is None or note:
                continue
            own = frame[frame.group == i] if by else frame
            true = exact(own, s.times)
            assert (s.least - 1e-9 <= true).all()
            assert (true <= s.most + 1e-9).all()
            assert (s.least - 1e-9 <= s.value).all()
            assert (s.value <= s.most + 1e-9).all()
            theirs = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(own.time, own.event)
            true = theirs.cumulative_hazard_at_times(h.times)
            assert (h.least - 1e-9 <= true).all()
            assert (true <= h.most + 1e-9).all()


def test_without_censoring_inside_the_grid_the_curve_is_the_exact_one():
    frame = records(300, 1)
    frame["time"], frame["event"] = np.minimum(frame.time, 11.0), frame.time < 11
    for by in ("", "g"):
        model, _ = run("kaplan_meier", split(frame, 3), by=by)
        for i, curve in enumerate(model.shown):
            own = frame[frame.group == i] if by else frame
            assert_allclose(curve.value, exact(own, curve.times), rtol=1e-12)


def test_the_curve_is_near_the_exact_one_by_its_standard_error_and_without_bias():
    off = []
    for seed in range(12):
        frame = records(600, seed)
        model, _ = run("kaplan_meier", split(frame, 4), by="g")
        for i, curve in enumerate(model.shown):
            own = frame[frame.group == i]
            fit = KaplanMeierFitter().fit(own.time, own.event)
            table = fit.event_table
            n, d = table.at_risk.to_numpy(float), table.observed.to_numpy(float)
            terms = np.divide(d, n * (n - d), out=np.zeros(len(n)), where=n > d)
            at = np.searchsorted(table.index, curve.times, side="right") - 1
            se = np.sqrt(np.cumsum(terms)[at]) * exact(own, curve.times)
            kept = n[np.minimum(at + 1, len(n) - 1)] >= 10
            off += list(((curve.value - exact(own, curve.times)) / se)[kept])
    assert np.quantile(np.abs(off), 0.95) < 0.2
    assert np.abs(off).max() < 1.0
    assert abs(np.mean(off)) < 0.05


def test_the_test_on_a_protected_grid_is_near_the_exact_one():
    for seed in range(8):
        frame = records(500, seed, whole=seed % 2 == 0)
        model, _ = run("log_rank", split(frame, 3), by="g")
        expected = multivariate_logrank_test(frame.time, frame.group, frame.event)
        assert model.chi2 == pytest.approx(expected.test_statistic, rel=0.1, abs=0.3)
        assert_array_equal(model.observed, frame.groupby("group").event.sum())


@settings(max_examples=6, deadline=None)
@given(frame=frames, one=st.integers(1, 6), other=st.integers(1, 6), seed=st.integers(0, 99))
def test_protected_results_do_not_depend_on_how_records_are_split(frame, one, other, seed):
    for method in METHODS:
        try:
            a, _ = run(method, split(frame, one), by="g")
        except (DataError, NothingToLearn) as error:
            with pytest.raises(type(error)):
                run(method, split(frame, other, seed), by="g")
            continue
        b, _ = run(method, split(frame, other, seed), by="g")
        for name, values in a.arrays().items():
            assert_allclose(b.arrays()[name], values, rtol=1e-8, atol=1e-9, err_msg=name)


@pytest.fixture(scope="module")
def queries():
    """Return random fits: method, model, what the coordinator was told, the records, and by."""
    rng = np.random.default_rng(11)
    done = []
    for i in range(150):
        size = int(np.exp(rng.uniform(np.log(20), np.log(500))))
        frame = records(size, i, whole=i % 3 == 0, shares=rng.dirichlet(np.ones(3)))
        frame.loc[rng.random(size) < rng.choice([0, 0, 0.1]), "group"] = -1
        method, sites = METHODS[i % 3], int(rng.integers(1, 6))
        by = "g" if method == "log_rank" else str(rng.choice(["", "g"]))
        grid = (4, 30, "protected")[rng.integers(3)]
        try:
            model, told = run(method, split(frame, sites, i), by=by, time_grid=grid)
        except (DataError, NothingToLearn):  # a level with few, or nobody to draw
            continue
        done.append((method, model, told, frame, by))
    assert len(done) > 100
    return done


def test_nothing_that_is_published_is_a_count_of_few_nor_the_difference_of_two(queries):
    for method, model, _, frame, by in queries:
        rows = model.summary() + (model.curves() if method != "log_rank" else [])
        shown = pd.DataFrame(rows).reindex(columns=COUNTS)
        assert not few(shown.to_numpy(float)).any(), method
        died = pd.DataFrame(model.summary()).rename(columns={"observed": "events"})
        assert not few((died.records - died.events).to_numpy(float)).any(), method
        for i, curve in enumerate(() if method == "log_rank" else model.shown):
            if curve is None:
                continue
            own, rest = (frame[frame.group == i], frame[frame.group != i]) if by else (
                frame, frame[:0]
            )  # fmt: skip
            # the last cell may end behind the curve
            for low, high in pairwise(np.r_[0, curve.times[:-1], np.inf]):
                died, others = (
                    (f.event & f.time.between(low, high, inclusive="right")).sum()
                    for f in (own, rest)
                )
                assert not few(died)
                assert few(rest.event.sum()) or not few(others)
            known = curve.followed[curve.followed >= 0]
            assert not few(known).any()
            assert not few(-np.diff(known)).any()


@pytest.mark.parametrize("seed", range(24))
def test_a_curve_of_all_less_those_of_several_groups_tells_of_no_few(seed):
    shares = np.random.default_rng(seed).dirichlet(np.full(3, 2.0))
    frame = records(300 + 40 * seed, seed, whole=seed % 3 == 0, shares=shares)
    if seed % 4 == 0:
        frame.loc[frame.index % 16 == 0, "group"] = -1
    whole, _ = run("kaplan_meier", split(frame, 3))
    model, _ = run("kaplan_meier", split(frame, 3), by="g")
    ends = {i: np.r_[0, c.times] for i, c in enumerate(model.shown) if c is not None}
    assert len(ends) > 1
    for chosen in chain.from_iterable(combinations(ends, k) for k in range(1, len(ends) + 1)):
        died = np.sort(frame.time[frame.event & ~frame.group.isin(chosen)])
        if few(len(died)):  # as the numbers of all and of the groups tell
            continue
        common = reduce(np.intersect1d, [ends[i] for i in chosen], np.r_[0, whole.shown[0].times])
        assert not few(np.diff(np.searchsorted(died, common, side="right"))).any()


@pytest.mark.parametrize("method", ["kaplan_meier", "nelson_aalen"])
@pytest.mark.parametrize("by", ["", "g"])
def test_a_coarser_grid_shows_points_of_the_finest_one_and_so_tells_no_more(method, by):
    tables = split(records(500, 4), 2)
    finest, _ = run(method, tables, by=by)
    for grid in (1, 3, 7, "quantiles(10)", 1000):
        model, _ = run(method, tables, by=by, time_grid=grid)
        for fine, curve in zip(finest.shown, model.shown, strict=True):
            most = 10 if isinstance(grid, str) else grid
            assert len(curve.times) == min(most, len(fine.times))
            at = np.searchsorted(fine.times, curve.times)
            for part in ("times", "value", "low", "high", "least", "most"):
                assert_array_equal(getattr(curve, part), getattr(fine, part)[at])
            assert_array_equal(np.cumsum(curve.events), np.cumsum(fine.events)[at])
            assert_array_equal(curve.followed, fine.followed[np.r_[0, at + 1]])
            assert curve.times[-1] == fine.times[-1]


def test_the_coordinator_is_seldom_told_of_few_even_on_the_way(queries):
    seen = [
        [few(reply.own) for name, _, reply in told if name == "cell_counts"]
        for _, _, told, _, _ in queries
    ]
    small, asked = (sum(int(f(s)) for one in seen for s in one) for f in (np.sum, np.size))
    assert small / asked < 0.002
    assert sum(any(s.any() for s in one) for one in seen) / len(seen) < 0.2


def test_times_are_summed_only_over_cells_that_hold_nobody_or_enough(queries):
    for _, _, told, frame, _ in queries:
        pooled = Site("all", split(frame, 1)["s0"], None, ())
        for name, arguments, _ in told:
            if name == "cell_times":
                assert not few(cell_counts.run(pooled, **arguments).own).any()


def test_censored_records_that_are_few_are_left_out_and_the_numbers_are_hidden():
    frame = records(200, 3, shares=(1.0,))
    frame["event"] = True
    frame.loc[frame.index[:3], "event"] = False
    model, _ = run("kaplan_meier", split(frame, 3))
    row = model.summary()[0]
    assert (row["records"], row["events"]) == (None, 197)
    assert row["note"] == "its fewer than 5 censored records are left out (min_cell)"
    assert all(r["at_risk"] is r["about"] is None for r in model.curves())
    died = frame[frame.event]
    curve = model.shown[0]
    assert_allclose(curve.value[:-1], exact(died, curve.times[:-1]), atol=1e-12)


@pytest.mark.parametrize("method", ["kaplan_meier", "nelson_aalen"])
@pytest.mark.parametrize("by", ["", "g"])
def test_no_curve_goes_on_behind_the_last_follow_up(method, by):
    for seed in range(6):
        frame = records(300, seed, whole=seed % 2 == 0)
        model, _ = run(method, split(frame, 3), by=by)
        for i, curve in enumerate(model.shown):
            own = frame[frame.group == i] if by else frame
            assert curve.times[-1] <= own.time.max()
            assert (np.diff(curve.times) > 0).all()
            assert curve.times[-1] >= own.time.quantile(0.75)


def test_lowering_min_cell_shows_more():
    frame = records(200, 9)
    points = {}
    for m in (1, 3, 10):
        model, _ = run("kaplan_meier", split(frame, 3), by="g", min_cell=m)
        points[m] = sum(len(c.times) for c in model.shown)
    assert points[1] > points[3] > points[10]


@settings(max_examples=examples(60), deadline=None)
@given(
    n=st.integers(60, 200), seed=st.integers(0, 2**16), small=st.integers(0, 9),
    nobody=st.integers(0, 6), lost=st.integers(0, 6), method=st.sampled_from(METHODS),
)  # fmt: skip
def test_what_the_groups_shown_leave_of_all_records_is_of_no_few(
    n, seed, small, nobody, lost, method
):
    """Who knows all records and deaths, as Table 1 tells, takes off those of the groups."""
    frame = records(n, seed, shares=(0.5, 0.5, 0.0))
    rng = np.random.default_rng(seed)
    first = rng.permutation(np.flatnonzero(frame.group == 0))
    frame.loc[first[:small], "group"] = 2
    frame.loc[first[small : small + nobody], "group"] = -1
    frame.loc[np.flatnonzero((frame.group == 1) & ~frame.event)[lost:], "event"] = True
    try:
        model, _ = run(method, split(frame, 3), by="g")
    except (DataError, NothingToLearn):
        return
    rows = [row for row in model.summary() if row["group"] != "all"]
    shown = ["abc".index(row["group"]) for row in rows if row["records"] is not None]
    outside = frame[~frame.group.isin(shown)]
    assert not few([len(outside), outside.event.sum(), (~outside.event).sum()]).any()
    if not few(nobody):  # how many these are is known, and how many of them died is not
        outside = outside[outside.group >= 0]
    own = outside.groupby("group").event.agg(["size", "sum"])
    assert len(own) != 1 or not few([own["sum"], own["size"] - own["sum"]]).any()


@pytest.mark.parametrize("method", ["kaplan_meier", "nelson_aalen"])
def test_three_groups_are_not_shown_beside_a_hidden_one_of_one_patient(method):
    frame = records(120, 3, shares=(0.4, 0.35, 0.25))
    frame.loc[np.flatnonzero(frame.group == 2)[1:], "group"] = 0
    model, _ = run(method, split(frame, 3), by="g")
    told = [row["records"] for row in model.summary()]
    assert told.count(None) == 2
    assert model.shown.count(None) == 2
    assert "would reveal those of a small group" in " ".join(model.notes)
