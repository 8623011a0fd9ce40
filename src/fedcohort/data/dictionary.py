"""The data dictionary: what each column of a study means, agreed between the sites beforehand.

A file names the variables in order::

    title: German Breast Cancer Study Group 2
    variables:
      age: {type: integer, unit: years}
      tgrade: {type: category, levels: [I, II, III], description: tumour grade}

In a simulation a dictionary can be drafted from the frames. Nothing here leaves a site: the
dictionary is public, and must be the same everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import pandas as pd
import yaml

from fedcohort.data.outcome import Binary, Category, Outcome
from fedcohort.data.words import known_name, level_text, nearest
from fedcohort.protocol.errors import DataError

#: What a variable may be; dates and free text are described, and never enter a model.
TYPES = ("number", "integer", "binary", "category", "date", "text")

#: A column of text with more levels than this, and than a tenth of its rows, is free text.
MOST_LEVELS = 20

_IDENTIFIER = re.compile(r"(^|[_\W])(id|pid|mrn|uuid|identifier)$", re.IGNORECASE)


@dataclass(frozen=True)
class Variable:
    """One column.

    Attributes
    ----------
    name : as in the tables' header.
    type : one of `TYPES`; binary means 0/1 or two named levels.
    levels : of a category, in order; the first is the reference.
    unit : of a number.
    description : for people.
    view : name of the group of columns (modality) it belongs to.
    identifier : whether it names a person or a site; identifiers never enter a model.
    """

    name: str
    type: str = "number"
    levels: tuple[str, ...] = ()
    unit: str = ""
    description: str = ""
    view: str = ""
    identifier: bool = False

    @property
    def coded(self) -> bool:
        """Whether its values are levels rather than numbers."""
        return bool(self.levels)

    @property
    def usable(self) -> bool:
        """Whether it may enter a model."""
        return not self.identifier and self.type not in ("date", "text")

    def to_dict(self) -> dict[str, Any]:
        """Return what differs from the defaults, as JSON-able values, without the name."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {k: v for k, v in plain.items() if k == "type" or (k != "name" and v)}

    @classmethod
    def from_dict(cls, name: str, spec: Any, where: str = "the dictionary") -> Variable:
        """Build a variable from what a dictionary file says of it.

        Raises
        ------
        DataError : an unknown key or type, or levels that do not fit the type.
        """
        if isinstance(spec, str):
            spec = {"type": spec}
        if not isinstance(spec, Mapping):
            raise DataError(f"{where}: variable {name!r} needs keys such as 'type' and 'unit'.")
        given = dict(cast("Mapping[str, Any]", spec))
        known = [f.name for f in fields(cls) if f.name != "name"]
        for key in given:
            if key not in known:
                raise DataError(f"{where}: variable {name!r} has {known_name('key', key, known)}")
        for key in ("type", "unit", "description", "view"):
            given[key] = str(given.get(key) or ("number" if key == "type" else ""))
        if given["type"] not in TYPES:
            raise DataError(
                f"{where}: variable {name!r} has {known_name('type', given['type'], TYPES)}"
            )
        levels: list[Any] = list(given.get("levels") or ())
        if any(isinstance(v, bool) for v in levels):
            raise DataError(
                f"{where}: variable {name!r} has levels that YAML reads as true or false. "
                f"Put quotes around yes, no, on and off."
            )
        given["levels"] = tuple(level_text(v) for v in levels)
        variable = cls(name=name, **given)
        variable._check_levels(where)
        return variable

    def _check_levels(self, where: str) -> None:
        n = len(self.levels)
        if n != len(set(self.levels)):
            raise DataError(f"{where}: variable {self.name!r} names a level twice.")
        if self.type == "category" and n < 1 and not self.identifier:
            raise DataError(f"{where}: category {self.name!r} needs its 'levels', in order.")
        if self.type == "binary" and n not in (0, 2):
            raise DataError(f"{where}: binary {self.name!r} has {n} levels; name two, or none.")
        if self.type not in ("category", "binary") and n:
            raise DataError(f"{where}: {self.name!r} has levels but is of type {self.type!r}.")


@dataclass(frozen=True)
class Dictionary:
    """Variables by name, in order, and what the table as a whole is."""

    variables: Mapping[str, Variable]
    title: str = ""
    description: str = ""
    licence: str = ""

    def __getitem__(self, name: str) -> Variable:
        """Return a variable.

        Raises
        ------
        DataError : there is none of that name; the nearest is named.
        """
        if name not in self.variables:
            raise DataError(f"the dictionary has {known_name('variable', name, self.variables)}")
        return self.variables[name]

    def __contains__(self, name: object) -> bool:
        return name in self.variables

    def features(self, outcome: Outcome | None = None) -> tuple[Variable, ...]:
        """Return the variables that may enter a model, in order."""
        taken = outcome.columns if outcome is not None else ()
        return tuple(v for v in self.variables.values() if v.usable and v.name not in taken)

    def with_views(self, views: Mapping[str, Iterable[str]]) -> Dictionary:
        """Return the same dictionary, where the columns named belong to these views.

        Raises
        ------
        DataError : a view names a column that the dictionary does not know.
        """
        variables = dict(self.variables)
        for view, names in views.items():
            for name in names:
                variables[name] = replace(self[name], view=view)
        return replace(self, variables=variables)

    def to_dict(self) -> dict[str, Any]:
        """Return the dictionary as it would stand in a file."""
        head = {k: getattr(self, k) for k in ("title", "description", "licence")}
        out: dict[str, Any] = {k: v for k, v in head.items() if v}
        out["variables"] = {name: v.to_dict() for name, v in self.variables.items()}
        return out

    def to_json(self) -> str:
        """Return the dictionary as JSON text; equal dictionaries give equal text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Dictionary:
        """Rebuild a dictionary from `to_json`."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any], where: str = "the dictionary") -> Dictionary:
        """Build a dictionary from a mapping: with a key `variables`, or of variables alone.

        Raises
        ------
        DataError : an unknown key, or a variable that is not as it must be.
        """
        known = ("title", "description", "licence", "variables")
        if "variables" not in spec:
            spec = {"variables": spec}
        for key in spec:
            if key not in known:
                raise DataError(f"{where} has {known_name('key', key, known)}")
        variables = cast("Mapping[Any, Any] | None", spec["variables"])
        if not isinstance(variables, Mapping) or not variables:
            raise DataError(f"{where} names no variables; list them under 'variables:' by column.")
        built = {str(k): Variable.from_dict(str(k), v, where) for k, v in variables.items()}
        return cls(built, *(str(spec.get(k) or "").strip() for k in known[:3]))

    @classmethod
    def from_file(cls, path: str | Path) -> Dictionary:
        """Read a dictionary from a YAML file.

        Raises
        ------
        DataError : no such file, no YAML, or not a dictionary.
        """
        path = Path(path)
        if not path.is_file():
            hint = nearest(path.name, (p.name for p in path.parent.glob("*.y*ml")))
            raise DataError(f"there is no dictionary file {path}.{hint}")
        try:
            spec: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark is not None else ""
            raise DataError(f"{path}{line}: this is no YAML. Check quotes and indents.") from None
        if not isinstance(spec, Mapping):
            raise DataError(f"{path} holds no mapping; list columns under 'variables:'.")
        return cls.from_dict(cast("Mapping[str, Any]", spec), str(path))

    @classmethod
    def draft(
        cls,
        frames: pd.DataFrame | Iterable[pd.DataFrame] | Mapping[str, pd.DataFrame],
        outcome: Outcome | None = None,
        skip: Iterable[str] = (),
    ) -> Dictionary:
        """Infer a dictionary from tables, as a simulation may and a network may not.

        Parameters
        ----------
        frames : one table, or the sites' tables; a column may be missing at some of them.
        outcome : its class column becomes a category with the levels that are seen.
        skip : columns to leave out, such as that of the site.

        Raises
        ------
        DataError : there is no table.
        """
        if isinstance(frames, pd.DataFrame):
            tables = [frames]
        else:
            tables = list(frames.values() if isinstance(frames, Mapping) else frames)
        if not tables:
            raise DataError("there are no sites: a dictionary needs at least one table.")
        left_out = set(skip)
        names = dict.fromkeys(str(c) for t in tables for c in t.columns if c not in left_out)
        classes = outcome.columns if isinstance(outcome, (Binary, Category)) else ()
        return cls({n: _drafted(n, tables, n in classes) for n in names})


def _drafted(name: str, tables: list[pd.DataFrame], is_class: bool) -> Variable:
    """Infer one variable from the columns of that name."""
    columns = [t[name].dropna().infer_objects() for t in tables if name in t.columns]
    filled = [c for c in columns if len(c)]
    if not filled:
        return Variable(name, "number", description="no values")
    if any(pd.api.types.is_datetime64_any_dtype(c.dtype) for c in filled):
        return Variable(name, "date")
    values = pd.concat([c.astype(object) for c in filled]) if len(filled) > 1 else filled[0]
    distinct = list(pd.unique(values))
    numeric = all(
        pd.api.types.is_numeric_dtype(c.dtype) or pd.api.types.is_bool_dtype(c.dtype)
        for c in filled
    )
    if is_class or not numeric:
        if not is_class and len(distinct) > max(MOST_LEVELS, len(values) / 10):
            return Variable(name, "text", identifier=len(distinct) == len(values))
        return Variable(name, "category", sorted_levels(distinct))
    if {float(v) for v in distinct} <= {0.0, 1.0}:
        return Variable(name, "binary")
    whole = all(float(v).is_integer() for v in distinct)
    identifier = whole and len(distinct) == len(values) and _IDENTIFIER.search(name) is not None
    return Variable(name, "integer" if whole else "number", identifier=identifier)


def sorted_levels(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the levels among `values`: numbers by size, before text by alphabet."""

    def key(text: str) -> tuple[int, float, str]:
        try:
            return (0, float(text), text)
        except ValueError:
            return (1, 0.0, text)

    return tuple(sorted({level_text(v) for v in values}, key=key))
