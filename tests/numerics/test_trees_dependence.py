"""Partial dependence by sums is that of scikit-learn over all rows, however they are split."""

from __future__ import annotations

import numpy as np
import xgboost as xgb
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.inspection import partial_dependence

from fedcohort.algorithms.boosting.xgboost_reader import read
from fedcohort.numerics.trees.dependence import dependence_sums
from tree_cases import grown, rows


def test_the_mean_over_sites_is_the_partial_dependence_of_scikit_learn():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 3))
    model = xgb.XGBRegressor(n_estimators=10, max_depth=3, n_jobs=1).fit(x, x[:, 0] * x[:, 1])
    predict = read(bytes(model.get_booster().save_raw("json")), "booster").ensemble.margins
    grid = np.linspace(-2, 2, 7)
    theirs = partial_dependence(
        model, x, [1], custom_values={1: grid}, method="brute", kind="average"
    )["average"][0]
    parts = [dependence_sums(predict, part, 1, grid) for part in np.split(x, [20, 21])]
    ours = sum(sums for sums, _ in parts)[:, 0] / sum(n for _, n in parts)
    assert np.ptp(ours) > 0.1
    assert_allclose(ours, theirs, atol=1e-6)


@given(seed=st.integers(0, 2**16), j=st.integers(0, 2))
def test_one_row_gives_its_predictions_and_rows_stay_as_they_are(seed, j):
    ensemble, x = grown(seed, 3, outputs=2), rows(seed, 4, 3)
    kept, grid = x.copy(), np.array([-1.0, 0.0, 0.75, np.nan])
    sums, n = dependence_sums(ensemble.margins, x[:1], j, grid)
    each = np.tile(x[:1], (4, 1))
    each[:, j] = grid
    assert_array_equal(sums, ensemble.margins(each))
    assert n == 1
    dependence_sums(ensemble.margins, x, j, grid)
    assert_array_equal(x, kept)
    nothing, none = dependence_sums(ensemble.margins, x[:0], j, grid)
    assert not nothing.any() and none == 0
