"""Masked sums over bytes: dropouts, restarts, repeated requests, and what a site refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import toys
from fedcohort.protocol.errors import QuorumLost, Refused
from fedcohort.runtime.answers import Answers
from fedcohort.runtime.local import local
from fedcohort.runtime.loopback import Fault, LoopbackLine
from fedcohort.runtime.masked_end import ANY, FEW, NEVER, Keys, SumRule
from fedcohort.runtime.remote import remote
from fedcohort.runtime.site_end import SiteEnd
from fedcohort.secure.identity import Identity
from wired import STEPS, journey, meta_of

NAMES = ("a", "b", "c", "d")
TABLES = {k: np.random.default_rng(i).normal(size=(20 + i, 2)) for i, k in enumerate(NAMES)}


class Ward:
    """Sites with keys, reached by bytes; `fault` says what happens to a request."""

    def __init__(self, folder: Path, plain: str = FEW, names=NAMES, steps=toys.NUMBERS):
        self.folder, self.plain, self.names, self.steps = folder, plain, names, steps
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
        rule = SumRule(self.plain, lambda: Keys(self.keys[name], self.pinned))
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


@pytest.mark.parametrize(("plain", "sites", "fine"), [
    (ANY, NAMES, True), (FEW, NAMES, False), (NEVER, NAMES, False),
    (FEW, ("a", "b"), True), (NEVER, ("a", "b"), False),
])  # fmt: skip
def test_a_site_answers_a_plain_sum_by_its_own_rule(tmp_path, plain, sites, fine):
    fed = Ward(tmp_path, plain).federation(masks=None).only(sites)
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
