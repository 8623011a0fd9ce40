"""Certificates: who is accepted, and that every other one is refused with its own code and line."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from fedcohort.network.kits.make import Kit, Network
from fedcohort.protocol.errors import Refused
from fedcohort.secure.certificates import Certificate, Key
from fedcohort.secure.trust import CODES, Trust
from network.identities import DAY, Authority, later


@pytest.fixture(scope="module")
def heart():
    return Authority()


def test_a_certificate_of_the_network_says_who_its_holder_is(heart):
    made = heart.issue("a", "site")
    peer = Trust(heart.root.text, clock=later()).verify(made.text, ("site",), "a")
    assert (peer.name, peer.role, peer.organisation) == ("a", "site", "a")
    assert peer.certificate.fingerprint == made.fingerprint


def _self_signed(network):
    """A certificate of a site that signs itself, under the authority's name."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, network)])
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "a"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "a"),
            x509.NameAttribute(NameOID.UNSTRUCTURED_NAME, "site"),
        ]
    )
    builder = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
        .public_key(key.public_key()).serial_number(7)
        .not_valid_before(DAY - timedelta(days=1)).not_valid_after(DAY + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )  # fmt: skip
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _rsa(heart):
    """A certificate that the authority signed, for a key of another kind."""
    key = rsa.generate_private_key(65537, 2048)
    made = x509.load_pem_x509_certificate(heart.issue("a", "site").text.encode())
    builder = (
        x509.CertificateBuilder().subject_name(made.subject).issuer_name(made.issuer)
        .public_key(key.public_key()).serial_number(7)
        .not_valid_before(made.not_valid_before_utc).not_valid_after(made.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )  # fmt: skip
    signed = builder.sign(heart.key.raw, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


def test_each_certificate_that_is_not_good_is_refused_with_its_own_code(heart):
    good = heart.issue("a", "site").text
    other = Authority("lung").issue("a", "site").text
    same_name = Authority("heart").issue("a", "site").text
    revoked = heart.issue("a", "site")
    taken_back = ":".join(revoked.fingerprint[i : i + 2] for i in range(0, 64, 2)).upper()
    cases = [
        ("untrusted", other, {}),
        ("untrusted", same_name, {}),
        ("untrusted", _self_signed("heart"), {}),
        ("untrusted", _rsa(heart), {}),
        ("untrusted", heart.root.text, {}),
        ("untrusted", "no certificate", {}),
        ("untrusted", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", {}),
        ("untrusted", good + good, {}),
        ("untrusted", b"\xff\xfe" * 10_000, {}),
        ("expired", good, {"clock": later(days=398)}),
        ("not yet valid", good, {"clock": later(days=-2)}),
        ("revoked", revoked.text, {"revoked": [taken_back]}),
        ("role", heart.issue("a", "lead").text, {}),
        ("name", heart.issue("b", "site").text, {}),
    ]
    for code, pem, more in cases:
        trust = Trust(heart.root.text, **{"clock": later(), **more})
        with pytest.raises(Refused) as error:
            trust.verify(pem, ("site",), "a")
        assert error.value.code == code, (code, str(error.value))
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 250
    assert {code for code, *_ in cases} == set(CODES)


def test_a_changed_byte_anywhere_in_a_certificate_is_refused_or_changes_nothing(heart):
    trust, made = Trust(heart.root.text, clock=later()), heart.issue("a", "site")
    raw = x509.load_pem_x509_certificate(made.text.encode())
    der = bytearray(raw.public_bytes(serialization.Encoding.DER))
    accepted = 0
    for at in range(0, len(der), 3):
        der[at] ^= 0x11
        pem = ssl.DER_cert_to_PEM_cert(bytes(der))
        try:
            trust.verify(pem, ("site",), "a")
            accepted += 1
        except Refused as error:
            assert error.code in CODES
        der[at] ^= 0x11
    assert accepted == 0


def test_clocks_may_be_a_day_apart_when_certificates_are_made(heart):
    made = heart.issue("a", "site")
    Trust(heart.root.text, clock=later(hours=-23)).verify(made.text)


def test_nothing_is_good_after_the_authority_has_expired():
    heart = Authority(days=10)
    made = heart.issue("a", days=397)
    assert made.until <= heart.root.until
    with pytest.raises(Refused, match="authority's certificate of network 'heart' was valid") as e:
        Trust(heart.root.text, clock=later(days=11)).verify(made.text)
    assert e.value.code == "expired"


def test_a_refusal_shows_no_text_that_a_stranger_chose(heart):
    key = Key.new()
    stranger = Authority("lung")
    name = "\x1b[2Jrun this"
    made = stranger.issue(name, "site", key=key)
    with pytest.raises(Refused) as error:
        Trust(heart.root.text, clock=later()).verify(made.text)
    assert "run this" not in str(error.value)


def test_fingerprints_are_those_that_openssl_shows(heart):
    made = heart.issue("a")
    der = ssl.PEM_cert_to_DER_cert(made.text)
    assert made.fingerprint == hashlib.sha256(der).hexdigest()


# TLS with Python's ssl, in both roles ---------------------------------------------------------


def _tls(server: Kit, client: Kit, host: str, root: Kit | None = None) -> str:
    """Shake hands over a socket pair; return the client's name as the server sees it."""
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.verify_mode = ssl.CERT_REQUIRED
    accepting.verify_flags |= ssl.VERIFY_X509_STRICT
    accepting.load_verify_locations(server.root)
    accepting.load_cert_chain(server.certificate, server.key)
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    asking.load_verify_locations((root or client).root)
    asking.load_cert_chain(client.certificate, client.key)
    left, right = socket.socketpair()
    found: list[str] = []

    def serve() -> None:
        try:
            with accepting.wrap_socket(left, server_side=True) as tls:
                subject = dict(part[0] for part in tls.getpeercert()["subject"])
                found.append(subject["commonName"])
                tls.sendall(b"!")
        except (ssl.SSLError, OSError) as error:
            found.append(type(error).__name__)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with asking.wrap_socket(right, server_hostname=host) as tls:
            tls.recv(1)
    except (ssl.SSLError, OSError) as error:
        found.insert(0, type(error).__name__)
    finally:
        left.close()
        right.close()
        thread.join(10)
    return found[0]


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    made = Network.new(folder / "heart", sites=["a"], address="fed.example.org:8102")
    other = Network.new(folder / "lung", sites=["a"])
    return made, other


@pytest.mark.parametrize(
    "host", ["fed.example.org", "localhost", "127.0.0.1", "::1", "coordinator"]
)
def test_tls_accepts_the_coordinator_at_its_hosts_and_knows_the_client(networks, host):
    made, _ = networks
    server, client = Kit.read(made.kit("coordinator")), Kit.read(made.kit("a"))
    assert _tls(server, client, host) == "a"


def test_tls_refuses_another_host_another_network_and_a_site_as_server(networks):
    made, other = networks
    server, client = Kit.read(made.kit("coordinator")), Kit.read(made.kit("a"))
    stranger = Kit.read(other.kit("a"))
    assert _tls(server, client, "evil.example.org") == "SSLCertVerificationError"
    assert _tls(server, stranger, "localhost") == "SSLCertVerificationError"
    assert _tls(server, stranger, "localhost", root=client) != "a"
    assert _tls(client, client, "a") == "SSLCertVerificationError"


def test_a_certificate_is_read_as_it_was_made(heart):
    made = heart.issue("coordinator", "coordinator", at=DAY)
    again = Certificate.parse(made.text)
    assert again == made
    assert again.since == DAY - timedelta(days=1)
    assert again.until == datetime(2027, 4, 2, 12, tzinfo=UTC)
