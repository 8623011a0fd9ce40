"""One party's kit: the folder with which it is itself in a network. `kits` makes them."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from fedcohort.network.kits import members
from fedcohort.network.kits.members import Membership
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.secure.certificates import ROLES, Certificate, Key, Role, checked_name, now
from fedcohort.secure.trust import Trust, plain

Engine = Literal["flare", "flower"]
ENGINES: tuple[Engine, ...] = get_args(Engine)

#: The name of the party in the middle.
COORDINATOR = "coordinator"

ENTRIES = ("network", "name", "role", "organisation", "engine", "address", "coordinator")
LISTS = ("sites", "revoked")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9a-fA-F:]+")


@dataclass(frozen=True, kw_only=True)
class Kit:
    """One party's kit.

    Attributes
    ----------
    folder : its folder.
    name, role, organisation : as in its certificate.
    network : the network's name.
    engine : transport of the network.
    address : the coordinator's host and port, as parties reach it.
    coordinator : the coordinator's name, as in its certificate.
    sites : all sites when the kit was written, sorted; the coordinator's list counts.
    revoked : fingerprints of revoked certificates.
    root, certificate, key : files in PEM form.
    """

    folder: Path
    name: str
    role: Role
    organisation: str
    network: str
    engine: Engine
    address: str
    coordinator: str
    sites: tuple[str, ...]
    revoked: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def read(cls, folder: str | Path, *, clock: Callable[[], datetime] = now) -> Kit:
        """Read a kit and check that it can be used.

        Raises
        ------
        InputError : a file is missing or malformed.
        Refused : "mode" (others can read the key), "key" (it is not the certificate's), "name" or
            "role" (the certificate is another's), or a code of `secure.trust`.
        """
        kit = cls.open(folder)
        kit.check(clock)
        return kit

    @classmethod
    def open(cls, folder: str | Path) -> Kit:
        """Read what a kit says, without checking its certificate and key.

        Raises
        ------
        InputError : a file is missing or malformed.
        """
        folder = Path(folder)
        if (folder / "authority").is_dir():
            raise InputError(
                f"{folder}: this is a network's folder; name a kit in it, such as "
                f"{folder / COORDINATOR}, {folder / 'sites'}/NAME or {folder / 'people'}/NAME."
            )
        if folder.is_file():
            raise InputError(f"{folder}: this is a file; a kit is its folder, {folder.parent}.")
        for name in ("kit.toml", "root.pem", "cert.pem", "key.pem"):
            if not (folder / name).is_file():
                raise InputError(
                    f"{folder}: {name} is missing, so this is no kit. A kit is a folder that "
                    "'fedcohort network new' made."
                )
        values = read_toml(folder / "kit.toml", ENTRIES, LISTS)
        where = f"{folder / 'kit.toml'}:"
        if values["role"] not in ROLES:
            raise InputError(f"{where} role {values['role']!r} is none of {', '.join(ROLES)}.")
        return cls(
            folder=folder,
            name=checked_name(values["name"], f"{where} name"),
            role=values["role"],
            organisation=values["organisation"],
            network=checked_name(values["network"], f"{where} network"),
            engine=checked_engine(values["engine"], where),
            address="{}:{}".format(*host_and_port(values["address"], where)),
            coordinator=checked_name(values["coordinator"], f"{where} coordinator"),
            sites=tuple(sorted(checked_name(s, f"{where} site") for s in values["sites"])),
            revoked=frozenset(map(plain, values["revoked"])),
        )

    @property
    def root(self) -> Path:
        """The authority's certificate."""
        return self.folder / "root.pem"

    @property
    def certificate(self) -> Path:
        """The party's certificate."""
        return self.folder / "cert.pem"

    @property
    def key(self) -> Path:
        """The party's private key."""
        return self.folder / "key.pem"

    @property
    def host(self) -> str:
        """The coordinator's host."""
        return host_and_port(self.address)[0].strip("[]")

    @property
    def port(self) -> int:
        """The coordinator's port."""
        return host_and_port(self.address)[1]

    def trust(self, revoked: Iterable[str] = (), *, clock: Callable[[], datetime] = now) -> Trust:
        """Return this party's trust; `revoked` adds to the kit's own list."""
        return Trust(self.root, {*self.revoked, *revoked}, clock=clock)

    def private_key(self) -> Key:
        """Read the private key.

        Raises
        ------
        Refused : "mode" or "key".
        """
        if os.name == "posix" and self.key.stat().st_mode & 0o077:
            raise Refused(
                "mode",
                f"{self.key}: other users of this computer can read this private key. "
                f"Run: chmod 600 {self.key}",
            )
        try:
            return Key.parse(self.key.read_bytes())
        except Refused as error:
            raise Refused(error.code, f"{self.key}: {error}") from None

    def membership(self) -> Membership:
        """Read what a site needs for masked sums: its own signing key, and those of all sites.

        Raises
        ------
        Refused : "secure" or "mode"; see `members`.
        """
        return members.of_kit(self.folder, self.name, Certificate.parse(self.root.read_bytes()))

    def check(self, clock: Callable[[], datetime] = now) -> Certificate:
        """Check that certificate, key and `kit.toml` belong together, and are good now.

        Raises
        ------
        Refused : as in `read`.
        """
        key = self.private_key()
        try:
            trust = self.trust(clock=clock)
            found = trust.verify(self.certificate.read_bytes(), (self.role,), self.name).certificate
        except Refused as error:
            raise Refused(error.code, f"{self.certificate}: {error}") from None
        if trust.network != self.network:
            raise Refused(
                "untrusted",
                f"{self.root}: this is the authority of network {trust.network!r}, and kit.toml "
                f"says {self.network!r}.",
            )
        if not found.matches(key):
            raise Refused(
                "key",
                f"{self.key}: this private key is not the one of {self.certificate.name}. "
                "Put both files of one kit together.",
            )
        return found


def host_and_port(address: str, where: str = "address") -> tuple[str, int]:
    """Split HOST:PORT; the host of an IPv6 address keeps its brackets.

    Raises
    ------
    InputError : it is no such address.
    """
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not _HOST.fullmatch(bare) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(
            f"{where} {address[:80]!r}: give HOST:PORT as the sites reach the coordinator, such as "
            "fed.example.org:8102."
        )
    if (":" in bare) != (bare != host):
        raise InputError(f"{where} {address[:80]!r}: write an IPv6 address as [::1]:8102.")
    return host, int(port)


def checked_engine(engine: str, where: str) -> Engine:
    """Return an engine's name, if it is one.

    Raises
    ------
    InputError : it is none.
    """
    if engine not in ENGINES:
        raise InputError(f"{where} engine {engine[:60]!r} is none of {', '.join(ENGINES)}.")
    return engine


def read_toml(
    path: Path, texts: tuple[str, ...], lists: tuple[str, ...], numbers: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Read a flat TOML file that has exactly these keys."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is no TOML: {error}.") from None
    known = (*texts, *lists, *numbers)
    for key in values:
        if key not in known:
            raise InputError(f"{path}: the key {key[:60]!r} is unknown; it has {', '.join(known)}.")
    for key in known:
        if key not in values:
            raise InputError(f"{path}: the key {key!r} is missing.")
        kind = str if key in texts else int if key in numbers else list
        good = type(values[key]) is kind
        if kind is list and good:
            good = all(isinstance(part, str) for part in values[key])
        if not good:
            wanted = {str: "a text", int: "a number", list: "a list of texts"}[kind]
            raise InputError(f"{path}: {key} must be {wanted}.")
    return values
