"""The dictionary types columns, names mistakes, and is the same after a round trip."""

from __future__ import annotations

import datetime
import tempfile
from pathlib import Path

import pandas as pd
import pytest
import yaml
from hypothesis import given, settings

from data_cases import mixed
from dictionary_cases import dictionaries
from examples import examples
from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.outcome import Binary, Category, Survival
from fedcohort.data.read.dictionaries import read_dictionary, text
from fedcohort.data.read.drafting import draft
from fedcohort.protocol import DataError

OUTCOME = Survival("time", "event")


def types_of(dictionary):
    return {name: v.type for name, v in dictionary.variables.items()}


def test_a_draft_types_columns_by_what_they_hold():
    frame = mixed(200, 0).assign(
        patient_id=range(200), note=[f"free text {i}" for i in range(200)], arm=True,
        seen=pd.Timestamp("2020-01-01"),
    )  # fmt: skip
    d = draft(frame, OUTCOME)
    assert types_of(d) == {
        "age": "integer", "marker": "number", "count": "integer", "smoker": "binary",
        "grade": "category", "time": "time", "event": "event", "patient_id": "integer",
        "note": "text", "arm": "binary", "seen": "date",
    }  # fmt: skip
    assert d["grade"].levels == ("I", "II", "III")
    assert [v.name for v in d.features(OUTCOME)] == [
        "age", "marker", "count", "smoker", "grade", "arm",
    ]  # fmt: skip


def test_a_draft_is_the_same_from_one_table_and_from_its_sites():
    frame = mixed(60, 1)
    parts = {"b": frame.iloc[:20], "a": frame.iloc[20:]}
    assert draft(parts, OUTCOME) == draft(frame, OUTCOME)


def test_two_levels_of_text_are_a_category_and_a_class_column_is_one():
    frame = pd.DataFrame({"sex": ["m", "f", None], "y": [2, 10, 2], "z": [True, None, False]})
    d = draft(frame, Category("y"))
    assert d["sex"] == Variable("sex", "category", ("f", "m"))
    assert d["y"].levels == ("2", "10")
    assert d["z"].type == "binary"
    assert draft(frame, Binary("y"))["y"].type == "category"


def test_columns_to_skip_are_left_out():
    assert "grade" not in draft(mixed(20, 0), OUTCOME, skip=["grade"])


@settings(max_examples=50, deadline=None)
@given(dictionaries())
def test_json_and_back_gives_the_same_dictionary_and_the_same_bytes(d):
    again = Dictionary.from_json(d.to_json())
    assert again == d
    assert again.to_json() == d.to_json()


@settings(max_examples=examples(50), deadline=None)
@given(dictionaries())
def test_yaml_and_back_gives_the_same_dictionary(d):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "d.yaml"
        noted = text(d, dict.fromkeys(d.variables, "check: {a: 'b"), "top\n\n#")
        plain = yaml.safe_dump(d.to_dict(), sort_keys=False)
        for written in (noted, plain):
            path.write_text(written, "utf-8")
            assert read_dictionary(path) == d


def test_a_file_is_read(tmp_path):
    path = tmp_path / "d.yaml"
    path.write_text("title: T\nvariables:\n  age: {type: integer, unit: years}\n  bmi: number\n")
    d = read_dictionary(path)
    assert (d.title, d["age"].unit, d["bmi"].type) == ("T", "years", "number")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("variables: {age: {tpye: integer}}", "no key 'tpye'. Did you mean 'type'?"),
        ("variables: {age: {type: intger}}", "no type 'intger'. Did you mean 'integer'?"),
        ("variabels: {age: integer}\ntitle: x\nvariables: {}", "Did you mean 'variables'?"),
        ("variables: {sex: {type: category}}", "category 'sex' needs its 'levels'"),
        ("variables: {sex: {type: category, levels: [no, yes]}}", "Put quotes around yes, no"),
        ("variables: {sex: {type: category, levels: [a, a]}}", "names a level twice"),
        ("variables: {sex: {type: binary, levels: [a]}}", "has 1 levels; name two, or none"),
        ("variables: {sex: {type: number, levels: [a]}}", "has levels but is of type 'number'"),
        ("variables: {age: 3}", "variable 'age' needs keys"),
        ("variables: []", "names no variables"),
        ("- a", "holds no mapping"),
        ("a: [", "line 1: this is no YAML"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(tmp_path, text, message):
    path = tmp_path / "d.yaml"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read_dictionary(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def line_of(tmp_path, text):
    """Return the one line that is said of variables, without the file's name."""
    path = tmp_path / "d.yaml"
    path.write_text("variables:\n" + "".join(f"  {v}\n" for v in text.splitlines()), "utf-8")
    with pytest.raises(DataError) as error:
        read_dictionary(path)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(path))
    return str(error.value).removeprefix(str(path))


RANGE = "'range' is two ascending numbers, such as [0, 120]; null where there is no limit."


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: {range: [2, 1]}", f", line 2: variable 'a': {RANGE}"),
        ("a: {range: [1, 1]}", f", line 2: variable 'a': {RANGE}"),
        ("a: {range: 3}", f", line 2: variable 'a': {RANGE}"),
        ("a: {range: [low, 1]}", f", line 2: variable 'a': {RANGE}"),
        ("a: {range: [no, 1]}", f", line 2: variable 'a': {RANGE}"),
        ("a: {range: [0, .inf]}", f", line 2: variable 'a': {RANGE}"),
        (
            "a: {type: category, levels: [x], range: [0, 1]}",
            ", line 2: variable 'a' has a range but is of type 'category'; a range is for number, "
            "integer, time and for a date with 'since'.",
        ),
        (
            "a: {type: date, since: b}",
            ": variable 'a' is counted since 'b', which is neither another column of type 'date' "
            "nor a day such as 2015-01-31.",
        ),
        (
            "a: {type: date, since: a}",
            ": variable 'a' is counted since 'a', which is neither another column of type 'date' "
            "nor a day such as 2015-01-31.",
        ),
        (
            "b: number\na: {type: date, since: b}",
            ": variable 'a' is counted since 'b', which is neither another column of type 'date' "
            "nor a day such as 2015-01-31.",
        ),
        (
            "a: {type: number, since: 2015-01-31}",
            ", line 2: variable 'a' has 'since' but is of type 'number'; it is for dates.",
        ),
        (
            "a: {type: date, since: 2015-01-31, unit: yeers}",
            ", line 2: variable 'a' is a duration and has no unit 'yeers'. Did you mean 'years'?",
        ),
        (
            "a: time\nb: time\nc: event",
            ": 'a' and 'b' are of type 'time'; a study has one. Make the others 'number' or "
            "'binary', with 'feature: false'.",
        ),
        (
            "a: time",
            ": 'a' is of type 'time', and no column is of type 'event'; a survival outcome needs "
            "both.",
        ),
        (
            "b: number\na: {type: category, levels: [x, y], missing: [y]}",
            ", line 3: variable 'a': 'y' is both a level and a missing code; remove one.",
        ),
        (
            "a: {type: binary, missing: [0]}",
            ", line 2: variable 'a' is 0 or 1; neither can be a missing code.",
        ),
        (
            "a: {missing: [no]}",
            ", line 2: variable 'a' has missing codes that YAML reads as true or false. Put quotes "
            "around yes, no, on and off.",
        ),
        ("a: {missing: -9}", ", line 2: variable 'a': 'missing' is a list, such as [a, b]."),
        (
            "a: {missing: ['']}",
            ", line 2: variable 'a': 'missing' has an empty item. Remove it: an empty cell is a "
            "missing value anyway.",
        ),
        (
            "a: {type: category, levels: [[x]]}",
            ", line 2: variable 'a': 'levels' is a list of texts or numbers; put each one in "
            "quotes.",
        ),
        ("a: {identifier: maybe}", ", line 2: variable 'a': 'identifier' is true or false."),
        ("a: {feature: 0}", ", line 2: variable 'a': 'feature' is true or false."),
        ("a: {unit: [g, l]}", ", line 2: variable 'a': 'unit' is text; put it in quotes."),
        (
            "a: {type: event, identifier: true}",
            ", line 2: variable 'a' is an identifier and of type 'event'; it can only be one.",
        ),
        (
            "yes: number",
            " has a column whose name YAML reads as true. Put quotes around names such as yes, no, "
            "on, off and null.",
        ),
        ("a: number\na: integer", ", line 3: 'a' stands twice; keep one of them."),
        ("a: {unit: g, unit: g}", ", line 2: 'unit' stands twice; keep one of them."),
        ("a: !!python/name:os.system", ", line 2: this is no YAML. Check quotes and indents."),
        ("a: !!int x", ": this is no YAML. Save it as UTF-8 text, without tags."),
    ],
)
def test_each_fault_has_its_one_line(tmp_path, text, line):
    assert line_of(tmp_path, text) == line


def test_codes_stay_as_they_are_written_and_days_are_text(tmp_path):
    path = tmp_path / "d.yaml"
    path.write_text(
        "a: {type: category, levels: [01, 1, 1.0e+1, 2015-01-31, 1:30], missing: [-9, 99.0]}\n"
        "b: {type: date, since: 2015-01-31}\n"
        "c: {range: [-.5, 1e3], unit: g}\n"
    )
    d = read_dictionary(path)
    assert d["a"].levels == ("01", "1", "10", "2015-01-31", "1:30")
    assert d["a"].missing == ("-9", "99")
    assert (d["b"].unit, d["b"].since_day) == ("days", datetime.date(2015, 1, 31))
    assert d["c"].range == (-0.5, 1000.0)


def test_a_dictionary_knows_its_outcome_and_what_a_model_may_use():
    d = Dictionary.from_dict({
        "t": "time", "e": "event", "seen": "date", "note": "text", "x": "number",
        "late": {"feature": False}, "pid": {"type": "integer", "identifier": True},
        "born": {"type": "date", "since": "seen", "unit": "years"},
    })  # fmt: skip
    assert d.outcome() == Survival("t", "e")
    assert [v.name for v in d.features()] == ["x", "born"]
    assert Dictionary.from_dict({"x": "number"}).outcome() is None


def test_a_missing_file_and_an_unknown_variable_name_the_nearest(tmp_path):
    (tmp_path / "dictionary.yaml").write_text("a: number")
    with pytest.raises(DataError, match=r"Did you mean 'dictionary\.yaml'"):
        read_dictionary(tmp_path / "dictionry.yaml")
    with pytest.raises(DataError, match=r"no variable 'agee'\. Did you mean 'age'"):
        draft(mixed(9, 0))["agee"]


def test_views_are_noted_and_unknown_columns_in_them_refused():
    d = draft(mixed(9, 0)).with_views({"blood": ["marker", "count"]})
    assert [n for n, v in d.variables.items() if v.view == "blood"] == ["marker", "count"]
    with pytest.raises(DataError, match="no variable 'markr'"):
        d.with_views({"blood": ["markr"]})


def test_no_tables_are_an_error():
    with pytest.raises(DataError, match="there are no sites"):
        draft({})
