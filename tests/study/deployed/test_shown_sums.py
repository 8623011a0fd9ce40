"""What a network shows of the sums that judge a model is near the same of the pooled rows."""

from __future__ import annotations

import numpy as np
import pytest
from sksurv.metrics import brier_score, cumulative_dynamic_auc
from sksurv.util import Surv

from deployed_cases import judged
from fedcohort.metrics.survival.censoring import leavers
from fedcohort.metrics.survival.kaplan_meier import group_leavers, kaplan_meier
from fedcohort.metrics.survival.log_rank import log_rank
from fedcohort.privacy.disclosure.counts import few

LEAST = 5


@pytest.fixture(scope="module", params=[0, 1, 2])
def survival(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("survival")
    found, run, train, blind, _ = judged(
        folder, "gbsg2", "survival", "[{method: cox}]", request.param
    )
    risk = run.model.predict(run.design.matrix(blind))
    return found, run, train, blind, risk


def over(found, metric):
    rows = [r for r in found.more["over_time"] if r["metric"] == metric]
    assert all(r["low"] is None and r["high"] is None for r in rows)
    return np.array([(r["time"], r["value"]) for r in rows]).T


def outcome(frame):
    return Surv.from_arrays(frame["cens"] > 0, frame["time"])


def test_the_auc_over_time_is_near_that_of_scikit_survival_on_the_pooled_rows(survival):
    found, _, train, blind, risk = survival
    times, values = over(found, "auc")
    inside = times < train["time"].max()
    exact, _ = cumulative_dynamic_auc(outcome(train), outcome(blind), risk, times[inside])
    assert len(times) > 5 and np.abs(values[inside] - exact).max() < 0.01


def test_the_brier_score_over_time_is_near_that_of_scikit_survival(survival):
    found, run, train, blind, _ = survival
    times, values = over(found, "brier")
    surv = run.model.predict_survival(run.design.matrix(blind), times)
    _, exact = brier_score(outcome(train), outcome(blind), surv, times)
    assert len(times) == 14 and np.abs(values - exact).max() < 0.005


def test_groups_by_risk_are_near_thirds_and_their_test_is_near_that_of_their_rows(survival):
    found, _, _, blind, risk = survival
    (shown,) = found.more["risk_groups"]
    n = np.array([g["n"] for g in shown["groups"]])
    assert np.abs(n - len(blind) / 3).max() < 2 * LEAST  # a bin of risks holds fewer
    assert n.sum() == len(blind) and shown["log_rank"]["df"] == 2
    assert [g["label"] for g in shown["groups"]] == ["low risk", "middle risk", "high risk"]
    time, event = blind["time"].to_numpy(float), blind["cens"].to_numpy() > 0
    rank = np.argsort(np.argsort(risk, kind="stable"))
    group = np.searchsorted(np.cumsum(n)[:-1], rank, side="right")
    exact = log_rank(group_leavers(group, 3, time, event, np.unique(time)))
    assert shown["log_rank"]["chi2"] == pytest.approx(exact.chi2, abs=2.0)
    for g, row in enumerate(shown["groups"]):
        curve, mine = np.array(row["curve"])[1:], group == g
        by_rows = kaplan_meier(np.unique(time), leavers(time[mine], event[mine], np.unique(time)))
        at = np.searchsorted(by_rows.times, curve[:, 0], side="right") - 1
        assert np.abs(curve[:, 1] - by_rows[1][at]).max() < 0.05


def test_no_group_shows_few_patients_or_few_deaths_on_either_side_of_its_curve(survival):
    found, *_ = survival
    (shown,) = found.more["risk_groups"]
    every = [g["events"] for g in shown["groups"]]
    for group, events in zip(shown["groups"], every, strict=True):
        assert group["n"] >= LEAST and (events is None or not few(np.array(events), LEAST))
        assert group["at_risk"] == group["about"] == []
        curve = np.array(group["curve"])
        assert (np.diff(curve[:, 0]) > 0).all() and (np.diff(curve[:, 1]) <= 0).all()


def test_with_a_large_least_cell_groups_hold_as_many_or_are_not_given(tmp_path):
    found, *_ = judged(
        tmp_path, "gbsg2", "survival", "[{method: cox}]", 0, privacy="{min_cell: 30}"
    )
    for shown in found.more["risk_groups"]:
        for group in shown["groups"]:
            assert group["n"] >= 30 and (group["events"] is None or group["events"] >= 30)


def test_each_step_of_a_roc_curve_is_of_several_patients_of_either_class(tmp_path):
    arms = "[{method: logistic, l2: 0.1, scale: standard}]"
    found, run, _, blind, terms = judged(tmp_path, "breast_cancer", "classification", arms, 0)
    (row,) = found.more["roc"]
    points = np.array(row["points"])
    assert points[0].tolist() == [0.0, 0.0] and points[-1].tolist() == [1.0, 1.0]
    y = terms.outcome.values(blind, run.design.classes)
    steps = np.diff(points, axis=0) * [np.sum(y == 0), np.sum(y == 1)]
    assert np.allclose(steps, steps.round()) and not few(steps.round(), LEAST).any()
    said = run.model.predict(run.design.matrix(blind))
    for share, caught in points[1:-1]:  # each point is that of a threshold on the pooled rows
        at = [(np.mean(said[y == 0] >= c / 100), np.mean(said[y == 1] >= c / 100))
              for c in range(1, 100)]  # fmt: skip
        assert np.abs(np.array(at) - (share, caught)).max(axis=1).min() < 1e-12
