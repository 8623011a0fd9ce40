"""Eight attacks of an active coordinator, or of a site with it, on masked sums: each is refused.

Every function makes one attack against honest `Member`s and returns what was refused, in words; it
raises `NotRefused` when the attack went through.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedcohort.protocol.errors import Refused
from fedcohort.secure import Context, Gathering, Layout, Member, ThresholdRule, digest, encode
from fedcohort.secure.arithmetic import keystream, shares
from fedcohort.secure.exchange.messages import Asked, Ballot, Roll, Survivors, slot_text
from secure_cases import IDENTITIES, a_context, prepared, some_members


class NotRefused(Exception):
    """An attack went through."""


def refusal(what: str, call, *arguments) -> str:
    try:
        call(*arguments)
    except Refused as error:
        if error.code != "secure":
            raise NotRefused(f"{what}: another refusal, {error}") from None
        return str(error)
    raise NotRefused(what)


def masked(n: int = 5, slots: int = 2):
    """Return members that have masked a reply in slot 0, and who is asked."""
    members, gathering = prepared(n, slots)
    layout = Layout.of({"x": np.zeros(2)})
    summing = gathering.begin(digest("call"))
    for i, name in enumerate(summing.asked.members):
        vector = encode({"x": np.array([i, 2.0 * i])}, layout, n=n)
        summing.add(members[name].mask(summing.asked, vector, layout, gathering.post(name)))
    return members, gathering, summing


def signed(n: int = 5):
    """Return the same after all have signed, and the ballot."""
    members, gathering, summing = masked(n)
    said = summing.survivors()
    for name in said.survivors:
        summing.add_signature(members[name].sign(said))
    return members, gathering, summing, summing.ballot()


def short_seed() -> list[str]:
    told = [
        refusal("a mask from 4 bytes", keystream.derive, b"1234", b"salt", "self"),
        refusal("a mask key of 4 bytes", keystream.mask, b"1234", 8),
        refusal("shares of 4 bytes", shares.split, b"1234", 2, 3),
        refusal("a secret from short shares", shares.combine, {1: b"12", 2: b"34"}, 2),
    ]
    members, gathering = prepared(3)
    asked = gathering.begin(digest("call")).asked
    layout = Layout.of({"x": np.zeros(2)})
    vector = encode({"x": np.ones(2)}, layout, n=3)
    post = gathering.post("site0")
    short = replace(post, letters={**post.letters, "site1": post.letters["site1"][:20]})
    told.append(refusal("short letter", members["site0"].mask, asked, vector, layout, short))
    return told


def overlap() -> list[str]:
    members, _, summing = masked()
    names = summing.asked.members
    sign = members["site0"].sign
    return [
        refusal("survivor and dropped", sign, Survivors(0, 0, names, ("site1",))),
        refusal("a survivor twice", sign, Survivors(0, 0, (*names, "site1"), ())),
        refusal("neither", sign, Survivors(0, 0, names[:4], ())),
    ]


def threshold() -> list[str]:
    context = a_context(6)
    members = some_members(6, context)
    strict = Member("site0", IDENTITIES[0], context, ThresholdRule(least=6))
    members["site0"] = strict
    gathering = Gathering(context, 0, 1)
    for member in members.values():
        gathering.add_advert(member.advertise(0, 1))
    roll = gathering.roll()
    told = [
        refusal(f"threshold {t}", members[name].share, replace(roll, threshold=t))
        for t in (0, 1, 3, 5, 7)
        for name in ("site0", "site1")
    ]
    told += [refusal("no rule", ThresholdRule(least=9).of, 5)]
    told += [refusal("half", shares.split, bytes(16), 2, 4)]
    members = masked(6)[0]
    few = Survivors(0, 0, ("site0", "site1", "site2"), ("site3", "site4", "site5"))
    told.append(refusal("three of six", members["site0"].sign, few))
    members, _, _, ballot = signed(6)
    for count in (0, 1, 3):
        less = dict(list(ballot.signatures.items())[:count])
        told.append(refusal(f"{count} signed", members["site0"].unmask, Ballot(0, 0, less)))
    return told


def key_swap() -> list[str]:
    context = a_context(4)
    members = some_members(4, context)
    adverts = [m.advertise(0, 1) for m in members.values()]
    mine = (X25519PrivateKey.generate().public_key().public_bytes_raw(),)
    swapped = replace(adverts[1], mask_keys=mine)
    stranger = IDENTITIES[7]
    resigned = replace(swapped, signature=stranger.sign(swapped.text(context)))
    renamed = replace(resigned, name="mallory")
    twice = replace(adverts[1], mask_keys=adverts[2].mask_keys)
    twice = replace(twice, signature=IDENTITIES[1].sign(twice.text(context)))
    own = replace(adverts[0], mask_keys=mine)
    before = some_members(4, context)["site0"].advertise(0, 1)
    share = members["site0"].share

    def roll(*changed):
        return Roll(0, 3, tuple({a.name: a for a in (*adverts, *changed)}.values()))

    told = [
        refusal("a swapped mask key", share, roll(swapped)),
        refusal("signed by a stranger", share, roll(resigned)),
        refusal("a site outside the roster", share, roll(renamed)),
        refusal("another's mask key", share, roll(twice)),
        refusal("its own key swapped", share, roll(own)),
        refusal("its own keys before a restart", share, roll(before)),
        refusal("a member twice", share, Roll(0, 3, (*adverts, adverts[1]))),
    ]
    letter = replace(adverts[1], letter_key=mine[0])
    told.append(refusal("a swapped letter key", share, roll(letter)))
    wrong = Context("run", "session", "history", {**context.roster, "site0": stranger.public})
    told.append(refusal("another pin of its own", Member, "site0", IDENTITIES[0], wrong))
    zero = replace(adverts[1], letter_key=bytes(32))
    zero = replace(zero, signature=IDENTITIES[1].sign(zero.text(context)))
    told.append(refusal("a key of small order", share, roll(zero)))
    return told


def replay() -> list[str]:
    told = []
    for other in (a_context(3, run="other"), a_context(3, history="other")):
        foreign = [m.advertise(0, 2) for m in some_members(3, other).values()]
        members = some_members(3)
        own = members["site0"].advertise(0, 2)
        roll = Roll(0, 2, (own, *foreign[1:]))
        told.append(refusal("keys of another run", members["site0"].share, roll))
    members, gathering, summing, ballot = signed(3)
    layout, asked = summing.layout, summing.asked
    vector = encode({"x": np.ones(2)}, layout, n=3)
    site = members["site0"]
    told.append(refusal("another vector in a slot", site.mask, asked, vector, layout))
    other = replace(asked, digest=digest("another call"))
    told.append(refusal("another call in a slot", site.mask, other, vector, layout))
    told.append(refusal("an old epoch's keys", site.advertise, 0, 3))
    old = {name: m.advertise(1, 2) for name, m in members.items()}
    used = replace(old["site1"], mask_keys=gathering.roll().by_name["site1"].mask_keys)
    used = replace(used, signature=IDENTITIES[1].sign(used.text(a_context(3))))
    roll = Roll(1, 2, (old["site0"], used, old["site2"]))
    told.append(refusal("last epoch's mask keys", site.share, roll))
    fresh = Gathering(a_context(3), 1, 2)
    for advert in old.values():
        fresh.add_advert(advert)
    for member in members.values():
        fresh.add_shares(member.share(fresh.roll()))
    stale = replace(gathering.post("site0"), epoch=1)
    begun = fresh.begin(digest("next")).asked
    told.append(refusal("last epoch's letters", site.mask, begun, vector, layout, stale))
    post = fresh.post("site0")
    crossed = replace(
        post, letters={"site1": post.letters["site2"], "site2": post.letters["site1"]}
    )
    told.append(refusal("letters of one as another's", site.mask, begun, vector, layout, crossed))
    for name, member in members.items():
        member.mask(begun, vector, layout, fresh.post(name))
    site.sign(Survivors(1, 0, begun.members, ()))
    told.append(refusal("last epoch's signatures", site.unmask, replace(ballot, epoch=1)))
    return told


def second_unmask() -> list[str]:
    members, gathering, summing, ballot = signed(5)
    site, said = members["site0"], summing.survivors()
    first = site.unmask(ballot)
    if site.unmask(ballot) != first:
        raise NotRefused("a repeated unmask told other shares")
    less = Survivors(0, 0, said.survivors[:4], said.survivors[4:])
    told = [refusal("a slot signed again", site.sign, less)]
    vector = encode({"x": np.array([0.0, 0.0])}, summing.layout, n=5)
    told.append(refusal("an answered slot", site.mask, summing.asked, vector, summing.layout))
    again = gathering.begin(summing.asked.digest).asked
    for name, member in members.items():
        member.mask(again, vector, summing.layout, gathering.post(name))
    less = replace(less, slot=again.slot)
    told.append(refusal("one question, other survivors", site.sign, less))
    site.sign(replace(said, slot=again.slot))
    other = a_context(5)
    forged = slot_text(other, bytes(32), again, summing.layout, less)
    votes = {f"site{i}": IDENTITIES[i].sign(forged) for i in range(4)}
    told.append(refusal("a ballot for less", site.unmask, Ballot(0, again.slot, votes)))
    return told


def forged_survivors() -> list[str]:
    members, gathering, summing = masked(5)
    said = summing.survivors()
    site = members["site0"]
    told = [refusal("not signed by itself", site.unmask, Ballot(0, 0, {}))]
    for name in said.survivors:
        summing.add_signature(members[name].sign(said))
    votes = dict(summing.ballot().signatures)
    mark, layout = gathering.roll().mark(gathering.context), summing.layout
    less = Survivors(0, 0, said.survivors[:4], said.survivors[4:])
    text = slot_text(gathering.context, mark, summing.asked, layout, less)
    other = {**votes, "site1": IDENTITIES[1].sign(text)}
    told.append(refusal("signed for other survivors", site.unmask, Ballot(0, 0, other)))
    stranger = {**votes, "site1": IDENTITIES[7].sign(text)}
    told.append(refusal("signed by a stranger", site.unmask, Ballot(0, 0, stranger)))
    outside = {**votes, "mallory": votes["site1"]}
    told.append(refusal("signed from outside", site.unmask, Ballot(0, 0, outside)))
    copied = dict.fromkeys(votes, votes["site1"])
    told.append(refusal("one signature for all", site.unmask, Ballot(0, 0, copied)))
    alone = Survivors(0, 0, said.survivors[1:], said.survivors[:1])
    told.append(refusal("told that it was dropped", masked(5)[0]["site0"].sign, alone))
    elsewhere = masked(5)[0]["site0"].sign
    stray = Survivors(0, 0, ("mallory", *said.survivors[1:]), ("site0",))
    told.append(refusal("a survivor that is no member", elsewhere, stray))
    return told


def fewer_than_three() -> list[str]:
    told = [
        refusal("a rule of two", ThresholdRule().of, 2),
        refusal("a roster of two", Member, "site0", IDENTITIES[0], a_context(2)),
        refusal("a gathering of two", Gathering, a_context(2), 0, 1),
    ]
    twins = {**a_context(2).roster, "site2": IDENTITIES[1].public}
    context = Context("run", "session", "history", twins)
    told.append(refusal("one site twice", Member, "site0", IDENTITIES[0], context))
    members = some_members(3)
    adverts = tuple(m.advertise(0, 1) for m in members.values())
    told.append(refusal("a roll of two", members["site0"].share, Roll(0, 2, adverts[:2])))
    members, gathering = prepared(3)
    layout = Layout.of({"x": np.zeros(2)}, weighted=True)
    vector = encode({"x": np.ones(2)}, layout, n=3)
    names = tuple(members)
    site, post = members["site0"], gathering.post("site0")
    plain = Layout.of({"x": np.zeros(2)})
    two = Asked(0, 0, digest("call"), names[:2])
    told.append(refusal("a call to two", site.mask, two, vector, plain, post))
    for light in (0.0, 0.001, -1.0):
        asked = Asked(0, 0, digest("call"), names, {**dict.fromkeys(names, 1.0), "site2": light})
        told.append(refusal("two that weigh", site.mask, asked, vector, layout, post))
    members = masked(3)[0]
    two_left = Survivors(0, 0, names[:2], names[2:])
    told.append(refusal("two survivors", members["site0"].sign, two_left))
    return told


ATTACKS = {
    "short seed": short_seed,
    "overlap": overlap,
    "threshold": threshold,
    "key swap": key_swap,
    "replay": replay,
    "second unmask": second_unmask,
    "forged survivors": forged_survivors,
    "n < 3": fewer_than_three,
}
