"""The coordinator's side of one masked sum: it adds masked replies and removes the masks.

It learns the total alone and need not be trusted. It checks every message: a site that sends a
malformed one is named (`Refused`) and can be left out. With too few sites left it raises
`QuorumLost`, and nothing is revealed. Replies are added one by one into one vector; a site's masks
are made and removed one at a time.

The caller ensures that a message's `name` is its sender.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import QuorumLost
from fedcohort.secure.arithmetic import keystream, masks, shares
from fedcohort.secure.arithmetic.layout import Layout
from fedcohort.secure.arithmetic.ring import add, subtract
from fedcohort.secure.context import Context, refused, verify
from fedcohort.secure.exchange.checks import check_weights
from fedcohort.secure.exchange.messages import (
    FEWEST,
    Answer,
    Asked,
    Ballot,
    Masked,
    Roll,
    Signed,
    Survivors,
    slot_text,
)


def lost(stage: str, found: int, needed: int) -> QuorumLost:
    """Return the error of a stage with too few sites left."""
    return QuorumLost(
        f"{found} sites are left at stage {stage!r} of a masked sum; {needed} are needed. Nothing "
        f"was unmasked. Bring the sites back and --resume."
    )


class Summing:
    """One call: masked replies in, the total out.

    Attributes
    ----------
    asked : the request to each member.
    layout : of the replies, once there is one.
    blamed : sites whose shares were wrong and not used.
    """

    def __init__(self, context: Context, roll: Roll, mark: bytes, asked: Asked):
        self.asked = asked
        self.layout: Layout | None = None
        self.blamed: tuple[str, ...] = ()
        self._context, self._roll, self._mark = context, roll, mark
        self._needed = max(FEWEST, roll.threshold)
        self._total: Array | None = None
        self._came: set[str] = set()
        self._said: Survivors | None = None
        self._text = b""
        self._signatures: dict[str, bytes] = {}
        self._ballot: Ballot | None = None
        self._answers: dict[str, Answer] = {}

    def add(self, masked: Masked) -> None:
        """Add a site's masked reply to the total.

        Raises
        ------
        Refused : from a site that was not asked, twice, too late, for another slot, of another
            length, or with another layout than the replies before; it is not added.
        """
        name = self._check(masked.name, masked.epoch, masked.slot, self.asked.members, self._came)
        if self._said is not None:
            raise refused(f"the reply of site {name!r} came after the survivors were told.")
        if self.layout is not None and masked.layout != self.layout:
            raise refused(
                f"site {name!r} sent a reply of other fields or shapes than the sites before it. "
                f"Check that all sites hold the same columns."
            )
        vector = masked.vector
        if vector.dtype != np.dtype("<u8") or vector.shape != (masked.layout.words,):
            raise refused(f"site {name!r} sent {vector.size} words, not those of its layout.")
        if self._total is None or self.layout is None:
            self._total, self.layout = np.array(vector), masked.layout
        else:
            add(self._total, vector, self.layout)
        self._came.add(name)

    def survivors(self) -> Survivors:
        """Close the total, and return who is in it and who is not, for the survivors to sign.

        Raises
        ------
        QuorumLost : too few replies.
        """
        if self._said is None:
            if len(self._came) < self._needed:
                raise lost("replies", len(self._came), self._needed)
            check_weights(self.asked.weights, sorted(self._came))
            dropped = tuple(sorted(set(self.asked.members) - self._came))
            self._said = Survivors(
                self.asked.epoch, self.asked.slot, tuple(sorted(self._came)), dropped
            )
        return self._said

    def add_signature(self, signed: Signed) -> None:
        """Take a survivor's signature.

        Raises
        ------
        Refused : from another site, twice, too late, or not on what the survivors sign.
        """
        said, layout = self.survivors(), self._layout()
        name = self._check(signed.name, signed.epoch, signed.slot, said.survivors, self._signatures)
        if self._ballot is not None:
            raise refused(f"the signature of site {name!r} came too late.")
        if not self._text:
            self._text = slot_text(self._context, self._mark, self.asked, layout, said)
        if not verify(self._context.roster[name], self._text, signed.signature):
            raise refused(f"site {name!r} signed another text than the survivors of this slot.")
        self._signatures[name] = signed.signature

    def ballot(self) -> Ballot:
        """Return as many signatures as are needed, for all `signers`; each of them checks each.

        Raises
        ------
        QuorumLost : fewer than the threshold.
        """
        if self._ballot is None:
            if len(self._signatures) < self._roll.threshold:
                raise lost("signatures", len(self._signatures), self._roll.threshold)
            first = dict(islice(self._signatures.items(), self._roll.threshold))
            self._ballot = Ballot(self.asked.epoch, self.asked.slot, first)
        return self._ballot

    @property
    def signers(self) -> tuple[str, ...]:
        """The survivors that signed: the ballot is for them."""
        return tuple(self._signatures)

    def add_answer(self, answer: Answer) -> None:
        """Take the shares that a survivor tells.

        Raises
        ------
        Refused : from a site that was not asked, twice, or not one share of each member.
        """
        said = self.survivors()
        name = self._check(answer.name, answer.epoch, answer.slot, said.survivors, self._answers)
        if set(answer.self_masks) != set(said.survivors) or set(answer.mask_keys) != set(
            said.dropped
        ):
            raise refused(f"site {name!r} did not tell one share of each member.")
        self._answers[name] = answer

    def total(self) -> Array:
        """Return the sum over the survivors, uint64 (layout.words,), eq. (2) of `member`.

        Raises
        ------
        QuorumLost : fewer answers than the threshold, or shares that do not give a secret back.
        """
        said, layout = self.survivors(), self._layout()
        if len(self._answers) < self._roll.threshold:
            raise lost("unmask", len(self._answers), self._roll.threshold)
        if self._total is None:
            raise lost("replies", 0, self._needed)
        total, slot, salt = self._total.copy(), self.asked.slot, self._context.salt
        bound = masks.binding(self._mark, self.asked, layout)
        found = self._secrets([*said.survivors, *said.dropped])
        for name in said.survivors:
            seal = self._roll.by_name[name].seals[slot]
            place = (name, self.asked.epoch, slot)
            parts = {who: a.self_masks[name] for who, a in self._answers.items()}
            seed = self._secret(
                name, parts, lambda s, p=place, e=seal: masks.seal(s, salt, *p) == e, found[name]
            )
            subtract(total, masks.own(seed, bound, name, layout), layout)
        for gone in said.dropped:
            public = self._roll.by_name[gone].mask_keys[slot]
            parts = {who: a.mask_keys[gone] for who, a in self._answers.items()}
            seed = self._secret(
                gone, parts, lambda s, e=public: masks.public_key(s, salt) == e, found[gone]
            )
            key = keystream.private_key(seed, salt)
            for name in said.survivors:
                theirs = self._roll.by_name[name].mask_keys[slot]
                masks.apply_pair(total, key, theirs, bound, name, gone, layout, off=True)
        return total

    # parts ----------------------------------------------------------------------------

    def _layout(self) -> Layout:
        if self.layout is None:
            raise lost("replies", 0, self._needed)
        return self.layout

    def _check(
        self,
        name: str,
        epoch: int,
        slot: int,
        asked: Sequence[str],
        came: Mapping[str, object] | set[str],
    ) -> str:
        if name not in asked or name in came:
            raise refused(f"site {name!r} was not asked at this stage, or answered twice.")
        if (epoch, slot) != (self.asked.epoch, self.asked.slot):
            raise refused(f"site {name!r} answered for slot {slot} of epoch {epoch}.")
        return name

    def _secrets(self, owners: Sequence[str]) -> dict[str, bytes]:
        """Return each owner's secret from the first shares; unsound if one is wrong."""
        place = {name: x for x, name in enumerate(self._roll.names, 1)}
        told = {who: {**a.self_masks, **a.mask_keys} for who, a in self._answers.items()}
        parts = {place[who]: [own[name] for name in owners] for who, own in told.items()}
        return dict(zip(owners, shares.combine_all(parts, self._roll.threshold), strict=True))

    def _secret(
        self,
        owner: str,
        parts: Mapping[str, bytes],
        sound: Callable[[bytes], bool],
        found: bytes,
    ) -> bytes:
        """Return a secret from its shares; a single wrong share is found and not used.

        Parameters
        ----------
        found : result of the first shares.
        """
        if sound(found):
            return found
        t = self._roll.threshold
        place = {name: x for x, name in enumerate(self._roll.names, 1)}
        trusted = [name for name in parts if name not in self.blamed]
        for out in [None, *trusted]:
            kept = {place[name]: parts[name] for name in trusted if name != out}
            if len(kept) < t:
                continue
            secret = shares.combine(kept, t)
            if sound(secret):
                if out is not None:
                    self.blamed = (*self.blamed, out)
                return secret
        raise QuorumLost(
            f"the shares of site {owner!r} do not give its secret back: it, or two that hold "
            f"them, sent wrong ones. No total was formed. Leave site {owner!r} out."
        )
