"""Metrics over sites against those of the pooled blind rows, computed by other code.

Tolerances are the errors that `docs/deployed-metrics.md` states.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics as sklearn
from sksurv.metrics import concordance_index_censored

from deployed_cases import frames_of, results_of, run_local, tables_of, terms_of
from fedcohort.protocol import registry
from fedcohort.study.judge import evaluate
from fedcohort.study.results import saved
from fedcohort.study.run.engine import Problem, fit_once
from fedcohort.study.run.pieces import JUDGED
from fedcohort.study.sites.layout import seed_of

METRICS = {
    "survival": "[c_index, uno_c, antolini_c, ibs, calibration_slope, d_calibration_p]",
    "regression": "[r2, rmse, mae, calibration_slope, calibration_intercept, pcc, nrmse]",
}
CASES = {
    "gbsg2": ("survival", "[{method: cox}]"),
    "breast_cancer": ("classification", "[{method: logistic, l2: 0.1, scale: standard}]"),
    "diabetes": ("regression", "[{method: ridge, penalty: 0.1}]"),
}


@pytest.fixture(scope="module", params=list(CASES))
def case(request, tmp_path_factory):
    """Return a run, its tables, and the arm's model with the pooled blind rows."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    task, arms = CASES[request.param]
    more = {"metrics": METRICS[task]} if task in METRICS else {}
    terms = terms_of(folder, request.param, arms, repeats=2, task=task, **more)
    tables = tables_of(terms, frames_of(request.param))
    run_local(terms, tables, folder / "out")
    arm = terms.plan.arms[1]
    parts = saved.read(folder / "out" / "models" / arm.name / JUDGED)
    blind = pd.concat([t.halves(0).blind for t in tables], ignore_index=True)
    said = parts.model.predict(parts.design.matrix(blind))
    return request.param, terms, tables, results_of(folder / "out"), parts, blind, said


def told(found, arm, site=None, repeat=0):
    return next(
        a["metrics"]
        for a in found["arms"]
        if (a["arm"], a["site"], a["repeat"]) == (arm, site, repeat)
    )


def test_sums_of_single_rows_are_exact(case):
    name, terms, _, found, parts, blind, said = case
    got = told(found, terms.plan.arms[1].name)
    if name == "breast_cancer":
        y = terms.outcome.values(blind, parts.design.classes)
        assert got["brier"] == pytest.approx(sklearn.brier_score_loss(y, said), rel=1e-10)
        assert got["log_loss"] == pytest.approx(sklearn.log_loss(y, said), rel=1e-10)
        assert got["accuracy"] == pytest.approx(np.mean((said > 0.5) == (y > 0)), rel=1e-12)
        assert got["auc"] == pytest.approx(sklearn.roc_auc_score(y, said), abs=0.002)
    if name == "diabetes":
        y = blind["target"].to_numpy(float)
        assert got["r2"] == pytest.approx(sklearn.r2_score(y, said), rel=1e-10)
        assert got["rmse"] == pytest.approx(sklearn.root_mean_squared_error(y, said), rel=1e-10)
        assert got["mae"] == pytest.approx(sklearn.mean_absolute_error(y, said), rel=1e-10)
        assert got["calibration_slope"] == pytest.approx(np.polyfit(said, y, 1)[0], rel=1e-9)
        assert got["pcc"] == pytest.approx(np.corrcoef(said, y)[0, 1], rel=1e-10)
        assert got["nrmse"] == pytest.approx(got["rmse"] / y.std(), rel=1e-10)
        assert got["calibration_intercept"] == pytest.approx(np.mean(y - said), abs=1e-9)


def test_all_metrics_are_near_those_of_the_pooled_blind_rows(case):
    name, terms, tables, found, parts, blind, _ = case
    frames = {t.site: t.halves(0).train for t in tables}
    problem = Problem(frames, terms.dictionary, terms.outcome)
    judge = evaluate.judge_of(problem, blind)

    class Fit:
        model, design = parts.model, parts.design

    want = judge.metrics(judge.predicted(Fit, terms.plan.metrics), terms.plan.metrics)
    got = told(found, terms.plan.arms[1].name)
    assert got.keys() >= want.keys()
    apart = {
        "c_index": 0.01, "uno_c": 0.02, "antolini_c": 0.01, "ibs": 0.005, "calibration_slope": 0.1,
        "d_calibration_p": 0.3, "auc": 0.002,
    }  # fmt: skip
    for metric, value in want.items():
        if value is None:
            assert got[metric] is None, metric
            continue
        exact = name != "gbsg2" and metric != "auc"
        assert got[metric] == pytest.approx(value, **(
            {"rel": 1e-7} if exact else {"abs": apart[metric]}
        )), metric  # fmt: skip


def test_decision_curves_are_those_of_the_pooled_blind_rows(case):
    """Of classes exactly; of survival but for deaths that are counted in intervals of time."""
    name, terms, tables, found, parts, blind, _ = case
    frames = {t.site: t.halves(0).train for t in tables}
    judge = evaluate.judge_of(Problem(frames, terms.dictionary, terms.outcome), blind)

    class Fit:
        model, design = parts.model, parts.design

    arm = terms.plan.arms[1].name
    got = {r["threshold"]: r for r in found["decision"] if r["arm"] == arm}
    if name == "diabetes":
        assert not got
        return
    assert len(got) > 3
    if name == "gbsg2":
        judge = replace(judge, horizon=next(iter(got.values()))["time"])
    want = {r["threshold"]: r for r in judge.decision(Fit)}
    if name == "breast_cancer":
        assert got.keys() == want.keys()
        for t, row in want.items():
            numbers = {k: v for k, v in row.items() if v is not None}
            assert {k: got[t][k] for k in numbers} == pytest.approx(numbers)
        (row,) = [r for r in found["reliability"] if r["repeat"] == 0 and r["arm"] == arm]
        said = judge.predicted(Fit, ())
        parts = row["reliability"] - row["resolution"] + row["uncertainty"] + row["within"]
        assert parts == pytest.approx(np.mean((said - judge.y) ** 2))
        return
    for t in got.keys() & want.keys():
        assert got[t]["net_benefit"] == pytest.approx(want[t]["net_benefit"], abs=0.01)
    groups = [r for r in found["calibration"] if r["repeat"] == 0 and r["arm"] == arm]
    assert all(r["low"] < r["observed"] < r["high"] for r in groups)


def test_each_site_is_judged_on_its_own_rows_up_to_what_min_cell_patients_change(case):
    name, terms, tables, found, parts, _, _ = case
    arm = terms.plan.arms[1].name
    for table in tables:
        blind = table.halves(0).blind
        said = parts.model.predict(parts.design.matrix(blind))
        if name == "gbsg2":
            event = blind[terms.outcome.event].to_numpy() > 0
            want = concordance_index_censored(event, blind[terms.outcome.time], said)[0]
        elif name == "diabetes":
            want = sklearn.r2_score(blind["target"], said)
        else:
            want = sklearn.roc_auc_score(terms.outcome.values(blind, parts.design.classes), said)
        metric = {"gbsg2": "c_index", "diabetes": "r2", "breast_cancer": "auc"}[name]
        own = told(found, arm, table.site)[f"{metric}_own"]
        n = len(blind)
        if name == "gbsg2":
            n = int(event.sum())
        elif name == "breast_cancer":
            ones = terms.outcome.values(blind, parts.design.classes).sum()
            n = int(min(ones, n - ones))
        step = terms.plan.min_cell / (2 * n)
        assert own == pytest.approx(want, abs=step / 2 + 1e-9)
        if own != 1.0:  # a multiple above the largest value becomes that value
            assert own / step == pytest.approx(round(own / step), abs=1e-6)


def test_sites_that_stay_alone_are_judged_within_themselves(case):
    name, terms, tables, found, _, _, _ = case
    plan = terms.plan
    arm = plan.arms[0]
    sums = np.zeros(2)
    for table in tables:
        train, blind = table.halves(0)
        problem = Problem({table.site: train}, terms.dictionary, terms.outcome)
        run = fit_once(
            problem, registry.find(arm.method), arm.configured(), arm.preprocess, seed_of(plan, 0)
        )
        said = run.model.predict(run.design.matrix(blind))
        if name == "gbsg2":
            event = blind[terms.outcome.event].to_numpy() > 0
            _, right, wrong, tied, _ = concordance_index_censored(
                event, blind[terms.outcome.time], said
            )
            own = (right + 0.5 * tied, right + wrong + tied)
        elif name == "diabetes":
            y = blind["target"].to_numpy(float)
            own = (np.sum((y - said) ** 2), len(y))
        else:
            y = terms.outcome.values(blind, run.design.classes)
            pairs = y.sum() * (len(y) - y.sum())
            own = (sklearn.roc_auc_score(y, said) * pairs, pairs)
        sums += own
    got = told(found, "isolated")
    if name == "diabetes":
        assert got["rmse"] == pytest.approx(np.sqrt(sums[0] / sums[1]), rel=1e-9)
    else:
        metric = {"gbsg2": "c_index", "breast_cancer": "auc"}[name]
        assert got[metric] == pytest.approx(sums[0] / sums[1], abs=1e-9)


def test_intervals_are_over_repeats_and_need_three(case):
    _, _, _, found, _, _, _ = case
    assert found["evaluate"]["intervals"] == "repeats"
    assert all(s["low"] is None and s["n"] <= 2 for s in found["summary"])
