"""A site's secrets of one epoch of masked sums, and the letters with shares of them.

For each slot a site has the seed of its mask key (a_i) and of its self-mask (b_i) (`member`). Its
letter to a member holds that member's shares of both, slot after slot, under ChaCha20-Poly1305 with
a key from the X25519 agreement of the two sites' letter keys. The associated data bind run,
session, history, epoch, slots, sender and receiver. A key has one letter, so the nonce may be 0.

Revealed: public keys, seals, and letters that only their receivers can read. `erase` overwrites a
slot's secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedcohort.secure.arithmetic import keystream, masks, shares
from fedcohort.secure.arithmetic.keystream import SEED, erase
from fedcohort.secure.arithmetic.layout import Layout
from fedcohort.secure.context import Context, Identity, canonical, refused
from fedcohort.secure.exchange.messages import Advert, Answer, Asked, Post, Roll, Sealed, Survivors


@dataclass
class Slot:
    """A slot that was masked. `said`, what was signed of it, and `answer` are set by the stages."""

    asked: Asked
    layout: Layout
    vector: bytes
    said: Survivors | None = None
    text: bytes = b""
    signature: bytes = b""
    answer: Answer | None = None


@dataclass
class Epoch:
    """A site's secrets of an epoch, one each per slot, and its shares of others' secrets.

    Attributes
    ----------
    key_seeds, self_seeds : a_i and b_i, one each per slot.
    mark : of the roll, once there is one.
    held : by member, its shares for this site: of b and a of each slot in turn.
    """

    context: Context
    letter_key: X25519PrivateKey
    key_seeds: list[bytearray]
    self_seeds: list[bytearray]
    advert: Advert
    roll: Roll | None = None
    mark: bytes = b""
    sealed: Sealed | None = None
    held: dict[str, bytearray] = field(default_factory=dict[str, bytearray])
    slots: dict[int, Slot] = field(default_factory=dict[int, Slot])

    @staticmethod
    def drawn(
        name: str, identity: Identity, context: Context, threshold: int, epoch: int, slots: int,
        size: int = 0,
    ) -> Epoch:  # fmt: skip
        """Draw the secrets of an epoch, and sign the advert of their public halves."""
        letter_key = X25519PrivateKey.generate()
        key_seeds = [keystream.fresh_seed() for _ in range(slots)]
        self_seeds = [keystream.fresh_seed() for _ in range(slots)]
        salt = context.salt
        advert = Advert(
            name,
            epoch,
            threshold,
            keystream.public_bytes(letter_key),
            tuple([masks.public_key(seed, salt) for seed in key_seeds]),
            tuple([masks.seal(s, salt, name, epoch, i) for i, s in enumerate(self_seeds)]),
            bytes(64),
            size,
        )
        advert = replace(advert, signature=identity.sign(advert.text(context)))
        return Epoch(context, letter_key, key_seeds, self_seeds, advert)

    def letters(self, roll: Roll, mark: bytes) -> dict[str, bytes]:
        """Return the letters to the other members, and keep the shares that are for this site.

        Parameters
        ----------
        mark : of the roll.
        """
        own = self.advert.name
        n, t = len(roll.names), roll.threshold
        seeds = [s for pair in zip(self.self_seeds, self.key_seeds, strict=True) for s in pair]
        texts = shares.split_all(seeds, t, n)
        letters: dict[str, bytes] = {}
        for name, text in zip(roll.names, texts, strict=True):
            if name == own:
                self.held[name] = text
                continue
            box = self._box(roll.by_name[name], mark, own, name)
            letters[name] = box.encrypt(bytes(12), bytes(text), self._about(own, name))
            erase(text)
        return letters

    def open(self, roll: Roll, post: Post | None, asked: Asked) -> None:
        """Open the letters of a call's members that are not open yet.

        Raises
        ------
        Refused : letters of another epoch; a member's is missing, or not sound.
        """
        own = self.advert.name
        letters: Mapping[str, bytes] = {}
        if post is not None:
            if post.epoch != asked.epoch:
                raise refused(f"letters of epoch {post.epoch} with a call of epoch {asked.epoch}.")
            letters = post.letters
        for name in asked.members:
            if name in self.held:
                continue
            if name not in letters:
                raise refused(f"site {own!r} has no letter of member {name!r}.")
            box = self._box(roll.by_name[name], self.mark, name, own)
            try:
                text = box.decrypt(bytes(12), letters[name], self._about(name, own))
            except InvalidTag:
                text = b""
            if len(text) != 2 * SEED * len(self.advert.mask_keys):
                raise refused(
                    f"the letter of site {name!r} to {own!r} is not sound: changed, short, "
                    f"or of another run, session, history, epoch or roll. Leave {name!r} out."
                )
            self.held[name] = bytearray(text)

    def erase(self, slot: int) -> None:
        """Overwrite the secrets of a slot: the site's own, and its shares of the others'."""
        erase(self.key_seeds[slot])
        erase(self.self_seeds[slot])
        for held in self.held.values():
            held[2 * SEED * slot : 2 * SEED * (slot + 1)] = bytes(2 * SEED)

    def _box(self, peer: Advert, mark: bytes, sender: str, to: str) -> ChaCha20Poly1305:
        """Return the cipher of the one letter from a site to another: its nonce may be 0."""
        secret = keystream.agree(self.letter_key, peer.letter_key, peer.name)
        return ChaCha20Poly1305(keystream.derive(secret, mark, "letter", sender, to))

    def _about(self, sender: str, to: str) -> bytes:
        c, slots = self.context, len(self.advert.mask_keys)
        return canonical([c.run, c.session, c.history, self.advert.epoch, [0, slots], sender, to])
