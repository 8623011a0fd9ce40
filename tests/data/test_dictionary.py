"""The dictionary types columns, names mistakes, and is the same after a round trip."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_cases import mixed
from fedcohort.data.dictionary import TYPES, Dictionary, Variable
from fedcohort.data.outcome import Binary, Category, Survival
from fedcohort.protocol import DataError

OUTCOME = Survival("time", "event")


def types_of(dictionary):
    return {name: v.type for name, v in dictionary.variables.items()}


def test_a_draft_types_columns_by_what_they_hold():
    frame = mixed(200, 0).assign(
        patient_id=range(200), note=[f"free text {i}" for i in range(200)], arm=True,
        seen=pd.Timestamp("2020-01-01"),
    )  # fmt: skip
    d = Dictionary.draft(frame, OUTCOME)
    assert types_of(d) == {
        "age": "integer", "marker": "number", "count": "integer", "smoker": "binary",
        "grade": "category", "time": "integer", "event": "binary", "patient_id": "integer",
        "note": "text", "arm": "binary", "seen": "date",
    }  # fmt: skip
    assert d["grade"].levels == ("I", "II", "III")
    assert [v.name for v in d.features(OUTCOME)] == [
        "age", "marker", "count", "smoker", "grade", "arm",
    ]  # fmt: skip


def test_a_draft_is_the_same_from_one_table_and_from_its_sites():
    frame = mixed(60, 1)
    parts = {"b": frame.iloc[:20], "a": frame.iloc[20:]}
    assert Dictionary.draft(parts, OUTCOME) == Dictionary.draft(frame, OUTCOME)


def test_two_levels_of_text_are_a_category_and_a_class_column_is_one():
    frame = pd.DataFrame({"sex": ["m", "f", None], "y": [2, 10, 2], "z": [True, None, False]})
    d = Dictionary.draft(frame, Category("y"))
    assert d["sex"] == Variable("sex", "category", ("f", "m"))
    assert d["y"].levels == ("2", "10")
    assert d["z"].type == "binary"
    assert Dictionary.draft(frame, Binary("y"))["y"].type == "category"


def test_columns_to_skip_are_left_out():
    assert "grade" not in Dictionary.draft(mixed(20, 0), OUTCOME, skip=["grade"])


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5).filter(lambda s: s != "variables"),
        st.builds(
            lambda kind, unit, hidden: (
                {"type": kind, "unit": unit, "identifier": hidden}
                | ({"levels": ["a", "b", "ü"]} if kind == "category" else {})
            ),
            st.sampled_from(TYPES),
            st.text(max_size=3),
            st.booleans(),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_json_and_back_gives_the_same_dictionary_and_the_same_bytes(variables):
    d = Dictionary.from_dict({"title": "t", "variables": variables})
    again = Dictionary.from_json(d.to_json())
    assert again == d
    assert again.to_json() == d.to_json()


def test_a_file_is_read(tmp_path):
    path = tmp_path / "d.yaml"
    path.write_text("title: T\nvariables:\n  age: {type: integer, unit: years}\n  bmi: number\n")
    d = Dictionary.from_file(path)
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
        Dictionary.from_file(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_and_an_unknown_variable_name_the_nearest(tmp_path):
    (tmp_path / "dictionary.yaml").write_text("a: number")
    with pytest.raises(DataError, match=r"Did you mean 'dictionary\.yaml'"):
        Dictionary.from_file(tmp_path / "dictionry.yaml")
    with pytest.raises(DataError, match=r"no variable 'agee'\. Did you mean 'age'"):
        Dictionary.draft(mixed(9, 0))["agee"]


def test_views_are_noted_and_unknown_columns_in_them_refused():
    d = Dictionary.draft(mixed(9, 0)).with_views({"blood": ["marker", "count"]})
    assert [n for n, v in d.variables.items() if v.view == "blood"] == ["marker", "count"]
    with pytest.raises(DataError, match="no variable 'markr'"):
        d.with_views({"blood": ["markr"]})


def test_no_tables_are_an_error():
    with pytest.raises(DataError, match="there are no sites"):
        Dictionary.draft({})
