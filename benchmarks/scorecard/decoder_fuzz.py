"""Random and changed bytes at every reader of what a peer sends: declared errors, bounded memory.

    python benchmarks/scorecard/decoder_fuzz.py [--inputs 1000000] [--seed 1]

An input is a valid message that was changed (bits, cuts, splices, lengths, a value of its JSON
replaced by a hostile one; half of them under a new checksum or a new seal that holds), a header
made up of declared types and shapes, or noise. A crash is any error that the reader does not
declare; where a reader declares that it never raises, any error, or an answer that is no message.
Memory is the process's peak (VmHWM) over what it had after the first thousand inputs.
"""

from __future__ import annotations

import json
import logging
import random
import struct
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import numpy as np
from sheet import forget_peak, main, megabytes

import toys
from fedcohort.network import requests
from fedcohort.network.kits.make import Kit
from fedcohort.network.study_offer import Offer
from fedcohort.protocol.arguments import Arguments, Parcel
from fedcohort.protocol.errors import FedcohortError, Refused
from fedcohort.protocol.host import Call
from fedcohort.protocol.wire import Malformed, decode, encode, head
from fedcohort.runtime.calls import Request, Seen, read_reply, refusal_bytes, reply_bytes
from fedcohort.runtime.masked.calls import (
    Given,
    Part,
    Stage,
    part_bytes,
    read_part,
    read_said,
    said_bytes,
)
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site.site_end import SiteEnd
from fedcohort.secure.arithmetic.layout import Layout
from fedcohort.secure.channel import seal
from fedcohort.secure.channel.callee import Callee
from fedcohort.secure.channel.caller import Caller
from fedcohort.secure.exchange import messages
from fedcohort.secure.trust import Trust
from fedcohort.study.file.terms import Terms
from hospital import Hospital, request
from loopback import LoopbackLine

ITEM = "decoder fuzz"
TARGET = "≥ 1,000,000 inputs, 0 crashes, memory growth < 256 MB"
MOST_MB = 256.0
WARM = 1_000

Random = random.Random


@dataclass(frozen=True)
class Reader:
    """What reads a peer's bytes.

    Attributes
    ----------
    share : of the inputs, in proportion to all shares.
    seeds : valid messages.
    read : the reader; takes bytes.
    may : the errors that it declares; none where it never raises.
    record : whether its messages are records of `wire`, whose checksum is made to hold.
    """

    name: str
    share: int
    seeds: tuple[bytes, ...]
    read: Callable[[bytes], object]
    may: tuple[type[Exception], ...]
    record: bool = True


# inputs -----------------------------------------------------------------------------------

#: Values that a reader of JSON may be given where it expects another.
HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 2**31, 2**53 + 1, 2**63, -(2**63), 10**30, 10**400, 0.5,
    -0.0, 1e308, float("nan"), float("inf"), "", " " * 32, " " * 64, "00 " * 32, "x",
    "\0", "é", "\ud800", "\u202e", "a" * 3000, "../../etc", "__class__",
    "f8", "O", "V8", ">f8", "b1", "sum", "call", "error", "Refused", "SystemExit",
    [], {}, [[]], [0, 0], [1, -1], [2**48, 2**48], [True], {"array": 0}, {"array": -1},
    {"list": []}, {"map": {}}, {"array": 0, "list": []}, [["x", "f8", [2]]],
)  # fmt: skip
KINDS = ("f4", "f8", "i4", "i8", "u8", "b1", "O", "V8", "U4", ">f8", "f2", "c16", "", None, 8)
SIZES = (0, 1, 2, 3, 8, 255, 2**16, 2**31, 2**32, 2**48, 2**62, 2**63, -1, 10**30, True, 1.0, "1")


def sealed(body: bytes) -> bytes:
    """Return a record's bytes with a checksum that holds."""
    return body + struct.pack("<I", zlib.crc32(body))


def changed(blob: bytes, other: bytes, r: Random) -> bytes:
    """Return bytes with one to four changes."""
    made = bytearray(blob)
    for _ in range(r.randint(1, 4)):
        at, what = r.randrange(len(made) + 1), r.randrange(7)
        if what == 0 and made:
            made[at % len(made)] ^= 1 << r.randrange(8)
        elif what == 1:
            made[at : at + r.randrange(9)] = r.randbytes(r.randrange(9))
        elif what == 2:
            del made[at:]
        elif what == 3:
            start = r.randrange(len(other) + 1)
            made[at:at] = other[start : start + r.randrange(200)]
        elif what == 4:
            made[at : at + 8] = struct.pack("<Q", r.choice((0, 1, 2**31, 2**63, r.getrandbits(64))))
        elif what == 5 and made:
            made[at % len(made)] = r.choice(b'[]{}",:0-9eE\\u\0\xff')
        else:
            del made[at : at + r.randrange(40)]
    return bytes(made)


def replaced(value: Any, r: Random) -> Any:
    """Return a JSON value of which one part, somewhere, is another."""
    if isinstance(value, dict) and value and r.random() < 0.85:
        key = r.choice(list(value))
        what = r.random()
        if what < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if what < 0.2:
            return {**value, str(r.choice(HOSTILE)): r.choice(HOSTILE)}
        return {**value, key: replaced(value[key], r)}
    if isinstance(value, list) and value and r.random() < 0.85:
        at = r.randrange(len(value))
        if r.random() < 0.15:
            return [*value, *value[at:]]
        return [*value[:at], replaced(value[at], r), *value[at + 1 :]]
    return r.choice(HOSTILE)


def other_json(text: bytes, r: Random) -> bytes:
    """Return JSON of which one part is another, or that is nested deeply, or that is long."""
    what = r.random()
    if what < 0.005:
        return r.choice((b"[", b'{"a":')) * r.choice((100, 3_000, 100_000))
    if what < 0.01:
        return text.replace(b"0", b"9" * 5_000)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return json.dumps(replaced(found, r)).encode()


def other_header(record: bytes, r: Random) -> bytes:
    """Return a record whose header says something else, its lengths and checksum right."""
    (length,) = struct.unpack("<Q", record[:8])
    text = other_json(record[8 : 8 + length], r)
    return sealed(struct.pack("<Q", len(text)) + text + record[8 + length : -4])


def made_up(r: Random) -> bytes:
    """Return a record with a header of any types and shapes, over any bytes."""
    arrays = [
        [r.choice(("x", "y", "0", "1", "", None)), r.choice(KINDS),
         [r.choice(SIZES) for _ in range(r.choice((0, 1, 1, 2, 3, 33)))]]
        for _ in range(r.choice((0, 1, 1, 2, 5)))
    ]  # fmt: skip
    text = json.dumps({"meta": r.choice(HOSTILE), "arrays": arrays}).encode()
    return sealed(struct.pack("<Q", len(text)) + text + r.randbytes(r.choice((0, 8, 16, 64))))


def an_input(reader: Reader, r: Random) -> bytes:
    """Return one input for a reader."""
    seed, what = r.choice(reader.seeds), r.random()
    if what < 0.05:
        return r.randbytes(r.randrange(120))
    if not reader.record:
        return other_json(seed, r) if what < 0.5 and seed[:1] == b"{" else changed(
            seed, r.choice(reader.seeds), r
        )  # fmt: skip
    if what < 0.15:
        return made_up(r)
    if what < 0.5:
        return other_header(seed, r)
    made = changed(seed, r.choice(reader.seeds), r)
    return made if what < 0.7 else sealed(made[:-4])


# readers ----------------------------------------------------------------------------------


def valid_requests() -> tuple[bytes, ...]:
    """Return requests with every kind of argument, of a study over `toys`."""
    given: tuple[dict[str, Any], ...] = (
        {"centre": 0.5, "power": 2},
        {"x": np.arange(6.0).reshape(2, 3), "flags": np.array([True, False]), "n": np.array(3)},
        {"deep": {"a": [1, (2.5, None)], "b": {"c": np.arange(3, dtype=np.int32)}}, "min_cell": 5},
    )
    return tuple(
        Request(
            "run", "fit", "h0", i, None if i == 0 else 0, toys.moments.name, "sum",
            Seen("design", "0" * 32) if i else None, Parcel.of(arguments), i,
        ).to_bytes()
        for i, arguments in enumerate(given)
    )  # fmt: skip


KEY, SIGNATURE, NAMES = b"k" * 32, b"s" * 64, ("east", "north", "west")


def of_masks() -> tuple[tuple[type[Any], bytes], ...]:
    """Return each kind of message of a masked sum, as its JSON; `Masked` has a vector besides."""
    advert = messages.Advert("north", 1, 2, KEY, (KEY, KEY), (KEY, KEY), SIGNATURE)
    shares = dict.fromkeys(NAMES, b"h" * 16)
    made: tuple[Any, ...] = (
        advert,
        messages.Roll(1, 2, (advert,)),
        messages.Sealed("north", 1, {"east": b"letter"}),
        messages.Post(1, {"east": b"letter"}),
        messages.Asked(1, 0, "0" * 64, NAMES, dict.fromkeys(NAMES, 0.5)),
        messages.Survivors(1, 0, NAMES, ()),
        messages.Signed("north", 1, 0, SIGNATURE),
        messages.Ballot(1, 0, dict.fromkeys(NAMES, SIGNATURE)),
        messages.Answer("north", 1, 0, shares, {"south": b"h" * 16}),
    )
    return tuple((type(m), json.dumps(m.to_meta()).encode()) for m in made)


def mask_readers(call: Call) -> list[Reader]:
    """Return the readers of what a masked sum sends, besides its calls."""
    layout = Layout.of({"total": np.arange(4.0), "rows": np.array(9)})
    part = Part(messages.Asked(1, 0, "0" * 64, NAMES), messages.Post(1, {"east": b"letter"}))
    words = np.arange(layout.words, dtype="<u8")
    given = Given(messages.Masked("north", 1, 0, layout, words), None)
    stages = tuple(Stage(k, "run", "fit", "h0", {"x": 1}) for k in ("keys", "unmask"))
    whole = part_bytes("h0", 3, given)
    asked = Request(
        "run", "fit", "h0", 3, None, toys.moments.name, "sum", None, Parcel.of({"power": 2}), 0, 3,
        part.to_meta(),
    ).to_bytes()  # fmt: skip
    kinds = of_masks()

    def part_of(body: bytes) -> object:
        found = Request.read(body, 2**28)
        if found.masked is None:
            return None
        return Part.read(found.masked), found.digest()

    return [
        Reader("masked call", 60, (asked,), part_of, (FedcohortError,)),
        Reader("stage of a masked sum", 30, tuple(s.to_bytes() for s in stages), Stage.read,
               (Malformed,)),
        Reader("answer to a stage", 30, (said_bytes(stages[0], {"x": 1}),),
               lambda b: read_said(b, "north", stages[0], 2**28), (FedcohortError,)),
        Reader("masked reply", 60, (whole,),
               lambda b: read_part(b, "north", "h0", call, part, 2**28), (FedcohortError,)),
        *(Reader(f"mask message {kind.__name__}", 15, (text,),
                 lambda b, k=kind: read_twice(k, b), (Refused, NoJson), record=False)
          for kind, text in kinds),
    ]  # fmt: skip


class NoJson(Exception):
    """Bytes that do not come as far as a reader of JSON's values."""


def read_twice(kind: type[Any], body: bytes) -> object:
    """Read a message; what was read is a message again, or it was read loosely.

    Raises
    ------
    AssertionError : it is not.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise NoJson from None
    found = kind.from_meta(value)
    try:
        return kind.from_meta(found.to_meta())
    except Refused as error:
        raise AssertionError(f"read loosely: {error}") from None


def envelopes(made: Hospital) -> tuple[Callable[[bytes], bytes], list[tuple[Any, ...]]]:
    """Return a site's channel, and how its coordinator seals: a session that is open."""
    kit = Kit.read(made.folder / "net" / "coordinator")
    callee = Callee(made.kit, made.trust, ("coordinator",), lambda peer, body: body, log=str)
    caller = Caller(kit, Trust(kit.root), LoopbackLine({"north": callee.handle}), log=str)
    assert dict(caller.exchange({"north": b"first"}, 10.0))["north"] == b"first"
    return callee.handle, [(caller,)]


def readers(folder: Path) -> list[Reader]:
    """Return all readers of what crosses a network."""
    logging.disable(logging.CRITICAL)
    asked = valid_requests()
    call = Call(3, toys.moments, "sum", None, Arguments({}, ["north"]), 0)
    replies = (
        reply_bytes("h0", 3, {"total": np.arange(4.0), "rows": np.array(9)}),
        refusal_bytes("SiteFailed", "site 'north' failed."),
        refusal_bytes("Refused", "site 'north' refuses.", "min_cell"),
    )
    (host,) = toys.hosts({"north": np.ones((5, 2))}, (toys.moments, toys.means))
    end = SiteEnd("north", lambda run, session: host, Answers(folder / "a.sqlite"))
    made = Hospital(folder)
    offer = made.signed()
    blob = offer.to_bytes()
    kit = Kit.read(folder / "net" / "coordinator")
    channel, ((caller,),) = envelopes(made)
    private, hello = caller.hello("north")
    sealing = seal.Sealing(b"s" * seal.SESSION, b"c" * 32, b"r" * 32)
    asks = (
        encode({}, {"kind": "offer", "offer": blob.decode("latin-1")}),
        encode({}, {"kind": "close", "run": offer.hash, "session": "count"}),
        encode({}, {"kind": "ping"}),
        request(offer.hash),
    )
    told = (
        requests.reply({"kind": "standing", "state": "approved", "reason": "", "code": ""}),
        requests.failure(Refused("many", "too many studies.")),
        requests.reply({"kind": "piece", "size": 3}, requests.packed(b"abc")),
    )
    terms = offer.terms.encode()

    def request_of(body: bytes) -> object:
        found = Request.read(body, 2**28)
        return found.digest(), found.parcel.open()

    def answered(body: bytes) -> object:
        return decode(end.handle(body))

    def asked_node(body: bytes) -> object:
        return decode(made.node.handle(made.coordinator, body))

    def told_lead(body: bytes) -> object:
        arrays, meta = requests.answer(body)
        return requests.unpacked(arrays, meta.get("size")), requests.standing(body)

    def under_seal(body: bytes) -> object:
        """Open what a peer sealed: the seal is right, what is in it is not."""
        whole = sealing.seal(seal.DENIAL, 1, body)
        return seal.read_denial(sealing.open(whole))

    def on_channel(body: bytes) -> object:
        sent = caller.sealed("north", body)
        if len(body) % 2 and sent is not None:
            body = sent[1][:-1] + body[-1:]
        answer = channel(body)
        return seal.kind(answer)

    def lead_opens(body: bytes) -> object:
        if seal.kind(body) == seal.WELCOME:
            return caller.welcomed("north", private, body)
        name, counter = seal.address(body)
        return name, counter, sealing.open(body)

    welcome = channel(hello)
    seals = tuple(sealing.seal(k, 1, b"body" * 9) for k in (seal.CALL, seal.REPLY))
    closed = (hello, welcome, *seals, seal.refusal("no key", "1.2.0"))
    ours = (Malformed,)
    any_of_ours = (FedcohortError,)
    del kit
    return [
        Reader("record", 300, (*asked, *replies, *asks), decode, ours),
        Reader("head of a record", 50, (*asked, *asks), head, ours),
        Reader("request", 250, asked, request_of, ours),
        Reader("site", 60, asked, answered, ()),
        Reader("reply", 150, replies, lambda b: read_reply(b, "north", "h0", call, 2**28),
               any_of_ours),
        Reader("answer to a lead", 50, told, told_lead, any_of_ours),
        Reader("node", 10, asks, asked_node, ()),
        Reader("offer", 40, (blob,), Offer.from_bytes, (Refused,), record=False),
        Reader("study", 5, (terms,), lambda b: Terms.from_json(b.decode("utf-8", "replace")),
               any_of_ours, record=False),
        Reader("hello", 40, closed, seal.read_signed, (Refused,), record=False),
        Reader("refusal", 20, closed, seal.read_refusal, (Refused,), record=False),
        Reader("denial", 20, (seal.denial("many", "too many"),), under_seal, (Refused,),
               record=False),
        *mask_readers(call),
        Reader("envelope at a site", 20, closed, on_channel, (), record=False),
        Reader("envelope at a caller", 20, closed, lead_opens, (Refused,), record=False),
    ]  # fmt: skip


# measuring --------------------------------------------------------------------------------


@dataclass
class Found:
    """What came of the inputs."""

    taken: Counter[str]
    refused: Counter[str]
    crashes: list[str]
    grown: float


def accepts(reader: Reader, blob: bytes) -> bool:
    """Return whether a reader takes a message; one that refuses all would never crash."""
    try:
        reader.read(blob)
    except reader.may:
        return False
    return True


def fuzz(inputs: int, seed: int, folder: Path) -> Found:
    """Give so many inputs to the readers, in turn by their shares."""
    r = Random(seed)
    all_readers = readers(folder)
    for reader in all_readers:
        if not any(accepts(reader, blob) for blob in reader.seeds):
            raise AssertionError(f"{reader.name}: refuses all its valid messages")
    turns = r.choices(all_readers, [x.share for x in all_readers], k=inputs)
    found = Found(Counter(), Counter(), [], 0.0)
    start = 0.0
    for i, reader in enumerate(turns):
        if i == min(WARM, inputs // 2):
            start = megabytes("VmRSS")
            forget_peak()
        blob = an_input(reader, r)
        try:
            reader.read(blob)
            found.taken[reader.name] += 1
        except reader.may:
            found.refused[reader.name] += 1
        except Exception as error:
            found.crashes.append(
                f"{reader.name}: {type(error).__name__}: {error!s:.80}: {blob!r:.200}"
            )
    found.grown = megabytes("VmHWM") - start
    return found


def measure(inputs: int = 1_000_000, seed: int = 1) -> tuple[str, bool]:
    """Fuzz; say what happened."""
    with tempfile.TemporaryDirectory() as folder:
        found = fuzz(inputs, seed, Path(folder))
    for line in found.crashes[:20]:
        print(line)
    n, taken = len(found.taken | found.refused), sum(found.taken.values())
    text = (
        f"{inputs:,} inputs to {n} readers ({taken:,} were answered or harmless, the rest "
        f"refused): {len(found.crashes)} crashes, memory grew by {found.grown:.0f} MB"
    )
    return text, inputs >= 1_000_000 and not found.crashes and found.grown < MOST_MB


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure, inputs=1_000_000, seed=1)
