"""FLARE's line: who gets in, what gets through, and how soon a party that failed is back."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

import msgpack
import psutil
from nvflare.fuel.f3.sfm.constants import Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix

from engines.certs import Maker
from engines.flare_party import write
from fedcohort.engines import tls
from fedcohort.engines.flare import Hub, Spoke, connection, handshake, preflight
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.protocol.line import Silence
from network.wires import Wire, until

LOG = logging.getLogger("party")
LONG_AGO = datetime.now(UTC) - timedelta(days=30)


class Net:
    """A hub, and what the test adds to it; all of it ends with the test."""

    def __init__(self, folder, sites="abc"):
        self.maker = Maker(folder / "net", sites)
        self.folder = folder
        self.ends, self.processes = [], []
        self.hub = None

    def start_hub(self, on_request=lambda b: b"hub:" + b, kit=None, **options):
        self.hub = Hub(kit or self.maker.coordinator(), on_request, LOG, **options)
        self.hub.start()
        self.ends.append(self.hub)
        return self.hub

    def spoke(self, kit, on_request=bytes, **options):
        kit = self.maker.kit(kit) if isinstance(kit, str) else kit
        end = Spoke(kit, on_request, LOG, **options)
        end.start()
        self.ends.append(end)
        return end

    def process(self, what, kit):
        program = Path(__file__).with_name("flare_party.py")
        made = subprocess.Popen(
            [sys.executable, program, what, write(kit)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(program.parents[1]), *sys.path])},
        )
        self.processes.append(made)
        assert made.stdout.readline() == "ready\n"
        return made

    def together(self, *names):
        until(lambda: self.hub.line.connected >= set(names))

    def exchange(self, requests, timeout=5.0):
        return dict(self.hub.line.exchange(requests, timeout))

    def until_answered(self, site, seconds):
        """Ask as the layer above does, until the site answers; return how long that took."""
        began = time.monotonic()
        while isinstance(self.exchange({site: b"x"}, 1.0)[site], Silence):
            assert time.monotonic() - began < seconds, "did not come back"
            time.sleep(0.02)
        return time.monotonic() - began

    def close(self):
        for process in self.processes:
            process.kill()
            process.communicate()
        for end in reversed(self.ends):
            end.stop()


@pytest.fixture
def net(tmp_path):
    made = Net(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    made = Net(tmp_path_factory.mktemp("three"))
    made.start_hub()
    for name in "abc":
        made.spoke(name, lambda b, n=name: n.encode() + b)
    made.together(*"abc")
    yield made
    made.close()


def lines(caplog):
    return [r.getMessage() for r in caplog.records]


# What gets through


@pytest.mark.parametrize("size", [0, 1, 2**20, 8 * 2**20])
def test_bytes_arrive_as_they_were_sent_in_both_directions(three, size):
    bodies = {name: os.urandom(size) for name in "abc"}
    assert three.exchange(bodies) == {n: n.encode() + body for n, body in bodies.items()}
    lead = three.spoke("lead", None)
    assert lead.ask(bodies["a"], 5) == b"hub:" + bodies["a"]
    lead.stop()


def test_sites_are_asked_at_the_same_time_and_yielded_as_they_answer(net):
    net.start_hub()
    all_asked = threading.Barrier(3, timeout=5)
    may_answer = {name: threading.Event() for name in "abc"}

    def answer(name, body):
        all_asked.wait()
        return may_answer[name].wait(5) and body

    for name in "abc":
        net.spoke(name, lambda b, n=name: answer(n, b))
    net.together(*"abc")
    heard = net.hub.line.exchange(dict.fromkeys("abc", b"x"), 10)
    for name in "cab":
        may_answer[name].set()
        assert next(heard) == (name, b"x")
    assert list(heard) == []


def test_every_site_is_yielded_once_a_dead_one_at_once_a_slow_one_at_the_timeout(net):
    net.start_hub()
    gate = threading.Event()
    net.spoke("a")
    net.spoke("b", lambda b: gate.wait(10) and b)
    net.together("a", "b")
    began = time.monotonic()
    heard = {
        n: (r, time.monotonic() - began)
        for n, r in net.hub.line.exchange(dict.fromkeys("abc", b"x"), 1.0)
    }
    gate.set()
    assert heard["a"][0] == b"x"
    assert heard["c"][0] == Silence("c is not connected.", late=False)
    assert heard["c"][1] < 0.8
    assert heard["b"][0] == Silence("b did not answer within 1 s.", late=True)
    assert 0.95 < heard["b"][1] < 3.0


def test_an_answer_after_the_timeout_does_not_answer_the_next_request(net):
    net.start_hub()
    net.spoke("a", lambda b: time.sleep(0.3 if b == b"first" else 0) or b)
    net.together("a")
    assert isinstance(net.exchange({"a": b"first"}, 0.1)["a"], Silence)
    assert net.exchange({"a": b"second"}) == {"a": b"second"}


def test_an_answerer_that_breaks_tells_neither_the_log_nor_the_other_side_why(net, caplog):
    net.start_hub()
    net.spoke("a", lambda b: int("Jane Doe, 1950-01-01"))
    net.together("a")
    with caplog.at_level(logging.DEBUG):
        heard = net.exchange({"a": b"x"})
    assert heard == {"a": Silence("a broke while it answered.")}
    assert "Jane" not in caplog.text and "ValueError" in caplog.text


def test_what_is_too_large_is_not_sent_and_the_connection_goes_on(net):
    net.start_hub(cap=10_000)
    net.spoke("a", lambda b: b * 20, cap=10_000)
    net.together("a")
    assert net.exchange({"a": bytes(10_001)}) == {
        "a": Silence("the request to a has 10001 bytes, more than 10000.", late=False)
    }
    large = Silence("a has an answer that is larger than a message may be.")
    assert net.exchange({"a": bytes(1000)}) == {"a": large}
    assert net.exchange({"a": b"x"}) == {"a": b"x" * 20}


def test_a_name_that_is_no_site_is_an_error(three):
    with pytest.raises(InputError, match="'lead' is no site of the network 'net'"):
        three.exchange({"lead": b"x"})


def test_people_of_one_name_ask_at_once_and_get_their_own_answers(three):
    kit = three.maker.kit("lead")
    first, second = three.spoke(kit, None), three.spoke(kit, None)
    assert (first.ask(b"1", 5), second.ask(b"2", 5), first.ask(b"3", 5)) == (
        b"hub:1",
        b"hub:2",
        b"hub:3",
    )
    assert three.hub.line.connected == set("abc")
    first.stop()
    second.stop()


# Who gets in


def test_an_expired_certificate_is_refused_with_a_line_on_both_sides(net, caplog):
    net.start_hub()
    with pytest.raises(Refused, match="refuses the certificate of 'a': it has expired") as error:
        preflight(net.maker.kit("a", at=LONG_AGO, days=1))
    assert error.value.code == "expired"
    until(lambda: any("(expired): its certificate has expired" in line for line in lines(caplog)))


def test_an_expired_coordinator_is_refused(net):
    net.start_hub(kit=net.maker.kit("coordinator", "coordinator", at=LONG_AGO, days=1))
    with pytest.raises(Refused, match=r"the certificate at 127\.0\.0\.1:\d+ has expired"):
        preflight(net.maker.kit("a"))


def test_a_certificate_of_another_network_is_refused_by_either_side(net, tmp_path, caplog):
    net.start_hub()
    other = Maker(tmp_path / "other", "abc", net.maker.address)
    with pytest.raises(Refused, match="is not of the network 'net'") as error:
        preflight(other.kit("a"))
    assert error.value.code == "untrusted"
    stranger = replace(other.kit("a"), root=net.maker.kit("a").root)
    with pytest.raises(Refused, match="refuses the certificate of 'a'") as error:
        preflight(stranger)
    assert error.value.code == "untrusted"
    until(lambda: any("its certificate is not of this network" in line for line in lines(caplog)))
    spoke = net.spoke(stranger)
    time.sleep(0.3)
    assert not spoke.connected and not net.hub.line.connected


def test_a_site_cannot_pass_for_the_coordinator(net):
    thief = replace(net.maker.kit("b"), name="coordinator")
    net.start_hub(kit=thief)
    with pytest.raises(Refused) as error:
        preflight(net.maker.kit("a"))
    assert error.value.code == "role"
    net.hub.stop()
    net.start_hub(kit=net.maker.kit("someone", "coordinator"))
    with pytest.raises(Refused, match="certificate of 'someone', not of the coordinator") as error:
        preflight(net.maker.kit("a"))
    assert error.value.code == "name"


def test_a_party_cannot_claim_a_name_that_is_not_in_its_certificate(net, caplog):
    net.start_hub()
    for thief in (replace(net.maker.kit("b"), name="a"), replace(net.maker.kit("lead"), name="a")):
        net.spoke(thief)
    until(lambda: sum("of another name than it claims" in line for line in lines(caplog)) >= 1)
    time.sleep(0.5)
    assert not net.hub.line.connected
    net.spoke("a")
    net.together("a")


def test_revoked_and_unknown_sites_are_told_so(net):
    good, lost, new = net.maker.kit("a"), net.maker.kit("a"), net.maker.kit("d", "site")
    der = ssl.PEM_cert_to_DER_cert(lost.certificate.read_text())
    from hashlib import sha256

    net.start_hub(
        kit=replace(net.maker.coordinator(), revoked=frozenset({sha256(der).hexdigest()}))
    )
    assert preflight(good) is None
    for kit, code in ((lost, "revoked"), (new, "unknown")):
        with pytest.raises(Refused) as error:
            preflight(kit)
        assert error.value.code == code


def test_preflight_says_what_may_pass_and_what_listens_that_is_no_coordinator(net):
    assert "nothing listens at" in preflight(net.maker.kit("a"))
    with socket.create_server(tls.host_port(net.maker.address)) as plain:
        assert "no greeting within 0.3 s" in preflight(net.maker.kit("a"), 0.3)
        answer = threading.Thread(
            target=lambda: [plain.accept()[0].sendall(b"HTTP/1.1 400 no\r\n\r\n") for _ in "12"]
        )
        answer.start()
        with pytest.raises(Refused, match="does not speak TLS"):
            preflight(net.maker.kit("a"))
        socket.create_connection(plain.getsockname()).close()
        answer.join()


def test_strangers_who_stay_silent_or_send_garbage_keep_nobody_out(net, caplog):
    net.start_hub()
    silent = [socket.create_connection(net.hub.address) for _ in range(20)]
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4000)):
        with socket.create_connection(net.hub.address) as sock:
            sock.sendall(garbage)
            with contextlib.suppress(ConnectionError):
                while sock.recv(100):
                    pass
    drip = socket.create_connection(net.hub.address)
    drip.sendall(b"\x16\x03\x01\x02\x00\x01")
    began = time.monotonic()
    net.spoke("a")
    net.together("a")
    assert time.monotonic() - began < 0.5 * handshake.HANDSHAKE
    assert net.exchange({"a": b"x"}) == {"a": b"x"}
    until(lambda: any("(not TLS): it does not speak TLS." in line for line in lines(caplog)))
    for sock in (*silent, drip):
        sock.close()


def test_a_handshake_ends_after_its_seconds_in_all_however_slowly_it_drips(
    net, caplog, monkeypatch
):
    monkeypatch.setattr(handshake, "HANDSHAKE", 0.4)
    net.start_hub()
    with socket.create_connection(net.hub.address) as sock:
        hello = ssl.MemoryBIO()
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.check_hostname = False
        talk = made.wrap_bio(ssl.MemoryBIO(), hello)
        with pytest.raises(ssl.SSLWantReadError):
            talk.do_handshake()
        began = time.monotonic()
        with pytest.raises(OSError):
            for byte in hello.read():
                sock.sendall(bytes([byte]))
                time.sleep(0.05)
        assert time.monotonic() - began < 2.0
    assert any("(slow)" in line for line in lines(caplog))


# What a malicious site can send


def frame(kind, headers=None, payload=b"", length=None):
    head = msgpack.packb(headers) if headers else b""
    made = bytearray(PREFIX_LEN)
    Prefix(
        length or PREFIX_LEN + len(head) + len(payload), len(head), kind, 0, 0, 1, 1, 1
    ).to_buffer(made, 0)
    return bytes(made) + head + payload


def raw(net, name, greeting=True):
    """Return a TLS connection with a good certificate, to say anything on."""
    kit = net.maker.kit(name)
    sock = handshake.dial(kit, tls.context(kit, server=False))
    sock.settimeout(5)
    if greeting:
        sock.sendall(frame(Types.HELLO, payload=msgpack.packb({"endpoint_name": name})))
        net.together(name)
        sock.recv(1000)
    return sock


def ended(sock):
    try:
        return sock.recv(1) == b""
    except OSError:
        return True


@pytest.mark.parametrize(
    ("sent", "greeting"),
    [
        (frame(Types.DATA, {"kind": "ask", "id": bytes(16)}), False),
        (frame(Types.HELLO, payload=msgpack.packb({"endpoint_name": "coordinator"})), False),
        (frame(Types.HELLO, payload=msgpack.packb({"endpoint_name": "b"})), False),
        (frame(Types.HELLO, payload=msgpack.packb({"endpoint_name": "a.b"})), False),
        (frame(Types.HELLO, payload=msgpack.packb(["a"])), False),
        (frame(Types.HELLO, payload=b"\xc1"), False),
        (frame(Types.HELLO, length=2**30), False),
        (frame(Types.HELLO, payload=msgpack.packb({"endpoint_name": "b"})), True),
        (frame(Types.READY, payload=msgpack.packb({"endpoint_name": "b"})), True),
        (frame(Types.DATA, length=2**32 - 1), True),
        (frame(Types.DATA, length=3), True),
        (frame(99), True),
    ],
    ids=lambda v: "",
)
def test_frames_that_may_not_be_end_their_connection_alone(net, sent, greeting):
    net.start_hub()
    net.spoke("b")
    net.together("b")
    sock = raw(net, "a", greeting)
    before = psutil.Process().memory_info().rss
    sock.sendall(sent)
    assert ended(sock)
    assert psutil.Process().memory_info().rss - before < 50e6
    until(lambda: net.hub.line.connected == {"b"})
    assert net.exchange({"b": b"x"}) == {"b": b"x"}
    sock.close()


def test_what_is_no_message_of_ours_is_dropped_and_never_decoded(net, monkeypatch):
    import nvflare.fuel.utils.fobs as fobs

    calls, asked = [], []
    monkeypatch.setattr(fobs, "loads", lambda *a, **k: calls.append(a))
    net.start_hub(lambda b: asked.append(b) or b)
    spoke_asked = []
    net.spoke("b", lambda b: spoke_asked.append(b) or b)
    net.together("b")
    sock = raw(net, "a")
    cell = {
        "cn__msg_type": "req",
        "cn__channel": "cellnet.channel",
        "cn__topic": "bulk",
        "cn__origin": "coordinator",
        "cn__destination": "b",
        "cn__payload_encoding": "fobs",
    }
    for headers in (
        cell,
        None,
        {"kind": "ask"},
        {"kind": "ask", "id": b"short"},
        {"kind": "ask", "id": bytes(16), "to": "b"},
    ):
        sock.sendall(frame(Types.DATA, headers, b"\x81\xa1x"))
    sock.sendall(frame(Types.DATA, {"kind": "ask", "id": bytes(16)}, b"last"))
    until(lambda: asked)
    assert (asked, spoke_asked, calls) == ([b"last"], [], [])
    sock.close()


def test_one_site_cannot_answer_for_another(net):
    net.start_hub()
    gate = threading.Event()
    net.spoke("b", lambda b: gate.wait(5) and b"true")
    net.together("b")
    sock = raw(net, "a")
    heard = net.hub.line.exchange({"b": b"x"}, 5)
    got = []
    asking = threading.Thread(target=lambda: got.extend(heard))
    asking.start()
    until(lambda: net.hub._end._waiting)
    (key,) = net.hub._end._waiting  # even if it knew the secret number
    sock.sendall(frame(Types.DATA, {"kind": "reply", "id": key, "code": ""}, b"forged"))
    time.sleep(0.1)
    gate.set()
    asking.join()
    assert got == [("b", b"true")]
    sock.close()


def test_requests_beyond_what_may_wait_are_dropped_and_memory_stays_bounded(net, caplog):
    gate, asked = threading.Event(), []
    net.start_hub(lambda b: asked.append(b) or (gate.wait(5) and b""), cap=10**6)
    sock = raw(net, "a")
    for _ in range(50):
        sock.sendall(frame(Types.DATA, {"kind": "ask", "id": os.urandom(16)}, b"x"))
    until(lambda: any("too many requests without answer" in line for line in lines(caplog)))
    time.sleep(0.2)
    assert len(asked) == connection.UNANSWERED
    gate.set()
    sock.close()


# Who fails and comes back


def test_a_node_that_is_killed_is_noticed_at_once_and_answers_again_after_its_restart(net):
    net.start_hub()
    kit = net.maker.kit("a")
    first = net.process("slow", kit)
    net.together("a")
    threading.Timer(0.3, first.kill).start()
    began = time.monotonic()
    assert net.exchange({"a": b"x"}, 30) == {
        "a": Silence("the connection to a was lost.", late=True)
    }
    assert time.monotonic() - began < 5.0
    net.process("echo", kit)
    assert net.until_answered("a", 5.0)


def test_a_stopped_node_is_replaced_by_a_new_one_and_a_living_one_is_not(net, caplog):
    net.start_hub()
    kit = net.maker.kit("a")
    first = net.process("echo", kit)
    net.together("a")
    with pytest.raises(
        Refused, match="already is in touch with a running node of the name 'a'"
    ) as error:
        preflight(kit)
    assert error.value.code == "taken"
    second = net.spoke(kit, lambda b: b"second")
    time.sleep(0.3)
    assert not second.connected and net.exchange({"a": b"x"}) == {"a": b"x"}
    second.stop()
    os.kill(first.pid, signal.SIGSTOP)
    net.spoke(kit, lambda b: b"third")
    until(lambda: net.exchange({"a": b"x"}, 0.5)["a"] == b"third")
    os.kill(first.pid, signal.SIGCONT)
    time.sleep(0.5)
    assert net.exchange({"a": b"x"}) == {"a": b"third"}


def test_sites_find_a_coordinator_that_was_killed_and_started_again(net):
    kit = net.maker.coordinator()
    first = net.process("hub", kit)
    spokes = [net.spoke(name) for name in "abc"]
    until(lambda: all(s.connected for s in spokes))
    first.kill()
    until(lambda: not any(s.connected for s in spokes))
    net.start_hub(kit=kit)
    began = time.monotonic()
    net.together(*"abc")
    assert time.monotonic() - began < 5.0
    assert net.exchange(dict.fromkeys("abc", b"x")) == dict.fromkeys("abc", b"x")


def test_a_hub_and_a_spoke_can_be_started_anew_in_the_same_process(net):
    kit = net.maker.coordinator()
    for _ in range(3):
        net.start_hub(kit=kit)
        spoke = net.spoke("a")
        net.together("a")
        assert net.exchange({"a": b"x"}) == {"a": b"x"}
        spoke.stop()
        net.hub.stop()
        assert net.exchange({"a": b"x"})["a"] == Silence("a is not connected.", late=False)


def test_a_connection_that_the_network_cut_silently_is_noticed_and_made_again(net, monkeypatch):
    monkeypatch.setattr(connection, "QUIET", 0.1)
    monkeypatch.setattr(connection, "DEAD", 0.6)
    monkeypatch.setattr(connection, "PROOF", 0.3)
    net.start_hub()
    wire = Wire(net.hub.address)
    spoke = net.spoke(replace(net.maker.kit("a"), address="{}:{}".format(*wire.address)))
    net.together("a")
    time.sleep(1.0)  # signs of life keep a quiet connection
    assert spoke.connected and net.exchange({"a": b"x"}) == {"a": b"x"}
    wire.strand()
    assert isinstance(net.exchange({"a": b"x"}, 0.1)["a"], Silence)
    assert net.until_answered("a", 5.0) < 4.0
    wire.close()


def test_a_message_that_takes_longer_than_silence_may_last_arrives(net, monkeypatch):
    monkeypatch.setattr(connection, "QUIET", 0.1)
    monkeypatch.setattr(connection, "DEAD", 0.5)
    net.start_hub()
    wire = Wire(net.hub.address)
    wire.slow = 0.015
    body = os.urandom(6 * 2**20)
    net.spoke(
        replace(net.maker.kit("a"), address="{}:{}".format(*wire.address)),
        lambda b: body if b else b,
    )
    net.together("a")
    began = time.monotonic()
    assert net.exchange({"a": b"x"}, 15) == {"a": body}
    assert time.monotonic() - began > 1.0
    assert net.exchange({"a": b""}, 15) == {"a": b""}
    wire.close()


# How a process behaves


def test_a_process_prints_nothing_writes_nothing_opens_one_port_and_ends_at_once(net):
    hub = net.process("hub", net.maker.coordinator())
    busy = net.process("slow", net.maker.kit("a"))
    with socket.create_connection(tls.host_port(net.maker.address)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
    lead = net.spoke("lead", None)
    assert lead.ask(b"x", 5) == b"hub:x"
    listening = [c for c in psutil.Process(hub.pid).net_connections() if c.status == "LISTEN"]
    assert [(c.laddr.ip, c.laddr.port) for c in listening] == [tls.host_port(net.maker.address)]
    assert not [c for c in psutil.Process(busy.pid).net_connections() if c.status == "LISTEN"]
    assert psutil.Process(hub.pid).num_threads() < 12
    assert psutil.Process(busy.pid).num_threads() < 8
    assert {p.name for p in net.folder.iterdir()} == {"net"}
    for process in (busy, hub):
        began = time.monotonic()
        process.terminate()
        assert process.wait(5) == -signal.SIGTERM
        assert time.monotonic() - began < 2.0
        out, errors = process.communicate()
        assert out == "" and "Traceback" not in errors and "nvflare" not in errors


def test_a_program_that_forgets_to_stop_its_end_ends_all_the_same(net):
    net.start_hub()
    idle = net.process("idle", net.maker.kit("a"))
    assert idle.wait(5) == 0
    assert idle.communicate() == ("", "")


def test_a_port_in_use_is_an_error_and_not_tried_for_ever(net):
    net.start_hub()
    with pytest.raises(InputError, match=r"cannot listen on 127\.0\.0\.1:.*in use"):
        Hub(net.maker.coordinator(), bytes, LOG).start()


def test_twenty_sites_in_one_process_answer_a_broadcast(tmp_path):
    names = [f"site-{i:02}" for i in range(20)]
    net = Net(tmp_path, names)
    try:
        net.start_hub()
        for name in names:
            net.spoke(name, lambda b, n=name: n.encode() + b)
        net.together(*names)
        assert net.exchange(dict.fromkeys(names, b"x")) == {n: n.encode() + b"x" for n in names}
    finally:
        net.close()
