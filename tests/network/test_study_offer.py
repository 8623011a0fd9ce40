"""Signed studies: what was signed is what arrives, and anything else is refused by name."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.network import study_offer as offers
from fedcohort.network.study_offer import Offer, offer
from fedcohort.protocol.errors import Refused
from network.identities import kits

TERMS = '{"content":{"seed":1,"study":"relapse après chirurgie"},"dictionary":{},"format":1}'


@pytest.fixture(scope="module")
def heart(tmp_path_factory):
    return kits(tmp_path_factory.mktemp("offer"))


@pytest.fixture(scope="module")
def lung(tmp_path_factory):
    return kits(tmp_path_factory.mktemp("offer"), "lung")


@pytest.fixture(scope="module")
def signed(heart):
    return offer(TERMS, heart["lead"])


def test_an_offer_arrives_as_it_was_signed(heart, signed):
    found = Offer.from_bytes(signed.to_bytes())
    peer = found.verify(heart["a"].trust())
    assert found == signed
    assert found.terms == TERMS
    assert (peer.name, peer.role, found.lead, found.network) == ("lead", "lead", "lead", "heart")
    assert found.hash == hashlib.sha256(TERMS.encode()).hexdigest()


def test_the_signature_is_plain_ecdsa_over_the_purpose_and_the_other_six_texts(signed):
    says = json.loads(signed.to_bytes())
    signature = bytes.fromhex(says.pop("signature"))
    text = json.dumps(says, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    key = x509.load_pem_x509_certificate(says["certificate"].encode()).public_key()
    key.verify(signature, b"fedcohort offer 1\0" + text, ec.ECDSA(hashes.SHA256()))


def _refused(make, trust=None, **more):
    with pytest.raises(Refused) as error:
        make().verify(trust, **more)
    assert "\n" not in str(error.value)
    return error.value.code


def test_every_change_of_content_is_refused_as_edited(heart, lung, signed):
    trust = heart["a"].trust()
    other = TERMS.replace('"seed":1', '"seed":2')
    digest = hashlib.sha256(other.encode()).hexdigest()
    changes = [
        {"terms": other},
        {"terms": other, "hash": digest},
        {"hash": digest},
        {"version": "0.1.7"},
        {"signature": "00" * 70},
        {"signature": signed.signature[:-2] + "00"},
        {"signature": offer(other, heart["lead"]).signature},
    ]
    for change in changes:
        edited = replace(signed, **change)
        assert _refused(lambda e=edited: e, trust) == "edited", change
        if change.keys() != {"hash"} and "terms" not in change:
            again = Offer.from_bytes(edited.to_bytes())
            assert _refused(lambda e=again: e, trust) == "edited", change
    blob = signed.to_bytes().replace(b'\\"seed\\":1', b'\\"seed\\":3')
    assert blob != signed.to_bytes()
    assert _refused(lambda: Offer.from_bytes(blob), trust) == "edited"


def test_who_may_not_sign_is_refused_by_name(heart, lung, signed):
    trust = heart["a"].trust()
    with pytest.raises(Refused) as error:
        offer(TERMS, heart["a"])
    assert error.value.code == "role"
    site = heart["a"]
    as_site = replace(signed, lead="a", certificate=site.certificate.read_text(), signature="")
    as_site = replace(as_site, signature=site.private_key().sign(as_site.signed()).hex())
    assert _refused(lambda: as_site, trust) == "role"
    foreign = offer(TERMS, lung["lead"])
    assert _refused(lambda: foreign, trust) == "network"
    posing = replace(foreign, network="heart", signature="")
    posing = replace(posing, signature=lung["lead"].private_key().sign(posing.signed()).hex())
    assert _refused(lambda: posing, trust) == "untrusted"
    assert _refused(lambda: replace(signed, lead="anna"), trust) == "name"


def test_a_version_of_other_first_two_numbers_is_refused_naming_both(heart):
    trust = heart["a"].trust()
    for theirs, ours, fits in [
        ("0.1.0", "0.1.9", True), ("0.2.0", "0.1.0", False), ("1.1.0", "0.1.0", False),
        ("0.10.0", "0.1.0", False), ("0.1.0rc1", "0.1.0", True), ("0.1.0", "0.1.dev3", True),
    ]:  # fmt: skip
        made = offer(TERMS, heart["lead"], version=theirs)
        if fits:
            made.verify(trust, version=ours)
            continue
        with pytest.raises(Refused, match=f"{theirs}.*{ours}") as error:
            made.verify(trust, version=ours)
        assert error.value.code == "version"


def test_a_certificate_that_was_taken_back_signs_nothing(heart, signed):
    mark = signed.verify(heart["a"].trust()).certificate.fingerprint
    assert _refused(lambda: signed, heart["a"].trust([mark])) == "revoked"


def test_a_statement_for_another_purpose_is_no_offer(heart, signed):
    key = heart["lead"].private_key()
    text = signed.signed().removeprefix(offers.PURPOSE)
    for other in (b"", b"fedcohort channel 1 hello\0"):
        forged = replace(signed, signature=key.sign(other + text).hex())
        assert _refused(lambda f=forged: f, heart["a"].trust()) == "edited"


def test_what_is_no_offer_is_refused_before_anything_is_believed(signed):
    blob = signed.to_bytes()
    says = json.loads(blob)
    plain = {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False}
    cases = {
        "malformed": [
            b"", b"{}", b"[]", b"null", b"\xff", blob[:-1], blob + b" ", b" " + blob,
            b"[" * 5000,
            json.dumps({**says, "more": "x"}, **plain).encode(),
            json.dumps({**says, "lead": 3}, **plain).encode(),
            json.dumps({**says, "lead": "../x"}, **plain).encode(),
            json.dumps({**says, "network": "x\n"}, **plain).encode(),
            json.dumps({**says, "version": "latest"}, **plain).encode(),
            json.dumps({**says, "signature": "zz" * 70}, **plain).encode(),
            json.dumps(says, indent=1).encode(),
            json.dumps(says, sort_keys=True, separators=(",", ":")).encode(),
            blob.replace(b"relapse", b"\\ud800", 1),
            blob.replace(b'{"certificate"', b'{"lead":"x","certificate"', 1),
        ],
        "oversized": [b"{" * (offers.LONGEST + 1)],
        "edited": [json.dumps({**says, "hash": "0" * 64}, **plain).encode()],
    }  # fmt: skip
    for code, blobs in cases.items():
        for bad in blobs:
            with pytest.raises(Refused) as error:
                Offer.from_bytes(bad)
            assert error.value.code == code, bad[:60]


@given(at=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_no_changed_byte_goes_unseen(heart, signed, at, flip):
    blob = bytearray(signed.to_bytes())
    blob[at % len(blob)] ^= flip
    with pytest.raises(Refused):
        Offer.from_bytes(bytes(blob)).verify(heart["a"].trust())


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_and_nothing_else(blob):
    with pytest.raises(Refused):
        Offer.from_bytes(blob)


def test_the_longest_study_travels_and_a_longer_one_is_refused(heart):
    most = '{"content":"' + "é" * (2 * 2**20 - 100) + '"}'
    made = offer(most, heart["lead"])
    assert Offer.from_bytes(made.to_bytes()).verify(heart["a"].trust()).name == "lead"
    with pytest.raises(Refused) as error:
        offer("x" * offers.LONGEST, heart["lead"])
    assert error.value.code == "oversized"
