"""Kits: what is in them, and that one which cannot be used says so in one line."""

from __future__ import annotations

import os
import re
import shutil
from datetime import timedelta

import pytest

from fedcohort.network.kits.make import Kit, Network
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.secure.certificates import Certificate
from network.identities import DAY, later


@pytest.fixture
def heart(tmp_path):
    return Network.new(tmp_path / "heart", sites=["a", "b-1", "c"], leads=["anna", "ben"], at=DAY)


def _read(network, party):
    return Kit.read(network.kit(party), clock=later())


def test_each_party_gets_a_kit_that_says_who_it_is(heart):
    found = {party.name: _read(heart, party.name) for party in heart.parties()}
    roles = {name: kit.role for name, kit in found.items()}
    assert roles == {
        "coordinator": "coordinator", "a": "site", "b-1": "site", "c": "site",
        "anna": "lead", "ben": "lead",
        "steward-a": "steward", "steward-b-1": "steward", "steward-c": "steward",
    }  # fmt: skip
    for name, kit in found.items():
        assert kit.name == name
        assert (kit.network, kit.engine, kit.coordinator) == ("heart", "flare", "coordinator")
        assert kit.sites == ("a", "b-1", "c")
        assert (kit.host, kit.port) == ("127.0.0.1", 8102)
        assert kit.trust(clock=later()).verify(kit.certificate.read_bytes()).name == name
    assert found["steward-b-1"].organisation == "b-1"
    kinds = {name: kit.folder.relative_to(heart.folder).as_posix() for name, kit in found.items()}
    assert kinds["coordinator"] == "coordinator"
    assert kinds["b-1"] == "sites/b-1"
    assert kinds["anna"] == "people/anna"


def test_only_keys_are_secret_and_no_key_is_in_two_places(heart):
    keys = set()
    for path in heart.folder.rglob("*"):
        mode = path.stat().st_mode & 0o777
        if path.is_dir():
            assert mode == 0o700, path
            continue
        text = path.read_text(encoding="utf-8")
        secret = "PRIVATE KEY-----" in text
        assert secret == (path.name in ("key.pem", "identity.pem"))
        assert mode == (0o600 if secret else mode) and not (secret and text in keys)
        keys |= {text} if secret else set()
    assert len(keys) == 13  # nine parties, the authority, and what three sites sign sums with
    assert not list(heart.folder.rglob("*.new"))


def test_a_restrictive_or_an_open_umask_changes_no_key(tmp_path):
    before = os.umask(0o000)
    try:
        made = Network.new(tmp_path / "x", sites=["a"], at=DAY)
    finally:
        os.umask(before)
    key = made.kit("a") / "key.pem"
    assert key.stat().st_mode & 0o777 == 0o600
    assert made.kit("a").stat().st_mode & 0o777 == 0o700


def test_readme_tells_each_receiver_the_command_and_the_secret(heart):
    for party in heart.parties():
        text = (heart.kit(party.name) / "README.txt").read_text(encoding="utf-8")
        assert party.fingerprint in text
        assert "key.pem" in text
        command = {
            "site": "fedcohort node start", "coordinator": "fedcohort coordinator start",
            "lead": "fedcohort run",
            "steward": "fedcohort node approve HASH --node SITE-KIT --kit THIS-FOLDER",
        }[party.role]  # fmt: skip
        assert command in text
        assert max(map(len, text.splitlines())) <= 100
        assert "{" not in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sites": ["A"]}, "site 'A': a name has up to 40"),
        ({"sites": ["a b"]}, "a name has up to 40"),
        ({"sites": ["../x"]}, "a name has up to 40"),
        ({"sites": ["-a"]}, "neither begins"),
        ({"sites": [""]}, "a name has up to 40"),
        ({"sites": ["é"]}, "a name has up to 40"),
        ({"sites": ["x" * 41]}, "a name has up to 40"),
        ({"sites": ["x" * 33]}, "up to 32 letters"),
        ({"sites": ["a", "a"]}, "has a party of this name"),
        ({"sites": ["a"], "leads": ["a"]}, "has a party of this name"),
        ({"sites": ["a"], "leads": ["steward-a"]}, "has a party of this name"),
        ({"sites": ["coordinator"]}, "the network's own"),
        ({"sites": ["server"]}, "the network's own"),
        ({"sites": []}, "name at least one site"),
        ({"sites": ["a"], "engine": "grpc"}, "engine 'grpc' is none of flare, flower"),
        ({"sites": ["a"], "address": "host"}, "give HOST:PORT"),
        ({"sites": ["a"], "address": "host:0"}, "give HOST:PORT"),
        ({"sites": ["a"], "address": "host:99999"}, "give HOST:PORT"),
        ({"sites": ["a"], "address": "ho st:80"}, "give HOST:PORT"),
        ({"sites": ["a"], "address": "::1:80"}, "IPv6"),
        ({"sites": ["a"], "address": "https://h:80"}, "give HOST:PORT"),
        ({"sites": ["a"], "days": 0}, "--days 0"),
        ({"sites": ["a"], "days": 10**9}, "--days"),
    ],
)
def test_a_network_that_cannot_be_is_refused_and_nothing_is_left(tmp_path, change, message):
    with pytest.raises(InputError, match=message) as error:
        Network.new(tmp_path / "x", **change)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_left_as_it_is(heart):
    before = {path: path.read_bytes() for path in heart.folder.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match="never overwritten"):
        Network.new(heart.folder, sites=["z"])
    assert before == {p: p.read_bytes() for p in heart.folder.rglob("*") if p.is_file()}


def test_addresses_may_be_names_and_both_kinds_of_ip(tmp_path):
    for at, (address, host) in enumerate(
        [("fed.example.org:1", "fed.example.org"), ("10.0.0.7:65535", "10.0.0.7"),
         ("[2001:db8::7]:8102", "2001:db8::7")]
    ):  # fmt: skip
        made = Network.new(tmp_path / f"n{at}", sites=["a"], address=address, at=DAY)
        kit = _read(made, "coordinator")
        assert (kit.address, kit.host) == (address, host)
        assert host in Certificate.parse(kit.certificate.read_bytes()).hosts


def _code(folder, clock=None):
    with pytest.raises(Refused) as error:
        Kit.read(folder, clock=clock or later())
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)
    return error.value.code


def test_a_kit_whose_files_do_not_belong_together_is_refused(heart, tmp_path):
    other = Network.new(tmp_path / "lung", sites=["a", "b-1"], at=DAY)
    for name, source, code in [
        ("key.pem", heart.kit("b-1"), "key"),
        ("cert.pem", heart.kit("b-1"), "name"),
        ("cert.pem", heart.kit("anna"), "role"),
        ("cert.pem", other.kit("a"), "untrusted"),
        ("root.pem", other.kit("a"), "untrusted"),
    ]:
        kit = tmp_path / f"kit-{code}-{name}"
        shutil.copytree(heart.kit("a"), kit)
        shutil.copy(source / name, kit / name)
        assert _code(kit) == code
    kit = tmp_path / "whole"
    shutil.copytree(other.kit("a"), kit)
    text = (kit / "kit.toml").read_text().replace('"lung"', '"heart"')
    (kit / "kit.toml").write_text(text)
    assert _code(kit) == "untrusted"
    (heart.kit("a") / "key.pem").write_text("no key")
    assert _code(heart.kit("a")) == "key"


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_a_key_that_others_can_read_is_refused(heart):
    for mode in (0o644, 0o640, 0o604, 0o666):
        (heart.kit("a") / "key.pem").chmod(mode)
        assert _code(heart.kit("a")) == "mode"
    (heart.kit("a") / "key.pem").chmod(0o400)
    assert _read(heart, "a").name == "a"


def test_a_kit_is_refused_before_and_after_its_time(heart):
    assert _code(heart.kit("a"), later(days=-2)) == "not yet valid"
    assert _code(heart.kit("a"), later(days=397, minutes=1)) == "expired"
    assert Kit.read(heart.kit("a"), clock=later(days=396)).name == "a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'network' is missing"),
        ("network = 3", "network must be a text"),
        ("what = 1", "the key 'what' is unknown"),
        ("[", "is no TOML"),
        ("\x00", "is no TOML"),
        (('role = "site"', 'role = "king"'), "role 'king' is none of"),
        (('engine = "flare"', 'engine = "x"'), "engine 'x' is none of"),
        (('sites = ["a", "b-1", "c"]', "sites = [1]"), "sites must be a list of texts"),
        (("127.0.0.1:8102", "127.0.0.1"), "give HOST:PORT"),
        (('name = "a"', 'name = "../../a"'), "a name has up to 40"),
        (('revoked = []', ""), "'revoked' is missing"),
    ],
)  # fmt: skip
def test_a_kit_toml_that_is_wrong_names_file_and_key(heart, text, message):
    path = heart.kit("a") / "kit.toml"
    path.write_text(path.read_text().replace(*text) if isinstance(text, tuple) else text)
    with pytest.raises(InputError, match=message) as error:
        _read(heart, "a")
    assert "kit.toml" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["kit.toml", "root.pem", "cert.pem", "key.pem"])
def test_a_missing_file_is_named(heart, name):
    (heart.kit("a") / name).unlink()
    with pytest.raises(InputError, match=f"{name} is missing, so this is no kit"):
        _read(heart, "a")


def test_a_network_s_folder_is_not_taken_for_a_kit_nor_a_kit_for_it(heart, tmp_path):
    with pytest.raises(InputError, match="this is a network's folder; name a kit"):
        Kit.read(heart.folder)
    with pytest.raises(InputError, match=r"authority/network.toml is missing"):
        Network.open(heart.kit("a"))
    with pytest.raises(InputError, match=r"kit.toml is missing"):
        Kit.read(tmp_path / "nowhere")


def test_a_site_that_is_added_is_known_to_all_and_trusted_by_all(heart):
    old = _read(heart, "a").trust(clock=later())
    kit = heart.add_site("d", at=DAY)
    assert old.verify((kit / "cert.pem").read_bytes(), ("site",), "d").organisation == "d"
    for party in heart.parties():
        assert _read(heart, party.name).sites == ("a", "b-1", "c", "d")
    assert _read(heart, "steward-d").organisation == "d"
    with pytest.raises(InputError, match="has a party of this name"):
        heart.add_site("d")
    with pytest.raises(InputError, match="has a party of this name"):
        heart.add_person("steward-d")


def test_renewal_gives_a_new_key_and_keeps_what_the_holder_wrote(heart):
    kit, state = heart.kit("a"), heart.kit("a") / "state"
    state.mkdir()
    (state / "ledger.jsonl").write_text("{}\n")
    mark = "ab" * 32
    text = (kit / "kit.toml").read_text()
    (kit / "kit.toml").write_text(text.replace("revoked = []", f'revoked = ["{mark}"]'))
    before = {name: (kit / name).read_text() for name in ("key.pem", "cert.pem", "root.pem")}
    assert _code(kit, later(days=400)) == "expired"
    heart.renew("a", at=DAY + timedelta(days=390))
    after = {name: (kit / name).read_text() for name in before}
    assert after["root.pem"] == before["root.pem"]
    assert after["key.pem"] != before["key.pem"]
    found = Kit.read(kit, clock=later(days=780))
    assert found.revoked == {mark}
    assert (state / "ledger.jsonl").read_text() == "{}\n"
    assert (found.role, found.organisation) == ("site", "a")
    trust = _read(heart, "b-1").trust(clock=later(days=395))
    assert trust.verify(before["cert.pem"]).name == trust.verify(after["cert.pem"]).name == "a"


def test_a_kit_that_was_moved_away_is_made_anew_by_renewal(heart, tmp_path):
    shutil.move(heart.kit("a"), tmp_path / "usb")
    heart.add_site("d", at=DAY)
    assert not heart.kit("a").exists()
    heart.renew("a", at=DAY)
    assert _read(heart, "a").sites == ("a", "b-1", "c", "d")


def test_what_is_taken_back_is_refused_by_every_kit_and_the_new_one_is_not(heart):
    old = (heart.kit("a") / "cert.pem").read_text()
    assert heart.revoke("a", older=True) == []
    heart.renew("a", at=DAY)
    assert heart.revoke("a", older=True) == [Certificate.parse(old).fingerprint]
    trust = _read(heart, "coordinator").trust(clock=later())
    with pytest.raises(Refused) as error:
        trust.verify(old)
    assert error.value.code == "revoked"
    new = (heart.kit("a") / "cert.pem").read_text()
    assert trust.verify(new).name == "a"
    heart.revoke("a")
    assert _code(heart.kit("a")) == "revoked"


@pytest.mark.parametrize("party", ["nobody", "../authority", "", "A", "a.pem"])
def test_an_unknown_party_is_named_with_those_that_are_known(heart, party):
    for act in (heart.renew, heart.revoke, heart.kit):
        with pytest.raises(InputError, match=re.escape("it has a, anna, b-1, ben, c, coordina")):
            act(party)
