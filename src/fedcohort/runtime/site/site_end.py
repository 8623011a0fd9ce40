"""A site's end of a network: from request bytes to answer bytes, without an engine.

A request is read strictly; its session is opened (a node asks its policy here); the step runs on
the state of the named base call; answer and new state are stored before the answer leaves. So

* a repeated request is answered from the store, and never applied twice;
* a call that the coordinator gave up is undone: the next call names an older base;
* steps are pure functions of (seed, site, call, state, arguments), so any retry is bit-equal;
* a sum leaves masked if the site's own rule says so, whatever is asked (`masked.end`).

Revealed: replies, each noted first, and refusals (`refusals`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fedcohort.arrays import Array
from fedcohort.protocol import views
from fedcohort.protocol.arguments import Arguments
from fedcohort.protocol.errors import JournalMismatch, Refused
from fedcohort.protocol.federation import View
from fedcohort.protocol.host import Call, Host
from fedcohort.protocol.message import parameters_of
from fedcohort.protocol.wire import Malformed, decode, encode, head
from fedcohort.runtime.calls import NO_VIEW, Request, Seen, refusal_bytes, reply_bytes
from fedcohort.runtime.masked import (
    STAGES,
    MaskedEnd,
    Stage,
    SumRule,
    check_hidden,
    check_sum,
    part_bytes,
    share_of,
)
from fedcohort.runtime.reply_store import Answers, Kept
from fedcohort.runtime.site.limits import Limits
from fedcohort.runtime.site.refusals import Refusals, disk

#: Sessions whose data is held ready, and views.
SESSIONS, VIEWS = 4, 8

_NOTHING = Arguments(MappingProxyType({}), ())


@dataclass(frozen=True)
class Left:
    """One reply before it leaves: shapes and types, never a number.

    Attributes
    ----------
    fields : by name, {"shape", "dtype", "bytes"}.
    masked : only its sum with others can be read.
    """

    run: str
    session: str
    call: int
    step: str
    verb: str
    fields: Mapping[str, Mapping[str, Any]]
    round: int = 0
    masked: bool = False


class _Lacks(Exception):
    """The view's text is not here: it is asked for."""


class _Session:
    """One open session.

    Attributes
    ----------
    history : the latest that was asked.
    bases : history → the newest base it was asked with; none before the first.
    kept : its stored calls, with the digests of their requests.
    state : a call, and the state that it left.
    last : the latest call that changed no state: digest and reply.
    masks : its half of masked sums.
    over : it was dropped; the call in progress overwrites its secrets at the end.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.host: Host | None = None
        self.history: str | None = None
        self.bases: dict[str, int] = {}
        self.kept: dict[int, bytes] = {}
        self.state: tuple[int, dict[str, Array]] | None = None
        self.last: tuple[bytes, bytes] | None = None
        self.masks: MaskedEnd | None = None
        self.over = False

    def drop(self) -> None:
        """Overwrite its secrets, now or after the call in progress."""
        self.over = True
        self.clear()

    def clear(self) -> None:
        """Overwrite the secrets of a session that was dropped, unless a call is at it."""
        if self.over and self.lock.acquire(blocking=False):
            try:
                if self.masks is not None:
                    self.masks.close()
                self.masks = None
            finally:
                self.lock.release()


class SiteEnd:
    """One site's answers to a coordinator. Threads may share it; a session's calls take turns.

    Parameters
    ----------
    site : its name.
    open_session : (run, session) → the site's host. Of `Refused` and `VerbRefused` the text is
        told; of
        other errors the class alone.
    answers : where states are kept.
    limits : on requests and replies.
    note : gets each reply before it leaves; if it raises, nothing leaves.
    log : gets one line for each failed request, without values.
    sums : run → the site's rule for sums; without, it has no keys and answers plain sums.
    """

    def __init__(
        self,
        site: str,
        open_session: Callable[[str, str], Host],
        answers: Answers,
        *,
        limits: Limits | None = None,
        note: Callable[[Left], None] | None = None,
        log: Callable[[str], None] | None = None,
        sums: Callable[[str], SumRule] | None = None,
    ):
        self.site = site
        self._open = open_session
        self._answers = answers
        self._limits = limits or Limits()
        self._note = note
        self._refusals = Refusals(site, log)
        self._sums = sums
        self._lock = threading.Lock()
        self._sessions: OrderedDict[tuple[str, str], _Session] = OrderedDict()
        self._views: OrderedDict[tuple[str, str], View] = OrderedDict()

    def handle(self, body: bytes) -> bytes:
        """Return the answer to a request; it never raises."""
        request = None
        try:
            try:
                if self._is_stage(body):
                    request = Stage.read(body, self._limits.request_bytes)
                else:
                    request = Request.read(body, self._limits.request_bytes)
            except Malformed as error:
                raise Refused("malformed", f"site {self.site!r} was sent {error}") from None
            session = self._session(request.run, request.session)
            try:
                with session.lock:
                    if isinstance(request, Stage):
                        with disk():
                            return self._masks(session, request).stage(request)
                    return self._answer(session, request)
            finally:
                session.clear()
        except _Lacks:
            return refusal_bytes(NO_VIEW, "the text of the view is asked for")
        except Exception as error:
            return self._refusals.of(error, request)

    def _is_stage(self, body: bytes) -> bool:
        """Return whether a request says that it is a stage of a masked sum."""
        if len(body) > self._limits.request_bytes:
            return False
        try:
            return head(body).get("kind") in STAGES
        except Malformed:
            return False

    def close(self, run: str, session: str | None = None) -> None:
        """Forget a session, or all of a run: it is over."""
        with self._lock:
            ended = [k for k in self._sessions if k[0] == run and session in (None, k[1])]
            dropped = [self._sessions.pop(key) for key in ended]
        for one in dropped:
            one.drop()
        self._answers.forget(run, session)

    def left(self, run: str, session: str) -> tuple[dict[str, Array], frozenset[str]] | None:
        """Return what a session's last step left here, and all sites of its masked sums.

        None if no step left anything, or the record is damaged.
        """
        with disk():
            found, members = self._answers.latest(run, session), self._answers.members(run, session)
        try:
            state = {} if found is None else decode(found)[0]
        except Malformed:
            return None
        return (state, members) if state else None

    # one call -------------------------------------------------------------------------

    def _session(self, run: str, name: str) -> _Session:
        with self._lock:
            session = self._sessions.setdefault((run, name), _Session())
            self._sessions.move_to_end((run, name))
            dropped = [
                self._sessions.popitem(last=False)[1] for _ in range(len(self._sessions) - SESSIONS)
            ]
        for one in dropped:
            one.drop()
        return session

    def _answer(self, session: _Session, request: Request) -> bytes:
        """Return a call's reply, masked where it is asked so, if the site's rule allows it."""
        rule = None if self._sums is None else self._sums(request.run)
        if session.host is None:
            session.host = self._open(request.run, request.session)
        step = session.host.step(request.step)
        sums = step.verb == "sum"  # the host refuses another verb
        part = check_sum(self.site, rule, request) if sums else None
        check_hidden(self.site, rule, step, part)
        share = share_of(self.site, rule, request, part) if step.private else 1
        masks = None if part is None else self._masks(session, request)
        if part is not None and masks is not None:
            masks.check(part)
            masks.check_alike(request, part, step.apart, reads=step.state is not None)
        among = () if part is None else part.asked.members
        company = 0 if part is None or masks is None else masks.company(part)
        reply = self._reply(session, request, share, among, company, masks)
        if part is None or masks is None:
            return reply
        with disk():
            made = masks.mask(
                request, part, decode(reply)[0], parameters_of(step.reply), whole=bool(step.once)
            )
        return part_bytes(request.history, request.call, made)

    def _masks(self, session: _Session, request: Request | Stage) -> MaskedEnd:
        """Return the session's half of masked sums, for the history that is asked."""
        key = (request.run, request.session, request.history)
        if session.masks is None or session.masks.key != key:
            rule = None if self._sums is None else self._sums(request.run)
            if session.masks is not None:
                session.masks.close()
            if session.host is None:
                session.host = self._open(request.run, request.session)
            size = session.host.size
            session.masks = MaskedEnd(self.site, rule, key, self._answers, lambda: size)
        return session.masks

    def _reply(
        self, session: _Session, request: Request, share: int, among: tuple[str, ...],
        company: int = 0, masks: MaskedEnd | None = None,
    ) -> bytes:  # fmt: skip
        """Return a call's reply as it is, from the store or made now."""
        if session.host is None:
            session.host = self._open(request.run, request.session)
        host, key = session.host, (request.run, request.session, request.history)
        if session.history != request.history:
            with disk():
                session.kept = self._answers.calls(*key)
            session.history, session.state, session.last = request.history, None, None
        digest = request.digest()
        if session.kept.get(request.call) == digest:
            known = self._load(key, request.call)
            if known is not None and known.digest == digest:
                return known.reply
        if session.last is not None and session.last[0] == digest:
            return session.last[1]
        base = -1 if request.base is None else request.base
        if base < (newest := session.bases.get(request.history, -1)):
            raise Refused(
                "secure",
                f"site {self.site!r} was asked with the state of call {newest} before, and "
                f"is asked {request.step:.62} with an older one: two sums of one question under "
                f"two states would tell its part. Start again without --resume.",
            )
        step = host.step(request.step)
        if masks is not None and step.state is not None:
            with disk():
                masks.check_latest(request, session.kept)
        call = Call(
            request.call, step, request.verb, self._view(request.view), _NOTHING, request.round,
            share=share, history=request.history, among=among, company=company,
        )  # fmt: skip
        arguments = request.parcel.open()
        self._limits.check_min_cell(self.site, arguments)
        host.state = self._state(session, request)
        answer = host.answer(call, arguments)
        session.bases[request.history] = base
        reply = reply_bytes(request.history, request.call, answer.reply)
        self._limits.check_reply(self.site, request.step, answer.reply, reply)
        if self._note is not None:
            with disk():
                self._note(_left(request, answer.reply))
        if answer.state is None and answer.spent is None:
            session.last = (digest, reply)
            return reply
        kept = Kept(digest, reply, encode(answer.state or {}))  # noise is never drawn twice
        with disk():
            self._answers.save(*key, request.call, request.base, kept)
        stay = {n: k for n, k in session.kept.items() if n > request.call or n == request.base}
        session.kept = {**stay, request.call: digest}
        if answer.state is not None:
            session.state = (request.call, answer.state)
        return reply

    def _view(self, seen: Seen | None) -> View | None:
        """Return the view of a request, rebuilt if its text came along."""
        if seen is None:
            return None
        key = (seen.kind, seen.mark)
        with self._lock:
            if known := self._views.get(key):
                self._views.move_to_end(key)
                return known
        if seen.spec is None:
            raise _Lacks
        view = views.rebuild(seen.kind, seen.spec)
        with self._lock:
            self._views[key] = view
            while len(self._views) > VIEWS:
                self._views.popitem(last=False)
        return view

    def _state(self, session: _Session, request: Request) -> dict[str, Array] | None:
        """Return the state that the site had after the request's base; that at first before any.

        Raises
        ------
        JournalMismatch : it is not kept here.
        """
        base = request.base
        if base is None:
            return None if session.host is None else session.host.first
        if session.state is None or session.state[0] != base:
            key = (request.run, request.session, request.history)
            kept = self._load(key, base) if base in session.kept else None
            if kept is None:
                held = sorted(session.kept.keys() - {base})
                found = f"those of calls {held}" if held else "none"
                lost = "holds no sound" if base in session.kept else "holds no"
                raise JournalMismatch(
                    f"site {self.site!r} {lost} state of call {base}, on which call "
                    f"{request.call} builds, but {found}. Start again without --resume."
                )
            session.state = (base, decode(kept.state)[0])
        return session.state[1]

    def _load(self, key: tuple[str, str, str], call: int) -> Kept | None:
        """Return a kept call; None if lost or damaged."""
        with disk():
            kept = self._answers.load(*key, call)
        try:
            for record in () if kept is None else (kept.reply, kept.state):
                decode(record)
        except Malformed:
            self._refusals.write(f"what is kept of call {call} is damaged on this site's disk")
            return None
        return kept


def _left(request: Request, arrays: Mapping[str, Array]) -> Left:
    fields = {
        k: {"shape": list(a.shape), "dtype": a.dtype.name, "bytes": a.nbytes}
        for k, a in arrays.items()
    }
    head = (request.run, request.session, request.call, request.step, request.verb)
    return Left(*head, fields, request.round, request.masked is not None)
