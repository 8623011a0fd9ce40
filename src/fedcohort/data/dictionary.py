"""The data dictionary: what each column of a study means, agreed between the sites beforehand.

`dictionaries` reads one from a file. In a simulation `drafting` guesses one from the tables. The
dictionary is public, and must be the same at all sites.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from fedcohort.data.outcome import Outcome, Survival
from fedcohort.data.variable import TYPES, Variable
from fedcohort.data.words import known_name
from fedcohort.protocol.errors import DataError

__all__ = ["TYPES", "Dictionary", "Variable"]

#: A survival time without a range is above 0: at least this.
LEAST_TIME = 1e-9

#: Keys of a dictionary beside its variables.
HEAD = ("title", "description", "licence")


@dataclass(frozen=True)
class Dictionary:
    """Variables by name, in order, and a description of the table."""

    variables: Mapping[str, Variable]
    title: str = ""
    description: str = ""
    licence: str = ""

    def __getitem__(self, name: str) -> Variable:
        """Return a variable.

        Raises
        ------
        DataError : there is none of that name; the message gives the nearest.
        """
        if name not in self.variables:
            raise DataError(f"the dictionary has {known_name('variable', name, self.variables)}")
        return self.variables[name]

    def __contains__(self, name: object) -> bool:
        return name in self.variables

    def outcome(self) -> Survival | None:
        """Return the survival outcome that the types "time" and "event" mark, or None."""
        marked = {v.type: v.name for v in self.variables.values() if v.type in ("time", "event")}
        return Survival(marked["time"], marked["event"]) if len(marked) == 2 else None

    def features(self, outcome: Outcome | None = None) -> tuple[Variable, ...]:
        """Return the variables that may enter a model, in order."""
        taken = outcome.columns if outcome is not None else ()
        return tuple(v for v in self.variables.values() if v.usable and v.name not in taken)

    def with_features(self, outcome: Outcome) -> Dictionary:
        """Return the dictionary in which an outcome's columns are features, such as any other.

        A survival time is then a number above 0, and an event a binary column.

        Raises
        ------
        DataError : it lacks a column of the outcome.
        """
        variables = dict(self.variables)
        for name in outcome.columns:
            v = self[name]
            if v.type == "event":
                v = replace(v, type="binary")
            elif v.type == "time" or outcome.roles[name] == "time":
                low, high = v.range
                v = replace(v, type="number", range=(low if low and low > 0 else LEAST_TIME, high))
            variables[name] = replace(v, feature=True)
        return replace(self, variables=variables)

    def with_views(self, views: Mapping[str, Iterable[str]]) -> Dictionary:
        """Return the dictionary with the named columns in these views.

        Raises
        ------
        DataError : a view names a column that is not in the dictionary.
        """
        variables = dict(self.variables)
        for view, names in views.items():
            for name in names:
                variables[name] = replace(self[name], view=view)
        return replace(self, variables=variables)

    def to_dict(self) -> dict[str, Any]:
        """Return the dictionary as in a file."""
        out: dict[str, Any] = {k: getattr(self, k) for k in HEAD if getattr(self, k)}
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
    def from_dict(
        cls,
        spec: Mapping[str, Any],
        where: str = "the dictionary",
        lines: Mapping[str, int] | None = None,
    ) -> Dictionary:
        """Build a dictionary from a mapping with a key `variables`, or of variables alone.

        Parameters
        ----------
        where : name of the mapping in errors.
        lines : line of each variable in `where`.

        Raises
        ------
        DataError : a key is unknown, a variable is wrong, or variables do not fit together: a
            `since` that names no date, or two columns of type time or of type event.
        """
        known = (*HEAD, "variables")
        if "variables" not in spec:
            spec = {"variables": spec}
        for key in spec:
            if key not in known:
                raise DataError(f"{where} has {known_name('key', key, known)}")
        variables = cast("Mapping[Any, Any] | None", spec["variables"])
        if not isinstance(variables, Mapping) or not variables:
            raise DataError(f"{where} names no variables; list them under 'variables:' by column.")
        built: dict[str, Variable] = {}
        for key, value in variables.items():
            if key is None or isinstance(key, bool):
                raise DataError(
                    f"{where} has a column whose name YAML reads as {json.dumps(key)}. Put quotes "
                    f"around names such as yes, no, on, off and null."
                )
            name = str(key)
            line = (lines or {}).get(name)
            built[name] = Variable.from_dict(
                name, value, f"{where}, line {line}" if line else where
            )
        found = cls(built, *(str(spec.get(k) or "").strip() for k in HEAD))
        found._check(where)
        return found

    def _check(self, where: str) -> None:
        """Check the relations between variables."""
        for v in self.variables.values():
            origin = self.variables.get(v.since)
            dated = origin is not None and origin.type == "date" and origin is not v
            if v.since and not dated and v.since_day is None:
                raise DataError(
                    f"{where}: variable {v.name!r} is counted since {v.since!r}, which is neither "
                    f"another column of type 'date' nor a day such as 2015-01-31."
                )
        names = {t: [v.name for v in self.variables.values() if v.type == t] for t in _OUTCOME}
        for kind, found in names.items():
            if len(found) > 1:
                raise DataError(
                    f"{where}: {' and '.join(map(repr, found))} are of type {kind!r}; a study has "
                    f"one. Make the others 'number' or 'binary', with 'feature: false'."
                )
        for kind, other in (_OUTCOME, _OUTCOME[::-1]):
            if names[kind] and not names[other]:
                raise DataError(
                    f"{where}: {names[kind][0]!r} is of type {kind!r}, and no column is of type "
                    f"{other!r}; a survival outcome needs both."
                )


_OUTCOME = ("time", "event")
