"""Settings of a model for one hospital are chosen on folds of rows, of which none lacks it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from deployed_cases import frames_of, results_of, run_local, tables_of, terms_of
from fedcohort.protocol import StudyError
from fedcohort.study.study import Study
from turned import frames

GRID = {"grid": {"pull": [0.01, 1.0], "l2": [0.001, 0.1]}}
OWN = {"method": "personal", "user": "a", "way": "ditto", "rounds": 2}


def study(folder: Any, **tune: Any) -> Study:
    for name, frame in frames({"a": 80, "b": 90, "c": 100}, ()).items():
        frame[["a", "b", "yes"]].to_csv(folder / f"{name}.csv", index=False)
    (folder / "study.yaml").write_text(yaml.safe_dump({
        "study": "tuned", "task": "classification",
        "data": {"source": "{site}.csv", "outcome": {"y": "yes"}},
        "arms": [OWN, {"method": "logistic"}], "tune": tune,
        "evaluate": {"repeats": 1, "draws": 2},
    }))  # fmt: skip
    return Study.from_file(str(folder / "study.yaml"))


@pytest.mark.parametrize("tune", [GRID, {"by": "centre-kfold", **GRID}])
def test_a_personal_arm_is_tuned_by_rows_and_others_by_what_the_study_says(tmp_path, tune):
    made = study(tmp_path, **tune)
    assert [arm.folds for arm in made.plan.arms] == ["row-kfold", "centre-kfold"]
    made.run(tmp_path / "out")
    found = results_of(tmp_path / "out")
    assert {a["status"] for a in found["arms"]} == {"done"}
    tried = {t["arm"]: t["tried"] for t in found["tuning"]}
    assert len(tried["personal"]) == 4
    assert all(t["score"] is not None for t in tried["personal"])
    lines = [json.loads(x) for x in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    told = [x for x in lines if (x["arm"], x["phase"]) == ("personal", "tune")]
    assert {x["site"] for x in told if x["step"] == "tell_personal"} == {"a"}


def test_leaving_the_users_site_out_is_refused_when_the_study_is_read(tmp_path):
    arms = {"personal": {"by": "centre-kfold", "pull": [0.01, 1.0]}}
    with pytest.raises(StudyError, match="a model for 'a', and centre-kfold leaves that site out"):
        study(tmp_path, arms=arms)


def test_over_a_network_no_fold_lacks_the_users_site_either(tmp_path):
    arm = "[{method: personal, user: oslo, way: ditto, rounds: 2}]"
    terms = terms_of(tmp_path, "gbsg2", arm, bounds="[]", tune="{grid: {pull: [0.01, 1.0]}}")
    run_local(terms, tables_of(terms, frames_of("gbsg2")), tmp_path / "out")
    found = results_of(tmp_path / "out")
    assert {a["status"] for a in found["arms"]} == {"done"}
    assert all(t["score"] is not None for t in found["tuning"][0]["tried"])
