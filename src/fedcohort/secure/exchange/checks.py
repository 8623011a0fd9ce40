"""Checks of participants and weights, for sites and the coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedcohort.secure.context import Context, refused, verify
from fedcohort.secure.exchange.messages import FEWEST, Advert, Roll, Survivors

#: The largest weight. A reply that is out of range under its weight is refused, which tells the
#: coordinator that it is large: under weights of any size it could find out how large.
HEAVIEST = 2.0**24


def check_advert(advert: Advert, context: Context, epoch: int, slots: int) -> None:
    """Check that an advert is by the pinned site that it names, and for these slots.

    Raises
    ------
    Refused : it is not.
    """
    name = advert.name
    if name not in context.roster:
        raise refused(f"keys of {name!r}, which is not in this study's roster.")
    if not verify(context.roster[name], advert.text(context), advert.signature):
        raise refused(
            f"the keys of site {name!r} are not signed by the identity pinned for it, or for "
            f"another run, session, history or roster. Leave the site out."
        )
    if advert.epoch != epoch or not len(advert.mask_keys) == len(advert.seals) == slots:
        raise refused(f"site {name!r} advertises keys of another epoch or number of slots.")


def check_roll(roll: Roll, context: Context, own: int) -> None:
    """Check an epoch's members, keys and threshold.

    Parameters
    ----------
    own : the threshold of the site that checks.

    Raises
    ------
    Refused : as `Member.share`.
    """
    n, names = len(roll.adverts), [a.name for a in roll.adverts]
    if n < FEWEST:
        raise refused(f"{n} sites take part in the masked sum; it needs {FEWEST}.")
    if len(set(names)) < n:
        raise refused("a site is twice among the members.")
    slots = len(roll.adverts[0].mask_keys)
    for advert in roll.adverts:
        check_advert(advert, context, roll.epoch, slots)
    keys = [k for a in roll.adverts for k in (a.letter_key, *a.mask_keys)]
    if len(set(keys)) < len(keys):
        raise refused("one key is advertised twice among the members. Begin a new epoch.")
    least = max(own, len(context.roster) // 2 + 1, *(a.threshold for a in roll.adverts))
    if not least <= roll.threshold <= n:
        raise refused(
            f"a threshold of {roll.threshold} among {n} members; the sites' own rules ask for "
            f"{least} at least, and it cannot be above {n}."
        )


def check_survivors(said: Survivors, members: Sequence[str], threshold: int) -> None:
    """Check the lists of sites in a total and not in it.

    Raises
    ------
    Refused : they overlap or repeat, or are not together the members; too few survivors.
    """
    lists = [*said.survivors, *said.dropped]
    if len(set(lists)) < len(lists):
        raise refused(
            "a site is twice among survivors and dropped: both its secrets would be told."
        )
    if set(lists) != set(members):
        raise refused("survivors and dropped are not together the members of the call.")
    needed = max(FEWEST, threshold)
    if len(said.survivors) < needed:
        raise refused(f"{len(said.survivors)} survivors; a masked sum needs {needed}.")


def check_weights(weights: Mapping[str, float] | None, names: Sequence[str]) -> None:
    """Check that at least three of these sites count in a weighted sum.

    Raises
    ------
    Refused : a weight below 0 or above `HEAVIEST`, or fewer than three of at least 1 % of the
        largest.
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
