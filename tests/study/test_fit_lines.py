"""A fit says on one line what it is, what it left out, and what was missing to make it."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter

import fedcohort as fc
from fedcohort.data.dictionary import Dictionary, Variable

OUTCOME = fc.Survival("time", "event")


def table(n: int, seed: int, *, events: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(60, 9, n).round(1),
            "stage": rng.choice(["I", "II"], n),
            "flat": 1.0,
            "visit": pd.date_range("2020-01-01", periods=n).astype(str),
            "time": rng.exponential(5, n) + 0.1,
            "event": rng.integers(0, 2, n) * events,
        }
    )


TABLES = {"a": table(60, 1), "b": table(60, 2), "c": table(40, 3, events=False)}


def said(recwarn: pytest.WarningsRecorder) -> list[str]:
    return [str(w.message) for w in recwarn if w.category is UserWarning]


def test_columns_that_vanish_are_warned_of_once_and_told_by_the_fit(recwarn):
    fit = fc.fit("cox", fc.simulate(TABLES, outcome=OUTCOME))
    (line,) = said(recwarn)
    assert line == (
        "cox leaves out 2 columns: 'visit' (date, as drafted), 'flat' (constant). Give a "
        "dictionary to say otherwise."
    )
    assert dict(fit.dropped) == {"visit": "date", "flat": "constant"}
    assert fit.parts.design.features == ("age", "stage=II")


def test_a_dictionary_that_says_so_is_not_warned_of_but_a_constant_is(recwarn):
    known = Dictionary(
        {
            "age": Variable("age", "number"),
            "flat": Variable("flat", "number"),
            "stage": Variable("stage", "category", ("I", "II"), feature=False),
            "time": Variable("time", "time"),
            "event": Variable("event", "event"),
        }
    )
    frames = {s: t.drop(columns="visit") for s, t in TABLES.items()}
    fed = fc.simulate(frames, outcome=OUTCOME, dictionary=known)
    assert dict(fc.fit("cox", fed).dropped) == {"stage": "not a feature", "flat": "constant"}
    assert said(recwarn) == ["cox leaves out 1 column: 'flat' (constant)."]


def test_where_nothing_vanishes_nothing_is_said():
    frames = {
        s: t.drop(columns=["flat", "visit"]).assign(id=range(len(t))) for s, t in TABLES.items()
    }
    fed = fc.simulate({s: frames[s] for s in "ab"}, outcome=OUTCOME)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fit = fc.fit("cox", fed, strategy="isolated")
        fc.fit("kaplan_meier", fed)
    assert "id" in fit.dropped


def test_a_fit_is_printed_on_one_line(tmp_path):
    frames = {s: t.drop(columns=["flat", "visit"]) for s, t in TABLES.items() if s != "c"}
    fed = fc.simulate(frames, outcome=OUTCOME)
    fit = fc.fit("cox", fed)
    assert repr(fit) == f"<Fit of cox, 2 sites, {fit.run.rounds} rounds, 2 features: age, stage=II>"
    fit.save(tmp_path)
    assert repr(fc.load(tmp_path)) == "<Fit of cox, 2 features: age, stage=II>"
    assert repr(fc.fit("cox", fed, strategy="isolated")) == "<Fit of cox at each of 2 sites alone>"
    assert repr(fc.fit("kaplan_meier", fed)) == "<Fit of kaplan_meier, 2 sites, 1 round>"
    shifted = {s: t.assign(shift=t.age / 100) for s, t in frames.items()}
    offset = fc.fit("cox", fc.simulate(shifted, outcome=OUTCOME), offset="shift")
    assert repr(offset).endswith("2 features: age, stage=II, offset shift>")


@pytest.mark.parametrize(
    ("method", "task", "outcome"),
    [
        ("logistic", "classification", 'fc.Binary("COLUMN")'),
        ("ridge", "regression", 'fc.Continuous("COLUMN") or fc.Count("COLUMN")'),
        ("cox", "survival", 'fc.Survival("TIME", "EVENT")'),
    ],
)
def test_without_an_outcome_the_error_says_how_to_give_one(method, task, outcome):
    with pytest.raises(fc.FedcohortError) as caught:
        fc.fit(method, fc.simulate(TABLES))
    assert str(caught.value) == (
        f"method '{method}' serves {task}; say what it predicts: fc.simulate(…, outcome={outcome})."
    )


def test_an_outcome_of_another_task_is_named():
    with pytest.raises(fc.FedcohortError, match="'logistic' serves classification, not survival"):
        fc.fit("logistic", fc.simulate(TABLES, outcome=OUTCOME))


def test_a_site_without_an_event_takes_part_and_counts_as_in_the_pooled_table():
    frames = {s: t[["age", "time", "event"]] for s, t in TABLES.items()}
    fit = fc.fit("cox", fc.simulate(frames, outcome=OUTCOME), time_grid="exact")
    pooled = pd.concat(frames.values())
    expected = CoxPHFitter().fit(pooled, "time", "event", fit_options={"precision": 1e-12})
    np.testing.assert_allclose(fit.summary.coefficient, expected.params_, rtol=1e-6)


def test_where_no_site_has_an_event_that_is_refused():
    with pytest.raises(fc.FedcohortError, match="no site has an event in column 'event'"):
        fc.simulate({"c": TABLES["c"], "d": table(30, 4, events=False)}, outcome=OUTCOME)


def test_a_table_without_the_offset_is_told_that_it_is_one():
    frames = {
        s: t[["age", "stage", "time", "event"]].assign(shift=t.age / 100) for s, t in TABLES.items()
    }
    fit = fc.fit("cox", fc.simulate(frames, outcome=OUTCOME), offset="shift")
    with pytest.raises(fc.FedcohortError) as caught:
        fit.predict(TABLES["a"])
    expected = "there is no column 'shift' among 6 columns. It is the offset, which the model needs"
    assert expected in str(caught.value)
