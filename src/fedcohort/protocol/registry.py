"""The catalogue of methods, found by entry point.

A broken third-party entry point does not affect the others; asking for it gives an error.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from fedcohort.protocol.errors import NotSupported, SettingError
from fedcohort.protocol.method import Method
from fedcohort.protocol.settings import Settings

GROUP = "fedcohort.algorithms"


@cache
def names() -> tuple[str, ...]:
    """Return the names of all installed methods, sorted, without loading any."""
    return tuple(sorted(_installed()))


@cache
def find(name: str) -> Method:
    """Return the method called `name`.

    Raises
    ------
    SettingError : no installed package offers it; the message gives the nearest name.
    NotSupported : a package offers it, but it cannot be loaded.
    """
    if (entry := _installed().get(name)) is not None:
        return _load(entry)
    near = difflib.get_close_matches(name, names(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"installed are {', '.join(names())}."
    raise SettingError(f"there is no method {name!r}; {hint}")


def modules(methods: Iterable[str]) -> tuple[str, ...]:
    """Return the modules of methods, of those that are installed."""
    found = (_installed().get(name) for name in dict.fromkeys(methods))
    return tuple(entry.module for entry in found if entry is not None)


def forget() -> None:
    """Clear the caches, so that the next call looks for installed methods again."""
    for known in (_installed, names, find):
        known.cache_clear()


@cache
def _installed() -> dict[str, EntryPoint]:
    """Return the entry points by name, the first of equal names; this reads a file of each
    package.
    """
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, entry)
    return found


def _load(entry: EntryPoint) -> Method:
    """Return the method of an entry point."""
    package = entry.dist.name if entry.dist else "an unknown package"
    where = f"method {entry.name!r} of {package} (entry point {entry.value})"
    try:
        method = entry.load()
    except Exception as error:
        raise NotSupported(
            f"{where} cannot be loaded: {type(error).__name__}: {error}. Install what it needs, or "
            f"remove the package."
        ) from error
    if not isinstance(method, Method):
        raise NotSupported(f"{where} is a {type(method).__name__}, no Method. Remove the package.")
    if Settings not in method.settings.__mro__:
        raise NotSupported(
            f"{where}: {method.settings.__name__} is no fedcohort.protocol.Settings; let it "
            f"inherit from that class."
        )
    return method


def those_which_give(what: str, kind: str | None = None) -> tuple[str, ...]:
    """Return the methods whose fits support `what`, for one kind of task or for all.

    Methods that cannot be loaded are left out.
    """
    found: list[Method] = []
    for name in names():
        with contextlib.suppress(NotSupported):
            found.append(find(name))
    return tuple(m.name for m in found if m.overrides(what) and (kind is None or kind in m.tasks))


def of_large_tables() -> tuple[str, ...]:
    """Return the methods whose fits, with default settings, take tables larger than memory."""
    found: list[str] = []
    for name in names():
        with contextlib.suppress(NotSupported, SettingError):
            method = find(name)
            if all(step.blocks for step in method.asked(method.configure({}))):
                found.append(name)
    return tuple(found)


def check_outcome(method: Method, kind: str, outcome: str) -> None:
    """Refuse an outcome that a method cannot learn.

    Parameters
    ----------
    kind : kind of task.
    outcome : type of the outcome; "" without one, or for evaluation only.

    Raises
    ------
    SettingError : the message names the methods that can.
    """
    if not outcome or method.takes(outcome):
        return
    able: list[str] = []
    for name in names():
        with contextlib.suppress(NotSupported):
            other = find(name)
            if kind in other.tasks and outcome in other.outcomes:
                able.append(name)
    hint = f"these methods can: {', '.join(able)}" if able else "no installed method can"
    raise SettingError(f"method {method.name!r} learns no outcome of type {outcome}; {hint}.")


def not_supported(what: str, name: str) -> NotSupported:
    """Return the error for a fit that does not support `what`; it names the methods that do."""
    able = those_which_give(what)
    hint = f"these methods can: {', '.join(able)}." if able else "no installed method can."
    return NotSupported(f"a fit of {name!r} has no {what}; {hint}")
