"""`fedcohort synthesise`: a table that passes its checks, its companion and its page."""

from __future__ import annotations

import json
import subprocess

import pandas as pd
import pytest
import yaml

import fedcohort as fc
from command_line import COMMAND
from fedcohort.apps import checking, init
from fedcohort.apps.synthesising import synthesise
from fedcohort.data.read import sources
from fedcohort.protocol import DataError, NothingToLearn, SettingError, StudyError
from virtual_patients import KNOWN, OUTCOME, patients

FRAME = patients(240)
USUAL = {"age": [0, 100], "time": [0.01, 60]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("virtual")
    known = KNOWN.to_dict()
    for name, ends in USUAL.items():
        known["variables"][name]["usual"] = ends
    (found / "d.yaml").write_text(yaml.safe_dump(known, sort_keys=False))
    fed = fc.simulate(
        {"a": FRAME[:120], "b": FRAME[120:]}, outcome=OUTCOME, dictionary=found / "d.yaml"
    )
    fc.fit("copula", fed).save(found / "model")
    fc.fit("copula", fed, dp={"epsilon": 20, "delta": 1e-3}, seed=1).save(found / "private")
    FRAME.to_csv(found / "real.csv", index=False)
    patients(200, 9).to_csv(found / "blind.csv", index=False)
    return found


def test_the_table_passes_the_checks_of_its_dictionary(folder, tmp_path):
    out = tmp_path / "p.csv"
    written = synthesise(folder / "model", 300, out)
    assert [p.name for p in written.files] == ["p.csv", "p.json", "p.html"]
    report = checking.check([str(out)], folder / "d.yaml")
    assert report.counts == (0, 0)
    rows = pd.read_csv(out)
    assert len(rows) == 300
    assert [*rows.columns] == [*KNOWN.variables]


def test_the_studys_dictionary_may_name_the_column_of_sites(folder, tmp_path):
    synthesise(folder / "model", 40, tmp_path / "p.csv")
    known = yaml.safe_load((folder / "d.yaml").read_text())
    known["variables"]["hospital"] = {"type": "text", "identifier": True}
    (tmp_path / "d.yaml").write_text(yaml.safe_dump(known))
    assert checking.check([str(tmp_path / "p.csv")], tmp_path / "d.yaml").counts == (0, 0)


def test_every_row_satisfies_the_condition_and_the_companion_repeats_it(folder, tmp_path):
    out = tmp_path / "p.csv"
    synthesise(folder / "model", 50, out, where="age > 70 and grade = high", seed=4)
    rows = pd.read_csv(out)
    assert (rows.age > 70).all()
    assert set(rows.grade) == {"high"}
    about = json.loads((tmp_path / "p.json").read_text())
    assert about["where"] == "age > 70 and grade = high"
    assert (about["n"], about["seed"], about["method"]) == (50, 4, "copula")


def test_files_follow_from_the_seed(folder, tmp_path):
    texts = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        synthesise(folder / "model", 20, tmp_path / f"{name}.csv", seed=seed)
        texts.append((tmp_path / f"{name}.csv").read_text())
    assert texts[0] == texts[1] != texts[2]


def test_rows_without_noise_are_marked_so_in_companion_and_page(folder, tmp_path):
    written = synthesise(folder / "model", 20, tmp_path / "p.csv")
    about = json.loads((tmp_path / "p.json").read_text())
    assert about["differential_privacy"] is False
    assert about["epsilon"] is None
    assert "without differential privacy" in about["said"] == written.warnings[0]
    assert "without differential privacy" in (tmp_path / "p.html").read_text()


def test_rows_of_a_private_model_have_its_guarantee(folder, tmp_path):
    synthesise(folder / "private", 20, tmp_path / "p.csv")
    about = json.loads((tmp_path / "p.json").read_text())
    assert (about["differential_privacy"], about["epsilon"], about["delta"]) == (True, 20, 1e-3)
    assert "known seed" in about["said"]  # this fit had one
    assert "ε = 20" in (tmp_path / "p.html").read_text()


def test_the_page_compares_with_real_rows_and_with_interpolated_ones(folder, tmp_path):
    real, blind = (str(folder / name) for name in ("real.csv", "blind.csv"))
    synthesise(folder / "model", 200, tmp_path / "p.csv", real=real, blind=blind)
    page = (tmp_path / "p.html").read_text()
    for text in ("Do virtual patients reveal real ones?", "Membership: nearest virtual row",
                 "SMOTE", "C-index", "real rows", "<svg"):  # fmt: skip
        assert text in page
    assert "<script" not in page


def test_without_rows_that_the_model_has_not_seen_there_is_no_attack(folder, tmp_path):
    synthesise(folder / "model", 100, tmp_path / "p.csv", real=str(folder / "real.csv"))
    page = (tmp_path / "p.html").read_text()
    assert "Membership: nearest" not in page
    assert "No attack on membership" in page


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"n": 0}, SettingError, "--n is 0"),
        ({"where": "age > 70 and"}, SettingError, "expected a column at the end"),
        ({"where": "age > 101"}, NothingToLearn, "drawn rows satisfy it"),
        ({"blind": "blind.csv"}, SettingError, "give the training rows too"),
        ({"out": "p.txt"}, SettingError, "ends in .csv"),
        ({"model": "nothing"}, DataError, "no model.json there"),
        ({"real": "d.yaml"}, DataError, "d.yaml"),
    ],
)
def test_bad_input_is_one_clear_line(folder, tmp_path, given, error, said):
    more = {k: str(folder / v) for k, v in given.items() if k in ("real", "blind")}
    model, out = folder / given.get("model", "model"), tmp_path / given.get("out", "p.csv")
    with pytest.raises(error) as found:
        synthesise(model, given.get("n", 5), out, where=given.get("where", ""), **more)
    assert said in str(found.value)
    assert "\n" not in str(found.value)
    assert not out.exists()


def test_a_file_is_replaced_only_if_asked(folder, tmp_path):
    synthesise(folder / "model", 5, tmp_path / "p.csv")
    with pytest.raises(StudyError, match="it exists"):
        synthesise(folder / "model", 5, tmp_path / "p.csv")
    synthesise(folder / "model", 6, tmp_path / "p.csv", force=True)
    assert len(pd.read_csv(tmp_path / "p.csv")) == 6


def test_a_condition_on_an_empty_column_is_refused(tmp_path):
    frame = FRAME.assign(unused=1.0)
    known = KNOWN.to_dict()
    known["variables"]["unused"] = {"type": "number"}
    fed = fc.simulate({"a": frame[:120], "b": frame[120:]}, outcome=OUTCOME, dictionary=known)
    fc.fit("copula", fed).save(tmp_path / "m")
    with pytest.raises(SettingError, match="the model draws no column 'unused'"):
        synthesise(tmp_path / "m", 5, tmp_path / "p.csv", where="unused = 1")
    written = synthesise(tmp_path / "m", 5, tmp_path / "p.csv")
    assert "draws no unused" in written.warnings[1]
    assert sources.load(str(tmp_path / "p.csv"), tmp_path).frames["unused"].isna().all()


def test_the_command_writes_three_files_and_names_an_impossible_condition(folder, tmp_path):
    base = (*COMMAND, "synthesise", str(folder / "model"), "--n", "30")
    done = subprocess.run(
        (*base, "--out", str(tmp_path / "p.csv")), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert [line.rsplit(".", 1)[1] for line in done.stdout.split()] == ["csv", "json", "html"]
    bad = subprocess.run(
        (*base, "--out", str(tmp_path / "q.csv"), "--where", "age > 500"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert bad.returncode == 2
    assert bad.stderr.startswith("fedcohort: --where: 0 of")
    assert len(bad.stderr.splitlines()) == 1


def test_init_drafts_a_study_whose_outcome_is_drawn_and_whose_preprocessing_is_the_methods(
    tmp_path,
):
    frame = FRAME.assign(hospital=[f"h{i % 3}" for i in range(len(FRAME))])
    frame.to_csv(tmp_path / "t.csv", index=False)
    study, _ = init.write("synthesis", str(tmp_path / "t.csv"), tmp_path, sites="hospital")
    text = study.read_text()
    assert "outcome: {time: time, event: event}" in text
    assert "its columns are drawn, too" in text
    assert "preprocess" not in text
    assert fc.Study.from_file(study).plan.task == "synthesis"
