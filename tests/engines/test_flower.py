"""Flower carries bytes, and no more: over a grid of this process, and over mutual TLS."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("flwr")


from conformance import cases as conformance
from engines import certs, flower_local
from fedcohort.engines import flower
from fedcohort.engines.flower import gate, http
from fedcohort.engines.flower import spoke as node
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.protocol.line import Silence
from fedcohort.runtime.remote import remote
from fedcohort.runtime.reply_store import Answers
from fedcohort.runtime.site.site_end import SiteEnd
from network.wires import until

SITES = ("a", "b", "c")
PLANTED = "Jane Doe 4711"


def mirror(body: bytes) -> bytes:
    return body[::-1]


def breaks(body: bytes) -> bytes:
    raise ValueError(f"could not convert string to float: {PLANTED!r}")


# over a grid of this process ----------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 1000, 2**20, 8 * 2**20])
def test_bytes_come_back_as_they_were_sent(size):
    body = os.urandom(size)
    line = flower_local.line({"a": mirror, "b": lambda _: body})
    assert dict(line.exchange({"a": body, "b": b""}, 30)) == {"a": body[::-1], "b": body}


def test_an_exceptions_text_does_not_leave_the_site():
    line = flower_local.line({"a": breaks})
    ((site, reply),) = line.exchange({"a": b"x"}, 5)
    assert site == "a"
    assert isinstance(reply, Silence)
    assert "refused" in reply.text
    grid = line._grid
    app = grid.apps[100]
    raw = flower_local.wire(app(grid.seen[0], None))
    assert raw.has_error()
    assert PLANTED not in repr(raw)


def test_a_message_that_is_not_ours_is_refused_at_both_ends():
    from flwr.app import ConfigRecord, Message, RecordDict

    from fedcohort.engines.flower.line import CALL, client_app, read

    line = flower_local.line({"a": mirror})
    (_,) = line.exchange({"a": b"x"}, 5)
    sent = line._grid.seen[0]
    for content in (
        RecordDict(),
        RecordDict({"other": ConfigRecord({"body": b"x"})}),
        RecordDict({"fedcohort": ConfigRecord({"body": "text"})}),
        RecordDict({"fedcohort": ConfigRecord({"body": b"x", "more": 1})}),
    ):
        told = []
        app = client_app(lambda _, told=told: lambda body: told.append(body) or b"")
        strange = flower_local.wire(Message(content, 100, CALL))
        assert app(strange, None).has_error()
        assert not told
        reply = flower_local.wire(Message(content, reply_to=sent))
        assert isinstance(read(reply, "a"), Silence)


def test_each_site_is_yielded_once_whatever_it_does():
    awake = threading.Event()

    def sleeps(_: bytes) -> bytes:
        awake.wait(20)
        return b""

    line = flower_local.line({"a": mirror, "b": sleeps, "c": mirror}, offline="c")
    began = time.monotonic()
    heard = list(line.exchange(dict.fromkeys(("c", "x", "b", "a"), b"12"), 1.0))
    took = time.monotonic() - began
    awake.set()
    assert sorted(site for site, _ in heard) == ["a", "b", "c", "x"]
    replies = dict(heard)
    assert replies["a"] == b"21"
    assert [s for s, _ in heard][-1] == "b"
    assert 1.0 <= took < 2.5
    assert replies["b"].late
    assert not replies["c"].late
    assert not replies["x"].late


def test_sites_answer_at_the_same_time():
    line = flower_local.line(dict.fromkeys(SITES, lambda body: time.sleep(0.5) or body))
    began = time.monotonic()
    assert len(dict(line.exchange(dict.fromkeys(SITES, b"x"), 10))) == 3
    assert time.monotonic() - began < 1.2


def over_flower(hosts, folder, **options):
    """A conformance runtime: sites behind Flower messages."""
    ends = {
        host.name: SiteEnd(
            host.name,
            lambda _run, _session, host=host: host,
            Answers(folder / f"{host.name}.sqlite"),
        ).handle
        for host in hosts
    }
    options.pop("journal", None)
    return remote(flower_local.line(ends), "a study", "a fit", **options)


@pytest.mark.parametrize("method", ["cox", "logistic", "ridge"])
def test_methods_leave_the_same_arrays_and_ledger_as_on_the_local_runtime(
    method, tmp_path, monkeypatch
):
    monkeypatch.setitem(conformance.RUNTIMES, "flower", over_flower)
    kind = {"cox": "survival", "logistic": "classification", "ridge": "regression"}[method]
    case = conformance.Case(method, kind, ())
    there, here = conformance.run(case, "flower", folder=tmp_path), conformance.reference(case)
    assert there.arrays == here.arrays
    assert there.ledger == here.ledger
    assert there.history == here.history


# over mutual TLS ----------------------------------------------------------------------------


@contextmanager
def network(folder, answers=None, people=mirror, **options) -> Iterator[tuple]:
    """A hub and its sites, in this process, over TLS on loopback."""
    maker = certs.Maker(folder / "net", SITES)
    hub = flower.Hub(maker.coordinator(), people, **options)
    hub.start()
    spokes = {}
    try:
        for site, answer in (answers or dict.fromkeys(SITES, mirror)).items():
            spokes[site] = flower.Spoke(maker.kit(site), answer)
            spokes[site].start()
        until(lambda: len(hub.line.connected) == len(spokes))
        yield maker, hub, spokes
    finally:
        for spoke in spokes.values():
            spoke.stop()
        hub.stop()


def test_bytes_over_tls_come_back_and_nothing_is_kept(tmp_path):
    with network(tmp_path) as (_, hub, _):
        assert hub.line.sites == SITES
        assert hub.line.connected == {*SITES}
        for size in (0, 1, 2**20, 8 * 2**20):
            sites = SITES if size < 2**22 else "a"
            bodies = {site: os.urandom(size) for site in sites}
            replies = dict(hub.line.exchange(bodies, 30))
            assert replies == {site: body[::-1] for site, body in bodies.items()}
        assert not hub._state.object_store.store
        assert hub._state.num_message_ins() == hub._state.num_message_res() == 0
        assert not hub._state._object_push_sessions
        assert not hub._line._lives


def test_exchanges_at_once_do_not_take_each_others_news(tmp_path):
    with network(tmp_path, {"a": mirror}) as (_, hub, _):
        line = hub._line
        line.wake()
        heard = line._news()
        line.wake()
        line._look({})  # another exchange has seen what came
        began = time.monotonic()
        line._pause(5, heard)
        assert time.monotonic() - began < 1


def test_a_reply_that_comes_too_late_is_dropped(tmp_path):
    late = threading.Event()

    def slow(body: bytes) -> bytes:
        late.wait(20)
        return body

    with network(tmp_path, {"a": slow, "b": mirror}) as (_, hub, spokes):
        replies = dict(hub.line.exchange({"a": b"12", "b": b"12"}, 0.7))
        assert replies["b"] == b"21"
        assert isinstance(replies["a"], Silence)
        assert replies["a"].late
        late.set()
        assert dict(hub.line.exchange({"a": b"34"}, 10)) == {"a": b"34"}
        spokes["b"].stop()
        assert isinstance(dict(hub.line.exchange({"b": b"5"}, 5))["b"], Silence)
        assert not hub._state.object_store.store
        assert hub._state.num_message_ins() == hub._state.num_message_res() == 0


def test_a_call_takes_no_longer_than_the_messages_do(tmp_path):
    with network(tmp_path) as (_, hub, _):
        times = []
        for _ in range(8):
            began = time.monotonic()
            assert len(dict(hub.line.exchange(dict.fromkeys(SITES, b"x"), 30))) == 3
            times.append(time.monotonic() - began)
        assert sorted(times)[4] < 1.0  # Flower's own programs: 4 s and more


@pytest.mark.parametrize("renewed", [False, True])
def test_a_site_that_began_anew_is_told_apart_at_once_and_answers_again(tmp_path, renewed):
    asked = threading.Event()
    blocked = threading.Event()

    def first(_: bytes) -> bytes:
        asked.set()
        blocked.wait(20)
        return b"from the dead"

    with network(tmp_path, {"a": first}) as (maker, hub, spokes):
        heard = []
        thread = threading.Thread(target=lambda: heard.extend(hub.line.exchange({"a": b"x"}, 30)))
        thread.start()
        assert asked.wait(10)
        again = flower.Spoke(maker.kit("a") if renewed else spokes["a"]._kit, mirror)
        again.start()
        try:
            thread.join(10)
            assert [(s, type(r)) for s, r in heard] == [("a", Silence)]
            assert heard[0][1].late
            until(lambda: hub.line.connected)
            assert dict(hub.line.exchange({"a": b"12"}, 10)) == {"a": b"21"}
        finally:
            blocked.set()
            again.stop()


def test_a_restarted_coordinator_is_found_again(tmp_path):
    with network(tmp_path, {"a": mirror}) as (maker, hub, spokes):
        hub.stop()
        assert spokes["a"].ask(b"x", 2).late is False
        again = flower.Hub(maker.coordinator(), mirror)
        again.start()
        try:
            until(lambda: again.line.connected)
            assert dict(again.line.exchange({"a": b"12"}, 10)) == {"a": b"21"}
        finally:
            again.stop()


def test_a_site_that_went_is_silent_at_once(tmp_path):
    with network(tmp_path) as (_, hub, spokes):
        spokes["a"].stop()
        began = time.monotonic()
        replies = dict(hub.line.exchange({"a": b"12", "b": b"12"}, 20))
        assert time.monotonic() - began < 5
        assert replies["b"] == b"21"
        assert isinstance(replies["a"], Silence)
        assert not replies["a"].late


@pytest.mark.parametrize("turn", range(4))
def test_a_site_that_stops_while_it_asks_has_left_when_it_has_stopped(tmp_path, turn):
    with network(tmp_path, {"a": mirror}) as (_, hub, spokes):
        assert dict(hub.line.exchange({"a": b"12"}, 10)) == {"a": b"21"}
        time.sleep(turn * 0.002)  # it is about to ask for the next message
        spokes["a"].stop()
        assert hub.line.connected == set()


def test_flower_ending_its_run_ends_nothing_of_ours(tmp_path):
    with network(tmp_path, {"a": mirror}) as (_, hub, _):
        assert dict(hub.line.exchange({"a": b"12"}, 10)) == {"a": b"21"}
        run = hub._line._state_grid.run
        hub._state.finish_task(run.primary_task_id, "failed", "")
        assert dict(hub.line.exchange({"a": b"34"}, 10)) == {"a": b"43"}
        assert hub._line._state_grid.run.run_id != run.run_id


def test_a_clock_that_is_an_hour_off_keeps_no_site_away(tmp_path, monkeypatch):
    class Ahead(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(hours=1)

    monkeypatch.setattr(node, "datetime", Ahead)
    with network(tmp_path, {"a": mirror}) as (_, hub, _):
        assert dict(hub.line.exchange({"a": b"12"}, 10)) == {"a": b"21"}


def test_people_ask_the_coordinator(tmp_path):
    with network(tmp_path, {"a": mirror}) as (maker, _, _):
        lead = flower.Spoke(maker.kit("lead"), None)
        lead.start()
        assert lead.connected
        body = os.urandom(3 * 2**20)
        assert lead.ask(body, 10) == body[::-1]
        assert flower.preflight(maker.kit("lead"), 5) is None
        lead.stop()


def test_who_is_not_of_the_network_is_turned_away_with_a_line_on_both_sides(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    other = certs.Maker(tmp_path / "other", SITES)
    with network(tmp_path, {"a": mirror}) as (maker, hub, _):
        expired = maker.kit("b", at=datetime.now(UTC) - timedelta(days=9), days=3)
        stranger = certs.Kit(
            "b", maker.address, SITES, maker.folder / "root.pem",
            other.kit("b").certificate, other.kit("b").key,
        )  # fmt: skip
        mixed = other.kit("b")
        stranger = certs.Kit("b", maker.address, SITES, stranger.root, mixed.certificate, mixed.key)
        for kit, line in ((expired, "is expired"), (stranger, "is not of this network")):
            caplog.clear()
            spoke = flower.Spoke(kit, mirror)
            heard = spoke.ask(b"x", 5)
            assert isinstance(heard, Silence)
            assert "does not accept this certificate" in heard.text
            spoke.start()
            time.sleep(0.4)
            spoke.stop()
            assert any(line in record.message for record in caplog.records)
            assert hub.line.connected == {"a"}
        lost = certs.Kit("lead", maker.address, SITES, mixed.root, mixed.certificate, mixed.key)
        with pytest.raises(Refused, match="is not of the network 'net'") as refused:
            flower.preflight(lost, 5)
        assert refused.value.code == "untrusted"


def test_only_a_site_with_its_certificates_key_is_a_node(tmp_path):
    with network(tmp_path, {"a": mirror}) as (maker, hub, _):
        lead, b = maker.kit("lead"), maker.kit("b")
        as_lead = flower.Spoke(lead, mirror)
        as_lead.start()
        borrowed = flower.Spoke(b, mirror)
        borrowed._signed = node.Signed(maker.kit("b"))
        borrowed.start()
        time.sleep(0.5)
        assert hub.line.connected == {"a"}
        as_lead.stop()
        borrowed.stop()


def test_a_certificate_that_was_taken_back_opens_nothing(tmp_path):
    import dataclasses

    maker = certs.Maker(tmp_path / "net", SITES)
    gone = maker.kit("lead")
    mark = hashlib.sha256(_der(gone)).hexdigest()
    hub = flower.Hub(dataclasses.replace(maker.coordinator(), revoked=frozenset({mark})), mirror)
    hub.start()
    try:
        heard = flower.Spoke(gone, None).ask(b"x", 5)
        assert isinstance(heard, Silence)
        assert "not any more" in heard.text
        assert flower.Spoke(maker.kit("lead"), None).ask(b"12", 5) == b"21"
    finally:
        hub.stop()


def _der(kit) -> bytes:
    import ssl

    return ssl.PEM_cert_to_DER_cert(kit.certificate.read_text())


def test_nothing_else_of_flower_can_be_reached(tmp_path):
    from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES

    with network(tmp_path, {"a": mirror}) as (maker, _, _):
        site = maker.kit("a")

        def post(client, path):
            extensions = http.named(site)
            return client.post(path, content=b"", extensions=extensions).status_code

        with http.client(site, 5) as client:
            paths = {path for _, path in PROTOBUF_REQUEST_TYPES} - gate.FLEET
            assert {"/v1/control/start-run", "/v1/fleet/get-fab"} <= paths
            for path in (*paths, "/docs", "/openapi.json", "/", "/health"):
                assert post(client, path) == 404, path
            for path in gate.FLEET:
                assert post(client, path) == 403, path


def test_a_body_that_is_too_long_is_not_read(tmp_path):
    with network(tmp_path, {"a": mirror}, cap=1000) as (maker, _, _):
        lead = flower.Spoke(maker.kit("lead"), None)
        assert lead.ask(b"x" * 1000, 5) == b"x" * 1000
        heard = lead.ask(b"x" * 1001, 5)
        assert isinstance(heard, Silence)
        assert "as long as this" in heard.text


def test_a_taken_port_is_one_line(tmp_path):
    with network(tmp_path, {"a": mirror}) as (maker, _, _), pytest.raises(InputError) as error:
        flower.Hub(maker.coordinator(), mirror).start()
    assert maker.address in str(error.value)
