"""A column that others give but for one record is refused: a saved model would tell that record."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import fedcohort as fc
from fedcohort.data.differences import own_differences
from fedcohort.numerics.residuals import own_powers
from fedcohort.protocol import NothingToLearn

METHODS = {
    "ridge": {"penalty": 0.01},
    "lasso": {"penalty": 0.01},
    "glm": {},
    "mixed": {},
    "cox": {},
}


def table(n=180, seed=0):
    rng = np.random.default_rng(seed)
    age, bmi = rng.normal(60, 10, n).round(), rng.lognormal(3.2, 0.2, n)
    return pd.DataFrame(
        {
            "age": age,
            "bmi": bmi,
            "crp": rng.lognormal(1.0, 0.6, n),
            "score": 0.02 * age + 0.1 * bmi + rng.normal(size=n),
            "time": np.ceil(rng.exponential(50.0, n)),
            "died": (rng.random(n) < 0.7) * 1.0,
            "site": np.arange(n) % 3,
        }
    )


def asked(method, frame, **settings):
    survival = method == "cox"
    outcome = fc.Survival("time", "died") if survival else fc.Continuous("score")
    frame = frame.drop(columns=["score"] if survival else ["time", "died"])
    fed = fc.simulate(frame, sites="site", outcome=outcome)
    return fc.fit(method, fed, **(METHODS[method] | settings)).model


def test_the_covariance_of_a_near_copy_is_the_row_of_the_one_who_differs():
    frame = table().assign(copy=lambda t: 2.0 * t["bmi"] + 3.0 * (np.arange(len(t)) == 100))
    model = asked("ridge", frame, penalty=0.0, min_cell=1)
    inverse = np.linalg.inv(model.spread)
    apart = inverse[4] - 2.0 * inverse[2]
    assert_allclose(apart[1:4] / apart[0], frame.loc[100, ["age", "bmi", "crp"]], rtol=1e-3)
    with pytest.raises(NothingToLearn, match="'bmi'"):
        asked("ridge", frame)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("apart", [1e-4, 1.0, 60.0])
@pytest.mark.parametrize("whole", [False, True])
def test_a_combination_that_one_record_breaks_is_refused(method, apart, whole):
    frame = table()
    base = frame["bmi"] if not whole else 0.5 * frame["bmi"] + 0.1 * frame["age"] + 7.0
    frame["like"] = base + apart * (np.arange(len(frame)) == 100)
    with pytest.raises(NothingToLearn, match=r"a few records.*fewer than min_cell"):
        asked(method, frame)


@pytest.mark.parametrize("method", ["ridge", "glm", "cox"])
def test_one_that_four_records_of_a_small_site_break_is_refused(method):
    frame = table().assign(site=lambda t: np.where(t.index < 8, 9, t["site"]))
    frame["like"] = 0.5 * frame["bmi"] + 0.1 * frame["age"] + 0.2 * (np.arange(len(frame)) < 4)
    with pytest.raises(NothingToLearn, match=r"a few records.*fewer than min_cell"):
        asked(method, frame)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", ["ridge", "glm", "cox"])
def test_two_measurements_of_the_same_are_no_copies(method, seed):
    frame = table(120, seed)
    noise = np.random.default_rng(seed).normal(size=len(frame))
    model = asked(method, frame.assign(again=frame["bmi"] + 0.1 * noise))
    assert len(model.coef_ if method != "cox" else model.coefficients) == 4


def test_residuals_are_those_of_least_squares_and_of_a_relation_0():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3)) * [1.0, 50.0, 1e-3] + [0.0, 900.0, 0.0]
    squares, fourth = own_powers(x)
    for j in range(3):
        z = np.column_stack([np.ones(30), np.delete(x, j, axis=1)])
        r = x[:, j] - z @ np.linalg.lstsq(z, x[:, j])[0]
        assert_allclose([squares[j], fourth[j]], [r @ r, (r**2) @ r**2], rtol=1e-8)
    joined = np.column_stack([x, 2.0 * x[:, 0] - x[:, 2], np.full(30, 4.0)])
    assert_allclose(own_powers(joined)[0, [0, 2, 3, 4]], 0.0, atol=1e-20)
    assert_allclose(own_powers(joined)[0, 1], squares[1], rtol=1e-8)
    assert not own_differences(joined, 5).any()
    joined[7, 3] += 0.1
    assert own_differences(joined, 5).tolist() == [True, False, False, True, False]
