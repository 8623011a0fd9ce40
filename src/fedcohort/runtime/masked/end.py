"""A site's half of masked sums in one session: its keys, its signatures, its shares.

A node masks a sum or refuses, by its own rule (`SumRule`); it checks the coordinator's number of
sites against what it knows itself. An epoch's keys live in memory alone: a restarted node reports
them lost, and the call is asked again in a new epoch on the same base. The set of sites for which a
call is revealed is on each site's disk before its signature, and so any share, leaves. With another
set the same call would single out one site, so it is revealed again for that set only.

The roster of a sum is the asked sites, each with its key from this site's own kit. Revealed: public
keys, sealed shares, words that are uniform without the masks, a signature on the sites in the sum,
and for each of them one kind of share.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from fedcohort.arrays import Array
from fedcohort.protocol.errors import Refused
from fedcohort.protocol.private import threshold
from fedcohort.protocol.step import Step
from fedcohort.runtime.calls import Request
from fedcohort.runtime.masked.calls import (
    LOST,
    Given,
    Part,
    Stage,
    about_of,
    question_of,
    said_bytes,
)
from fedcohort.runtime.reply_store import Answers
from fedcohort.secure import (
    FEWEST,
    MEMBERS,
    Ballot,
    Context,
    Identity,
    Layout,
    Member,
    Roll,
    Survivors,
    ThresholdRule,
    digest,
    ring,
    settled_as,
)

#: Whether a site answers a sum that is not masked: always; where it knows that fewer than three
#: sites are asked, who cannot hide one another; never.
ANY, FEW, NEVER = "any", "few", "never"
#: Epochs are numbers below this one.
EPOCHS = 2**63
#: Rosters whose keys are held at a time, and answers to stages, for requests that are repeated.
ROSTERS, SAID = 4, 64


@dataclass(frozen=True)
class Keys:
    """A site's signing key, and the public ones of all sites of its network, by name."""

    identity: Identity
    pinned: Mapping[str, bytes]


@dataclass(frozen=True)
class SumRule:
    """A site's rule for sums.

    Attributes
    ----------
    plain : "any", "few" or "never": unmasked sums that it answers.
    keys : returns the keys of masked sums; raises `Refused` if the site has none.
    is_few : for "few": whether a request covers fewer than three sites, by the site's own knowledge
        of
        network and study.
    weights : whether it joins sums with public weights from the coordinator: one site can get a
        hundred
        times the weight of the others (`secure.exchange.checks`).
    least : smallest number of sites of a masked sum, by the site's policy; at least 3.
    rehearsed : plain sums stand for masked ones in a simulation: a site of a private fit adds only
        its
        share of the noise, as under masks.
    """

    plain: str
    keys: Callable[[], Keys]
    is_few: Callable[[Request], bool] = lambda request: False
    rehearsed: bool = False
    least: int = FEWEST
    weights: bool = True


def check_sum(site: str, rule: SumRule | None, request: Request) -> Part | None:
    """Return how a call's reply is masked; None for one that leaves as it is.

    Raises
    ------
    Refused : "secure": this site does not answer the sum in this way.
    """
    if request.masked is not None:
        if request.verb != "sum":
            raise Refused("secure", f"site {site!r}: only sums are masked.")
        if rule is None:
            raise Refused("secure", f"site {site!r} has no signing key, and cannot mask a sum.")
        return Part.read(request.masked)
    if request.verb != "sum" or rule is None or rule.plain == ANY:
        return None
    if rule.plain == FEW and rule.is_few(request):
        return None
    raise Refused(
        "secure",
        f"site {site!r} does not answer {request.step:.62} unmasked: its part of the sum would be "
        f"seen. It can be masked among {FEWEST} sites or more; let those take part, or have a "
        f"study approved that sets secure_aggregation to false.",
    )


def check_hidden(site: str, rule: SumRule | None, step: Step[..., Any], part: Part | None) -> None:
    """Refuse the unmasked sum of a step that reveals what a site hides (`Step.once`).

    Raises
    ------
    Refused : "secure".
    """
    if part is None and step.verb == "sum" and step.once and rule and not rule.rehearsed:
        raise Refused(
            "secure",
            f"site {site!r} answers {step.name} under masks of {FEWEST} sites or more alone, "
            f"whatever the study says: its part tells what it hides.",
        )


def share_of(site: str, rule: SumRule | None, request: Request, part: Part | None) -> int:
    """Return the number of sites that share the noise of a private step's reply; 1: no sharing.

    Raises
    ------
    Refused : "dp": weights would leave the sum with less noise than the fit is accounted for.
    """
    if part is None:
        hidden = rule is not None and rule.rehearsed and request.verb == "sum"
        asked = request.asked or 1
        return threshold(asked) if hidden and asked >= FEWEST else 1
    if part.asked.weights is not None:
        raise Refused(
            "dp",
            f"site {site!r}: {request.step:.62} leaves with a share of the noise, and such sums "
            f"have no weights: they would take noise away. Ask for the sum without weights.",
        )
    return threshold(len(part.asked.members))


class _Book:
    """`Settled` on a node's disk, with the sites of each sum besides the terms."""

    def __init__(self, answers: Answers, run: str, session: str):
        self._answers, self._head = answers, (run, session)
        self.sites: tuple[str, ...] = ()

    def get(self, question: str) -> str | None:
        """See `Settled`."""
        found = self._answers.revealed(*self._head, question)
        return None if found is None else found[0]

    def settle(self, question: str, terms: str) -> str:
        """See `Settled`."""
        self._answers.reveal(*self._head, question, terms, self.sites)
        return self.get(question) or ""


class MaskedEnd:
    """One session's keys at a site, for the latest rosters asked for.

    Parameters
    ----------
    key : run, session and history, which bind its keys and signatures.
    answers : stores what was revealed.
    size : returns the site's size (`secure.exchange.messages.Advert`).
    """

    def __init__(
        self, site: str, rule: SumRule | None, key: tuple[str, str, str], answers: Answers,
        size: Callable[[], int] = lambda: 0,
    ):  # fmt: skip
        self.key, self._size = key, size
        self._site, self._rule = site, rule
        self._answers = answers
        self._book = _Book(answers, key[0], key[1])
        self._members: OrderedDict[tuple[str, ...], Member] = OrderedDict()
        self._epochs: dict[int, tuple[str, ...]] = {}
        self._weights: dict[str, float] = {}
        self._said: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()
        self._survivors: dict[tuple[int, int], tuple[str, ...]] = {}
        self._whole: set[tuple[int, int]] = set()

    def stage(self, stage: Stage) -> bytes:
        """Return the answer to a stage; a repeated one gets the same bytes.

        Raises
        ------
        Refused : "epoch": its keys are not here (any more); "secure": the request would not hide
            this site,
            or too few others signed it.
        """
        asked = json.dumps(stage.body, sort_keys=True).encode()
        mark = (stage.kind, hashlib.blake2b(asked, digest_size=16).digest())
        if mark not in self._said:
            answer = {
                "keys": self._keys, "shares": self._shares, "sign": self._sign,
                "unmask": self._unmask,
            }[stage.kind](stage.body)  # fmt: skip
            self._said[mark] = said_bytes(stage, answer)
            while len(self._said) > SAID:
                self._said.popitem(last=False)
        return self._said[mark]

    def check(self, part: Part) -> None:
        """Refuse a masked call before its step is run, if its keys are not here."""
        self._member(part.asked.epoch)

    def company(self, part: Part) -> int:
        """Return the total size that a call's members tell; 0 if one does not tell it."""
        return self._member(part.asked.epoch).company(part.asked)

    def check_alike(
        self, request: Request, part: Part, apart: Collection[str], *, reads: bool = False
    ) -> None:
        """Refuse, before its step is run, a call that is asked differently of the other sites.

        Parameters
        ----------
        apart : arguments that may differ (`Step.apart`).
        reads : the step reads a state. A site without one may reveal nothing, so fewer than
            `FEWEST` sites
            with a state would reveal each other.

        Raises
        ------
        Refused : "secure".
        """
        asked = part.asked
        if reads:
            self._check_held(request, part)
        if asked.digest != question_of(request.history, request.call):
            raise Refused("secure", f"site {self._site!r}: the sum is for another call than asked.")
        seen = None if request.view is None else request.view.mark
        about = about_of(request.step, seen, request.round, request.parcel, apart, part.held)
        if asked.about != about:
            raise Refused(
                "secure",
                f"site {self._site!r} is asked {request.step:.62} otherwise than the other sites, "
                f"and would be alone in the sum. Between sites only what the step names as apart "
                f"may differ.",
            )

    def check_latest(self, request: Request, kept: Collection[int]) -> None:
        """Refuse a state from before a sum that this site signed: a state goes on with each sum.

        Otherwise the sites' parts of that sum could be had again beside a later state of one site,
        and the difference of both sums is that site's own.

        Parameters
        ----------
        kept : numbers of the stored calls that left a state.

        Raises
        ------
        Refused : "secure".
        """
        base = -1 if request.base is None else request.base
        for call in sorted(c for c in kept if base < c < request.call):
            question = question_of(request.history, call)
            if self._answers.revealed(*self.key[:2], settled_as(*self.key[:2], question)):
                raise Refused(
                    "secure",
                    f"site {self._site!r} is asked {request.step:.62} with a state from before "
                    f"call {call}, whose sum it signed: two sums of one question under two states "
                    f"would tell a site's own part. Start again without --resume.",
                )

    def _check_held(self, request: Request, part: Part) -> None:
        """Check the members that have a state against this site's own request, and `FEWEST`."""
        held = set(part.held) & set(part.asked.members)
        if (self._site in held) != (request.base is not None):
            raise Refused(
                "secure",
                f"site {self._site!r} is asked {request.step:.62} with another state than the "
                f"other sites are told of, and would be alone in the sum.",
            )
        if 0 < len(held) < FEWEST:
            raise Refused(
                "secure",
                f"site {self._site!r}: {request.step:.62} reads what sites keep, and fewer than "
                f"{FEWEST} of the sum's sites are asked with it; it would tell a site's own part.",
            )

    def mask(
        self, request: Request, part: Part, arrays: Mapping[str, Array], coarse: Collection[str],
        *, whole: bool = False,
    ) -> Given:  # fmt: skip
        """Return a masked reply to a call that passed `check_alike`.

        Parameters
        ----------
        coarse : fields that hold parameters of a model.
        whole : nothing may be revealed without all members (`Step.once`).

        Raises
        ------
        Refused : as `stage`; or a number is beyond the range of an exact sum.
        """
        member, asked = self._member(part.asked.epoch), part.asked
        self._check_weights(asked.weights or {})
        own = Layout.of(arrays, weighted=asked.weights is not None, coarse=coarse)
        weight = 1.0 if asked.weights is None else asked.weights.get(self._site, 0.0)
        words = ring.encode(arrays, own, n=len(asked.members), weight=weight)
        layout = own.with_floats(part.floats, coarse)
        if layout != own:
            words = ring.convert(words, own, layout, n=len(asked.members))
        masked = member.mask(asked, words, layout, part.post)
        if whole:
            self._whole.add((asked.epoch, asked.slot))
        known = self._answers.revealed(*self.key[:2], member.question(asked))
        return Given(masked, None if known is None else known[1])

    def close(self) -> None:
        """Overwrite all secrets."""
        for member in self._members.values():
            member.close()
        self._members.clear()
        self._epochs.clear()
        self._whole.clear()

    def _check_weights(self, weights: Mapping[str, float]) -> None:
        """Check weights against those of the session's earlier sums, and note new ones.

        Two sums of one reply under different weights would reveal each site's part.

        Raises
        ------
        Refused : a site has another weight than before, or this site joins no such sum.
        """
        if weights and self._rule is not None and not self._rule.weights:
            raise Refused(
                "secure",
                f"site {self._site!r} takes part in no weighted sum: one site could be given "
                f"nearly all of the weight. Weigh inside the step.",
            )
        for name, weight in sorted(weights.items()):
            if self._weights.get(name) == weight:
                continue
            question = digest("weight", name)
            self._answers.reveal(*self.key[:2], question, repr(weight), ())
            known = self._answers.revealed(*self.key[:2], question)
            if known is None or known[0] != repr(weight):
                raise Refused(
                    "secure",
                    f"site {self._site!r}: {name!r:.40} had another weight in an earlier sum of "
                    f"this session; sums of one question under two weights would tell its part. "
                    f"Keep the weights of a session, or weigh inside the step.",
                )
            self._weights[name] = weight

    # stages ---------------------------------------------------------------------------

    def _keys(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Draw keys for an epoch among some sites."""
        names, epoch, slots = (body.get(k) for k in ("roster", "epoch", "slots"))
        known = set(body) == {"roster", "epoch", "slots"} and isinstance(names, list)
        known = known and type(epoch) is int and type(slots) is int and 0 <= epoch < EPOCHS
        if not known:
            raise Refused("secure", "a request for keys of no known form. Update both ends.")
        epoch, slots = cast("tuple[int, int]", (epoch, slots))
        roster = tuple(str(name) for name in cast("list[object]", names)[: MEMBERS + 1])
        if self._rule is None:
            raise Refused(
                "secure", f"site {self._site!r} has no signing key, and cannot mask a sum."
            )
        if roster not in self._members:
            self._members[roster] = self._new(self._rule.keys(), roster)
            while len(self._members) > ROSTERS:
                self._members.popitem(last=False)[1].close()
        advert = self._members[roster].advertise(epoch, slots)
        self._members.move_to_end(roster)
        self._epochs[epoch] = roster
        return advert.to_meta()

    def _shares(self, body: Mapping[str, Any]) -> dict[str, Any]:
        roll = Roll.from_meta(body)
        return self._member(roll.epoch).share(roll).to_meta()

    def _sign(self, body: Mapping[str, Any]) -> dict[str, Any]:
        said = Survivors.from_meta(body)
        member = self._member(said.epoch)
        if said.dropped and (said.epoch, said.slot) in self._whole:
            raise Refused(
                "secure",
                f"site {self._site!r} signs this sum for all of its sites alone: one without "
                f"{said.dropped[0]!r:.40}, and another with it, would tell what that one hides.",
            )
        self._book.sites = tuple(sorted(said.survivors))
        signed = member.sign(said)
        self._survivors[said.epoch, said.slot] = self._book.sites
        return signed.to_meta()

    def _unmask(self, body: Mapping[str, Any]) -> dict[str, Any]:
        ballot = Ballot.from_meta(body)
        member = self._member(ballot.epoch)
        self._book.sites = self._survivors.get((ballot.epoch, ballot.slot), ())
        answer = member.unmask(ballot)
        self._survivors.pop((ballot.epoch, ballot.slot), None)
        return answer.to_meta()

    def _new(self, keys: Keys, roster: tuple[str, ...]) -> Member:
        """Return this site as a member of a roster."""
        if unknown := sorted(set(roster) - set(keys.pinned)):
            raise Refused(
                "secure",
                f"the kit of site {self._site!r} does not list {unknown[0]!r:.40}, which joined or "
                f"was renewed later. Let whoever made the network send {self._site!r} its kit's "
                f"members.json anew.",
            )
        context = Context(*self.key, {name: keys.pinned[name] for name in roster})
        rule = ThresholdRule(least=FEWEST if self._rule is None else self._rule.least)
        return Member(self._site, keys.identity, context, rule, self._book, self._size())

    def _member(self, epoch: int) -> Member:
        """Return the member of an epoch."""
        member = self._members.get(self._epochs.get(epoch, ()))
        if member is None or not member.holds(epoch):
            raise Refused(LOST, f"site {self._site!r} holds no keys of that epoch (any more).")
        return member
