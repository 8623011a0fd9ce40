"""Metrics formed over sites are near those of the pooled rows, by claims over many studies.

The pooled values are computed by `sksurv`, `lifelines` and `sklearn` on the concatenated rows. The
bounds are shares of each metric's own standard error: below a third of it, an error adds less than
a twentieth to what chance alone does.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from numpy.testing import assert_allclose
from sklearn.metrics import roc_auc_score
from sksurv.metrics import concordance_index_ipcw, integrated_brier_score
from sksurv.util import Surv

from deployed_cases import judged
from fedcohort.metrics.survival import concordance
from fedcohort.metrics.survival.censoring import censoring_of, leavers
from fedcohort.study.judge.pooled.survival import Yardstick
from fedcohort.study.judge.summed.time_scale import falling
from fedcohort.study.run.engine import Problem

STUDIES = range(12)
METRICS = "[c_index, uno_c, antolini_c, ibs, calibration_slope]"


def antolini(run, x, blind):
    """Return Antolini's C from its definition, with curves straight between falls at 50 times."""
    time, event = blind["time"].to_numpy(float), blind["cens"].to_numpy() > 0
    times = np.linspace(*np.quantile(time[event], [0.05, 0.9]), 50)
    curves = run.model.predict_survival(x, times)
    at = np.array([  # (record, time)
        np.interp(time, np.r_[0.0, times[c < 1]], np.r_[1.0, c[c < 1]]) for c in curves
    ])  # fmt: skip
    own = np.diag(at)
    later = (time[None] > time[:, None]) | ((time[None] == time[:, None]) & ~event[None])
    pairs = later & event[:, None]
    right = (own[:, None] < at.T - 1e-12) + 0.5 * (np.abs(own[:, None] - at.T) <= 1e-12)
    return right[pairs].mean()


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """Return by metric the errors of survival studies, in standard errors of the metric."""
    folder = tmp_path_factory.mktemp("survival")
    rows = []
    for seed in STUDIES:
        found, run, train, blind, _ = judged(
            folder, "gbsg2", "survival", "[{method: cox}]", seed, metrics=METRICS
        )
        x = run.design.matrix(blind)
        crossed = found.metrics["antolini_c"] - antolini(run, x, blind)
        f, time, event = run.model.predict(x), blind["time"].to_numpy(float), blind["cens"] > 0
        y, seen = Surv.from_arrays(event, time), Surv.from_arrays(train["cens"] > 0, train["time"])
        tau = np.quantile(train["time"][train["cens"] > 0], 0.9)
        times = np.linspace(*np.quantile(time[event], [0.05, 0.9]), 50)
        surv = run.model.predict_survival(x, times)
        ranks = concordance.influence(f, time, event)
        table = pd.DataFrame({"T": time, "E": event, "f": f, "site": blind["site"]})
        one = CoxPHFitter().fit(table.drop(columns="site"), "T", "E")
        by_site = CoxPHFitter().fit(table, "T", "E", strata="site")
        m = found.metrics
        rows.append({
            "c_index": (m["c_index"] - ranks.value) / ranks.error,
            "uno_c": (m["uno_c"] - concordance_index_ipcw(seen, y, f, tau)[0]) / ranks.error,
            "ibs": (m["ibs"] - integrated_brier_score(seen, y, surv, times)) / 0.009,
            "antolini_c": crossed / ranks.error,
            "slope": m["calibration_slope"] / by_site.params_["f"] - 1.0,
            "pooled": (m["calibration_slope"] - one.params_["f"]) / one.standard_errors_["f"],
        })  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("metric", "typical", "largest"), [
    ("c_index", 0.12, 0.3), ("antolini_c", 0.12, 0.3), ("uno_c", 0.17, 0.4), ("ibs", 0.06, 0.15),
])  # fmt: skip
def test_errors_are_small_beside_chance(errors, metric, typical, largest):
    found = errors[metric]
    assert np.sqrt(np.mean(found**2)) < typical
    assert np.abs(found).max() < largest
    assert abs(found.mean()) < 0.08


def test_curves_that_cross_are_compared_as_well_over_sites(tmp_path):
    """Each tumour grade has a baseline of its own; the standard error is about 0.03."""
    arms, errors = "[{method: cox, strata: tgrade}]", []
    for seed in range(6):
        found, run, _, blind, _ = judged(
            tmp_path, "gbsg2", "survival", arms, seed, metrics="[antolini_c]"
        )
        want = antolini(run, run.design.matrix(blind), blind)
        errors.append(found.metrics["antolini_c"] - want)
    assert np.abs(errors).max() < 0.01
    assert abs(np.mean(errors)) < 0.003


def test_the_slope_is_that_of_lifelines_stratified_by_site(errors):
    assert np.abs(errors["slope"]).max() < 0.002  # lifelines stops early
    assert np.sqrt(np.mean(errors["pooled"] ** 2)) < 0.5


@pytest.mark.parametrize("arm", [
    "method: forest, trees: 20",
    "method: boosting, objective: weibull, sigma: 0.6, rounds: 20, max_depth: 2",
    "method: regression_forest, rounds: 3, trees: 2, depth: 3",
])  # fmt: skip
def test_the_slope_of_any_risk_score_is_that_of_its_log_hazard(tmp_path, arm):
    """The score of a forest is a sum of hazards, that of `weibull` a log time."""
    found, run, _, blind, terms = judged(
        tmp_path, "gbsg2", "survival", f"[{{{arm}}}]", 0, metrics="[calibration_slope]"
    )
    x = run.design.matrix(blind)
    ends = run.model.arrays().get("times", np.array([1000.0]))
    f = np.log(-np.log(run.model.predict_survival(x, ends)).sum(axis=1))
    table = pd.DataFrame({"T": blind["time"], "E": blind["cens"] > 0, "f": f})
    by_site = CoxPHFitter().fit(table.assign(site=blind["site"]), "T", "E", strata="site")
    assert_allclose(found.metrics["calibration_slope"], by_site.params_["f"], rtol=0.002)
    judge = Yardstick.of(Problem({"all": blind}, terms.dictionary, terms.outcome), blind)
    wanted = ("calibration_slope",)
    pooled = judge.metrics(judge.predicted(run, wanted), wanted)["calibration_slope"]
    one = CoxPHFitter().fit(table, "T", "E")
    assert_allclose(pooled, one.params_["f"], rtol=0.002)


def test_the_auc_of_two_sites_is_near_that_of_the_pooled_rows(tmp_path):
    arms = "[{method: logistic, l2: 0.1, scale: standard}]"
    errors = []
    for seed in STUDIES:
        found, run, _, blind, terms = judged(
            tmp_path, "breast_cancer", "classification", arms, seed
        )
        y = terms.outcome.values(blind, run.design.classes)
        said = run.model.predict(run.design.matrix(blind))
        errors.append(found.metrics["auc"] - roc_auc_score(y, said))
    assert np.abs(errors).max() < 0.0015  # the standard error is 0.005
    assert abs(np.mean(errors)) < 0.0006


def test_the_auc_of_classes_of_two_sites_is_near_that_of_the_pooled_rows(tmp_path):
    arms = "[{method: multinomial, l2: 0.1, scale: standard}]"
    data = ", outcome: {y: tgrade, type: ordinal}"
    errors, of_class = [], []
    for seed in STUDIES:
        found, run, _, blind, terms = judged(
            tmp_path, "gbsg2", "classification", arms, seed, data=data
        )
        y = terms.outcome.values(blind, run.design.classes)
        said = run.model.predict(run.design.matrix(blind))
        errors.append(found.metrics["auc"] - roc_auc_score(y, said, multi_class="ovr"))
        for k, row in enumerate(found.more["by_class"]):
            of_class.append(row["auc"] - roc_auc_score(y == k, said[:, k]))
    assert np.abs(errors).max() < 0.003  # the standard error is 0.03
    assert abs(np.mean(errors)) < 0.0006
    assert np.abs(of_class).max() < 0.006


@pytest.mark.parametrize("seed", range(5))
def test_the_censoring_distribution_is_near_kaplan_meier_of_the_exact_times(seed):
    rng = np.random.default_rng(seed)
    time = np.ceil(2000 * rng.weibull(1.3, 500))
    event = rng.random(500) < 0.4
    cells = np.linspace(0.0, time.max(), 257)[1:]
    found, exact = falling(cells, leavers(time, event, cells)), censoring_of(time, event)
    at = np.linspace(0.0, np.quantile(time, 0.9), 400)
    apart = found.at(at) - exact.at(at)
    assert np.abs(apart).max() < 0.015  # a step of the exact curve
    assert abs(apart.mean()) < 0.001
