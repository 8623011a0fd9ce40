"""A site's side of masked sums: it masks its reply, and reveals no more than the total.

Bonawitz et al., "Practical Secure Aggregation", CCS 2017, on the complete graph, against an active
coordinator. For site i in slot s, with members M and reply x_i encoded by `ring`:

    y_i = x_i + PRG(b_i) + Σ_{j∈M, j>i} PRG(k_ij) − Σ_{j∈M, j<i} PRG(k_ij)                    (1)

b_i is a seed; k_ij is the X25519 agreement of i's and j's key of the slot, i's key from a seed a_i.
Shares of a_i and b_i go, encrypted, to all members. When t of the survivors S have signed one text
that names S, survivors return shares of b_i for i in S and of a_i for i in M∖S, never both:

    Σ_{i∈S} x_i = Σ_{i∈S} y_i − Σ_{i∈S} PRG(b_i) ∓ Σ_{i∈S, j∈M∖S} PRG(k_ij)                   (2)

A site trusts the pinned identities and itself. It refuses any request that would reveal one site's
reply, or the sum of fewer than three or than t sites. Keys and masks are bound to run, session,
history, roster, epoch, slot, members, weights, layout and the call's digest. Each slot has its own
secrets, overwritten when the slot is answered or its epoch ends.

A survivor returns shares, not its own b_i, though that would be shorter: t shares of each secret,
of one kind per site, hold even if signatures are forged.

Revealed to the coordinator: the sum over S, and shares of secrets that reveal no more. `Member` has
no lock; its owner serialises calls.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol.errors import Refused
from fedcohort.secure.arithmetic import keystream, masks
from fedcohort.secure.arithmetic.keystream import SEED
from fedcohort.secure.arithmetic.layout import Layout
from fedcohort.secure.arithmetic.ring import add
from fedcohort.secure.context import Context, Identity, refused, settled_as, verify
from fedcohort.secure.exchange.checks import check_roll, check_survivors, check_weights
from fedcohort.secure.exchange.epoch import Epoch, Slot
from fedcohort.secure.exchange.messages import (
    FEWEST,
    Advert,
    Answer,
    Asked,
    Ballot,
    Masked,
    Post,
    Roll,
    Sealed,
    Signed,
    Survivors,
    slot_text,
)
from fedcohort.secure.exchange.rule import InMemory, Settled, ThresholdRule, terms
from fedcohort.secure.exchange.strict import SLOTS

#: Epochs whose secrets a site holds at a time: the one in use and the next.
EPOCHS = 2


class Member:
    """A site in the masked sums of one session.

    Parameters
    ----------
    name : in the roster.
    identity : of the site; the roster has its public key.
    context : with the pinned keys of all sites of the study.
    rule : the site's own.
    settled : the sites for which each question was answered, kept over restarts.
    size : as in `Advert`.

    Raises
    ------
    Refused : fewer than three sites, a rule that they cannot meet, two sites with one key, or
        another key of this site in the roster.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        context: Context,
        rule: ThresholdRule | None = None,
        settled: Settled | None = None,
        size: int = 0,
    ):
        roster = context.roster
        self.name = name
        self.threshold = (rule or ThresholdRule()).of(len(roster))
        if roster.get(name) != identity.public:
            raise refused(f"the roster does not have this site's key as that of {name!r}.")
        if len(set(roster.values())) < len(roster):
            raise refused("two sites of the roster have one identity key. Renew the kits.")
        self._identity, self._size = identity, size
        self._context = context
        self._settled: Settled = InMemory() if settled is None else settled
        self._epochs: dict[int, Epoch] = {}
        self._last = -1
        self._seen: set[bytes] = set()

    def advertise(self, epoch: int, slots: int) -> Advert:
        """Make the keys of an epoch of slots; return their public halves, signed.

        Parameters
        ----------
        epoch : larger than all before it; the current one again returns the same advert.
        slots : 1 to 256.

        Raises
        ------
        Refused : an older epoch, or the same with another number of slots.
        """
        if not 1 <= slots <= SLOTS:
            raise refused(f"an epoch of {slots} slots; it has 1 to {SLOTS}.")
        known = self._epochs.get(epoch)
        if known is not None and len(known.advert.mask_keys) == slots:
            return known.advert
        if epoch <= self._last:
            raise refused(
                f"epoch {epoch} is over at site {self.name!r}, which is at {self._last}. Ask for a "
                f"later one."
            )
        who = (self.name, self._identity, self._context)
        made = Epoch.drawn(*who, self.threshold, epoch, slots, self._size)
        self._last = epoch
        for old in sorted(self._epochs)[: -(EPOCHS - 1)]:
            self._forget(old)
        self._epochs[epoch] = made
        return self._epochs[epoch].advert

    def share(self, roll: Roll) -> Sealed:
        """Check all members' adverts; return shares of this site's secrets, encrypted to each.

        Raises
        ------
        Refused : fewer than three members; a threshold below any member's rule or above their
            number; a site without a pinned key, twice, or with another key's signature; keys for
            other slots or used before; another roll than before.
        """
        at = self._epoch(roll.epoch)
        mark = roll.mark(self._context)
        if at.sealed is not None:
            if mark == at.mark:
                return at.sealed
            raise refused(f"the keys of epoch {roll.epoch} were shared among other members.")
        check_roll(roll, self._context, self.threshold)
        if roll.by_name.get(self.name) != at.advert:
            raise refused(f"epoch {roll.epoch} has other keys of site {self.name!r} than its own.")
        keys = {k for a in roll.adverts for k in (a.letter_key, *a.mask_keys)}
        if used := keys & self._seen:
            name = next(a.name for a in roll.adverts if used & {a.letter_key, *a.mask_keys})
            raise refused(f"site {name!r} advertises a key that was used before. Leave it out.")
        self._seen |= keys
        letters = at.letters(roll, mark)
        at.roll, at.mark, at.sealed = roll, mark, Sealed(self.name, roll.epoch, letters)
        return at.sealed

    def company(self, asked: Asked) -> int:
        """Return the total size of the members of a sum, as each of them signed.

        Returns
        -------
        size : their sum; 0 if one does not tell it.
        """
        roll = self._epoch(asked.epoch).roll
        adverts = {} if roll is None else roll.by_name
        sizes = [adverts[name].size if name in adverts else 0 for name in asked.members]
        return sum(sizes) if all(sizes) else 0

    def mask(self, asked: Asked, vector: Array, layout: Layout, post: Post | None = None) -> Masked:
        """Return a masked reply, eq. (1).

        Parameters
        ----------
        vector : as `ring.encode` returns it, of the reply times this site's weight.
        post : the other members' letters, with an epoch's first call; they are kept.

        Raises
        ------
        Refused : a slot used for another call or vector; members outside the roll, fewer than three
            or than the threshold, or without this site; weights of other sites, or with which fewer
            than three sites count; no sound letter of a member.
        """
        at = self._epoch(asked.epoch)
        roll = at.roll
        if roll is None:
            raise refused(f"the keys of epoch {asked.epoch} have not been shared.")
        self._check_asked(asked, at, roll, vector, layout)
        fingerprint = hashlib.sha256(np.ascontiguousarray(vector).data).digest()
        known = at.slots.get(asked.slot)
        if known is not None and (
            known.answer is not None
            or (known.asked, known.layout, known.vector) != (asked, layout, fingerprint)
        ):
            raise refused(f"slot {asked.slot} of epoch {asked.epoch} was used. Take the next one.")
        at.open(roll, post, asked)
        at.slots[asked.slot] = known or Slot(asked, layout, fingerprint)
        bound = masks.binding(at.mark, asked, layout)
        total = np.array(vector)
        seed, key_seed = at.self_seeds[asked.slot], at.key_seeds[asked.slot]
        add(total, masks.own(seed, bound, self.name, layout), layout)
        key = keystream.private_key(key_seed, self._context.salt)
        for name in asked.members:
            if name != self.name:
                theirs = roll.by_name[name].mask_keys[asked.slot]
                masks.apply_pair(total, key, theirs, bound, self.name, name, layout)
        return Masked(self.name, asked.epoch, asked.slot, layout, total)

    def sign(self, said: Survivors) -> Signed:
        """Sign the list of the sites in the sum; return the signature.

        The list is settled before the signature leaves, because enough signatures of other sites
        give the sum, even if this site is never asked to unmask.

        Raises
        ------
        Refused : a slot that this site has not masked, or has signed for others; lists that
            overlap, repeat, or are not together the members; fewer survivors than three or than the
            threshold, or without this site; the question was answered for other sites.
        """
        at, slot = self._slot(said.epoch, said.slot)
        if slot.said is not None and slot.said != said:
            raise refused(f"slot {said.slot} was signed for other survivors. Take a new slot.")
        check_survivors(said, slot.asked.members, self._needed(at))
        if self.name not in said.survivors:
            raise refused(f"site {self.name!r} sent its reply and is not among the survivors.")
        check_weights(slot.asked.weights, said.survivors)
        wanted = terms(said.survivors, slot.asked.weights)
        if self._settled.settle(self._question(slot.asked), wanted) != wanted:
            raise self._other_terms()
        if slot.said is None:
            slot.text = slot_text(self._context, at.mark, slot.asked, slot.layout, said)
            slot.signature = self._identity.sign(slot.text)
            slot.said = said
        return Signed(self.name, said.epoch, said.slot, slot.signature)

    def unmask(self, ballot: Ballot) -> Answer:
        """Return shares of the survivors' self-masks and of the dropped members' keys, once.

        Raises
        ------
        Refused : a slot that this site has not signed; a signature that is no survivor's on what
            this site signed; fewer signatures than the threshold; the question was answered for
            other sites.
        """
        at, slot = self._slot(ballot.epoch, ballot.slot)
        said = slot.said
        if said is None or at.roll is None:
            raise refused(f"site {self.name!r} has not signed who is in slot {ballot.slot}.")
        for name, signature in ballot.signatures.items():
            if name not in said.survivors:
                raise refused(f"a signature of {name!r}, which is no survivor.")
            own = name == self.name and signature == slot.signature
            if not own and not verify(self._context.roster[name], slot.text, signature):
                raise refused(
                    f"the signature of site {name!r} is not on what this site signed: other "
                    f"survivors, members, weights or another call. Nothing was unmasked."
                )
        if len(ballot.signatures) < self._needed(at):
            raise refused(
                f"{len(ballot.signatures)} survivors signed; {self._needed(at)} are needed."
            )
        if slot.answer is not None:
            return slot.answer
        wanted = terms(said.survivors, slot.asked.weights)
        if self._settled.settle(self._question(slot.asked), wanted) != wanted:
            raise self._other_terms()
        start = 2 * SEED * ballot.slot
        middle, stop = start + SEED, start + 2 * SEED
        slot.answer = Answer(
            self.name,
            ballot.epoch,
            ballot.slot,
            {name: bytes(at.held[name][start:middle]) for name in sorted(said.survivors)},
            {name: bytes(at.held[name][middle:stop]) for name in sorted(said.dropped)},
        )
        at.erase(ballot.slot)
        return slot.answer

    def holds(self, epoch: int) -> bool:
        """Return whether the site has the keys of an epoch; it loses them in a restart."""
        return epoch in self._epochs

    def question(self, asked: Asked) -> str:
        """Return the key of a call in `Settled`."""
        return self._question(asked)

    def close(self) -> None:
        """Overwrite all secrets: the session is over."""
        for epoch in list(self._epochs):
            self._forget(epoch)

    # parts ----------------------------------------------------------------------------

    def _epoch(self, epoch: int) -> Epoch:
        at = self._epochs.get(epoch)
        if at is None:
            raise refused(
                f"site {self.name!r} has no keys of epoch {epoch}; they are gone with a restart or "
                f"a later epoch. Begin a new epoch."
            )
        return at

    def _slot(self, epoch: int, number: int) -> tuple[Epoch, Slot]:
        at = self._epoch(epoch)
        slot = at.slots.get(number)
        if slot is None:
            raise refused(f"site {self.name!r} has no reply in slot {number} of epoch {epoch}.")
        return at, slot

    def _needed(self, at: Epoch) -> int:
        return self.threshold if at.roll is None else at.roll.threshold

    def _question(self, asked: Asked) -> str:
        return settled_as(self._context.run, self._context.session, asked.digest)

    def _other_terms(self) -> Refused:
        return refused(
            "this question was answered for other sites or weights; a second sum would tell their "
            "difference. Wait for the same sites."
        )

    def _forget(self, epoch: int) -> None:
        at = self._epochs.pop(epoch)
        for slot in range(len(at.key_seeds)):
            at.erase(slot)

    def _check_asked(
        self, asked: Asked, at: Epoch, roll: Roll, vector: Array, layout: Layout
    ) -> None:
        members = asked.members
        if not 0 <= asked.slot < len(at.advert.mask_keys):
            raise refused(f"epoch {asked.epoch} has no slot {asked.slot}. Begin a new epoch.")
        if len(set(members)) < len(members) or not set(members) <= set(roll.names):
            raise refused("a member twice, or one that did not share keys in this epoch.")
        needed = max(FEWEST, self._needed(at))
        if len(members) < needed or self.name not in members:
            raise refused(
                f"a sum over {len(members)} members at site {self.name!r}; {needed} are needed, "
                f"itself among them."
            )
        if asked.weights is not None and set(asked.weights) != set(members):
            raise refused("weights of other sites than the members.")
        if layout.weighted != (asked.weights is not None):
            raise refused("a reply encoded with weights where none are, or without.")
        check_weights(asked.weights, members)
        if vector.dtype != np.dtype("<u8") or vector.shape != (layout.words,):
            raise refused(f"a reply that is not of the {layout.words} words of its layout.")
