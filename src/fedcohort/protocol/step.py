"""Site steps: the named computations that a site agrees to run.

A step is a pure function of a `Site` and named arguments. Its decorator says what the
coordinator may learn from it, and the site enforces that:

* ``@summed``    only the sum over sites is revealed;
* ``@gathered``  each site's reply is revealed.

Asking for more than a step allows is a type error, and a refusal at the site.

All sites of a sum are asked alike: a site that is asked something else than the others could be
alone with what it tells. A step that needs an argument which differs by site (`per_site`) names it,
``@summed(apart=("fresh",))``; it can be a whole number, or yes or no. A step whose answers to two
questions would tell what it hides names what has one value at a site, ``@summed(once=("edges",))``
(`protocol.once`); of such a sum nothing is told without all of its sites.
"""

from __future__ import annotations

import hashlib
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass
from functools import partial
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
P = ParamSpec("P")


@dataclass(frozen=True)
class Site(Generic[Data, State]):
    """What a step may see at one site.

    Attributes
    ----------
    name : the site's name.
    data : the site's own table, through the view that the coordinator asked for.
    state : what the last step with a `Keep` left here; None before the first, and where that was a
        message with other fields than this step's.
    entropy : (study seed, site, call): whatever is drawn here is drawn from these.
    among : the sites of the sum that hides this one's part, itself too; () where none does.
    """

    name: str
    data: Data
    state: State
    entropy: tuple[int, ...]
    among: tuple[str, ...] = ()

    @property
    def rng(self) -> np.random.Generator:
        """A fresh generator that depends on (study seed, site, call number) alone."""
        return np.random.default_rng(self.entropy)

    @property
    def seed(self) -> int:
        """The same as one integer below 2^63, for libraries with generators of their own."""
        return int(np.random.SeedSequence(self.entropy).generate_state(1, np.uint64)[0] >> 1)


def entropy(seed: int, site: str, call: int) -> tuple[int, ...]:
    """Return what all random draws of `site` in `call` derive from."""
    return (seed, int.from_bytes(site.encode(), "big"), call)


def mark_of(site: str) -> int:
    """Return a number below 2⁶³ for a site's name, by which it finds its place in an array."""
    return int.from_bytes(hashlib.blake2b(site.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Keep(Generic[R, Kept]):
    """A reply, and the message the site keeps for its next step."""

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
    state : the message type that it finds in, or leaves as, `Site.state`; None without.
    keeps : whether it leaves a state.
    private : whether its reply leaves a site with noise alone (`Private`, `Noised`).
    noised : whether its reply is made of several noisy answers (`Noised`).
    apart : the arguments that may differ between the sites of a sum.
    once : the arguments that a site answers for one value only.
    """

    run: Callable[..., Any]
    apart: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
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
        noised = typing.get_origin(returns) is Noised
        private = noised or typing.get_origin(returns) is Private
        plain = typing.get_args(returns)[0] if private else returns
        reply, state = typing.get_args(returns) if keeps else (plain, _found(self.run, hints))
        for kind in (reply, state) if keeps else (reply,):
            if not (isinstance(kind, type) and is_dataclass(kind)):
                raise TypeError(
                    f"step {name} declares to return {returns}; a step returns a @message, "
                    f"Private or Noised of one, or Keep of two. Correct its return annotation."
                )
        if odd := [a for a in self.apart if hints.get(a) not in (bool, int)]:
            raise TypeError(
                f"step {name} lets {odd[0]!r} differ by site, which is no argument of type int or "
                f"bool. Others are the same at all sites of a sum."
            )
        if unknown := [a for a in self.once if a not in hints]:
            raise TypeError(f"step {name} names {unknown[0]!r} in once, and has no such argument.")
        made = {
            "name": name, "reply": reply, "state": state, "keeps": keeps, "private": private,
            "noised": noised,
        }  # fmt: skip
        for key, value in made.items():
            object.__setattr__(self, key, value)


def _found(run: Callable[..., Any], hints: dict[str, Any]) -> type[Any] | None:
    """Return the message type that a step expects in `Site.state`, from its first annotation."""
    site = hints.get(next(iter(inspect.signature(run).parameters), ""))
    if typing.get_origin(site) is not Site:
        return None
    state = typing.get_args(site)[1]
    kinds = [k for k in (typing.get_args(state) or (state,)) if isinstance(k, type)]
    return next((k for k in kinds if is_dataclass(k)), None)


class Summed(Step[P, R]):
    """A step of which only the sum over sites is revealed."""

    verb = "sum"


class Gathered(Step[P, R]):
    """A step of which each site's reply is revealed."""

    verb = "gather"


class _Marking(Protocol):
    """What `summed` with arguments returns: the decorator."""

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
    """What `gathered` with arguments returns: the decorator."""

    def __call__(self, fn: Callable[Concatenate[Site[Data, State], P], R], /) -> Gathered[P, R]:
        """Mark a step."""
        ...


@overload
def summed(fn: Callable[Concatenate[Site[Data, State], P], Keep[R, Kept]], /) -> Summed[P, R]: ...
@overload
def summed(fn: Callable[Concatenate[Site[Data, State], P], Private[R]], /) -> Summed[P, R]: ...
@overload
def summed(fn: Callable[Concatenate[Site[Data, State], P], Noised[R]], /) -> Summed[P, R]: ...
@overload
def summed(fn: Callable[Concatenate[Site[Data, State], P], R], /) -> Summed[P, R]: ...
@overload
def summed(*, apart: tuple[str, ...] = (), once: tuple[str, ...] = ()) -> _Marking: ...
def summed(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    apart: tuple[str, ...] = (),
    once: tuple[str, ...] = (),
) -> Any:
    """Mark a site step of which only the sum over sites may be revealed.

    Parameters
    ----------
    apart : the arguments that may differ by site; see the header of this module.
    once : the arguments that have one value at a site.
    """
    if fn is None:
        return partial(Summed[..., Any], apart=apart, once=once)
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
def gathered(*, once: tuple[str, ...]) -> _MarkingEach: ...
def gathered(fn: Callable[..., Any] | None = None, /, *, once: tuple[str, ...] = ()) -> Any:
    """Mark a site step of which each site's reply may be revealed.

    Parameters
    ----------
    once : the arguments that have one value at a site.
    """
    if fn is None:
        return partial(Gathered[..., Any], once=once)
    return Gathered(fn)
