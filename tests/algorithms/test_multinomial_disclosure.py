"""Three classes: a column, class or weight that singles out few records ends a fit in time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import fedcohort as fc
from fedcohort.protocol import NothingToLearn
from overheard import listen

N = 240
LEVELS = ("mild", "severe", "fatal")
KNOWN = {"course": {"type": "category", "levels": list(LEVELS)}}
METHODS = {"multinomial": fc.Category("course"), "ordinal": fc.Ordered("course")}
#: Steps that sum over covariates, of which the first round's is one.
SUMS = {"tally", "slopes", "freed"}
ODD = np.arange(N) == 100


def table(seed=0):
    rng = np.random.default_rng(seed)
    age, marker = rng.normal(60, 10, N).round(), rng.lognormal(1.0, 0.7, N)
    score = 0.05 * (age - 60) + rng.logistic(size=N)
    course = np.array(LEVELS)[np.searchsorted([-0.5, 0.9], score)]
    return pd.DataFrame({"site": np.arange(N) % 3, "age": age, "marker": marker, "course": course})


def asked(method, frame, monkeypatch, **settings):
    """Fit, and return the refusal, and the names of the steps that were asked."""
    heard = listen(monkeypatch)
    known = {"variables": {c: {"type": "number"} for c in frame if c != "site"} | KNOWN}
    fed = fc.simulate(frame, sites="site", outcome=METHODS[method], dictionary=known)
    with pytest.raises(NothingToLearn) as error:
        fc.fit(method, fed, **settings)
    return str(error.value), {one.step for one in heard}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_class_of_few_records_is_named_and_nothing_is_summed_over_covariates(
    method, level, monkeypatch
):
    frame = table()
    other = LEVELS[(LEVELS.index(level) + 1) % 3]
    mine = frame["course"] == level
    frame["course"] = frame["course"].where(~mine | (mine.cumsum() <= 3), other)
    said, steps = asked(method, frame, monkeypatch)
    assert f"class {level!r} has fewer than 5 records" in said
    assert not steps & SUMS


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("turned", [False, True])
def test_a_covariate_that_is_a_class_in_all_but_one_record_is_refused(
    method, level, turned, monkeypatch
):
    frame = table()
    copy = (frame["course"] == level).to_numpy() ^ ODD ^ turned
    said, steps = asked(method, frame.assign(copy=copy * 1.0), monkeypatch)
    assert f"'copy' and class {level!r} of the outcome agree in" in said
    assert not steps & SUMS


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_class_that_covariates_give_together_in_all_but_one_record_is_refused(
    method, level, monkeypatch
):
    frame = table()
    part = np.sin(np.arange(N))
    rest = (frame["course"] == level) - part + 2.0 * ODD
    said, steps = asked(method, frame.assign(part=part, rest=rest), monkeypatch)
    assert "follows from other columns" in said
    assert not steps & SUMS


@pytest.mark.parametrize("method", METHODS)
def test_a_relation_of_columns_and_classes_that_three_records_break_is_found_in_the_first_sums(
    method, monkeypatch
):
    """`part` is 2 for "severe" and 5 for "fatal", plus `age`, but in three records of two sites."""
    frame = table()
    few = np.isin(np.arange(N), (100, 101, 104))
    part = frame["age"] + 2.0 * (frame["course"] == "severe") + 5.0 * (frame["course"] == "fatal")
    part += few * np.array([0.0, 0.4, -0.3, 0.5])[np.cumsum(few) * few]
    said, steps = asked(method, frame.assign(part=part), monkeypatch)
    assert "follows from other columns" in said
    assert steps >= {"tally", "slopes", "differences"}


def test_the_first_sums_told_the_record_in_which_a_covariate_is_not_the_class():
    """What the refusals are about: totals of a class and information at equal probabilities."""
    frame = table()
    y = (frame["course"] == "fatal").to_numpy(float)
    z = np.column_stack([np.ones(N), frame[["age", "marker"]], np.where(ODD, 1 - y, y)])
    share = y.mean()
    information = share * (1 - share) * z.T @ z
    apart = information[3] / (share * (1 - share)) - z.T @ y
    assert_allclose(apart[1:3] / apart[0], z[100, 1:3])


@pytest.mark.parametrize("method", METHODS)
def test_a_level_with_few_records_of_a_class_is_refused_where_all_covariates_are_levels(
    method, monkeypatch
):
    frame = table().drop(columns=["age", "marker"])
    fatal = (frame["course"] == "fatal").to_numpy()
    rng = np.random.default_rng(1)
    level = (rng.random(N) < 0.4) & ~fatal | fatal & (np.cumsum(fatal) <= 3)
    said, steps = asked(method, frame.assign(level=level * 1.0), monkeypatch)
    assert "of one class have one value of 'level'" in said
    assert not steps & SUMS


@pytest.mark.parametrize("method", METHODS)
def test_weights_under_which_few_records_count_are_refused(method, monkeypatch):
    weight = np.where(np.isin(np.arange(N), (7, 70, 170)), 1e8, 1.0)
    said, steps = asked(method, table().assign(w=weight), monkeypatch, weights="w")
    assert "fewer than 5 records (min_cell) count for nearly all" in said
    assert not steps & SUMS


@pytest.mark.parametrize("method", METHODS)
def test_beside_a_number_few_records_of_a_class_at_a_level_are_a_warning(method):
    frame = table()
    severe = (frame["course"] == "severe").to_numpy()
    level = np.where(severe, np.cumsum(severe) <= 3, np.arange(N) % 3 == 0)
    known = {"variables": {c: {"type": "number"} for c in ("age", "marker", "level")} | KNOWN}
    frame = frame.assign(level=level * 1.0)
    fed = fc.simulate(frame, sites="site", outcome=METHODS[method], dictionary=known)
    with pytest.warns(UserWarning, match="fewer than 5 records .* one value of 'level'"):
        fc.fit(method, fed)
