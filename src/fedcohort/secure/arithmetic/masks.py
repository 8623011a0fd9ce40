"""The masks of a slot and their binding; for sites, and for removing them.

    PRG(b_i)  = ChaCha20(HKDF(b_i, salt = roll, info = "self", slot, call, i))
    PRG(k_ij) = ChaCha20(HKDF(X25519(a_i, A_j), salt = roll, info = "pair", slot, call, i, j)), i<j

`call` is the digest of the call's digest, members, weights and layout. Masks of two sites that were
told different ones do not cancel: their sum is noise.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedcohort.arrays import Array
from fedcohort.secure.arithmetic import keystream
from fedcohort.secure.arithmetic.layout import Layout
from fedcohort.secure.arithmetic.ring import add, subtract
from fedcohort.secure.context import digest
from fedcohort.secure.exchange.messages import Asked


@dataclass(frozen=True)
class Binding:
    """What the masks of a slot are for."""

    roll: bytes
    slot: bytes
    call: bytes


def binding(roll: bytes, asked: Asked, layout: Layout) -> Binding:
    """Return the binding of a call's masks, of a `Roll.mark`."""
    call = digest("call", asked.to_meta(), layout.to_meta())
    return Binding(roll, asked.slot.to_bytes(8, "big"), bytes.fromhex(call))


def public_key(seed: bytes | bytearray, salt: bytes) -> bytes:
    """Return the X25519 public key, 32 bytes, of a mask-key seed."""
    return keystream.public_bytes(keystream.private_key(seed, salt))


def seal(seed: bytes | bytearray, salt: bytes, name: str, epoch: int, slot: int) -> bytes:
    """Return a site's commitment to a self-mask seed, 32 bytes."""
    place = (epoch.to_bytes(8, "big"), slot.to_bytes(8, "big"))
    return keystream.derive(seed, salt, "seal", name, *place)


def own(seed: bytes | bytearray, bound: Binding, name: str, layout: Layout) -> Array:
    """Return a site's self-mask, uint64 (layout.words,)."""
    key = keystream.derive(seed, bound.roll, "self", bound.slot, bound.call, name)
    return keystream.mask(key, layout.words)


def apply_pair(
    total: Array,
    key: X25519PrivateKey,
    theirs: bytes,
    bound: Binding,
    name: str,
    other: str,
    layout: Layout,
    *,
    off: bool = False,
) -> None:
    """Add to `total`, in place and with its sign, the mask that sites `name` and `other` share.

    Parameters
    ----------
    key : X25519 key of the slot of either site; `theirs` is the other's public key.
    off : remove the mask instead.
    """
    first, second = sorted((name, other))
    secret = keystream.agree(key, theirs, other)
    stream = keystream.derive(secret, bound.roll, "pair", bound.slot, bound.call, first, second)
    put = add if (name == first) is not off else subtract
    put(total, keystream.mask(stream, layout.words), layout)
