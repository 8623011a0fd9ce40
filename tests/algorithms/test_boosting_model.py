"""A fitted booster predicts, is saved, explains itself, and gives a file to XGBoost."""

from __future__ import annotations

import dataclasses
import json
import runpy
from types import SimpleNamespace

import numpy as np
import pytest
import xgboost as xgb
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load, save
from scipy import stats

from doc_pages import DOCS, blocks
from fedcohort.algorithms.boosting.model import BoostedModel
from fedcohort.algorithms.boosting.response import OBJECTIVES, Objective
from fedcohort.numerics.survival import Baseline
from fedcohort.protocol import NotSupported
from tree_cases import grown, rows

FEATURES = ("age", "size", "grade", "bmi")
X = rows(7, 30, 4)


def fitted(loss, **more):
    levels = {"softmax": ("a", "b", "c"), "logistic": ("no", "yes")}.get(loss, ())
    return BoostedModel(
        features=FEATURES,
        levels=levels,
        objective=Objective.of_loss(loss, sigma=0.8),
        ensemble=grown(2, 4, trees=9, depth=4, outputs=3 if loss == "softmax" else 1),
        **more,
    )


@pytest.mark.parametrize("loss", OBJECTIVES)
def test_a_saved_model_predicts_the_same_and_its_file_as_xgboost_does(loss):
    model = fitted(loss)
    arrays = load(save(model.arrays()))
    again = BoostedModel.restore(arrays, json.loads(json.dumps(model.meta())))
    assert_array_equal(again.predict(X), model.predict(X))
    assert again.files() == model.files()
    booster = xgb.Booster()
    booster.load_model(bytearray(model.files()["xgboost.json"]))
    theirs = booster.predict(xgb.DMatrix(X, feature_names=list(FEATURES)))
    ours = model.predict(X)
    if loss in ("cox", "weibull"):  # XGBoost: a hazard ratio, a time; we: a risk score
        ours = np.exp(ours if loss == "cox" else -ours)
    assert ours.shape == ((30, 3) if loss == "softmax" else (30,))
    assert_allclose(theirs, ours, rtol=1e-6, atol=1e-6)


def test_the_lines_of_the_page_predict_as_the_fit(tmp_path, monkeypatch):
    page = (DOCS / "methods" / "boosting.md").read_text()
    (body,) = (b.body for b in blocks(page) if b.body.startswith("import xgboost"))
    model = fitted("logistic")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "xgboost.json").write_bytes(model.files()["xgboost.json"])
    (tmp_path / "page.py").write_text(body.replace("booster.predict", "told = booster.predict"))
    monkeypatch.chdir(tmp_path)
    fit = SimpleNamespace(parts=SimpleNamespace(design=SimpleNamespace(matrix=np.asarray)))
    ran = runpy.run_path("page.py", {"fit": fit, "df": X})
    assert_allclose(ran["told"], model.predict(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("distribution", "error"),
    [("normal", stats.norm), ("logistic", stats.logistic), ("extreme", stats.gumbel_l)],
)
def test_survival_of_a_time_model_is_that_of_its_error(distribution, error):
    objective = Objective(name="survival:aft", distribution=distribution, sigma=0.8)
    model = dataclasses.replace(fitted("weibull"), objective=objective)
    times = np.array([0.0, 1e-9, 0.5, 3.0, 1e9])
    with np.errstate(divide="ignore"):
        z = (np.log(times) - model.margins(X)) / 0.8
    found = model.predict_survival(X, times)
    assert_allclose(found, error.sf(z), rtol=1e-9, atol=1e-12)
    assert_array_equal(found[:, 0], 1.0)
    # who is at a higher risk survives less
    order = np.argsort(model.predict(X))
    assert (np.diff(found[order, 2]) <= 0).all()


@pytest.mark.parametrize(
    ("distribution", "error"),
    [("normal", stats.norm), ("logistic", stats.logistic), ("extreme", stats.gumbel_l)],
)
def test_the_median_of_a_time_model_is_that_of_its_error_up_to_the_last_known_time(
    distribution, error
):
    objective = Objective(name="survival:aft", distribution=distribution, sigma=0.8)
    model = dataclasses.replace(fitted("weibull"), objective=objective)
    want = np.exp(model.margins(X)[:, 0] + 0.8 * error.median())
    assert_allclose(model.median_survival(X), want, rtol=1e-6)  # margins are float32
    end = float(np.median(want))
    model = dataclasses.replace(model, known=end)
    model = BoostedModel.restore(model.arrays(), json.loads(json.dumps(model.meta())))
    assert_array_equal(np.isnan(model.median_survival(X)), want > end)
    assert_array_equal(model.known_until(X), np.full(30, end))
    assert fitted("logistic").median_survival(X) is None


def test_the_log_hazard_of_a_weibull_model_has_its_scale():
    """log(−log S(t | x)) is the log cumulative hazard, of proportional hazards as these."""
    model = fitted("weibull")
    log_hazard = np.log(-np.log(model.predict_survival(X, np.array([0.7]))[:, 0]))
    found = model.log_hazard(X)
    assert_allclose(found - found[0], log_hazard - log_hazard[0], rtol=1e-9, atol=1e-9)
    assert_array_equal(fitted("cox").log_hazard(X), fitted("cox").predict(X))


def with_baselines():
    cumulative = np.linspace(1, 2, 10)[:, None] * [0.1, 0.4]
    return fitted("cox", baselines=tuple(Baseline(np.array([1.0, 2.0]), row) for row in cumulative))


def test_survival_of_a_cox_booster_is_that_of_its_last_baseline_and_is_saved():
    model = with_baselines()
    model = BoostedModel.restore(model.arrays(), model.meta())
    found = model.predict_survival(X, np.array([0.5, 1.0, 9.0]))
    assert_allclose(found, np.exp(-np.outer(np.exp(model.predict(X)), [0.0, 0.2, 0.8])))
    assert_array_equal(model.known_until(X), np.full(30, 2.0))
    with pytest.raises(NotSupported, match="no baseline hazard"):
        fitted("cox").predict_survival(X, np.ones(1))
    with pytest.raises(NotSupported, match=r"^predict_survival$"):
        fitted("logistic").predict_survival(X, np.ones(1))


def test_the_model_after_fewer_rounds_has_their_trees_and_baseline():
    model = with_baselines()
    assert model.at_round(9) is model and model.at_round(100) is model
    assert_array_equal(model.at_round(0).predict(X), np.full(30, model.ensemble.base[0]))
    early = BoostedModel.restore(model.arrays(), model.meta()).at_round(3)
    early.ensemble.check(4)
    assert early.rounds == 3
    assert early.baselines[-1].cumulative.tolist() == model.baselines[3].cumulative.tolist()
    booster = xgb.Booster()
    booster.load_model(bytearray(model.files()["xgboost.json"]))
    own = int(booster.num_boosted_rounds() > 9)  # a round of the base margin
    d = xgb.DMatrix(X, feature_names=list(FEATURES))
    theirs = booster.predict(d, output_margin=True, iteration_range=(0, 3 + own))
    assert_allclose(early.predict(X), theirs, rtol=1e-6, atol=1e-6)


def test_rounds_of_several_outputs_have_a_tree_of_each():
    model = fitted("softmax")
    assert (model.rounds, len(model.ensemble.trees)) == (3, 9)
    early = model.at_round(2)
    assert (early.rounds, early.ensemble.group.tolist()) == (2, [0, 1, 2, 0, 1, 2])
    mixed = dataclasses.replace(model.ensemble, group=np.repeat([0, 1, 2], 3).astype(np.int32))
    cut = mixed.first(1)
    cut.check(4)
    sizes = np.array([p.stop - p.start for p in mixed.trees.parts()])
    assert np.diff([*cut.trees.roots, len(cut.gain)]).tolist() == sizes[[0, 3, 6]].tolist()


def test_shapley_values_add_to_the_margin():
    model = fitted("softmax")
    phi, expected = model.shapley(X)
    assert phi.shape == (30, 3, 4)
    assert_allclose(phi.sum(axis=2) + expected, model.margins(X), rtol=1e-10, atol=1e-12)


def test_splits_are_listed_by_their_gain_and_those_of_xgboost():
    model = dataclasses.replace(fitted("squared"), features=(*FEATURES, "unused"))
    found = model.splits()
    assert sum(row["share"] for row in found) == pytest.approx(1)
    assert [row["share"] for row in found] == sorted((r["share"] for r in found), reverse=True)
    booster = xgb.Booster()
    booster.load_model(bytearray(model.files()["xgboost.json"]))
    for kind in ("weight", "gain", "cover", "total_gain", "total_cover"):
        theirs = booster.get_score(importance_type=kind)
        assert {r["covariate"]: r[kind] for r in found} == pytest.approx(theirs, rel=1e-5)
    json.dumps(found, allow_nan=False)
    no_tree_splits = grown(0, 4, depth=0)
    assert dataclasses.replace(fitted("squared"), ensemble=no_tree_splits).splits() == []


@pytest.mark.parametrize("loss", OBJECTIVES)
def test_the_rest_of_the_model_is_its_base_margins_and_how_a_prediction_is_made(loss):
    model = fitted(loss)
    found = model.parameters(np.zeros(0))
    assert [row["value"] for row in found] == model.ensemble.base.tolist()
    assert [row["name"].partition(", ")[2] for row in found] == (
        ["a", "b", "c"] if loss == "softmax" else [""]
    )
    assert "note" in found[0] and not found[0]["note"].endswith(".")


@pytest.mark.parametrize(
    ("name", "value"),
    [("left", 0), ("right", 10**6), ("feature", 4), ("group", 5), ("roots", 1), ("cover", -1)],
)
def test_saved_arrays_that_are_no_trees_are_refused(name, value):
    model = fitted("squared")
    arrays = {k: a.copy() for k, a in model.arrays().items()}
    arrays[name][0] = value
    with pytest.raises(ValueError):
        BoostedModel.restore(arrays, model.meta())
    del arrays[name]
    with pytest.raises(LookupError):
        BoostedModel.restore(arrays, model.meta())


@pytest.mark.parametrize(
    "change",
    [{"name": "rank:ndcg"}, {"distribution": "cauchy"}, {"sigma": 0.0}, {"sigma": float("nan")},
     {"sigma": "1"}, {"name": "multi:softprob"}, {"more": 1}],
)  # fmt: skip
def test_a_saved_objective_that_is_none_is_refused(change):
    model = fitted("weibull")
    meta = model.meta()
    meta["objective"] = meta["objective"] | change
    with pytest.raises((ValueError, TypeError)):
        BoostedModel.restore(model.arrays(), meta)


def test_baselines_that_are_not_those_of_all_rounds_are_refused():
    model = with_baselines()
    arrays = model.arrays()
    with pytest.raises(ValueError, match="4 baselines of 9 rounds"):
        BoostedModel.restore(arrays | {"cumulative": arrays["cumulative"][:4]}, model.meta())
    for wrong in (arrays["cumulative"][:, :1], arrays["cumulative"][0]):
        with pytest.raises(ValueError, match="differ in length"):
            BoostedModel.restore(arrays | {"cumulative": wrong}, model.meta())
