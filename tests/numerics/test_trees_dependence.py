"""Rows with a replaced covariate have the margins of XGBoost, and mean what scikit-learn says."""

from __future__ import annotations

import numpy as np
import xgboost as xgb
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.inspection import partial_dependence

from fedcohort.algorithms.boosting.xgboost_reader import read
from fedcohort.numerics.trees.dependence import replaced
from tree_cases import grown, rows


def test_the_mean_over_sites_is_the_partial_dependence_of_scikit_learn():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 3))
    model = xgb.XGBRegressor(n_estimators=10, max_depth=3, n_jobs=1).fit(x, x[:, 0] * x[:, 1])
    ensemble = read(bytes(model.get_booster().save_raw("json")), "booster").ensemble
    grid = np.linspace(-2, 2, 7)
    theirs = partial_dependence(
        model, x, [1], custom_values={1: grid}, method="brute", kind="average"
    )["average"][0]
    parts = [replaced(ensemble, part, {1: grid})[1] for part in np.split(x, [20, 21])]
    ours = sum(part[..., 0].sum(axis=0) for part in parts) / len(x)
    assert np.ptp(ours) > 0.1
    assert_allclose(ours, theirs, atol=1e-6)


@given(seed=st.integers(0, 2**16), depth=st.integers(0, 4))
def test_margins_are_those_of_each_row_with_the_covariate_changed(seed, depth):
    ensemble, x = grown(seed, 3, depth=depth, outputs=2), rows(seed, 5, 3)
    grid = {0: np.array([-1.0, 0.0, 0.75, np.nan, np.inf]), 2: np.array([np.nan])}
    found = replaced(ensemble, x, grid)
    assert found.keys() == grid.keys()
    for j, values in grid.items():
        for place, value in enumerate(values):
            changed = x.copy()
            changed[:, j] = value
            assert_allclose(found[j][:, place], ensemble.margins(changed), rtol=0, atol=1e-12)
    assert replaced(ensemble, x[:0], grid)[0].shape == (0, 5, 2)
