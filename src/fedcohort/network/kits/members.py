"""The sites of a network and their signing keys, pinned in every kit.

A masked sum is safe only if each site knows the other sites by itself: with certificates alone, a
dishonest or compromised authority could invent two sites and put one hospital between them. So
every site has an Ed25519 key (`identity.pem`, secret), and every kit lists all sites' public keys
(`members.json`), signed by the network's authority when the kit was made:

    {"network", "sites": {name: 64 hexadecimal digits}, "signature"}

The signature (ECDSA P-256, SHA-256, hex) is over a purpose and the canonical JSON of the other two.
A node reads the list from its own kit, never from the coordinator.

Refused: "secure", if a kit is older than masked sums, the list was changed, or the site's own key
is not the listed one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedcohort.protocol.errors import Refused
from fedcohort.secure.certificates import Certificate, Key, is_name

PURPOSE = b"fedcohort members 1\0"
#: Files of a kit.
SECRET, LISTED = "identity.pem", "members.json"
#: The longest list, in bytes.
LONGEST = 1 << 20

_PUBLIC = re.compile(r"[0-9a-f]{64}")
_SIGNATURE = re.compile(r"[0-9a-f]{128,160}")


@dataclass(frozen=True)
class Membership:
    """A site's keys for masked sums.

    Attributes
    ----------
    name : the site's.
    secret : its Ed25519 private key, 32 bytes.
    pinned : public keys of all sites of the network, its own included, 32 bytes each, by name.
    """

    name: str
    secret: bytes = field(repr=False)
    pinned: Mapping[str, bytes] = field(repr=False)


def new_identity() -> tuple[str, str]:
    """Draw a site's key; return it in PEM form (PKCS #8), and its public half in hex."""
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    return text, key.public_key().public_bytes_raw().hex()


def public_of(pem: bytes, where: str) -> tuple[bytes, bytes]:
    """Return the private and the public key that a PEM text holds, 32 bytes each.

    Raises
    ------
    Refused : "secure", where it holds none.
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise Refused("secure", f"{where}: holds no readable Ed25519 key.")
    return key.private_bytes_raw(), key.public_key().public_bytes_raw()


def signed(network: str, sites: Mapping[str, str], key: Key) -> str:
    """Return the list of a network's sites, signed with its authority's key."""
    says: dict[str, Any] = {"network": network, "sites": dict(sites)}
    return json.dumps({**says, "signature": key.sign(_text(says)).hex()}, sort_keys=True) + "\n"


def read(text: bytes, root: Certificate, where: str) -> dict[str, bytes]:
    """Return the public keys of a list that the authority signed, by site.

    Raises
    ------
    Refused : "secure", where it is malformed, of another network, or not what was signed.
    """
    odd = Refused("secure", f"{where}: this is not the list of sites that {root.name!r} signed.")
    try:
        found: Any = json.loads(text) if len(text) <= LONGEST else None
    except (ValueError, RecursionError):
        raise odd from None
    if not isinstance(found, dict) or sorted(found) != ["network", "signature", "sites"]:
        raise odd
    parts = cast("dict[str, Any]", found)
    signature, sites = parts.pop("signature"), parts["sites"]
    good = parts["network"] == root.name and isinstance(sites, dict)
    good = good and isinstance(signature, str) and _SIGNATURE.fullmatch(signature) is not None
    if not good or not all(_is_entry(*item) for item in cast("dict[Any, Any]", sites).items()):
        raise odd
    if not root.signed(bytes.fromhex(signature), _text(parts)):
        raise odd
    return {name: bytes.fromhex(public) for name, public in cast("dict[str, str]", sites).items()}


def pinned(folder: Path) -> dict[str, bytes]:
    """Return the public keys of all sites, as a kit's list has them.

    Raises
    ------
    Refused : "secure", where there is no list, or another than the authority signed.
    """
    path = folder / LISTED
    if not path.is_file():
        raise Refused(
            "secure",
            f"the kit {folder.name!r} has no {LISTED}: it is older than masked sums. Let whoever "
            f"made the network run: fedcohort network renew NETWORK {folder.name}",
        )
    return read(path.read_bytes(), Certificate.parse((folder / "root.pem").read_bytes()), str(path))


def of_kit(folder: Path, name: str, root: Certificate) -> Membership:
    """Return what a site's kit holds for masked sums.

    Raises
    ------
    Refused : "secure", see this module; "mode", where others can read the key.
    """
    secret, listed = folder / SECRET, folder / LISTED
    for path in (secret, listed):
        if not path.is_file():
            raise Refused(
                "secure",
                f"the kit of {name!r} has no {path.name}: it is older than masked sums. Let "
                f"whoever made the network run: fedcohort network renew NETWORK {name}",
            )
    if os.name == "posix" and secret.stat().st_mode & 0o077:
        raise Refused(
            "mode",
            f"{secret}: other users of this computer can read this private key. "
            f"Run: chmod 600 {secret}",
        )
    private, public = public_of(secret.read_bytes(), str(secret))
    pinned = read(listed.read_bytes(), root, str(listed))
    if pinned.get(name) != public:
        raise Refused(
            "secure",
            f"the kit of {name!r} lists another key than its own identity.pem. Put the files of "
            f"one kit together, or renew it.",
        )
    return Membership(name, private, pinned)


def _is_entry(name: object, public: object) -> bool:
    """Return whether these may be a site and its public key."""
    if not (isinstance(name, str) and isinstance(public, str)):
        return False
    return is_name(name) and _PUBLIC.fullmatch(public) is not None


def _text(says: Mapping[str, Any]) -> bytes:
    """Return the signed text."""
    return PURPOSE + json.dumps(says, sort_keys=True, separators=(",", ":")).encode()
