"""A data steward's signature under a decision: made with the steward's kit, checked by the node.

ECDSA on P-256 with SHA-256, by the key of a certificate that this network's authority issued to
`steward-SITE` in the role of a steward: another site's steward decides nothing here. It lapses with
the certificate.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from fedcohort.network.kits import Kit
from fedcohort.network.state.policy import Policy
from fedcohort.network.state.study_store import Sign, StudyStore, Verify
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.secure.trust import Trust


def name_of(site: str) -> str:
    """Return the name of a site's data steward."""
    return f"steward-{site}"


def verifier(trust: Trust, site: str, *, then: bool = False) -> Verify:
    """Return a check of whether a signature is by the site's own steward.

    Parameters
    ----------
    then : check the certificate at the time of the decision, not now (for a history, in which an
        approval stays true after its certificate lapsed).
    """

    def counts(text: bytes, signature: bytes, certificate: bytes, by: str) -> bool:
        try:
            believed = trust_at(trust, json.loads(text)[8]) if then else trust
            peer = believed.verify(certificate, ("steward",), name_of(site))
        except (Refused, ValueError, LookupError):
            return False
        return peer.name == by and peer.certificate.signed(signature, text)

    return counts


def trust_at(trust: Trust, time: str) -> Trust:
    """Return the trust at a time (as `steward.now` writes it); later revocations count."""
    at = datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return Trust(trust.root.text, trust.revoked, clock=lambda: at)


def signer(kit: Kit, site: str) -> Sign:
    """Return what signs with a steward's kit.

    Raises
    ------
    InputError : it is the kit of someone else.
    """
    if kit.role != "steward" or kit.name != name_of(site):
        raise InputError(
            f"{kit.folder}: this is the kit of {kit.name!r}, a {kit.role}; decisions at site "
            f"{site!r} are signed with the kit of {name_of(site)!r}."
        )
    key, certificate = kit.private_key(), kit.certificate.read_bytes()
    return lambda text: (key.sign(text), certificate)


def open_store(
    kit: Kit, policy: Policy, state: Path, trust: Trust | None = None, *, then: bool = False
) -> StudyStore:
    """Return the studies and decisions of a site's kit; the policy says which decisions count.

    Parameters
    ----------
    then : see `verifier`.
    """
    by_steward = policy.approval == "steward"
    verify = verifier(trust or kit.trust(), kit.name, then=then) if by_steward else None
    return StudyStore(state / "desk", kit.network, kit.name, verify)
