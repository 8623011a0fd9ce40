"""The channel: two parties understand each other, and nobody else says or hears anything.

What is sealed is recomputed here from the written protocol with other code (RFC 5869 by HMAC, GCM
by the block cipher's interface), so that the layout cannot change unnoticed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.network.kits.make import Kit, Network
from fedcohort.protocol.errors import Refused
from fedcohort.protocol.line import Silence
from fedcohort.secure.channel import Caller, Refusal, Single, seal
from fedcohort.secure.channel import callee as callees
from fedcohort.secure.channel.rate_limit import LINES, RateLimit
from fedcohort.secure.channel.seal import Sealing
from fedcohort.secure.trust import Trust
from network.identities import DAY, Middle, Site, ask, calling, kits, later


@pytest.fixture(scope="module")
def heart(tmp_path_factory):
    return kits(tmp_path_factory.mktemp("channel"))


@pytest.fixture(scope="module")
def lung(tmp_path_factory):
    return kits(tmp_path_factory.mktemp("channel"), "lung")


@pytest.fixture
def sites(heart):
    return {name: Site(heart[name]) for name in "abc"}


@pytest.fixture
def middle(sites):
    return Middle({name: site.callee for name, site in sites.items()})


@pytest.fixture
def coordinator(heart, middle):
    caller, lines = calling(heart["coordinator"], middle)
    caller.lines = lines
    return caller


def _clear(sites, middle):
    for site in sites.values():
        site.bodies.clear()
    middle.seen.clear()


# Two parties that understand each other -------------------------------------------------------


def test_bodies_and_replies_arrive_and_the_callee_knows_who_asks(sites, middle, coordinator):
    for turn in range(3):
        body = bytes([turn]) * turn
        found = dict(coordinator.exchange({s: body + s.encode() for s in "abc"}, 5))
        assert found == {s: b"re: " + body + s.encode() for s in "abc"}
    assert {(p.name, p.role) for p in sites["a"].peers} == {("coordinator", "coordinator")}
    assert [len([1 for s, *_ in middle.seen if s == x]) for x in "abc"] == [4, 4, 4]
    assert coordinator.sites == ("a", "b", "c")
    assert coordinator.connected == {"a", "b", "c"}
    assert not coordinator.lines


def test_a_lead_and_a_site_may_call_a_coordinator_that_lets_them(heart):
    desk = Site(heart["coordinator"], ("lead", "site"))
    for name in ("lead", "a"):
        line = Single("coordinator", lambda blob, _: desk.callee.handle(blob))
        caller = Caller(heart[name], heart[name].trust(), line)
        assert ask(caller, "coordinator") == b"re: hello"
        assert desk.peers[-1].name == name
        assert dict(caller.exchange({"a": b""}, 1))["a"].text == "a: is not connected"
    narrow = Site(heart["coordinator"], ("lead",))
    line = Single("coordinator", lambda blob, _: narrow.callee.handle(blob))
    found = ask(Caller(heart["a"], heart["a"].trust(), line), "coordinator")
    assert isinstance(found, Refusal)
    assert found.code == "role"
    assert not narrow.bodies


def test_nothing_of_a_body_is_seen_on_the_way(sites, middle, coordinator):
    secret = b"a value of a patient, 47.11"
    assert ask(coordinator, "a", secret) == b"re: " + secret
    assert all(secret not in sent and secret not in back for _, sent, back in middle.seen)
    again = ask(coordinator, "a", secret)
    assert again == b"re: " + secret
    assert middle.seen[-1][1] != middle.seen[-2][1]


def test_an_engine_may_give_any_kind_of_buffer(heart, sites, middle, coordinator):
    middle.onward = lambda site, blob: bytearray(blob)
    middle.back = lambda site, blob: memoryview(blob)
    assert ask(coordinator, "a") == b"re: hello"
    assert ask(coordinator, "a") == b"re: hello"


def test_either_side_may_restart_and_no_call_is_lost_or_comes_twice(heart, sites, middle):
    caller, _ = calling(heart["coordinator"], middle)
    assert ask(caller, "a", b"1") == b"re: 1"
    sites["a"] = Site(heart["a"])
    middle.callees["a"] = sites["a"].callee
    assert dict(caller.exchange({"a": b"2", "b": b"2"}, 5)) == {"a": b"re: 2", "b": b"re: 2"}
    assert sites["a"].bodies == [b"2"]
    caller, _ = calling(heart["coordinator"], middle)
    assert ask(caller, "a", b"3") == b"re: 3"
    assert sites["a"].bodies == [b"2", b"3"]


def test_two_callers_with_one_kit_do_not_disturb_each_other(heart, sites, middle):
    first, _ = calling(heart["coordinator"], middle)
    second, _ = calling(heart["coordinator"], middle)
    for turn in range(4):
        for caller in (first, second):
            assert ask(caller, "a", b"%d" % turn) == b"re: %d" % turn
    assert len(sites["a"].bodies) == 8
    hellos = [blob for _, blob, _ in middle.seen if blob[4:5] == seal.HELLO]
    assert len(hellos) == 2


def test_many_threads_over_one_caller_each_get_their_own_reply(heart, sites, middle, coordinator):
    def one(n):
        body = b"%d" % n
        found = dict(coordinator.exchange(dict.fromkeys("abc", body), 10))
        return found == dict.fromkeys("abc", b"re: " + body)

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(one, range(120)))
    for site in sites.values():
        assert sorted(site.bodies) == sorted(b"%d" % n for n in range(120))
    hellos = [site for site, blob, _ in middle.seen if blob[4:5] == seal.HELLO]
    assert sorted(hellos) == list("abc")  # calls that begin at once share one session


def test_a_slow_site_does_not_hold_up_the_hello_of_another(heart, sites, middle, coordinator):
    assert ask(coordinator, "a") == b"re: hello"
    held = threading.Event()

    class Slow(Middle):
        def exchange(self, requests, timeout):
            def one(site, blob):
                if site == "a":
                    held.wait(timeout)
                    return site, Silence("a: late")
                return next(iter(middle.exchange({site: blob}, timeout)))

            with ThreadPoolExecutor(4) as pool:
                yield from pool.map(lambda pair: one(*pair), requests.items())

    coordinator._line = Slow(middle.callees)
    began, found = time.monotonic(), {}
    for site, answer in coordinator.exchange({"a": b"x", "b": b"x"}, 1.0):
        found[site] = answer
    assert time.monotonic() - began < 3
    assert found["b"] == b"re: x"
    assert found["a"] == Silence("a: late")
    held.set()


def test_keys_are_renewed_after_so_many_calls_and_after_so_long(heart, sites, middle, monkeypatch):
    at = [0.0]
    sites["a"] = Site(heart["a"], clock=lambda: at[0])
    middle.callees["a"] = sites["a"].callee
    caller, _ = calling(heart["coordinator"], middle, clock=lambda: at[0])

    def hellos():
        return sum(blob[4:5] == seal.HELLO for _, blob, _ in middle.seen)

    ask(caller, "a")
    at[0] = 23.9 * 3600
    ask(caller, "a")
    assert hellos() == 1
    at[0] = 24.1 * 3600
    assert ask(caller, "a") == b"re: hello"
    assert hellos() == 2
    monkeypatch.setattr("fedcohort.secure.channel.caller.MESSAGES", 5)
    for _ in range(12):
        assert ask(caller, "a") == b"re: hello"
    assert hellos() == 4


def test_a_callee_ends_a_session_that_is_too_old_and_the_caller_notices(heart, sites, middle):
    at = [0.0]
    sites["a"] = Site(heart["a"], clock=lambda: at[0])
    middle.callees["a"] = sites["a"].callee
    caller, _ = calling(heart["coordinator"], middle)
    ask(caller, "a")
    at[0] = 25 * 3600
    assert ask(caller, "a") == b"re: hello"
    assert sum(blob[4:5] == seal.HELLO for _, blob, _ in middle.seen) == 2


# The written protocol, by other code ----------------------------------------------------------


def _hkdf(secret, salt, info, length):
    """RFC 5869, from HMAC alone."""
    key, block, out = hmac.new(salt, secret, hashlib.sha256).digest(), b"", b""
    for n in range(1, -(-length // 32) + 1):
        block = hmac.new(key, block + info + bytes([n]), hashlib.sha256).digest()
        out += block
    return out[:length]


def _gcm(key, blob, start):
    nonce, text, tag = blob[start : start + 12], blob[start + 12 : -16], blob[-16:]
    opening = Cipher(algorithms.AES256(key), modes.GCM(nonce, tag)).decryptor()
    opening.authenticate_additional_data(blob[:start])
    return opening.update(text) + opening.finalize()


def test_a_conversation_is_what_the_protocol_s_text_says(
    heart, sites, middle, coordinator, monkeypatch
):
    drawn = []
    real = X25519PrivateKey.generate

    class Noting:
        @staticmethod
        def generate():
            drawn.append(real())
            return drawn[-1]

    monkeypatch.setattr("fedcohort.secure.channel.caller.X25519PrivateKey", Noting)
    assert ask(coordinator, "a", b"body") == b"re: body"
    (_, hello, welcome), (_, call, reply) = middle.seen
    said = {}
    for blob, purpose in (
        (hello, b"fedcohort channel 1 hello\0"),
        (welcome, b"fedcohort channel 1 welcome\0" + hashlib.sha256(hello).digest()),
    ):
        assert blob[:4] == b"FCN\x01"
        (length,) = struct.unpack(">H", blob[5:7])
        signature, payload = blob[7 : 7 + length], blob[7 + length :]
        said[blob[4:5]] = says = json.loads(payload)
        key = x509.load_pem_x509_certificate(says["certificate"].encode()).public_key()
        key.verify(signature, purpose + payload, ec.ECDSA(hashes.SHA256()))
    assert said[b"H"]["from"] == said[b"W"]["to"] == "coordinator"
    assert said[b"H"]["to"] == said[b"W"]["from"] == "a"
    assert said[b"H"]["network"] == "heart"
    (private,) = drawn
    assert private.public_key().public_bytes_raw().hex() == said[b"H"]["key"]
    public = X25519PublicKey.from_public_bytes(bytes.fromhex(said[b"W"]["key"]))
    keys = _hkdf(
        private.exchange(public), hashlib.sha256(hello + welcome).digest(),
        b"fedcohort channel 1 keys", 64,
    )  # fmt: skip
    session = bytes.fromhex(said[b"W"]["session"])
    assert call[:29] == b"FCN\x01C" + session + struct.pack(">Q", 1)
    assert reply[:29] == b"FCN\x01R" + session + struct.pack(">Q", 1)
    assert _gcm(keys[:32], call, 29) == b"body"
    assert _gcm(keys[32:], reply, 29) == b"re: body"
    assert len(call) == len(b"body") + seal.OVERHEAD


def test_keys_are_those_that_follow_from_the_published_secret_of_rfc_7748():
    """The two parties and their shared secret K of RFC 7748, section 6.1."""
    alice = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
    bob = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    private = X25519PrivateKey.from_private_bytes(bytes.fromhex(alice))
    found = Sealing.derive(b"s" * 16, private, bytes.fromhex(bob), b"hello", b"welcome")
    salt = hashlib.sha256(b"hellowelcome").digest()
    keys = _hkdf(bytes.fromhex(shared), salt, b"fedcohort channel 1 keys", 64)
    assert found.calls + found.replies == keys


def test_each_direction_and_each_session_has_keys_of_its_own(heart, sites, middle, coordinator):
    ask(coordinator, "a")
    ask(coordinator, "b")
    keys = [s.sealing for s in coordinator._sessions.values()]
    assert len({k.calls for k in keys} | {k.replies for k in keys}) == 4


# Somebody in the middle -----------------------------------------------------------------------


def test_a_replayed_call_is_not_handled_again(sites, middle, coordinator):
    ask(coordinator, "a", b"once")
    _, call, _ = middle.seen[-1]
    for _ in range(3):
        answer = sites["a"].callee.handle(call)
        assert seal.read_refusal(answer)[0] == "replayed"
    assert sites["a"].bodies == [b"once"]
    assert sum("replayed" in line for line in sites["a"].lines) == 1


def test_an_engine_that_gives_every_message_twice_loses_no_call(sites, middle, coordinator):
    def twice(site, blob):
        middle.callees[site].handle(blob)
        return blob

    ask(coordinator, "a", b"0")
    middle.onward = twice
    found = ask(coordinator, "a", b"1")
    assert isinstance(found, Refusal)
    assert found.code == "replayed"
    assert found.late
    middle.onward = lambda site, blob: blob
    assert ask(coordinator, "a", b"2") == b"re: 2"
    once = [True]

    def first_twice(site, blob):
        if blob[4:5] == seal.CALL and once:
            once.clear()
            middle.callees[site].handle(blob)
        return blob

    middle.onward = first_twice
    assert ask(coordinator, "a", b"3") == b"re: 3"


def test_calls_may_come_in_another_order_but_each_once_and_not_too_late(heart, sites, middle):
    caller, _ = calling(heart["coordinator"], middle)
    ask(caller, "a", b"0")
    session = caller._sessions["a"]
    made = {n: session.sealing.seal(seal.CALL, n, b"%d" % n) for n in range(2, 2003)}
    handle = sites["a"].callee.handle
    for n in (5, 3, 4, 2, 1000):
        assert handle(made[n])[4:5] == seal.REPLY
        assert seal.read_refusal(handle(made[n]))[0] == "replayed"
    assert handle(made[6])[4:5] == seal.REPLY
    assert handle(made[2000])[4:5] == seal.REPLY
    assert handle(made[2000 - callees.WINDOW + 1])[4:5] == seal.REPLY
    for late in (2000 - callees.WINDOW, 7, 1000, 2):
        assert seal.read_refusal(handle(made[late]))[0] == "replayed"
    zero = session.sealing.seal(seal.CALL, 0, b"0")
    assert seal.read_refusal(handle(zero))[0] == "replayed"
    far = session.sealing.seal(seal.CALL, 2**64 - 1, b"far")
    assert handle(far)[4:5] == seal.REPLY


def test_a_call_that_is_sent_back_is_no_reply(sites, middle, coordinator):
    ask(coordinator, "a")
    sent = []
    middle.onward = lambda site, blob: sent.append(blob) or blob
    middle.back = lambda site, blob: sent[-1]
    found = ask(coordinator, "a")
    assert isinstance(found, Refusal)
    assert found.code == "malformed"
    as_reply = lambda site, blob: sent[-1][:4] + b"R" + sent[-1][5:]  # noqa: E731
    middle.back = as_reply
    assert ask(coordinator, "a").code == "forged"


def test_a_hello_that_is_sent_back_is_no_welcome(heart, middle, coordinator):
    sent = []
    middle.onward = lambda site, blob: sent.append(blob) or blob
    middle.back = lambda site, blob: sent[-1]
    assert ask(coordinator, "a").code == "malformed"
    middle.back = lambda site, blob: sent[-1][:4] + b"W" + sent[-1][5:]
    assert ask(coordinator, "a").code == "malformed"
    desk = Site(heart["coordinator"], ("coordinator", "lead", "site"))
    assert seal.read_refusal(desk.callee.handle(sent[0]))[0] == "name"


def test_replies_are_not_taken_for_another_call_s(sites, middle, coordinator):
    ask(coordinator, "a", b"1")
    old = middle.seen[-1][2]
    middle.back = lambda site, blob: old
    found = ask(coordinator, "a", b"2")
    assert (found.code, found.late) == ("replayed", True)
    renumbered = lambda site, blob: old[:21] + blob[21:29] + old[29:]  # noqa: E731
    middle.back = renumbered
    assert ask(coordinator, "a", b"3").code == "forged"


def test_replies_of_two_sites_cannot_be_swapped(sites, middle, coordinator):
    dict(coordinator.exchange(dict.fromkeys("ab", b"1"), 5))
    of = {}
    middle.back = lambda site, blob: of.setdefault(site, blob)
    dict(coordinator.exchange(dict.fromkeys("ab", b"2"), 5))
    middle.back = lambda site, blob: of["b" if site == "a" else "a"]
    found = dict(coordinator.exchange(dict.fromkeys("ab", b"3"), 5))
    assert {answer.code for answer in found.values()} == {"replayed"}
    middle.back = lambda site, blob: blob[:29] + of["b" if site == "a" else "a"][29:]
    found = dict(coordinator.exchange(dict.fromkeys("ab", b"4"), 5))
    assert {answer.code for answer in found.values()} == {"forged"}


def test_what_is_for_one_site_is_not_taken_by_another(sites, middle, coordinator):
    middle.onward = lambda site, blob: blob
    ask(coordinator, "a", b"for a")
    _, hello, _ = middle.seen[0]
    _, call, _ = middle.seen[1]
    assert seal.read_refusal(sites["b"].callee.handle(hello))[0] == "name"
    assert seal.read_refusal(sites["b"].callee.handle(call))[0] == "no key"
    swapped = Middle({"a": sites["b"].callee, "b": sites["a"].callee})
    coordinator._line = swapped
    coordinator._sessions.clear()
    assert ask(coordinator, "a").code == "name"
    assert not sites["b"].bodies


@pytest.mark.parametrize("cut", [0, 1, 4, 5, 20, 29, 40, 56, -1, -17])
def test_a_message_that_was_cut_is_refused_both_ways(sites, middle, coordinator, cut):
    ask(coordinator, "a")
    sites["a"].bodies.clear()
    middle.onward = lambda site, blob: blob[:cut]
    assert ask(coordinator, "a", b"x" * 100).code in ("malformed", "forged")
    assert not sites["a"].bodies
    middle.onward, middle.back = (lambda s, b: b), (lambda s, b: b[:cut])
    found = ask(coordinator, "a", b"x" * 100)
    assert found.code in ("malformed", "forged")
    assert found.late


def test_a_recorded_hello_gives_nothing_to_who_repeats_it(heart, sites, middle, coordinator):
    ask(coordinator, "a", b"1")
    _, hello, _ = middle.seen[0]
    for _ in range(200):
        assert sites["a"].callee.handle(hello)[4:5] == seal.WELCOME
    assert len(sites["a"].callee._provisional) <= callees.PROVISIONAL_EACH
    assert ask(coordinator, "a", b"2") == b"re: 2"
    assert sum(blob[4:5] == seal.HELLO for _, blob, _ in middle.seen) == 1
    old_call = middle.seen[1][1]
    fresh = next(iter(sites["a"].callee._provisional))
    forged = old_call[:5] + fresh + old_call[21:]
    assert seal.read_refusal(sites["a"].callee.handle(forged))[0] == "forged"
    assert sites["a"].bodies == [b"1", b"2"]


def test_a_recorded_welcome_is_not_believed(middle, coordinator, heart):
    ask(coordinator, "a")
    old = middle.seen[0][2]
    coordinator._sessions.clear()
    middle.back = lambda site, blob: old if blob[4:5] == seal.WELCOME else blob
    assert ask(coordinator, "a").code == "forged"


def test_a_man_in_the_middle_with_another_network_s_kit_gets_no_word(
    heart, lung, middle, coordinator
):
    mallory = Site(lung["a"], trust=heart["a"].trust())
    mallory.callee._network = "heart"
    coordinator._line = Middle({"a": mallory.callee})
    found = ask(coordinator, "a", b"secret")
    assert found.code == "untrusted"
    assert not mallory.bodies
    site = Site(heart["a"])
    posing, _ = calling(lung["coordinator"], Middle({"a": site.callee}), trust=heart["a"].trust())
    found = ask(posing, "a", b"do it")
    assert found.code == "untrusted"
    assert found.text == (
        "a: refuses coordinator: it does not know the certificate's authority (another network?)."
    )
    assert not site.bodies
    assert site.lines == [
        "a: refused (untrusted): the certificate of 'coordinator' was not issued by the authority "
        "of network 'heart'."
    ]


def test_a_party_of_the_network_cannot_stand_in_for_another(heart, sites, coordinator):
    mallory = Site(heart["b"], trust=heart["b"].trust())
    mallory.callee._name = "a"
    coordinator._line = Middle({"a": mallory.callee})
    assert ask(coordinator, "a", b"secret").code == "name"
    assert not mallory.bodies
    site = Site(heart["a"])
    for who in ("b", "lead", "steward-a"):
        caller, _ = calling(heart[who], Middle({"a": site.callee}))
        caller._role = "site"
        assert ask(caller, "a").code == "role"
        caller._name = "coordinator"
        assert ask(caller, "a").code in ("role", "name")
    caller, _ = calling(heart["coordinator"], Middle({"a": site.callee}))
    caller._name = "chief"
    assert ask(caller, "a").code == "name"
    assert "refused (name)" in site.lines[-1]
    assert not site.bodies


@pytest.mark.parametrize("part", ["from", "to"])
def test_a_welcome_that_names_other_parties_is_refused(heart, monkeypatch, part):
    site, real = Site(heart["a"]), seal.signed

    def signed(which, says, key, context):
        other = {**says, part: "b"} if which == seal.WELCOME else says
        return real(which, other, key, context)

    monkeypatch.setattr(seal, "signed", signed)
    caller, _ = calling(heart["coordinator"], Middle({"a": site.callee}))
    assert ask(caller, "a").code == "name"
    assert not site.bodies


def test_a_changed_hello_or_welcome_is_refused(heart, sites, middle, coordinator):
    def edited(blob, old, new):
        return blob.replace(old, new, 1)

    middle.onward = lambda s, b: edited(b, b'"version": "0.1.', b'"version": "0.0.')
    assert ask(coordinator, "a").code == "forged"
    middle.onward = lambda s, b: b
    middle.back = lambda s, b: edited(b, b'"version": "0.1.', b'"version": "0.0.')
    assert ask(coordinator, "a").code == "forged"
    zero = X25519PrivateKey.generate().public_key().public_bytes_raw().hex().encode()
    middle.back = lambda s, b: b[: b.index(b'"key": "') + 8] + zero + b[b.index(b'", "nonce"') :]
    assert ask(coordinator, "a").code == "forged"
    assert not sites["a"].bodies


def test_a_key_that_gives_no_secret_is_refused(heart, sites):
    kit = heart["coordinator"]
    says = {
        "certificate": kit.certificate.read_text(), "from": "coordinator", "key": "00" * 32,
        "network": "heart", "nonce": "11" * 32, "to": "a", "version": "0.1.0",
    }  # fmt: skip
    hello = seal.signed(seal.HELLO, says, kit.private_key(), seal.HELLO_PURPOSE)
    assert seal.read_refusal(sites["a"].callee.handle(hello.blob))[0] == "malformed"


# Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "fits"),
    [
        ("0.1.0", "0.1.5", True), ("0.1.0", "0.2.0", False), ("1.1.0", "0.1.0", False),
        ("0.1.0", "0.1.0.dev3+g12", True), ("0.1.0", "0.11.0", False),
    ],
)  # fmt: skip
def test_versions_of_other_first_two_numbers_are_refused_by_name(heart, ours, theirs, fits):
    site = Site(heart["a"], version=theirs)
    caller, lines = calling(heart["coordinator"], Middle({"a": site.callee}), version=ours)
    found = ask(caller, "a")
    if fits:
        assert found == b"re: hello"
        return
    assert found.code == "version"
    assert not found.late
    for line in (found.text, *lines, *site.lines):
        assert ours in line
        assert theirs in line
        assert "\n" not in line
    assert len(lines) == len(site.lines) == 1


def test_a_caller_does_not_go_along_with_a_callee_of_another_version(heart, monkeypatch):
    site = Site(heart["a"], version="0.2.0")
    caller, _ = calling(heart["coordinator"], Middle({"a": site.callee}), version="0.1.0")
    monkeypatch.setattr(seal, "compatible", lambda ours, theirs: ours == "0.2.0")
    found = ask(caller, "a")
    assert found.code == "version"
    assert "it runs fedcohort 0.2.0, and this is 0.1.0" in found.text
    assert not site.bodies


def test_another_protocol_is_refused_with_the_version_that_runs_there(
    heart, sites, middle, coordinator
):
    middle.onward = lambda s, b: b[:3] + b"\x02" + b[4:]
    found = ask(coordinator, "a")
    assert found.code == "version"
    assert "fedcohort 0." in found.text
    middle.onward, middle.back = (lambda s, b: b), (lambda s, b: b[:3] + b"\x02" + b[4:])
    assert ask(coordinator, "a").code == "version"
    assert not sites["a"].bodies


def _at(folder, name="heart"):
    """Kits that were made on the fixed day."""
    made = Network.new(folder / name, sites=["a", "b"], at=DAY)
    return made, {p.name: Kit.read(made.kit(p.name), clock=later()) for p in made.parties()}


def test_expired_and_early_certificates_are_refused_on_both_sides(tmp_path):
    _, party = _at(tmp_path)
    for days, code in [(398, "expired"), (-3, "not yet valid")]:
        clock = later(days=days)
        good = Trust(party["a"].root, clock=later())
        strict = Trust(party["a"].root, clock=clock)
        site = Site(party["a"], trust=strict)
        caller, _ = calling(party["coordinator"], Middle({"a": site.callee}), trust=good)
        found = ask(caller, "a")
        assert found.code == code
        assert "by the clock there" in found.text
        assert len(site.lines) == 1
        site = Site(party["a"], trust=good)
        caller, lines = calling(party["coordinator"], Middle({"a": site.callee}), trust=strict)
        assert ask(caller, "a").code == code
        assert len(lines) == 1
        assert not site.bodies


def test_a_certificate_that_expires_within_a_session_ends_it(tmp_path):
    _, party = _at(tmp_path)
    now = [DAY]
    trust = Trust(party["a"].root, clock=lambda: now[0])
    site = Site(party["a"], trust=trust)
    caller, _ = calling(party["coordinator"], Middle({"a": site.callee}), trust=trust)
    assert ask(caller, "a") == b"re: hello"
    now[0] = later(days=397, hours=1)()
    assert ask(caller, "a").code == "expired"
    assert len(site.bodies) == 1
    late = Trust(party["a"].root, clock=later())
    caller, _ = calling(party["coordinator"], Middle({"a": site.callee}), trust=late)
    now[0] = DAY
    assert ask(caller, "a") == b"re: hello"
    now[0] = later(days=397, hours=1)()
    assert ask(caller, "a").code == "expired"
    assert not site.callee._sessions.keys() & {caller._sessions["a"].sealing.session}
    assert len(site.bodies) == 2


def test_a_certificate_that_was_taken_back_is_refused_on_both_sides(tmp_path):
    network, before = _at(tmp_path)
    network.revoke("coordinator")
    network.revoke("a")
    _, after = network, {n: Kit.open(network.kit(n)) for n in ("a", "b", "coordinator")}
    site = Site(after["b"], trust=Trust(after["b"].root, clock=later()))
    caller, _ = calling(
        before["coordinator"], Middle({"b": site.callee}), trust=before["a"].trust(clock=later())
    )
    found = ask(caller, "b")
    assert (found.code, found.late) == ("revoked", False)
    assert "taken back" in found.text
    site = Site(before["a"], trust=before["a"].trust(clock=later()))
    caller, _ = calling(
        after["coordinator"], Middle({"a": site.callee}),
        trust=Trust(after["a"].root, clock=later()),
    )  # fmt: skip
    assert ask(caller, "a").code == "revoked"
    assert not site.bodies


def test_a_refusal_of_what_lies_inside_arrives_with_its_words_and_under_seal(heart, middle):
    def no(peer, body):
        raise Refused("policy", "the method 'svm' is not allowed at site a. Ask its steward.")

    site = Site(heart["a"])
    site.callee._inner = no
    caller, lines = calling(heart["coordinator"], Middle({"a": site.callee}))
    found = ask(caller, "a")
    assert (found.code, found.late) == ("policy", False)
    assert found.text == "a: the method 'svm' is not allowed at site a. Ask its steward."
    assert len(lines) == len(site.lines) == 1


def test_an_error_inside_leaves_no_word_of_it(heart):
    def broken(peer, body):
        raise ValueError("could not convert 'Jane Doe'")

    site = Site(heart["a"])
    site.callee._inner = broken
    caller, lines = calling(heart["coordinator"], Middle({"a": site.callee}))
    found = ask(caller, "a")
    assert (found.code, found.late) == ("failed", True)
    assert "Jane" not in found.text + "".join(lines + site.lines)
    assert site.lines == ["a: failed at a call of coordinator (ValueError)."]


def test_a_pretended_refusal_says_only_our_words(middle, coordinator):
    lies = [
        seal._head(seal.REFUSAL) + json.dumps({"code": c, "version": v}).encode()
        for c, v in [("expired", "0.1.0"), ("x" * 24, "0.1.0"), ("a\x1b[2J", "0.1.0"),
                     ("version", "9.9<script>"), ("version", "9.9.9")]
    ] + [seal._head(seal.REFUSAL), seal._head(seal.REFUSAL) + b"x" * 500]  # fmt: skip
    for lie in lies:
        middle.back = lambda s, b, lie=lie: lie
        found = ask(coordinator, "a")
        assert isinstance(found, Refusal)
        assert "\x1b" not in found.text
        assert "script" not in found.text
        assert "xxxx" not in found.text
    middle.back = lambda s, b: b
    assert ask(coordinator, "a") == b"re: hello"


def test_who_says_no_key_forever_is_asked_a_few_times_only(middle, coordinator):
    ask(coordinator, "a")
    middle.seen.clear()
    lie = seal.refusal("no key", "0.1.0")
    middle.back = lambda s, b: b if b[4:5] == seal.WELCOME else lie
    found = ask(coordinator, "a")
    assert found.code == "no key"
    assert [blob[4:5] for _, blob, _ in middle.seen] == [b"C", b"H", b"C", b"H", b"C"]


def test_bodies_over_the_cap_are_refused_before_any_work(heart, monkeypatch):
    site = Site(heart["a"], cap=1000)
    middle = Middle({"a": site.callee})
    caller, _ = calling(heart["coordinator"], middle, cap=2000)
    assert ask(caller, "a", b"x" * 900) == b"re: " + b"x" * 900
    assert ask(caller, "a", b"x" * 1001).code == "oversized"
    assert ask(caller, "a", b"x" * 2001).code == "oversized"
    assert len(middle.seen) == 3
    assert ask(caller, "a", b"x" * 999).code == "oversized"
    site.callee._inner = lambda peer, body: b"y" * 1000
    assert len(ask(caller, "a", b"")) == 1000
    caller._cap = 500
    assert ask(caller, "a", b"").code == "oversized"
    monkeypatch.setattr(Sealing, "open", None)
    big = middle.seen[-1][1] + b"x" * 2000
    assert seal.read_refusal(site.callee.handle(big))[0] == "oversized"
    hello = seal._head(seal.HELLO) + b"\0\0{" + b" " * 20_000
    assert seal.read_refusal(site.callee.handle(hello))[0] == "oversized"


def test_an_unknown_peer_leaves_nothing_behind_and_little_in_the_log(heart, lung):
    site = Site(heart["a"])
    for _ in range(100):
        caller, _ = calling(lung["coordinator"], Middle({"a": site.callee}))
        caller._network = "heart"
        assert ask(caller, "a").code == "untrusted"
    assert not site.callee._provisional
    assert not site.callee._sessions
    assert len(site.lines) == 1


def test_sessions_of_a_peer_are_few_and_the_newest_stay(heart, sites, middle):
    callers = [calling(heart["coordinator"], middle)[0] for _ in range(20)]
    for caller in callers:
        assert ask(caller, "a") == b"re: hello"
    assert len(sites["a"].callee._sessions) == callees.EACH
    assert not sites["a"].callee._provisional
    _clear(sites, middle)
    assert ask(callers[-1], "a") == b"re: hello"
    assert len(middle.seen) == 1
    assert ask(callers[0], "a") == b"re: hello"
    assert len(sites["a"].bodies) == 2


def test_a_log_is_not_flooded_by_lines_that_differ():
    at, lines = [0.0], []
    log = RateLimit(lines.append, lambda: at[0])
    for n in range(1000):
        log(f"line {n}")
        log("the same")
    assert len(lines) == LINES + 1
    at[0] = 61
    log("the same")
    assert lines[-1] == "the same"


# Silence --------------------------------------------------------------------------------------


def test_what_the_engine_does_not_bring_is_a_silence_that_knows_if_a_call_was_sent(
    middle, coordinator
):
    middle.onward = lambda s, b: None
    assert ask(coordinator, "a") == Silence("a: dropped", late=False)
    middle.onward = lambda s, b: b
    ask(coordinator, "a")
    middle.back = lambda s, b: None
    assert ask(coordinator, "a") == Silence("a: dropped", late=True)


def test_an_engine_that_breaks_or_forgets_a_site_costs_no_more_than_the_time(
    heart, sites, coordinator
):
    class Broken(Middle):
        def exchange(self, requests, timeout):
            yield from ()
            raise OSError("gone")

    class Forgetful(Middle):
        def exchange(self, requests, timeout):
            yield from ()

    for line, text in ((Broken, "engine failed (OSError)"), (Forgetful, "no answer within 0.2 s")):
        coordinator._line = line({})
        began = time.monotonic()
        found = dict(coordinator.exchange(dict.fromkeys("ab", b""), 0.2))
        assert set(found) == {"a", "b"}
        assert all(text in silence.text for silence in found.values())
        assert time.monotonic() - began < 5


# Any bytes ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spoken(heart):
    """A site, and a conversation with it: messages that it took."""
    site = Site(heart["a"])
    middle = Middle({"a": site.callee})
    caller, _ = calling(heart["coordinator"], middle)
    for n in range(3):
        ask(caller, "a", b"body %d" % n)
    sealed = caller._sessions["a"].sealing.seal(seal.CALL, 50, b"not yet")
    said = [blob for _, blob, _ in middle.seen] + [reply for *_, reply in middle.seen] + [sealed]
    return site, said


@given(data=st.data())
def test_changed_messages_never_raise_and_never_reach_the_inside(spoken, data):
    site, said = spoken
    reached = len(site.bodies)
    blob = bytearray(data.draw(st.sampled_from(said)))
    for _ in range(data.draw(st.integers(1, 3))):
        act = data.draw(st.sampled_from(["flip", "cut", "insert", "repeat"]))
        at = data.draw(st.integers(0, max(len(blob) - 1, 0)))
        if act == "flip" and blob:
            blob[at] ^= data.draw(st.integers(1, 255))
        elif act == "cut":
            del blob[at : at + data.draw(st.integers(1, 40))]
        elif act == "insert":
            blob[at:at] = data.draw(st.binary(min_size=1, max_size=40))
        else:
            blob[at:at] = blob[at : at + 20]
    if bytes(blob) in said:
        return
    answer = site.callee.handle(bytes(blob))
    assert answer[4:5] in (seal.REFUSAL, seal.WELCOME)
    assert answer[4:5] != seal.WELCOME or b"coordinator" in bytes(blob)
    assert len(site.bodies) == reached
    assert len(answer) < 20_000


@given(st.binary(max_size=200))
def test_random_bytes_never_raise_and_never_reach_the_inside(spoken, blob):
    site, _ = spoken
    reached = len(site.bodies)
    for head in (b"", b"FCN\x01", b"FCN\x01H", b"FCN\x01C", b"FCN\x01X", b"FCN\x02H"):
        assert seal.read_refusal(site.callee.handle(head + blob))[0]
    assert len(site.bodies) == reached


def test_what_is_no_bytes_at_all_does_not_raise(heart):
    site = Site(heart["a"])
    for strange in (None, "text", 7, [], object()):
        assert site.callee.handle(strange)[4:5] == seal.REFUSAL


@given(data=st.data())
def test_changed_answers_never_raise_at_the_caller(heart, spoken, data):
    _, said = spoken
    site = Site(heart["a"])
    middle = Middle({"a": site.callee})
    caller, _ = calling(heart["coordinator"], middle)

    def back(_, blob):
        if data.draw(st.booleans()):
            return data.draw(st.sampled_from(said))
        changed = bytearray(blob)
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
        return bytes(changed)

    middle.back = back
    found = ask(caller, "a", b"x", timeout=5)
    assert isinstance(found, Silence)
    middle.back = lambda s, b: b
    assert ask(caller, "a", b"x") == b"re: x"


def test_one_call_in_two_threads_at_once_is_handled_once(heart, monkeypatch):
    site = Site(heart["a"])
    middle = Middle({"a": site.callee})
    caller, _ = calling(heart["coordinator"], middle)
    ask(caller, "a", b"0")
    call = caller._sessions["a"].sealing.seal(seal.CALL, 7, b"7")
    both, real = threading.Barrier(2), Sealing.open

    def at_once(self, blob):
        both.wait(10)
        return real(self, blob)

    monkeypatch.setattr(Sealing, "open", at_once)
    with ThreadPoolExecutor(2) as pool:
        kinds = {answer[4:5] for answer in pool.map(site.callee.handle, (call, call))}
    assert kinds == {seal.REPLY, seal.REFUSAL}
    assert site.bodies == [b"0", b"7"]
