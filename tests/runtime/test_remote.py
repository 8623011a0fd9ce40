"""Sites over bytes: whatever a network does, the result is that of the local runtime."""

from __future__ import annotations

import itertools
import json
import struct
import time
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toys
import wired
from fedcohort.protocol import (
    DataError,
    FedcohortError,
    JournalMismatch,
    Refused,
    ReplyRejected,
    SiteFailed,
    SiteUnavailable,
    VerbRefused,
    per_site,
)
from fedcohort.protocol.line import Silence
from fedcohort.protocol.views import view
from fedcohort.protocol.wire import Malformed, decode, encode
from fedcohort.runtime import remote as remote_module
from fedcohort.runtime.journal import Journal
from fedcohort.runtime.local import local
from fedcohort.runtime.remote import remote
from loopback import Fault, LoopbackLine
from wired import STEPS, Killed, Nodes, attempts, journey, meta_of, outcome

TABLES = {name: np.zeros((2, 2)) for name in "abc"}
WHOLE = wired.reference(TABLES)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(remote_module, "PAUSE", 0.0)


@view("scaled for tests")
@dataclass(frozen=True)
class Scaled:
    """A view by a factor."""

    by: float

    @property
    def spec(self) -> str:
        return json.dumps({"by": self.by})

    @classmethod
    def from_spec(cls, text: str) -> Scaled:
        return cls(json.loads(text)["by"])

    def __call__(self, data: Any) -> Any:
        return self.by * data


# the same as local ------------------------------------------------------------------------


def test_programs_with_and_without_states_leave_the_same_as_on_the_local_runtime(tmp_path):
    for tables, steps, program in (
        (toys.numbers(), toys.NUMBERS, toys.mean_and_spread),
        (toys.regressions(), toys.ADMM, lambda fed: vars(toys.lasso(fed, penalty=10.0))),
        (TABLES, STEPS, lambda fed: {"told": np.frombuffer(journey(fed))}),
    ):
        folder = tmp_path / steps[0].name
        nodes = Nodes(folder, tables, steps)
        there, here = nodes.federation(), local(toys.hosts(tables, steps))
        one, other = program(there), program(here)
        assert [(k, a.tobytes()) for k, a in one.items()] == [
            (k, a.tobytes()) for k, a in other.items()
        ]
        assert there.ledger.lines == here.ledger.lines
        assert there.ledger.bytes_up == here.ledger.bytes_up
        assert there.ledger.bytes_down == here.ledger.bytes_down
        assert there.history == here.history
        nodes.close()


def test_weights_subsets_and_values_by_site_are_as_on_the_local_runtime(tmp_path):
    nodes = Nodes(tmp_path, toys.numbers(), toys.NUMBERS)
    for fed in (nodes.federation(), local(toys.hosts(toys.numbers(), toys.NUMBERS))):
        heavy = fed.only("ac").weighted({"a": 0.5, "c": 2.0})
        assert heavy.sum(toys.moments, centre=0.0, power=1).rows == 0.5 * 5 + 2.0 * 3
        own = fed.gather(toys.echo, value=per_site({s: np.array([ord(s)]) for s in "abc"}))
        assert [int(r.values[0]) for r in own.values()] == [97, 98, 99]
    nodes.close()


def test_a_site_that_arrives_first_is_added_in_its_place(tmp_path):
    nodes = Nodes(tmp_path, toys.numbers((40, 30, 20), seed=5), toys.NUMBERS)
    whole = local(toys.hosts(nodes.tables, toys.NUMBERS)).sum(toys.moments, centre=0.1, power=3)

    class AnyOrder(LoopbackLine):
        order = "abc"

        def exchange(self, requests: Any, timeout: float) -> Any:
            return super().exchange({s: requests[s] for s in self.order if s in requests}, timeout)

    for order in itertools.permutations("abc"):
        line = AnyOrder({s: e.handle for s, e in nodes.ends.items()})
        line.order = "".join(order)
        total = remote(line, "r", "s").sum(toys.moments, centre=0.1, power=3)
        assert total.total.tobytes() == whole.total.tobytes()
    nodes.close()


# faults -----------------------------------------------------------------------------------

EVENTS = [*Fault, "restart", "kill"]
events = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 40)), st.sampled_from(EVENTS), max_size=25
)


def unlucky(plan: dict[tuple[str, int], Any], nodes: list[Nodes], spare: str = "") -> Any:
    """Return what goes wrong with the n-th request to each site, by a plan."""
    count = dict.fromkeys("abc", 0)

    def fault(site: str, request: bytes) -> Fault | None:
        event = plan.get((site, count[site]))
        count[site] += 1
        if event == "kill":
            raise Killed
        if event == "restart":
            nodes[0].start(site)
            return None
        return None if site in spare else event

    return fault


def travel(folder: Any, plan: Any, spare: str = "", **options: Any) -> tuple[Any, ...]:
    """Run the journey over unlucky nodes, resumed after each kill."""
    nodes: list[Nodes] = []
    nodes.append(Nodes(folder, TABLES, STEPS, fault=unlucky(plan, nodes, spare)))

    def start(journal: Journal) -> tuple[Any, ...]:
        return outcome(nodes[0].federation(journal=journal, **options))

    (found,) = attempts(folder / "journal", start)
    nodes[0].close()
    return found


@pytest.mark.parametrize("examples", [15, 60])
def test_lost_doubled_and_late_bytes_restarts_and_kills_change_nothing(tmp_path_factory, examples):
    @settings(max_examples=examples)
    @given(plan=events)
    def holds(plan):
        assert travel(tmp_path_factory.mktemp("run"), plan) == WHOLE

    holds()


@pytest.mark.parametrize("examples", [15, 60])
def test_a_run_where_sites_were_missing_is_a_local_run_without_their_answers(
    tmp_path_factory, examples
):
    @settings(max_examples=examples)
    @given(plan=events)
    def holds(plan):
        folder = tmp_path_factory.mktemp("run")
        found = travel(folder, plan, spare="a", quorum=0.0, timeout=0.0)
        assert found == wired.reference(TABLES, found[3])

    holds()


@pytest.mark.parametrize("fault", [Fault.LATE, Fault.REPLY_LOST])
@pytest.mark.parametrize("call", [0, 1, 3, 4])
def test_what_a_missing_site_did_too_late_is_undone(tmp_path, fault, call):
    def lose(site: str, request: bytes) -> Fault | None:
        return fault if site == "b" and meta_of(request)["call"] == call else None

    nodes = Nodes(tmp_path, TABLES, STEPS, fault=lose)
    fed = nodes.federation(quorum=0.5, timeout=0.0)
    found = outcome(fed)
    assert found[3] == [(call, "b")]
    assert found == wired.reference(TABLES, [(call, "b")])
    assert found[0] != WHOLE[0]
    nodes.close()


def test_a_coordinator_killed_before_each_record_ends_with_the_same(tmp_path):
    nodes = Nodes(tmp_path, TABLES, STEPS)

    class Dying(Journal):
        at = 0

        def append(self, call: int, mark: int, entry: Any) -> None:
            if call == self.at:
                raise Killed
            super().append(call, mark, entry)

    for at in range(12):
        journal = Dying(tmp_path / "journal")
        journal.at = at
        with pytest.raises(Killed):
            outcome(nodes.federation(journal=journal))
        journal.close()
    journal = Journal(tmp_path / "journal")
    assert outcome(nodes.federation(journal=journal)) == WHOLE
    journal.close()
    nodes.close()


def test_a_run_that_starts_again_takes_nothing_from_the_one_before(tmp_path):
    def lose(site: str, request: bytes) -> Fault | None:
        return Fault.REPLY_LOST if lossy and site == "b" else None

    nodes = Nodes(tmp_path, TABLES, STEPS, fault=lose)
    lossy = True
    outcome(nodes.federation(quorum=0.5, timeout=0.0))
    lossy = False
    assert outcome(nodes.federation()) == WHOLE
    nodes.close()


def test_a_node_that_lost_its_file_is_named(tmp_path):
    nodes = Nodes(tmp_path, TABLES, STEPS)
    fed = nodes.federation()
    fed.gather(wired.walk, by=np.zeros(2))
    nodes.answers["b"].forget("a study")
    nodes.start("b")
    with pytest.raises(JournalMismatch, match=r"site 'b' holds no state of call 0.*--resume"):
        fed.gather(wired.walk, by=np.zeros(2))
    nodes.close()


# silence ----------------------------------------------------------------------------------


def test_too_few_answers_name_the_missing_sites_and_progress_tells_them(tmp_path):
    down = set("bc")
    nodes = Nodes(
        tmp_path, TABLES, STEPS, fault=lambda site, _: Fault.DOWN if site in down else None
    )
    seen: list[Any] = []
    fed = nodes.federation(quorum=0.6, timeout=0.0, observer=seen.append)
    with pytest.raises(SiteUnavailable, match=r"1 of 3 sites answered look.*missing: b, c"):
        fed.gather(wired.look)
    down.discard("c")
    fed.gather(wired.look)
    assert fed.answered == ("a", "c")
    assert fed.missing == [(1, "b")]
    (told,) = seen
    assert list(told.missing) == ["b"]
    assert (told.answered, told.asked, told.up, told.down) == (2, 3, 32, 6)
    down.clear()
    fed.gather(wired.look)
    assert fed.answered == ("a", "b", "c")
    nodes.close()


def test_a_line_that_forgets_a_site_leaves_it_missing_and_one_that_invents_one_is_not_heard(
    tmp_path,
):
    asked: list[Any] = []

    class Careless(LoopbackLine):
        def exchange(self, requests: Any, timeout: float) -> Any:
            asked.append(requests)
            for site, reply in super().exchange(requests, timeout):
                if site != "b":
                    yield site, reply
                    yield site, Silence("twice")
                    yield "x", reply

    nodes = Nodes(tmp_path, TABLES, STEPS)
    line = Careless({s: e.handle for s, e in nodes.ends.items()})
    fed = remote(line, "r", "s", quorum=0.5, timeout=0.2)
    fed.gather(wired.look)
    assert fed.answered == ("a", "c")
    assert len(asked) > 1
    nodes.close()


def test_a_silent_site_is_waited_for_once_and_joins_when_it_is_back(tmp_path):
    waits: list[float] = []
    down = {"b"}

    class Slow(LoopbackLine):
        def exchange(self, requests: Any, timeout: float) -> Any:
            waits.append(timeout)
            for site, reply in super().exchange(requests, timeout):
                if isinstance(reply, Silence) and site == "c":
                    time.sleep(timeout)
                yield site, reply

    nodes = Nodes(tmp_path, TABLES, STEPS)
    line = Slow(
        {s: e.handle for s, e in nodes.ends.items()},
        lambda site, _: Fault.DOWN if site in down else None,
    )
    fed = remote(line, "r", "s", quorum=0.5, timeout=0.2, patience=0.05)
    began = time.monotonic()
    fed.gather(wired.look)
    assert 0.2 <= time.monotonic() - began < 2.0
    assert len(waits) > 2
    waits.clear()
    fed.gather(wired.look)
    assert len(waits) == 1
    down.clear()
    fed.gather(wired.look)
    assert fed.answered == ("a", "b", "c")
    nodes.close()


# views ------------------------------------------------------------------------------------


def test_the_text_of_a_view_is_sent_once_and_again_to_a_site_that_lost_it(tmp_path):
    nodes = Nodes(tmp_path, toys.numbers(), toys.NUMBERS)
    fed = nodes.federation().through(Scaled(2.0))
    here = local(toys.hosts(toys.numbers(), toys.NUMBERS)).through(Scaled(2.0))
    whole = here.sum(toys.moments, centre=0.0, power=1).total.tobytes()

    def texts() -> int:
        nodes.came.clear()
        assert fed.sum(toys.moments, centre=0.0, power=1).total.tobytes() == whole
        return sum("spec" in meta_of(body)["view"] for body in nodes.came)

    assert [texts(), texts()] == [3, 0]
    nodes.start("b")
    assert [texts(), texts()] == [1, 0]
    nodes.close()


def test_a_view_without_a_kind_is_refused_before_anything_is_sent(tmp_path):
    class Nameless:
        spec = "{}"

        def __call__(self, data: Any) -> Any:
            return data

    nodes = Nodes(tmp_path, toys.numbers(), toys.NUMBERS)
    with pytest.raises(TypeError, match="Nameless has no kind"):
        nodes.federation().through(Nameless()).gather(toys.means)
    assert not nodes.came
    nodes.close()


def test_a_site_that_never_takes_a_view_does_not_hang_the_run():
    lacks = encode({}, {"kind": "error", "code": "view", "text": ""})
    fed = remote(LoopbackLine({"a": lambda _: lacks}), "r", "s").through(Scaled(1.0))
    with pytest.raises(SiteFailed, match="'a' does not take the view"):
        fed.gather(toys.means)


# errors -----------------------------------------------------------------------------------


def test_a_refusal_is_raised_as_the_class_that_the_site_named():
    def says(**meta: Any) -> bytes:
        return encode({}, {"kind": "error", "text": "said\x1b[2J", **meta})

    for body, kind in (
        (says(code="VerbRefused"), VerbRefused),
        (says(code="DataError"), DataError),
        (says(code="Refused", reason="min_cell"), Refused),
        (says(code="SiteUnavailable"), Refused),
        (says(code="Exception"), ReplyRejected),
        (says(code="__doc__"), ReplyRejected),
        (says(code="Refused"), ReplyRejected),
        (says(code="DataError", more=1), ReplyRejected),
    ):
        with pytest.raises(FedcohortError) as caught:
            remote(LoopbackLine({"a": lambda _, body=body: body}), "r", "s").gather(toys.means)
        assert type(caught.value) is kind
        assert "\x1b" not in str(caught.value)


def test_the_first_failing_site_in_order_is_the_one_that_is_told(tmp_path):
    nodes = Nodes(tmp_path, toys.regressions(), toys.ADMM)
    with pytest.raises(SiteFailed, match=r"site 'a' failed in step distance \(LookupError\)"):
        nodes.federation().sum(toys.distance, z=np.zeros(4))
    nodes.close()


def test_a_request_beyond_the_cap_is_refused_before_it_is_sent(tmp_path):
    nodes = Nodes(tmp_path, toys.numbers(), toys.NUMBERS)
    with pytest.raises(Refused, match=r"echo would send 8\d+ bytes to site 'a'"):
        nodes.federation(cap=5_000).gather(toys.echo, value=np.zeros(1000))
    assert not nodes.came
    nodes.close()


# what comes back is not trusted -------------------------------------------------------------


def answered(arrays: dict[str, Any] | None = None, **meta: Any) -> bytes:
    given = {"total": np.zeros(2), "rows": np.array(3)} if arrays is None else arrays
    return encode(given, {"kind": "reply", "history": "h", "call": 0, **meta})


ODD = {
    "another call": answered(call=1),
    "a call that is no integer": answered(call=False),
    "another history": answered(history="g"),
    "another kind": answered(kind="call"),
    "more meta": answered(more=1),
    "a field less": answered({"total": np.zeros(2)}),
    "a field more": answered({"total": np.zeros(2), "rows": np.array(3), "x": np.zeros(1)}),
    "fields in another order": answered({"rows": np.array(3), "total": np.zeros(2)}),
    "not a number": answered({"total": np.array([np.nan]), "rows": np.array(3)}),
    "infinite": answered({"total": np.array([np.inf]), "rows": np.array(3)}),
    "flags to be summed": answered({"total": np.zeros(2), "rows": np.array(True)}),
    "short counts to be summed": answered(
        {"total": np.zeros(2), "rows": np.ones((), np.int32)}
    ),
    "too many bytes": answered({"total": np.zeros(20_000), "rows": np.array(3)}),
    "no record": b"no record",
    "nothing": b"",
}  # fmt: skip


def lone(answer: Any) -> Any:
    fed = remote(LoopbackLine({"a": answer}), "r", "s", cap=100_000)
    fed._run.transport.head = ("r", "s", "h")  # pyright: ignore
    return fed


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_a_reply_that_is_not_exactly_the_steps_is_refused_naming_the_site(body):
    lone(lambda _: answered()).sum(toys.moments, centre=0.0, power=1)
    with pytest.raises(SiteFailed, match=r"site 'a' answered moments \(call 0\) with"):
        lone(lambda _: body).sum(toys.moments, centre=0.0, power=1)


def mutated(body: bytes, rng: np.random.Generator) -> bytes:
    """Return a record changed here and there, mostly with a checksum that holds."""
    out = bytearray(body[:-4])
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, len(out) + 1))
        cut = int(rng.integers(0, 4))
        out[at : at + cut] = rng.bytes(int(rng.integers(0, 4)))
    sealed = bytes(out) + struct.pack("<I", zlib.crc32(out))
    return sealed if rng.random() < 0.9 else bytes(out)


def test_no_reply_whatever_makes_the_coordinator_raise_anything_but_our_errors():
    rng = np.random.default_rng(0)
    refusal = encode({}, {"kind": "error", "code": "DataError", "text": "y"})
    bodies = [answered(), refusal, *(b for b in ODD.values() if len(b) < 10_000 and b)]
    kinds: set[str] = set()
    for i in range(4000):
        body = mutated(bodies[i % len(bodies)], rng) if i % 4 else rng.bytes(i % 90)
        try:
            total = lone(lambda _, body=body: body).sum(toys.moments, centre=0.0, power=1)
        except FedcohortError as error:
            kinds.add(type(error).__name__)
        else:
            kinds.add("answer")
            assert np.isfinite(total.total).all()
    assert {"answer", "ReplyRejected", "DataError"} <= kinds


def test_a_mutated_request_never_reads_as_an_answer(tmp_path):
    with pytest.raises(Malformed):
        decode(b"")
    nodes = Nodes(tmp_path, toys.numbers(), toys.NUMBERS)
    echo = remote(LoopbackLine({"a": lambda body: body}), "r", "s")
    with pytest.raises(SiteFailed, match="the answer to another call"):
        echo.sum(toys.moments, centre=0.0, power=1)
    nodes.close()
