"""Messages between lead, site and coordinator other than calls, as bytes.

A message is a record of `protocol.wire`: named arrays and a `meta` with a `kind`. Only errors of
this package are sent, as class and text; they hold names and rules.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import errors
from fedcohort.protocol.errors import FedcohortError, Refused
from fedcohort.protocol.line import Silence
from fedcohort.protocol.wire import Malformed, decode, encode, head
from fedcohort.secure.channel import Refusal
from fedcohort.secure.trust import CODES

#: The longest text of an error or a reason that is taken from a peer.
LONGEST = 2_000
#: The longest count of a ledger's lines that a message states.
LONGEST_LEDGER = 1 << 50
#: How a study ends for a site: done, failed, cancelled, or without this site.
DONE, FAILED, CANCELLED, WITHOUT = "done", "failed", "cancelled", "without"
_HASH = re.compile(r"[0-9a-f]{64}")
STATES = ("approved", "waiting", "refused")
#: Codes of a site whose people must act before it can answer; the study is not refused.
PASSING = ("disk", "older")
#: Codes of a channel that cannot be opened; the study is not refused.
OF_CHANNEL = (*CODES, "network", "forged", "malformed", "replayed", "no key", "busy", "failed",
              "version", "refused")  # fmt: skip
Body = tuple[dict[str, Array], dict[str, Any]]


@dataclass
class Standing:
    """Where one site stands with a study.

    Attributes
    ----------
    state : "approved", "refused", "waiting" (for its steward), or "away" (never reached so far).
    reason : why, in the site's words.
    """

    state: str = "away"
    reason: str = ""


def is_hash(text: object) -> bool:
    """Return whether a text is a study's whole hash."""
    return isinstance(text, str) and _HASH.fullmatch(text) is not None


def ask(kind: str, arrays: Mapping[str, Array] | None = None, **meta: Any) -> bytes:
    """Return one request."""
    return encode(arrays or {}, {"kind": kind, **meta})


def offer(signed: bytes) -> bytes:
    """Return the request that puts a study to a site."""
    return ask("offer", offer=signed.decode())


def ranked(run: str, text: str, until: float | None) -> bytes:
    """Return the request that tells a site its place in a ranking.

    Parameters
    ----------
    until : Unix time by which the people there have to answer; None: no limit.
    """
    day = "" if until is None else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(until))
    return ask("ranked", run=run, text=text, until=day)


def ended(run: str, state: str, reason: str, *, resumable: bool) -> bytes:
    """Return the message on how a study ended; a resumable one is not closed."""
    if resumable:
        return ask("end", run=run, end=state, reason=reason[:LONGEST])
    return ask("close", run=run, over=True, end=state, reason=reason[:LONGEST])


def offered(meta: Mapping[str, Any]) -> bytes:
    """Return the signed study of a submission.

    Raises
    ------
    Refused : there is none.
    """
    text = meta.get("offer")
    if not isinstance(text, str) or any("\ud800" <= c <= "\udfff" for c in text):
        raise Refused("malformed", "a submission holds no signed study.")
    return text.encode()


def packed(blob: bytes) -> dict[str, Array]:
    """Return bytes as an array that a record can hold; their number goes beside it."""
    return {"piece": np.frombuffer(blob + bytes(-len(blob) % 8), np.dtype("<u8"))}


def unpacked(arrays: Mapping[str, Array], size: object) -> bytes:
    """Return the bytes that `packed` was given; nothing where they are not there."""
    whole = arrays["piece"].tobytes() if "piece" in arrays else b""
    return whole[:size] if type(size) is int and 0 <= size <= len(whole) else b""


def read(body: bytes) -> Body:
    """Return the arrays and the meta of a request.

    Raises
    ------
    Refused : the bytes are no request.
    """
    try:
        return decode(body)
    except Malformed as error:
        raise Refused("malformed", f"a request is damaged: {error}") from None


def reply(meta: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> bytes:
    """Return one answer."""
    return encode(arrays or {}, meta)


def failure(error: FedcohortError) -> bytes:
    """Return the answer that says why there is none."""
    text = " ".join(str(error).split())[:LONGEST]
    code = error.code if isinstance(error, Refused) else ""
    return reply({"kind": "error", "class": type(error).__name__, "code": code, "text": text})


def answer(body: bytes) -> Body:
    """Return the arrays and the meta of an answer.

    Raises
    ------
    FedcohortError : the answer is an error; one of the class that the peer raised.
    """
    arrays, meta = decode(body)
    if meta.get("kind") != "error":
        return arrays, meta
    text = printable(meta.get("text"))
    name = str(meta.get("class", ""))
    if name == "Refused":
        raise Refused(printable(meta.get("code")) or "refused", text)
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, FedcohortError)):
        kind = FedcohortError
    raise kind(text)


def standing(body: bytes | Silence) -> Standing | None:
    """Return a site's state, from its answer to an offer; None if it is silent.

    A refused channel, a full disk or a restored state decides nothing: the reason is shown and the
    site
    is asked again.
    """
    if isinstance(body, Refusal) and body.code not in OF_CHANNEL:
        return Standing("refused", printable(body.text))
    if isinstance(body, Silence):
        return Standing("away", printable(body.text)) if isinstance(body, Refusal) else None
    try:
        _, meta = answer(body)
    except FedcohortError as error:
        return Standing("away" if passes(body) else "refused", printable(str(error)))
    state = meta.get("state")
    if state not in STATES:
        return Standing("refused", "its answer cannot be read")
    return Standing(str(state), printable(meta.get("reason")))


def passes(body: bytes) -> bool:
    """Return whether an answer says that people at the site must act before it can answer."""
    return head(body).get("reason") in PASSING


def printable(text: object) -> str:
    """Return a peer's text as one line that a terminal can show."""
    words = " ".join(str(text or "").split())[:LONGEST]
    return "".join(c if c.isprintable() else "?" for c in words)


def seconds(meta: Mapping[str, Any], key: str) -> float | None:
    """Return a positive number of seconds from a request, or None if it is not there.

    Raises
    ------
    Refused : it is no such number.
    """
    value = meta.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e8:
        raise Refused("malformed", f"{key} is not a number of seconds.")
    return float(value)


def digest(blob: bytes) -> str:
    """Return the SHA-256 of bytes as text."""
    return hashlib.sha256(blob).hexdigest()
