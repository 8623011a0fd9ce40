"""Bytes of the channel between two parties: layout, signatures, keys and sealing.

`channel` states their purpose and protection. All begin with `FCN`, the protocol's number (1 byte)
and a kind (1 byte); numbers are big-endian:

    H hello, W welcome   signature's length (2 bytes), signature, JSON
    C call, R reply, E refusal of a known peer
                         session (16), counter (8), nonce (12), AES-256-GCM of the body, tag (16)
    X refusal of an unknown peer       JSON {"code", "version"}, at most 200 bytes

Signatures are ECDSA P-256 with SHA-256 over a purpose, then what precedes (welcome: SHA-256 of the
whole hello), then the JSON as sent. Keys are HKDF-SHA256 of the X25519 secret, with salt
SHA-256(hello ‖ welcome): 32 bytes for calls, 32 for replies. Nonces are random, so a machine
restored from a snapshot repeats none. Header, session and counter are GCM's associated data.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedcohort.protocol.errors import Refused
from fedcohort.secure.certificates import Certificate, Key

MAGIC, PROTOCOL = b"FCN", 1
HELLO, WELCOME, CALL, REPLY, DENIAL, REFUSAL = b"H", b"W", b"C", b"R", b"E", b"X"

#: Calls and seconds of a session; a callee allows a little more of both.
MESSAGES, LIFETIME = 100_000, 24 * 3600.0

#: Bytes of a session's name, and bytes that a seal adds to a body.
SESSION = 16
OVERHEAD = 5 + SESSION + 8 + 12 + 16
#: The longest hello, welcome and refusal.
LONGEST_HELLO, LONGEST_REFUSAL = 16_384, 200

HELLO_PURPOSE = b"fedcohort channel 1 hello\0"
WELCOME_PURPOSE = b"fedcohort channel 1 welcome\0"
KEY_PURPOSE = b"fedcohort channel 1 keys"

_HELLO_FIELDS = ("certificate", "from", "key", "network", "nonce", "to", "version")
_WELCOME_FIELDS = ("certificate", "from", "key", "nonce", "session", "to", "version")
VERSION = re.compile(r"\d{1,4}\.\d{1,4}[0-9A-Za-z.+-]{0,24}")
_CODE = re.compile(r"[a-z ]{1,24}")
_HEX = re.compile(r"[0-9a-f]*")


class Party(Protocol):
    """What a channel needs of a party's kit."""

    @property
    def name(self) -> str:
        """The party, as in its certificate."""
        ...

    @property
    def role(self) -> str:
        """Its role, as in its certificate."""
        ...

    @property
    def certificate(self) -> Path:
        """The file of its certificate, in PEM form."""
        ...

    @property
    def revoked(self) -> frozenset[str]:
        """Fingerprints of certificates that are good no longer."""
        ...

    def private_key(self) -> Key:
        """Read its private key."""
        ...


@dataclass(frozen=True)
class Signed:
    """A hello or a welcome: what it says, the signature of it, and all its bytes."""

    says: dict[str, str]
    signature: bytes = field(repr=False)
    payload: bytes = field(repr=False)
    blob: bytes = field(repr=False)

    def by(self, certificate: Certificate, context: bytes) -> bool:
        """Return whether a certificate's key signed it."""
        return certificate.signed(self.signature, context + self.payload)


def kind(blob: bytes) -> bytes:
    """Return the kind of a message.

    Raises
    ------
    Refused : "malformed", or "version" where it is of another protocol.
    """
    if len(blob) < 5 or bytes(blob[:3]) != MAGIC:
        raise Refused("malformed", "bytes that are no message of a fedcohort network.")
    found = bytes(blob[4:5])
    if blob[3] != PROTOCOL and found != REFUSAL:
        raise Refused(
            "version", f"a message of protocol {blob[3]}; this version speaks {PROTOCOL}."
        )
    return found


def signed(which: bytes, says: dict[str, str], key: Key, context: bytes) -> Signed:
    """Write a hello or a welcome."""
    payload = json.dumps(says, sort_keys=True).encode()
    signature = key.sign(context + payload)
    head = _head(which) + struct.pack(">H", len(signature))
    return Signed(says, signature, payload, head + signature + payload)


def read_signed(blob: bytes) -> Signed:
    """Read a hello or a welcome; nothing of it is proven yet.

    Raises
    ------
    Refused : "malformed" or "oversized".
    """
    which = kind(blob)
    if len(blob) > LONGEST_HELLO:
        raise Refused("oversized", f"a hello of {len(blob)} bytes; {LONGEST_HELLO} are allowed.")
    names = {HELLO: _HELLO_FIELDS, WELCOME: _WELCOME_FIELDS}.get(which)
    malformed = Refused("malformed", "a hello that is malformed.")
    if names is None or len(blob) < 7:
        raise malformed
    (length,) = struct.unpack(">H", blob[5:7])
    signature, payload = bytes(blob[7 : 7 + length]), bytes(blob[7 + length :])
    says = read_json(payload, names)
    if says is None or len(signature) != length or not VERSION.fullmatch(says["version"]):
        raise malformed
    sizes = {"key": 64, "nonce": 64, "session": 2 * SESSION}
    if any(len(says[n]) != m or not _HEX.fullmatch(says[n]) for n, m in sizes.items() if n in says):
        raise malformed
    return Signed(says, signature, payload, bytes(blob))


def read_json(payload: bytes, names: Iterable[str]) -> dict[str, str] | None:
    """Return a JSON object that has exactly these texts; None for anything else."""
    try:
        found = json.loads(payload.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    values = cast("dict[str, object]", found)
    if sorted(values) != sorted(names) or not all(map(_is_text, values.values())):
        return None
    return cast("dict[str, str]", values)


def _is_text(value: object) -> bool:
    """Return whether a value is a text that has bytes: without half of a surrogate pair."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def refusal(code: str, version: str) -> bytes:
    """Write a refusal that proves nothing, for a peer with which there is no session."""
    return _head(REFUSAL) + json.dumps({"code": code, "version": version}).encode()


def read_refusal(blob: bytes) -> tuple[str, str]:
    """Return code and version of a refusal; either may be anybody's words.

    Raises
    ------
    Refused : "malformed".
    """
    says = None if len(blob) > LONGEST_REFUSAL else read_json(bytes(blob[5:]), ("code", "version"))
    if says is None or not _CODE.fullmatch(says["code"]) or not VERSION.fullmatch(says["version"]):
        raise Refused("malformed", "a refusal that is malformed.")
    return says["code"], says["version"]


def compatible(ours: str, theirs: str) -> bool:
    """Return whether two versions agree in their first two numbers."""
    return re.split(r"[^0-9]", ours)[:2] == re.split(r"[^0-9]", theirs)[:2]


def upgrade(ours: str, us: str, theirs: str, them: str) -> str:
    """Say who has to upgrade if two versions do not fit: the party of the older one."""
    older = us if _first_two(ours) < _first_two(theirs) else them
    return f"IT of {'the ' * (older == 'coordinator')}{older} has to upgrade"


def _first_two(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.split(r"[^0-9]", version)[:2])


@dataclass(frozen=True)
class Sealing:
    """The two keys of a session."""

    session: bytes
    calls: bytes = field(repr=False)
    replies: bytes = field(repr=False)

    @classmethod
    def derive(
        cls, session: bytes, private: X25519PrivateKey, public: bytes, hello: bytes, welcome: bytes
    ) -> Sealing:
        """Derive a session's keys from one side's private and the other's public key.

        Raises
        ------
        Refused : "malformed", where the public key is one that gives no secret.
        """
        try:
            secret = private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise Refused("malformed", "a key that is none.") from None
        salt = hashlib.sha256(hello + welcome).digest()
        keys = HKDF(hashes.SHA256(), length=64, salt=salt, info=KEY_PURPOSE).derive(secret)
        return cls(session, keys[:32], keys[32:])

    def seal(self, which: bytes, counter: int, body: bytes) -> bytes:
        """Seal a body as a call, or as a reply or a denial to the call of that counter."""
        head = _head(which) + self.session + struct.pack(">Q", counter)
        nonce = os.urandom(12)
        return b"".join((head, nonce, AESGCM(self._key(which)).encrypt(nonce, body, head)))

    def open(self, blob: bytes) -> bytes:
        """Return a sealed message's body.

        Raises
        ------
        Refused : "forged".
        """
        which, view = bytes(blob[4:5]), memoryview(blob)
        start = OVERHEAD - 28
        try:
            key = AESGCM(self._key(which))
            return key.decrypt(bytes(view[start : start + 12]), view[start + 12 :], view[:start])
        except InvalidTag:
            raise Refused("forged", "a message whose seal does not fit.") from None

    def _key(self, which: bytes) -> bytes:
        """Return the key of a direction."""
        return self.calls if which == CALL else self.replies


def address(blob: bytes) -> tuple[bytes, int]:
    """Return session and counter of a sealed message; nothing of it is proven yet.

    Raises
    ------
    Refused : "malformed".
    """
    if len(blob) < OVERHEAD:
        raise Refused("malformed", "a sealed message that was cut.")
    (counter,) = struct.unpack(">Q", blob[5 + SESSION : 13 + SESSION])
    return bytes(blob[5 : 5 + SESSION]), counter


def _head(which: bytes) -> bytes:
    """Return how a message begins."""
    return MAGIC + bytes((PROTOCOL,)) + which


def welcome_context(hello: bytes) -> bytes:
    """Return the context of a welcome's signature."""
    return WELCOME_PURPOSE + hashlib.sha256(hello).digest()


def denial(code: str, text: str) -> bytes:
    """Write a refusal that will be sealed."""
    return json.dumps({"code": code[:24], "text": text[:1000]}).encode()


def read_denial(body: bytes) -> tuple[str, str]:
    """Return code and text of a refusal that was sealed.

    Raises
    ------
    Refused : "malformed".
    """
    says = None if len(body) > 8_000 else read_json(body, ("code", "text"))
    if says is None or not _CODE.fullmatch(says["code"]):
        raise Refused("malformed", "a refusal that is malformed.")
    return says["code"], " ".join("".join(filter(_printable, says["text"])).split())


def _printable(letter: str) -> bool:
    """Return whether a letter may be shown on a terminal."""
    return letter.isprintable() or letter.isspace()
