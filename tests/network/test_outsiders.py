"""Who has no certificate costs a coordinator next to nothing, and keeps nobody out.

A coordinator process is stormed from the loopback by a client without a certificate: bytes of any
kind as fast as they are taken (up to 1.5 GB), handshakes that begin and stay silent, certificates
made by oneself, and a TLS client that never shows one. Its resident memory is read from the
kernel, at its highest; meanwhile, and afterwards, a lead asks and is answered.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from fedcohort.network import engines
from fedcohort.network.coordinator.lead import Office
from fedcohort.network.kits.make import Kit
from fedcohort.protocol.errors import Refused
from network.parties import Parties

#: Bytes that a stranger tries to be rid of, and seconds that it tries for.
STORM, SECONDS = 1_500_000_000, 8.0
#: Megabytes that it may cost.
MOST = 100.0


def peak(pid: int) -> float:
    """Return the most megabytes that a process was resident with."""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def storm(port: int, head: bytes, *, shake: bool, size: int) -> int:
    """Send bytes over new connections until so many were taken, or the time is over."""
    taken, end, piece = 0, time.monotonic() + SECONDS, bytes(1 << 20)
    rules = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    rules.check_hostname, rules.verify_mode = False, ssl.CERT_NONE
    while taken < size and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 2) as raw:
            raw.settimeout(2)
            sock = rules.wrap_socket(raw) if shake else raw
            sock.sendall(head)
            while taken < size and time.monotonic() < end:
                taken += sock.send(piece)
    return taken


def answered(kit: Kit, seconds: float) -> str:
    """Ask as a lead what needs no study; return why it was refused, which is an answer."""
    spoke = engines.spoke(kit)
    spoke.start()
    try:
        with pytest.raises(Refused) as raised:
            Office(kit, spoke).ask("status", patience=seconds, run="0" * 64)
        return str(raised.value)
    finally:
        spoke.stop()


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory):
    with Parties(tmp_path_factory.mktemp("outsiders") / "n", ["north"]) as net:
        net.coordinator.start()
        net.ready([])
        yield net
    assert net.survivors == []


HEADS = {
    "zeros": (b"", False),
    "a hello that never ends": (b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", False),
    "a request of the web": (b"POST / HTTP/1.1\r\nContent-Length: 1500000000\r\n\r\n", False),
    "TLS without a certificate": (b"", True),
}


@pytest.mark.parametrize("case", HEADS)
def test_bytes_of_strangers_take_no_memory_and_keep_nobody_out(net, case):
    head, shake = HEADS[case]
    before = peak(net.coordinator.pid)
    found: list[int] = []
    storms = [
        threading.Thread(
            target=lambda: found.append(storm(net.port, head, shake=shake, size=STORM // 4)),
            daemon=True,
        )
        for _ in range(4)
    ]
    for thread in storms:
        thread.start()
    assert "no such study" in answered(Kit.read(net.kit("lead")), 20)
    for thread in storms:
        thread.join(SECONDS + 10)
    cost = peak(net.coordinator.pid) - before
    print(f"{case}: {sum(found) / 1e6:.0f} MB sent, {cost:.1f} MB more resident")
    assert cost < MOST
    assert net.coordinator.alive


def test_handshakes_that_stay_silent_keep_nobody_out(net):
    before = peak(net.coordinator.pid)
    socks = []
    try:
        for _ in range(300):
            socks.append(socket.create_connection(("127.0.0.1", net.port), 5))
        began = time.monotonic()
        text = answered(Kit.read(net.kit("lead")), 40)
        took = time.monotonic() - began
    finally:
        for sock in socks:
            sock.close()
    cost = peak(net.coordinator.pid) - before
    print(f"300 silent handshakes: a lead was answered after {took:.1f} s, {cost:.1f} MB more")
    assert "no such study" in text
    assert took < 30
    assert cost < MOST


def test_the_log_of_a_storm_is_a_few_lines(net):
    """Written after the storms above: a line for each kind of refusal, not for each connection."""
    assert len(net.coordinator.lines) < 60
    log = net.kit("coordinator") / "state" / "coordinator.log"
    assert not log.exists() or log.stat().st_size < 100_000
