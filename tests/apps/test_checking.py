"""`fedcohort data check` as a data manager meets it: text, JSON, exit codes, all kinds of table."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedcohort.apps.checking import Report
from in_process import command

DICTIONARY = """\
variables:
  age: {type: integer, range: [18, 110], unit: years}
  grade: {type: category, levels: [I, II]}
  note: text
  days: {type: time, unit: days}
  death: event
"""
STUDY = """\
study: s
data: {source: "%s", dictionary: d.yaml%s}
arms: [{method: cox}]
"""


@pytest.fixture(autouse=True)
def _inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("d.yaml").write_text(DICTIONARY)


def table(seed: int = 0, n: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 90, n),
            "grade": rng.choice(["I", "II"], n),
            "note": [f"note {i}" for i in range(n)],
            "days": rng.integers(1, 999, n),
            "death": np.arange(n) // 2 % 2,
        }
    )


def faulty(*rows: int) -> pd.DataFrame:
    frame = table()
    frame.loc[[r - 1 for r in rows], "age"] = 7
    return frame


def check(*arguments: object) -> tuple[int, str, str]:
    return command("data", "check", *arguments)


def findings(*arguments: object) -> list[dict]:
    return json.loads(check(*arguments, "--json")[1])["findings"]


def test_a_clean_table_leaves_with_0_and_warnings_do_too_but_not_strictly():
    table().to_csv("t.csv", index=False)
    assert check("t.csv", "--dictionary", "d.yaml") == (
        0, "t.csv (40 rows, 5 columns): nothing found\n\nnothing found in 1 table.\n", "",
    )  # fmt: skip
    table().assign(note="x").to_csv("t.csv", index=False)
    code, text, _ = check("t.csv", "--dictionary", "d.yaml")
    assert code == 0
    assert text.endswith("1 warning in 1 table. Warnings do not stop a study.\n")
    assert check("t.csv", "--dictionary", "d.yaml", "--strict")[0] == 2


def test_what_is_said_of_many_columns_is_said_once():
    table().assign(age="", note="").to_csv("t.csv", index=False)
    text = check("t.csv", "--dictionary", "d.yaml")[1]
    assert "each of 2 columns has no value in any row: 'age', 'note'." in " ".join(text.split())
    assert len(findings("t.csv", "--dictionary", "d.yaml")) == 2


def test_text_fits_80_columns_and_names_at_most_five_rows_with_their_lines():
    faulty(1, 2, 3, 5, 8, 13, 21).to_csv("t.csv", index=False)
    code, text, _ = check("t.csv", "--dictionary", "d.yaml")
    assert code == 2
    assert max(map(len, text.splitlines())) <= 80
    said = " ".join(text.split())
    assert "in rows 1, 2, 3, 5, 8 (lines 2, 3, 4, 6, 9), … (7 rows). Correct" in said
    assert said.endswith("1 error in 1 table. A study does not run on tables with errors.")


def test_json_holds_what_the_text_says():
    faulty(3, 9).to_csv("t.csv", index=False)
    code, text, _ = check("t.csv", "--dictionary", "d.yaml", "--json")
    report = json.loads(text)
    assert code == 2
    assert (report["schema"], report["errors"], report["warnings"]) == (1, 1, 0)
    assert report["tables"] == [{"name": "t.csv", "rows": 40, "columns": 5, "left_out": 0}]
    assert report["findings"] == [
        {
            "file": "t.csv",
            "site": None,
            "column": "age",
            "rule": "range",
            "severity": "error",
            "rows": [3, 9],
            "lines": [4, 10],
            "n_rows": 2,
            "message": "column 'age' is outside 18 to 110 years, its range, in rows 3, 9. Correct "
            "or empty them, declare a missing code, or widen the range in the dictionary.",
        }
    ]


def test_lines_are_named_only_where_rows_are_lines():
    faulty(9).assign(note="a\nb").to_csv("t.csv", index=False)
    (wrong, _) = findings("t.csv", "--dictionary", "d.yaml")
    assert (wrong["rows"], wrong["lines"]) == ([9], None)


def test_several_files_are_sites_and_each_is_read_whatever_the_others_are():
    faulty(2).to_csv("north.csv", index=False)
    table(1).assign(death=0).to_csv("south.csv", index=False)
    said = findings("nowhere.csv", "north.csv", "south.csv", "--dictionary", "d.yaml")
    assert [(f["file"], f["site"], f["rule"]) for f in said] == [
        ("nowhere.csv", None, "file"),
        ("north.csv", "north", "range"),
        ("south.csv", "south", "site events"),
    ]
    assert [f["rule"] for f in findings("{site}.csv", "--dictionary", "d.yaml")] == [
        "range", "site events",
    ]  # fmt: skip


@pytest.mark.parametrize("source", ["t.csv", "t.csv.gz", "t.parquet", "sqlite:///t.db"])
def test_every_door_finds_the_same(source):
    frame = faulty(4).assign(hospital=["n", "s"] * 20)
    frame.to_csv("t.csv", index=False)
    frame.to_csv("t.csv.gz", index=False)
    frame.to_parquet("t.parquet")
    with sqlite3.connect("t.db") as base:
        frame.to_sql("t", base, index=False)
    base.close()
    query = ("--query", "select * from t") if "sqlite" in source else ()
    (said,) = findings(source, "--dictionary", "d.yaml", "--sites", "hospital", *query)
    assert (said["file"], said["rule"], said["rows"]) == (source, "range", [4])
    assert (said["lines"] is None) == (source != "t.csv")


def test_a_study_file_stands_for_its_tables_and_is_checked_itself():
    faulty(4).to_csv("a.csv", index=False)
    table(1).to_csv("b.csv", index=False)
    Path("s.yaml").write_text(STUDY % ("{site}.csv", ""))
    assert [(f["file"], f["site"], f["rows"]) for f in findings("s.yaml")] == [("a.csv", "a", [4])]
    Path("s.yaml").write_text(STUDY % ("b.csv", ", sites: {split: iid, n: 30}"))
    (said,) = findings("s.yaml")
    assert said["rule"] == "study"
    assert "40 rows are too few for 30 sites" in said["message"]
    Path("s.yaml").write_text(STUDY % ("b.csv", ", sites: {split: iid, n: 2}"))
    assert check("s.yaml")[0] == 0
    Path("s.yaml").write_text("study: [")
    assert "s.yaml, line 1: this is no plain YAML" in check("s.yaml")[2]


def test_rows_that_a_study_excludes_are_not_judged_and_the_others_keep_their_numbers():
    frame = faulty(9).astype({"days": float})
    frame.loc[2, "days"] = np.nan
    frame.to_csv("t.csv", index=False)
    exclude = ", exclude: [missing outcome], sites: {split: iid, n: 2}"
    Path("s.yaml").write_text(STUDY % ("t.csv", exclude))
    (said,) = findings("s.yaml")
    assert (said["rows"], said["lines"]) == ([9], [10])
    assert check("s.yaml")[1].startswith(
        "t.csv (40 rows, 5 columns; 1 row left out of the study): 1 "
    )
    (counted,) = json.loads(check("s.yaml", "--json")[1])["tables"]
    assert (counted["rows"], counted["left_out"]) == (40, 1)


def test_the_outcome_may_be_named_on_the_command_line():
    Path("d.yaml").write_text(DICTIONARY.replace("{type: time, unit: days}", "number"))
    Path("d.yaml").write_text(Path("d.yaml").read_text().replace("death: event", "death: binary"))
    frame = table()
    frame.loc[3, "days"] = 0
    frame.to_csv("t.csv", index=False)
    assert findings("t.csv", "--dictionary", "d.yaml") == []
    (said,) = findings("t.csv", "--dictionary", "d.yaml", "--outcome", "days,death")
    assert (said["rule"], said["rows"]) == ("time", [4])
    (said,) = findings("t.csv", "--dictionary", "d.yaml", "--outcome", "grade")
    assert (said["rule"], said["column"]) == ("leak", "death")


def test_the_report_can_be_written_to_a_file():
    table().to_csv("t.csv", index=False)
    code, printed, _ = check("t.csv", "--dictionary", "d.yaml", "--json", "--out", "r.json")
    assert (code, printed) == (0, "r.json\n")
    assert json.loads(Path("r.json").read_text())["errors"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("t.csv",), "name the data dictionary by --dictionary. `fedcohort init --data FILE`"),
        (("t.csv", "--dictionary", "x.yaml"), "there is no dictionary file x.yaml."),
        (("s.yaml", "--sites", "a"), "a study file names its own tables; leave out --sites."),
        (("s.yaml", "s.yaml"), "a study file names its own tables; leave out a second one."),
        (("t.csv", "--dictionary", "d.yaml", "--outcome", "a,b,c"), "expected TIME,EVENT or"),
        (("t.csv", "--dictionary", "d.yaml", "--out", "no/r"), "--out no/r: cannot write there"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments, said):
    table().to_csv("t.csv", index=False)
    code, printed, line = check(*arguments)
    assert (code, printed) == (2, "")
    assert said in line
    assert line.count("\n") == 1


@pytest.mark.parametrize("out", ["t.csv", "d.yaml", "./sub/../t.csv", "n.csv", "l.csv"])
def test_an_input_is_never_overwritten_and_another_file_only_by_force(out):
    Path("sub").mkdir()
    for name in ("t.csv", "n.csv"):
        table().to_csv(name, index=False)
    Path("l.csv").symlink_to("t.csv")
    before = Path(out).read_bytes()
    code, _, line = check("{site}.csv", "--dictionary", "d.yaml", "--out", out, "--force")
    assert (code, line) == (2, f"fedcohort: --out {Path(out)}: it is an input of this command. "
                               "Name another file.\n")  # fmt: skip
    assert Path(out).read_bytes() == before
    Path("r.txt").write_text("mine")
    code, _, line = check("t.csv", "--dictionary", "d.yaml", "--out", "r.txt")
    assert code == 2
    assert "r.txt: it exists" in line
    assert Path("r.txt").read_text() == "mine"
    assert check("t.csv", "--dictionary", "d.yaml", "--out", "r.txt", "--force")[0] == 0


def test_the_tables_of_a_study_file_are_inputs_too():
    table().to_csv("t.csv", index=False)
    Path("s.yaml").write_text(STUDY % ("t.csv", ", sites: {split: iid, n: 3}"))
    for out in ("s.yaml", "t.csv", "d.yaml"):
        code, _, line = check("s.yaml", "--out", out, "--force")
        assert code == 2
        assert "it is an input" in line


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:hunter2@h/b", "postgresql://u:***@h/b"),
        ("postgresql://u@corp:hun@ter2@h/b", "postgresql://u@corp:***@h/b"),
        ("postgresql://u:hun/ter2?@h/b", "postgresql://u:***@h/b"),
        ("mysql://h/b?user=u&password=hunter2", "mysql://h/b?user=u&password=***"),
    ],
)
def test_a_password_in_a_url_is_never_shown(url, shown):
    for form in ((), ("--json",)):
        code, text, line = check(url, "--dictionary", "d.yaml", "--query", "select 1", *form)
        assert code == 2
        assert "ter2" not in text + line
        assert shown in text


def test_a_question_ends_without_a_stop():
    Path("table.csv").write_text("x\n1\n")
    _, text, _ = check("tabel.csv", "--dictionary", "d.yaml")
    assert "Did you mean 'table.csv'?\n" in text


def test_a_check_without_an_outcome_says_so():
    Path("d.yaml").write_text("variables: {age: integer}\n")
    table()[["age"]].to_csv("t.csv", index=False)
    code, text, _ = check("t.csv", "--dictionary", "d.yaml")
    assert code == 0
    assert " ".join(text.split()).endswith(
        "no outcome was checked: mark time and event in the dictionary, or give --outcome"
    )


def test_one_row_or_column_is_said_as_one():
    report = Report({"t.csv": (1, 1), "u.csv": (0, 2)})
    said = report.to_text()
    assert "t.csv (1 row, 1 column): nothing found" in said
    assert "u.csv (no rows, 2 columns): nothing found" in said


def test_what_stands_in_many_tables_is_told_once_and_sound_tables_are_counted():
    Path("d.yaml").write_text(DICTIONARY + "  gone: number\n")
    Path("exports").mkdir()
    for i in range(9):
        frame = table(i) if i else faulty(3)
        frame.to_csv(f"exports/h{i}.csv", index=False)
    code, text, _ = check("exports/{site}.csv", "--dictionary", "d.yaml")
    assert code == 2
    assert text.startswith(
        "8 tables: nothing found besides\n\nIn several tables:\n  error    exports/h0.csv and 8 "
        "more: there is no column 'gone' among 5 columns.\n"
    )
    assert text.count("gone") == 1
    assert "exports/h0.csv (40 rows, 5 columns): 1 error\n  error    column 'age' is below" in (
        text.replace("outside 18 to 110", "below 18")
    )
    assert (
        len(
            json.loads(check("exports/{site}.csv", "--dictionary", "d.yaml", "--json")[1])[
                "findings"
            ]
        )
        == 10
    )


def test_a_table_beside_the_sites_that_the_path_leaves_out_is_told():
    Path("exports").mkdir()
    table().to_csv("exports/north.csv", index=False)
    table(1).to_csv("exports/south.tsv", index=False, sep="\t")
    said = findings("exports/{site}.csv", "--dictionary", "d.yaml")
    (other,) = [f for f in said if f["rule"] == "file"]
    assert "does not stand for 1 file beside its tables: south.tsv." in other["message"]
    faulty(2).to_csv("exports/south.tsv", index=False, sep="\t")
    (fault,) = findings("exports/{site}.*", "--dictionary", "d.yaml")
    assert (fault["file"], fault["rows"], fault["lines"]) == ("exports/south.tsv", [2], [3])


AT_SITES = """\
study: s
data: {dictionary: d.yaml%s}
arms: [{method: cox}]
"""


@pytest.mark.parametrize("source", ["", ", source: network"])
def test_a_network_study_is_checked_without_a_table_by_its_file_and_its_dictionary(source):
    more = DICTIONARY + "  hsct_day: {type: integer, unit: days}\n  crp: number\n"
    Path("d.yaml").write_text(more)
    Path("s.yaml").write_text(AT_SITES % source)
    code, text, _ = check("s.yaml")
    text = " ".join(text.split())
    assert code == 0
    assert text.startswith("the dictionary: 2 warnings warning column 'hsct_day' has a name that")
    assert "is it the time of something later" in text
    assert "column 'crp' has no unit in the dictionary, and sites may differ in it" in text
    assert text.endswith("Each checks its own: fedcohort data check STUDY.yaml TABLE.")
    Path("s.yaml").write_text(AT_SITES % f"{source}, outcome: {{time: day, event: death}}")
    text = " ".join(check("s.yaml")[1].split())
    assert "column 'day' is not in the dictionary. Did you mean 'days'?" in text
    Path("s.yaml").write_text(AT_SITES % f"{source}, outcomes: {{time: days, event: death}}")
    assert check("s.yaml")[0] == 2


def test_a_site_checks_its_table_against_a_network_study_as_its_node_would():
    Path("s.yaml").write_text(AT_SITES % "")
    table().to_csv("t.csv", index=False)
    assert check("s.yaml", "t.csv")[:2] == (
        0, "t.csv (40 rows, 5 columns): nothing found\n\nnothing found in 1 table.\n",
    )  # fmt: skip
    faulty(3, 8).to_csv("t.csv", index=False)
    (fault,) = findings("s.yaml", "t.csv")
    assert (fault["rule"], fault["rows"], fault["severity"]) == ("range", [3, 8], "error")
    Path("s.yaml").write_text(AT_SITES % ", sites: {min_rows: 50}")
    table().to_csv("t.csv", index=False)
    (fault,) = findings("s.yaml", "t.csv")
    assert fault["severity"] == "error"
    assert "too few rows or events for this study" in fault["message"]
    Path("s.yaml").write_text(AT_SITES % ', exclude: ["time not above 0"]')
    table().assign(days=lambda t: t["days"].where(t.index > 4, 0)).to_csv("t.csv", index=False)
    assert check("s.yaml", "t.csv")[1].startswith(
        "t.csv (40 rows, 5 columns; 5 rows left out of the study): nothing found"
    )


def test_tables_of_several_sites_of_a_network_study_are_compared():
    Path("s.yaml").write_text(AT_SITES % "")
    for i, unit in enumerate((1, 1, 1, 30.4375)):
        frame = table(seed=i, n=150)
        frame.assign(days=frame["days"] / unit).to_csv(f"h{i}.csv", index=False)
    (fault,) = findings("s.yaml", "h{site}.csv")
    assert (fault["rule"], fault["site"]) == ("site units", "3")
    Path("s.yaml").write_text(AT_SITES % "" + "units: [days]\n")
    assert check("s.yaml", "h{site}.csv")[0] == 0
