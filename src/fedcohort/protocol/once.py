"""What a site answers for one value only: the first that it was asked with.

Sums of the same rows over other sites, cells, centres or grids tell by their differences what each
of them hides. So a step may name arguments that have one value (`Step.once`), and a site remembers
the first: beyond restarts where its node does (`network.once`), otherwise as long as its `Host` is
there. With them stay the columns as they are read and, of a sum, the sites of that sum.

Revealed: by a refusal, which of these is another.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedcohort.protocol.errors import Refused
from fedcohort.protocol.step import Step

#: (name, digest of a value, n) → whether the value is among the first n that the name ever had.
Once = Callable[[str, str, int], bool]


class InMemory:
    """A `Once` for as long as a session is open."""

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}

    def __call__(self, name: str, digest: str, most: int) -> bool:
        """Note what a name is asked with; return whether it is one of its first `most` values."""
        return among_first(self._known.setdefault(name, []), digest, most)


def among_first(known: list[str], digest: str, most: int) -> bool:
    """Return whether a digest is known, or may be added to so many; it is then."""
    if digest not in known and len(known) < most:
        known.append(digest)
    return digest in known


def digest_of(value: Any) -> str:
    """Return the digest of an argument, or of a text."""
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
    """Hold a call to what a site was asked first, where its step says so.

    Parameters
    ----------
    columns : the text of the view.
    among : the sites of the sum that hides this one's part.

    Raises
    ------
    Refused : "once", and what is another.
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
                f"site {site!r} answers {step.name} with the sites and settings of the first time "
                f"alone, as two answers would tell what it hides: {name} is another than it was "
                f"first. Ask the same sites, or have a study of another name approved.",
            )
