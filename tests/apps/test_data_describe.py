"""`fedcohort data describe` as a data manager meets it: text, files, doors for data, errors."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from in_process import command

DICTIONARY = """\
variables:
  age: {type: integer, range: [18, 110], unit: years}
  grade: {type: category, levels: [I, II, '[b]III[/b]']}
  days: {type: time, unit: days}
  death: event
"""
STUDY = """\
study: own
data: {source: one.csv, dictionary: d.yaml, sites: {column: hospital}, exclude: [time not above 0]}
arms: [{method: cox}]
privacy: {min_cell: 7}
"""


def table(seed: int, n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 90, n),
            "grade": rng.choice(["I", "II", "[b]III[/b]"], n, p=[0.5, 0.45, 0.05]),
            "days": rng.integers(1, 999, n),
            "death": np.arange(n) // 2 % 2,
        }
    )


@pytest.fixture(autouse=True)
def _inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("d.yaml").write_text(DICTIONARY)
    tables = {"a": table(1), "b": table(2, 90)}
    for name, frame in tables.items():
        frame.to_csv(f"{name}_x.csv", index=False)
    whole = pd.concat([f.assign(hospital=k) for k, f in tables.items()])
    whole.to_csv("one.csv", index=False)
    with sqlite3.connect("c.db") as lite:
        whole.to_sql("patients", lite, index=False)
    lite.close()


def describe(*arguments: object) -> tuple[int, str, str]:
    return command("data", "describe", *arguments)


def found(*arguments: object) -> dict:
    code, _, error = describe(*arguments, "--out", "found.json", "--force")
    assert (code, error) == (0, "")
    return json.loads(Path("found.json").read_text(encoding="utf-8"))


def test_every_door_gives_the_same_table_with_the_same_counts():
    known = ("--dictionary", "d.yaml", "--by", "death")
    first = found("{site}_x.csv", *known)["table"]
    assert {line["site"] for line in first} == {None, "a", "b"}
    query = ("--query", "select * from patients")
    for asked in (("one.csv",), ("sqlite:///c.db", *query)):
        assert found(*asked, *known, "--sites", "hospital")["table"] == first
    named = found("a_x.csv", "b_x.csv", *known)["table"]
    assert {line["site"] for line in named} == {None, "a_x", "b_x"}
    assert [line["mean"] for line in named] == [line["mean"] for line in first]
    assert sum(line["n"] for line in first if line["variable"] == "age" and not line["site"]) == 300


def test_a_study_file_brings_its_rows_and_its_min_cell():
    whole = pd.read_csv("one.csv")
    whole.loc[:9, "days"] = 0
    whole.to_csv("one.csv", index=False)
    Path("s.yaml").write_text(STUDY)
    told = found("s.yaml")
    rows = {line["site"]: line["n"] for line in told["table"] if line["variable"] == "age"}
    assert rows == {None: 140, "a": 50, "b": 90}
    assert told["min_cell"] == 7
    assert found("s.yaml", "--min-cell", 5)["min_cell"] == 5
    code, _, error = describe("s.yaml", "--dictionary", "d.yaml")
    assert code == 2
    assert (
        error == "fedcohort: s.yaml: a study file names its own tables; leave out --dictionary.\n"
    )


def test_no_count_of_1_to_4_is_on_screen_or_in_a_file_and_the_rule_is_said():
    asked = ("{site}_x.csv", "--dictionary", "d.yaml", "--by", "death")
    code, text, error = describe(*asked)
    assert (code, error) == (0, "")
    assert "[b]III[/b]" in text  # a level is text, and no markup
    assert "counts of 1 to 4" in text
    assert "Not shown, with the rule" in text
    assert describe(*asked, "--out", "t.csv")[:2] == (0, "t.csv\n")
    with open("t.csv", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    counts = [int(line[k]) for line in lines for k in ("n", "missing", "count") if line[k]]
    assert len(counts) > 40
    assert not set(counts) & {1, 2, 3, 4}
    assert any(line["level"] and not line["count"] for line in lines)


def test_the_page_is_one_file_without_a_script_and_is_not_written_over_unasked():
    asked = ("{site}_x.csv", "--dictionary", "d.yaml", "--out", "p.html")
    assert describe(*asked)[:2] == (0, "p.html\n")
    page = Path("p.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "<script" not in page
    assert "<svg" in page
    assert "[b]III[/b]" in page
    code, _, error = describe(*asked)
    assert code == 2
    assert "it exists" in error
    assert describe(*asked, "--force")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a_x.csv",), "name the data dictionary by --dictionary."),
        (("none.csv", "--dictionary", "d.yaml"), "none.csv"),
        (("a_x.csv", "--dictionary", "d.yaml", "--by", "grad"), "Did you mean 'grade'?"),
        (("a_x.csv", "--dictionary", "d.yaml", "--quantiles", "5%"), "--quantiles 5%: expected"),
        (("a_x.csv", "--dictionary", "d.yaml", "--out", "x.txt"), "ends with .csv, .json, .html."),
        (("a_x.csv", "--dictionary", "d.yaml", "--out", "a_x.csv", "--force"), "is an input"),
        (("a_x.csv", "b_x.csv", "--dictionary", "d.yaml", "--sites", "s"), "leave it out"),
        (("{site}_x.csv", "--dictionary", "d.yaml", "--sites", "s"), "leave out --sites"),
    ],
)
def test_what_is_wrong_is_said_on_one_line_and_leaves_with_2(arguments, said):
    code, out, error = describe(*arguments)
    assert (code, out) == (2, "")
    assert said in error
    assert error.count("\n") == 1


def test_a_value_that_is_wrong_is_named_by_row_and_never_shown():
    frame = table(1)
    frame.loc[4, "age"] = 7
    frame.to_csv("a_x.csv", index=False)
    code, _, error = describe("a_x.csv", "--dictionary", "d.yaml")
    assert code == 2
    assert "'age'" in error
    assert "row 5" in error
    assert " 7" not in error


LIMITED = """\
variables:
  age: {type: integer, range: [18, 110], unit: years}
  grade: {type: category, levels: [I, II, '[b]III[/b]']}
  days: {type: time, unit: days, usual: [0, 1000]}
  death: event
"""


def test_with_an_epsilon_there_is_one_noisy_table_that_no_second_run_repeats():
    Path("d.yaml").write_text(LIMITED)
    asked = ("one.csv", "--dictionary", "d.yaml", "--sites", "hospital", "--epsilon", "20")
    one, two = found(*asked, "--delta", "1e-6"), found(*asked)
    assert {line["site"] for line in one["table"]} == {None}
    assert one["table"] != two["table"]
    assert (one["dp"]["epsilon"], one["dp"]["delta"]) == (20, 1e-6)
    assert 0 < two["dp"]["noise"] < one["dp"]["noise"]
    assert one["table"][0]["n"] == pytest.approx(150, abs=6 * one["dp"]["noise"])
    code, text, _ = describe(*asked)
    assert code == 0
    assert "Differentially private, of each record: epsilon 20" in " ".join(text.split())
    assert describe(*asked, "--out", "t.html")[0] == 0
    assert "Differentially private" in Path("t.html").read_text(encoding="utf-8")


def test_a_study_is_described_with_noise_too():
    Path("d.yaml").write_text(LIMITED)
    Path("s.yaml").write_text(STUDY)
    shown = found("s.yaml", "--epsilon", "20")
    assert shown["min_cell"] == 7
    assert shown["dp"]["delta"] == 1e-5


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("--delta", "1e-5"), "--delta is of differential privacy; give --epsilon"),
        (("--epsilon", "0"), "dp.epsilon is 0.0; give a number above 0"),
        (("--epsilon", "1"), "column 'days' has no range in the dictionary"),
        (
            ("--epsilon", "1", "--by", "death"),
            "a private description has only one table of all rows",
        ),
    ],
)
def test_noise_that_cannot_be_had_is_refused_in_one_line(more, text):
    code, _, error = describe("a_x.csv", "--dictionary", "d.yaml", *more)
    assert code == 2
    assert text in error
    assert error.count("\n") == 1
