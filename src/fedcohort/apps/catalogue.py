"""The catalogue of methods as text: tasks, source, what is revealed, settings with units."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import MISSING
from typing import Any

from fedcohort.data.prepare import IMPUTES, MOST_WINSORISED, SCALES
from fedcohort.protocol import Method, registry
from fedcohort.study.kinds import KINDS


def all_methods() -> str:
    """Return one paragraph for each installed method."""
    found = [registry.find(name) for name in registry.names()]
    width = max(len(m.name) for m in found)
    lines = [f"{m.name:<{width}}  {m.title} ({', '.join(m.tasks)})" for m in found]
    return "\n".join([*lines, "", "fedcohort methods NAME shows a method's settings."])


def one(name: str) -> str:
    """Return everything that the catalogue knows about one method."""
    m = registry.find(name)
    head = [
        f"{m.name}: {m.title}",
        "",
        _item("tasks", ", ".join(m.tasks)),
        *([_item("outcomes", ", ".join(types))] if (types := _learns(m)) else []),
        _item("source", m.paper),
        _item("reveals", m.reveals),
        _item("gives", ", ".join(sorted(m.gives))),
        _item("dp", _protects(m)),
        "",
        "settings (default in brackets)",
    ]
    return "\n".join([*head, *_settings(m)])


def _learns(method: Method) -> list[str]:
    """Return the types of outcome that fits learn; none of a method that reads tables."""
    known = [("survival", "survival")]
    known += [(t, kind.name) for kind in KINDS.values() if not kind.aside for t in kind.types]
    fits = [] if method.raw else [t for t, task in known if task in method.tasks]
    return [t for t in fits if t in method.outcomes]


def _protects(method: Method) -> str:
    """Say whether a method has private fits, and their protected unit."""
    if method.private is None:
        return "no differentially private fit"
    units = " or ".join(f"each {unit}" for unit in (method.clips or ("record",)))
    return f"differentially private fits that protect {units}"


def _item(name: str, text: str) -> str:
    return textwrap.fill(
        text, 96, initial_indent=f"{name:<9}", subsequent_indent=" " * 9, break_on_hyphens=False
    )


def _settings(method: Method) -> list[str]:
    rows: list[tuple[str, str, str]] = []
    for f in method.fields:
        default = "required" if f.default is MISSING else _shown(f.default)
        doc = str(f.metadata.get("doc", "")).rstrip(".") + "."
        if f.metadata.get("choices"):
            doc += f" One of {', '.join(map(_shown, f.metadata['choices']))}."
        if f.metadata.get("unit"):
            doc += f" Unit: {f.metadata['unit']}."
        solver = method.solver_of(f.name)
        rows.append((f.name, default, f"of solver {solver}: {doc}" if solver else doc))
    rows += [
        (key, str(value), f"preprocessing: {what}")
        for key, value, what in (
            ("scale", method.preprocess.get("scale", "none"), f"{_either(SCALES)}."),
            ("impute", method.preprocess.get("impute", "median"), f"{_either(_fills(method))}."),
            (
                "winsorise",
                method.preprocess.get("winsorise", 0),
                f"share of rows cut at each tail, from 0 to {MOST_WINSORISED}.",
            ),
            (
                "pool_levels",
                method.preprocess.get("pool_levels", 0),
                "levels with fewer rows at all sites together become one. Unit: rows.",
            ),
        )
        if not method.raw and method.design is None
    ]
    rows += [
        (
            "privacy.dp.clip",
            _shown(clip),
            f"of a study that protects each {unit}: the largest norm of its part.",
        )
        for unit, clip in (method.clips.items() if method.private else ())
    ]
    lines: list[str] = []
    for name, default, doc in rows:
        lines.append(f"  {name} [{default}]")
        lines += textwrap.wrap(doc, 88, initial_indent="      ", subsequent_indent="      ")
    return lines


def _fills(method: Method) -> Sequence[str]:
    """Return a method's choices of `impute`."""
    return [word for word in IMPUTES if word != "none" or method.gaps]


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(value: Any) -> str:
    """Return a value as text; an empty one says so."""
    return "null" if value is None else "none" if value in ("", ()) else str(value)
