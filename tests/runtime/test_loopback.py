"""The line within one process: every site is answered for once, whatever its faults."""

from __future__ import annotations

from typing import Any

import pytest

from fedcohort.protocol.line import Line, Silence
from loopback import Fault, LoopbackLine


def line(*faults: Fault | None) -> tuple[Line, list[bytes]]:
    """Return a line to one site that echoes, and what came there."""
    came: list[bytes] = []
    planned = list(faults)

    def answer(request: bytes) -> bytes:
        came.append(request)
        return b"re: " + request

    def fault(site: str, request: bytes) -> Fault | None:
        return planned.pop(0) if planned else None

    return LoopbackLine({"a": answer}, fault), came


def ask(line: Line, text: bytes) -> Any:
    ((site, reply),) = line.exchange({"a": text}, 1.0)
    assert site == "a"
    return reply


def test_each_site_gets_its_own_request_and_is_yielded_once():
    ends = {s: lambda body, s=s: s.encode() + body for s in "cab"}
    there = LoopbackLine(ends)
    assert there.sites == ("a", "b", "c")
    assert there.connected == {"a", "b", "c"}
    assert dict(there.exchange({"c": b"1", "a": b"2"}, 1.0)) == {"c": b"c1", "a": b"a2"}


@pytest.mark.parametrize(
    ("fault", "arrived", "late"),
    [(Fault.DOWN, 0, False), (Fault.REQUEST_LOST, 0, True), (Fault.REPLY_LOST, 1, True)],
)
def test_a_lost_request_or_reply_is_silence_that_says_whether_it_may_have_come(
    fault, arrived, late
):
    there, came = line(fault)
    reply = ask(there, b"x")
    assert isinstance(reply, Silence)
    assert reply.late is late
    assert len(came) == arrived
    assert ask(there, b"y") == b"re: y"


def test_a_doubled_request_comes_twice_and_is_answered_once():
    there, came = line(Fault.TWICE)
    assert ask(there, b"x") == b"re: x"
    assert came == [b"x", b"x"]


def test_late_requests_come_after_the_next_one_that_arrives():
    there, came = line(Fault.LATE, Fault.LATE, None)
    assert isinstance(ask(there, b"x"), Silence)
    assert isinstance(ask(there, b"y"), Silence)
    assert came == []
    assert ask(there, b"z") == b"re: z"
    assert came == [b"z", b"x", b"y"]
