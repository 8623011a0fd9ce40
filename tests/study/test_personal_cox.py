"""A personal Cox model is an arm of a survival study, and is judged by curves as any arm is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from deployed_cases import frames_of, results_of, run_local, tables_of, terms_of
from fedcohort.report import page
from fedcohort.report import run as report_run
from fedcohort.study.study import Study
from turned import frames

METRICS = ("c_index", "uno_c", "ibs", "calibration_slope", "d_calibration_p")
ARMS = [
    {"method": "personal", "model": "cox", "user": "oslo", "way": "ditto", "rounds": 4},
    {"method": "weight_erosion", "user": "oslo", "rounds": 4},
]


def test_metrics_of_curves_judge_a_personal_cox_model_and_the_page_says_whom_it_is_for(tmp_path):
    tables = frames({"oslo": 200, "bergen": 240, "bodø": 220, "moss": 260}, ())
    for name, frame in tables.items():
        frame[["a", "b", "time", "event"]].to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({
        "study": "own", "task": "survival", "seed": 2,
        "data": {"source": "{site}.csv", "outcome": {"time": "time", "event": "event"}},
        "arms": [*ARMS, {"method": "cox"}], "bounds": ["isolated", "centralised"],
        "evaluate": {"repeats": 1, "draws": 20},
    }))  # fmt: skip
    Study.from_file(str(tmp_path / "study.yaml")).run(tmp_path / "out")
    whole = {r["arm"]: r for r in results_of(tmp_path / "out")["arms"] if r["site"] is None}
    assert {r["status"] for r in whole.values()} == {"done"}
    for arm in ("personal", "weight_erosion", "centralised"):
        found: dict[str, Any] = whole[arm]["metrics"]
        assert all(found[m] is not None for m in METRICS), (arm, found)
    own, cox = whole["personal"]["metrics"], whole["cox"]["metrics"]
    assert own["ibs"] < cox["ibs"] + 0.02  # alike sites: what is known of all is known of one
    assert own["c_index"] > 0.6
    html = page.render(report_run.read(tmp_path / "out"))
    assert (
        "“personal” and “weight erosion” are models for oslo, judged here on the patients" in html
    )


@pytest.mark.parametrize("arm", [0, 1])
def test_over_a_network_a_personal_cox_model_is_judged_by_all_metrics(tmp_path, arm):
    asked = yaml.safe_dump([ARMS[arm]], default_flow_style=True, width=1000).strip()
    terms = terms_of(tmp_path, "gbsg2", asked, bounds="[isolated]")
    run_local(terms, tables_of(terms, frames_of("gbsg2")), tmp_path / "out")
    found = results_of(tmp_path / "out")
    for row in (r for r in found["arms"] if r["site"] is None):
        assert row["status"] == "done"
        assert all(row["metrics"][m] is not None for m in METRICS), row
    steps = {s for d in found["declared"] if d["arm"] != "isolated" for s in d["steps"]}
    assert {"count_deaths", "sum_risks"} <= steps
