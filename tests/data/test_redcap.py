"""REDCap's data dictionary under either header: that of its web page, and that of its API."""

from __future__ import annotations

import csv

import pytest

from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.read.dictionaries import read_dictionary
from fedcohort.data.read.redcap import HEADER
from fedcohort.protocol import DataError

FIELDS = [
    {"field_name": "record_id", "field_type": "text", "field_label": "Record ID"},
    {"field_name": "name", "field_type": "text", "identifier": "y"},
    {"field_name": "age", "field_type": "text", "field_label": "Age", "field_note": "at entry",
     "text_validation_type_or_show_slider_number": "integer", "text_validation_min": "18"},
    {"field_name": "hb", "field_type": "text", "text_validation_min": "3,5",
     "text_validation_type_or_show_slider_number": "number_1dp_comma_decimal",
     "text_validation_max": "[upper]"},
    {"field_name": "seen", "field_type": "text", "text_validation_min": "2010-01-01",
     "text_validation_type_or_show_slider_number": "date_dmy"},
    {"field_name": "sex", "field_type": "radio", "field_label": "<b>Sex</b>&nbsp;at birth",
     "select_choices_or_calculations": "1, Male | 2, Female"},
    {"field_name": "dead", "field_type": "dropdown",
     "select_choices_or_calculations": "0, no | 1, yes, of any cause"},
    {"field_name": "smoker", "field_type": "yesno"},
    {"field_name": "bmi", "field_type": "calc", "select_choices_or_calculations": "[w]/[h]^2"},
    {"field_name": "pain", "field_type": "slider"},
    {"field_name": "drug", "field_type": "checkbox", "field_label": "Drugs",
     "select_choices_or_calculations": "A, Aspirin | -1, none"},
    {"field_name": "remarks", "field_type": "notes"},
    {"field_name": "scan", "field_type": "file"},
    {"field_name": "banner", "field_type": "descriptive", "form_name": "welcome"},
]  # fmt: skip


def write(tmp_path, fields, header=HEADER):
    path = tmp_path / "redcap.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(HEADER), restval="")
        file.write(",".join(f'"{header[h]}"' for h in HEADER) + "\n")
        writer.writerows(fields)
    return path


@pytest.mark.parametrize("header", [HEADER, {h: h for h in HEADER}], ids=["export", "api"])
def test_fields_become_variables_under_either_header(tmp_path, header):
    d = read_dictionary(write(tmp_path, FIELDS, header))
    assert list(d.variables.values()) == [
        Variable("record_id", "text", description="Record ID", identifier=True),
        Variable("name", "text", identifier=True),
        Variable("age", "integer", range=(18.0, None), description="Age. at entry"),
        Variable("hb", "number", range=(3.5, None)),
        Variable("seen", "date"),
        Variable("sex", "category", ("1", "2"), description="Sex at birth. 1 = Male; 2 = Female"),
        Variable("dead", "binary", description="0 = no; 1 = yes, of any cause"),
        Variable("smoker", "binary"),
        Variable("bmi", "number"),
        Variable("pain", "integer", range=(0.0, 100.0)),
        Variable("drug___a", "binary", description="Drugs: Aspirin"),
        Variable("drug____1", "binary", description="Drugs: none"),
        Variable("remarks", "text"),
    ]


def test_forms_become_views_where_there_are_several(tmp_path):
    fields = [f | {"form_name": "lab" if f["field_name"] == "hb" else "base"} for f in FIELDS]
    views = {n: v.view for n, v in read_dictionary(write(tmp_path, fields)).variables.items()}
    assert views["hb"] == "lab"
    assert views["age"] == "base"


def test_what_was_read_can_be_written_as_yaml_and_frictionless(tmp_path):
    d = read_dictionary(write(tmp_path, FIELDS))
    assert Dictionary.from_dict(d.to_dict()) == d


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "names no fields under its header."),
        ([{"field_name": "a", "field_type": "txt"}], "field 'a' has no field type 'txt'. Did you"),
        ([{"field_type": "text"}], "field 1 has no 'Variable / Field Name'."),
        ([{"field_name": "a", "field_type": "text"}] * 2, "field 'a' stands twice; keep one"),
        ([{"field_name": "a", "field_type": "radio"}], "field 'a' is a radio and has no choices."),
        (
            [{"field_name": "a", "field_type": "radio",
              "select_choices_or_calculations": "1 Male | 2, Female"}],
            "field 'a': its choices are not of the form '1, Male | 2, Female' with each code once.",
        ),
        (
            [{"field_name": "a", "field_type": "slider", "text_validation_min": "low"}],
            "field 'a': its 'Text Validation Min' is no number.",
        ),
        (
            [{"field_name": "a", "field_type": "slider", "text_validation_min": "100"}],
            "variable 'a': 'range' is two ascending numbers",
        ),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_file(tmp_path, fields, message):
    path = write(tmp_path, fields)
    with pytest.raises(DataError) as error:
        read_dictionary(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n", "is no REDCap data dictionary: it has no column 'Variable / Field Name'"),
        (b"", "it has no column 'Variable / Field Name' or 'field_name'."),
        (b"field_name,field_type\na,text,more\n", "field 1 has more cells than the header."),
        (b'field_name,field_type\n"a,text\n', "is no CSV file. Check its quotes."),
        (b"field_name,field_type\n\xff,text\n", "is not UTF-8 text. Export it from REDCap again."),
    ],
)
def test_a_file_that_is_no_redcap_dictionary_is_said_to_be_none(tmp_path, content, message):
    path = tmp_path / "redcap.csv"
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        read_dictionary(path)
    assert message in str(error.value)
