"""Throw-away kits for tests of engines: good, expired, or of another network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedcohort.secure.certificates import Key, Role
from network.identities import Authority
from network.wires import free_port


@dataclass(frozen=True)
class Kit:
    """What an engine asks of a kit."""

    name: str
    address: str
    sites: tuple[str, ...]
    root: Path
    certificate: Path
    key: Path
    network: str = "net"
    coordinator: str = "coordinator"
    revoked: frozenset[str] = frozenset()


class Maker:
    """A network of its own authority, in a folder."""

    def __init__(self, folder: Path, sites: Iterable[str], address: str | None = None):
        self.folder, self.sites = folder, tuple(sites)
        self.address = address or f"127.0.0.1:{free_port()}"
        self._authority = Authority("net", datetime.now(UTC))
        folder.mkdir(parents=True)
        (folder / "root.pem").write_text(self._authority.root.text)

    def kit(
        self, name: str, role: Role | None = None, at: datetime | None = None, days: int = 9
    ) -> Kit:
        """Make a kit; its certificate is good from a day before `at`."""
        role = role or ("site" if name in self.sites else "lead")
        key = Key.new()
        certificate = self._authority.issue(name, role, at or datetime.now(UTC), days, key)
        number = len(list(self.folder.iterdir()))
        files = self.folder / f"{number}.pem", self.folder / f"{number}.key"
        files[0].write_text(certificate.text)
        files[1].write_text(key.text)
        return Kit(name, self.address, self.sites, self.folder / "root.pem", *files)

    def coordinator(self) -> Kit:
        return self.kit("coordinator", "coordinator")
