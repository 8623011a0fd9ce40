"""A site's records as arrays, once a design has turned columns into numbers.

`remembered` keeps what a step has prepared of a table for as long as the table lives.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from fedcohort.arrays import Array

T = TypeVar("T")


@dataclass
class _Memory:
    anchor: weakref.ref[Array]
    kept: dict[Hashable, tuple[Any, Any]]


_memories: dict[int, _Memory] = {}


def remembered(table: Any, key: Hashable, make: Callable[[], T]) -> T:
    """Return what `make` gave for this table and key before, or make it now.

    The table's first outcome array is the anchor, or x where it has no outcome: when it is
    collected, so is all that was made from it. What `make` returns must not hold that array itself.
    """
    x, *outcomes = table
    anchor, *rest = outcomes if outcomes else [x]
    held = (x, *rest) if outcomes else ()
    memory = _memories.get(id(anchor))
    if memory is None or memory.anchor() is not anchor:
        number = id(anchor)
        gone = weakref.ref(anchor, lambda _: _memories.pop(number, None))
        memory = _memories[number] = _Memory(gone, {})
    full = (key, *map(id, held))
    if full not in memory.kept:
        memory.kept[full] = (held, make())
    return memory.kept[full][1]


class SurvivalTable(NamedTuple):
    """Right-censored records: ``x`` (n, p), ``time`` (n,) > 0, ``event`` (n,) bool.

    ``weight`` (n,) > 0 is how much each record counts; None where all count alike. ``entry`` (n,)
    < time is when each record came under observation; None where all were from the start.
    ``stratum`` (n,) is the number of the level that says which baseline hazard is theirs; None
    where one is.
    """

    x: Array
    time: Array
    event: Array
    weight: Array | None = None
    entry: Array | None = None
    stratum: Array | None = None


class LabelledTable(NamedTuple):
    """Records with a target: ``x`` (n, p), ``y`` (n,): 0/1, a class number, a value or a count.

    ``weight`` (n,) > 0 is how much each record counts; None where all count alike.
    """

    x: Array
    y: Array
    weight: Array | None = None


class FeatureTable(NamedTuple):
    """Records without an outcome: ``x`` (n, p)."""

    x: Array
