"""Table Schema: everything comes back, other people's schemas are understood, faults are named.

The schemas below follow the standard's own wording (datapackage.org, Table Schema 2.0).
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from dictionary_cases import dictionaries
from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.read import frictionless
from fedcohort.data.read.dictionaries import read_dictionary
from fedcohort.protocol import DataError


def read(tmp_path, content):
    path = tmp_path / "schema.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return read_dictionary(path)


@pytest.mark.parametrize("examples", [30, 120])
def test_every_dictionary_comes_back_without_loss(examples):
    @settings(max_examples=examples, deadline=None)
    @given(dictionaries())
    def holds(d):
        text = json.dumps(frictionless.to_schema(d))
        assert frictionless.from_schema(json.loads(text)) == d

    holds()


def test_a_written_file_is_a_plain_schema_to_others(tmp_path):
    d = Dictionary.from_dict({
        "title": "T", "licence": "CC0",
        "variables": {
            "age": {"type": "integer", "unit": "years", "range": [18, None], "missing": [-9]},
            "sex": {"type": "binary", "levels": ["f", "m"]},
            "born": "date", "t": {"type": "time", "unit": "days"}, "e": "event",
        },
    })  # fmt: skip
    frictionless.write(d, tmp_path / "schema.json")
    schema = json.loads((tmp_path / "schema.json").read_text("utf-8"))
    assert schema["licenses"] == [{"title": "CC0"}]
    assert schema["fields"] == [
        {"name": "age", "type": "integer", "constraints": {"minimum": 18},
         "missingValues": ["", "-9"], "unit": "years"},
        {"name": "sex", "type": "string", "categories": ["f", "m"],
         "constraints": {"enum": ["f", "m"]}, "kind": "binary"},
        {"name": "born", "type": "date"},
        {"name": "t", "type": "number", "unit": "days", "kind": "time"},
        {"name": "e", "type": "boolean", "kind": "event"},
    ]  # fmt: skip
    assert read_dictionary(tmp_path / "schema.json") == d


THEIRS = {
    "primaryKey": "pid",
    "missingValues": ["", "NA", {"value": "-99", "label": "not done"}],
    "fields": [
        {"name": "pid", "type": "string", "title": "Patient"},
        {"name": "year", "type": "year"},
        {"name": "seen", "type": "datetime"},
        {"name": "born", "type": "date", "format": "%d/%m/%Y", "constraints": {"minimum": "1900"}},
        {"name": "bmi", "type": "number", "title": "BMI", "description": "body mass index",
         "constraints": {"minimum": "10", "exclusiveMaximum": 80, "required": True}},
        {"name": "grade", "type": "integer",
         "categories": [{"value": 1, "label": "low"}, {"value": 2, "label": "high"}]},
        {"name": "smoker", "type": "boolean", "missingValues": []},
        {"name": "dead", "type": "boolean", "trueValues": ["yes"], "falseValues": ["no"]},
        {"name": "flag", "type": "integer", "constraints": {"enum": [1, 0]}},
        {"name": "arm", "type": "string", "constraints": {"enum": ["a", "b"]}},
        {"name": "note"},
    ],
}  # fmt: skip
NA = ("NA", "-99")


def test_a_schema_written_by_others_is_understood(tmp_path):
    d = read(tmp_path, THEIRS)
    assert list(d.variables.values()) == [
        Variable("pid", "text", missing=NA, description="Patient", identifier=True),
        Variable("year", "integer", missing=NA),
        Variable("seen", "date", missing=NA),
        Variable("born", "date", missing=NA, description="format %d/%m/%Y"),
        Variable("bmi", range=(10.0, 80.0), missing=NA, description="BMI: body mass index"),
        Variable("grade", "category", ("1", "2"), missing=NA, description="1 = low; 2 = high"),
        Variable("smoker", "binary"),
        Variable("dead", "binary", ("no", "yes"), missing=NA),
        Variable("flag", "binary", missing=NA),
        Variable("arm", "category", ("a", "b"), missing=NA),
        Variable("note", "text", missing=NA),
    ]


def test_a_data_package_gives_the_schema_of_its_first_table(tmp_path):
    package = {"title": "P", "licenses": [{"name": "CC0-1.0"}], "resources": [{"schema": THEIRS}]}
    d = read(tmp_path, package)
    assert (d.title, d.licence, len(d.variables)) == ("P", "CC0-1.0", 11)
    (tmp_path / "other.json").write_text(json.dumps(THEIRS), "utf-8")
    assert read(tmp_path, {"resources": [{"schema": "other.json"}]}).variables == d.variables


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"fields": [\n}', "schema.json, line 2: this is no JSON (Expecting value)."),
        ("[]", "schema.json holds no object; a Table Schema has 'fields'."),
        ({}, "schema.json: expected 'fields', a list with one object per column."),
        ({"resources": []}, "resources[0].schema: expected a Table Schema, or the path of one"),
        ({"fields": [{"type": "any"}]}, "schema.json, fields[0]: expected an object with a 'name'"),
        ({"fields": [{"name": "a"}] * 2}, "field 'a' stands twice; keep one of them."),
        (
            {"fields": [{"name": "a", "type": "strin"}]},
            "field 'a' has no type 'strin'. Did you mean 'string'?",
        ),
        ({"fields": [{"name": "a", "constraints": 1}]}, "field 'a': 'constraints' is an object"),
        ({"fields": [{"name": "a", "missingValues": ""}]}, "field 'a': 'missingValues' is a list"),
        ({"fields": [{"name": "a", "categories": "x"}]}, "field 'a': 'categories' and 'enum' are"),
        (
            {"fields": [{"name": "a", "type": "number", "constraints": {"minimum": "low"}}]},
            "field 'a': 'minimum' is a number.",
        ),
        (
            {"fields": [{"name": "a", "type": "boolean", "trueValues": ["y", "j"]}]},
            "field 'a': 'trueValues' is a list with one text; recode the column.",
        ),
        (
            {"fields": [{"name": "a", "type": "number",
                         "constraints": {"minimum": 2, "maximum": 1}}]},
            "schema.json: variable 'a': 'range' is two ascending numbers",
        ),
        ({"fields": [{"name": "a", "kind": "tme"}]}, "variable 'a' has no type 'tme'."),
        (
            {"missingValues": ["a"], "fields": [{"name": "a", "categories": ["a"]}]},
            "variable 'a': 'a' is both a level and a missing code; remove one.",
        ),
    ],
)  # fmt: skip
def test_a_wrong_schema_is_named_with_file_and_field(tmp_path, content, message):
    with pytest.raises(DataError) as error:
        read(tmp_path, content)
    assert message in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)
