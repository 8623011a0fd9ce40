"""Messages between sites and coordinator that form a masked sum.

    once an epoch of B slots        Advert ->   Roll <-   Sealed ->   Post <-
    once a call, which takes a slot Asked <-    Masked -> Survivors <- Signed -> Ballot <- Answer ->

(-> from a site to the coordinator.) Each has `to_meta`, for JSON, and `from_meta`, which raises
`Refused("secure")` for anything else. A `Masked` has a vector too.

Two texts are signed. An advert's is its content under its context. A slot's is all that the site
has a say in: run, session, history, roster, epoch, roll, slot, digest of the call, layout, members,
weights, survivors and dropped (`slot_text`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedcohort.arrays import Array
from fedcohort.secure.arithmetic.layout import Layout
from fedcohort.secure.context import Context, canonical, digest
from fedcohort.secure.exchange.strict import (
    MEMBERS,
    as_bytes,
    as_count,
    as_keys,
    as_list,
    as_mapping,
    as_names,
    as_number,
    as_parts,
    as_pieces,
    as_text,
    hexed,
)

#: Smallest number of sites of a masked sum.
FEWEST = 3
#: A digest of nothing.
NOTHING = "0" * 64


@dataclass(frozen=True)
class Advert:
    """A site's public keys for the slots of an epoch, signed.

    Attributes
    ----------
    threshold : t of the site's own rule.
    letter_key : X25519 public key, 32 bytes, for shares sent to the site.
    mask_keys : X25519 public keys, one per slot, for pairwise masks.
    seals : one per slot: commits the site to its self-mask seed, so that wrong shares are noticed.
    size : rows or events of the site, rounded up; 0 if not told. Other sites limit by it how finely
        a
        sum may be asked for.
    """

    name: str
    epoch: int
    threshold: int
    letter_key: bytes
    mask_keys: tuple[bytes, ...]
    seals: tuple[bytes, ...]
    signature: bytes
    size: int = 0

    def text(self, context: Context) -> bytes:
        """Return the signed text."""
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
            "size": self.size,
        }

    @staticmethod
    def from_meta(meta: Any) -> Advert:
        """Read it."""
        m = as_keys(
            meta, "name", "epoch", "threshold", "letter_key", "mask_keys", "seals", "signature",
            "size",
        )  # fmt: skip
        return Advert(
            as_text(m["name"]),
            as_count(m["epoch"]),
            as_count(m["threshold"], MEMBERS),
            as_bytes(m["letter_key"], 32),
            as_pieces(m["mask_keys"]),
            as_pieces(m["seals"]),
            as_bytes(m["signature"], 64),
            as_count(m["size"]),
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
        m = as_keys(meta, "epoch", "threshold", "adverts")
        adverts = tuple([Advert.from_meta(a) for a in as_list(m["adverts"])])
        return Roll(as_count(m["epoch"]), as_count(m["threshold"], MEMBERS), adverts)


@dataclass(frozen=True)
class Sealed:
    """A site's letters to all other members: its shares, which the coordinator cannot read."""

    name: str
    epoch: int
    letters: Mapping[str, bytes]

    def to_meta(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"name": self.name, "epoch": self.epoch, "letters": hexed(self.letters)}

    @staticmethod
    def from_meta(meta: Any) -> Sealed:
        """Read it."""
        m = as_keys(meta, "name", "epoch", "letters")
        return Sealed(as_text(m["name"]), as_count(m["epoch"]), as_parts(m["letters"]))


@dataclass(frozen=True)
class Post:
    """The letters of an epoch to one site, by sender."""

    epoch: int
    letters: Mapping[str, bytes]

    def to_meta(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"epoch": self.epoch, "letters": hexed(self.letters)}

    @staticmethod
    def from_meta(meta: Any) -> Post:
        """Read it."""
        m = as_keys(meta, "epoch", "letters")
        return Post(as_count(m["epoch"]), as_parts(m["letters"]))


@dataclass(frozen=True)
class Asked:
    """One call's masked sum.

    Attributes
    ----------
    digest : hex; calls with the same one are the same question, answered for the same sites and
        weights
        alone, so that no difference of two sums reveals one site's reply.
    members : whose replies are asked for.
    weights : by member; None: no weights.
    about : hex, of what all members must be asked alike; masks of others do not cancel, so no
        member
        can be given a question with a known reply in order to expose another's.
    """

    epoch: int
    slot: int
    digest: str
    members: tuple[str, ...]
    weights: Mapping[str, float] | None = None
    about: str = NOTHING

    def weight(self, name: str) -> float:
        """Return the factor of a member's reply before it is encoded."""
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
        m = as_keys(meta, "epoch", "slot", "digest", "members", "weights", "about")
        weights = m["weights"]
        if weights is not None:
            weights = {as_text(k): as_number(v) for k, v in as_mapping(weights).items()}
        names = as_names(m["members"])
        told = as_text(m["digest"]), names, weights, as_bytes(m["about"], 32).hex()
        return Asked(as_count(m["epoch"]), as_count(m["slot"]), *told)


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
        m = as_keys(meta, "name", "epoch", "slot", "layout")
        layout = Layout.from_meta(m["layout"])
        return Masked(as_text(m["name"]), as_count(m["epoch"]), as_count(m["slot"]), layout, vector)


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
        m = as_keys(meta, "epoch", "slot", "survivors", "dropped")
        survivors, dropped = as_names(m["survivors"]), as_names(m["dropped"])
        return Survivors(as_count(m["epoch"]), as_count(m["slot"]), survivors, dropped)


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
        m = as_keys(meta, "name", "epoch", "slot", "signature")
        name, signature = as_text(m["name"]), as_bytes(m["signature"], 64)
        return Signed(name, as_count(m["epoch"]), as_count(m["slot"]), signature)


@dataclass(frozen=True)
class Ballot:
    """The survivors' signatures, by name."""

    epoch: int
    slot: int
    signatures: Mapping[str, bytes]

    def to_meta(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"epoch": self.epoch, "slot": self.slot, "signatures": hexed(self.signatures)}

    @staticmethod
    def from_meta(meta: Any) -> Ballot:
        """Read it."""
        m = as_keys(meta, "epoch", "slot", "signatures")
        return Ballot(as_count(m["epoch"]), as_count(m["slot"]), as_parts(m["signatures"], 64))


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
            "self_masks": hexed(self.self_masks),
            "mask_keys": hexed(self.mask_keys),
        }

    @staticmethod
    def from_meta(meta: Any) -> Answer:
        """Read it."""
        m = as_keys(meta, "name", "epoch", "slot", "self_masks", "mask_keys")
        seeds, keys = as_parts(m["self_masks"], 16), as_parts(m["mask_keys"], 16)
        return Answer(as_text(m["name"]), as_count(m["epoch"]), as_count(m["slot"]), seeds, keys)


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
