"""Data dictionaries as Frictionless Table Schema (https://datapackage.org/standard/table-schema/).

A written schema is read back without loss, and other tools read it as a plain schema:

    number, integer, date, text    the types number, integer, date, string
    category                       string with `categories`, and the same as `constraints.enum`
    binary                         boolean, or string with two categories
    range, missing codes           `constraints.minimum` and `maximum`, `missingValues`
    the rest                       custom properties: unit, view, identifier, feature, since, range
                                   (of a duration), and `kind` if the type alone is ambiguous

In other schemas, year is an integer; a date with time is a date; an `enum` or `categories`
is a category (0 and 1 are binary); any other type is text; a primary key is an identifier; labels
of categories, titles, and a date's format go to the description. Patterns, lengths, bounds of
dates and keys between tables are left out. Nothing is revealed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.variable import RANGED, Variable
from fedcohort.data.words import known_name, level_text
from fedcohort.protocol.errors import DataError

_SCHEMA = "https://datapackage.org/profiles/2.0/tableschema.json"
_CUSTOM = ("unit", "since", "view", "feature", "identifier", "range", "usual", "per")

#: fedcohort's type for each type of Table Schema, if there are no categories.
_TYPES: Mapping[str, str] = {
    "number": "number", "integer": "integer", "year": "integer", "boolean": "binary",
    "date": "date", "datetime": "date", "string": "text", "any": "text", "yearmonth": "text",
    "time": "text", "duration": "text", "object": "text", "array": "text", "list": "text",
    "geopoint": "text", "geojson": "text",
}  # fmt: skip
_WRITTEN: Mapping[str, str] = {
    "number": "number", "integer": "integer", "time": "number", "binary": "boolean",
    "event": "boolean", "date": "date", "category": "string", "text": "string",
}  # fmt: skip
#: Cells of a boolean by default.
_TRUE, _FALSE = ("true", "True", "TRUE", "1"), ("false", "False", "FALSE", "0")


def to_schema(dictionary: Dictionary) -> dict[str, Any]:
    """Return a dictionary as a Table Schema, JSON-able; `from_schema` gives it back."""
    head: dict[str, Any] = {"$schema": _SCHEMA}
    head |= {k: getattr(dictionary, k) for k in ("title", "description") if getattr(dictionary, k)}
    if dictionary.licence:
        head["licenses"] = [{"title": dictionary.licence}]
    return {**head, "fields": [_field(v) for v in dictionary.variables.values()]}


def write(dictionary: Dictionary, path: str | Path) -> None:
    """Write a dictionary as a Table Schema file."""
    text = json.dumps(to_schema(dictionary), ensure_ascii=False, indent=2)
    Path(path).write_text(text + "\n", encoding="utf-8")


def _field(v: Variable) -> dict[str, Any]:
    plain = v.to_dict()
    field: dict[str, Any] = {
        "name": v.name,
        "type": "string" if v.levels else _WRITTEN[v.type],
    }
    if v.description:
        field["description"] = v.description
    if v.levels:
        field["categories"] = list(v.levels)
        field["constraints"] = {"enum": list(v.levels)}
    elif "range" in plain and v.type != "date":
        ends = zip(("minimum", "maximum"), plain.pop("range"), strict=True)
        field["constraints"] = {name: end for name, end in ends if end is not None}
    if v.missing:
        field["missingValues"] = ["", *v.missing]
    field |= {k: plain[k] for k in _CUSTOM if k in plain}
    if ("category" if v.levels else _TYPES[field["type"]]) != v.type:
        field["kind"] = v.type
    return field


def read(path: Path) -> Dictionary:
    """Read a Table Schema, or the schema of a data package's first resource.

    Raises
    ------
    DataError : the file is no JSON or no schema, or a field cannot be a variable. The message names
        file and field.
    """
    spec = _json(path)
    if "resources" not in spec:
        return from_schema(spec, str(path))
    resources = spec["resources"]
    first: Any = resources[0] if isinstance(resources, list) and resources else None
    schema = cast("dict[str, Any]", first).get("schema") if isinstance(first, dict) else None
    where = f"{path}, resources[0].schema"
    if isinstance(schema, str) and (path.parent / schema).is_file():
        where = str(path.parent / schema)
        schema = _json(path.parent / schema)
    if not isinstance(schema, Mapping):
        raise DataError(f"{where}: expected a Table Schema, or the path of one beside the package.")
    head = {k: spec[k] for k in ("title", "description", "licenses") if k in spec}
    return from_schema({**head, **cast("Mapping[str, Any]", schema)}, where)


def _json(path: Path) -> dict[str, Any]:
    try:
        spec: Any = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: this is no JSON ({error.msg}).") from None
    except (UnicodeDecodeError, RecursionError):
        raise DataError(f"{path}: this is no JSON. Save it as UTF-8 text.") from None
    if not isinstance(spec, dict):
        raise DataError(f"{path} holds no object; a Table Schema has 'fields'.")
    return cast("dict[str, Any]", spec)


def from_schema(schema: Mapping[str, Any], where: str = "the schema") -> Dictionary:
    """Build a dictionary from a Table Schema.

    Parameters
    ----------
    where : name of the schema in errors.

    Raises
    ------
    DataError : there are no fields, or a field cannot be a variable.
    """
    fields = schema.get("fields")
    if not isinstance(fields, list) or not fields:
        raise DataError(f"{where}: expected 'fields', a list with one object per column.")
    codes = _missing(schema.get("missingValues", []), where)
    key: Any = schema.get("primaryKey", [])
    keys = cast("list[Any]", key if isinstance(key, list) else [key])
    variables: dict[str, Any] = {}
    for i, field in enumerate(cast("list[Any]", fields)):
        name = cast("dict[str, Any]", field).get("name") if isinstance(field, dict) else None
        if not isinstance(name, str) or not name:
            raise DataError(f"{where}, fields[{i}]: expected an object with a 'name'.")
        if name in variables:
            raise DataError(f"{where}: field {name!r} stands twice; keep one of them.")
        variables[name] = _spec(cast("dict[str, Any]", field), codes, f"{where}: field {name!r}")
        if name in keys:
            variables[name]["identifier"] = True
    licences = schema.get("licenses")
    first: Any = licences[0] if isinstance(licences, list) and licences else {}
    licence = cast("dict[str, Any]", first) if isinstance(first, dict) else {}
    head = {k: schema[k] for k in ("title", "description") if isinstance(schema.get(k), str)}
    named = {"licence": str(licence.get("title") or licence.get("name") or "")}
    return Dictionary.from_dict({**head, **named, "variables": variables}, where)


def _spec(field: Mapping[str, Any], codes: Sequence[str], where: str) -> dict[str, Any]:
    """Return a field as what a dictionary file would say of it."""
    kind = field.get("type", "any")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise DataError(f"{where} has {known_name('type', kind, _TYPES)}")
    constraints = field.get("constraints", {})
    if not isinstance(constraints, Mapping):
        raise DataError(f"{where}: 'constraints' is an object, such as {{\"minimum\": 0}}.")
    limits = cast("Mapping[str, Any]", constraints)
    spec: dict[str, Any] = {"type": _TYPES[kind]}
    spec |= {k: field[k] for k in _CUSTOM if k in field}
    spec["missing"] = _missing(field["missingValues"], where) if "missingValues" in field else codes
    levels, labels = _categories(field.get("categories", limits.get("enum", [])), where)
    if kind == "boolean":
        levels = _boolean(field, where)
    elif levels and kind != "string" and {level_text(v) for v in levels} == {"0", "1"}:
        spec["type"], levels = "binary", []
    elif levels:
        spec["type"] = "category"
    spec["type"] = field.get("kind", spec["type"])
    spec["levels"] = levels
    if spec["type"] in RANGED and "range" not in spec:
        spec["range"] = [_limit(limits, end, where) for end in ("minimum", "maximum")]
    spec["description"] = _description(field, labels)
    return spec


def _missing(value: Any, where: str) -> list[str]:
    """Return the missing codes; an empty cell is missing anyway."""
    if not isinstance(value, list):
        raise DataError(f'{where}: \'missingValues\' is a list, such as ["", "-9"].')
    items = cast("list[Any]", value)
    codes = [cast("dict[str, Any]", v).get("value") if isinstance(v, dict) else v for v in items]
    return [level_text(v) for v in codes if v is not None and v != ""]


def _categories(value: Any, where: str) -> tuple[list[Any], str]:
    """Return the levels, and their labels as one text."""
    if not isinstance(value, list):
        raise DataError(f"{where}: 'categories' and 'enum' are lists, such as [\"a\", \"b\"].")
    levels: list[Any] = []
    labels: list[str] = []
    for item in cast("list[Any]", value):
        labelled = cast("dict[str, Any]", item) if isinstance(item, dict) else {"value": item}
        levels.append(labelled.get("value"))
        if labelled.get("label"):
            labels.append(f"{level_text(levels[-1])} = {labelled['label']}")
    return levels, "; ".join(labels)


def _boolean(field: Mapping[str, Any], where: str) -> list[Any]:
    """Return the two levels of a boolean; none if its cells are 0 and 1, or true and false."""
    pair: list[Any] = []
    for key, usual in (("falseValues", _FALSE), ("trueValues", _TRUE)):
        given = field.get(key, [usual[-1]])
        words = cast("list[Any]", given) if isinstance(given, list) else []
        plain = bool(words) and all(level_text(w) in usual for w in words)
        if not plain and len(words) != 1:
            raise DataError(f"{where}: {key!r} is a list with one text; recode the column.")
        pair.append(usual[-1] if plain else words[0])
    return [] if pair == ["0", "1"] else pair


def _limit(limits: Mapping[str, Any], end: str, where: str) -> float | None:
    """Return a bound, `minimum` or `exclusiveMinimum`, as a number; None if there is none."""
    for key in (end, "exclusive" + end.capitalize()):
        if limits.get(key) is not None:
            try:
                return float(limits[key])
            except (TypeError, ValueError, OverflowError):
                raise DataError(f"{where}: {key!r} is a number.") from None
    return None


def _description(field: Mapping[str, Any], labels: str) -> str:
    title, text, pattern = (str(field.get(k) or "") for k in ("title", "description", "format"))
    dated = field.get("type") in ("date", "datetime") and pattern not in ("", "default", "any")
    said = [text if text.startswith(title) else f"{title}: {text}" if text else title, labels]
    return ". ".join(part for part in (*said, f"format {pattern}" if dated else "") if part)
