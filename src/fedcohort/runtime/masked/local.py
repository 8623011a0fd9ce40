"""Masked sums between sites of one process: the real protocol, by real members.

For `secure_aggregation: true` and for rehearsals. Messages are made and read as over a network;
keys are drawn here, because sites of one process have no kits.

Revealed to the coordinator: the sum, and which sites are in it.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence

from fedcohort.arrays import Array
from fedcohort.protocol.errors import QuorumLost, ReplyRejected, SiteUnavailable
from fedcohort.protocol.federation import away
from fedcohort.protocol.host import Call
from fedcohort.protocol.message import parameters_of
from fedcohort.protocol.updates import form, strangers
from fedcohort.runtime.journal import Entry
from fedcohort.runtime.masked.calls import question_of, slots_of
from fedcohort.secure import (
    FEWEST,
    Context,
    Gathering,
    Identity,
    Layout,
    Member,
    masked_sum,
    prepare,
    ring,
)


class LocalMasks:
    """The members of one federation in this process.

    Parameters
    ----------
    names : of all sites.
    """

    def __init__(self, names: Iterable[str]):
        self._identities = {name: Identity.new() for name in names}
        self._history = secrets.token_hex(16)
        self._members: dict[tuple[str, ...], dict[str, Member]] = {}
        self._epochs: dict[tuple[str, ...], Gathering] = {}
        self._made = 0

    def total(
        self,
        call: Call,
        replies: Iterable[tuple[str, dict[str, Array] | SiteUnavailable]],
        to: Sequence[str],
        weights: Mapping[str, float],
    ) -> Entry:
        """Return the sum of replies, each masked by its own member; see `Transport`."""
        roster, odd = tuple(to), dict[str, str]()
        found: dict[str, dict[str, Array]] = {}
        for site, reply in replies:
            if isinstance(reply, ReplyRejected):
                odd[site] = str(reply)
            elif not isinstance(reply, SiteUnavailable):
                found[site] = reply
        forms = {site: form(reply) for site, reply in found.items()}
        for site, why in strangers(forms, call.number, call.step).items():
            odd[site] = str(why)
            del found[site]
        if call.whole and (gone := [s for s in to if s not in found and s not in odd]):
            raise away(gone)
        if len(found) < call.least:
            return Entry(tuple(s for s in to if s in found), (), odd, masked=True)
        if len(found) < FEWEST:
            raise QuorumLost(
                f"{len(found)} of {len(roster)} sites answered {call.step.name}; a masked sum "
                f"needs {FEWEST}. Bring the others back and --resume."
            )
        layout, vectors = _encoded(found, len(roster), weights, parameters_of(call.step.reply))
        epoch, members = self._epoch(roster)
        digest = question_of(self._history, call.number)
        words, _ = masked_sum(
            members, epoch, vectors, layout, digest, weights or None,
            absent=lambda stage, name: stage == "mask" and name not in vectors,
        )  # fmt: skip
        present = tuple(s for s in roster if s in vectors)
        return Entry(present, (ring.decode(words, layout),), odd, masked=True)

    def _epoch(self, roster: tuple[str, ...]) -> tuple[Gathering, dict[str, Member]]:
        """Return an epoch with a slot left, and the members of a roster."""
        keys = {name: self._identities[name].public for name in roster}
        context = Context("local", "local", self._history, keys)
        if roster not in self._members:
            self._members[roster] = {
                name: Member(name, self._identities[name], context) for name in roster
            }
        members, known = self._members[roster], self._epochs.get(roster)
        if known is None or not known.left:
            made = Gathering(context, self._made, slots_of(len(roster), self._made))
            self._made += 1
            known = self._epochs[roster] = prepare(members, made)
        return known, members


def _encoded(
    found: Mapping[str, Mapping[str, Array]],
    n: int,
    weights: Mapping[str, float],
    coarse: Collection[str],
) -> tuple[Layout, dict[str, Array]]:
    """Return the layout of all replies, and each as words; whole and real numbers become real."""
    weighted = bool(weights)
    own = {s: Layout.of(a, weighted=weighted, coarse=coarse) for s, a in found.items()}
    layout = functools.reduce(lambda one, other: one.joined(other, coarse), own.values())
    vectors: dict[str, Array] = {}
    for site, reply in found.items():
        words = ring.encode(reply, own[site], n=n, weight=weights.get(site, 1.0))
        if own[site] != layout:
            words = ring.convert(words, own[site], layout, n=n)
        vectors[site] = words
    return layout, vectors
