"""Arguments that a site accepts with one value only: the first.

Sums of the same rows over other sites, cells, centres or grids reveal by their differences what
each of them hides. So a step may name arguments with one value (`Step.once`), and a site remembers
the first value: over restarts if its node does (`network.once`), otherwise as long as its `Host`
exists. The columns of the view, and the sites of a sum, are remembered in the same way.

Revealed: by a refusal, which of these differs from the first.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedcohort.protocol.errors import Refused
from fedcohort.protocol.step import Step

#: (name, digest of a value, n) → whether the value is among the first n of that name.
Once = Callable[[str, str, int], bool]


class InMemory:
    """A `Once` that lasts as long as a session."""

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}

    def __call__(self, name: str, digest: str, most: int) -> bool:
        """Store a value of a name; return whether it is one of its first `most` values."""
        return among_first(self._known.setdefault(name, []), digest, most)


def among_first(known: list[str], digest: str, most: int) -> bool:
    """Return whether a digest is one of the first `most`; add it if there is room."""
    if digest not in known and len(known) < most:
        known.append(digest)
    return digest in known


def digest_of(value: Any) -> str:
    """Return the digest of an argument or a text."""
    if isinstance(value, np.ndarray):
        blob = repr((value.dtype.str, value.shape)).encode() + value.tobytes()
    else:
        blob = repr(value).encode()
    return hashlib.sha256(blob).hexdigest()


def check_once(
    site: str,
    step: Step[..., Any],
    columns: str,
    among: tuple[str, ...],
    arguments: Mapping[str, Any],
    once: Once,
) -> None:
    """Refuse a call whose arguments differ from the first ones, if its step says so.

    Parameters
    ----------
    columns : text of the view.
    among : sites of the sum that hides this one's part.

    Raises
    ------
    Refused : "once"; the message names what differs.
    """
    if not step.once:
        return
    held: dict[str, Any] = {"columns": columns}
    if step.verb == "sum":
        held[f"sites of {step.name}"] = tuple(sorted(among))
    known = inspect.signature(step.run).parameters
    held |= {name: arguments.get(name, known[name].default) for name in step.once}
    for name, value in held.items():
        if not once(name, digest_of(value), 1):
            raise Refused(
                "once",
                f"site {site!r} answers {step.name} only with the sites and settings of the first "
                f"call, because two answers would reveal what it hides: {name} differs from its "
                f"first value. Ask the same sites, or have a study of another name approved.",
            )
