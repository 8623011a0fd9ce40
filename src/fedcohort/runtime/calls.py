"""A call and its answer as bytes: the same on every engine, read strictly at both ends.

    request   arrays of the arguments;  meta {"kind": "call", "run", "session", "history", "call",
              "base", "step", "verb", "view": {"kind", "mark"[, "spec"]} or null, "tree", "round"
              [, "asked"][, "masked"]}
    reply     arrays of the reply;      meta {"kind": "reply", "history", "call"}
    refusal   no array;                 meta {"kind": "error", "code", "text"[, "reason"]}

`run` and `session` name one federation of one study. `history` is drawn anew when a run starts from
the beginning, which separates it from earlier attempts. `base` is the last call whose state counts
at this site, or null. A reply names its history and call. Of a sum, `asked` is the number of sites,
and `masked` tells how the reply joins a masked sum, whose reply has its own form (`masked.calls`).
A refusal's `code` is the name of an error class.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from fedcohort.arrays import Array
from fedcohort.protocol import errors, views
from fedcohort.protocol.arguments import Parcel
from fedcohort.protocol.errors import FedcohortError, Refused, ReplyRejected
from fedcohort.protocol.host import Call
from fedcohort.protocol.updates import rejected
from fedcohort.protocol.wire import Malformed, decode, encode

#: The code by which a site says that it lacks the text of a view.
NO_VIEW = "view"
#: The most characters of a name, of a refusal's text; the largest number of a call.
NAME, TEXT, NUMBER = 1000, 2000, 2**53

_KEYS = {
    "kind",
    "run",
    "session",
    "history",
    "call",
    "base",
    "step",
    "verb",
    "view",
    "tree",
    "round",
}


@dataclass(frozen=True)
class Seen:
    """The view of a request: its kind, its mark, and its text if sent."""

    kind: str
    mark: str
    spec: str | None = None


@dataclass(frozen=True)
class Request:
    """One call as a site gets it; attributes as in the header of this module."""

    run: str
    session: str
    history: str
    call: int
    base: int | None
    step: str
    verb: str
    view: Seen | None
    parcel: Parcel
    round: int = 0
    asked: int | None = None
    masked: Mapping[str, Any] | None = None

    def to_bytes(self) -> bytes:
        """Return the request as it is sent."""
        view = None
        if self.view is not None:
            view = {"kind": self.view.kind, "mark": self.view.mark}
            if self.view.spec is not None:
                view["spec"] = self.view.spec
        meta = {
            "kind": "call", "run": self.run, "session": self.session, "history": self.history,
            "call": self.call, "base": self.base, "step": self.step, "verb": self.verb,
            "view": view, "tree": self.parcel.tree, "round": self.round,
        }  # fmt: skip
        if self.asked is not None:
            meta["asked"] = self.asked
        if self.masked is not None:
            meta["masked"] = dict(self.masked)
        return encode({str(i): a for i, a in enumerate(self.parcel.arrays)}, meta)

    @classmethod
    def read(cls, body: bytes, most: int | None = None) -> Request:
        """Read a request; its arrays are parts of `body` until the parcel is opened.

        Raises
        ------
        Malformed : not a request.
        """
        arrays, meta = decode(body, most, own=False)
        if set(meta) - {"asked", "masked"} != _KEYS or meta["kind"] != "call":
            raise Malformed("a record that is no call.")
        for key in ("run", "session", "history", "step", "verb"):
            if type(meta[key]) is not str or len(meta[key]) > NAME:
                raise Malformed(f"a call whose {key!r} is no text, or too long.")
        if meta["verb"] not in ("sum", "gather"):
            raise Malformed("a call with a verb that there is not.")
        asked, masked = meta.get("asked", 0), meta.get("masked", {})
        if type(asked) is not int or not 0 <= asked <= NUMBER or type(masked) is not dict:
            raise Malformed("a call whose 'asked' or 'masked' cannot be.")
        for key in ("call", "round"):
            if type(meta[key]) is not int or not 0 <= meta[key] <= NUMBER:
                raise Malformed(f"a call whose {key!r} is no number.")
        base = meta["base"]
        if base is not None and not (type(base) is int and 0 <= base < meta["call"]):
            raise Malformed("a call whose base is no earlier call.")
        if list(arrays) != [str(i) for i in range(len(arrays))]:
            raise Malformed("a call whose arrays are not numbered.")
        return cls(
            meta["run"], meta["session"], meta["history"], meta["call"], base, meta["step"],
            meta["verb"], _seen(meta["view"]), Parcel.read(meta["tree"], list(arrays.values())),
            meta["round"], meta.get("asked"), meta.get("masked"),
        )  # fmt: skip

    def digest(self) -> bytes:
        """Return 16 bytes that identify a repeated request.

        Equal digests: the site's answer must be the same.
        """
        mark = None if self.view is None else self.view.mark
        shapes = [(a.dtype.str, a.shape) for a in self.parcel.arrays]
        head = [self.call, self.base, self.step, self.verb, mark, self.parcel.text, shapes]
        if self.masked is not None:  # its noise depends on the number of sites that share it
            head.append(_members(self.masked))
        found = hashlib.blake2b(json.dumps(head).encode(), digest_size=16)
        for a in self.parcel.arrays:
            found.update(a.data if a.size else b"")
        return found.digest()


def _members(masked: Mapping[str, Any]) -> int:
    """Return among how many sites a reply is masked; 0 where that is not said."""
    try:
        return len(masked["asked"]["members"])
    except (LookupError, TypeError):
        return 0


def _seen(view: object) -> Seen | None:
    """Read the view of a request."""
    if view is None:
        return None
    given = cast("dict[str, object]", view) if type(view) is dict else {}
    if not {"kind", "mark"} <= set(given) <= {"kind", "mark", "spec"}:
        raise Malformed("a call with a view that is none.")
    kind, mark, spec = given["kind"], given["mark"], given.get("spec")
    if not (isinstance(kind, str) and isinstance(mark, str) and len(kind) <= NAME):
        raise Malformed("a call with a view that is none.")
    if "spec" in given and not (isinstance(spec, str) and views.mark_of(kind, spec) == mark):
        raise Malformed("a call with a view whose text has another mark.")
    return Seen(kind, mark, cast("str | None", spec))


def reply_bytes(history: str, call: int, arrays: Mapping[str, Array]) -> bytes:
    """Return a reply as it is sent."""
    return encode(arrays, {"kind": "reply", "history": history, "call": call})


def refusal_bytes(code: str, text: str, reason: str | None = None) -> bytes:
    """Return a refusal as it is sent."""
    meta = {"kind": "error", "code": code, "text": text[:TEXT]}
    return encode({}, meta if reason is None else {**meta, "reason": reason})


def read_reply(
    body: bytes, site: str, history: str, call: Call, most: int
) -> dict[str, Array] | None:
    """Return a site's answer to a call; None: it lacks the view's text.

    `protocol.updates` checks whether the arrays are usable.

    Raises
    ------
    ReplyRejected : bytes that do not answer this call.
    FedcohortError : the site's refusal, in the class that it names.
    """
    try:
        arrays, meta = decode(body, most)
    except Malformed as error:
        raise odd(site, call, str(error)) from None
    if meta.get("kind") == "error":
        error = refusal_of(meta, arrays)
        if error is None:
            raise odd(site, call, "a refusal of no known form.")
        if isinstance(error, str):
            return None
        raise error
    if meta != {"kind": "reply", "history": history, "call": call.number} or (
        type(meta["call"]) is not int
    ):
        raise odd(site, call, "the answer to another call.")
    return arrays


def refusal_of(meta: dict[str, Any], arrays: Mapping[str, Array]) -> FedcohortError | str | None:
    """Return a refusal's error, or `NO_VIEW`; None for bytes that are no refusal."""
    code, text, reason = (meta.get(k) for k in ("code", "text", "reason"))
    short = type(code) is str and type(text) is str and len(code) <= NAME and len(text) <= TEXT
    if arrays or not short or not {"kind", "code", "text"} <= set(meta) <= {
        "kind", "code", "text", "reason",
    }:  # fmt: skip
        return None
    said = "".join(c if c.isprintable() else "?" for c in cast("str", text))
    if code == NO_VIEW:
        return NO_VIEW
    if code == "Refused" and type(reason) is str and len(reason) <= NAME:
        return Refused(reason, said)
    kind = getattr(errors, cast("str", code), None) if code != "Refused" else None
    if not (isinstance(kind, type) and issubclass(kind, FedcohortError)):
        return None
    return kind(said)


def odd(site: str, call: Call, what: str) -> ReplyRejected:
    """Return the error of a reply that is none to this call."""
    more = "Check that both ends run the same version of fedcohort."
    return rejected(site, call.number, call.step.name, f"{what} {more}")


_mark_of = lru_cache(maxsize=8)(views.mark_of)


class Requests:
    """The requests of one call: made once for all sites that get the same."""

    def __init__(
        self,
        head: tuple[str, str, str],
        call: Call,
        kept: Mapping[str, int],
        cap: int,
        asked: int,
    ):
        self._head, self._call, self._kept, self._cap = head, call, dict(kept), cap
        self._asked = asked if call.verb == "sum" else None
        self._made: dict[tuple[int, int | None, bool], bytes] = {}
        self._kind = self._spec = self.mark = ""
        if call.view is not None:
            self._kind, self._spec = views.kind_of(call.view), call.view.spec
            self.mark = _mark_of(self._kind, self._spec)

    def to(self, site: str, *, told: bool, part: Mapping[str, Any] | None = None) -> bytes:
        """Return the request to one site, with or without the view's text.

        Parameters
        ----------
        part : how its reply joins a masked sum; these requests differ by site.

        Raises
        ------
        Refused : it is larger than the cap.
        """
        call, base = self._call, self._kept.get(site)
        parcel = call.arguments.parcel(site)
        key = (id(parcel), base, told)
        if part is not None or key not in self._made:
            seen = None
            if self.mark:
                seen = Seen(self._kind, self.mark, None if told else self._spec)
            body = Request(
                *self._head, call.number, base, call.step.name, call.verb, seen, parcel, call.round,
                self._asked, part,
            ).to_bytes()  # fmt: skip
            if len(body) > self._cap:
                raise Refused(
                    "oversized",
                    f"step {call.step.name} would send {len(body)} bytes to site {site!r}; the "
                    f"limit is {self._cap}. Choose a smaller model, or raise the limit.",
                )
            self._made[key] = body
        return self._made[key]
