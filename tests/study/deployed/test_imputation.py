"""Imputation over hospitals whose rows stay there: each tells rounded errors of its own rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedcohort as fc
from fedcohort.protocol import StudyError
from fedcohort.study.judge.pooled.imputed import MEASURES
from fedcohort.study.sites.layout import seed_of
from latent_studies import Done, shares, study

ARMS = [{"method": "mice", "draws": 2, "sweeps": 2}, {"method": "joint_normal", "draws": 2}]
ASKED = {"task": "imputation", "arms": ARMS, "bounds": [], "evaluate": {"repeats": 1}}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return Done(tmp_path_factory.mktemp("imputation"), shares(lacks=""), **ASKED)


def test_a_run_ends_well_and_says_what_it_leaves_out(done):
    assert {a["status"] for a in done.results["arms"]} == {"done"}
    assert "imputation_errors" in {x.get("part") for x in done.results["left_out"]}
    assert done.results["evaluate"]["metrics"] == list(MEASURES)


@pytest.mark.parametrize("arm", ["mice", "joint_normal"])
def test_the_model_is_that_of_one_process_bit_for_bit(done, arm):
    frames = {t.site: t.halves(0).train for t in done.tables}
    fed = fc.simulate(frames, outcome=None, dictionary=done.terms.seen)
    mine = next(a for a in done.terms.plan.arms if a.name == arm)
    seed = seed_of(done.terms.plan, 0)
    fit = fc.fit(arm, fed, seed=seed, **{**mine.configured(), **mine.preprocess})
    ours, want = done.saved(arm).model.arrays(), fit.model.arrays()
    assert ours.keys() == want.keys()
    for name, array in ours.items():
        assert_array_equal(array, want[name], err_msg=name)


@pytest.mark.parametrize("arm", ["mice", "joint_normal"])
def test_metrics_are_means_over_hospitals_and_near_those_of_the_pooled_rows(done, arm):
    rows = [r for r in done.results["arms"] if r["arm"] == arm]
    whole = next(r["metrics"] for r in rows if r["site"] is None)
    assert 0.02 < whole["masked_rmse"] < 0.6  # one factor with noise of 0.3; the mean gives 1
    assert 0.8 < whole["masked_coverage"] <= 1.0
    own = [r["metrics"]["masked_rmse_own"] for r in rows if r["site"]]
    assert_allclose(whole["masked_rmse"], np.mean(own))


def test_several_tables_over_a_network_are_refused_with_their_line(tmp_path):
    asked = {
        "task": "regression", "data": {"source": "t.csv", "dictionary": "d.yaml",
                                       "outcome": {"y": "v1_01", "type": "continuous"}},
        "arms": [{"method": "ridge"}], "bounds": [], "preprocess": {"impute": "multiple"},
    }  # fmt: skip
    with pytest.raises(StudyError, match="'multiple' of arm 'ridge' needs several"):
        study(tmp_path, **asked)
