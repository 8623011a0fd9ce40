"""Private training within sites, end to end: every strategy, its releases, its ε, its utility."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import numpy as np
import pandas as pd
import pytest
from dp_accounting import pld

import fedcohort as fc
from fedcohort.algorithms.deepcox import METHOD as DEEPCOX
from fedcohort.metrics.survival.concordance import harrell
from fedcohort.protocol import Dp, Release
from fedcohort.study.run import private
from fedcohort.study.study import Study

BETA = np.array([1.2, -0.8, 0.5, 0.0])
OUTCOME = fc.Survival("time", "event")
NUMBERS = {f"x{j}": {"type": "number", "usual": [-1, 1]} for j in range(4)}
TIMES = {"time": {"type": "time", "usual": [0, 3]}, "event": {"type": "event"}}
DICTIONARY = {"variables": {**NUMBERS, **TIMES}}
WITHIN = ("fedavg", "fedprox", "fedadam", "fedyogi", "sequential", "ensemble")
LINEAR: dict[str, Any] = {"hidden": (), "dp_groups": 60}


def table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 4))
    died, left = rng.exponential(np.exp(-x @ BETA)), rng.exponential(2.0, n)
    columns = {f"x{j}": x[:, j] for j in range(4)}
    return pd.DataFrame(
        columns | {"time": np.minimum(died, left) + 1e-3, "event": (died <= left).astype(int)}
    )


def cohort(n: int = 300, seed: int = 0) -> Any:
    frame = table(n, seed)
    frames = {f"s{i}": frame.iloc[i::3].reset_index(drop=True) for i in range(3)}
    return fc.simulate(frames, outcome=OUTCOME, dictionary=DICTIONARY)


def releases(epsilon: float = 3.0, **given: Any) -> tuple[Release, ...]:
    config = DEEPCOX.configure(given)
    return tuple(private.releases(DEEPCOX, config, Dp(epsilon=epsilon, delta=1e-5)))


@pytest.mark.parametrize("strategy", WITHIN)
def test_two_simulations_give_the_same_arrays_and_another_seed_others(strategy: str):
    given = LINEAR | {"strategy": strategy, "keep_rounds": (1,), "dp_rounds": 2}
    dp = {"epsilon": 3}
    a, b = (fc.fit("deepcox", cohort(), dp=dp, seed=0, **given).model for _ in range(2))
    assert a.arrays().keys() == b.arrays().keys()
    for name, values in a.arrays().items():
        np.testing.assert_array_equal(values, b.arrays()[name])
    other = fc.fit("deepcox", cohort(), dp=dp, seed=5, **given).model
    assert not np.array_equal(a.arrays()["thetas"], other.arrays()["thetas"])
    rows = table(20, 3)[list(NUMBERS)].to_numpy()
    assert not np.array_equal(a.at_round(1).predict(rows), a.predict(rows))


@pytest.mark.parametrize("strategy", [*WITHIN, "exact"])
@pytest.mark.parametrize("sampling", [1.0, 0.25])
def test_the_epsilon_of_all_releases_is_dp_accounting_s_own(strategy: str, sampling: float):
    given = {"strategy": strategy, "internal_batches": 2, "dp_sampling": sampling, "dp_rounds": 3}
    listed = releases(2.0, **given)
    batches = 1 if strategy == "exact" else 2
    steps = 3 if strategy == "exact" else 3 * 5 * 2
    assert [r.count for r in listed] == [steps, 1]
    assert listed[0].sampling == sampling / batches
    accountant = pld.PLDAccountant()
    for r in listed:
        event: dpa.DpEvent = dpa.GaussianDpEvent(r.noise)
        if r.sampling < 1:
            event = dpa.PoissonSampledDpEvent(r.sampling, event)
        accountant.compose(event, r.count)
    assert accountant.get_epsilon(1e-5) == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize("strategy", WITHIN)
def test_every_release_of_the_list_is_made_and_the_ledger_ends_at_the_claim(strategy: str):
    dp = {"epsilon": 2, "delta": 1e-4}
    fit = fc.fit("deepcox", cohort(), dp=dp, seed=0, dp_rounds=3, strategy=strategy, **LINEAR)
    lines, (trained, _) = fit.ledger, releases(2.0, dp_rounds=3, strategy=strategy)
    mine = lines[lines.step == trained.step]
    calls = mine.groupby("call").site.nunique() if "site" in mine else mine.groupby("call").size()
    visits = 9 if strategy == "sequential" else trained.replies
    assert len(calls) == visits
    assert set(lines.mechanism) == {"gaussian"}
    assert fit.run is not None
    assert fit.run.epsilon == pytest.approx(2.0, rel=1e-3)
    assert lines.epsilon.astype(float).max() <= 2.0 * (1 + 1e-6)


@pytest.mark.parametrize("strategy", ["fedavg", "ensemble"])
def test_a_larger_epsilon_orders_patients_better(strategy: str):
    test, scores = table(2000, 99), []
    for epsilon in (0.1, 1.5, 50.0):
        found = []
        for seed in range(2):
            fit = fc.fit(
                "deepcox", cohort(1000, seed), seed=seed, dp={"epsilon": epsilon},
                strategy=strategy, **LINEAR | {"dp_groups": 128},
            )  # fmt: skip
            risk = fit.predict(test)
            found.append(harrell(risk, test.time.to_numpy(), test.event.to_numpy()))
        scores.append(float(np.mean(found)))
    truth = test[list(NUMBERS)].to_numpy() @ BETA
    best = harrell(truth, test.time.to_numpy(), test.event.to_numpy())
    assert scores[0] < scores[1] < scores[2] < best
    assert scores[2] > best - 0.05


def test_fewer_steps_are_made_at_a_small_epsilon_whatever_the_data():
    made = [sum(r.count for r in releases(e, strategy="fedavg")[:1]) for e in (0.1, 1, 4, 400)]
    assert made == [5, 10, 15, 160]
    assert releases(400.0, strategy="fedavg", rounds=7)[0].count == 35
    assert releases(0.1, strategy="fedavg", dp_rounds=7)[0].count == 35
    assert [releases(e, strategy="exact")[0].count for e in (0.1, 1, 4)] == [3, 8, 16]


def test_without_a_clip_a_method_s_own_is_taken(monkeypatch: pytest.MonkeyPatch):
    a, b = (
        fc.fit("deepcox", cohort(), dp={"epsilon": 3, **clip}, seed=0, **LINEAR).model.arrays()[
            "thetas"
        ]
        for clip in ({}, {"clip": DEEPCOX.clips["record"]})
    )
    np.testing.assert_array_equal(a, b)


def test_a_study_of_fedavg_tells_its_releases_and_masks_its_sums(tmp_path: Path):
    table(360, 1).assign(centre=list("abc") * 120).to_csv(tmp_path / "rows.csv", index=False)
    variables = {**DICTIONARY["variables"], "centre": {"type": "category", "levels": list("abc")}}
    (tmp_path / "columns.yaml").write_text(json.dumps({"variables": variables}))
    (tmp_path / "study.yaml").write_text(
        "study: private\n"
        "task: survival\n"
        "data:\n"
        "  source: rows.csv\n"
        "  dictionary: columns.yaml\n"
        "  sites: {column: centre}\n"
        "arms:\n"
        "  - {name: net, method: deepcox, strategy: fedavg}\n"
        "bounds: [centralised]\n"
        "evaluate: {repeats: 1, draws: 2}\n"
        "privacy: {secure_aggregation: true, min_cell: 5, "
        "dp: {epsilon: 3, delta: 1e-5, unit: record}}\n"
    )
    Study.from_file(tmp_path / "study.yaml").run(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(content["releases"]) == ["net"]
    trained, hazards = content["releases"]["net"]
    assert (trained["step"], trained["mechanism"]) == ("train_privately", "gaussian")
    assert (trained["count"], trained["draws"], trained["sampling"]) == (15, 5, 1.0)
    assert (hazards["step"], hazards["count"]) == ("hazards_privately", 1)
    lines = [json.loads(t) for t in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    noisy = [line for line in lines if line.get("step") == "train_privately"]
    assert noisy
    assert all(line["masked"] for line in noisy)
    assert "train privately" in (tmp_path / "out" / "report.html").read_text()
