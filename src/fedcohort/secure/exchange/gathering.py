"""The coordinator's side of an epoch of masked sums: it takes keys and shares, and passes them on.

It need not be trusted, but checks every message: a site that sends a malformed one is named
(`Refused`) and can be left out. With too few sites left it raises `QuorumLost`. It cannot read the
letters that it passes on. Each call's sum is a `Summing`.

The caller ensures that a message's `name` is its sender.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedcohort.secure.arithmetic import keystream
from fedcohort.secure.context import Context, refused
from fedcohort.secure.exchange.checks import check_advert, check_weights
from fedcohort.secure.exchange.messages import FEWEST, NOTHING, Advert, Asked, Post, Roll, Sealed
from fedcohort.secure.exchange.summing import Summing, lost


class Gathering:
    """One epoch: keys and shares of its slots.

    Parameters
    ----------
    context : as at the sites.
    epoch : larger than all before it in this context.
    slots : number of sums that it prepares.

    Attributes
    ----------
    posted : sites that have all letters of `ready`; kept by the caller.
    """

    def __init__(self, context: Context, epoch: int, slots: int):
        if len(context.roster) < FEWEST:
            raise refused(f"a masked sum over {len(context.roster)} sites; it needs {FEWEST}.")
        self.context, self.epoch, self.slots = context, epoch, slots
        self._adverts: dict[str, Advert] = {}
        self._roll: Roll | None = None
        self._mark = b""
        self._letters: dict[str, Mapping[str, bytes]] = {}
        self._used = 0
        self.posted: set[str] = set()

    def add_advert(self, advert: Advert) -> None:
        """Take a site's keys.

        Raises
        ------
        Refused : not signed by the pinned site, for other slots, or after the roll was closed.
        """
        check_advert(advert, self.context, self.epoch, self.slots)
        if self._roll is not None or advert.name in self._adverts:
            raise refused(f"site {advert.name!r} sent its keys twice or too late.")
        self._adverts[advert.name] = advert

    def roll(self) -> Roll:
        """Close the roll and return it, for all who sent keys.

        Raises
        ------
        QuorumLost : fewer than three, or than the sites' threshold.
        """
        if self._roll is None:
            adverts = [self._adverts[name] for name in sorted(self._adverts)]
            least = [len(self.context.roster) // 2 + 1, *(a.threshold for a in adverts)]
            needed = max(FEWEST, *least)
            if len(adverts) < needed:
                raise lost("keys", len(adverts), needed)
            self._roll = Roll(self.epoch, max(least), tuple(adverts))
            self._mark = self._roll.mark(self.context)
        return self._roll

    def add_shares(self, sealed: Sealed) -> None:
        """Take a site's letters to the others.

        Raises
        ------
        Refused : from outside the roll, twice, or not one letter for each other member.
        """
        roll, name = self.roll(), sealed.name
        letter = 2 * keystream.SEED * self.slots + 16
        if name not in roll.names or name in self._letters or sealed.epoch != self.epoch:
            raise refused(f"site {name!r} sent letters twice, unasked, or of another epoch.")
        if set(sealed.letters) != set(roll.names) - {name} or any(
            len(text) != letter for text in sealed.letters.values()
        ):
            raise refused(f"site {name!r} did not send one letter to each other member.")
        self._letters[name] = sealed.letters

    @property
    def ready(self) -> tuple[str, ...]:
        """Who sent both keys and shares: they can be members of a sum."""
        return tuple(sorted(self._letters))

    @property
    def left(self) -> int:
        """Slots that are not used."""
        return self.slots - self._used

    def post(self, name: str) -> Post:
        """Return the letters to a site; it needs them once, with its first call of the epoch."""
        letters = {s: post[name] for s, post in self._letters.items() if s != name}
        return Post(self.epoch, letters)

    def begin(
        self,
        digest: str,
        members: Sequence[str] | None = None,
        weights: Mapping[str, float] | None = None,
        about: str = NOTHING,
    ) -> Summing:
        """Begin a call's sum, which uses up a slot.

        Parameters
        ----------
        members : of `ready`; None: all of them.
        weights : by site; only the members' are used.
        about : see `Asked`.

        Raises
        ------
        QuorumLost : fewer members than three or than the threshold.
        Refused : no slot is left, or the weights let fewer than three sites count.
        """
        roll = self.roll()
        names = tuple(sorted(self.ready if members is None else members))
        if not set(names) <= set(self.ready):
            raise refused("a sum over sites that did not share keys in this epoch.")
        needed = max(FEWEST, roll.threshold)
        if len(names) < needed:
            raise lost("shares", len(names), needed)
        used = None if weights is None else {name: float(weights[name]) for name in names}
        check_weights(used, names)
        if not self.left:
            raise refused(f"all {self.slots} slots of epoch {self.epoch} are used.")
        slot = self._used
        self._used += 1
        asked = Asked(self.epoch, slot, digest, names, used, about)
        return Summing(self.context, roll, self._mark, asked)
