"""What a step prepared of a table, remembered for as long as the table lives, and no longer."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

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
