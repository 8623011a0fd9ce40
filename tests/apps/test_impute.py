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
