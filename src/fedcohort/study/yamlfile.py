"""YAML with places: every key of a file with the line it stands on, for messages that point there.

Only the safe subset of YAML is read; a key that stands twice is an error, not a silent choice.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from fedcohort.protocol import StudyError

Where = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A parsed file: its content, its name, and the line of each key.

    Attributes
    ----------
    content : the top-level mapping.
    name : the file's name as the user gave it.
    lines : 1-based line by path, e.g. ``("arms", 0, "method")``.
    """

    content: dict[str, Any]
    name: str
    lines: Mapping[Where, int] = field(default_factory=dict[Where, int])

    def error(self, where: Where, problem: str) -> StudyError:
        """Return the error that says `problem` about the value at `where`."""
        at = where
        while at and at not in self.lines:
            at = at[:-1]
        line = f", line {self.lines[at]}" if at in self.lines else ""
        key = ".".join(map(str, where))
        return StudyError(f"{self.name}{line}{f', {key}' if key else ''}: {problem}")

    def check_keys(self, where: Where, known: Iterable[str]) -> None:
        """Raise `StudyError` for the first key below `where` that is not in `known`."""
        value: Any = self.content
        for part in where:
            value = value[part]
        self.known_only(where, cast("Mapping[str, Any]", value), known)

    def known_only(self, where: Where, value: Mapping[str, Any], known: Iterable[str]) -> None:
        """Raise `StudyError` for the first key of `value` that is not in `known`."""
        known = sorted(known)
        for key in value:
            if key not in known:
                raise self.error((*where, key), f"unknown key {key!r}; {nearest(key, known)}")


def nearest(word: object, known: Iterable[str]) -> str:
    """Return the hint for a word that is not among `known`."""
    known = sorted(known)
    near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."


def read(path: Path) -> Document:
    """Read a YAML file whose top level is a mapping.

    Raises
    ------
    StudyError : no such file, no YAML, a key that stands twice, or no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise StudyError(f"{path}: cannot read the file ({reason}).") from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Document:
    """Read YAML text; see `read`."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise StudyError(f"{name}{line}: this is no YAML ({error.problem}).") from None
    except yaml.YAMLError:
        raise StudyError(f"{name}: this is no YAML (a character that may not occur).") from None
    if not isinstance(content, dict) or node is None:
        raise StudyError(f"{name}: a mapping is expected, such as 'study: my-study'.")
    lines: dict[Where, int] = {}
    _walk(node, (), name, lines)
    return Document(cast("dict[str, Any]", content), name, lines)


def _walk(node: yaml.Node, where: Where, name: str, lines: dict[Where, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*where, str(key.value))
            line = key.start_mark.line + 1
            if here in lines:
                raise StudyError(f"{name}, line {line}: key {key.value!r} stands twice.")
            lines[here] = line
            _walk(value, here, name, lines)
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            lines[(*where, i)] = value.start_mark.line + 1
            _walk(value, (*where, i), name, lines)


def override(content: dict[str, Any], assignment: str) -> None:
    """Apply one ``key.path=value`` to a parsed file; the value is YAML.

    Raises
    ------
    StudyError : no "=", no YAML, or a path through something that is no mapping or list.
    """
    path, equals, text = assignment.partition("=")
    if not equals or not path:
        raise StudyError(f"--set {assignment}: expected key.path=value.")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise StudyError(f"--set {assignment}: the value is no YAML.") from None
    *parents, last = path.split(".")
    place: Any = content
    try:
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
        place[int(last) if isinstance(place, list) else last] = value
    except (IndexError, ValueError, TypeError, AttributeError):
        raise StudyError(f"--set {assignment}: there is no place {path!r} in the study.") from None
