"""Private linear models: sensitivity by brute force, limits, and what is told and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import ElasticNet, Lasso, Ridge

import fedcohort as fc
from fedcohort.algorithms.linear import private
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import DataError, InputError, NotSupported, Site
from fedcohort.study.study import Study
from fedcohort.training.linear import private_products
from fedcohort.training.linear.private_products import NoisyProducts, unpacked

ROUNDING = 1 + 1e-9
METHODS = ["ridge", "lasso", "elastic_net"]
BETA = np.array([2.0, -1.5, 1.0, 0.0, 0.0])
NAMES = [f"x{j}" for j in range(5)]
SPEC: dict[str, Any] = {
    **{name: {"type": "number", "usual": [-1, 1]} for name in NAMES},
    "y": {"type": "number", "usual": [-8, 8]},
}


def cohort(n: int = 3000, seed: int = 0, spec: Any = SPEC) -> tuple[Any, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 5))
    table = pd.DataFrame(x, columns=NAMES)
    table["y"] = 0.5 + x @ BETA + rng.normal(0, 0.5, n)
    frames = {f"s{i}": table.iloc[i::3].reset_index(drop=True) for i in range(3)}
    return fc.simulate(frames, outcome=fc.Continuous("y"), dictionary={"variables": spec}), table


def told(x: np.ndarray, y: np.ndarray, clip: float) -> Any:
    site = Site("north", LabelledTable(x, y), None, (0, 1, 2))
    return private_products.products_privately.run(site, centre=1.0, scale=2.0, clip=clip)


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(1, 12),
    clip=st.sampled_from([0.1, 1.0, 1.5, 20.0]),
    far=st.sampled_from([0.1, 3.0, 1e3, 1e200]),
    gone=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_any_record_removed_changes_the_products_by_their_sensitivity_at_most(
    n: int, clip: float, far: float, gone: bool, seed: int
):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(0, far, (n, 3)), rng.normal(0, far, n)
    if gone:
        x[0, 0], y[-1] = np.nan, np.nan
    whole = told(x, y, clip)
    for i in range(n):
        less = told(np.delete(x, i, 0), np.delete(y, i), clip)
        moved = np.linalg.norm(whole.reply.upper - less.reply.upper)
        assert moved <= whole.sensitivity["upper"] * ROUNDING


@pytest.mark.parametrize("clip", [0.5, 1.0, 3.0])
def test_some_record_changes_the_products_by_the_whole_sensitivity(clip: float):
    x = np.full((1, 9), 1.0) if clip > 1 else np.zeros((1, 9))
    whole, none = told(x, np.array([9.0]), clip), told(x[:0], np.zeros(0), clip)
    moved = np.linalg.norm(whole.reply.upper - none.reply.upper)
    share = moved / whole.sensitivity["upper"]
    assert share == pytest.approx(1.0 if clip <= 1 else 9.9 / 10.0)


def test_without_noise_the_moments_are_those_of_records_weighted_by_their_covariates():
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-1, 1, (400, 3)), rng.uniform(-1, 3, 400)
    upper = told(x, y, 1.0).reply.upper
    found, dearer = private.read(NoisyProducts(unpacked(upper), 1e-13, 1.0, 2.0, 1.0))
    w = 1 / (1 + (x**2).sum(axis=1))  # w²
    w *= 400 / w.sum()
    table = np.column_stack([x, y])
    mean = np.average(table, axis=0, weights=w)
    inner = np.cov(table, rowvar=False, aweights=w, ddof=0) * 400
    assert found.rows == pytest.approx(400)
    np.testing.assert_allclose(found.centre, mean, rtol=1e-9)
    np.testing.assert_allclose(found.inner, inner, rtol=1e-8)
    assert dearer < 1e-12


@pytest.mark.parametrize(
    ("method", "given", "judge"),
    [
        ("ridge", {"penalty": 0.1}, Ridge(alpha=0.1 * 6000 / 2, tol=1e-12)),
        ("lasso", {"penalty": 0.2}, Lasso(alpha=0.1, tol=1e-12)),
        ("elastic_net", {"l1": 0.1, "l2": 0.2}, ElasticNet(alpha=0.15, l1_ratio=1 / 3, tol=1e-12)),
    ],
)
def test_at_the_largest_epsilon_a_fit_that_cuts_nothing_is_that_of_the_pooled_table(
    method: str, given: dict[str, Any], judge: Any
):
    fed, table = cohort(6000)
    fit = fc.fit(method, fed, dp={"epsilon": 1000, "clip": 10}, seed=0, **given)
    plain = judge.fit(table[NAMES], table.y)
    np.testing.assert_allclose(fit.model.coefficients, plain.coef_, atol=0.02)
    assert fit.model.intercept == pytest.approx(float(plain.intercept_), abs=0.02)


@pytest.mark.parametrize("method", METHODS)
def test_estimates_come_nearer_to_the_truth_as_epsilon_grows(method: str):
    errors = []
    for epsilon in (0.1, 2.0, 100.0):
        fits = [fc.fit(method, cohort(seed=s)[0], dp={"epsilon": epsilon}, seed=s) for s in (0, 1)]
        errors.append(np.mean([np.linalg.norm(f.model.coefficients - BETA) for f in fits]))
    assert errors[0] > 1.5 * errors[1] > 1.5 * errors[2]
    assert errors[2] < 0.12


def test_the_penalty_is_chosen_from_the_one_release_and_leaves_out_what_has_no_effect():
    fit = fc.fit("lasso", cohort(8000)[0], dp={"epsilon": 10}, seed=0)
    assert fit.model.path_.rule == "bic"
    assert fit.model.path_.penalties.shape == (100,)
    assert (fit.model.coefficients[3:] == 0).all()
    assert (fit.model.coefficients[:3] != 0).all()
    assert fit.ledger.groupby("step").call.nunique().to_dict() == {"products_privately": 1}


@pytest.mark.parametrize("method", METHODS)
def test_two_simulations_give_the_same_arrays_and_another_seed_others(method: str):
    def arrays(seed: int) -> Any:
        return fc.fit(method, cohort(300)[0], dp={"epsilon": 5}, seed=seed).model.arrays()

    one, two, other = arrays(1), arrays(1), arrays(2)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
    assert not np.array_equal(one["intercept"], other["intercept"])


@pytest.mark.parametrize("method", METHODS)
def test_nothing_but_coefficients_is_told_and_a_saved_model_is_read_back(
    method: str, tmp_path: Path
):
    fed, table = cohort(600)
    fit = fc.fit(method, fed, dp={"epsilon": 3}, seed=0)
    assert set(fit.summary.columns) - {"shrunken"} == {"covariate", "coefficient", "unit"}
    assert ("shrunken" in fit.summary.columns) == (method != "ridge")
    assert fit.model.rows == 0
    for name in ("standard_errors", "r2", "log_likelihood", "sigma2"):
        with pytest.raises(NotSupported, match="noise"):
            getattr(fit.model, name)
    assert "standard_error" not in fit.model.parameters(np.zeros(0))[0]
    fit.save(tmp_path / "model")
    np.testing.assert_array_equal(fc.load(tmp_path / "model").predict(table), fit.predict(table))


def test_the_ledger_and_the_fit_say_what_was_spent():
    fit = fc.fit("ridge", cohort(600)[0], dp={"epsilon": 2, "delta": 1e-4}, seed=0)
    assert set(fit.ledger.mechanism) == {"gaussian"}
    assert fit.run is not None
    assert fit.run.epsilon == pytest.approx(2.0, abs=0.01)
    assert (fit.run.epsilon or 0.0) <= 2.0 + 1e-9


@pytest.mark.parametrize(
    ("method", "given", "dp", "text"),
    [
        ("ridge", {"solver": "admm", "penalty": 1.0}, {}, "'solver' is 'admm'.* choose 'exact'"),
        ("lasso", {"rule": "1se"}, {}, "'rule' is '1se'.*'bic', or give a penalty"),
        ("elastic_net", {}, {"unit": "site"}, "choose 'record'"),
        ("ridge", {"scale": "standard"}, {}, "scale is 'standard', which would have to be"),
    ],
)
def test_settings_without_a_private_fit_are_refused_in_one_line(
    method: str, given: dict[str, Any], dp: dict[str, Any], text: str
):
    with pytest.raises(InputError, match=text) as caught:
        fc.fit(method, cohort(300)[0], dp={"epsilon": 3, **dp}, seed=0, **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("name", "text"), [("x0", "column 'x0' has no range"), ("y", "outcome")])
def test_a_column_without_limits_in_the_dictionary_is_refused(method: str, name: str, text: str):
    fed, _ = cohort(300, spec=SPEC | {name: {"type": "number"}})
    with pytest.raises(DataError, match=f"{text}.*usual: .low, high.") as caught:
        fc.fit(method, fed, dp={"epsilon": 3}, seed=0)
    assert "\n" not in str(caught.value)


def test_a_study_has_private_arms_and_bounds_without_noise(tmp_path: Path):
    _, table = cohort(900)
    sites = {"site": {"type": "category", "levels": list("abc")}}
    table.assign(site=list("abc") * 300).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "columns.yaml").write_text(json.dumps({"variables": SPEC | sites}))
    path = tmp_path / "study.yaml"
    path.write_text(
        "study: noise\ntask: regression\n"
        "data: {source: rows.csv, dictionary: columns.yaml, sites: {column: site}, "
        "outcome: {y: y}}\n"
        "arms:\n  - {method: ridge}\n  - {method: lasso}\n  - {method: elastic_net}\n"
        "bounds: [isolated, centralised]\nevaluate: {repeats: 1, draws: 2}\n"
        "privacy: {dp: {epsilon: 20, delta: 1e-4}}\n"
    )
    Study.from_file(path).run(tmp_path / "out")
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    rows = {row["arm"]: row for row in found["arms"] if row["site"] is None}
    for name in METHODS:
        assert rows[name]["epsilon"] == pytest.approx(20.0, abs=0.05)
        assert 0.5 < rows[name]["metrics"]["r2"] <= rows["centralised"]["metrics"]["r2"] + 0.01
    assert rows["centralised"]["epsilon"] is None
    lines = [json.loads(x) for x in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    assert sum(x["step"] == "products_privately" for x in lines) == 3 * 3
