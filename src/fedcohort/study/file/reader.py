"""Typed access to a study file's values, with defaults, and errors that name the line.

A key with the value null counts as missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, cast

from fedcohort.study.file.yamlfile import Document, Where, nearest

#: Largest length of the name of a study, an arm or a scenario, as a folder name.
LONGEST_NAME = 80


class Reader:
    """Reads one document; every method takes the path of the value it returns.

    Raises
    ------
    StudyError : from every method, if the value is of another type or not possible.
    """

    def __init__(self, doc: Document):
        self.doc = doc

    def get(self, where: Where, default: Any = None) -> Any:
        """Return a value unchanged."""
        value: Any = self.doc.content
        for part in where:
            try:
                value = value[part]
            except (LookupError, TypeError):
                return default
        return default if value is None else value

    def mapping(
        self, where: Where, known: Sequence[str], required: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return a mapping with the required keys and only known ones."""
        value = self.get(where, {})
        if not isinstance(value, dict):
            raise self.doc.error(where, f"expected a mapping with keys {', '.join(known)}.")
        found = cast("dict[str, Any]", value)
        self.doc.known_only(where, found, known)
        for key in required:
            if found.get(key) is None:
                raise self.doc.error(where, f"the key {key!r} is missing.")
        return {k: v for k, v in found.items() if v is not None}

    def listed(self, where: Where, expected: str) -> list[Any]:
        """Return a list that is not empty."""
        value = self.get(where)
        if not isinstance(value, list) or not value:
            raise self.doc.error(where, f"expected a list {expected}.")
        return cast("list[Any]", value)

    def text(self, where: Where, default: str | None = None) -> str:
        """Return a text; a number is converted."""
        value = self.get(where, default)
        if value is None:
            raise self.doc.error(where[:-1], f"the key {where[-1]!r} is missing.")
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            raise self.doc.error(where, "expected text.")
        if "\0" in str(value):
            raise self.doc.error(where, "the character NUL may not occur.")
        return str(value)

    def name(self, where: Where, default: str | None = None) -> str:
        """Return a text that can be the name of a folder."""
        name = self.text(where, default)
        possible = 0 < len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip()
        if not possible or name.startswith(".") or any(c in name for c in "/\\"):
            raise self.doc.error(
                where,
                f"expected a valid folder name, such as 'gbsg2-rfs': at most {LONGEST_NAME} "
                f"characters, no slash, no dot or space in front.",
            )
        return name

    def choice(self, where: Where, known: Sequence[str], default: str | None = None) -> str:
        """Return one of the known words."""
        value = self.get(where, default)
        if value not in known:
            raise self.doc.error(where, f"{value!r} is not possible; {nearest(value, known)}")
        return cast(str, value)

    def names(self, where: Where, known: Sequence[str]) -> tuple[str, ...]:
        """Return a list of known words, each once."""
        items = self.listed(where, f"with some of {', '.join(known)}")
        found = tuple(self.choice((*where, i), known) for i in range(len(items)))
        if len(set(found)) < len(found):
            raise self.doc.error(where, "an item stands twice.")
        return found

    def whole(self, where: Where, default: int, low: int, high: int | None = None) -> int:
        """Return a whole number from `low` to `high`."""
        value = self.get(where, default)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < low or (high is not None and value > high):
            span = f"of at least {low}" if high is None else f"from {low} to {high}"
            raise self.doc.error(where, f"expected a whole number {span}.")
        return value

    def number(
        self, where: Where, default: float, low: float, high: float, open_ends: bool = False
    ) -> float:
        """Return a number above `low`, and below `high` or equal to it."""
        value = spelled(self.get(where, default))
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not fits or not (low < value < high if open_ends else low < value <= high):
            raise self.doc.error(where, f"expected a number between {low:g} and {high:g}.")
        return float(value)

    def flag(self, where: Where) -> bool:
        """Return true or false; default false."""
        value = self.get(where, False)
        if not isinstance(value, bool):
            raise self.doc.error(where, "expected true or false.")
        return value


def spelled(value: Any) -> Any:
    """Return the number in a text such as ``1e-5``, which YAML 1.1 leaves as text."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)
    return value
