"""What sites and coordinator tell each other to form a masked sum, and how it is read, strictly.

    once an epoch of B slots        Advert ->   Roll <-   Sealed ->   Post <-
    once a call, which takes a slot Asked <-    Masked -> Survivors <- Signed -> Ballot <- Answer ->

(-> from a site to the coordinator.) Each has `to_meta`, for JSON, and `from_meta`, which raises
`Refused("secure")` for anything that is not exactly such a message. A `Masked` has a vector too.

Two texts are signed. An advert's is its content under its context; a slot's is everything that
the site has a say in: run, session, history, roster, epoch, roll, slot, digest of the call, layout,
members, weights, survivors and dropped (`slot_text`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from fedcohort.arrays import Array
from fedcohort.protocol.errors import Refused
from fedcohort.secure.ring import Layout

#: The most slots of an epoch, and sites of a sum.
SLOTS, MEMBERS = 256, 128
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
#: The fewest sites whose replies a masked sum may hold.
FEWEST = 3
#: A digest of nothing.
NOTHING = "0" * 64
#: The largest weight. A reply that is out of range under its weight is refused, which tells the
#: coordinator that it is large: under weights of any size it could find out how large.
HEAVIEST = 2.0**24


def refused(text: str) -> Refused:
    """Return the error of this package."""
    return Refused("secure", text)


def digest(*parts: Any) -> str:
    """Return a SHA-256 digest, in hex, of JSON-able parts."""
    return hashlib.sha256(canonical(parts)).hexdigest()


def canonical(value: Any) -> bytes:
    """Return the one text of a JSON-able value."""
    return _CANONICAL(value).encode()


@dataclass(frozen=True)
class Context:
    """Where keys and masks belong; nothing made under one context is of use under another.

    Attributes
    ----------
    run, session, history : of the calls, as in their requests.
    roster : the public identity keys of all sites of the study, by name; pinned.
    """

    run: str
    session: str
    history: str
    roster: Mapping[str, bytes]

    @cached_property
    def mark(self) -> str:
        """The digest of all of it."""
        roster = {name: key.hex() for name, key in self.roster.items()}
        return digest("fedcohort secure sum 1", self.run, self.session, self.history, roster)

    @cached_property
    def salt(self) -> bytes:
        """The same as bytes, for keys that are made before the members are known."""
        return bytes.fromhex(self.mark)


@dataclass(frozen=True)
class Advert:
    """A site's public keys for the slots of an epoch, signed.

    Attributes
    ----------
    threshold : t of the site's own rule.
    letter_key : X25519 public key, 32 bytes, under which shares are sent to the site.
    mask_keys : X25519 public keys, one a slot, from which pairwise masks come.
    seals : one a slot: commits the site to its self-mask seed, so that wrong shares are noticed.
    """

    name: str
    epoch: int
    threshold: int
    letter_key: bytes
    mask_keys: tuple[bytes, ...]
    seals: tuple[bytes, ...]
    signature: bytes

    def text(self, context: Context) -> bytes:
        """Return what is signed."""
        content = {k: v for k, v in self.to_meta().items() if k != "signature"}
        return canonical(["advert", context.mark, content])

    def to_meta(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "name": self.name,
            "epoch": self.epoch,
            "threshold": self.threshold,
            "letter_key": self.letter_key.hex(),
            "mask_keys": b"".join(self.mask_keys).hex(),
            "seals": b"".join(self.seals).hex(),
            "signature": self.signature.hex(),
        }

    @staticmethod
    def from_meta(meta: Any) -> Advert:
        """Read it."""
        m = _keys(
            meta, "name", "epoch", "threshold", "letter_key", "mask_keys", "seals", "signature"
        )
        return Advert(
            _text(m["name"]),
            _count(m["epoch"]),
            _count(m["threshold"], MEMBERS),
            _bytes(m["letter_key"], 32),
            _split(m["mask_keys"]),
            _split(m["seals"]),
            _bytes(m["signature"], 64),
        )


@dataclass(frozen=True)
class Roll:
    """The adverts of an epoch's members, and the threshold that the coordinator works with."""

    epoch: int
    threshold: int
    adverts: tuple[Advert, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The members, in the order of their names: a member's place is its share's x, from 1."""
        return tuple(sorted(a.name for a in self.adverts))

    @cached_property
    def by_name(self) -> dict[str, Advert]:
        """The adverts by member."""
        return {a.name: a for a in self.adverts}

    def mark(self, context: Context) -> bytes:
        """Return the digest that binds context, epoch, threshold, members and all their keys."""
        adverts = sorted((a.to_meta() for a in self.adverts), key=lambda m: m["name"])
        return bytes.fromhex(digest("roll", context.mark, self.epoch, self.threshold, adverts))

    def to_meta(self) -> dict[str, Any]:
        """Return it for JSON."""
        adverts = [a.to_meta() for a in self.adverts]
        return {"epoch": self.epoch, "threshold": self.threshold, "adverts": adverts}

    @staticmethod
    def from_meta(meta: Any) -> Roll:
        """Read it."""
        m = _keys(meta, "epoch", "threshold", "adverts")
        adverts = tuple([Advert.from_meta(a) for a in _list(m["adverts"])])
        return Roll(_count(m["epoch"]), _count(m["threshold"], MEMBERS), adverts)


@dataclass(frozen=True)
class Sealed:
    """A site's letters to all other members: its shares, which the coordinator cannot read."""

    name: str
    epoch: int
    letters: Mapping[str, bytes]

    def to_meta(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"name": self.name, "epoch": self.epoch, "letters": _hexed(self.letters)}

    @staticmethod
    def from_meta(meta: Any) -> Sealed:
        """Read it."""
        m = _keys(meta, "name", "epoch", "letters")
        return Sealed(_text(m["name"]), _count(m["epoch"]), _mapped(m["letters"]))


@dataclass(frozen=True)
class Post:
    """The letters of an epoch to one site, by sender."""

    epoch: int
    letters: Mapping[str, bytes]

    def to_meta(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"epoch": self.epoch, "letters": _hexed(self.letters)}

    @staticmethod
    def from_meta(meta: Any) -> Post:
        """Read it."""
        m = _keys(meta, "epoch", "letters")
        return Post(_count(m["epoch"]), _mapped(m["letters"]))


@dataclass(frozen=True)
class Asked:
    """One call's masked sum.

    Attributes
    ----------
    digest : hex, of what makes two calls the same question: it is answered for the same sites and
        weights alone, so that no difference of two sums tells one site's reply.
    members : whose replies are asked for.
    weights : by member; None: no weights.
    about : hex, of what all members must be asked alike; masks of others do not cancel, so that no
        member can be given a question whose reply is known, to bare another's.
    """

    epoch: int
    slot: int
    digest: str
    members: tuple[str, ...]
    weights: Mapping[str, float] | None = None
    about: str = NOTHING

    def weight(self, name: str) -> float:
        """Return what a member multiplies its reply by, before it encodes it."""
        return 1.0 if self.weights is None else self.weights[name]

    def to_meta(self) -> dict[str, Any]:
        """Return it for JSON."""
        weights = None if self.weights is None else dict(self.weights)
        return {
            "epoch": self.epoch,
            "slot": self.slot,
            "digest": self.digest,
            "members": list(self.members),
            "weights": weights,
            "about": self.about,
        }

    @staticmethod
    def from_meta(meta: Any) -> Asked:
        """Read it."""
        m = _keys(meta, "epoch", "slot", "digest", "members", "weights", "about")
        weights = m["weights"]
        if weights is not None:
            weights = {_text(k): _number(v) for k, v in _dict(weights).items()}
        names = _names(m["members"])
        told = _text(m["digest"]), names, weights, _bytes(m["about"], 32).hex()
        return Asked(_count(m["epoch"]), _count(m["slot"]), *told)


@dataclass(frozen=True)
class Masked:
    """A site's masked reply: uniform to whoever lacks its self-mask.

    Attributes
    ----------
    vector : uint64 (layout.words,).
    """

    name: str
    epoch: int
    slot: int
    layout: Layout
    vector: Array

    def to_meta(self) -> dict[str, Any]:
        """Return it for JSON, without the vector."""
        return {
            "name": self.name,
            "epoch": self.epoch,
            "slot": self.slot,
            "layout": self.layout.to_meta(),
        }

    @staticmethod
    def from_meta(meta: Any, vector: Array) -> Masked:
        """Read it."""
        m = _keys(meta, "name", "epoch", "slot", "layout")
        layout = Layout.from_meta(m["layout"])
        return Masked(_text(m["name"]), _count(m["epoch"]), _count(m["slot"]), layout, vector)


@dataclass(frozen=True)
class Survivors:
    """Whose masked replies are in the total, and who of the members is not."""

    epoch: int
    slot: int
    survivors: tuple[str, ...]
    dropped: tuple[str, ...]

    def to_meta(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "epoch": self.epoch,
            "slot": self.slot,
            "survivors": list(self.survivors),
            "dropped": list(self.dropped),
        }

    @staticmethod
    def from_meta(meta: Any) -> Survivors:
        """Read it."""
        m = _keys(meta, "epoch", "slot", "survivors", "dropped")
        survivors, dropped = _names(m["survivors"]), _names(m["dropped"])
        return Survivors(_count(m["epoch"]), _count(m["slot"]), survivors, dropped)


@dataclass(frozen=True)
class Signed:
    """A survivor's signature on `slot_text`."""

    name: str
    epoch: int
    slot: int
    signature: bytes

    def to_meta(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "name": self.name,
            "epoch": self.epoch,
            "slot": self.slot,
            "signature": self.signature.hex(),
        }

    @staticmethod
    def from_meta(meta: Any) -> Signed:
        """Read it."""
        m = _keys(meta, "name", "epoch", "slot", "signature")
        name, signature = _text(m["name"]), _bytes(m["signature"], 64)
        return Signed(name, _count(m["epoch"]), _count(m["slot"]), signature)


@dataclass(frozen=True)
class Ballot:
    """The survivors' signatures, by name."""

    epoch: int
    slot: int
    signatures: Mapping[str, bytes]

    def to_meta(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"epoch": self.epoch, "slot": self.slot, "signatures": _hexed(self.signatures)}

    @staticmethod
    def from_meta(meta: Any) -> Ballot:
        """Read it."""
        m = _keys(meta, "epoch", "slot", "signatures")
        return Ballot(_count(m["epoch"]), _count(m["slot"]), _mapped(m["signatures"], 64))


@dataclass(frozen=True)
class Answer:
    """The shares that a survivor tells: of a member, of one secret alone.

    Attributes
    ----------
    self_masks : shares of the survivors' self-mask seeds, 16 bytes each.
    mask_keys : shares of the dropped members' mask-key seeds.
    """

    name: str
    epoch: int
    slot: int
    self_masks: Mapping[str, bytes]
    mask_keys: Mapping[str, bytes]

    def to_meta(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "name": self.name,
            "epoch": self.epoch,
            "slot": self.slot,
            "self_masks": _hexed(self.self_masks),
            "mask_keys": _hexed(self.mask_keys),
        }

    @staticmethod
    def from_meta(meta: Any) -> Answer:
        """Read it."""
        m = _keys(meta, "name", "epoch", "slot", "self_masks", "mask_keys")
        seeds, keys = _mapped(m["self_masks"], 16), _mapped(m["mask_keys"], 16)
        return Answer(_text(m["name"]), _count(m["epoch"]), _count(m["slot"]), seeds, keys)


def slot_text(
    context: Context, roll: bytes, asked: Asked, layout: Layout, said: Survivors
) -> bytes:
    """Return what each survivor of a slot signs.

    Parameters
    ----------
    roll : `Roll.mark` of the epoch.
    """
    content = [asked.to_meta(), layout.to_meta(), sorted(said.survivors), sorted(said.dropped)]
    return canonical(["slot", context.mark, roll.hex(), content])


def check_weights(weights: Mapping[str, float] | None, names: Sequence[str]) -> None:
    """Check that at least three of these sites have a part in a weighted sum.

    Raises
    ------
    Refused : a weight that is below 0 or above `HEAVIEST`, or fewer than three of at least 1 % of
        the largest.
    """
    if weights is None:
        return
    used = [weights[name] for name in names]
    if not all(0.0 <= w <= HEAVIEST for w in used):
        raise refused(
            f"a weight is negative, not finite or above {HEAVIEST:.3g}. Give each site a weight "
            f"above 0; only their ratios matter, so divide by their sum."
        )
    heavy = sum(w > 0.0 and w >= 0.01 * max(used) for w in used)
    if heavy < FEWEST:
        raise refused(
            f"{heavy} sites weigh at least 1 % of the largest weight; a masked sum needs {FEWEST}. "
            f"Weigh sites alike, or leave small ones out of the study."
        )


# reading ------------------------------------------------------------------------------


def _malformed(what: str) -> Refused:
    return refused(f"a message of the masked sum is malformed: {what}. Update both ends.")


def _keys(meta: Any, *keys: str) -> dict[str, Any]:
    if not isinstance(meta, dict) or meta.keys() != set(keys):
        raise _malformed(f"not the keys {', '.join(keys)}")
    return cast("dict[str, Any]", meta)


def _dict(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict) or len(value) > MEMBERS:
        raise _malformed("no mapping by site")
    return cast("dict[Any, Any]", value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > MEMBERS:
        raise _malformed("no list of sites")
    return cast("list[Any]", value)


def _text(value: Any) -> str:
    if type(value) is not str or not 0 < len(value) <= 256:
        raise _malformed("a name or digest that is none")
    return value


def _names(value: Any) -> tuple[str, ...]:
    return tuple([_text(v) for v in _list(value)])


def _count(value: Any, most: int = 2**53) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise _malformed("a count out of range")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < 1e300:  # an int may be beyond floats
        raise _malformed("a weight that is no number")
    return float(value)


def _bytes(value: Any, size: int | None = None) -> bytes:
    try:
        if type(value) is not str or (size is not None and len(value) != 2 * size):
            raise ValueError
        found = bytes.fromhex(value)  # which passes over blanks: what it gave is short then
        if 2 * len(found) != len(value):
            raise ValueError
        return found
    except ValueError:
        length = "bytes" if size is None else f"{size} bytes"
        raise _malformed(f"not {length} in hex") from None


def _split(value: Any) -> tuple[bytes, ...]:
    """Read pieces of 32 bytes, one a slot."""
    whole = _bytes(value)
    if not 0 < len(whole) <= 32 * SLOTS or len(whole) % 32:
        raise _malformed("keys that are not of 32 bytes, one for each slot")
    return tuple([whole[i : i + 32] for i in range(0, len(whole), 32)])


def _hexed(parts: Mapping[str, bytes]) -> dict[str, str]:
    return {name: part.hex() for name, part in parts.items()}


def _mapped(value: Any, size: int | None = None) -> dict[str, bytes]:
    return {_text(name): _bytes(part, size) for name, part in _dict(value).items()}
