"""Private fits end to end: what is spent and told, what is refused, and that ε buys utility."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcohort as fc
from fedcohort.algorithms.deepcox.private import INTERVALS, record_hazards
from fedcohort.algorithms.glm import private
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.prepare import bounded_design
from fedcohort.metrics.survival.concordance import harrell
from fedcohort.privacy import accounting
from fedcohort.protocol import DataError, Dp, FedcohortError, InputError, NotSupported, Release
from fedcohort.protocol.private import threshold
from fedcohort.study.study import Study

BETA = np.array([1.2, -0.8, 0.5, 0.0])
OUTCOME = fc.Survival("time", "event")
NUMBERS = {f"x{j}": {"type": "number", "usual": [-1, 1]} for j in range(4)}
TIMES = {"time": {"type": "time", "usual": [0, 3]}, "event": {"type": "event"}}
DICTIONARY = {"variables": {**NUMBERS, **TIMES}}
EXACT: dict[str, Any] = {
    "strategy": "exact", "hidden": (), "dp_rounds": 20, "dp_groups": 60,
}  # fmt: skip


def table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 4))
    died, left = rng.exponential(np.exp(-x @ BETA)), rng.exponential(2.0, n)
    columns = {f"x{j}": x[:, j] for j in range(4)}
    return pd.DataFrame(columns | {"time": np.minimum(died, left) + 1e-3, "event": died <= left})


def cohort(n: int = 900, seed: int = 0, sites: int = 3) -> Any:
    frame = table(n, seed).astype({"event": int})
    frames = {f"s{i}": frame.iloc[i::sites].reset_index(drop=True) for i in range(sites)}
    return fc.simulate(frames, outcome=OUTCOME, dictionary=DICTIONARY)


def test_a_larger_epsilon_orders_patients_better():
    test = table(2000, 99)
    scores = []
    for epsilon in (0.1, 1.0, 10.0):
        found = []
        for seed in range(3):
            dp = {"epsilon": epsilon, "clip": 0.3}
            fit = fc.fit("deepcox", cohort(1500, seed), seed=seed, dp=dp, **EXACT)
            risk = fit.predict(test)
            found.append(harrell(risk, test.time.to_numpy(), test.event.to_numpy()))
        scores.append(float(np.mean(found)))
    truth = test[[f"x{j}" for j in range(4)]].to_numpy() @ BETA
    best = harrell(truth, test.time.to_numpy(), test.event.to_numpy())
    assert scores[0] < scores[1] < scores[2] < best
    assert scores[2] > best - 0.04


def test_the_ledger_says_what_each_reply_had_spent_and_the_fit_what_it_cost():
    fit = fc.fit("deepcox", cohort(), dp={"epsilon": 2, "delta": 1e-4}, seed=0, **EXACT)
    lines = fit.ledger
    assert lines.step.unique().tolist() == ["pull_privately", "hazards_privately"]
    assert set(lines.mechanism) == {"gaussian"}
    assert lines.delta.astype(float).unique().tolist() == [1e-4]
    spent = lines.groupby("call").epsilon.first().astype(float)
    assert spent.is_monotonic_increasing
    assert len(spent) == 21
    assert fit.run is not None
    assert fit.run.epsilon == pytest.approx(spent.iloc[-1], rel=1e-5)
    assert 1.99 < fit.run.epsilon <= 2.0 + 1e-9


def test_rdp_agrees_with_what_is_claimed():
    z = accounting.calibrate(
        lambda z: (Release(step="a", noise=z, count=20),), asked := Dp(epsilon=2.0, delta=1e-4)
    )
    other = accounting.epsilon([Release(step="a", noise=z, count=20)], asked.delta, "rdp")
    assert asked.epsilon <= other < 1.2 * asked.epsilon


@pytest.mark.parametrize(
    "given",
    [
        EXACT,
        EXACT | {"dp_sampling": 0.3},
        EXACT | {"hidden": (4,), "keep_rounds": (5,)},
        {"strategy": "fedavg", "rounds": 4, "unit": "site"},
        {"strategy": "fedadam", "rounds": 4, "unit": "site"},
    ],
)
def test_two_simulations_give_the_same_arrays(given: dict[str, Any]):
    given = dict(given)
    dp = {"epsilon": 3, "unit": given.pop("unit", "record")}
    a, b = (fc.fit("deepcox", cohort(300), dp=dp, seed=0, **given).model.arrays() for _ in range(2))
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
    other = fc.fit("deepcox", cohort(300), dp=dp, seed=5, **given).model.arrays()
    assert not np.array_equal(a["thetas"], other["thetas"])


@pytest.mark.parametrize(
    ("method", "outcome", "spec", "outputs"),
    [
        ("classifier", fc.Category("y"), {"type": "category", "levels": ["a", "b", "c"]}, 3),
        ("classifier", fc.Ordered("y"), {"type": "category", "levels": ["a", "b", "c"]}, 3),
        ("regressor", fc.Count("y"), {"type": "number", "range": [0, 9], "usual": [0, 6]}, 1),
    ],
)
def test_a_private_network_of_every_type_of_outcome_is_fitted(method, outcome, spec, outputs):
    """Sites held another plan than the study's: that of two classes, or of a value."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, 90), "y": rng.integers(0, 3, 90)})
    if outputs > 1:
        frame["y"] = np.array(["a", "b", "c"])[frame.y]
    spec = {"variables": {"x": {"type": "number", "usual": [-1, 1]}, "y": spec}}
    frames = {f"s{i}": frame.iloc[i::3].reset_index(drop=True) for i in range(3)}
    fed = fc.simulate(frames, outcome=outcome, dictionary=Dictionary.from_dict(spec))
    fit = fc.fit(method, fed, dp={"epsilon": 2}, rounds=2, hidden=(2,), seed=0)
    assert fit.model.meta()["model"] == ("softmax" if outputs > 1 else "poisson")
    assert fit.model.arrays()["thetas"].shape == (1, 4 + 3 * outputs)


def test_a_sum_that_hides_its_parts_needs_less_noise_of_each_site(monkeypatch: pytest.MonkeyPatch):
    """The noise of three sites in one sum is what two thirds of them would draw whole."""
    assert [threshold(n) for n in (3, 4, 10)] == [2, 3, 7]
    # the clip is so small that the sums are nearly all noise; 3σ² in one, 3σ²/2 in the other
    dp = {"epsilon": 1, "clip": 1e-9}
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1, 1, (90, 30)), columns=[f"c{j}" for j in range(30)])
    frame["y"] = rng.uniform(-1, 1, 90)
    spec = {"variables": {c: {"type": "number", "usual": [-1, 1]} for c in frame}}
    frames = {f"s{i}": frame.iloc[i::3].reset_index(drop=True) for i in range(3)}
    fed = fc.simulate(frames, outcome=fc.Continuous("y"), dictionary=spec)
    seen: list[float] = []

    def watch(products: Any, noise: float, l2: float) -> Any:
        seen.append(float(np.std(products[np.triu_indices(len(products), 1)])))
        return np.zeros(len(products) - 1)

    monkeypatch.setattr(private, "ridged", watch)
    for secure in ("false", "auto"):
        fc.fit("glm", fed, secure_aggregation=secure, family="gaussian", dp=dp, seed=0)
    assert seen[0] / seen[1] == pytest.approx(np.sqrt(2), rel=0.12)


def test_without_usual_times_a_private_model_predicts_risks_alone_and_is_read_back(tmp_path: Path):
    frame = cohort(300).frames["s0"]
    plain = DICTIONARY["variables"] | {"time": {"type": "time"}}
    fed = fc.simulate({"a": frame}, outcome=OUTCOME, dictionary={"variables": plain})
    fit = fc.fit("deepcox", fed, dp={"epsilon": 3}, seed=0, **EXACT)
    with pytest.raises(NotSupported, match="no baseline hazard"):
        fit.predict_survival(table(5, 1), [1.0])
    fit.save(tmp_path / "model")
    rows = table(20, 1)
    np.testing.assert_array_equal(fc.load(tmp_path / "model").predict(rows), fit.predict(rows))


def test_a_private_baseline_gives_survival_near_the_truth_at_a_large_epsilon():
    dp = {"epsilon": 100, "clip": 0.3}
    fit = fc.fit(
        "deepcox", cohort(3000), dp=dp, seed=0, **EXACT | {"dp_rounds": 60, "dp_groups": 200}
    )
    rows, times = table(500, 7), np.array([0.25, 0.5, 1.0, 2.0])
    truth = np.exp(-np.exp(rows[[f"x{j}" for j in range(4)]].to_numpy() @ BETA)[:, None] * times)
    found = fit.predict_survival(rows, times)
    np.testing.assert_allclose(found.mean(axis=0), truth.mean(axis=0), atol=0.05)
    assert np.abs(found - truth).mean() < 0.08


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 12), seed=st.integers(0, 10_000), far=st.sampled_from([0.1, 5.0, 1e3]))
def test_any_record_removed_changes_hazards_by_their_sensitivity_at_most(
    n: int, seed: int, far: float
):
    rng = np.random.default_rng(seed)
    f, time, event = rng.normal(0, far, n), rng.exponential(3, n), rng.random(n) < 0.7
    parts = record_hazards(f, time, event, 4.0)
    assert (np.linalg.norm(parts, axis=1) <= np.sqrt(1 + INTERVALS) * (1 + 1e-12)).all()
    for i in range(n):
        keep = np.arange(n) != i
        less = record_hazards(f[keep], time[keep], event[keep], 4.0)
        moved = np.linalg.norm(parts.sum(axis=0) - less.sum(axis=0))
        assert moved <= np.sqrt(1 + INTERVALS) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("method", "given", "dp", "text"),
    [
        (
            "cox",
            {},
            {},
            "'cox' has no differentially private fit; 'bayes_net', 'boosting', .*'deepcox', .*have",
        ),
        ("deepcox", {"strategy": "exact"}, {"unit": "site"}, "choose 'fedavg', 'fedprox'"),
        ("deepcox", EXACT | {"patience": 3}, {}, "'patience' .* leave it out"),
        ("deepcox", EXACT | {"lr_rule": "plateau"}, {}, "'lr_rule' .* Choose another"),
        ("deepcox", {"optimiser_state": "kept"}, {}, "'optimiser_state' .* Choose 'fresh'"),
        ("deepcox", {"compression": "int8"}, {}, "'compression' .* Choose 'none'"),
        ("deepcox", EXACT | {"dropout": 0.2}, {}, "'dropout' .* Set it to 0"),
        ("deepcox", EXACT | {"scale": "quantile"}, {}, "scale is 'quantile', which would have"),
        ("deepcox", EXACT | {"winsorise": 0.1}, {}, "winsorise is 0.1, which would have"),
        ("deepcox", {"strategy": "centralised"}, {}, "is a bound, and bounds are fitted without"),
        ("deepcox", EXACT, {"epsilon": 1e-7}, "epsilon 1e-07 .* cannot be met"),
        ("deepcox", EXACT, {"delta": 0.02}, "delta 0.02 is above one over its number of patients"),
        ("deepcox", EXACT, {"unit": "site", "delta": 0.5}, "choose 'fedavg'"),
        ("deepcox", {}, {"unit": "site", "delta": 0.5}, "above 1/3"),
    ],
)
def test_what_cannot_be_private_is_refused_in_one_line_and_nothing_is_released(
    method: str, given: dict[str, Any], dp: dict[str, Any], text: str
):
    with pytest.raises(FedcohortError, match=text) as caught:
        fc.fit(method, cohort(300), dp={"epsilon": 3, **dp}, seed=0, **given)
    assert "\n" not in str(caught.value)


def test_a_site_with_too_few_rows_is_named_and_nothing_is_released():
    with pytest.raises(FedcohortError, match="site 's0': it has fewer than 20 rows"):
        fc.fit("deepcox", cohort(45), dp={"epsilon": 3}, seed=0, **EXACT)


def test_a_dictionary_that_was_drafted_from_records_is_refused():
    frame = table(90, 0).astype({"event": int})
    fed = fc.simulate({"a": frame[:45], "b": frame[45:]}, outcome=OUTCOME)
    with pytest.raises(InputError, match="drafted from the records"):
        fc.fit("deepcox", fed, dp={"epsilon": 3}, seed=0, **EXACT)


def test_columns_without_limits_are_named():
    spec = {"a": {"type": "number"}, "b": {"type": "integer", "range": [0, None]}, "c": "binary"}
    with pytest.raises(DataError, match=r"columns 'a', 'b' have no range .*usual: \[low, high\]"):
        bounded_design(Dictionary.from_dict({"variables": spec}), None)


def test_a_design_from_the_dictionary_keeps_every_number_within_one_and_looks_at_no_row():
    spec = {
        "a": {"type": "number", "range": [0, 1000], "usual": [10, 30]},
        "b": {"type": "integer", "range": [0, 4]},
        "c": "binary",
        "d": {"type": "category", "levels": ["x", "y", "z"]},
    }
    design = bounded_design(Dictionary.from_dict({"variables": spec}), None)
    assert design.features == ("a", "b", "c", "d=y", "d=z")
    rows = {"a": [10, 500, np.nan], "b": [0, 4, np.nan], "c": [1, 0, np.nan], "d": ["x", "z", None]}
    np.testing.assert_array_equal(
        design.matrix(pd.DataFrame(rows)),
        [[-1, -1, 1, 0, 0], [1, 1, 0, 0, 1], [0, 0, 0.5, 0, 0]],
    )


def study(folder: Path, more: str = "", arms: str = "") -> Path:
    table(400, 3).astype({"event": int}).assign(site=list("abcd") * 100).to_csv(
        folder / "rows.csv", index=False
    )
    (folder / "columns.yaml").write_text(
        json.dumps(
            {
                "variables": {
                    **DICTIONARY["variables"],
                    "site": {"type": "category", "levels": list("abcd")},
                }
            }
        )
    )
    arms = arms or ("  - {method: deepcox, strategy: exact, hidden: [], rounds: 5}\n")
    path = folder / "study.yaml"
    path.write_text(
        "study: noise\ntask: survival\n"
        "data:\n  source: rows.csv\n  dictionary: columns.yaml\n  sites: {column: site}\n"
        "  outcome: {time: time, event: event}\n"
        f"arms:\n{arms}"
        "bounds: [isolated, centralised]\nevaluate: {repeats: 1, draws: 2}\n"
        f"privacy: {{dp: {{epsilon: 3, delta: 1e-4, clip: 0.3}}}}\n{more}"
    )
    return path


def test_a_study_has_the_epsilon_of_its_arm_in_every_row_and_none_for_the_bounds(tmp_path: Path):
    Study.from_file(study(tmp_path)).run(tmp_path / "out")
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    rows = {row["arm"]: row for row in found["arms"] if row["site"] is None}
    assert rows.keys() == {"isolated", "exact", "centralised"}
    assert 2.99 < rows["exact"]["epsilon"] <= 3.0 + 1e-9
    assert 0.0 < rows["exact"]["metrics"]["c_index"] < 1.0
    assert 0.0 < rows["exact"]["metrics"]["ibs"] < 1.0
    assert [rows[bound]["epsilon"] for bound in ("isolated", "centralised")] == [None, None]
    told = {row["arm"]: row["reveals"] for row in found["declared"]}
    assert told["exact"].startswith("Only replies to which each site has added noise")
    lines = [json.loads(x) for x in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    fits = [x for x in lines if x["step"] == "pull_privately"]
    assert len(fits) == 5 * 4
    assert all(x["mechanism"] == "gaussian" for x in fits)


@pytest.mark.parametrize(
    ("more", "arms", "text"),
    [
        ("tune: {grid: {learning_rate: [0.1, 0.2]}}\n", "", "a private study tunes nothing"),
        ("", "  - {method: cox}\n", "arm 'cox': method 'cox' has no differentially private fit"),
        ("preprocess: {scale: quantile}\n", "", "scale is 'quantile', which would have to be"),
    ],
)
def test_a_study_that_cannot_be_private_is_refused_when_it_is_read(
    tmp_path: Path, more: str, arms: str, text: str
):
    with pytest.raises(InputError, match=text) as caught:
        Study.from_file(study(tmp_path, more, arms))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("delta: 1e-4", "delta: 0.1", "site 'a': delta 0.1 is above one over its number of"),
        ("epsilon: 3", "epsilon: 1e5", "privacy.dp.epsilon: expected a number above 0, up to 1000"),
        (
            "  dictionary: columns.yaml\n",
            "",
            "Name one as data.dictionary; 'fedcohort init' drafts",
        ),
        ("rows.csv", "few.csv", "site 'a': it has fewer than 20 rows"),
        ("columns.yaml", "open.yaml", r"columns 'x0', .* no range .* 'usual: \[low, high\]'"),
    ],
)
def test_tables_that_no_private_fit_can_be_made_of_are_refused_when_the_study_is_read(
    tmp_path: Path, old: str, new: str, text: str
):
    path = study(tmp_path)
    rows = pd.read_csv(tmp_path / "rows.csv")
    rows.head(80).to_csv(tmp_path / "few.csv", index=False)
    spec = json.loads((tmp_path / "columns.yaml").read_text())
    spec["variables"] |= {c: {"type": "number"} for c in NUMBERS}
    (tmp_path / "open.yaml").write_text(json.dumps(spec))
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match=text) as caught:
        Study.from_file(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dp", [3, True, "3", [3], {"epsilon": "3"}, {"epsilon": 3, "eps": 1}])
def test_what_is_no_epsilon_and_delta_is_refused_in_one_line(dp: Any):
    with pytest.raises(InputError, match=r"^dp(\.epsilon)? (is|has)") as caught:
        fc.fit("deepcox", cohort(90), dp=dp, seed=0, **EXACT)
    assert "\n" not in str(caught.value)


def test_no_differential_privacy_may_be_said_as_false():
    fit = fc.fit("cox", cohort(90), dp=False)
    assert fit.run is not None
    assert fit.run.epsilon is None


def test_an_epsilon_near_0_is_refused_without_a_warning_of_the_accountant():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match=r"epsilon 1e-09 .* cannot be met"):
            accounting.calibrate(
                lambda z: (Release(step="a", noise=z, count=30),), Dp(epsilon=1e-9)
            )


def test_the_packaged_survival_study_can_be_made_private():
    study = Path(__file__).parents[2] / "studies" / "quickstart.yaml"
    arms = "arms=[{method: deepcox, strategy: exact}]"
    Study.from_file(study, overrides=(arms, "privacy={dp: {epsilon: 3}}"))
