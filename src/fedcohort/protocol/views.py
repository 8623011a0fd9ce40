"""Views by name: a remote site rebuilds the view of a call from its kind and text.

A view class is registered under a `kind`. Kind and text cross the network, never code. The
text is sent once, and then only its `mark`, a hash of both. A site rebuilds the view with
`from_spec` and checks that the result has the same text, so that both ends mean the same function.
Nothing is revealed: the coordinator chooses the view.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar

from fedcohort.protocol.errors import FedcohortError, Refused
from fedcohort.protocol.federation import View


class Sendable(View, Protocol):
    """A view that can be rebuilt from its kind and its text."""

    @classmethod
    def from_spec(cls, text: str) -> Self:
        """Rebuild the view; raises an error of this package, ValueError, … for another text."""
        ...


V = TypeVar("V", bound=type[Any])

_KINDS: dict[str, type[Sendable]] = {}


def view(kind: str) -> Callable[[V], V]:
    """Register a class of views under `kind`.

    Raises
    ------
    TypeError : another class has that kind, or the class has no `from_spec`.
    """

    def register(cls: V) -> V:
        known = _KINDS.get(kind, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(
                f"two views are of kind {kind!r}: {known.__qualname__} of {known.__module__}, and "
                f"{cls.__qualname__} of {cls.__module__}. Rename the kind of one."
            )
        if not callable(getattr(cls, "from_spec", None)):
            raise TypeError(f"view {cls.__qualname__} needs a class method from_spec(text).")
        cls.kind = kind
        _KINDS[kind] = cls
        return cls

    return register


def kinds() -> tuple[str, ...]:
    """Return the kinds that this process can rebuild, sorted."""
    return tuple(sorted(_KINDS))


def kind_of(view: View) -> str:
    """Return the kind of a view.

    Raises
    ------
    TypeError : its class is not registered, so that no site could rebuild it.
    """
    kind = getattr(type(view), "kind", "")
    if _KINDS.get(kind) is not type(view):
        raise TypeError(
            f"view {type(view).__qualname__} has no kind, so no site could rebuild it. Decorate "
            f"the class with @views.view(...)."
        )
    return kind


def mark_of(kind: str, spec: str) -> str:
    """Return 32 hexadecimal digits that identify a view's kind and text."""
    return hashlib.blake2b(f"{kind}\n{spec}".encode(), digest_size=16).hexdigest()


def rebuild(kind: str, spec: str) -> View:
    """Return the view of that kind and text.

    Raises
    ------
    Refused : the kind is unknown here, or the text is wrong; the message does not quote it.
    """
    cls = _KINDS.get(kind)
    if cls is None:
        raise Refused(
            "view",
            f"views of kind {kind[:40]!r} are unknown here; known are {', '.join(kinds())}. "
            f"Install the same version of fedcohort at both ends.",
        )
    try:
        built = cls.from_spec(spec)
        same = built.spec == spec
    except (FedcohortError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        name = type(e).__name__
        raise Refused("view", f"a text that is no view of kind {kind!r} ({name}).") from None
    if not same:
        raise Refused(
            "view",
            f"a view of kind {kind!r} reads as another one here. Install the same version of "
            f"fedcohort at both ends.",
        )
    return built
