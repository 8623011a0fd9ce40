"""Masked sums over bytes: dropouts, restarts, repeated requests, and what a site refuses."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toys
from fedcohort.protocol import Keep, Site, SitesAway, message, per_site, summed
from fedcohort.protocol.arguments import Parcel
from fedcohort.protocol.errors import QuorumLost, Refused
from fedcohort.protocol.host import Host
from fedcohort.runtime import coordinator
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local
from fedcohort.runtime.masked.calls import Stage, about_of
from fedcohort.runtime.masked.end import ANY, FEW, NEVER, Keys, SumRule
from fedcohort.runtime.remote import remote
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site.site_end import SESSIONS, SiteEnd
from fedcohort.secure.context import Identity
from loopback import Fault, LoopbackLine
from wired import STEPS, journey, meta_of

NAMES = ("a", "b", "c", "d")
TABLES = {k: np.random.default_rng(i).normal(size=(20 + i, 2)) for i, k in enumerate(NAMES)}


class Ward:
    """Sites with keys, reached by bytes; `fault` says what happens to a request."""

    def __init__(
        self, folder: Path, plain: str = FEW, names=NAMES, steps=toys.NUMBERS, known: int = 4,
        least: int = 3, weights: bool = True,
    ):  # fmt: skip
        self.folder, self.plain, self.names, self.steps = folder, plain, names, steps
        self.known, self.least, self.weights = known, least, weights
        self.keys = {name: Identity.new() for name in names}
        self.pinned = {name: key.public for name, key in self.keys.items()}
        self.ends: dict[str, SiteEnd] = {}
        self.sent: list[tuple[str, bytes, bytes]] = []
        self.fault: Any = lambda site, kind: None
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a node; what one held in memory before is gone."""
        (host,) = toys.hosts({name: TABLES[name]}, self.steps)
        rule = SumRule(
            self.plain, lambda: Keys(self.keys[name], self.pinned), lambda request: self.known < 3,
            least=self.least, weights=self.weights,
        )  # fmt: skip
        self.ends[name] = SiteEnd(
            name, lambda run, session: host, Answers(self.folder / f"{name}.sqlite"),
            sums=lambda run: rule,
        )  # fmt: skip

    def federation(self, **options: Any):
        def end(name: str):
            def answer(request: bytes) -> bytes:
                reply = self.ends[name].handle(request)
                self.sent.append((name, request, reply))
                return reply

            return answer

        line = LoopbackLine(
            {name: end(name) for name in self.names},
            lambda site, request: self.fault(site, meta_of(request)["kind"]),
        )
        given = {"masks": self.pinned, "timeout": 0.05, "patience": 0.01, **options}
        return remote(line, "r", "s", **given)


def ask(fed: Any) -> tuple[bytes, ...]:
    found = fed.sum(toys.moments, centre=0.1, power=3)
    return tuple(np.asarray(getattr(found, k)).tobytes() for k in type(found).__dataclass_fields__)


def expected(*names: str) -> tuple[bytes, ...]:
    """Return the exact sum of some sites, by the local runtime."""
    there = {name: TABLES[name] for name in names}
    fed = local(
        toys.hosts(TABLES, toys.NUMBERS), absent=lambda _, site: site not in there, quorum=0
    )
    return ask(fed)


def test_a_masked_sum_is_the_exact_sum_and_no_part_of_it_is_seen(tmp_path):
    ward = Ward(tmp_path)
    fed = ward.federation()
    assert ask(fed) == expected(*NAMES)
    assert all(json.loads(line)["masked"] for line in fed.ledger.lines)
    own = {ask(local(toys.hosts({n: TABLES[n]}, toys.NUMBERS)))[0] for n in NAMES}
    assert not any(part in reply for part in own for _, _, reply in ward.sent)


@pytest.mark.parametrize("kind", ["keys", "shares", "call"])
def test_a_site_that_drops_out_before_its_part_is_not_in_the_sum(tmp_path, kind):
    ward = Ward(tmp_path)
    ward.fault = lambda site, k: Fault.DOWN if (site, k) == ("b", kind) else None
    fed = ward.federation(quorum=0.5)
    assert ask(fed) == expected("a", "c", "d")
    assert fed.answered == ("a", "c", "d")


def test_a_sum_that_waits_for_a_site_is_not_unmasked_without_it_and_is_asked_again(tmp_path):
    ward = Ward(tmp_path)
    book = Journal(tmp_path / "journal")
    fed = ward.federation(quorum=0.5, journal=book)
    assert ask(fed.awaiting()) == expected(*NAMES)
    told = len(ward.sent)
    ward.fault = lambda site, kind: Fault.DOWN if (site, kind) == ("b", "call") else None
    with pytest.raises(SitesAway, match=r"^b left"):
        ask(fed.awaiting())
    kinds = {meta_of(request)["kind"] for _, request, _ in ward.sent[told:]}
    assert kinds == {"call"}
    book.close()
    ward.fault = lambda site, kind: None
    again = ward.federation(quorum=0.5, journal=Journal(tmp_path / "journal")).awaiting()
    assert [ask(again), ask(again)] == [expected(*NAMES)] * 2
    assert again.missing == []


@pytest.mark.parametrize("kind", ["keys", "shares", "call"])
def test_a_sum_below_the_quorum_is_not_unmasked_and_is_asked_again_of_all_sites(tmp_path, kind):
    """It was unmasked first, so that the others were bound to one without the site for ever."""
    ward = Ward(tmp_path)
    ward.fault = lambda site, k: Fault.DOWN if (site, k) == ("b", kind) else None
    for _ in range(2):  # also a resumed run lacks the site
        with pytest.raises(QuorumLost, match=r"3 of 4 sites answered moments.*missing: b\."):
            ask(ward.federation(journal=Journal(tmp_path / "journal")))
    assert {meta_of(request)["kind"] for _, request, _ in ward.sent} <= {"keys", "shares", "call"}
    for name in "bd":  # which were started again
        ward.start(name)
    ward.fault = lambda site, k: None
    fed = ward.federation(journal=Journal(tmp_path / "journal"))
    assert ask(fed) == expected(*NAMES)
    assert fed.missing == []


def test_where_fewer_than_three_are_left_no_other_quorum_is_advised(tmp_path):
    ward = Ward(tmp_path, names=NAMES[:3])
    ward.fault = lambda *asked: Fault.DOWN if asked == ("b", "call") else None
    with pytest.raises(QuorumLost, match=r"missing: b\. .*; a masked sum takes 3 sites, whatever"):
        ask(ward.federation())


def test_a_sum_that_sites_signed_for_two_sets_is_told_of_that_which_all_its_sites_allow(tmp_path):
    """Two coordinators were killed in turn: d signed for b, c, d; then a, b, c for themselves."""
    ward = Ward(tmp_path)
    heads: list[tuple[str, str, str]] = []

    def attempt(*down: tuple[str, str], quorum: float = 0.75) -> tuple[bytes, ...]:
        ward.fault = lambda *asked: Fault.DOWN if asked in down else None
        fed = ward.federation(quorum=quorum)
        heads.append(heads[0] if heads else fed._run.transport.head)
        fed._run.transport.head = heads[0]  # one history, as with a journal
        return ask(fed)

    with pytest.raises(QuorumLost):
        attempt(("a", "call"), ("b", "sign"), ("c", "sign"))
    with pytest.raises(QuorumLost):
        attempt(("d", "call"), ("b", "unmask"))
    assert attempt() == expected("a", "b", "c")
    with pytest.raises(QuorumLost, match="was revealed for a, b, c, and can be for them alone"):
        attempt(("c", "call"), quorum=0.5)


@pytest.mark.parametrize("kind", ["sign", "unmask"])
def test_a_site_that_drops_out_after_its_part_is_in_the_sum(tmp_path, kind):
    ward = Ward(tmp_path)
    ward.fault = lambda site, k: Fault.DOWN if (site, k) == ("b", kind) else None
    assert ask(ward.federation()) == expected(*NAMES)


@pytest.mark.parametrize("kind", ["keys", "shares", "call", "sign", "unmask"])
def test_too_many_dropouts_end_the_call_and_it_can_be_asked_again(tmp_path, kind):
    ward = Ward(tmp_path)
    ward.fault = lambda site, k: Fault.DOWN if site in "cd" and k == kind else None
    fed = ward.federation(quorum=0.0)
    with pytest.raises(QuorumLost):
        ask(fed)
    assert not fed.ledger.lines
    ward.fault = lambda site, k: None
    assert ask(fed) == expected(*NAMES)


@pytest.mark.parametrize("fault", [Fault.TWICE, Fault.REPLY_LOST, Fault.LATE])
def test_lost_late_and_repeated_messages_change_nothing(tmp_path, fault):
    ward = Ward(tmp_path)
    once: set[tuple[str, str]] = set()

    def first(site: str, kind: str) -> Fault | None:
        new = (site, kind) not in once
        once.add((site, kind))
        return fault if new else None

    ward.fault = first
    assert ask(ward.federation(timeout=5.0)) == expected(*NAMES)


def test_a_node_that_was_restarted_has_lost_its_keys_and_the_call_is_asked_in_a_new_epoch(tmp_path):
    ward = Ward(tmp_path)
    fed = ward.federation()
    assert ask(fed) == expected(*NAMES)
    ward.start("c")
    assert ask(fed) == expected(*NAMES)
    lost = [reply for _, _, reply in ward.sent if meta_of(reply).get("reason") == "epoch"]
    assert len(lost) == 1


@pytest.mark.parametrize("kind", ["keys", "shares", "call", "sign", "unmask"])
def test_a_node_may_be_restarted_after_any_stage_of_a_sum(tmp_path, kind):
    ward, begun = Ward(tmp_path), []

    def restarted(site: str, asked: str) -> None:
        if asked == kind and site == "d" and not begun:
            begun.append(site)
            for name in "ab":  # which have answered this stage
                ward.start(name)

    ward.fault = restarted
    assert ask(ward.federation()) == expected(*NAMES)
    assert begun


def test_states_under_masks_are_those_of_the_local_runtime(tmp_path):
    ward = Ward(tmp_path, steps=STEPS)
    assert journey(ward.federation()) == journey(local(toys.hosts(TABLES, STEPS)))


def test_a_coordinator_that_was_killed_after_the_unmasking_gets_the_same_sites_alone(tmp_path):
    ward = Ward(tmp_path)
    one, other = ward.federation(quorum=0.5), ward.federation(quorum=0.5)
    other._run.transport.head = one._run.transport.head  # the same history, as with a journal
    assert ask(one) == expected(*NAMES)
    ward.fault = lambda site, k: Fault.DOWN if site == "d" else None
    with pytest.raises(QuorumLost, match="was revealed for a, b, c, d"):
        ask(other)
    ward.fault = lambda site, k: None
    again = ward.federation()
    again._run.transport.head = one._run.transport.head
    assert ask(again) == expected(*NAMES)


def test_who_signed_has_it_on_the_disk_before_the_signature_leaves(tmp_path):
    """Each site that signs, also one that is then not asked to unmask, and whatever happens."""
    ward = Ward(tmp_path)
    noted: dict[str, list[str]] = {}

    def fault(site: str, kind: str) -> Fault | None:
        if kind == "unmask":  # nobody is asked to: the coordinator dies here
            for name in NAMES:
                with sqlite3.connect(tmp_path / f"{name}.sqlite") as db:
                    rows = db.execute("SELECT sites FROM revealed").fetchall()
                noted[name] = [s for (text,) in rows for s in json.loads(text)]
        return Fault.DOWN if kind == "unmask" else None

    ward.fault = fault
    first = ward.federation()
    with pytest.raises(QuorumLost):
        ask(first)
    assert noted == {name: list(NAMES) for name in NAMES}
    for name in NAMES:
        ward.start(name)
    ward.fault = lambda site, kind: None
    again = ward.federation(quorum=0.0)
    again._run.transport.head = first._run.transport.head  # the same history
    with pytest.raises(QuorumLost, match="was revealed for a, b, c, d"):
        ask(again.only("abc"))


@pytest.mark.parametrize(("plain", "sites", "known", "fine"), [
    (ANY, NAMES, 4, True), (FEW, NAMES, 4, False), (NEVER, NAMES, 4, False),
    (FEW, ("a", "b"), 2, True), (NEVER, ("a", "b"), 2, False),
    (FEW, ("a", "b"), 4, False), (FEW, ("a",), 4, False),
])  # fmt: skip
def test_a_site_answers_a_plain_sum_by_its_own_rule_whatever_it_is_told(
    tmp_path, plain, sites, known, fine
):
    fed = Ward(tmp_path, plain, known=known).federation(masks=None).only(sites)
    if fine:
        assert ask(fed)
        assert not any(json.loads(line)["masked"] for line in fed.ledger.lines)
        return
    with pytest.raises(Refused, match="does not answer moments unmasked") as error:
        ask(fed)
    assert error.value.code == "secure"


def test_true_refuses_fewer_than_three_sites_before_anything_is_asked(tmp_path):
    ward = Ward(tmp_path)
    with pytest.raises(Refused, match="needs 3 sites or more"):
        ask(ward.federation(secure="true").only(["a", "b"]))
    assert not ward.sent


def test_a_site_that_another_does_not_know_is_refused(tmp_path):
    ward = Ward(tmp_path)
    ward.pinned = {**ward.pinned, "d": Identity.new().public}
    with pytest.raises(Refused) as error:
        ask(ward.federation())
    assert error.value.code == "secure"


def test_weights_are_public_and_at_least_three_sites_count(tmp_path):
    weights = {"a": 1.0, "b": 2.5, "c": 0.5, "d": 3.0}
    fed = Ward(tmp_path).federation()
    here = local(toys.hosts(TABLES, toys.NUMBERS)).weighted(weights)
    assert ask(fed.weighted(weights)) == ask(here)
    with pytest.raises(Refused, match="1 % of the largest"):
        ask(fed.weighted({"a": 1.0, "b": 1.0, "c": 1e-3, "d": 0.0}))


def test_the_weights_of_a_session_stay_what_they_were_even_after_a_restart(tmp_path):
    ward = Ward(tmp_path)
    fed = ward.federation()
    weights = {"a": 1.0, "b": 2.5, "c": 0.5, "d": 3.0}
    first = ask(fed.weighted(weights))
    assert ask(fed.weighted(weights)) == first
    for name in NAMES:
        ward.start(name)
    with pytest.raises(Refused, match="had another weight in an earlier sum") as error:
        ask(ward.federation().weighted({**weights, "d": 3.5}))
    assert error.value.code == "secure"
    assert ask(ward.federation().weighted(weights)) == first


def test_a_site_s_policy_sets_the_fewest_sites_of_a_sum_whatever_the_coordinator_asks(tmp_path):
    ward = Ward(tmp_path, least=4)
    assert ask(ward.federation()) == expected(*NAMES)
    for options in ({}, {"quorum": 0.0}):
        with pytest.raises(Refused, match="a threshold of 4 among 3 sites"):
            ask(ward.federation(**options).only("abc"))
    ward.fault = lambda site, kind: Fault.DOWN if (site, kind) == ("d", "call") else None
    with pytest.raises(QuorumLost, match="4 are needed"):
        ask(ward.federation(quorum=0.0))


def test_a_call_is_revealed_for_one_set_of_sites_in_whatever_round_it_is_asked_again(tmp_path):
    ward = Ward(tmp_path)
    first = ward.federation()
    assert ask(first) == expected(*NAMES)
    hostile = ward.federation(quorum=0.0)
    hostile._run.transport.head = first._run.transport.head  # the same history
    for turn in hostile.rounds(3):
        if turn == 2:  # the same call in another round, whose kept replies are the same bits
            with pytest.raises(QuorumLost, match="was revealed for a, b, c, d"):
                ask(hostile.only("abc"))


@pytest.fixture
def careless(monkeypatch):
    """A coordinator that does not look at what its own program asks."""
    monkeypatch.setattr(coordinator, "check_alike", lambda step, arguments: None)


@pytest.mark.parametrize("change", [{"centre": 1e9}, {"power": 2}, {"power": True}, {"power": "3"}])
def test_a_site_that_is_asked_otherwise_than_the_others_gives_nothing(tmp_path, careless, change):
    """Else b, c and d would be asked where their replies are known, and a's alone is in the sum."""
    ward = Ward(tmp_path)
    alike = {"centre": 0.1, "power": 3}
    apart = {k: per_site({"a": alike[k], **dict.fromkeys("bcd", v)}) for k, v in change.items()}
    with pytest.raises(Refused, match="otherwise than the other sites") as error:
        ward.federation().sum(toys.moments, **{**alike, **apart})
    assert error.value.code == "secure"
    assert not {meta_of(reply)["kind"] for _, _, reply in ward.sent} & {"reply"}
    assert "unmask" not in {meta_of(request)["kind"] for _, request, _ in ward.sent}


@message
class Went:
    """How far the sites have gone together, ()."""

    far: Any


@summed
def walk(site: Site[Any, Went | None], *, by: float) -> Keep[Went, Went]:
    """Go on from where the site was."""
    far = by if site.state is None else float(site.state.far) + by
    return Keep(Went(np.array(far)), Went(np.array(far)))


@pytest.mark.parametrize("told", [("a",), ("a", "b"), NAMES])
def test_a_site_is_not_asked_with_what_it_keeps_where_fewer_than_three_others_are(tmp_path, told):
    """Whatever is said of the others: that is a part of the masks, as what is asked is."""
    ward = Ward(tmp_path, steps=(walk,))
    fed = ward.federation()
    fed.sum(walk, by=1.0)
    transport = fed._run.transport
    kept, transport.held = transport._kept, lambda call, members: tuple(told)
    transport._kept = {"a": kept["a"]}
    with pytest.raises(Refused, match=r"fewer than 3|another state") as error:
        fed.sum(walk, by=1.0)
    assert error.value.code == "secure"
    assert "\n" not in str(error.value)


def test_a_site_is_not_asked_with_an_older_state_than_before(tmp_path):
    """Two sums of one question, of which it has moved on in one alone, differ by its own part."""
    ward = Ward(tmp_path, steps=(walk,))
    fed = ward.federation()
    for _ in range(2):
        fed.sum(walk, by=1.0)
    fed.sum(walk, by=1.0)
    fed._run.transport._kept = dict.fromkeys(NAMES, 0)
    with pytest.raises(Refused, match="with an older one"):
        fed.sum(walk, by=1.0)


@pytest.mark.parametrize("restarted", [False, True])
def test_no_site_goes_on_alone_while_the_others_go_back_to_an_earlier_state(tmp_path, restarted):
    """A network trained with a kept optimiser: the two sums differed by one hospital's update."""
    ward = Ward(tmp_path, steps=(walk,))
    fed = ward.federation()
    for _ in range(2):
        fed.sum(walk, by=1.0)
    fed._run.transport._kept = {**dict.fromkeys(NAMES, 0), "a": 1}
    for name in NAMES if restarted else ():
        ward.start(name)
    with pytest.raises(Refused, match="from before call 1, whose sum it signed") as error:
        fed.sum(walk, by=1.0)
    assert error.value.code == "secure"
    assert "\n" not in str(error.value)


def test_a_coordinator_says_at_once_what_a_step_cannot_be_asked_apart(tmp_path):
    ward = Ward(tmp_path)
    plain = local(toys.hosts({n: TABLES[n] for n in "ab"}, toys.NUMBERS))
    here = local(toys.hosts(TABLES, toys.NUMBERS), secure="true")
    for fed in (ward.federation(), here, plain):
        powers = per_site(dict.fromkeys(NAMES, 3))
        with pytest.raises(Refused, match=r"moments is asked with another power.*apart=\('power',"):
            fed.sum(toys.moments, centre=0.1, power=powers)
    assert not ward.sent


def test_what_a_step_names_as_apart_may_differ_and_nothing_else(tmp_path):
    hosts = {k: Host(k, TABLES[k], (shifted,)) for k in NAMES}
    fed = local(list(hosts.values()), secure="true")
    found = fed.sum(shifted, by=per_site({"a": 1, "b": 2, "c": 3, "d": 4}), twice=False)
    rows = [len(TABLES[k]) for k in NAMES]
    assert int(found.value) == sum(n * k for n, k in zip(rows, (1, 2, 3, 4), strict=True))
    for odd in (0.5, "1", np.ones(1)):
        with pytest.raises(Refused, match="another by"):
            fed.sum(shifted, by=per_site({"a": odd, "b": 2, "c": 3, "d": 4}), twice=False)
    with pytest.raises(Refused, match="another twice"):
        fed.sum(shifted, by=1, twice=per_site(dict.fromkeys(NAMES, True)))


@message
class Shifted:
    """One number, ()."""

    value: Any


@summed(apart=("by",))
def shifted(site: Site[Any, None], *, by: int, twice: bool) -> Shifted:
    """Rows times a number of the site's own."""
    return Shifted(np.array(len(site.data) * by * (1 + twice)))


def test_only_whole_numbers_and_yes_or_no_can_be_declared_apart():
    def far(site: Site[Any, None], *, centre: float) -> Shifted:
        return Shifted(np.array(centre))

    with pytest.raises(TypeError, match="step far lets 'centre' differ by site"):
        summed(apart=("centre",))(far)
    with pytest.raises(TypeError, match="step far lets 'other' differ by site"):
        summed(apart=("other",))(far)


def test_what_sites_must_be_asked_alike_is_all_that_a_step_does_not_name():
    x = np.arange(3.0)
    given = {"x": x, "rate": 0.5, "fold": 1, "fresh": True, "name": "n", "deal": {"a": 0, "b": 1}}
    one, apart = Parcel.of(given), ("fold", "fresh")
    first = about_of("step", "v", 2, one, apart)
    same = Parcel.of(given | {"x": x.copy(), "fold": 2, "fresh": False})
    assert about_of("step", "v", 2, same, apart) == first
    changes = (
        {"x": x + 1e-12}, {"x": x.reshape(3, 1)}, {"rate": 0.4}, {"name": "m"}, {"fold": 1.0},
        {"fold": "1"}, {"fresh": None}, {"deal": {"a": 1, "b": 1}}, {"deal": {"a": 0}},
    )  # fmt: skip
    for change in changes:
        assert about_of("step", "v", 2, Parcel.of(given | change), apart) != first
    for change in ({"fold": 2}, {"fresh": False}, {"fold": True}):
        assert about_of("step", "v", 2, Parcel.of(given | change)) != about_of("step", "v", 2, one)
    odd = Parcel.of({"x": np.float64(np.nan), "y": [1, (2, {"z": np.zeros(())})], "m": np.bool_(1)})
    tree = json.loads(odd.text)
    assert about_of("s", None, 0, Parcel.read(tree, odd.arrays)) == about_of("s", None, 0, odd)
    heads = [("other", "v", 2), ("step", "w", 2), ("step", None, 2), ("step", "v", 3)]
    assert all(about_of(*head, one, apart) != first for head in heads)


def seeds_of(end: SiteEnd) -> list[Any]:
    """Return every seed that a node's sessions hold, the arrays of bytes themselves."""
    found: list[Any] = []
    for session in end._sessions.values():
        for member in session.masks._members.values() if session.masks else ():
            for epoch in member._epochs.values():
                found += [*epoch.self_seeds, *epoch.key_seeds]
    return found


def test_the_seeds_of_a_session_that_is_closed_are_overwritten(tmp_path):
    ward = Ward(tmp_path)
    ask(ward.federation())
    seeds = seeds_of(ward.ends["a"])
    assert any(map(any, seeds))
    ward.ends["a"].close("r")
    assert not any(map(any, seeds))


def test_the_seeds_of_a_session_that_makes_room_for_others_are_overwritten(tmp_path):
    ward = Ward(tmp_path)
    ask(ward.federation())
    seeds = seeds_of(ward.ends["a"])
    for k in range(SESSIONS):
        ward.ends["a"]._session("r", f"another{k}")
    assert not any(map(any, seeds))


def test_a_session_that_is_closed_while_a_call_is_at_it_is_overwritten_after_the_call(tmp_path):
    ward = Ward(tmp_path)
    ask(ward.federation())
    end = ward.ends["a"]
    seeds, (session,) = seeds_of(end), end._sessions.values()
    with session.lock:
        end.close("r")
        assert any(map(any, seeds))
    session.clear()  # as `handle` does at the end of each call
    assert not any(map(any, seeds))


@pytest.mark.parametrize("epoch", [2**63, 2**70, -1, True, 1.0])
def test_an_epoch_that_no_number_of_eight_bytes_holds_does_not_end_the_later_ones(tmp_path, epoch):
    end = Ward(tmp_path).ends["a"]

    def keys(epoch: Any) -> dict[str, Any]:
        body = {"roster": list(NAMES), "epoch": epoch, "slots": 4}
        return meta_of(end.handle(Stage("keys", "r", "s", "h", body).to_bytes()))

    told = keys(epoch)
    assert (told["kind"], told["reason"]) == ("error", "secure"), told
    assert keys(5)["kind"] == "said"


def test_a_site_that_takes_no_weights_is_not_singled_out_by_them(tmp_path):
    ward = Ward(tmp_path, weights=False)
    heavy = ward.federation().weighted({"a": 1.0, "b": 0.01, "c": 0.01, "d": 0.0})
    with pytest.raises(Refused, match="takes part in no weighted sum"):
        ask(heavy)
    assert ask(ward.federation()) == expected(*NAMES)


@summed(once=("centre",))
def moments_once(site: Site[np.ndarray, None], *, centre: float) -> toys.Moments:
    """Sum what is told of all sites together, or not at all."""
    return toys.moments.run(site, centre=centre, power=3)


def test_a_sum_that_is_told_once_is_signed_by_no_site_without_one_of_its_sites(tmp_path):
    """A coordinator that called a site lost got the sum of the others, and then that of all."""
    ward = Ward(tmp_path, steps=(moments_once,))
    ward.fault = lambda site, kind: Fault.DOWN if (site, kind) == ("b", "call") else None
    with pytest.raises(Refused, match="signs this sum for all of its sites alone") as error:
        ward.federation(quorum=0.5).sum(moments_once, centre=0.1)
    assert "\n" not in str(error.value)
    ward.fault = lambda site, kind: None
    again = ward.federation(quorum=0.5).awaiting()
    again.sum(moments_once, centre=0.1)
    with pytest.raises(Refused, match=r"sites of moments_once differs from its first value"):
        ward.federation(quorum=0.5).only("abc").sum(moments_once, centre=0.1)


def test_who_is_away_from_the_first_is_asked_with_the_others_once_it_is_back(tmp_path):
    """What waits for all is not asked of the others alone, who would answer no other set then."""
    ward = Ward(tmp_path, steps=(moments_once,))
    for kind in ("keys", "shares", "call", "sign"):
        ward.fault = lambda site, k, at=kind: Fault.DOWN if (site, k) == ("b", at) else None
        with contextlib.suppress(SitesAway):
            ward.federation(quorum=0.5).awaiting().sum(moments_once, centre=0.1)
    ward.fault = lambda site, kind: None
    ward.federation(quorum=0.5).awaiting().sum(moments_once, centre=0.1)
