"""`fedcohort doctor`: each fault is found, and named with who has to act; sound kits have none."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from fedcohort.apps import doctor
from fedcohort.network import engines, service
from fedcohort.network.kits.make import Network
from fedcohort.network.service import Note
from fedcohort.network.state import rollback
from fedcohort.network.state.rollback import Rollback
from fedcohort.protocol.errors import InputError, Refused
from fedcohort.secure import certificates
from in_process import app
from network.hall import Hall, Spoke
from network.wires import free_port


@pytest.fixture
def hall(tmp_path, monkeypatch):
    with Hall(tmp_path / "hall") as made:
        monkeypatch.setattr(engines, "spoke", lambda kit: Spoke(made))
        monkeypatch.setattr(engines, "preflight", lambda kit, *_, **__: None)
        made.open()
        yield made


@pytest.fixture
def net(tmp_path):
    return Network.new(
        tmp_path / "net", sites=["north"], address=f"127.0.0.1:{free_port()}", days=300
    )


def examined(folder: Path, config: Path | None = None) -> tuple[bool, str]:
    lines: list[str] = []
    good = doctor.run(folder, config, lines.append)
    return good, "\n".join(lines)


def of_north(hall: Hall) -> tuple[bool, str]:
    return examined(hall.network.kit("north"), hall.folder / "north" / "node.toml")


def test_nothing_is_wrong_with_sound_kits_of_all_roles(hall):
    for who in ("coordinator", "lead", "steward-north"):
        good, text = examined(hall.network.kit(who))
        assert good, text
        assert "nothing is wrong." in text
    good, text = of_north(hall)
    assert good, text
    for what in ("kit", "certificate", "disk", "ports", "version", "clock", "policy", "table"):
        assert f"ok     {what} " in text, text
    assert "229 rows, 10 columns" in text


def test_a_state_that_was_restored_is_for_it_and_steward_to_look_at(hall):
    folder = hall.network.kit("north")
    (folder / "state").mkdir(exist_ok=True)
    assert Rollback(folder / "state", lambda: 40).seen(100)
    good, text = of_north(hall)
    assert not good
    assert "WRONG  state        its state is older than what it has told already" in text
    assert "-> IT of north and the data steward of north: bring a newer backup back; or" in text
    rollback.accept(folder / "state", "the disk broke")
    assert "older than" not in of_north(hall)[1]


def test_the_command_leaves_with_0_or_1_and_2_for_what_is_no_kit(net, capsys):
    app(["doctor", str(net.kit("coordinator"))], standalone_mode=False)
    assert app(["doctor", str(net.kit("lead"))], standalone_mode=False) == 1
    assert "nothing listens at" in capsys.readouterr().out
    with pytest.raises(InputError, match="no kit"):
        app(["doctor", str(net.folder / "people")], standalone_mode=False)


def test_a_coordinator_that_is_not_there_is_for_its_it_to_start(net):
    good, text = examined(net.kit("lead"))
    assert not good
    assert "-> the coordinator's IT: start it: fedcohort coordinator start KIT" in text
    assert text.endswith("1 of 4 checks are wrong; to act: the coordinator's IT.")


def test_a_name_that_is_not_known_here_is_for_the_sites_it(tmp_path):
    made = Network.new(tmp_path / "net", sites=["north"], address="no.such.host.invalid:8102")
    _, text = examined(made.kit("north"))
    assert "-> IT of north: let this computer know the name no.such.host.invalid (DNS)" in text


def test_a_key_that_others_can_read_is_named(net):
    os.chmod(net.kit("lead") / "key.pem", 0o644)
    _, text = examined(net.kit("lead"))
    assert "WRONG  kit" in text
    assert "chmod 600" in text
    assert "-> lead or their IT" in text


def test_the_key_of_another_kit_is_for_who_made_the_network(net):
    key = net.kit("lead") / "key.pem"
    key.write_text((net.kit("coordinator") / "key.pem").read_text())
    _, text = examined(net.kit("lead"))
    assert "-> whoever made the network" in text


def test_a_certificate_that_ends_soon_is_a_note_with_the_command(net, monkeypatch):
    monkeypatch.setattr(doctor, "now", lambda: certificates.now() + timedelta(days=290))
    good, text = examined(net.kit("coordinator"))
    assert good
    assert "note   certificate" in text
    assert "fedcohort network renew NETWORK coordinator" in text


@pytest.mark.parametrize(
    ("coordinator", "said"),
    [
        (lambda *_, **__: None, "the coordinator takes it, so the clock here is ahead\n"),
        ("expired", "the coordinator's clock agrees that it has ended\n"),
        ("away", "if that is not today's date, set this computer's clock"),
    ],
)
def test_two_years_ahead_is_a_wrong_clock_or_an_old_certificate_by_the_coordinators_word(
    net, monkeypatch, coordinator, said
):
    def refused(*_, **__):
        raise Refused(coordinator, "no")

    answers = coordinator if callable(coordinator) else refused
    monkeypatch.setattr(engines, "preflight", answers)
    monkeypatch.setattr(doctor, "now", lambda: certificates.now() + timedelta(days=730))
    good, text = examined(net.kit("lead"))
    assert not good
    assert said in text
    assert "this computer's clock says" in text


def test_a_clock_three_hours_ahead_is_told_with_its_bound(hall, monkeypatch):
    real = time.time
    monkeypatch.setattr(
        "fedcohort.network.coordinator.coordinator.time.time", lambda: real() - 3 * 3600
    )
    good, text = of_north(hall)
    assert not good
    assert "WRONG  clock" in text
    assert "3 h 0 min ahead of the coordinator's (±" in text
    assert "-> IT of north: compare it with the time of day" in text


@pytest.mark.parametrize(
    ("code", "who"),
    [("unknown site", "the coordinator's IT"), ("untrusted", "IT of north"),
     ("revoked", "whoever made the network"), ("version", "who the line names")],
)  # fmt: skip
def test_who_acts_where_the_coordinator_turns_a_site_away(hall, monkeypatch, code, who):
    def preflight(*_, **__):
        raise Refused(code, "it says no.")

    monkeypatch.setattr(engines, "preflight", preflight)
    good, text = of_north(hall)
    assert not good
    assert f"-> {who}" in text


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="a folder in which nobody can write")
def test_a_state_that_cannot_be_written_is_named(net):
    os.symlink("/proc", net.kit("coordinator") / "state")  # a folder in which nobody can write
    good, text = examined(net.kit("coordinator"))
    assert not good
    assert "WRONG  disk" in text
    assert "-> the coordinator's IT: make room there" in text


def test_faults_of_policy_and_table_name_it_or_the_steward(hall):
    toml = hall.folder / "north" / "node.toml"
    sound = toml.read_text()
    for change, said, who in (
        ("[policy]\n", "[policy]\nmin_rows = 5000\n", "the data steward of north: see whether it"),
        ("[policy]\n", "[policy]\nmin_row = 5\n", "IT of north: correct it with the data steward"),
        ("patients.csv", "nothing.csv", "IT of north: correct [data] in node.toml"),
    ):
        toml.write_text(sound.replace(change, said))
        good, text = of_north(hall)
        assert not good
        assert f"-> {who}" in text, text
    toml.write_text(sound.replace("[policy]", f'dictionary = "{hall.folder}/own.yaml"\n[policy]'))
    (hall.folder / "own.yaml").write_text(
        (hall.folder / "dictionary.yaml").read_text() + "  lvef: {type: number}\n"
    )
    _, text = of_north(hall)
    assert "1 columns of its dictionary are not in it: lvef" in text


def test_a_record_of_a_study_that_cannot_be_read_is_named(net):
    run = net.kit("coordinator") / "runs" / ("ab" * 32)
    run.mkdir(parents=True)
    for damaged in ("{", "[" * 100_000):
        (run / "run.json").write_text(damaged)
        good, text = examined(net.kit("coordinator"))
        assert not good
        assert "1 of 1 records cannot be read: abababababab" in text


def test_of_a_coordinator_that_runs_each_site_is_told(net, monkeypatch):
    parties = {"north": {"version": "0.0.1", "offset": [1e4, 0.1], "fault": "disk full"}}
    facts = {"connected": [], "sites": ["north"], "parties": parties}
    note = Note(os.getpid(), service.born(os.getpid()) or "", 0.0, facts)
    monkeypatch.setattr(doctor, "read", lambda folder: note)
    good, text = examined(net.kit("coordinator"))
    assert not good
    line = next(x for x in text.splitlines() if x.startswith("WRONG  north"))
    for said in ("fedcohort 0.0.1", "REFUSED", "CLOCK 2 h 47 min ahead", "CANNOT WRITE"):
        assert said in line
    assert "-> IT of north: fedcohort doctor KIT there" in text


def test_a_node_that_runs_is_asked_by_its_note_and_not_over_a_second_connection(hall, monkeypatch):
    def never(*_, **__):
        raise AssertionError

    monkeypatch.setattr(engines, "preflight", never)
    monkeypatch.setattr(engines, "spoke", never)
    state = hall.network.kit("north") / "state"
    state.mkdir()
    told = {"pid": os.getpid(), "began": service.born(os.getpid()), "since": 0.0}
    facts = {"connected": True, "offset": [0.5, 0.01]}
    (state / "service.json").write_text(json.dumps({**told, "facts": facts}))
    good, text = of_north(hall)
    assert good, text
    assert "the node that runs is connected" in text
    (state / "service.json").unlink()


DAMAGE = {
    "empty": b"",
    "binary": b"\0\xff" * 100,
    "list": b"[1]",
    "numbers": b'{"at": NaN, "pid": 1e999, "began": 1, "since": NaN, "facts": {"offset": [NaN]}}',
    "deep": b"[" * 100_000,
    "cut": None,
}


@pytest.mark.parametrize(
    "name",
    ["root.pem", "cert.pem", "key.pem", "identity.pem", "members.json", "state/service.json",
     "state/older.json", "state/budget.sqlite"],
)  # fmt: skip
def test_a_damaged_file_is_one_line_and_the_other_checks_go_on(hall, name):
    path = hall.network.kit("north") / name
    path.parent.mkdir(exist_ok=True)
    sound = path.read_bytes() if path.is_file() else b"{}"
    for content in DAMAGE.values():
        path.write_bytes(sound[: len(sound) // 2] if content is None else content)
        path.chmod(0o600)
        good, text = of_north(hall)
        assert "ok     table " in text
        if path.suffix == ".pem":
            assert not good
            assert "WRONG  kit " in text
            assert "connection   not tried: the kit has to be right first" in text


def test_a_damaged_budget_is_named_with_who_brings_it_back(hall):
    (hall.network.kit("north") / "state").mkdir(exist_ok=True)
    (hall.network.kit("north") / "state" / "budget.sqlite").write_bytes(b"no database " * 50)
    good, text = of_north(hall)
    assert not good
    assert "budget.sqlite is damaged (file is not a database)" in text
    assert "-> IT of north: bring state/ back" in text


def test_a_key_that_this_user_cannot_read_is_named(net, monkeypatch):
    read = Path.read_bytes

    def denied(path):
        if path.name == "key.pem":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", denied)
    good, text = examined(net.kit("north"))
    assert not good
    assert "key.pem cannot be read (permission denied)" in text
    assert "-> IT of north: run doctor as the user of the service" in text
