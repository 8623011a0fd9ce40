"""A network's folder and the kits in it.

```
NAME/
  authority/            stays with whoever made the network: key.pem signs every certificate
    members.json        the sites' public keys, signed
    network.toml  root.pem  key.pem  issued/<party>.pem (all its certificates, oldest first)
  coordinator/          a kit
  sites/<site>/         a kit for each hospital
  people/<person>/      a kit for each study lead, and for each site's data steward
```
A kit is a folder, the same for every engine: `kit.toml` (name, role, engine, coordinator's
address), `root.pem` (the authority), `cert.pem`, `key.pem`, `members.json` (the sites' signing
keys;
see `members`) and `README.txt`; a site's also has `identity.pem`, its own signing key. Folders have
mode 0700 and keys 0600; a key that others can read is refused. Secret are `key.pem` and
`identity.pem` alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from fedcohort.network.kits import members, readme
from fedcohort.network.kits.kit import (
    COORDINATOR,
    ENTRIES,
    LISTS,
    Kit,
    checked_engine,
    host_and_port,
    read_toml,
)
from fedcohort.protocol.errors import InputError
from fedcohort.secure.certificates import (
    DAYS,
    ROLES,
    Certificate,
    Key,
    Role,
    authority,
    checked_name,
    is_name,
    issue,
    now,
)
from fedcohort.secure.trust import plain

__all__ = ["ADDRESS", "COORDINATOR", "Kit", "Network"]

#: Names that no party but the coordinator may have.
RESERVED = (COORDINATOR, "server", "authority")

#: Default address of a network: this computer alone.
ADDRESS = "127.0.0.1:8102"


@dataclass(frozen=True)
class Network:
    """A network's folder, with the authority's key: who may make kits."""

    folder: Path

    @classmethod
    def new(
        cls,
        folder: str | Path,
        *,
        sites: Iterable[str],
        address: str = ADDRESS,
        engine: str = "flare",
        leads: Iterable[str] = ("lead",),
        days: int = DAYS,
        at: datetime | None = None,
    ) -> Network:
        """Make a network: its authority, and a kit for each party.

        Raises
        ------
        InputError : a name, the address or the engine cannot be, or the folder exists.
        """
        folder = Path(folder)
        name = checked_name(folder.name, "network")
        sites, leads = list(sites), list(leads)
        if not sites:
            raise InputError(f"network {name!r}: name at least one site, such as --sites a,b,c.")
        host_and_port(address, "--address")
        checked_engine(engine, "--engine")
        _check_days(days)
        if folder.exists():
            raise InputError(
                f"{folder}: it exists, and a network is never overwritten. Name another folder; "
                "or see 'fedcohort network add' and 'renew'."
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        at = now() if at is None else at
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as half:
            made = cls(Path(half) / name)
            for part in ("authority/issued", "sites", "people"):
                _folder(made.folder / part)
            key = Key.new()
            _write(made._authority / "root.pem", authority(name, key, at).text)
            _write(made._authority / "key.pem", key.text, secret=True)
            made._save({"network": name, "engine": engine, "address": address, "days": days})
            made._issue(COORDINATOR, "coordinator", name, at)
            for site in sites:
                made._issue_site(site, at)
            made._refresh()
            for lead in leads:
                made.add_person(lead, at=at)
            try:
                made.folder.rename(folder)
            except OSError as error:
                raise InputError(f"{folder}: cannot be made ({error.strerror}).") from None
        return cls(folder)

    @classmethod
    def open(cls, folder: str | Path) -> Network:
        """Find a network's folder.

        Raises
        ------
        InputError : it is none, or its authority is elsewhere.
        """
        found = cls(Path(folder))
        for name in ("network.toml", "root.pem", "key.pem"):
            if not (found._authority / name).is_file():
                raise InputError(
                    f"{folder}: authority/{name} is missing, so this is no network's folder. It "
                    "is the one that 'fedcohort network new' made, with its authority."
                )
        return found

    @property
    def name(self) -> str:
        """The network's name."""
        return str(self._settings()["network"])

    @property
    def engine(self) -> str:
        """What carries bytes in it."""
        return str(self._settings()["engine"])

    @property
    def root(self) -> Certificate:
        """The authority's certificate."""
        return Certificate.parse((self._authority / "root.pem").read_bytes())

    def parties(self) -> list[Certificate]:
        """Return the newest certificate of each party: coordinator, sites, people."""
        found = [self._issued(path.stem)[-1] for path in self._issued_files()]
        return sorted(found, key=lambda c: (ROLES.index(cast(Role, c.role)), c.name))

    def revoked(self) -> frozenset[str]:
        """Return the fingerprints of certificates that were taken back."""
        return frozenset(self._settings()["revoked"])

    def kit(self, party: str) -> Path:
        """Return where a party's kit lies in this folder.

        Raises
        ------
        InputError : there is no such party.
        """
        role = self._issued(party)[-1].role
        if role == "coordinator":
            return self.folder / COORDINATOR
        return self.folder / ("sites" if role == "site" else "people") / party

    def add_site(self, site: str, *, at: datetime | None = None) -> Path:
        """Make the kits of one more site and of its data steward; return the site's.

        Raises
        ------
        InputError : the name cannot be, or is taken.
        """
        made = self._issue_site(site, at)
        self._refresh()
        return made

    def add_person(self, person: str, *, at: datetime | None = None) -> Path:
        """Make the kit of one more study lead, and return it.

        Raises
        ------
        InputError : the name cannot be, or is taken.
        """
        self._check_new(person, "person")
        return self._issue(person, "lead", self.name, at)

    def renew(self, party: str, *, at: datetime | None = None, days: int | None = None) -> Path:
        """Give a party a new key and certificate, in its kit in this folder.

        The old certificate stays valid until it ends; see `revoke`. A site keeps its signing key,
        which all
        kits list, unless its certificate was revoked or its kit lies elsewhere: then all sites need
        the new
        members.json.

        Raises
        ------
        InputError : there is no such party.
        """
        old = self._issued(party)[-1]
        made = self._issue(party, cast(Role, old.role), old.organisation, at, days)
        self._refresh()
        return made

    def revoke(self, party: str, *, older: bool = False) -> list[str]:
        """Revoke a party's certificates (`older`: all but the newest); return what was added.

        Raises
        ------
        InputError : there is no such party.
        """
        issued = self._issued(party)
        settings = self._settings()
        marks = [c.fingerprint for c in (issued[:-1] if older else issued)]
        new = [mark for mark in marks if mark not in settings["revoked"]]
        self._save(settings | {"revoked": [*settings["revoked"], *new]})
        if (self._authority / members.LISTED).is_file():
            key = Key.parse((self._authority / "key.pem").read_bytes())
            text = members.signed(self.name, self._members(), key)
            _write(self._authority / members.LISTED, text)
        self._refresh()
        return new

    @property
    def _authority(self) -> Path:
        """Where the authority's files lie."""
        return self.folder / "authority"

    def _settings(self) -> dict[str, Any]:
        """Read network.toml."""
        path = self._authority / "network.toml"
        return read_toml(path, ("network", "engine", "address"), ("revoked",), ("days",))

    def _save(self, values: dict[str, Any]) -> None:
        """Write network.toml."""
        text = "# What kits of this network have alike. Written by fedcohort network.\n"
        _write(self._authority / "network.toml", text + _toml({"revoked": [], **values}))

    def _issued_files(self) -> list[Path]:
        """Return the files of all certificates, one a party."""
        return sorted((self._authority / "issued").glob("*.pem"))

    def _issued(self, party: str) -> list[Certificate]:
        """Return all certificates of a party, oldest first."""
        path = self._authority / "issued" / f"{party}.pem"
        if not is_name(party) or not path.is_file():
            known = ", ".join(p.stem for p in self._issued_files())
            raise InputError(f"{self.folder}: has no party {party[:60]!r}; it has {known}.")
        end = "-----END CERTIFICATE-----\n"
        blocks = path.read_text(encoding="ascii").split(end)
        return [Certificate.parse(block + end) for block in blocks if block.strip()]

    def _check_new(self, name: str, what: str) -> None:
        """Check a new party's name."""
        checked_name(name, what)
        if name in RESERVED:
            raise InputError(f"{what} {name!r}: this name is the network's own; take another.")
        if (self._authority / "issued" / f"{name}.pem").exists():
            raise InputError(f"{what} {name!r}: the network has a party of this name.")

    def _sites(self) -> list[str]:
        """Return the names of all sites."""
        return [c.name for c in self.parties() if c.role == "site"]

    def _issue_site(self, site: str, at: datetime | None) -> Path:
        """Make the kits of a site and its data steward; other kits do not know of it yet."""
        self._check_new(site, "site")
        steward = f"steward-{site}"
        if not is_name(steward):
            raise InputError(f"site {site!r}: up to 32 letters, so that {steward!r} is a name too.")
        self._check_new(steward, "steward")
        made = self._issue(site, "site", site, at)
        self._issue(steward, "steward", site, at)
        return made

    def _issue(
        self,
        name: str,
        role: Role,
        organisation: str,
        at: datetime | None,
        days: int | None = None,
    ) -> Path:
        """Make a key and a certificate, note the latter, and write the party's kit."""
        settings = self._settings()
        at = now() if at is None else at
        days = int(settings["days"]) if days is None else days
        _check_days(days)
        key, hosts = Key.new(), ()
        if role == "coordinator":
            host = host_and_port(settings["address"])[0].strip("[]")
            hosts = (host, COORDINATOR, "localhost", "127.0.0.1", "::1")
        root_key = Key.parse((self._authority / "key.pem").read_bytes())
        made = issue(
            self.root, root_key, key,
            name=name, organisation=organisation, role=role, at=at, days=days, hosts=hosts,
        )  # fmt: skip
        record = self._authority / "issued" / f"{name}.pem"
        before = record.read_text(encoding="ascii") if record.exists() else ""
        taken_back = before and self._issued(name)[-1].fingerprint in settings["revoked"]
        _write(record, before + made.text)
        kit = self.kit(name)
        _folder(kit)
        if role == "site":
            self._identify(name, kit, anew=bool(taken_back))
        _write(kit / "key.pem", key.text, secret=True)
        _write(kit / "cert.pem", made.text)
        _write(kit / "root.pem", self.root.text)
        self._describe(kit, made, settings)
        return kit

    def _identify(self, site: str, kit: Path, *, anew: bool) -> None:
        """See that a site has a signing key, and that the list of members has its public half."""
        listed, secret = self._members(), kit / members.SECRET
        if secret.is_file() and not anew:
            listed[site] = members.public_of(secret.read_bytes(), str(secret))[1].hex()
        else:
            text, listed[site] = members.new_identity()
            _write(secret, text, secret=True)
        key = Key.parse((self._authority / "key.pem").read_bytes())
        _write(self._authority / members.LISTED, members.signed(self.name, listed, key))

    def _members(self) -> dict[str, str]:
        """Return the public keys of the sites with valid certificates, by name."""
        path = self._authority / members.LISTED
        if not path.is_file():
            return {}
        known, revoked = members.read(path.read_bytes(), self.root, str(path)), self.revoked()
        good = {c.name for c in self.parties() if c.fingerprint not in revoked}
        return {name: key.hex() for name, key in known.items() if name in good}

    def _describe(self, kit: Path, party: Certificate, settings: dict[str, Any]) -> None:
        """Write a kit's kit.toml and README.txt."""
        known = set(settings["revoked"])
        if (kit / "kit.toml").is_file():
            known.update(map(plain, read_toml(kit / "kit.toml", ENTRIES, LISTS)["revoked"]))
        values = {
            "network": settings["network"],
            "name": party.name,
            "role": party.role,
            "organisation": party.organisation,
            "engine": settings["engine"],
            "address": settings["address"],
            "coordinator": COORDINATOR,
            "sites": self._sites(),
            "revoked": sorted(known),
        }
        if (self._authority / members.LISTED).is_file():
            _write(kit / members.LISTED, (self._authority / members.LISTED).read_text("ascii"))
        head = f"# {party.name} in the network {settings['network']!r}. See README.txt.\n"
        _write(kit / "kit.toml", head + _toml(values))
        _write(
            kit / "README.txt",
            readme.text(party, settings["address"], settings["network"], settings["engine"]),
        )

    def _refresh(self) -> None:
        """Write kit.toml anew in all kits that still lie in this folder."""
        settings = self._settings()
        for party in self.parties():
            kit = self.kit(party.name)
            if (kit / "kit.toml").is_file():
                self._describe(kit, party, settings)


def _check_days(days: int) -> None:
    """Check for how long a certificate is asked for."""
    if not 1 <= days <= 3650:
        raise InputError(f"--days {days}: a certificate is good for 1 to 3650 days.")


def _toml(values: dict[str, Any]) -> str:
    """Write flat values as TOML (a JSON text, number or list of texts is valid TOML)."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def _folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, for its owner alone."""
    if path.is_dir():
        return
    if not path.parent.is_dir():
        _folder(path.parent)
    path.mkdir(mode=0o700)


def _write(path: Path, text: str, *, secret: bool = False) -> None:
    """Replace a file in one move; a secret one is never readable by others."""
    half = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        half.unlink()
    mode = 0o600 if secret else 0o644
    with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
        if secret:
            file.flush()
            os.fsync(file.fileno())
    half.replace(path)
