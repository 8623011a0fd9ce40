"""`fedcohort impute`: only missing cells change, in the form of the file; a companion counts."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest

import fedcohort as fc
from algorithms.imputing_cases import cohort, mixed
from in_process import command


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("impute") / "model"
    _, holes = mixed(120, 1)
    fc.fit("mice", cohort(holes), draws=2, sweeps=2).save(folder)
    return folder


@pytest.fixture
def table(tmp_path) -> Path:
    _, holes = mixed(40, 2)
    holes.insert(0, "id", [f"00{i}" for i in range(40)])
    holes["note"] = '5; "x"'
    holes.to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",")
    return tmp_path / "t.csv"


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text().splitlines(), delimiter=";"))


def test_known_cells_keep_every_character_and_missing_ones_have_the_files_form(model, table):
    out = table.with_name("f.csv")
    code, text, error = command("impute", model, table, "--out", out)
    assert code == 0 and "cells filled in 5 columns, of 40 rows" in error
    assert text.splitlines() == [str(out)]
    before, after = rows(table), rows(out)
    assert len(before) == len(after)
    kinds = {"a": "num", "b": "num", "n": "whole", "flag": "01", "stage": "level"}
    empty = dict.fromkeys(kinds, 0)
    for old, new in zip(before, after, strict=True):
        for name, one, other in zip(before[0], old, new, strict=True):
            if one or name not in kinds:
                assert one == other
                continue
            empty[name] += 1
            match kinds[name]:
                case "num":
                    assert "." not in other and np.isfinite(float(other.replace(",", ".")))
                case "whole":
                    assert other.isdigit() and int(other) <= 40
                case "01":
                    assert other in ("0", "1")
                case _:
                    assert other in ("I", "II", "III")
    about = json.loads(out.with_suffix(".json").read_text())
    assert about["filled_cells"] == empty and about["rows"] == 40 and about["method"] == "mice"


def test_several_tables_of_draws_differ_only_in_missing_cells(model, table):
    out = table.with_name("f.csv")
    assert command("impute", model, table, "--out", out, "--multiple", "2")[0] == 0
    first, second = rows(out.with_name("f-1.csv")), rows(out.with_name("f-2.csv"))
    differ = [(i, j) for i, row in enumerate(first) for j, c in enumerate(row) if c != second[i][j]]
    assert differ and all(not rows(table)[i][j] for i, j in differ)
    assert json.loads(out.with_suffix(".json").read_text())["drawn_tables"] == 2


def test_a_run_takes_its_first_arm_that_fills_and_names_those_that_can(model, table, tmp_path):
    run = tmp_path / "run" / "models"
    run.mkdir(parents=True)
    os.symlink(model, run / "mice")
    assert command("impute", run.parent, table)[1].startswith("id;a;b")
    code, _, error = command("impute", run.parent, table, "--arm", "vae")
    assert code == 2 and "no model of arm 'vae'; there are mice." in error


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("{model}", "{none}"), "there is no file"),
        (("{model}", "{table}", "--multiple", "3"), "several tables need files"),
        (("{model}", "{table}", "--out", "{table}", "--force"), "it is an input of this command"),
        (("{folder}", "{table}"), "no saved model is there"),
    ],
)
def test_wrong_input_ends_with_one_line(model, table, tmp_path, words, told):
    known = {"model": model, "table": table, "none": tmp_path / "none.csv", "folder": tmp_path}
    code, _, error = command("impute", *(str(w).format(**known) for w in words))
    assert code == 2 and told in error and len(error.strip().splitlines()) == 1


def test_a_model_that_does_not_fill_is_refused_by_name(table, tmp_path):
    folder = tmp_path / "run" / "models" / "groups"
    folder.mkdir(parents=True)
    (folder / "model.json").write_text('{"method": "kmeans"}')
    code, _, error = command("impute", tmp_path / "run", table)
    assert code != 0 and "no arm fills missing values (groups)" in error and "mice" in error


def test_a_file_without_a_column_of_the_model_is_told_how_to_have_it_filled(model, tmp_path):
    _, holes = mixed(20, 2)
    holes.drop(columns="b").to_csv(tmp_path / "t.csv", index=False)
    code, _, error = command("impute", model, tmp_path / "t.csv")
    assert code == 2 and "no column 'b', which the model has" in error and "empty cells" in error
    holes.assign(b="").to_csv(tmp_path / "t.csv", index=False)
    code, text, _ = command("impute", model, tmp_path / "t.csv")
    column = [r["b"] for r in csv.DictReader(text.splitlines())]
    assert code == 0 and len(column) == 20 and all(map(float, column))


def test_a_column_constant_in_training_is_filled_by_its_value_or_named(tmp_path):
    _, holes = mixed(60, 1)
    holes["dose"], holes["drug"] = 2.5, "A"
    known = {"a": "number", "b": "number", "dose": "number", "drug": ["A", "B"]}
    some = holes[[*known]].copy()
    some.loc[3:5, ["dose", "drug"]] = np.nan
    spec = {n: {"type": "category", "levels": k} if isinstance(k, list) else k
            for n, k in known.items()}  # fmt: skip
    fed = fc.simulate({"x": some[:30], "y": some[30:]}, dictionary=spec)
    fc.fit("joint_normal", fed, draws=0).save(tmp_path / "m")
    some.to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",")
    out = tmp_path / "f.csv"
    code, _, error = command("impute", tmp_path / "m", tmp_path / "t.csv", "--out", out)
    assert code == 0 and "stay empty" not in error
    assert {tuple(row[2:]) for row in rows(out)[1:]} == {("2,5", "A")}
    about = json.loads(out.with_suffix(".json").read_text())
    assert about["filled_cells"]["dose"] == about["filled_cells"]["drug"] == 3
    assert about["empty_cells"] == {}
    some.loc[0, "dose"], some["drug"] = 3.5, np.nan
    some.to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",")
    code, text, error = command("impute", tmp_path / "m", tmp_path / "t.csv")
    assert code == 0 and len(error.strip().splitlines()) == 1
    assert "'dose' (3, constant in training, 2 values here)" in error
    assert "'drug' (60, constant in training, 0 values here)" in error
    assert [row.split(";")[2] for row in text.splitlines()[4:7]] == ["", "", ""]


def test_a_model_after_a_preprocessing_that_fills_is_refused(tmp_path):
    """Its preprocessing would fill every cell of a column by one value."""
    _, holes = mixed(60, 1)
    fc.fit("joint_normal", cohort(holes), draws=0, impute="median").save(tmp_path / "m")
    holes.to_csv(tmp_path / "t.csv", index=False)
    code, _, error = command("impute", tmp_path / "m", tmp_path / "t.csv")
    assert code == 2 and "impute: median" in error and "without impute" in error


def test_a_first_study_of_a_messy_export_imputes_by_its_arms(tmp_path, monkeypatch):
    """Hospitals of one row, decimal commas, a constant and an empty column."""
    _, holes = mixed(160, 3)
    holes.insert(0, "hospital", [f"K{min(i, 157) % 4 + max(0, i - 156)}" for i in range(160)])
    holes["dose"], holes["lost"] = 5.0, np.nan
    monkeypatch.chdir(tmp_path)
    holes.to_csv("t.csv", index=False, sep=";", decimal=",")
    assert command("init", "--task", "imputation", "--data", "t.csv")[0] == 0
    text = Path("study.yaml").read_text()
    assert "sites: {column: hospital}" in text and "impute:" not in text
    assert command("data", "check", "study.yaml")[0] == 0
