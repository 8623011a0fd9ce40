"""A party's trust: the network's own authority alone.

A certificate is accepted if the authority's key signed it, the date lies in it, it is not revoked,
and it has the required role (and name). Codes of refusals:

    untrusted       not signed by this network's authority; of another network; or no certificate
    not yet valid   the date lies before it (this computer's clock may be wrong)
    expired         the date lies after it
    revoked         its fingerprint is in the party's list `revoked`
    role, name      of another party than the one that may speak here
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from fedcohort.protocol.errors import Refused
from fedcohort.secure.certificates import Certificate, is_name, now

#: The codes that a certificate is refused with.
CODES = ("untrusted", "not yet valid", "expired", "revoked", "role", "name")


@dataclass(frozen=True)
class Peer:
    """A party that has shown who it is."""

    name: str
    role: str
    organisation: str
    certificate: Certificate = field(repr=False, compare=False)


class Trust:
    """Certificates that one network's authority vouches for.

    Parameters
    ----------
    root : the authority's certificate, as PEM text or its file.
    revoked : fingerprints (SHA-256, hex) of revoked certificates.
    clock : returns the time.
    """

    def __init__(
        self,
        root: str | bytes | Path,
        revoked: Iterable[str] = (),
        *,
        clock: Callable[[], datetime] = now,
    ):
        text = root.read_bytes() if isinstance(root, Path) else root
        self.root = Certificate.parse(text)
        self.revoked = frozenset(plain(mark) for mark in revoked)
        self.clock = clock

    @property
    def network(self) -> str:
        """The network's name."""
        return self.root.name

    def verify(
        self, pem: str | bytes, roles: Iterable[str] | None = None, name: str | None = None
    ) -> Peer:
        """Return whose a certificate is.

        Parameters
        ----------
        roles, name : what the party must be; any by default.

        Raises
        ------
        Refused : see this module's codes.
        """
        found = Certificate.parse(pem)
        who = f"the certificate of {found.name!r}" if is_name(found.name) else "a certificate"
        if not self.root.issued(pem):
            raise Refused(
                "untrusted",
                f"{who} was not issued by the authority of network {self.network!r}.",
            )
        self.check_dates(found, who)
        if found.fingerprint in self.revoked:
            raise Refused("revoked", f"{who} was taken back; its holder needs a new one.")
        wanted = None if roles is None else tuple(roles)
        if wanted is not None and found.role not in wanted:
            raise Refused(
                "role", f"{who} is for a {found.role}; here a {' or '.join(wanted)} is needed."
            )
        if name is not None and found.name != name:
            raise Refused("name", f"{who} is not that of {name!r}, which is needed here.")
        return Peer(found.name, found.role, found.organisation, found)

    def check_dates(self, found: Certificate, who: str = "the certificate") -> None:
        """Check a certificate's dates, and the authority's own.

        Raises
        ------
        Refused : "not yet valid" or "expired".
        """
        at = self.clock()
        for one, whose in (
            (self.root, f"the authority's certificate of network {self.network!r}"),
            (found, who),
        ):
            if at < one.since:
                raise Refused(
                    "not yet valid",
                    f"{whose} is valid from {one.since:%Y-%m-%d %H:%M} UTC on, and it is "
                    f"{at:%Y-%m-%d %H:%M} UTC by this computer's clock, which is behind: set it.",
                )
            if at > one.until:
                raise Refused(
                    "expired",
                    f"{whose} was valid until {one.until:%Y-%m-%d %H:%M} UTC, and it is "
                    f"{at:%Y-%m-%d %H:%M} UTC by this computer's clock. If that is not today's "
                    f"date, set the clock; if it is, ask for a new certificate (fedcohort network "
                    f"renew).",
                )


def plain(fingerprint: str) -> str:
    """Return a fingerprint as we compare it: hex without colons, small letters."""
    return fingerprint.replace(":", "").strip().lower()
