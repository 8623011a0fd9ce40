"""Studies of networks that see columns as images: deployed, by a coordinator's rows, reported."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import fedcohort as fc
from deployed_cases import frames_of, results_of, run_local, tables_of, terms_of
from fedcohort.report.run import read
from fedcohort.report.sections import feature_map

ARM = "{method: classifier, refined: sums, filters: [2], pool: 1, hidden: [4], rounds: 1}"
STUDY = """\
study: own
task: classification
data: {source: "sample:multiview", outcome: {y: group}, sites: {split: iid, n: 3}}
coordinator_data: {fraction: 0.2, validation: 0.5}
arms: [{method: classifier, refined: coordinator, filters: [2], pool: 1, hidden: [4], rounds: 1}]
bounds: [isolated]
evaluate: {repeats: 1, draws: 2, metrics: [auc]}
final: false
"""


def steps_of(out):
    return {json.loads(line)["step"] for line in (out / "ledger.jsonl").read_text().splitlines()}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """The folder of a study over sites that hold each call to the approved settings."""
    folder = tmp_path_factory.mktemp("maps")
    terms = terms_of(
        folder, "multiview", f"[{ARM}]", task="classification", data=", outcome: {y: group}",
        bounds="[]", metrics="[auc]",
    )  # fmt: skip
    run_local(terms, tables_of(terms, frames_of("multiview")), folder / "out")
    return folder / "out"


def test_sites_of_an_approved_study_answer_a_fit_with_a_map(deployed):
    assert "column_products" in steps_of(deployed)
    rows = results_of(deployed)["final"][0]["maps"]
    assert [(row["view"], row["side"]) for row in rows] == [("v1", 4), ("v2", 3), ("v3", 4)]
    held = [{name for name in row["features"] if name} for row in rows]
    assert [len(one) for one in held] == [15, 8, 10]
    for row, names in zip(rows, held, strict=True):
        assert {name.split("_")[0] for name in names} == {row["view"]}


def test_the_saved_model_has_the_map_of_the_report(deployed):
    model = fc.load(deployed / "models" / "classifier").model
    assert model.maps() == results_of(deployed)["final"][0]["maps"]


def test_the_report_draws_each_map_with_all_columns_and_no_patient(deployed):
    found = feature_map.section(read(deployed))
    root = ET.fromstring(str(found.body))
    assert [f.get("id") for f in root.iter("figure")] == [
        f"figure-feature-map-classifier-{k}" for k in range(3)
    ]
    cells = [cell.text for table in root.iter("table") for cell in table.iter("td") if cell.text]
    names = [n for row in results_of(deployed)["final"][0]["maps"] for n in row["features"] if n]
    assert set(names) <= {cell.replace(" ", "_") for cell in cells}
    assert "8 columns on 3 × 3 pixels" in " ".join(root.itertext())


@pytest.mark.parametrize("side", [13, 45])
def test_a_map_too_large_for_names_in_its_cells_says_the_place_of_each(deployed, tmp_path, side):
    content = results_of(deployed)
    rng = np.random.default_rng(side)
    names = [f"gene{k}" if rng.random() < 0.9 else None for k in rng.permutation(side**2)]
    large = {"view": "v1", "side": side, "features": names, "likeness": [None] * side**2}
    content["final"][0]["maps"] = [large]
    (tmp_path / "results.json").write_text(json.dumps(content))
    root = ET.fromstring(str(feature_map.section(read(tmp_path)).body))
    told = {}
    for line in next(root.iter("tbody")).iter("tr"):
        row, listed = ("".join(cell.itertext()) for cell in line)
        for one in listed.split(", "):
            place, name = one.split(": ")
            told[int(row) - 1, int(place) - 1] = name
    want = {divmod(k, side): name for k, name in enumerate(names) if name}
    assert told == want


def test_a_report_of_models_without_a_map_has_no_such_section(deployed, tmp_path):
    content = results_of(deployed)
    content["maps"], content["final"][0]["maps"] = [], []
    (tmp_path / "results.json").write_text(json.dumps(content))
    assert feature_map.section(read(tmp_path)) is None


def test_a_coordinators_map_is_of_its_rows_and_a_hospital_alone_makes_its_own(tmp_path):
    (tmp_path / "s.yaml").write_text(STUDY)
    study = fc.Study.from_file(tmp_path / "s.yaml")
    study.run(tmp_path / "out")
    told = results_of(tmp_path / "out")
    assert "column_products" not in steps_of(tmp_path / "out")
    assert {row["status"] for row in told["arms"]} == {"done"}
    first = study.table.own.first
    corr = np.corrcoef(first[[c for c in first if c.startswith("v2")]].to_numpy(float).T)
    row = next(r for r in told["maps"] if r["view"] == "v2")
    places = {name: divmod(k, 3) for k, name in enumerate(row["features"]) if name}
    names = sorted(places)
    for name in names:
        near = [
            corr[names.index(name), names.index(other)]
            for other in names
            if other != name and max(abs(np.subtract(places[name], places[other]))) == 1
        ]
        found = row["likeness"][3 * places[name][0] + places[name][1]]
        assert found == pytest.approx(np.mean(near), abs=0.0051)  # two digits


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("coordinator_data: {fraction: 0.2, validation: 1}", "share 'validation' below 1"),
        ("", "which needs rows of the coordinator"),
    ],
)
def test_a_coordinators_map_without_its_rows_is_refused_as_the_study_is_read(tmp_path, own, said):
    text = STUDY.replace("coordinator_data: {fraction: 0.2, validation: 0.5}", own)
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(fc.StudyError, match=said):
        fc.Study.from_file(tmp_path / "s.yaml")
