"""The site's side of every runtime: it finds a step, checks the verb, runs it, and checks the
reply.
"""

from __future__ import annotations

import contextlib
import inspect
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from fedcohort import mapped
from fedcohort.arrays import Array
from fedcohort.protocol import registry
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
from fedcohort.protocol.message import Total, checked, packed
from fedcohort.protocol.once import InMemory, Once, check_once
from fedcohort.protocol.private import Drawing, Guard, Noised, Private, Spent
from fedcohort.protocol.site_state import closed, joined, own, own_copies, read_only
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

    @property
    def together(self) -> bool:
        """Whether its steps may run together with those of other sites, by a twin."""
        return self.open and type(self).answer is Host.answer

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
        step = self._admitted(call, arguments, alone=alone)
        if self._guard is not None:
            return self._noisy(step, call, arguments, self._guard)
        if step.blocks == "rows" and mapped.table_rows(self._named(call.view)):
            reply = self._added(step, call, arguments)
            check_sense(self.name, call.number, step, reply, arguments)
            return Answer(Fit(reply), None)
        return self._told(step, call, arguments, self._run(step, call, arguments), lent=lent)

    @staticmethod
    def answers(
        hosts: Sequence[Host], call: Call, arguments: Mapping[str, Any]
    ) -> list[Callable[[], Answer]] | None:
        """Run a step's twin for several sites; return for each how to finish its answer.

        Each is what `answer` returns or raises, with the same checks before and after the step.
        None: the sites are to be asked one by one. That is so without a twin, with a guard or
        consent at one of the sites, and where the twin or a check before it fails, so that the
        error is the site's own, in its turn.

        Parameters
        ----------
        arguments : the same for all sites.
        """
        twin = call.step.many
        if twin is None or len(hosts) < 2 or not all(h.together for h in hosts):
            return None
        began = time.thread_time()
        try:
            steps = [h._admitted(call, arguments, alone=False) for h in hosts]
            if any(step.many is not twin for step in steps):
                return None
            outs = twin([h._site(call, call.step, None) for h in hosts], **arguments)
        except Exception:
            return None
        if outs is None or len(outs) != len(hosts):
            return None
        took = (time.thread_time() - began) / len(hosts)
        for h in hosts:
            h.seconds += took
        return [
            partial(h._told, step, call, arguments, out, lent=False)
            for h, step, out in zip(hosts, steps, outs, strict=True)
        ]

    def _admitted(self, call: Call, arguments: Mapping[str, Any], *, alone: bool) -> Step[..., Any]:
        """Return the step of a call that may run: what is checked before the data are read."""
        step = self.agreed(call, alone=alone)
        if self._consent is not None:
            self._consent(call, arguments)
        columns = "" if call.view is None or not step.once else call.view.spec
        check_once(self.name, step, columns, call.among, arguments, self._once)
        if self._guard is not None:
            self._guard.admit(call, arguments)
        elif step.private:
            raise Refused(
                "dp",
                f"site {self.name!r}: step {step.name} leaves with noise alone, and this study "
                f"asks for no differential privacy. Set privacy.dp.",
            )
        return step

    def _told(
        self,
        step: Step[..., Any],
        call: Call,
        arguments: Mapping[str, Any],
        out: Any,
        *,
        lent: bool,
    ) -> Answer:
        """Return what leaves of a step's result: what is checked after it, without a guard."""
        out, state, kept = self._kept_by(step, out)
        lent = lent and state is None
        widen = step.verb == "sum"
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

    def _added(
        self, step: Step[..., Any], call: Call, arguments: Mapping[str, Any]
    ) -> dict[str, Array]:
        """Return a step's reply on a table in scratch files: those on its blocks, added."""
        total = Total()
        with self._kept_back(step):
            entropy = self._entropy(call)

            def run(part: Any) -> Any:
                return step.run(Site(self.name, part, None, entropy, call.among), **arguments)

            def said(line: str) -> None:
                warnings.warn(f"site {self.name!r}: {line}.", stacklevel=2)

            for out in mapped.in_blocks(self._named(call.view), run, said):
                total.add(self.name, checked(out, step.reply, self.name, step.name, widen=True), 1)
        return total.arrays

    def _kept_by(
        self, step: Step[..., Any], out: Any
    ) -> tuple[Any, dict[str, Array] | None, dict[str, Array] | None]:
        """Return a step's reply, the site's state after it, and the part that the step leaves."""
        if not isinstance(out, Keep):
            return out, None, None
        left: Keep[Any, Any] = out
        before, kind = self.state or {}, step.state or type(None)
        stays = own(before, kind) if read_only(kind) else {}
        kept = packed(left.state, kind, self.name, step.name, stays=stays)
        return left.reply, joined(before, kept, type(left.state)), kept

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
                found = own(held, kind)
                # the state of a step of another kind is ignored
                if found.keys() == kind.__dataclass_fields__.keys():
                    state = kind(**(closed(found) if read_only(kind) else own_copies(found)))
            site = self._site(call, step, state)
            try:
                return step.run(site, **arguments)
            finally:
                mapped.release_all(site.data)

    def _site(self, call: Call, step: Step[..., Any], state: Any) -> Site[Any, Any]:
        """Return what a step gets here."""
        data = self._named(call.view)
        if not step.blocks and mapped.table_rows(data):
            raise Refused(
                "memory",
                f"site {self.name!r}: its table is larger than the memory for it, and step "
                f"{step.name} needs the table in memory. Take one of the methods "
                f"{', '.join(registry.of_large_tables())} with default settings; or give more "
                f"memory ({mapped.SETTING}).",
            )
        return Site(self.name, data, state, self._entropy(call), call.among)

    def _entropy(self, call: Call) -> tuple[int, ...]:
        drawn = entropy(self.seed, self.name, call.number)
        return drawn if self._guard is None else self._guard.entropy(call) or drawn

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
