"""The messages of a masked sum as bytes, besides those of `calls`; read as strictly.

    stage     no array;        meta {"kind": "keys" | "shares" | "sign" | "unmask", "run",
                                "session", "history", "body"}
    said      no array;        meta {"kind": "said", "of", "history", "body"}
    part      "words" (W,);    meta {"kind": "part", "history", "call", "masked", "settled"}

A masked call is a request whose `masked` holds {"asked", "post", "floats", "held"}: the messages of
`secure.exchange.messages`; the fields that sites widen to real numbers because another site has
real ones; and, of a step that reads a state, the members that have one. Each `body` is such a
message too; of "keys", {"epoch", "slots"}.

A part's `settled` names the sites for which this call was revealed before (it can be revealed again
for exactly those), or is null.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from fedcohort.arrays import Array
from fedcohort.protocol.arguments import Parcel
from fedcohort.protocol.errors import FedcohortError, Refused
from fedcohort.protocol.host import Call
from fedcohort.protocol.wire import Malformed, decode, encode
from fedcohort.runtime.calls import NAME, NO_VIEW, odd, refusal_of
from fedcohort.secure import SLOTS, Asked, Masked, Post, digest

#: The kinds of a stage, in their order.
STAGES = ("keys", "shares", "sign", "unmask")
#: By this code a site says that it does not hold the epoch that a request names.
LOST = "epoch"

_STAGE = ("kind", "run", "session", "history", "body")
_PART = {"asked", "post", "floats", "held"}


@dataclass(frozen=True)
class Stage:
    """One request of a masked sum, beside its call; attributes as in the header of this module."""

    kind: str
    run: str
    session: str
    history: str
    body: Mapping[str, Any]

    def to_bytes(self) -> bytes:
        """Return the request as it is sent."""
        return encode({}, {name: getattr(self, name) for name in _STAGE})

    @classmethod
    def read(cls, body: bytes, most: int | None = None) -> Stage:
        """Read a request.

        Raises
        ------
        Malformed : anything but a stage of a masked sum.
        """
        arrays, meta = decode(body, most)
        if arrays or set(meta) != set(_STAGE) or meta["kind"] not in STAGES:
            raise Malformed("a record that is no stage of a masked sum.")
        for key in _STAGE[:-1]:
            if type(meta[key]) is not str or len(meta[key]) > NAME:
                raise Malformed(f"a stage of a masked sum whose {key!r} is no text, or too long.")
        if type(meta["body"]) is not dict:
            raise Malformed("a stage of a masked sum without a body.")
        return cls(**meta)


@dataclass(frozen=True)
class Part:
    """How a call's reply joins a masked sum; attributes as in the header of this module."""

    asked: Asked
    post: Post | None
    floats: tuple[str, ...] = ()
    held: tuple[str, ...] = ()

    def to_meta(self) -> dict[str, Any]:
        """Return what is sent."""
        return {
            "asked": self.asked.to_meta(),
            "post": None if self.post is None else self.post.to_meta(),
            "floats": list(self.floats),
            "held": list(self.held),
        }

    @classmethod
    def read(cls, meta: Mapping[str, Any]) -> Part:
        """Read the `masked` of a call.

        Raises
        ------
        Refused : it is none.
        """
        if set(meta) != _PART or not all(_are_texts(meta[k]) for k in ("floats", "held")):
            raise Refused("secure", "a masked call of no known form. Update both ends.")
        post = None if meta["post"] is None else Post.from_meta(meta["post"])
        asked = Asked.from_meta(meta["asked"])
        return cls(asked, post, tuple(meta["floats"]), tuple(meta["held"]))


@dataclass(frozen=True)
class Given:
    """One site's part of a masked sum; `settled` as in the module header."""

    masked: Masked
    settled: tuple[str, ...] | None


def part_bytes(history: str, call: int, given: Given) -> bytes:
    """Return one site's part as it is sent."""
    settled = None if given.settled is None else list(given.settled)
    meta = {
        "kind": "part", "history": history, "call": call, "masked": given.masked.to_meta(),
        "settled": settled,
    }  # fmt: skip
    return encode({"words": given.masked.vector}, meta)


def read_part(
    body: bytes, site: str, history: str, call: Call, part: Part, most: int
) -> Given | None:
    """Return a site's part; None: it lacks the view's text.

    Raises
    ------
    ReplyRejected : bytes that are no part of this sum.
    FedcohortError : the site refused.
    """
    try:
        arrays, meta = decode(body, most)
    except Malformed as error:
        raise odd(site, call, str(error)) from None
    if meta.get("kind") == "error":
        _refused(arrays, meta, odd(site, call, "a refusal of no known form."))
        return None
    masked, settled = meta.pop("masked", None), meta.pop("settled", 0)
    if meta != {"kind": "part", "history": history, "call": call.number} or set(arrays) != {
        "words"
    }:
        raise odd(site, call, "the part of another sum.")
    try:
        found = Masked.from_meta(masked, arrays["words"])
    except Refused as error:
        raise odd(site, call, str(error)) from None
    asked = part.asked
    if (found.name, found.epoch, found.slot) != (site, asked.epoch, asked.slot):
        raise odd(site, call, "the part of another sum.")
    if settled is not None and not _are_texts(settled):
        raise odd(site, call, "the part of another sum.")
    declared = list(call.step.reply.__dataclass_fields__)
    if [f.name for f in found.layout.fields] != declared:
        raise odd(site, call, f"other fields than {', '.join(declared)}.")
    if found.vector.shape != (found.layout.words,) or found.vector.dtype != "<u8":
        raise odd(site, call, "a part that has not the length of its layout.")
    return Given(found, None if settled is None else tuple(settled))


def said_bytes(stage: Stage, body: Mapping[str, Any]) -> bytes:
    """Return the answer to a stage as it is sent."""
    meta = {"kind": "said", "of": stage.kind, "history": stage.history}
    return encode({}, {**meta, "body": dict(body)})


def read_said(body: bytes, site: str, stage: Stage, most: int) -> dict[str, Any]:
    """Return a site's answer to a stage.

    Raises
    ------
    Refused : bytes that do not answer it ("malformed"), or the site's own refusal.
    FedcohortError : the site refused.
    """
    wrong = Refused(
        "malformed",
        f"site {site!r} answered {stage.kind!r} of a masked sum with something else. Check that "
        f"both ends run the same version of fedcohort.",
    )
    try:
        arrays, meta = decode(body, most)
    except Malformed:
        raise wrong from None
    if meta.get("kind") == "error":
        _refused(arrays, meta, wrong)
        raise wrong
    found = meta.pop("body", None)
    head = {"kind": "said", "of": stage.kind, "history": stage.history}
    if arrays or meta != head or type(found) is not dict:
        raise wrong
    return cast("dict[str, Any]", found)


def _refused(arrays: Mapping[str, Array], meta: dict[str, Any], wrong: FedcohortError) -> None:
    """Raise what a refusal names; return where the view's text is asked for."""
    error = refusal_of(meta, arrays)
    if error is None:
        raise wrong
    if error != NO_VIEW:
        raise cast(FedcohortError, error)


def question_of(history: str, call: int) -> str:
    """Return the digest of a call that all sites of a masked sum agree on.

    It is revealed for one set of sites, whatever step, view, round or arguments come under its
    number
    again: a kept reply of a private fit holds the same noise each time, so two sums over different
    sites would cancel that noise (`privacy.guard`).
    """
    return digest("call", history, call)


def about_of(
    step: str, view: str | None, round_: int, parcel: Parcel, apart: Collection[str] = (),
    held: Collection[str] = (),
) -> str:  # fmt: skip
    """Return the digest of what all sites of a masked sum must be asked alike.

    It covers all but the whole-number and yes/no arguments that the step lets differ by site
    (`Step.apart`). A site with a different question (own folds, thresholds or points; a state that
    the
    others lack) would be alone with its reply.

    held : members that have a state, in the order of their names.
    """
    own = {
        name: {"apart": 0} if name in apart and type(v) in (bool, int) else v  # no tree holds that
        for name, v in parcel.tree.items()
    }
    shapes = [(a.dtype.str, a.shape) for a in parcel.arrays]
    told = json.dumps(
        ["about", step, view, round_, own, shapes, [*held]], sort_keys=True
    )  # may hold NaN
    found = hashlib.sha256(hashlib.sha256(told.encode()).digest())
    for a in parcel.arrays:
        found.update(a.data if a.size else b"")
    return found.hexdigest()


def slots_of(n: int, epochs: int) -> int:
    """Return the number of slots of the next epoch of n sites: 4, 16, 64 and so on."""
    return int(max(4, min(4 ** (1 + min(epochs, 3)), 4096 // max(1, n), SLOTS)))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= NAME


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, cast("Sequence[object]", value)))
