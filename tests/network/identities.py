"""Networks, certificates and a wire with somebody in the middle, for tests of who is who."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedcohort.network.kits.make import Kit, Network
from fedcohort.protocol.line import Silence
from fedcohort.secure.certificates import Certificate, Key, Role, authority, issue
from fedcohort.secure.channel import Callee, Caller
from fedcohort.secure.trust import Peer

#: A fixed day; clocks of tests are told it.
DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Authority:
    """An authority in memory, with what it issues."""

    def __init__(self, network: str = "heart", at: datetime = DAY, days: int = 3650):
        self.key = Key.new()
        self.root = authority(network, self.key, at, days)

    def issue(
        self,
        name: str = "a",
        role: Role = "site",
        at: datetime = DAY,
        days: int = 397,
        key: Key | None = None,
    ) -> Certificate:
        return issue(
            self.root, self.key, key or Key.new(),
            name=name, organisation=name, role=role, at=at, days=days,
        )  # fmt: skip


def later(**by: float) -> Callable[[], datetime]:
    """Return a clock that stands, that much after the fixed day."""
    return lambda: DAY + timedelta(**by)


def kits(folder: Path, name: str = "heart", sites: str = "abc") -> dict[str, Kit]:
    """Make a network; return its kits by party."""
    made = Network.new(folder / name, sites=list(sites))
    return {party.name: Kit.read(made.kit(party.name)) for party in made.parties()}


class Middle:
    """A line whose messages somebody sees, and may change, before they arrive.

    `onward` maps (site, message) to the message that arrives, or to None where it is dropped;
    `back` does so with replies. `seen` has all messages in order, as (site, message, reply).
    """

    def __init__(self, callees: Mapping[str, Callee]):
        self.callees = dict(callees)
        self.onward: Callable[[str, bytes], bytes | None] = lambda site, blob: blob
        self.back: Callable[[str, bytes], bytes | None] = lambda site, blob: blob
        self.seen: list[tuple[str, bytes, bytes]] = []

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(sorted(self.callees))

    @property
    def connected(self) -> frozenset[str]:
        return frozenset(self.callees)

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Silence]]:
        for site, blob in requests.items():
            changed = self.onward(site, blob)
            if changed is None:
                yield site, Silence(f"{site}: dropped")
                continue
            reply = self.callees[site].handle(changed)
            self.seen.append((site, changed, reply))
            answer = self.back(site, reply)
            yield site, Silence(f"{site}: dropped") if answer is None else answer


class Site:
    """A callee that notes what reaches it."""

    def __init__(self, kit: Kit, roles: tuple[str, ...] = ("coordinator",), **more: object):
        self.bodies: list[bytes] = []
        self.peers: list[Peer] = []
        self.lines: list[str] = []
        trust = more.pop("trust", None) or kit.trust()
        self.callee = Callee(kit, trust, roles, self._answer, log=self.lines.append, **more)

    def _answer(self, peer: Peer, body: bytes) -> bytes:
        self.bodies.append(body)
        self.peers.append(peer)
        return b"re: " + body


def calling(kit: Kit, middle: Middle, **more: object) -> tuple[Caller, list[str]]:
    """Return a caller over a line, and its log."""
    lines: list[str] = []
    trust = more.pop("trust", None) or kit.trust()
    return Caller(kit, trust, middle, log=lines.append, **more), lines


def ask(caller: Caller, site: str, body: bytes = b"hello", timeout: float = 5.0) -> bytes | Silence:
    """Ask one site."""
    return dict(caller.exchange({site: body}, timeout))[site]
