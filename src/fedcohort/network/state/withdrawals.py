"""A hospital's withdrawal from a study, signed there, and checked by all others.

Signed is the JSON text of ["fedcohort withdrawal 1", network, site, study, reason, by, at], with
the key of the site's data steward or, where no steward decides, of the site itself. A study that
forgets a hospital carries its withdrawal (`study.file.forget`), so that no lead or coordinator can
leave out a hospital that stays: from the old model and one without it follows what it added.

The certificate must have been valid at the time of the withdrawal; later revocations count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from fedcohort.network.kits import Kit
from fedcohort.network.requests import is_hash
from fedcohort.network.state.decisions import now
from fedcohort.network.state.signatures import name_of, trust_at
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.secure.trust import Trust


@dataclass(frozen=True)
class Withdrawal:
    """One hospital's request to be forgotten.

    Attributes
    ----------
    study : hash of the study that was run first.
    by, at : who signed, and when (UTC).
    signature, certificate : in hex, and in PEM form.
    """

    site: str
    study: str
    reason: str
    by: str
    at: str
    signature: str = ""
    certificate: str = ""

    @classmethod
    def of(cls, record: Mapping[str, str]) -> Withdrawal:
        """Return the withdrawal of a record.

        Raises
        ------
        Refused : it is none.
        """
        try:
            found = cls(**record)
        except TypeError:
            raise Refused("withdrawal", "the record is no withdrawal.") from None
        if not all(isinstance(v, str) for v in asdict(found).values()) or not is_hash(found.study):
            raise Refused("withdrawal", "the record is no withdrawal.")
        return found

    def record(self) -> dict[str, str]:
        """Return it as a study carries it."""
        return asdict(self)

    def signed(self, network: str) -> bytes:
        """Return the signed text."""
        parts = [
            "fedcohort withdrawal 1", network, self.site, self.study, self.reason, self.by, self.at,
        ]  # fmt: skip
        return json.dumps(parts, separators=(",", ":")).encode()

    def verify(self, trust: Trust) -> None:
        """Check that this hospital signed it.

        Raises
        ------
        Refused : "withdrawal".
        """
        try:
            then = trust_at(trust, self.at)
            peer = then.verify(self.certificate, ("steward", "site"))
            own = {"steward": name_of(self.site), "site": self.site}[peer.role]
            good = peer.name == own == self.by and peer.certificate.signed(
                bytes.fromhex(self.signature), self.signed(trust.network)
            )
        except (Refused, ValueError):
            good = False
        if not good:
            raise Refused(
                "withdrawal",
                f"the withdrawal of {self.site!r} is not signed by that hospital; only a hospital "
                f"itself withdraws ('fedcohort node withdraw HASH --reason …' there).",
            )

    @property
    def said(self) -> str:
        """Say when and why."""
        return f"withdrew on {self.at[:10]}: {self.reason.rstrip('.')}"


def made(kit: Kit, site: str, network: str, study: str, reason: str) -> Withdrawal:
    """Return a withdrawal, signed with the kit of the site or of its steward.

    Raises
    ------
    InputError : the kit is of someone else.
    """
    if (kit.role, kit.name) not in (("steward", name_of(site)), ("site", site)):
        raise InputError(
            f"{kit.folder}: this is the kit of {kit.name!r}, a {kit.role}; {site!r} withdraws with "
            f"the kit of {name_of(site)!r}."
        )
    bare = Withdrawal(site, study, reason, kit.name, now())
    signature = kit.private_key().sign(bare.signed(network)).hex()
    return replace(bare, signature=signature, certificate=kit.certificate.read_text())
