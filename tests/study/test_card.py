import json
import math

import numpy as np
import pytest

import fedcohort as fc
from fedcohort.study.results.model_card import card
from report import depth, synthetic

STUDY = """\
study: recurrence
question: How long until recurrence?
task: survival
data:
  source: sample:gbsg2
  sites: {split: iid, n: 3}
arms:
  - {method: cox, title: Cox regression}
"""
EVIL = "<script>|\n| x"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "study.yaml"
    path.write_text(STUDY)
    return fc.Study.from_file(path)


@pytest.fixture
def results(tmp_path):
    folder = synthetic.make(tmp_path, scenarios=["iid"], repeats=2, n_sites=3)
    return json.loads((folder / "results.json").read_text())


def written(study, results):
    arm = next(a for a in study.plan.arms if a.method == "cox")
    return card(study.plan, arm, results)


def rows(text, heading):
    """Return the table below a heading."""
    part = text.partition(f"## {heading}")[2].partition("\n## ")[0]
    lines = [x for x in part.splitlines() if x.startswith("|")]
    return [[c.strip() for c in x.strip("|").split(" | ")] for x in lines[2:]]


def test_a_card_says_what_the_model_is_how_good_it_is_and_what_left_the_sites(study, results):
    text = written(study, results)
    assert text.startswith("# Cox regression: recurrence\n\nHow long until recurrence?\n")
    assert "75 % of 686 rows, 299 with the event" in text
    s = next(s for s in results["summary"] if (s["arm"], s["metric"]) == ("cox", "c_index"))
    expected = ["c_index", f"{s['mean']:.3f}", f"{s['low']:.3f} to {s['high']:.3f}", "2"]
    assert expected in rows(text, "Evaluation")
    assert "fedcohort predict models/cox" in text
    assert "Sums over hospitals of the loss and its gradient" in text


def test_effects_are_those_of_the_saved_model_with_intervals_of_the_ratio(study, results):
    first = results["coefficients"][0]
    low, high = (f"{math.exp(first[k]):.3f}" for k in ("low", "high"))
    found = rows(written(study, results), "Effects")
    assert found[0][0] == first["covariate"]
    assert found[0][2:] == [f"{first['hazard_ratio']:.3f}", f"{low} to {high}"]
    assert len(found) == len(synthetic.FEATURES)


def test_a_bound_beyond_what_a_float_holds_is_a_dash(study, results):
    results["coefficients"][0].update(low=-2000.0, high=2000.0)
    assert rows(written(study, results), "Effects")[0][3] == "–"


def test_only_a_person_knows_the_intended_use_and_biases(study, results):
    text = written(study, results)
    for heading in ("## Intended use", "known biases:"):
        asked = text.partition(heading)[2].strip()
        assert asked.startswith("*To be written by the people responsible for the model.*")


def test_centres_stand_with_a_dash_where_a_site_hides_its_number(study, results):
    for i, row in enumerate(depth.by_centre(np.random.default_rng(0), {}, "ab")):
        results["by_centre"].append({**row, "arm": "cox", "scenario": "iid"})
        results["by_centre"][-1]["n"] = None if i else 30
    found = rows(written(study, results), "By centre")
    assert [r[4] for r in found] == ["30", "–"]
    assert found[1][2:4] == ["–", "–"]


def test_names_of_any_kind_stay_in_their_cell(study, results):
    results["data"]["features"] = ["age"]
    for v in results["cohort"]["variables"]:
        v.update(levels=[EVIL], unit=EVIL)
    text = written(study, results)
    assert "<script>" not in text
    assert rows(text, "Inputs") == [["age", "integer", *(["&lt;script&gt;\\| \\| x"] * 2)]]


def test_without_details_a_card_is_still_whole(study, results):
    for key in ("cohort", "by_centre", "coefficients"):
        results[key] = None
    text = written(study, results)
    assert "## Inputs\n\nage, estrogen_receptor" in text
    assert "By centre" not in text
    assert "Effects" not in text
    assert "## Limits" in text


def test_levels_that_became_one_are_named(study, results):
    results["pooled"] = [
        {"arm": "cox", "scenario": "iid", "repeat": 0, "column": "stage", "levels": ["III", "IVa"],
         "least": 5}
    ]  # fmt: skip
    part = written(study, results).partition("## Effects")[2].partition("\n## ")[0]
    assert "stage, other levels: III, IVa (fewer than 5 rows each" in part


def test_a_card_writes_the_whole_model_down(study, results):
    head = {"arm": "cox", "scenario": "iid", "repeat": 0}
    results["parameters"] = [
        {**head, "name": "constant", "value": -2.5, "standard_error": 0.25, "low": -2.99,
         "high": -2.01, "p": 0.0001, "note": "added | to all"},
        {**head, "name": "baseline survival", "time": 365.0, "unit": "days", "value": 0.71},
        {**head, "name": "covariate age", "value": None, "note": "(age − 60) / 10"},
    ]  # fmt: skip
    text = written(study, results)
    assert rows(text, "Rest of the model") == [
        ["constant", "−2.500", "0.250", "−2.990 to −2.010", "&lt; 0.001"],
        ["baseline survival at 365 days (1 year)", "0.710", "–", "–", "–"],
    ]
    assert "- constant: added \\| to all\n- covariate age: (age − 60) / 10\n" in text


def test_an_effect_per_large_unit_is_not_rounded_to_nothing(study, results):
    first = results["coefficients"][0]
    first.update(coefficient=-2.1e-6, low=-2.9e-6, high=-1.3e-6, hazard_ratio=math.exp(-2.1e-6))
    line = rows(written(study, results), "Effects")[0]
    assert line[1:] == ["−2.10e−06", "0.9999979", "0.9999971 to 0.9999987"]


def test_splits_of_trees_are_those_of_the_saved_model(study, results):
    assert "Splits of trees" not in written(study, results)
    row = {"arm": "cox", "scenario": "iid", "repeat": 0, "covariate": EVIL, "weight": 7}
    results["splits"] = [row | {"share": 0.75}, row | {"share": 0.25, "repeat": 1}]
    text = written(study, results)
    assert rows(text, "Splits of trees") == [[r"&lt;script&gt;\| \| x", "0.750", "7"]]


def test_effects_of_a_posterior_have_a_credible_interval_and_a_probability(study, results):
    for row in results["coefficients"]:
        row.pop("p", None)
        row["above_0"] = 0.25
    text = written(study, results)
    part = text.partition("## Effects")[2].partition("\n## ")[0]
    assert (
        "| posterior mean | hazard ratio | 95 % credible interval of the ratio | P(&gt; 0) |"
        in part
    )
    assert all(row[-1] == "0.250" for row in rows(text, "Effects"))
    assert "shrunken" not in part
    assert "standard error" not in part
