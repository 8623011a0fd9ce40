"""`fedcohort network`: kits on the disk, and one line for whatever cannot be."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fedcohort.network.kits.make import Kit
from in_process import command


@pytest.fixture
def heart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = command("network", "new", "heart", "--sites", "a,b,c")
    assert (code, err) == (0, "")
    return out


def test_new_shows_every_party_and_says_what_to_do_with_the_kits(heart):
    lines = heart.splitlines()
    assert [line.split()[0] for line in lines[:9]] == [
        "coordinator", "a", "b", "c", "lead", "steward-a", "steward-b", "steward-c", "authority",
    ]  # fmt: skip
    assert "Give each party its own kit" in heart
    assert "heart/authority stays with you" in heart
    assert "on this computer alone" in heart
    assert max(map(len, lines)) <= 120
    for kit in ("coordinator", "sites/a", "sites/b", "sites/c", "people/lead", "people/steward-a"):
        assert Kit.read(f"heart/{kit}").network == "heart"


def test_new_takes_address_engine_leads_and_days(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = command(
        "network", "new", "nets/lung", "--sites", "north, south", "--address", "fed.org:9000",
        "--engine", "flower", "--leads", "anna,ben", "--days", "30",
    )  # fmt: skip
    assert code == 0
    kit = Kit.read("nets/lung/people/ben")
    assert (kit.network, kit.address, kit.engine) == ("lung", "fed.org:9000", "flower")
    assert kit.sites == ("north", "south")
    assert "on this computer alone" not in out
    code, out, _ = command("network", "show", "nets/lung")
    assert out.count("renew soon") == 7


def test_show_tells_of_one_kit_and_of_what_is_wrong_with_it(heart):
    code, out, err = command("network", "show", "heart/sites/a")
    assert (code, err) == (0, "")
    kit = Kit.read("heart/sites/a")
    mark = kit.trust().verify(kit.certificate.read_bytes()).certificate.fingerprint
    for text in ("network      heart, engine flare", "role site", mark, "127.0.0.1:8102"):
        assert text in out
    assert mark in heart
    os.chmod("heart/sites/a/key.pem", 0o644)
    code, out, err = command("network", "show", "heart/sites/a")
    assert code == 1
    assert mark in out
    assert err == (
        "fedcohort: heart/sites/a/key.pem: other users of this computer can read this private "
        "key. Run: chmod 600 heart/sites/a/key.pem\n"
    )


def test_add_renew_and_revoke_change_what_show_says(heart):
    code, out, _ = command("network", "add", "heart", "--site", "d")
    assert code == 0
    assert "heart/sites/d" in out
    assert "bring it the new kit.toml" in out
    assert Kit.read("heart/coordinator").sites == ("a", "b", "c", "d")
    code, out, _ = command("network", "add", "heart", "--person", "anna")
    assert (code, out) == (0, "made: heart/people/anna\n")
    code, out, _ = command("network", "renew", "heart", "a")
    assert code == 0
    assert "network revoke heart a --old" in out
    assert "fingerprint: " in out
    code, out, _ = command("network", "revoke", "heart", "a", "--old")
    assert code == 0
    assert len(Kit.read("heart/coordinator").revoked) == 1
    code, out, _ = command("network", "revoke", "heart", "a", "--old")
    assert "no certificate left" in out
    command("network", "revoke", "heart", "d")
    _, out, _ = command("network", "show", "heart")
    assert [line.split()[0] for line in out.splitlines() if "taken back" in line] == ["d"]
    code, _, err = command("network", "show", "heart/sites/d")
    assert code == 1
    assert "was taken back" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("new", "heart", "--sites", "a"), "heart: it exists, and a network is never overwritten."),
        (("new", "x", "--sites", "A"), "site 'A': a name has up to 40"),
        (("new", "x", "--sites", ","), "name at least one site"),
        (("new", "No Name", "--sites", "a"), "network 'No Name': a name has up to 40"),
        (("new", "x", "--sites", "a", "--engine", "ray"), "engine 'ray' is none of flare, flower"),
        (("new", "x", "--sites", "a", "--address", "x"), "--address 'x': give HOST:PORT"),
        (("new", "x", "--sites", "a", "--days", "0"), "--days 0: a certificate is good for 1 to"),
        (("add", "heart"), "either --site or --person"),
        (("add", "heart", "--site", "x", "--person", "y"), "either --site or --person"),
        (("add", "heart", "--site", "a"), "the network has a party of this name"),
        (("add", "nowhere", "--site", "a"), "this is no network's folder"),
        (("renew", "heart", "nobody"), "heart: has no party 'nobody'; it has a, b, c"),
        (("renew", "heart", "a", "--days", "-1"), "--days -1"),
        (("revoke", "heart", "nobody"), "has no party 'nobody'"),
        (("show", "nowhere"), "nowhere: kit.toml is missing, so this is no kit"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_with_2(heart, arguments, message):
    code, out, err = command("network", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_help_is_there_and_does_not_load_cryptography(tmp_path):
    code, out, _ = command("network", "--help")
    assert code == 0
    for name in ("new", "add", "renew", "revoke", "show"):
        assert name in out
    script = (
        "import sys, fedcohort.apps.cli\n"
        "sys.exit(any(m.split('.')[0] in ('cryptography', 'nvflare', 'flwr') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, timeout=60).returncode == 0


def test_without_the_package_for_certificates_one_line_says_how_to_get_it(tmp_path):
    script = (
        "import sys, importlib.util as u\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'cryptography' else real(name, *a)\n"
        "sys.argv = ['fedcohort', 'network', 'new', 'x', '--sites', 'a']\n"
        "from fedcohort.apps.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, timeout=60, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == (
        "fedcohort: a network needs the package 'cryptography': pip install 'fedcohort[flare]'.\n"
    )
