import json
import math

from fedcohort.report.run import read
from fedcohort.report.sections import coefficients
from report import synthetic


def section(folder):
    made = coefficients.section(read(folder))
    return f"{made.intro}{made.body}"


def test_hazard_ratios_and_intervals_are_exponentials_of_the_coefficients(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=2)
    page = section(folder)
    row = json.loads((folder / "results.json").read_text())["coefficients"][2]
    hr, low, high = (math.exp(row[k]) for k in ("coefficient", "low", "high"))
    assert f"horTh=yes: hazard ratio {hr:.2f} ({low:.2f}–{high:.2f})" in page


def test_separated_covariates_do_not_break_the_picture(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=1)
    content = json.loads((folder / "results.json").read_text())
    content["coefficients"][0].update(coefficient=40.0, low=-2000.0, high=2000.0)
    content["coefficients"][1].update(coefficient=None, low=None, high=None)
    (folder / "results.json").write_text(json.dumps(content))
    page = section(folder)
    assert "age: hazard ratio 2.4e+17" in page
    assert "estrogen_receptor: hazard ratio –" in page


def test_logistic_rows_are_odds_ratios(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=1)
    content = json.loads((folder / "results.json").read_text())
    for row in content["coefficients"]:
        row["odds_ratio"] = row.pop("hazard_ratio")
    (folder / "results.json").write_text(json.dumps(content))
    page = section(folder)
    assert "age: odds ratio" in page
    assert "Odds ratio, log scale" in page
    assert "OR (95 % CI)" in page
    assert "hazard ratio" not in page.lower()


def test_levels_that_became_one_are_named(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=1)
    content = json.loads((folder / "results.json").read_text())
    head = {k: content["coefficients"][0][k] for k in ("arm", "scenario", "repeat")}
    content["pooled"] = [{**head, "column": "stage", "levels": ["III", "IVa"], "least": 5}]
    (folder / "results.json").write_text(json.dumps(content))
    assert "stage, other levels: III, IVa (fewer than 5 rows each" in section(folder)
