"""What the report shows in depth: the metrics it names, reproducible, and of no few people."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.metrics import roc_auc_score

from examples import examples
from fedcohort.data.outcome import Binary, Category, Survival
from fedcohort.data.read.drafting import draft
from fedcohort.metrics.heterogeneity import pooled_share
from fedcohort.metrics.survival import over_time
from fedcohort.metrics.survival.concordance import harrell
from fedcohort.privacy.disclosure.counts import FEWEST_EVENTS
from fedcohort.protocol import NotSupported, registry
from fedcohort.study.judge.details import ALONE, KEYS, PREDICTIONS, details
from fedcohort.study.run import engine
from fedcohort.study.sites import layout

SURVIVAL, BINARY = Survival("time", "event"), Binary("ill")
PLAN = SimpleNamespace(draws=40, min_cell=5)


def table(n, seed, digits=4):
    """Return a table in which `a` drives the outcomes and `b` and the category do not."""
    rng = np.random.default_rng(seed)
    a, b = np.round(rng.normal(size=(2, n)), digits)
    died, left = rng.exponential(700 * np.exp(-a)), rng.exponential(1500, n)
    return pd.DataFrame(
        {
            "a": a,
            "b": b,
            "grade": rng.choice(["I", "II", "III"], n),
            "time": np.ceil(np.minimum(died, left)),
            "event": (died <= left).astype(int),
            "ill": np.where(rng.random(n) < 1 / (1 + np.exp(-a)), "yes", "no"),
        }
    )


class Model:
    """A model that knows that the first feature is the log hazard ratio, and log odds."""

    asked = 0

    def predict(self, x):
        self.asked += len(x)
        return x[:, 0]

    def predict_survival(self, x, times):
        return np.exp(-np.exp(x[:, :1]) * times / 700)


class WithoutCurves(Model):
    def predict_survival(self, x, times):
        raise NotSupported("predict_survival")


class WithoutPredictions(Model):
    def predict(self, x):
        raise NotSupported("predict")


class OfThree(Model):
    def predict(self, x):
        score = np.exp(np.stack([-x[:, 0], 0 * x[:, 0], x[:, 0]], axis=1))
        return score / score.sum(axis=1, keepdims=True)


def a_run(model=None, columns=("a", "b")):
    design = SimpleNamespace(
        columns=[SimpleNamespace(name=c) for c in columns],
        places=None,
        classes=("no", "yes"),
        matrix=lambda frame: frame[list(columns)].to_numpy(float),
    )
    return SimpleNamespace(model=model or Model(), design=design)


def laid_out(frame, outcome, site=None):
    """Return a layout in which the table is both training and blind rows."""
    frames = {"all": frame}
    problem = engine.Problem(frames, draft(frame, outcome), outcome)
    return layout.Laid(problem, frame, np.arange(len(frame)), site)


def in_depth(n=200, outcome=SURVIVAL, seed=0, run=None, site=None, plan=PLAN, digits=4):
    return details(run or a_run(), laid_out(table(n, seed, digits), outcome, site), plan, 3)


@pytest.mark.parametrize("outcome", [SURVIVAL, BINARY])
def test_two_calls_give_equal_json(outcome):
    site = np.repeat(["n", "s"], 100)
    a, b = (json.dumps(in_depth(outcome=outcome, site=site), allow_nan=False) for _ in range(2))
    assert a == b


def test_every_key_is_there_and_only_what_the_task_has_is_filled():
    site = np.repeat(["n", "s"], 100)
    models = {SURVIVAL: Model(), BINARY: Model(), Category("grade"): OfThree()}
    filled = {
        outcome: {k for k, v in in_depth(outcome=outcome, run=a_run(m), site=site).items() if v}
        for outcome, m in models.items()
    }
    both = {"by_centre", "heterogeneity", "importance"}
    assert filled[SURVIVAL] == both | {"over_time", "risk_groups"}
    assert filled[BINARY] == both | {"roc"}
    assert filled[Category("grade")] == both
    assert tuple(in_depth()) == KEYS


def test_a_method_without_predictions_or_curves_is_shown_as_far_as_it_goes():
    assert not any(in_depth(run=a_run(WithoutPredictions())).values())
    found = in_depth(run=a_run(WithoutCurves()))
    assert {row["metric"] for row in found["over_time"]} == {"auc"}
    assert found["importance"]


# along the follow-up ----------------------------------------------------------------------


def test_over_time_is_the_dynamic_auc_at_round_times():
    frame = table(200, 0)
    rows = [r for r in in_depth()["over_time"] if r["metric"] == "auc"]
    times = np.array([r["time"] for r in rows])
    records = (frame["time"].to_numpy(), frame["event"].to_numpy() > 0)
    ones = np.ones((1, len(frame)))
    want = over_time.auc(ones, *records, *records, frame["a"].to_numpy(), times)[0]
    assert_allclose([r["value"] for r in rows], want, rtol=1e-10)
    assert 7 <= len(times) <= 14
    assert set(times % 50) == {0}
    assert all(r["low"] < r["value"] < r["high"] for r in rows)


def test_worse_risk_groups_die_earlier_and_their_sizes_are_thirds():
    (found,) = in_depth()["risk_groups"]
    groups = found["groups"]
    assert [g["label"] for g in groups] == ["low risk", "middle risk", "high risk"]
    assert sum(g["n"] for g in groups) == 200
    last = [g["curve"][-1][1] for g in groups]
    assert last[0] > last[1] > last[2]
    assert [g["at_risk"][0] for g in groups] == [[0.0, g["n"]] for g in groups]
    assert found["log_rank"]["df"] == 2
    assert found["log_rank"]["p"] < 1e-6


def test_where_ties_leave_no_thirds_there_are_fewer_groups_or_none():
    frame = table(60, 1)
    frame["a"] = np.repeat([0.0, 1.0], 30)
    groups = details(a_run(), laid_out(frame, SURVIVAL), PLAN, 3)["risk_groups"][0]["groups"]
    assert [(g["label"], g["n"]) for g in groups] == [("low risk", 30), ("high risk", 30)]
    assert details(a_run(), laid_out(frame.assign(a=0.0), SURVIVAL), PLAN, 3)["risk_groups"] == []
    assert in_depth(n=9)["risk_groups"] == []


@given(
    n=st.integers(12, 120),
    digits=st.integers(0, 3),
    least=st.integers(1, 8),
    seed=st.integers(0, 99),
)
@settings(max_examples=examples(20))
def test_no_count_is_of_few_people_and_nothing_fails(n, digits, least, seed):
    plan = SimpleNamespace(draws=5, min_cell=least)
    site = np.random.default_rng(seed).choice(list("abc"), n, p=[0.1, 0.3, 0.6])
    for outcome in (SURVIVAL, BINARY):
        found = in_depth(n, outcome, seed, site=site, plan=plan, digits=digits)
        json.dumps(found, allow_nan=False)
        groups = [g for row in found["risk_groups"] for g in row["groups"]]
        counts = [c for row in groups + found["by_centre"] for c in (row["n"], row["events"])]
        counts += [c for g in groups for _, c in g["at_risk"]]
        assert all(c is None or c == 0 or c >= least for c in counts)
    frame = table(n, seed, digits)
    for t in (
        row["time"] for row in details(a_run(), laid_out(frame, SURVIVAL), plan, 3)["over_time"]
    ):
        assert ((frame["time"] <= t) & (frame["event"] > 0)).sum() >= least
        assert (frame["time"] > t).sum() >= least


def test_an_arm_s_numbers_at_risk_give_none_of_another_s_away():
    frame = table(70, 5)
    shown = []
    for column in ("a", "b"):
        (found,) = details(a_run(columns=(column, "a")), laid_out(frame, SURVIVAL), PLAN, 3)[
            "risk_groups"
        ]
        rows = [dict(g["at_risk"]) for g in found["groups"]]
        assert all(list(r) == list(rows[0]) for r in rows)
        assert None not in [n for r in rows for n in r.values()]
        shown.append({t: sum(r[t] for r in rows) for t in rows[0]})
    both = sorted({**shown[0], **shown[1]}.items())
    left = -np.diff([n for _, n in both])
    assert ((left == 0) | (left >= 5)).all()


# centres ----------------------------------------------------------------------------------


def test_each_centre_has_its_own_c_index_and_few_events_have_none():
    frame = table(240, 2)
    site = np.repeat(["east", "north", "west", "south"], [90, 80, 60, 10])
    south = np.flatnonzero(site == "south")
    frame.loc[south, "event"] = (np.arange(10) < FEWEST_EVENTS - 1).astype(int)
    found = details(a_run(), laid_out(frame, SURVIVAL, site), PLAN, 3)
    rows = {r["site"]: r for r in found["by_centre"]}
    assert list(rows) == ["east", "north", "south", "west"]
    for name in ("east", "north", "west"):
        mine = frame[site == name]
        want = harrell(mine["a"].to_numpy(), mine["time"].to_numpy(), mine["event"].to_numpy() > 0)
        assert_allclose(rows[name]["value"], want)
        assert rows[name]["low"] < want < rows[name]["high"]
        assert rows[name]["note"] is None
    assert (rows["south"]["value"], rows["south"]["note"]) == (None, "fewer than 5 events")
    assert (rows["south"]["n"], rows["south"]["events"]) == (10, None)
    few = [rows[name] for name in ("east", "north", "west")]
    want = pooled_share([r["value"] for r in few], [r["se"] for r in few])
    (pooled,) = found["heterogeneity"]
    assert_allclose([pooled["pooled"], pooled["low"], pooled["q"]], [want.mean, want.low, want.q])
    assert pooled["metric"] == "c_index"


def test_one_centre_with_a_value_is_not_pooled():
    found = in_depth(n=100, site=np.repeat(["a", "b"], [97, 3]))
    assert found["heterogeneity"] == []
    assert [r["value"] is None for r in found["by_centre"]] == [False, True]
    assert [r["n"] for r in found["by_centre"]] == [None, None]


def test_of_a_yes_no_outcome_it_is_the_auc_whatever_the_size_of_the_probabilities():
    frame = table(150, 3)
    frame["a"] *= 1e-12  # differences below the ties of the C-index
    site = np.repeat(["a", "b"], 75)
    found = details(a_run(), laid_out(frame, BINARY, site), PLAN, 3)
    for row in found["by_centre"]:
        mine = frame[site == row["site"]]
        assert_allclose(row["value"], roc_auc_score(mine["ill"] == "yes", mine["a"]))
        assert row["metric"] == "auc"
        assert row["events"] == (mine["ill"] == "yes").sum()
    assert found["roc"][0]["points"][0] == [0.0, 0.0]
    assert found["importance"][0]["drop"] > 0.1


# columns ----------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [SURVIVAL, BINARY])
def test_only_the_column_that_is_used_is_important(outcome):
    a, b = in_depth(outcome=outcome)["importance"]
    assert [a["feature"], b["feature"]] == ["a", "b"]
    assert 0 < a["low"] < a["drop"] < a["high"]
    assert (b["drop"], b["low"], b["high"]) == (0, 0, 0)


def test_of_many_columns_and_rows_importance_asks_for_a_bounded_number_of_predictions():
    for n, p in ((60, 200), (3000, 200), (5000, 8)):
        frame = pd.concat([table(n, 0), pd.DataFrame(np.zeros((n, p)))], axis=1)
        frame.columns = [str(c) for c in frame.columns]
        model = Model()
        run = a_run(model, ("a", *map(str, range(p - 1))))
        details(run, laid_out(frame, BINARY), PLAN, 3)
        assert model.asked - n <= PREDICTIONS


def test_of_many_columns_neighbours_are_permuted_together_and_every_column_counts():
    frame = pd.concat([table(300, 0), pd.DataFrame(np.zeros((300, 2 * ALONE)))], axis=1)
    frame.columns = [str(c) for c in frame.columns]
    names = ("a", *map(str, range(2 * ALONE)))
    found = details(a_run(columns=names), laid_out(frame, BINARY), PLAN, 3)["importance"]
    assert found[0]["feature"] == "a to 1"
    assert found[0]["drop"] > 0.1 > found[1]["drop"]
    assert sum(row["columns"] for row in found) == len(names)
    assert len(found) <= ALONE


def test_a_category_counts_as_one_column_of_a_fitted_model(monkeypatch):
    frame = table(240, 4)
    site = np.repeat(["n", "s"], 120)
    frames = {s: frame[site == s].drop(columns="ill").reset_index(drop=True) for s in ("n", "s")}
    dictionary = draft(frame.drop(columns="ill"), SURVIVAL)
    problem = engine.Problem(frames, dictionary, SURVIVAL)
    preprocess = {"scale": "standard", "impute": "median"}
    run = engine.fit_once(problem, registry.find("cox"), {}, preprocess, 1)
    found = details(run, layout.Laid(problem, frame, np.arange(240), site), PLAN, 3)
    drops = {r["feature"]: r["drop"] for r in found["importance"]}
    assert list(drops) == ["a", "b", "grade"]
    assert max(drops, key=drops.__getitem__) == "a"
    assert {row["metric"] for row in found["over_time"]} == {"auc", "brier"}
    assert len(found["by_centre"]) == 2
    assert run.design.places == {"a": [0], "b": [1], "grade": [2, 3]}
    monkeypatch.setattr(type(run.design), "places", None)  # then columns of the table are permuted
    assert details(run, layout.Laid(problem, frame, np.arange(240), site), PLAN, 3) == found
