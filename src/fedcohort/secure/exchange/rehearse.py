"""A masked sum among members in one process: every stage, by the real messages.

For the local runtime, tests and audits. Each message goes through `to_meta` and JSON, as over a
network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fedcohort.arrays import Array
from fedcohort.secure.arithmetic.layout import Layout
from fedcohort.secure.exchange.gathering import Gathering
from fedcohort.secure.exchange.member import Member
from fedcohort.secure.exchange.messages import (
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
)
from fedcohort.secure.exchange.summing import Summing

#: The stages, in their order, at which `absent` is asked.
STAGES = ("keys", "shares", "mask", "sign", "unmask")

T = TypeVar("T")
Absent = Callable[[str, str], bool]


def _present(stage: str, name: str) -> bool:
    return False


def _sent(message: Any, read: Callable[[Any], T]) -> T:
    """Return a message as it is read at the other end."""
    return read(json.loads(_text(message)))


def _text(message: Any) -> str:
    """Return a message as it is sent: made once where it goes to many sites."""
    return json.dumps(message.to_meta())


def prepare(
    members: Mapping[str, Member], gathering: Gathering, absent: Absent = _present
) -> Gathering:
    """Prepare an epoch: keys, then shares.

    Parameters
    ----------
    absent : (stage, name) → whether a site is away from stage "keys" or "shares" on.

    Raises
    ------
    QuorumLost : too few are left.
    Refused : a site refuses.
    """
    for name, member in members.items():
        if not absent("keys", name):
            advert = member.advertise(gathering.epoch, gathering.slots)
            gathering.add_advert(_sent(advert, Advert.from_meta))
    roll = gathering.roll()
    text = _text(roll)
    for name in roll.names:
        if not absent("shares", name):
            sealed = members[name].share(Roll.from_meta(json.loads(text)))
            gathering.add_shares(_sent(sealed, Sealed.from_meta))
    return gathering


def masked_sum(
    members: Mapping[str, Member],
    gathering: Gathering,
    vectors: Mapping[str, Array],
    layout: Layout,
    digest: str,
    weights: Mapping[str, float] | None = None,
    absent: Absent = _present,
) -> tuple[Array, Summing]:
    """Form one masked sum in the next slot of a prepared epoch.

    Parameters
    ----------
    vectors : by site, as `ring.encode` returns them.
    digest : of the call; see `Asked`.
    absent : (stage, name) → whether a site is away at "mask", "sign" or "unmask".

    Returns
    -------
    total : uint64 (layout.words,), for `ring.decode`.
    summing : `survivors()` names the sites in it.

    Raises
    ------
    QuorumLost : too few are left.
    Refused : a site refuses.
    """
    summing = gathering.begin(digest, weights=weights)
    asked, text = summing.asked, _text(summing.asked)
    for name in asked.members:
        if not absent("mask", name):
            new = name not in gathering.posted
            post = _sent(gathering.post(name), Post.from_meta) if new else None
            told = Asked.from_meta(json.loads(text))
            masked = members[name].mask(told, vectors[name], layout, post)
            gathering.posted.add(name)
            summing.add(Masked.from_meta(json.loads(_text(masked)), masked.vector))
    said = summing.survivors()
    text = _text(said)
    for name in said.survivors:
        if not absent("sign", name):
            signature = members[name].sign(Survivors.from_meta(json.loads(text)))
            summing.add_signature(_sent(signature, Signed.from_meta))
    text = _text(summing.ballot())
    for name in summing.signers:
        if not absent("unmask", name):
            answer = members[name].unmask(Ballot.from_meta(json.loads(text)))
            summing.add_answer(_sent(answer, Answer.from_meta))
    return summing.total(), summing
