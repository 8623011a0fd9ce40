"""1.5 GB at the coordinator's port from whoever has not proven who it is: memory and answers.

    python benchmarks/scorecard/large_body.py

A coordinator runs as a process of its own, once over each engine. Its peak memory (VmHWM) is read
from the kernel before and after each of these, which write until they are stopped:

Flower's engine, where the port speaks HTTPS
    plain       a POST of 1.5 GB without TLS
    stranger    the same under TLS, without a certificate of the network
    no proof    the same with a site's certificate, but without the signature by which Flower knows
                a node: to a path of nodes, to the path of leads, and in chunks without a length
FLARE's engine, where it speaks frames under TLS
    plain       frames of 1.5 GB without TLS
    stranger    the same under TLS, without a certificate of the network
    no greeting the same with a site's certificate, before the node has said who it is

Target: the answer 413 where there is a certificate and a length, which is the first place at which
an answer in HTTP can be read; connections that are closed everywhere else.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import sys
import tempfile
import time
from base64 import b64encode
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from sheet import forget_peak, main, megabytes

from fedcohort.engines import tls
from fedcohort.engines.flower.gate import KEY_HEADER, PEOPLE, PULL, public_key
from fedcohort.network.kits.make import Kit
from fedcohort.secure.certificates import Certificate
from network.parties import Parties

ITEM = "1.5 GB unauthenticated body"
TARGET = "413, < 100 MB more memory"
SIZE, MOST_MB, SECONDS = 1_500_000_000, 100.0, 60.0


def post(path: str, more: bytes = b"", *, chunks: bool = False) -> bytes:
    """Return the head of a POST."""
    length = b"Transfer-Encoding: chunked" if chunks else b"Content-Length: %d" % SIZE
    first = b"%x\r\n" % SIZE if chunks else b""
    return b"POST %b HTTP/1.1\r\nHost: x\r\n%b%b\r\n\r\n%b" % (path.encode(), more, length, first)


def anybody() -> ssl.SSLContext:
    """Return TLS without a certificate."""
    rules = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    rules.check_hostname, rules.verify_mode = False, ssl.CERT_NONE
    return rules


def sent(port: int, head: bytes, rules: ssl.SSLContext | None, name: str) -> tuple[str, int]:
    """Write a head and then 1.5 GB, as long as anything is taken; return answer and bytes taken."""
    piece, taken, answer = bytes(1 << 20), 0, b""
    end = time.monotonic() + SECONDS
    raw = socket.create_connection(("127.0.0.1", port), 5)
    raw.settimeout(5)
    sock: socket.socket = raw
    try:
        if rules is not None:
            sock = rules.wrap_socket(raw, server_hostname=name)
        sock.sendall(head)
        while taken < SIZE and time.monotonic() < end:
            taken += sock.send(piece)
    except OSError:
        pass
    with contextlib.suppress(OSError):
        while part := sock.recv(65536):
            answer += part
    sock.close()
    status = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    return (status[1].decode() if status else "closed"), taken


def attempts(engine: str, net: Parties) -> dict[str, tuple[bytes, ssl.SSLContext | None, str]]:
    """Return, by name: what is written first, under which TLS, and what must come back."""
    site, frame = Kit.read(net.kit("north")), struct.pack(">IHIIHBB", SIZE, 0, 0, 0, 0, 1, 0)
    if engine == "flare":
        return {
            "plain": (frame, None, "closed"),
            "stranger": (frame, anybody(), "closed"),
            "no greeting": (frame, tls.context(site, server=False), "closed"),
        }
    der = Certificate.parse(site.certificate.read_bytes())
    key = b64encode(public_key(ssl.PEM_cert_to_DER_cert(der.text)))
    node = KEY_HEADER + b": " + key + b"\r\n"
    certified = tls.context(site, server=False)
    certified.check_hostname = False
    return {
        "plain": (post(PULL), None, "closed"),
        "stranger": (post(PULL), anybody(), "closed"),
        "no proof, path of nodes": (post(PULL, node), certified, "413"),
        "no proof, path of parts": (
            post(PULL.replace("pull-messages", "push-object"), node), certified, "413",
        ),
        "no proof, path of leads": (post(PEOPLE), certified, "413"),
        "no proof, no length": (post(PULL, node, chunks=True), certified, "411"),
    }  # fmt: skip


def measure() -> tuple[str, bool]:
    """Write to both; say what came back and what it cost."""
    said, worst, good, met = list[str](), 0.0, 0, True
    for engine in ("flower", "flare"):
        with (
            tempfile.TemporaryDirectory() as folder,
            Parties(Path(folder) / "n", ["north"], engine=engine) as net,
        ):
            net.coordinator.start()
            net.ready([])
            kit = Kit.read(net.kit("north"))
            pid, most = net.coordinator.pid, 0.0
            for name, (head, rules, right) in attempts(engine, net).items():
                before = megabytes("VmRSS", pid)
                forget_peak(pid)
                answer, taken = sent(net.port, head, rules, kit.coordinator)
                cost = megabytes("VmHWM", pid) - before
                print(f"{engine}, {name}: {answer}, {taken / 1e6:.0f} MB taken, {cost:.1f} MB more")
                most = max(most, cost)
                good += answer == right
                met = met and answer == right and cost < MOST_MB and net.coordinator.alive
            said.append(f"{engine} {most:.0f} MB")
            worst = max(worst, most)
    text = (
        f"413 (411 without a length) where there is a certificate, else closed: {good} of 9 "
        f"attempts; at most {worst:.0f} MB more ({', '.join(said)})"
    )
    return text, met


if __name__ == "__main__":
    main(__file__, ITEM, TARGET, measure)
