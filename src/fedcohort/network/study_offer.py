"""A signed study: what a lead asks of the sites, with proof of the lead.

An offer is canonical JSON (sorted keys, no spaces) of seven texts: the study's `terms`, their
SHA-256 (`hash`, which a steward approves), the network, the lead, the lead's fedcohort version, the
lead's certificate, and the signature (ECDSA P-256, SHA-256, hex) over a purpose and the canonical
JSON of the other six. Nothing of it is executed.

Refused: "malformed" or "oversized" bytes; "edited" (a text is not the signed one); "network";
"version" (the first two numbers differ); the lead's certificate, with a code of `secure.trust`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, cast

from fedcohort import version as here
from fedcohort.network.kits import Kit
from fedcohort.network.requests import is_hash
from fedcohort.protocol.errors import Refused
from fedcohort.secure.certificates import Certificate, is_name
from fedcohort.secure.channel import VERSION, compatible, read_json
from fedcohort.secure.trust import Peer, Trust

PURPOSE = b"fedcohort offer 1\0"

#: The longest offer, in bytes.
LONGEST = 9 * 2**20

_FIELDS = ("certificate", "hash", "lead", "network", "signature", "terms", "version")
_SIGNATURE = re.compile(r"[0-9a-f]{128,160}")


@dataclass(frozen=True)
class Offer:
    """A study as its lead signed it.

    Attributes
    ----------
    terms : canonical text of the study (`study.file.terms.Terms.to_json`).
    hash : SHA-256 of `terms`, in hex (`Terms.hash`).
    network, lead : the network it was signed for, and the signer.
    version : the lead's fedcohort.
    certificate : the lead's, in PEM form.
    signature : in hex.
    """

    terms: str = field(repr=False)
    hash: str
    network: str
    lead: str
    version: str
    certificate: str = field(repr=False)
    signature: str = field(repr=False)

    @classmethod
    def from_bytes(cls, blob: bytes) -> Offer:
        """Read an offer; `verify` checks who made it.

        Raises
        ------
        Refused : "malformed", "oversized", or "edited" (`hash` is not that of `terms`).
        """
        if len(blob) > LONGEST:
            raise Refused("oversized", f"an offer of {len(blob)} bytes; {LONGEST} are allowed.")
        says = read_json(bytes(blob), _FIELDS)
        if says is None or _canonical(says) != bytes(blob):
            raise Refused("malformed", "the study did not come as a signed offer.")
        found = cls(**says)
        good = (
            VERSION.fullmatch(found.version)
            and _SIGNATURE.fullmatch(found.signature)
            and is_hash(found.hash)
            and is_name(found.network)
            and is_name(found.lead)
            and len(found.certificate) <= 8192
        )
        if not good:
            raise Refused("malformed", "the study's offer holds a text that cannot be there.")
        if _hash(found.terms) != found.hash:
            raise Refused("edited", "the study is not the one that was signed: its hash differs.")
        return found

    def to_bytes(self) -> bytes:
        """Return the offer as it is sent and kept."""
        return _canonical(self._says())

    def verify(self, trust: Trust, *, version: str = here.VERSION) -> Peer:
        """Check who made the offer, and that nothing of it was changed; return the lead.

        Raises
        ------
        Refused : see this module.
        """
        if self.network != trust.network:
            raise Refused(
                "network",
                f"the study was signed for network {self.network!r}; this is {trust.network!r}.",
            )
        peer = trust.verify(self.certificate, ("lead",), self.lead)
        if _hash(self.terms) != self.hash or not peer.certificate.signed(
            bytes.fromhex(self.signature), self.signed()
        ):
            raise Refused(
                "edited", f"the study is not the one that {self.lead} signed: it was changed."
            )
        if not compatible(version, self.version):
            raise Refused(
                "version",
                f"{self.lead} made the study with fedcohort {self.version}, and this is {version}; "
                "the first two numbers must agree.",
            )
        return peer

    def _says(self) -> dict[str, str]:
        """Return the texts by name."""
        return {name: cast(str, getattr(self, name)) for name in _FIELDS}

    def signed(self) -> bytes:
        """Return the signed text."""
        says = self._says()
        del says["signature"]
        return PURPOSE + _canonical(says)


def offer(terms: str, kit: Kit, *, version: str = here.VERSION) -> Offer:
    """Sign a study, as the text of `Terms.to_json`, with a lead's kit.

    Raises
    ------
    Refused : "role", where the kit is not a lead's; "oversized".
    """
    if kit.role != "lead":
        raise Refused(
            "role", f"{kit.folder}: this is the kit of a {kit.role}; a lead's signs studies."
        )
    certificate = Certificate.parse(kit.certificate.read_bytes()).text
    bare = Offer(terms, _hash(terms), kit.network, kit.name, version, certificate, "")
    made = replace(bare, signature=kit.private_key().sign(bare.signed()).hex())
    if len(made.to_bytes()) > LONGEST:
        raise Refused("oversized", f"the study is too large; up to {LONGEST} bytes travel.")
    return made


def _hash(terms: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(terms.encode()).hexdigest()


def _canonical(says: dict[str, Any]) -> bytes:
    """Return texts as canonical JSON."""
    text = json.dumps(says, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()
