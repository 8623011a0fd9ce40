"""A study of virtual patients, from file to report, and over a network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

import fedcohort as fc
from deployed_cases import results_of, run_local, tables_of
from fedcohort.protocol import StudyError
from fedcohort.report.metric_texts import METRICS
from fedcohort.study.file.terms import Terms
from fedcohort.study.kinds import SYNTHESIS
from fedcohort.study.results import saved
from fedcohort.study.virtual.drawing import Drawing
from fedcohort.study.virtual.shown import KEYS
from virtual_patients import KNOWN, OUTCOME, patients

FRAME = patients(360)
USUAL = {"age": [0, 100], "time": [0.01, 60]}


def write(folder: Path, **more) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    known = KNOWN.to_dict()
    for name, ends in USUAL.items():
        known["variables"][name]["usual"] = ends
    (folder / "d.yaml").write_text(yaml.safe_dump(known, sort_keys=False))
    FRAME.to_csv(folder / "t.csv", index=False)
    study = {
        "study": "virtual", "task": "synthesis",
        "data": {
            "source": "t.csv", "dictionary": "d.yaml",
            "outcome": {"time": "time", "event": "event"},
            "sites": {"split": "iid", "n": 3},
        },
        "arms": [{"method": "copula"}],
        "evaluate": {"repeats": 1, "draws": 5, "test_fraction": 0.4},
    } | more  # fmt: skip
    (folder / "s.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    return folder / "s.yaml"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("virtual")
    bounds = ["isolated", "centralised"]
    results = fc.Study.from_file(write(folder, bounds=bounds)).run(folder / "out")
    return folder / "out", results


def metrics(out: Path, arm: str) -> dict[str, float | None]:
    rows = json.loads((out / "results.json").read_text())["arms"]
    return next(r["metrics"] for r in rows if r["arm"] == arm and r["site"] is None)


def test_every_metric_of_the_task_is_given_and_described(done):
    found = metrics(done[0], "copula")
    assert set(found) == set(SYNTHESIS.metrics) <= set(METRICS)
    assert all(value is not None for value in found.values())
    assert found["copies"] == 0
    assert 0.8 < found["distance_ratio"] < 1.3
    assert found["marginal_error"] < 0.15
    assert found["utility_ratio"] > 0.85


def test_every_interval_of_the_summary_contains_its_mean(done):
    rows = json.loads((done[0] / "results.json").read_text())["summary"]
    known = [r for r in rows if r["low"] is not None]
    assert {"marginal_error", "association_error", "utility"} <= {r["metric"] for r in known}
    assert all(r["low"] <= r["mean"] <= r["high"] for r in known)


def test_a_hospital_alone_draws_rows_that_are_less_like_the_blind_ones(done):
    alone, together = (metrics(done[0], arm)["marginal_error"] for arm in ("isolated", "copula"))
    assert alone > together


def test_results_and_report_show_the_rows_and_interpolated_ones(done):
    found = json.loads((done[0] / "results.json").read_text())
    assert all(found[key] for key in KEYS)
    told = [r["learnt_from"] for r in found["virtual_scores"] if r["arm"] == "copula"]
    assert told == ["virtual rows", "training rows", "SMOTE rows", "training rows"]
    page = done[1].report().read_text()
    for title in (
        "Do virtual patients reveal real ones?", "Can a model learn from them?",
        "Do they live as long?", "Is each column spread alike?", "Do columns go together alike?",
    ):  # fmt: skip
        assert title in page
    assert "<script" not in page


def test_the_saved_model_draws_rows_of_the_whole_dictionary(done):
    found = Drawing.of(saved.read(done[0] / "models" / "copula"))
    rows = found.table(50, 0)
    assert [*rows.columns] == [*KNOWN.variables]
    assert found.drawn == OUTCOME
    assert rows.notna().all().all()


def test_a_private_study_leaves_out_what_needs_training_rows(tmp_path):
    privacy = {"dp": {"epsilon": 8, "delta": 1e-3}}
    fc.Study.from_file(write(tmp_path, privacy=privacy)).run(tmp_path / "out")
    found = metrics(tmp_path / "out", "copula")
    assert set(found) == {"marginal_error", "association_error", "utility", "log_rank_p"}
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [r["learnt_from"] for r in results["virtual_scores"]] == ["virtual rows"]
    noted = saved.read(tmp_path / "out" / "models" / "copula").notes["privacy"]
    assert noted["epsilon"] == 8


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"arms": [{"method": "cox"}]}, "cox"),
        ({"tune": {"grid": {"cells": [8, 16]}}}, "leave 'tune' out"),
        (
            {"evaluate": {"metrics": ["c_index"]}},
            "not possible in a study of synthesis",
        ),
    ],
)
def test_what_a_study_of_virtual_patients_cannot_do_is_named(tmp_path, more, said):
    with pytest.raises(StudyError, match=said):
        fc.Study.from_file(write(tmp_path, **more))


def test_over_a_network_each_hospital_compares_rows_with_its_own_blind_ones(tmp_path):
    terms = Terms.of(write(tmp_path, bounds=["isolated"]))
    parts = np.array_split(np.arange(360), 3)
    frames = {f"h{i}": FRAME.iloc[p].reset_index(drop=True) for i, p in enumerate(parts)}
    out = tmp_path / "out"
    run_local(terms, tables_of(terms, frames), out)
    results = results_of(out)
    found = metrics(out, "copula")
    assert set(found) == {"marginal_error", "association_error"}
    assert 0 < found["marginal_error"] < 0.3
    assert 0 < metrics(out, "isolated")["marginal_error"] < 0.5
    gathered = [json.loads(line) for line in (out / "ledger.jsonl").read_text().splitlines()]
    told = [line for line in gathered if line["step"] == "tell_own_likeness"]
    assert {tuple(f["shape"]) for line in told for f in line["fields"].values()} == {(2,)}
    assert {"virtual_scores", "virtual_privacy"} <= {r.get("part") for r in results["left_out"]}
