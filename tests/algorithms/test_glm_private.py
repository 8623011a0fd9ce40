"""Private generalised linear models: sensitivities by brute force, estimates, and what is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import fedcohort as fc
from fedcohort.algorithms.glm import private
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import InputError, NotSupported, Site
from fedcohort.training.linear import private_products

ROUNDING = 1 + 1e-9
BETA = np.array([1.5, -1.0, 0.5, 0.0])
DICTIONARY = {
    "variables": {f"x{j}": {"type": "number", "usual": [-1, 1]} for j in range(4)}
    | {
        "y": {"type": "binary"},
        "score": {"type": "number", "usual": [-5, 5]},
        "visits": {"type": "integer"},
    }
}


def cohort(outcome: Any, n: int = 6000, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 4))
    eta = x @ BETA
    table = pd.DataFrame(x, columns=[f"x{j}" for j in range(4)])
    if outcome.y == "y":
        table["y"] = (rng.random(n) < 1 / (1 + np.exp(-(eta - 0.5)))).astype(int)
    elif outcome.y == "visits":
        table["visits"] = rng.poisson(np.exp(eta + 0.3))
    else:
        table["score"] = eta + 0.3 + rng.normal(0, 0.5, n)
    names = [*table.columns]
    dictionary = {"variables": {k: DICTIONARY["variables"][k] for k in names}}
    frames = {f"s{i}": table.iloc[i::3].reset_index(drop=True) for i in range(3)}
    return fc.simulate(frames, outcome=outcome, dictionary=dictionary), table


def site(x: np.ndarray, y: np.ndarray) -> Site[LabelledTable, None]:
    return Site("north", LabelledTable(x, y), None, (0, 1, 2))


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 12),
    family=st.sampled_from(["binomial", "poisson"]),
    clip=st.sampled_from([0.1, 1.0, 20.0]),
    far=st.sampled_from([0.1, 3.0, 1e3]),
    seed=st.integers(0, 10_000),
)
def test_any_record_removed_changes_the_scores_by_one_clip_at_most(
    n: int, family: str, clip: float, far: float, seed: int
):
    rng = np.random.default_rng(seed)
    x, gamma = rng.normal(0, far, (n, 3)), rng.normal(0, 1, 4)
    y = rng.integers(0, 2 if family == "binomial" else 50, n).astype(float)

    def told(x: np.ndarray, y: np.ndarray) -> Any:
        return private.score_privately.run(site(x, y), family=family, gamma=gamma, clip=clip)

    whole = told(x, y)
    for i in range(n):
        less = told(np.delete(x, i, 0), np.delete(y, i))
        moved = np.linalg.norm(whole.reply.score - less.reply.score)
        assert moved <= whole.sensitivity["score"] * ROUNDING


def test_without_noise_the_least_squares_are_those_of_the_weighted_records():
    rng = np.random.default_rng(1)
    x, y = rng.normal(0, 1, (200, 3)), rng.uniform(-1, 1, 200)
    told = private.products_privately.run(site(x, y), centre=0.0, scale=1.0, clip=1.0)
    found = private.ridged(private_products.unpacked(told.reply.upper), 1e-12, 0.0)
    z = np.column_stack([np.ones(200), x])
    weight = 1 / np.maximum(1, np.linalg.norm(z, axis=1))
    expected, *_ = np.linalg.lstsq(z * weight[:, None], y * weight, rcond=None)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_at_a_large_epsilon_a_private_logistic_fit_is_near_the_plain_one():
    fed, table = cohort(fc.Binary("y"))
    fit = fc.fit("logistic", fed, dp={"epsilon": 200, "delta": 1e-5}, seed=0, dp_rounds=120)
    plain = LogisticRegression(C=np.inf, tol=1e-10).fit(table[[f"x{j}" for j in range(4)]], table.y)
    np.testing.assert_allclose(fit.model.coefficients, plain.coef_[0], atol=0.1)
    assert fit.model.intercept == pytest.approx(float(plain.intercept_[0]), abs=0.1)


@pytest.mark.parametrize(
    ("outcome", "family", "at"),
    [
        (fc.Binary("y"), "binomial", -0.5),
        (fc.Count("visits"), "poisson", 0.3),
        (fc.Continuous("score"), "gaussian", 0.3),
    ],
)
def test_estimates_come_nearer_to_the_truth_as_epsilon_grows(outcome: Any, family: str, at: float):
    errors = []
    for epsilon in (0.05, 1.0, 30.0):
        found = []
        for seed in range(4):
            fed, _ = cohort(outcome, 3000, seed)
            fit = fc.fit("glm", fed, family=family, dp={"epsilon": epsilon}, seed=seed)
            beta = np.r_[fit.model.intercept, fit.model.coefficients]
            found.append(np.linalg.norm(beta - np.r_[at, BETA]))
        errors.append(np.mean(found))
    assert errors[0] > errors[1] > 0.9 * errors[2]  # at ε 1 the records' own spread is most of it
    assert errors[2] < 0.35


@pytest.mark.parametrize("method", ["logistic", "glm"])
def test_no_standard_error_count_or_likelihood_is_told(method: str, tmp_path: Path):
    given = {"family": "binomial"} if method == "glm" else {}
    fed, table = cohort(fc.Binary("y"), 900)
    fit = fc.fit(method, fed, dp={"epsilon": 3}, seed=0, **given)
    assert set(fit.summary.columns) == {"covariate", "coefficient", "odds_ratio", "unit"}
    assert fit.model.rows == 0
    with pytest.raises(NotSupported, match="noise"):
        _ = fit.model.standard_errors
    (intercept,) = fit.model.parameters(np.zeros(0))
    assert "standard_error" not in intercept
    fit.save(tmp_path / "model")
    again = fc.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(table), fit.predict(table))
    assert fit.ledger.step.unique().tolist() == ["score_privately"]


@pytest.mark.parametrize(
    ("method", "given", "dp", "text"),
    [
        ("logistic", {"solver": "admm", "l2": 1.0}, {}, "'solver' .* choose 'exact'"),
        ("glm", {}, {}, "'family' of method 'glm' is 'auto'.* by name"),
        ("glm", {"family": "binomial", "link": "probit"}, {}, "needs 'logit'"),
        ("logistic", {}, {"unit": "site"}, "choose 'record'"),
        ("logistic", {"scale": "standard"}, {}, "scale is 'standard', which would have to be"),
        ("logistic", {"offset": "x0"}, {}, "takes no offset"),
    ],
)
def test_settings_without_a_private_fit_are_refused_in_one_line(
    method: str, given: dict[str, Any], dp: dict[str, Any], text: str
):
    fed, _ = cohort(fc.Binary("y"), 300)
    with pytest.raises(InputError, match=text) as caught:
        fc.fit(method, fed, dp={"epsilon": 3, **dp}, seed=0, **given)
    assert "\n" not in str(caught.value)
