"""The site's side of every runtime: it finds a step, checks the verb, runs it, and checks the
reply.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.errors import (
    DataError,
    FedcohortError,
    InputError,
    Refused,
    SiteFailed,
    VerbRefused,
)
from fedcohort.protocol.federation import View
from fedcohort.protocol.message import checked, packed
from fedcohort.protocol.once import InMemory, Once, check_once
from fedcohort.protocol.private import Drawing, Guard, Noised, Private, Spent
from fedcohort.protocol.step import Keep, Site, Step, entropy
from fedcohort.protocol.updates import Fit, check_sense


@dataclass(frozen=True)
class Call:
    """One call to the sites.

    Attributes
    ----------
    number : of the call in the run.
    share : smallest number of sites in a sum whose parts nobody sees, or 1.
    history : the attempt that a call over a network belongs to.
    among : sites whose sum hides each of them, masked if it leaves; () if the sum is of too few.
    company : the size that these sites signed (`Host.size`); 0 if unknown.
    waited : rounds that passed until sites were back.
    awaits : number of sites that the call waits for.
    whole : whether nothing is revealed without all sites (`Federation.awaiting`).
    least : smallest number of sites in the result, by the quorum.
    """

    number: int
    step: Step[..., Any]
    verb: str
    view: View | None
    arguments: Arguments
    round: int = 0
    share: int = 1
    history: str = ""
    among: tuple[str, ...] = ()
    company: int = 0
    waited: int = 0
    awaits: int = 0
    whole: bool = False
    least: int = 0


@dataclass(frozen=True)
class Answer:
    """Arrays that leave a site, and arrays that it keeps (None: its state is unchanged).

    `spent` is the noise in the reply, and what the fit has spent with it.
    """

    reply: dict[str, Array]
    state: dict[str, Array] | None
    spent: Spent | None = None


class Host:
    """One site: its data, its state, and the steps it agrees to run.

    Results of views are cached, so that preprocessing costs one pass per fit.

    Parameters
    ----------
    consent : raises `Refused` for a call that exceeds what the site agreed to; it is called
        before the data are read.
    guard : for a private fit: adds noise, counts, and refuses other calls.
    kept : called with the call, its arguments and the state that its step leaves here, before the
        reply leaves.
    size : number of rows, or events, rounded up; the other sites of a masked sum get it. 0:
        unknown.
    once : remembers the first values of arguments with one value (`Step.once`); by default as
        long as this host exists.

    Attributes
    ----------
    seconds : processor time of its steps, in their thread.

    Raises
    ------
    InputError : two different steps have one name, so that the site could run the wrong one.
    """

    def __init__(
        self,
        name: str,
        data: object,
        steps: Iterable[Step[..., Any]],
        seed: int = 0,
        consent: Callable[[Call, Mapping[str, Any]], None] | None = None,
        guard: Guard | None = None,
        kept: Callable[[Call, Mapping[str, Any], Mapping[str, Array]], None] | None = None,
        size: int = 0,
        once: Once | None = None,
    ):
        self.size = size
        self._once = once or InMemory()
        self.name = name
        self.seed = seed
        #: What the site has kept, and what it has at the start of a run.
        self.state: dict[str, Array] | None = None
        self.first: dict[str, Array] | None = None
        self.seconds = 0.0
        self._data = data
        self._consent = consent
        self._guard = guard
        self._kept = kept
        self._steps: dict[str, Step[..., Any]] = {}
        for step in steps:
            if (known := self._steps.setdefault(step.name, step)).run is not step.run:
                raise InputError(
                    f"two steps are called {step.name!r}: one of {known.run.__module__}, one of "
                    f"{step.run.__module__}. Rename one of the functions."
                )
        self._seen: dict[str, Any] = {}

    @property
    def keeps(self) -> bool:
        """Whether one of its steps leaves a state here."""
        return any(step.keeps for step in self._steps.values())

    def data_through(self, view: View | None) -> Any:
        """Return this site's data through `view`."""
        if view is None:
            return self._data
        key = view.spec
        if key not in self._seen:
            self._seen = {key: view(self._data)}
        return self._seen[key]

    def sees(self, view: View) -> bool:
        """Return whether the result of a view is cached here."""
        return view.spec in self._seen

    def show(self, view: View, data: Any, seconds: float) -> None:
        """Cache the result of a view that was made together with those of other sites."""
        self._seen = {view.spec: data}
        self.seconds += seconds

    def step(self, name: str) -> Step[..., Any]:
        """Return the step of that name.

        Raises
        ------
        VerbRefused : this site agreed to no such step.
        """
        step = self._steps.get(name)
        if step is None:
            raise VerbRefused(
                f"site {self.name!r} does not know the step {name[:60]!r}; it agreed to "
                f"{sorted(self._steps)}. Register the method that declares the step."
            )
        return step

    def agreed(self, call: Call, *, alone: bool = False) -> Step[..., Any]:
        """Return the step of a call, if this site agreed to it with that verb.

        Parameters
        ----------
        alone : see `answer`.

        Raises
        ------
        VerbRefused : it did not.
        """
        step = self.step(call.step.name)
        if step.run is not call.step.run:
            raise VerbRefused(
                f"site {self.name!r} knows another step {step.name!r} than it is asked for. "
                f"Register the method that declares the step."
            )
        if step.verb != call.verb:
            raise VerbRefused(
                f"site {self.name!r} refuses {call.verb}({step.name}): only the {step.verb} of "
                f"{step.name} may be revealed. Call fed.{step.verb}({step.name}, ...) instead."
            )
        if step.alone and not (alone and self.open):
            raise VerbRefused(
                f"site {self.name!r} refuses {step.name}: it is for a fit of one site alone, in "
                f"the process that asks. Ask for the steps of the fit over sites instead."
            )
        return step

    @property
    def open(self) -> bool:
        """Whether it answers each call without consent and without noise."""
        return self._consent is None and self._guard is None

    def _named(self, view: View | None) -> Any:
        """Return the result of `data_through`; an error about the data names the site."""
        try:
            return self.data_through(view)
        except DataError as error:
            where = f"site {self.name!r}"
            if str(error).startswith(where):
                raise
            raise type(error)(f"{where}: {error}") from error

    def answer(
        self,
        call: Call,
        arguments: Mapping[str, Any],
        *,
        lent: bool = False,
        alone: bool = False,
    ) -> Answer:
        """Run one step on this site's data.

        Parameters
        ----------
        lent : whether large arrays of the reply may be the step's own, for a caller in this process
            that reads a reply without a state before the next step runs.
        alone : whether the caller is a fit of this site alone, in this process (`Step.alone`).

        Raises
        ------
        VerbRefused : the step is unknown here, or may not be revealed with this verb.
        SiteFailed : the step failed, or its reply may not leave the site. The message has the
            kind of failure, never its text, which may hold a patient's value.
        Refused : the call exceeds what the site agreed to.
        """
        step = self.agreed(call, alone=alone)
        if self._consent is not None:
            self._consent(call, arguments)
        columns = "" if call.view is None or not step.once else call.view.spec
        check_once(self.name, step, columns, call.among, arguments, self._once)
        if self._guard is not None:
            self._guard.admit(call, arguments)
            return self._noisy(step, call, arguments, self._guard)
        if step.private:
            raise Refused(
                "dp",
                f"site {self.name!r}: step {step.name} leaves with noise alone, and this study "
                f"asks for no differential privacy. Set privacy.dp.",
            )
        out, state, kept = self._kept_by(step, self._run(step, call, arguments))
        widen = step.verb == "sum"
        lent = lent and state is None
        reply = checked(out, step.reply, self.name, step.name, widen=widen, lent=lent)
        check_sense(self.name, call.number, step, reply, arguments)
        if kept is not None and self._kept is not None:
            self._kept(call, arguments, kept)
        return Answer(Fit(reply), state)

    def _noisy(
        self, step: Step[..., Any], call: Call, arguments: Mapping[str, Any], guard: Guard
    ) -> Answer:
        """Run a step of a private fit; its reply leaves with noise, or not at all."""
        public = {k: _copied(v) for k, v in arguments.items()}  # the step may change its own
        out, state, kept = self._kept_by(step, self._run(step, call, arguments))
        if type(out) is not (Noised if step.noised else Private):
            raise Refused(
                "dp",
                f"site {self.name!r}: step {step.name} declares that its reply leaves with noise "
                f"alone, and returned a {type(out).__name__}. Correct its return value.",
            )
        if step.noised:
            drawing = guard.drawing(call)
            reply = self._followed(step, cast("Noised[Any]", out), public, drawing)
            return Answer(checked(reply, step.reply, self.name, step.name), None, drawing.close())
        private = cast("Private[Any]", out)
        reply = checked(private.reply, step.reply, self.name, step.name)
        safe, spent = guard.protect(call, reply, private.sensitivity, call.share)
        if kept is not None and self._kept is not None:
            self._kept(call, public, kept)
        return Answer(safe, state, spent)

    def _kept_by(
        self, step: Step[..., Any], out: Any
    ) -> tuple[Any, dict[str, Array] | None, dict[str, Array] | None]:
        """Return a step's reply, the site's state after it, and the part that the step leaves."""
        if not isinstance(out, Keep):
            return out, None, None
        left: Keep[Any, Any] = out
        before, kind = self.state or {}, step.state or type(None)
        stays = _own(before, kind) if _read_only(kind) else {}
        kept = packed(left.state, kind, self.name, step.name, stays=stays)
        return left.reply, _joined(before, kept, type(left.state)), kept

    def _followed(
        self, step: Step[..., Any], out: Noised[Any], public: Mapping[str, Any], drawing: Drawing
    ) -> Any:
        """Run a course on the coordinator's arguments and on noisy answers; return its reply."""
        if not _sees_no_row(out.course):
            raise Refused(
                "dp",
                f"site {self.name!r}: the course of step {step.name} is no generator function of a "
                f"module without defaults, and could hold rows. Make it one.",
            )
        with self._kept_back(step):
            course = out.course(**public)
            noisy: Any = None
            while True:
                try:
                    point = course.send(noisy)
                except StopIteration as end:
                    return end.value
                answer = out.ask(_copied(point))
                if type(answer) is not Private:
                    raise Refused(
                        "dp",
                        f"site {self.name!r}: step {step.name} answers with a "
                        f"{type(answer).__name__}; only a Private can be given noise.",
                    )
                kind = type(answer.reply)
                exact = checked(answer.reply, kind, self.name, step.name)
                noisy = kind(**drawing.draw(exact, answer.sensitivity))

    def _run(self, step: Step[..., Any], call: Call, arguments: Mapping[str, Any]) -> Any:
        """Run a step; another error than this package's becomes a `SiteFailed` without its text."""
        with self._kept_back(step):
            state = None
            held, kind = self.state, step.state
            if kind is not None and held is not None:
                found = _own(held, kind)
                # the state of a step of another kind is ignored
                if found.keys() == kind.__dataclass_fields__.keys():
                    state = kind(**(_closed(found) if _read_only(kind) else _own_copies(found)))
            data = self._named(call.view)
            drawn = entropy(self.seed, self.name, call.number)
            if self._guard is not None:
                drawn = self._guard.entropy(call) or drawn
            return step.run(Site(self.name, data, state, drawn, call.among), **arguments)

    @contextlib.contextmanager
    def _kept_back(self, step: Step[..., Any]) -> Generator[None]:
        """Turn errors of other packages into a `SiteFailed` with only their kind."""
        began = time.thread_time()
        try:
            yield
        except FedcohortError as error:
            error.near_data = True
            raise
        except Exception as error:
            raise SiteFailed(
                f"site {self.name!r} failed in step {step.name} ({type(error).__name__}). The "
                f"error's text may hold a record and is kept back; run with --debug where the "
                f"data may be seen."
            ) from error
        finally:
            self.seconds += time.thread_time() - began


def _place(kind: type[Any]) -> str:
    """Return what the fields of a state's type begin with in a site's state."""
    return f"{kind.__name__}." if getattr(kind, "beside", False) else ""


def _read_only(kind: type[Any]) -> bool:
    """Return whether steps may not write to the arrays of this type of state; see `Keep`."""
    return getattr(kind, "read_only", False)


def _closed(held: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return arrays of a state after nobody can write to them any more."""
    for a in held.values():
        a.flags.writeable = False
    return held


def _own_copies(held: Mapping[str, Array]) -> dict[str, Array]:
    return {k: a.copy() for k, a in held.items()}


def _own(held: Mapping[str, Array], kind: type[Any]) -> dict[str, Array]:
    """Return the fields that a site holds of one type of state."""
    place = _place(kind)
    if not place:
        return {k: a for k, a in held.items() if "." not in k}
    return {k.removeprefix(place): a for k, a in held.items() if k.startswith(place)}


def _joined(
    held: Mapping[str, Array], kept: Mapping[str, Array], kind: type[Any]
) -> dict[str, Array]:
    """Return a site's state after a step left one of this type."""
    place = _place(kind)
    stays = {k: a for k, a in held.items() if ("." in k if not place else not k.startswith(place))}
    return {**stays, **{place + k: a for k, a in kept.items()}}


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _sees_no_row(course: Any) -> bool:
    """Return whether a course is code alone, so that it can hold nothing of a site."""
    return (
        inspect.isgeneratorfunction(course)
        and inspect.isfunction(course)
        and course.__closure__ is None
        and not course.__kwdefaults__
        and not course.__defaults__
        and "<locals>" not in course.__qualname__
    )
