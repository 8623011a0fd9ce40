import json
import re

import pytest

from fedcohort.report.run import read
from fedcohort.report.sections import calibration
from report import synthetic

PARTS = ("ece", "ece_by_chance", "reliability", "resolution", "uncertainty", "within", "brier")


@pytest.mark.parametrize("classes", [(), ("low", "high", "very high")])
def test_the_calibration_error_and_the_parts_stand_below_the_diagram_as_means(tmp_path, classes):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=2)
    content = json.loads((folder / "results.json").read_text())
    content["outcome"] = {"type": "category", "columns": ["y"], "levels": [*classes]}
    content["task"] = "classification"
    arm = content["calibration"][0]["arm"]
    groups = [r for r in content["calibration"] if r["arm"] == arm]
    levels = [{"class": c} for c in classes] or [{}]
    content["calibration"] = [{**r, **c, "time": None} for c in levels for r in groups]
    content["reliability"] = [
        {"arm": arm, "scenario": "iid", "repeat": k, **c, "n": 90, "groups": 5}
        | {name: (0.0224 + k / 500) * (i + 1 + 7 * j) for i, name in enumerate(PARTS)}
        for k in range(2)
        for j, c in enumerate(levels)
    ]
    (folder / "results.json").write_text(json.dumps(content))
    made = calibration.calibration(read(folder))
    assert made
    said = re.sub(r"<[^>]+>|\s", " ", str(made.body))
    assert "Calibration error" in said
    rows = re.findall(r"(?:0\.\d\d\d\s+){7}", said)
    assert [row.split() for row in rows] == [
        [f"{0.0234 * (i + 1 + 7 * j):.3f}" for i in range(7)] for j in range(len(levels))
    ]
