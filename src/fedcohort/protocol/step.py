"""Site steps: the named computations that a site agrees to run.

A step is a pure function of a `Site` and named arguments. Its decorator says what the
coordinator may learn from it, and the site enforces that:

* ``@summed``    only the sum over sites is revealed;
* ``@gathered``  each site's reply is revealed.

Asking for more fails type checking, and the site refuses it.

All sites of a sum get the same arguments: if a site got others, its part could be alone in the sum.
A step that needs an argument which differs by site (`per_site`) names it,
``@summed(apart=("fresh",))``; its type is int or bool. If answers to two values of an argument
would reveal what a step hides, the step names it, ``@summed(once=("edges",))``, and a site accepts
one value only (`protocol.once`); such a sum needs all of its sites.

A step whose reply is a sum over the rows of its table says so, ``@summed(blocks="rows")``: where a
table is larger than memory (`fedcohort.mapped`), the site runs it on one block of rows after the
other and adds the replies. So it must give on a site's blocks what it gives on as many sites. One
that walks such a table itself says ``blocks="own"``; others are refused for it.

A fit of one site in the process that asks reveals nothing to anyone. A step for it,
``@gathered(alone=True)``, may return what no other fit may know. Every other host refuses it.

In a simulation many sites compute in one process. A step may name a twin, ``@summed(many=…)``,
which runs it for several sites at once: it takes their `Site`s and the common arguments, and
returns each site's reply, the very bits of the step, or None: one by one. It stands in for the
step alone; checks, sums and ledger are those of replies one by one. No site of a network runs it.
"""

from __future__ import annotations

import hashlib
import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import lru_cache, partial
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

import numpy as np

from fedcohort.protocol.private import Noised, Private

Data = TypeVar("Data")
State = TypeVar("State")
Kept = TypeVar("Kept")
R = TypeVar("R")
#: A step's twin: (sites, **arguments) → each site's reply, or None.
Many = Callable[..., "Sequence[Any] | None"]
P = ParamSpec("P")


@dataclass(frozen=True)
class Site(Generic[Data, State]):
    """What a step gets at one site.

    Attributes
    ----------
    name : the site's name.
    data : the site's own table, through the view of the call.
    state : message that the last step with a `Keep` left here (see there); None before the first,
        and if its fields differ from this step's.
    entropy : (study seed, site, call), from which all draws derive.
    among : sites of the sum that hides this one's part, with this site; () if none does.
    """

    name: str
    data: Data
    state: State
    entropy: tuple[int, ...]
    among: tuple[str, ...] = ()

    @property
    def rng(self) -> np.random.Generator:
        """A fresh generator that depends only on (study seed, site, call number)."""
        return np.random.default_rng(self.entropy)

    @property
    def seed(self) -> int:
        """The same as one integer below 2^63, for libraries with their own generators."""
        return int(np.random.SeedSequence(self.entropy).generate_state(1, np.uint64)[0] >> 1)


def entropy(seed: int, site: str, call: int) -> tuple[int, ...]:
    """Return the entropy of all random draws of `site` in `call`."""
    return (seed, _number(site), call)


@lru_cache(maxsize=4096)
def _number(site: str) -> int:
    return int.from_bytes(site.encode(), "big")


def mark_of(site: str) -> int:
    """Return a hash below 2⁶³ of a site's name, by which the site finds its position in an
    array.
    """
    return int.from_bytes(hashlib.blake2b(site.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Keep(Generic[R, Kept]):
    """A reply, and the message that the site keeps for its next step.

    It takes the place of the last one. A type of message with ``beside = True`` has a place of its
    own: it takes the place of the last one of this type alone, and lasts beside others. Steps get
    the arrays of a type with ``read_only = True`` themselves, which cannot be written to, instead
    of copies; those that a step returns as they are stay where they are.
    """

    reply: R
    state: Kept


@dataclass(frozen=True)
class Step(Generic[P, R]):
    """A named computation, with what its annotations declare.

    Attributes
    ----------
    run : the function, (site, **arguments) → reply or `Keep`.
    name : the function's name.
    reply : the message type that is revealed.
    state : the message type of `Site.state`; None without.
    keeps : whether it leaves a state.
    private : whether its reply leaves a site only with noise (`Private`, `Noised`). With a state
        the sensitivity holds for any state that the site may have.
    noised : whether its reply is made of several noisy answers (`Noised`).
    apart : arguments that may differ between the sites of a sum.
    once : arguments that a site accepts with one value only.
    alone : whether it is for a fit of one site in this process (`Federation.alone`).
    many : its twin for several sites at once; None without.
    blocks : how it takes a table larger than memory: "rows", "own", or "" (not at all).
    """

    run: Callable[..., Any]
    apart: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    alone: bool = False
    many: Many | None = None
    blocks: str = ""
    name: str = field(init=False)
    reply: type[Any] = field(init=False)
    state: type[Any] | None = field(init=False)
    keeps: bool = field(init=False)
    private: bool = field(init=False)
    noised: bool = field(init=False)
    verb: ClassVar[str]

    def __post_init__(self) -> None:
        name = self.run.__name__
        hints = typing.get_type_hints(self.run)
        returns = hints.get("return")
        keeps = typing.get_origin(returns) is Keep
        told, state = typing.get_args(returns) if keeps else (returns, _found(self.run, hints))
        noised = typing.get_origin(told) is Noised
        private = noised or typing.get_origin(told) is Private
        reply = typing.get_args(told)[0] if private else told
        for kind in (reply, state) if keeps else (reply,):
            if not (isinstance(kind, type) and is_dataclass(kind)):
                raise TypeError(
                    f"step {name} declares to return {returns}; a step returns a @message, "
                    f"Private or Noised of one, or Keep of two, of which the first may be Private. "
                    f"Correct its return annotation."
                )
        if keeps and noised:
            raise TypeError(f"step {name} keeps a state and is Noised. Keep goes with Private.")
        if self.blocks == "rows" and (keeps or private or self.verb != "sum"):
            raise TypeError(f"step {name} is no plain sum, so its replies on blocks do not add.")
        if odd := [a for a in self.apart if hints.get(a) not in (bool, int)]:
            raise TypeError(
                f"step {name} lets {odd[0]!r} differ by site, which is no argument of type int or "
                f"bool. Others are the same at all sites of a sum."
            )
        if unknown := [a for a in self.once if a not in hints]:
            raise TypeError(f"step {name} names {unknown[0]!r} in once, and has no such argument.")
        if self.many is not None and (keeps or private or state or self.once or self.apart):
            raise TypeError(
                f"step {name} names a twin for several sites, and has a state, noise, or arguments "
                f"that a site holds to. Only a plain step has a twin."
            )
        made = {
            "name": name, "reply": reply, "state": state, "keeps": keeps, "private": private,
            "noised": noised,
        }  # fmt: skip
        for key, value in made.items():
            object.__setattr__(self, key, value)


def _found(run: Callable[..., Any], hints: dict[str, Any]) -> type[Any] | None:
    """Return the message type of `Site.state`, from the first annotation."""
    site = hints.get(next(iter(inspect.signature(run).parameters), ""))
    if typing.get_origin(site) is not Site:
        return None
    state = typing.get_args(site)[1]
    kinds = [k for k in (typing.get_args(state) or (state,)) if isinstance(k, type)]
    return next((k for k in kinds if is_dataclass(k)), None)


class Summed(Step[P, R]):
    """A step whose replies are revealed only as their sum over sites."""

    verb = "sum"


class Gathered(Step[P, R]):
    """A step whose replies are revealed site by site."""

    verb = "gather"


class _Marking(Protocol):
    """Decorator that `summed` with arguments returns."""

    @overload
    def __call__(
        self, fn: Callable[Concatenate[Site[Data, State], P], Keep[R, Kept]], /
    ) -> Summed[P, R]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[Site[Data, State], P], Private[R]], /
    ) -> Summed[P, R]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[Site[Data, State], P], Noised[R]], /
    ) -> Summed[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Site[Data, State], P], R], /) -> Summed[P, R]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Summed[..., Any]:
        """Mark a step."""
        ...


class _MarkingEach(Protocol):
    """Decorator that `gathered` with arguments returns."""

    def __call__(self, fn: Callable[Concatenate[Site[Data, State], P], R], /) -> Gathered[P, R]:
        """Mark a step."""
        ...


@overload
def summed(
    fn: Callable[Concatenate[Site[Data, State], P], Keep[Private[R], Kept]], /
) -> Summed[P, R]: ...
@overload
def summed(fn: Callable[Concatenate[Site[Data, State], P], Keep[R, Kept]], /) -> Summed[P, R]: ...
@overload
def summed(fn: Callable[Concatenate[Site[Data, State], P], Private[R]], /) -> Summed[P, R]: ...
@overload
def summed(fn: Callable[Concatenate[Site[Data, State], P], Noised[R]], /) -> Summed[P, R]: ...
@overload
def summed(fn: Callable[Concatenate[Site[Data, State], P], R], /) -> Summed[P, R]: ...
@overload
def summed(
    *,
    apart: tuple[str, ...] = (),
    once: tuple[str, ...] = (),
    many: Many | None = None,
    blocks: str = "",
) -> _Marking: ...
def summed(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    apart: tuple[str, ...] = (),
    once: tuple[str, ...] = (),
    many: Many | None = None,
    blocks: str = "",
) -> Any:
    """Mark a site step whose replies may be revealed only as their sum.

    Parameters
    ----------
    apart : arguments that may differ by site; see the module's header.
    once : arguments that have one value at a site.
    many : its twin for several sites at once.
    blocks : how the step takes a table larger than memory; see the module's header.
    """
    if fn is None:
        return partial(Summed[..., Any], apart=apart, once=once, many=many, blocks=blocks)
    return Summed(fn)


@overload
def gathered(
    fn: Callable[Concatenate[Site[Data, State], P], Keep[R, Kept]], /
) -> Gathered[P, R]: ...
@overload
def gathered(fn: Callable[Concatenate[Site[Data, State], P], Private[R]], /) -> Gathered[P, R]: ...
@overload
def gathered(fn: Callable[Concatenate[Site[Data, State], P], Noised[R]], /) -> Gathered[P, R]: ...
@overload
def gathered(fn: Callable[Concatenate[Site[Data, State], P], R], /) -> Gathered[P, R]: ...
@overload
def gathered(
    *,
    once: tuple[str, ...] = (),
    alone: bool = False,
    many: Many | None = None,
    blocks: str = "",
) -> _MarkingEach: ...
def gathered(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    once: tuple[str, ...] = (),
    alone: bool = False,
    many: Many | None = None,
    blocks: str = "",
) -> Any:
    """Mark a site step whose replies may each be revealed.

    Parameters
    ----------
    once : arguments that have one value at a site.
    alone : only a fit of one site in this process may ask it.
    many : its twin for several sites at once.
    blocks : "own" if the step takes a table larger than memory.
    """
    if fn is None:
        return partial(Gathered[..., Any], once=once, alone=alone, many=many, blocks=blocks)
    return Gathered(fn)
