"""YAML with line numbers: every key of a file with its line, for error messages.

Only plain data are read: mappings with text as keys, lists, text, numbers, true, false and null. A
date is text. A duplicate key is an error.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from fedcohort.protocol import StudyError

Where = tuple[str | int, ...]

#: Largest number of keys and items, counted after YAML's anchors.
MOST_PLACES = 20_000

_TAG = "tag:yaml.org,2002:"
_TEXT, _MERGE, _DATE = f"{_TAG}str", f"{_TAG}merge", f"{_TAG}timestamp"
_PLAIN = (None, *(_TAG + kind for kind in ("null", "bool", "int", "float", "str", "seq", "map")))


#: Placeholder for the name of a site in a path.
PLACE = "{site}"


class _Loader(yaml.SafeLoader):
    """Reads plain data only."""


_Loader.yaml_constructors = {
    tag: make for tag, make in yaml.SafeLoader.yaml_constructors.items() if tag in _PLAIN
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, shape) for tag, shape in resolvers if tag != _DATE]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _printable(text: str) -> str:
    """Return text with characters that would break a line or a terminal escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


@dataclass(frozen=True)
class Document:
    """A parsed file: its content, its name, and the line of each key.

    Attributes
    ----------
    name : the file's name as the user gave it.
    places : by path, e.g. ``("arms", 0, "method")``: "line 7", or "given by --set".
    """

    content: dict[str, Any]
    name: str
    places: Mapping[Where, str] = field(default_factory=dict[Where, str])

    def error(self, where: Where, problem: str) -> StudyError:
        """Return the error `problem` about the value at `where`, on one line."""
        at = where
        while at and at not in self.places:
            at = at[:-1]
        key = ".".join(map(str, where))
        place = ", ".join(p for p in (self.name, self.places.get(at), key) if p)
        return StudyError(_printable(f"{place}: {problem}"))

    def known_only(self, where: Where, value: Mapping[str, Any], known: Iterable[str]) -> None:
        """Raise `StudyError` for the first key of `value` that is not in `known`."""
        known = sorted(known)
        for key in value:
            if key not in known:
                raise self.error((*where, key), f"unknown key {key!r}; {nearest(key, known)}")

    def with_override(self, assignment: str) -> Document:
        """Return the document after one ``key.path=value``, whose value is YAML.

        A value that begins with ``{site}`` is text, although YAML would need quotes: a shell
        removes them.

        Raises
        ------
        StudyError : no "=", not plain YAML, or a path through something that is no mapping or list.
        """
        path, equals, text = assignment.partition("=")
        told = "--set " + " ".join(assignment.split())
        if not equals or not all(path.split(".")):
            raise StudyError(f"{told}: expected key.path=value.")
        value, below = (text, {}) if text.startswith(PLACE) else _parsed(text, told)
        content = copy.deepcopy(self.content)
        try:
            here = _put(content, path.split("."), value)
        except (LookupError, ValueError, TypeError):
            raise StudyError(f"{told}: there is no place {path!r} in the study.") from None
        kept = {w: p for w, p in self.places.items() if w[: len(here)] != here}
        given = {(*here, *w): "given by --set" for w in ((), *below)}
        return Document(content, self.name, {**kept, **given})


def _put(content: dict[str, Any], path: list[str], value: Any) -> Where:
    """Set the value at a path, making mappings on the way; return the path as a place.

    Raises
    ------
    LookupError, ValueError, TypeError : there is no such place.
    """
    here: list[str | int] = []
    place: Any = content
    for i, part in enumerate(path):
        if isinstance(place, list):
            spot: Any = int(part)
            if not 0 <= spot < len(cast("list[Any]", place)):
                raise IndexError(spot)
        elif isinstance(place, dict):
            spot = part
        else:
            raise TypeError(part)
        here.append(spot)
        inside = cast("dict[Any, Any]", place)
        if i == len(path) - 1:
            inside[spot] = value
        elif isinstance(place, dict) and inside.get(spot) is None:
            inside[spot] = {}
        place = inside[spot]
    return tuple(here)


def nearest(word: object, known: Iterable[str]) -> str:
    """Return a hint for a word that is not among `known`."""
    known = sorted(known)
    near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."


def read(path: Path) -> Document:
    """Read a YAML file whose top level is a mapping.

    Raises
    ------
    StudyError : no such file, not plain YAML, a duplicate key, or no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise StudyError(f"{path}: cannot read the file ({reason}).") from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Document:
    """Read YAML text; see `read`."""
    content, lines = _parsed(text, name)
    if not isinstance(content, dict):
        raise StudyError(f"{name}: a mapping is expected, such as 'study: my-study'.")
    places = {where: f"line {line}" for where, line in lines.items()}
    return Document(cast("dict[str, Any]", content), name, places)


def _parsed(text: str, name: str) -> tuple[Any, dict[Where, int]]:
    """Return what YAML text holds, and the 1-based line of each key and item."""
    lines: dict[Where, int] = {}
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None, lines
        _walk(node, (), name, lines)
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f", line {mark.line + 1}" if mark else ""
        reason = " ".join(str(error.problem).split())
        at = text.splitlines()[mark.line : mark.line + 1] if mark else []
        quotes = f" Put a path with {PLACE} in quotes: '{PLACE}/table.csv'."
        hint = quotes if any(PLACE in part for part in at) else ""
        raise StudyError(f"{name}{line}: this is no plain YAML ({reason}).{hint}") from None
    except yaml.YAMLError:
        raise StudyError(f"{name}: this is no YAML (a character that may not occur).") from None
    except RecursionError:
        raise StudyError(f"{name}: this is nested too deeply, or within itself.") from None
    except (ValueError, KeyError):
        raise StudyError(f"{name}: a value is not of the type that its tag (!!) says.") from None


def _walk(node: yaml.Node, where: Where, name: str, lines: dict[Where, int]) -> None:
    """Note the line of every key and item below a node."""
    if len(lines) > MOST_PLACES:
        raise StudyError(f"{name}: more than {MOST_PLACES} keys and items; no study has so many.")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag not in (_TEXT, _MERGE):
                shown = repr(key.value) if isinstance(key, yaml.ScalarNode) else "a list or mapping"
                raise StudyError(
                    f"{name}, line {line}: {shown} as a key is no text; put it in quotes."
                )
            here = (*where, str(key.value))
            if here in lines:
                raise StudyError(f"{name}, line {line}: key {key.value!r} stands twice.")
            lines[here] = line
            _walk(value, here, name, lines)
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            lines[(*where, i)] = value.start_mark.line + 1
            _walk(value, (*where, i), name, lines)
