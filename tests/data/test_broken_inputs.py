# ruff: noqa: E501 - tables of messages
"""Every kind of broken study file, dictionary and table is refused on one line, word for word.

`fedcohort run` says it, leaves with 2, shows no traceback and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from in_process import command

STUDY = """\
study: small
task: survival
data:
  source: t.csv
  dictionary: d.yaml
  sites: {column: hospital}
arms:
  - {method: cox}
evaluate: {repeats: 1}
"""
DICTIONARY = """\
title: A cohort
variables:
  patient: {type: text, identifier: true}
  age: {type: integer, unit: years, range: [18, 110]}
  marker: {type: number, unit: g/l, missing: [-9]}
  grade: {type: category, levels: [I, II, III]}
  smoker: binary
  birth: {type: date, since: "1920-01-01", unit: years}
  days: {type: time, unit: days}
  death: event
"""
TABLE = "patient,age,marker,grade,smoker,birth,days,death,hospital\n" + "".join(
    f"P{i:02},{40 + i},{1.5 + i * 37 % 40 / 10:.1f},{'I II III'.split()[i % 3]},{i % 2},"
    f"{1940 + i % 30}-03-{1 + i % 28:02},{100 + i},{int(i % 3 > 0)},{'north' if i % 2 else 'south'}\n"
    for i in range(40)
)


@pytest.fixture
def refusal(tmp_path, monkeypatch):
    """Return what `fedcohort run` says of a study, its dictionary and its table."""
    monkeypatch.chdir(tmp_path)

    def said(study: str = STUDY, dictionary: str = DICTIONARY, table: str | bytes = TABLE) -> str:
        Path("s.yaml").write_text(study)
        Path("d.yaml").write_text(dictionary)
        Path("t.csv").write_bytes(table if isinstance(table, bytes) else table.encode())
        code, printed, line = command("run", "s.yaml", "--out", "out")
        assert (code, printed, Path("out").exists()) == (2, "", False), line
        assert line.count("\n") == 1
        return line.removeprefix("fedcohort: ").removesuffix("\n")

    return said


def cell(row: int, column: str, new: str) -> Callable[[str], str]:
    """Return a change of one cell; row 0 is the header."""

    def change(table: str) -> str:
        rows = [line.split(",") for line in table.splitlines()]
        rows[row][rows[0].index(column)] = new
        return "\n".join(map(",".join, rows)) + "\n"

    return change


def every(column: str, new: str) -> Callable[[str], str]:
    """Return a change of all cells of a column."""

    def change(table: str) -> str:
        for row in range(1, len(table.splitlines())):
            table = cell(row, column, new)(table)
        return table

    return change


STUDIES = [
    ("study: small", "study: a/b", "s.yaml, line 1, study: expected a valid folder name, such as 'gbsg2-rfs': at most 80 characters, no slash, no dot or space in front."),
    ("task: survival", "task: surival", "s.yaml, line 2, task: 'surival' is not possible; did you mean 'survival'?"),
    ("task: survival", "task: forecast", "s.yaml, line 2, task: 'forecast' is not possible; known are classification, clustering, imputation, latent, regression, survival, synthesis."),
    ("data:\n", "dta:\n", "s.yaml, line 3, dta: unknown key 'dta'; did you mean 'data'?"),
    ("  source: t.csv\n", "", "s.yaml, line 3, data: the key 'source' is missing."),
    ("source: t.csv", "source: tt.csv", "there is no file tt.csv. Did you mean 't.csv'?"),
    ("source: t.csv", "source: sample:gbsg3", "sample:gbsg3: there is no sample 'gbsg3'. Did you mean 'gbsg2'?"),
    ("source: t.csv", "source: sqlite:///t.db", "s.yaml, line 3, data: the key 'query' is missing: the SQL query of the database."),
    ("source: t.csv", "source: '{site}.txt'", "s.yaml, line 6, data.sites.column: the source has one file a site already; leave 'column' out."),
    ("d.yaml", "dd.yaml", "there is no dictionary file dd.yaml. Did you mean 'd.yaml'?"),
    ("  dictionary: d.yaml\n", "", "s.yaml, line 3, data: the key 'outcome' is missing."),
    ("  sites: {column: hospital}\n", "", "s.yaml, line 3, data: the key 'sites' is missing: name a site column, or a split and n."),
    ("column: hospital", "column: hospitl", "t.csv: there is no column 'hospitl' among 9 columns. Did you mean 'hospital'?"),
    ("{column: hospital}", "{split: iidd, n: 3}", "s.yaml, line 6, data.sites.split: 'iidd' is not possible; did you mean 'iid'?"),
    ("{column: hospital}", "{split: iid, n: 30}", "t.csv: 40 rows are too few for 30 sites after 25% were set aside for the test. Use fewer sites."),
    ("{column: hospital}", "{split: iid, n: three}", "s.yaml, line 6, data.sites.n: expected a whole number of at least 1."),
    ("  sites", "  outcome: {time: dys, event: death}\n  sites", "t.csv: there is no column 'dys' among 9 columns. Name the outcome's column."),
    ("  sites", "  outcome: {time: days}\n  sites", "s.yaml, line 6, data.outcome: the key 'event' is missing."),
    ("  sites", "  exclude: [no outcome]\n  sites", "s.yaml, line 6, data.exclude.0: 'no outcome' is not possible; did you mean 'missing outcome'?"),
    ("method: cox", "method: coxx", "s.yaml, line 8, arms.0.method: there is no method 'coxx'; did you mean 'cox'?"),
    ("method: cox", "method: cox, l2: much", "s.yaml, line 8, arms.0: setting 'l2' of method 'cox' is 'much'; it must be of type float."),
    ("method: cox", "method: cox, tie: efron", "s.yaml, line 8, arms.0: method 'cox' has no setting 'tie'; did you mean 'ties'?"),
    ("arms:", "arms: []\nxarms:", "s.yaml, line 8, xarms: unknown key 'xarms'; did you mean 'arms'?"),
    ("repeats: 1", "repeats: 0", "s.yaml, line 9, evaluate.repeats: expected a whole number from 1 to 1000."),
    ("repeats: 1", "test_fraction: 1.5", "s.yaml, line 9, evaluate.test_fraction: expected a number between 0 and 1."),
    ("repeats: 1", "metrics: [accuracy]", "s.yaml, line 9, evaluate.metrics.0: 'accuracy' is not possible in a study of survival, it evaluates classification; known are c_index, uno_c, ibs, calibration_slope, d_calibration_p, antolini_c."),
    ("evaluate:", "quorum: 2\nevaluate:", "s.yaml, line 9, quorum: expected a number between 0 and 1."),
    ("evaluate:", "preprocess: {impute: copied}\nevaluate:", "s.yaml, line 9, preprocess.impute: 'copied' is not possible; known are indicator, iterative, mean, median, most_frequent, multiple, none."),
    ("evaluate:", "tune: {trials: 3}\nevaluate:", "s.yaml, line 9, tune: 'trials' and 'space' belong together (Optuna)."),
    ("evaluate:", "study: again\nevaluate:", "s.yaml, line 9: key 'study' stands twice."),
    ("evaluate: {", "evaluate: {[", "s.yaml, line 9: this is no plain YAML (expected ',' or ']', but got '}')."),
    ("task: survival", "task: classification", "s.yaml, line 3, data: the key 'outcome' is missing."),
]  # fmt: skip
DICTIONARIES = [
    ("title:", "titel:", "d.yaml has no key 'titel'. Did you mean 'title'?"),
    ("marker: {type: number", "marker: {type: numbr", "d.yaml, line 5: variable 'marker' has no type 'numbr'. Did you mean 'number'?"),
    ("unit: years, range", "units: years, range", "d.yaml, line 4: variable 'age' has no key 'units'. Did you mean 'unit'?"),
    ("[18, 110]", "[110, 18]", "d.yaml, line 4: variable 'age': 'range' is two ascending numbers, such as [0, 120]; null where there is no limit."),
    ("[18, 110]", "18", "d.yaml, line 4: variable 'age': 'range' is two ascending numbers, such as [0, 120]; null where there is no limit."),
    ("levels: [I, II, III]", "levels: []", "d.yaml, line 6: category 'grade' needs its 'levels', in order."),
    ("levels: [I, II, III]", "levels: [I, I]", "d.yaml, line 6: variable 'grade' names a level twice."),
    ("levels: [I, II, III]", "levels: [yes, no]", "d.yaml, line 6: variable 'grade' has levels that YAML reads as true or false. Put quotes around yes, no, on and off."),
    ("[-9]", "-9", "d.yaml, line 5: variable 'marker': 'missing' is a list, such as [a, b]."),
    ("smoker: binary", "smoker: {type: binary, levels: [a, b, c]}", "d.yaml, line 7: binary 'smoker' has 3 levels; name two, or none."),
    ("smoker: binary", "smoker: {type: binary, range: [0, 1]}", "d.yaml, line 7: variable 'smoker' has a range but is of type 'binary'; a range is for number, integer, time and for a date with 'since'."),
    ("smoker: binary", "smoker: [binary]", "d.yaml, line 7: variable 'smoker' needs keys such as 'type' and 'unit'."),
    ("1920-01-01", "brth", "d.yaml: variable 'birth' is counted since 'brth', which is neither another column of type 'date' nor a day such as 2015-01-31."),
    ("unit: years}", "unit: decades}", "d.yaml, line 8: variable 'birth' is a duration and has no unit 'decades'; there are days, months, years."),
    ("death: event", "death: binary", "d.yaml: 'days' is of type 'time', and no column is of type 'event'; a survival outcome needs both."),
    ("death: event", "death: event\n  died: event", "d.yaml: 'death' and 'died' are of type 'event'; a study has one. Make the others 'number' or 'binary', with 'feature: false'."),
    ("days: {type: time", "days: {type: number", "d.yaml: 'death' is of type 'event', and no column is of type 'time'; a survival outcome needs both."),
    ("  marker", "  age: number\n  marker", "d.yaml, line 5: 'age' stands twice; keep one of them."),
    ("variables:", "variables: {}\nx:", "d.yaml has no key 'x'; there are title, description, licence, variables."),
    ("variables:", "variables:\n  null: number", "d.yaml has a column whose name YAML reads as null. Put quotes around names such as yes, no, on, off and null."),
    ("title: A cohort", "title: [A", "d.yaml, line 2: this is no YAML. Check quotes and indents."),
    ("identifier: true", "identifier: maybe", "d.yaml, line 3: variable 'patient': 'identifier' is true or false."),
    ("grade: {", "grade: {since: birth, ", "d.yaml, line 6: variable 'grade' has 'since' but is of type 'category'; it is for dates."),
]  # fmt: skip
TABLES = [
    (cell(3, "death", "yes"), "t.csv: column 'death' holds no number in row 3. Code an event that was seen as 1, and any other row as 0."),
    (cell(3, "age", "fifty"), "t.csv: column 'age' holds no number in row 3. Correct or empty them."),
    (cell(3, "age", "12;5"), "t.csv: column 'age' holds no number in row 3. Correct or empty them."),
    (cell(3, "marker", '"2,5"'), "t.csv: column 'marker' holds no number in row 3. Write decimals with a point, and thousands without a mark."),
    (cell(3, "marker", "2.5 g/l"), "t.csv: column 'marker' holds no number in row 3. Take units out of the cells; a column's unit stands in the dictionary."),
    (cell(3, "marker", "<0.5"), "t.csv: column 'marker' holds no number in row 3. Take the sign of a detection limit out of the cell; empty it, or give the limit."),
    (cell(3, "marker", "inf"), "t.csv: column 'marker' is infinite in row 3. Leave a missing value empty."),
    (cell(3, "age", "40.5"), "t.csv: column 'age' is no whole number in row 3. Correct them, or make its type 'number' in the dictionary."),
    (cell(3, "age", "17"), "t.csv: column 'age' is outside 18 to 110 years, its range, in row 3. Correct or empty them, declare a missing code, or widen the range in the dictionary."),
    (cell(3, "age", "111"), "t.csv: column 'age' is outside 18 to 110 years, its range, in row 3. Correct or empty them, declare a missing code, or widen the range in the dictionary."),
    (cell(3, "grade", "IV"), "t.csv: column 'grade' has a level outside the 3 that the dictionary knows, in row 3. Correct them, or add the level to the dictionary."),
    (cell(3, "grade", "ii"), "t.csv: column 'grade' has a level outside the 3 that the dictionary knows, in row 3. They differ from a known level in capitals, accents or blanks alone; write them as the dictionary does."),
    (cell(3, "smoker", "2"), "t.csv: column 'smoker' is binary, and neither 0 nor 1 in row 3. Recode it, or declare its type in the dictionary."),
    (cell(3, "smoker", "yes"), "t.csv: column 'smoker' holds no number in row 3. Write 0 and 1, or name its two levels in the dictionary."),
    (cell(3, "birth", "03.04.1950"), "t.csv: column 'birth' holds no date in row 3. Write dates as 2015-01-31: other forms leave open which number is the month."),
    (cell(3, "birth", "long ago"), "t.csv: column 'birth' holds no date in row 3. Write dates as 2015-01-31, and empty the others."),
    (cell(3, "days", "0"), "t.csv: column 'days' is not above 0 in row 3. Correct or drop them."),
    (cell(3, "days", "-4"), "t.csv: column 'days' is not above 0 in row 3. Correct or drop them."),
    (cell(3, "days", ""), "t.csv: column 'days' is missing in row 3. Complete or drop them."),
    (cell(3, "days", "soon"), "t.csv: column 'days' holds no number in row 3. Correct or empty them."),
    (cell(3, "days", "inf"), "t.csv: column 'days' is infinite in row 3. Correct or drop them."),
    (cell(3, "death", "2"), "t.csv: column 'death' is neither 0 nor 1 in row 3. Code an event that was seen as 1, and any other row as 0."),
    (cell(3, "death", ""), "t.csv: column 'death' is missing in row 3. Complete or drop them."),
    (cell(3, "death", "dead"), "t.csv: column 'death' holds no number in row 3. Code an event that was seen as 1, and any other row as 0."),
    (cell(3, "patient", "P00"), "t.csv: column 'patient' names a patient more than once in rows 1, 3. Keep one row a patient."),
    (cell(3, "hospital", ""), "t.csv: no site in column 'hospital', row 3. Name one, or drop the row."),
    (every("death", "0"), "t.csv: no site has an event in column 'death' among 40 rows. Code an event that was seen as 1."),
    (every("days", "0"), "t.csv: column 'days' is not above 0 in rows 1, 2, 3, 4, 5, … (40 rows). Correct or drop them."),
    (cell(0, "age", "Age"), "t.csv: there is no column 'age' among 9 columns. Did you mean 'Age'?"),
    (cell(0, "days", "dayz"), "t.csv: there is no column 'days' among 9 columns. Did you mean 'dayz'?"),
    (cell(0, "hospital", "centre"), "t.csv: there is no column 'hospital' among 9 columns."),
    (cell(0, "age", "smoker"), "t.csv: there is no column 'age' among 9 columns. Add it, or take it out of the dictionary. (And 1 more: see `fedcohort data check`.)"),
    (lambda t: "", "t.csv is empty. Its first line must name the columns."),
    (lambda t: t[: t.index("\n") + 1], "t.csv: there are no rows under the 9 columns. Is it the right table?"),
    (lambda t: t[t.index("\n") + 1 :], "t.csv: none of the 8 columns of the dictionary is among the 9 here. Is the first line a header, are commas between the columns, is it this dictionary?"),
    (lambda t: "patient;age\nP00\nP01\nP02\n", "t.csv has one column, whose name holds a semicolon, tab or bar, and its rows hold none. Save it with commas between the columns."),
    (lambda t: t.replace("\nP04,", "\nP04,x,"), "t.csv, line 6, does not fit the header. Check separators and quotes."),
    (lambda t: t.replace("south", "south,x").replace("north", "north,x"), "t.csv has rows with more cells than its header names: row 1 is the first. Check separators and quotes, and quotes around numbers with decimal commas."),
    (lambda t: t.encode("utf-16")[:-1], "t.csv is no whole UTF-16 text. Save it as CSV in UTF-8."),
    (lambda t: t.encode().replace(b"P05", b"P\x815"), "t.csv is neither UTF-8, UTF-16 nor Windows-1252 text. Save it as CSV in UTF-8."),
    (lambda t: t.replace("P05", '"P05'), "t.csv does not fit the header. Check separators and quotes."),
    (lambda t: "\n".join(t.splitlines()[:3]), "no site is left of 2: 2 have fewer than 5 rows. Lower data.sites.min_rows or min_events, or name the column of the sites."),
    (lambda t: cell(3, "age", "fifty")(cell(4, "days", "0")(cell(5, "death", "2")(t))), "t.csv: column 'age' holds no number in row 3. Correct or empty them. (And 2 more: see `fedcohort data check`.)"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), STUDIES)
def test_a_broken_study_file(refusal, old, new, expected):
    assert STUDY.count(old) == 1
    assert refusal(study=STUDY.replace(old, new)) == expected


@pytest.mark.parametrize(("old", "new", "expected"), DICTIONARIES)
def test_a_broken_dictionary(refusal, old, new, expected):
    assert DICTIONARY.count(old) == 1
    assert refusal(dictionary=DICTIONARY.replace(old, new)) == expected


@pytest.mark.parametrize(("change", "expected"), TABLES)
def test_a_broken_table(refusal, change, expected):
    assert refusal(table=change(TABLE)) == expected
