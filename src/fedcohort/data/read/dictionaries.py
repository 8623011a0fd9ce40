"""Files of data dictionaries: YAML, Frictionless (.json) and REDCap (.csv).

A YAML file names the variables in order::

    title: German Breast Cancer Study Group 2
    variables:
      age: {type: integer, unit: years, range: [18, 110], missing: [-9]}
      tgrade: {type: category, levels: [I, II, III], description: tumour grade}

Dates are read as text. So is 01, because it may be a level. Nothing is revealed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from fedcohort.data.dictionary import HEAD, Dictionary
from fedcohort.data.read import frictionless, redcap
from fedcohort.data.words import nearest
from fedcohort.protocol.errors import DataError

#: Longer than any line, so that YAML never wraps a variable.
_WIDTH = 10**9
#: Suffixes of dictionary files.
SUFFIXES = (".yaml", ".yml", ".json", ".csv")


class _Loader(yaml.SafeLoader):
    """YAML loader for plain data; dates and numbers such as 01 are text."""


_TAG = "tag:yaml.org,2002:"
_Loader.yaml_implicit_resolvers = {
    first: [(t, s) for t, s in pairs if t.removeprefix(_TAG) not in ("timestamp", "int", "float")]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    f"{_TAG}int", re.compile(r"[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]+)?$"),
    list("-+.0123456789"),
)


def read_dictionary(path: str | Path) -> Dictionary:
    """Read a dictionary: YAML, Frictionless Table Schema (.json) or REDCap's CSV (.csv).

    Raises
    ------
    DataError : there is no such file, its format is wrong, or a key stands twice.
    """
    path = Path(path)
    if not path.is_file():
        near = (p.name for p in path.parent.glob("*") if p.suffix.lower() in SUFFIXES)
        raise DataError(f"there is no dictionary file {path}.{nearest(path.name, near)}")
    of_suffix = {".json": frictionless.read, ".csv": redcap.read}
    return of_suffix.get(path.suffix.lower(), _read_yaml)(path)


def _read_yaml(path: Path) -> Dictionary:
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        lines = _lines(node, path)
        spec: Any = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise DataError(f"{path}{line}: this is no YAML. Check quotes and indents.") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError):
        raise DataError(f"{path}: this is no YAML. Save it as UTF-8 text, without tags.") from None
    if not isinstance(spec, Mapping):
        raise DataError(f"{path} holds no mapping; list columns under 'variables:'.")
    return Dictionary.from_dict(cast("Mapping[str, Any]", spec), str(path), lines)


def _lines(node: yaml.Node | None, path: Path) -> dict[str, int]:
    """Return the line of each variable; refuse a key that stands twice, at any of three levels."""
    top = _children(node, path)
    variables = _children(top["variables"][1], path) if "variables" in top else top
    for _, spec in variables.values():
        _children(spec, path)
    return {name: line for name, (line, _) in variables.items()}


def _children(node: yaml.Node | None, path: Path) -> dict[str, tuple[int, yaml.Node]]:
    """Return a mapping's keys with their lines and values."""
    found: dict[str, tuple[int, yaml.Node]] = {}
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        line = key.start_mark.line + 1
        if str(key.value) in found:
            raise DataError(f"{path}, line {line}: {key.value!r} stands twice; keep one of them.")
        found[str(key.value)] = (line, value)
    return found


def text(dictionary: Dictionary, notes: Mapping[str, str] | None = None, comment: str = "") -> str:
    """Return a dictionary as a YAML file with one line per variable.

    Parameters
    ----------
    notes : by variable, a comment at the end of its line.
    comment : lines of comment at the top.
    """
    notes = notes or {}
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    lines += [_line({k: getattr(dictionary, k)}) for k in HEAD if getattr(dictionary, k)]
    lines.append("variables:")
    for name, variable in dictionary.variables.items():
        note = f"  # {' '.join(notes[name].split())}" if notes.get(name) else ""
        lines.append(f"  {_line({name: variable.to_dict()})}{note}")
    return "\n".join(lines) + "\n"


def flow(value: Any) -> str:
    """Return a value as YAML on one line, with unprintable characters escaped."""
    dumped = yaml.safe_dump(
        value, default_flow_style=True, allow_unicode=True, sort_keys=False, width=_WIDTH
    )
    line = dumped.removesuffix("...\n").strip()
    if line.isprintable() and not line.startswith("{? "):
        return line
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)


def _line(pair: dict[str, Any]) -> str:
    return flow(pair)[1:-1]
