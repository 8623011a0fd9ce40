"""Curves and test at exact times against lifelines; what a fit says, shows and refuses."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter, NelsonAalenFitter
from lifelines.statistics import logrank_test, multivariate_logrank_test
from lifelines.utils import median_survival_times, restricted_mean_survival_time
from numpy.testing import assert_allclose, assert_array_equal

import fedcohort as fc
from algorithms.curve_cases import records, run, split
from fedcohort.protocol import DataError, NothingToLearn, SettingError

EXACT = {"rtol": 1e-10, "atol": 1e-10}
frames = st.builds(records, n=st.integers(20, 150), seed=st.integers(0, 2**16), whole=st.booleans())
any_split = {"frame": frames, "n_sites": st.integers(1, 5), "seed": st.integers(0, 99)}


def rows_of(model, group: str) -> pd.DataFrame:
    """The rows of one group's curve after its start."""
    rows = pd.DataFrame(model.curves())
    return rows[rows.group == group].iloc[1:]


@settings(max_examples=15, deadline=None)
@given(**any_split)
def test_exact_curves_are_lifelines_of_the_pooled_records_whatever_the_split(frame, n_sites, seed):
    tables = split(frame, n_sites, seed)
    for by in ("", "g"):
        model, _ = run("kaplan_meier", tables, by=by, time_grid="exact", level=0.9)
        for i, name in enumerate(model.groups):
            own = frame[frame.group == i] if by else frame
            if not len(own):
                continue
            ours = rows_of(model, name)
            theirs = KaplanMeierFitter(alpha=0.1).fit(own.time, own.event)
            at = ours.time.to_numpy()
            table = theirs.event_table
            stepped = at[np.isin(at, table.index)]
            mine = ours[ours.time.isin(stepped)]
            assert_allclose(
                ours.survival, theirs.survival_function_at_times(at).to_numpy(), **EXACT
            )
            assert_array_equal(mine.at_risk, table.at_risk.loc[stepped])
            assert_array_equal(mine.events, table.observed.loc[stepped])
            inside = (mine.survival > 0).to_numpy()  # at 0 lifelines puts both bounds to 1
            bounds = theirs.confidence_interval_.loc[stepped].to_numpy()
            assert_allclose(mine[["low", "high"]][inside], bounds[inside], **EXACT)


@settings(max_examples=15, deadline=None)
@given(**any_split)
def test_exact_hazards_are_lifelines_of_the_pooled_records_whatever_the_split(frame, n_sites, seed):
    tables = split(frame, n_sites, seed)
    model, _ = run("nelson_aalen", tables, time_grid="exact")
    ours = rows_of(model, "all")
    theirs = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(frame.time, frame.event)
    expected = theirs.cumulative_hazard_.loc[ours.time].iloc[:, 0]
    assert_allclose(ours.cumulative_hazard, expected, **EXACT)
    bounds = theirs.confidence_interval_.loc[ours.time]
    assert_allclose(ours[["low", "high"]], bounds, **EXACT)


@settings(max_examples=6, deadline=None)
@given(**any_split)
def test_the_exact_test_is_lifelines_of_the_pooled_records_whatever_the_split(frame, n_sites, seed):
    if frame.group.nunique() < 2:
        return
    tables = split(frame, n_sites, seed)
    weighted = [
        ({}, {}),
        ({"rho": 1.0}, {"weightings": "fleming-harrington", "p": 1, "q": 0}),
        ({"rho": 0.5, "gamma": 2.0}, {"weightings": "fleming-harrington", "p": 0.5, "q": 2}),
        ({"weighting": "gehan"}, {"weightings": "wilcoxon"}),
        ({"weighting": "tarone-ware"}, {"weightings": "tarone-ware"}),
    ]
    for ours, theirs in weighted:
        model, _ = run("log_rank", tables, by="g", time_grid="exact", **ours)
        expected = multivariate_logrank_test(frame.time, frame.group, frame.event, **theirs)
        assert_allclose(model.chi2, expected.test_statistic, rtol=1e-8, atol=1e-10)
        assert_allclose(model.p, expected.p_value, rtol=1e-8, atol=1e-10)


def test_two_groups_are_tested_as_lifelines_tests_them():
    frame = records(200, 5, shares=(0.6, 0.4))
    model, _ = run("log_rank", split(frame, 3), by="g", time_grid="exact")
    a, b = (frame[frame.group == i] for i in (0, 1))
    expected = logrank_test(a.time, b.time, a.event, b.event)
    assert model.groups == ("a", "b")
    assert_allclose([model.chi2, model.p], [expected.test_statistic, expected.p_value], rtol=1e-10)
    assert model.observed.sum() == pytest.approx(model.expected.sum())


@pytest.mark.parametrize(("scale", "sign"), [("plain", 1), ("log", 1)])
def test_other_scales_of_the_interval_follow_their_formula(scale, sign):
    frame = records(80, 2)
    model, _ = run("kaplan_meier", split(frame, 2), time_grid="exact", transform=scale)
    ours = rows_of(model, "all")
    n, d = ours.at_risk.to_numpy(float), ours.events.to_numpy(float)
    alive = np.cumprod(1 - d / n)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = 1.959963984540054 * np.sqrt(np.cumsum(d / (n * (n - d))))
    if scale == "plain":
        expected = np.clip(alive - spread * alive, 0, 1), np.clip(alive + spread * alive, 0, 1)
    else:
        expected = alive * np.exp(-spread), np.minimum(alive * np.exp(spread), 1)
    inside = alive > 0
    assert_allclose(ours.low[inside], expected[0][inside], **EXACT)
    assert_allclose(ours.high[inside], expected[1][inside], **EXACT)


def test_median_and_restricted_mean_are_lifelines():
    frame = records(150, 8)
    model, _ = run("kaplan_meier", split(frame, 4), time_grid="exact", horizon=8.0)
    row = model.summary()[0]
    theirs = KaplanMeierFitter().fit(frame.time, frame.event)
    low, high = median_survival_times(theirs.confidence_interval_).to_numpy()[0]
    assert (row["median"], row["low"], row["high"]) == (theirs.median_survival_time_, low, high)
    assert row["restricted_mean"] == pytest.approx(restricted_mean_survival_time(theirs, t=8.0))
    assert (row["records"], row["events"], row["note"]) == (150, int(frame.event.sum()), "")


@pytest.fixture(scope="module")
def cohort():
    frame = records(400, 3, shares=(0.5, 0.3, 0.2))
    names = np.array(["a", "b", "c"])[frame.group]
    table = frame.assign(arm=names, event=frame.event.astype(float), age=50.0 + frame.index % 30)
    table.loc[table.index[:20], "arm"] = None
    table["site"] = np.where(frame.index % 3 == 0, "north", "south")
    return fc.simulate(
        table.drop(columns="group"), sites="site", outcome=fc.Survival("time", "event")
    )


def test_a_fit_is_saved_and_read_back(cohort, tmp_path):
    rows = cohort.frames["north"]
    for method in ("kaplan_meier", "nelson_aalen", "log_rank"):
        fit = fc.fit(method, cohort, by="arm")
        fit.save(tmp_path / method)
        back = fc.load(tmp_path / method)
        pd.testing.assert_frame_equal(back.summary, fit.summary)
        if method != "log_rank":
            assert json.dumps(back.model.curves()) == json.dumps(fit.model.curves())
            ours, theirs = (f.predict_survival(rows, [1, 5, 9]) for f in (fit, back))
            assert_array_equal(ours, theirs)


def test_each_row_gets_its_own_group_s_curve_and_a_row_without_group_the_mean(cohort):
    fit = fc.fit("kaplan_meier", cohort, by="arm", time_grid="exact")
    rows = pd.concat(cohort.frames.values())
    alive = fit.predict_survival(rows, [3.0])[:, 0]
    expected = {
        g: KaplanMeierFitter().fit(own.time, own.event).predict(3.0)
        for g, own in rows.groupby("arm")
    }
    assert_allclose(alive[rows.arm.notna()], rows.arm.dropna().map(expected), rtol=1e-12)
    sizes = rows.arm.value_counts()
    mean = sum(sizes[g] * expected[g] for g in expected) / sizes.sum()
    assert_allclose(alive[rows.arm.isna()], mean, rtol=1e-12)
    assert_array_equal(fit.predict(rows), 0.0)


def test_sites_keep_their_own_curves_and_may_be_fitted_alone(cohort):
    fit = fc.fit("kaplan_meier", cohort, strategy="isolated")
    own = cohort.frames["north"]
    alone = KaplanMeierFitter().fit(own.time, own.event)
    curve = fit.sites["north"].model.shown[0]
    assert_allclose(curve.value, alone.survival_function_at_times(curve.times), rtol=1e-10)


@pytest.mark.parametrize("strategy", ["isolated", "centralised"])
def test_a_grid_that_is_asked_for_is_kept_where_one_table_holds_all_rows(cohort, strategy):
    fit = fc.fit("kaplan_meier", cohort, strategy=strategy, time_grid="protected")
    for one in [*fit.sites.values()] or [fit]:
        assert not one.model.exact
        events = np.concatenate([c.events for c in one.model.shown])
        assert not ((events > 0) & (events < 5)).any()


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("kaplan_meier", {"by": "ar"}, "no column of the dictionary. did you mean 'arm'?"),
        ("kaplan_meier", {"by": "site"}, "strategy 'isolated' fits each alone"),
        ("kaplan_meier", {"by": "age"}, "makes no groups; give a binary column or a category"),
        ("kaplan_meier", {"by": "event"}, "makes no groups"),
        ("log_rank", {}, "name their column with by="),
        ("kaplan_meier", {"level": 1.5}, "between 0 and 1"),
        ("kaplan_meier", {"horizon": -1.0}, "give a number from 0"),
        ("log_rank", {"by": "arm", "rho": -1.0}, "a number from 0"),
        ("nelson_aalen", {"time_grid": "coarse"}, "'protected', 'exact'"),
        ("kaplan_meier", {"transform": "logit"}, "choose one of"),
    ],
)
def test_what_is_wrong_is_said_with_the_remedy(cohort, method, given, message):
    with pytest.raises(SettingError) as caught:
        fc.fit(method, cohort, **given)
    assert message.lower() in str(caught.value).lower()
    assert "\n" not in str(caught.value)


def test_no_events_and_no_records_are_said():
    frame = records(60, 1)
    with pytest.raises(NothingToLearn, match="has seen an event"):
        run("kaplan_meier", split(frame.assign(event=False), 2))
    with pytest.raises(NothingToLearn, match="hold no records"):
        run("kaplan_meier", split(frame[:0], 2))
    with pytest.raises(NothingToLearn, match="no records with a value"):
        run("kaplan_meier", split(frame.assign(group=-1), 2), by="g")


def test_a_level_with_few_records_or_deaths_has_no_curve_and_the_reason_stands_beside_it():
    frame = records(200, 4, shares=(0.5, 0.5, 0.0))
    few = frame.index[frame.group == 1][:4]
    frame.loc[few, "group"] = 2
    model, _ = run("kaplan_meier", split(frame, 3), by="g")
    row = model.summary()[2]
    assert (row["group"], row["records"], row["events"]) == ("c", None, None)
    assert row["note"].startswith("it has fewer than 5 records")
    assert len({r["group"] for r in model.curves()}) == 1  # beside both, those of c would follow
    with pytest.raises(DataError, match="level 'c' of column 'g': it has fewer than 5 records"):
        run("log_rank", split(frame, 3), by="g")
    with pytest.raises(DataError, match="has 1 level with records"):
        run("log_rank", split(frame[frame.group == 0], 3), by="g")


def test_a_test_that_nothing_can_fail_has_no_p_value_and_is_saved():
    frame = records(100, 6, shares=(0.5, 0.5))
    frame.loc[frame.group == 1, ["time", "event"]] = [1e-4, False]  # gone before the first death
    model, _ = run("log_rank", split(frame, 2), by="g", time_grid="exact")
    assert math.isnan(model.chi2)
    back = type(model).restore(model.arrays(), json.loads(json.dumps(model.meta())))
    assert repr(back.summary()) == repr(model.summary())
