"""A site's state between steps: arrays by field, with a place for each type beside others.

See `step.Keep`. Revealed: nothing; a state stays at its site.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcohort.arrays import Array


def _place(kind: type[Any]) -> str:
    """Return what the fields of a state's type begin with in a site's state."""
    return f"{kind.__name__}." if getattr(kind, "beside", False) else ""


def read_only(kind: type[Any]) -> bool:
    """Return whether steps may not write to the arrays of this type of state; see `Keep`."""
    return getattr(kind, "read_only", False)


def closed(held: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return arrays of a state after nobody can write to them any more."""
    for a in held.values():
        a.flags.writeable = False
    return held


def own_copies(held: Mapping[str, Array]) -> dict[str, Array]:
    """Return copies of the arrays of a state."""
    return {k: a.copy() for k, a in held.items()}


def own(held: Mapping[str, Array], kind: type[Any]) -> dict[str, Array]:
    """Return the fields that a site holds of one type of state."""
    place = _place(kind)
    if not place:
        return {k: a for k, a in held.items() if "." not in k}
    return {k.removeprefix(place): a for k, a in held.items() if k.startswith(place)}


def joined(
    held: Mapping[str, Array], kept: Mapping[str, Array], kind: type[Any]
) -> dict[str, Array]:
    """Return a site's state after a step left one of this type."""
    place = _place(kind)
    stays = {k: a for k, a in held.items() if ("." in k if not place else not k.startswith(place))}
    return {**stays, **{place + k: a for k, a in kept.items()}}
