"""A site's records as arrays, after a design has converted columns to numbers.

`remembered` caches what a step has computed from a table for as long as the table lives.
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
    """Return the cached result of `make` for this table and key, or call it now.

    The anchor is the table's first outcome array, or x if it has no outcome. When the anchor is
    collected, its results are too. So the result of `make` must not hold that array itself.
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

    ``weight`` (n,) > 0: each record's weight; None for equal weights.
    ``entry`` (n,) < time: start of observation; None if all are observed from time 0.
    ``stratum`` (n,): number of the stratum, which has its own baseline hazard; None for a single
    one.
    """

    x: Array
    time: Array
    event: Array
    weight: Array | None = None
    entry: Array | None = None
    stratum: Array | None = None


class LabelledTable(NamedTuple):
    """Records with a target: ``x`` (n, p), ``y`` (n,): 0/1, a class number, a value or a count.

    ``weight`` (n,) > 0: each record's weight; None for equal weights.
    """

    x: Array
    y: Array
    weight: Array | None = None


class FeatureTable(NamedTuple):
    """Records without an outcome: ``x`` (n, p)."""

    x: Array
