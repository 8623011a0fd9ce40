"""Data dictionaries in the form that REDCap exports: a CSV file with one row per field.

The header is that of the page "Data Dictionary" ("Variable / Field Name", …) or of the API
(field_name, …). Exported records hold codes, so codes become levels and labels the description:

    text, notes            text; integer, number or date if the validation says so
    calc, slider           number, integer
    radio, dropdown        category; binary if the codes are 0 and 1
    yesno, truefalse       binary
    checkbox               one binary column for each choice, NAME___CODE, as records are exported
    file, descriptive      left out: records hold nothing for them

The first field is an identifier, as is any field marked "y". If there are several forms, each is a
view. REDCap exports every date as 2015-01-31, whatever its validation shows. Bounds of dates,
branching logic and annotations are left out. Nothing is revealed.
"""

from __future__ import annotations

import csv
import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.words import known_name, nearest
from fedcohort.protocol.errors import DataError

#: Columns that are read: the API's name and the export's name.
HEADER: Mapping[str, str] = {
    "field_name": "Variable / Field Name",
    "form_name": "Form Name",
    "field_type": "Field Type",
    "field_label": "Field Label",
    "select_choices_or_calculations": "Choices, Calculations, OR Slider Labels",
    "field_note": "Field Note",
    "text_validation_type_or_show_slider_number": "Text Validation Type OR Show Slider Number",
    "text_validation_min": "Text Validation Min",
    "text_validation_max": "Text Validation Max",
    "identifier": "Identifier?",
}
_NEEDED = ("field_name", "field_type")
_EMPTY = ("file", "descriptive")
_CHOSEN = ("radio", "dropdown", "checkbox")
_TYPES: Mapping[str, str] = {
    "text": "text", "notes": "text", "sql": "text", "calc": "number", "slider": "integer",
    "yesno": "binary", "truefalse": "binary", "radio": "category", "dropdown": "category",
    "checkbox": "binary", "file": "", "descriptive": "",
}  # fmt: skip


def read(path: Path) -> Dictionary:
    """Read a REDCap data dictionary.

    Raises
    ------
    DataError : the file is no such dictionary, or a field cannot be a variable. The message names
        file and field.
    """
    rows = _rows(path)
    forms = {row["form_name"] for row in rows if row["field_type"] not in _EMPTY}
    variables: dict[str, Any] = {}
    for i, row in enumerate(rows):
        name = row["field_name"]
        where = f"{path}: field {name!r}"
        if not name:
            raise DataError(f"{path}: field {i + 1} has no {HEADER['field_name']!r}.")
        for column, spec in _specs(row, where).items():
            if column in variables:
                raise DataError(f"{path}: field {column!r} stands twice; keep one of them.")
            spec["identifier"] = i == 0 or row["identifier"].lower() in ("y", "yes", "1")
            spec["view"] = row["form_name"] if len(forms) > 1 else ""
            variables[column] = spec
    return Dictionary.from_dict({"variables": variables}, str(path))


def _rows(path: Path) -> list[dict[str, str]]:
    """Return the fields, keyed by the API's column names; missing columns are empty."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = [_column(h) for h in next(reader, [])]
            lines = [line for line in reader if any(cell.strip() for cell in line)]
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text. Export it from REDCap again.") from None
    except csv.Error:
        raise DataError(f"{path} is no CSV file. Check its quotes.") from None
    for name in _NEEDED:
        if name not in header:
            hint = nearest(HEADER[name], header)
            raise DataError(
                f"{path} is no REDCap data dictionary: it has no column {HEADER[name]!r} or "
                f"{name!r}.{hint}"
            )
    for i, line in enumerate(lines):
        if len(line) > len(header):
            raise DataError(f"{path}: field {i + 1} has more cells than the header. Check quotes.")
    if not lines:
        raise DataError(f"{path} names no fields under its header.")
    return [
        dict.fromkeys(HEADER, "")
        | {h: cell.strip() for h, cell in zip(header, line, strict=False) if h in HEADER}
        for line in lines
    ]


def _column(title: str) -> str:
    """Return the API's name of a column; an unknown column keeps its title."""
    plain = title.strip().strip('"')
    return next((api for api, long in HEADER.items() if plain.lower() == long.lower()), plain)


def _specs(row: Mapping[str, str], where: str) -> dict[str, dict[str, Any]]:
    kind, name = row["field_type"].lower(), row["field_name"]
    if kind not in _TYPES:
        raise DataError(f"{where} has {known_name('field type', row['field_type'], _TYPES)}")
    if kind in _EMPTY:
        return {}
    choices = _choices(row, where) if kind in _CHOSEN else {}
    spec: dict[str, Any] = {"type": _TYPES[kind]}
    if kind == "text":
        spec["type"] = _validated(row["text_validation_type_or_show_slider_number"].lower())
    if spec["type"] in ("number", "integer"):
        usual = (0.0, 100.0) if kind == "slider" else (None, None)
        ends = ("text_validation_min", "text_validation_max")
        spec["range"] = [_limit(row, end, u, where) for end, u in zip(ends, usual, strict=True)]
    label = ". ".join(_plain(row[k]).rstrip(".") for k in ("field_label", "field_note") if row[k])
    if kind == "checkbox":
        return {
            f"{name}___{re.sub('[^a-z0-9_]', '_', code.lower())}": {
                **spec, "description": f"{label}: {text}" if label else text
            }
            for code, text in choices.items()
        }  # fmt: skip
    coded = "; ".join(f"{code} = {text}" for code, text in choices.items())
    spec["description"] = ". ".join(part for part in (label, coded) if part)
    if set(choices) == {"0", "1"}:
        spec["type"] = "binary"
    else:
        spec["levels"] = list(choices)
    return {name: spec}


def _choices(row: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the label of each code, from "1, Male | 2, Female"."""
    found: dict[str, str] = {}
    for item in re.split(r"\||\\n|\n", row["select_choices_or_calculations"]):
        code, comma, label = (part.strip() for part in item.partition(","))
        if not item.strip():
            continue
        if not comma or not code or code in found:
            raise DataError(
                f"{where}: its choices are not of the form '1, Male | 2, Female' with each code "
                f"once."
            )
        found[code] = _plain(label)
    if not found:
        raise DataError(f"{where} is a {row['field_type']} and has no choices.")
    return found


def _validated(validation: str) -> str:
    if validation == "integer":
        return "integer"
    if validation.startswith("number"):
        return "number"
    return "date" if validation.startswith(("date_", "datetime_")) else "text"


def _limit(row: Mapping[str, str], end: str, usual: float | None, where: str) -> float | None:
    """Return a bound of a number; None if it depends on another field or on the current day."""
    text = row[end].replace(",", ".")
    if not text or text.startswith("[") or text in ("today", "now"):
        return usual
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{where}: its {HEADER[end]!r} is no number.") from None


def _plain(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())
