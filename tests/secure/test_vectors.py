"""Published vectors: RFC 8439 (ChaCha20), RFC 5869 (HKDF), RFC 7748 (X25519), RFC 8032 (Ed25519).

They show that keys, masks and signatures here are made of the primitives that they claim.
"""

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from fedcohort.protocol.errors import Refused
from fedcohort.secure import Identity, verify
from fedcohort.secure.arithmetic import keystream, shares


def test_a_mask_is_the_chacha20_keystream_of_rfc_8439():
    # A.1, vectors 1 and 2: key 0, nonce 0, blocks 0 and 1.
    blocks = (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
    )
    assert keystream.mask(bytes(32), 16).tobytes().hex() == blocks


def test_the_key_derivation_is_that_of_rfc_5869():
    # A.1: the library's HKDF-SHA256 with the published inputs.
    ikm, salt = bytes([0x0B] * 22), bytes(range(13))
    info = bytes(range(0xF0, 0xFA))
    okm = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    assert HKDF(hashes.SHA256(), 42, salt, info).derive(ikm).hex() == okm
    # and `derive` is it: the extracted key of A.1, expanded for our named purpose.
    prk = bytes.fromhex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")
    purpose = b"\0\0\0\4self\0\0\0\1a"
    expanded = HKDFExpand(hashes.SHA256(), 32, purpose).derive(prk)
    assert keystream.derive(ikm, salt, "self", b"a") == expanded


def test_parts_of_a_purpose_are_told_apart():
    keys = {keystream.derive(bytes(16), b"", *p) for p in (("ab", "c"), ("a", "bc"), ("abc",))}
    assert len(keys) == 3


def test_an_agreement_is_that_of_rfc_7748():
    # 6.1: Bob's private key with Alice's public key.
    bob = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"
    alice = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    key = X25519PrivateKey.from_private_bytes(bytes.fromhex(bob))
    public = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    secret = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert keystream.public_bytes(key).hex() == public
    assert keystream.agree(key, bytes.fromhex(alice), "alice").hex() == secret


@pytest.mark.parametrize("other", [bytes(32), b"\1" + bytes(31), bytes(31)])
def test_a_public_key_that_gives_no_secret_is_refused(other):
    with pytest.raises(Refused, match="'north' is not sound"):
        keystream.agree(X25519PrivateKey.generate(), other, "north")


def test_a_signature_is_that_of_rfc_8032():
    # 7.1, test 1.
    secret = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
    public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signature = (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
        "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    identity = Identity.from_bytes(bytes.fromhex(secret))
    assert identity.public.hex() == public and identity.to_bytes().hex() == secret
    assert identity.sign(b"").hex() == signature
    assert verify(identity.public, b"", bytes.fromhex(signature))
    assert not verify(identity.public, b"a", bytes.fromhex(signature))
    assert not verify(bytes(31), b"", bytes.fromhex(signature))
    with pytest.raises(Refused, match="it has 32"):
        Identity.from_bytes(b"short")


def test_fewer_shares_than_the_threshold_give_another_secret():
    secret = bytes(keystream.fresh_seed())
    made = dict(enumerate(shares.split(secret, 3, 5), 1))
    for places in ((1, 2, 3), (5, 3, 1), (2, 4, 5)):
        assert shares.combine({x: made[x] for x in places}, 3) == secret
    assert shares.combine({x: made[x] for x in (1, 2)}, 2) != secret
    for wrong in ({0: made[1], 2: made[2]}, {1: made[1]}, {1: b"short", 2: made[2]}):
        with pytest.raises(Refused):
            shares.combine(wrong, 2)
