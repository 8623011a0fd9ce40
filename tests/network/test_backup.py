"""Backup, restore and upgrade: what a restored state has forgotten is noticed, the rest goes on."""

from __future__ import annotations

import json
import shutil
import threading

import pytest

from fedcohort.apps.node_service import Watch
from fedcohort.network import requests
from fedcohort.network.coordinator import lead, runs
from fedcohort.network.coordinator.lead import Office
from fedcohort.network.coordinator.runs import Run
from fedcohort.network.kits.parties import Parties, trouble
from fedcohort.network.node.node import Node
from fedcohort.network.requests import Standing
from fedcohort.network.state import rollback
from fedcohort.network.state.budget import Budget
from fedcohort.network.state.policy import Config
from fedcohort.network.state.rollback import Rollback
from fedcohort.protocol.errors import InputError, Refused
from in_process import app
from network.hall import Hall, Spoke
from network.parties import Parties as Network
from network.wires import until

LINE = "its state is older than what it has told already"


@pytest.fixture
def hall(tmp_path):
    with Hall(tmp_path / "hall") as made:
        yield made


class Engine(Spoke):
    """A site's end."""

    connected = True


def watched(hall, name="north"):
    """Return what greets the coordinator in a node's name, and what it says."""
    said: list[str] = []
    kit = hall.kit(name)
    spoke = Engine(hall)
    node = hall.nodes[name]
    watch = Watch(kit, spoke, Office(kit, spoke), lambda: None, said.append, str, node.rollback)
    node.greeted = watch.greeted
    return watch, said


def done(hall, office, **changes):
    first = lead.submit(office, hall.offer(**changes), wait=None, timeout=None, resume=False)
    return hall.until(office, first, "done")


def test_a_node_that_was_restored_from_an_older_backup_waits_for_its_people(hall, capsys):
    hall.start()
    office = hall.office()
    watched(hall)[0].look()
    state = hall.nodes["north"].state
    hall.end("north")
    shutil.copytree(state, backup := hall.folder / "backup")
    hall.begin("north")
    done(hall, office)
    watch, said = watched(hall)
    watch.look()
    assert not any("RESTORED" in line for line in said)

    hall.end("north")
    shutil.rmtree(state)
    shutil.copytree(backup, state)
    hall.begin("north")
    watch, said = watched(hall)
    watch.look()
    assert [line for line in said if "RESTORED?" in line and LINE in line]
    assert LINE in watch.facts()["error"]
    status = lead.submit(office, hall.offer(seed=8), wait=None, timeout=None, resume=False)
    while not status.sites["north"]["reason"]:
        status = lead.Status.of(office.insist("status", run=status.run)[1])
    assert status.sites["north"]["state"] == "away"
    assert LINE in status.sites["north"]["reason"]
    about = hall.coordinator.facts()["parties"]["north"]
    assert any("STATE IS OLDER" in line for line in trouble("north", about))

    kit = str(hall.kit("north").folder)
    app(["node", "restored", kit, "--reason", "the disk broke"], standalone_mode=False)
    assert "north goes on" in capsys.readouterr().out
    hall.until(office, status, "done")
    told = (state / "ledger.jsonl").read_text()
    assert LINE not in told  # it is asked again and again, and writes nothing each time
    assert (state / "log.txt").read_text().count(LINE) == 1
    watch, said = watched(hall)
    watch.look()
    assert not any("RESTORED" in line for line in said)
    noted = json.loads((state / "restored.json").read_text())
    assert noted["said"][0]["reason"] == "the disk broke"
    assert noted["said"][0]["lost"] == noted["base"] > 0


def test_a_coordinator_that_was_restored_has_the_runs_of_its_backup_and_no_later_one(hall):
    hall.start()
    office = hall.office()
    first = done(hall, office)
    hall.coordinator.stop()
    shutil.copytree(hall.home, backup := hall.folder / "backup")
    hall.open()
    later = hall.offer(seed=8)
    done(hall, hall.office(), seed=8)
    hall.coordinator.stop()
    shutil.rmtree(hall.home)
    shutil.copytree(backup, hall.home)
    hall.open()
    office = hall.office()
    lead.fetch(office, first.run, out := hall.folder / "out")
    assert (out / "results.json").is_file()
    with pytest.raises(Refused, match="no such run here; submit it without --resume"):
        lead.submit(office, later, wait=None, timeout=None, resume=True)
    again = lead.submit(office, later, wait=None, timeout=None, resume=False)
    assert hall.until(office, again, "done").absent == {}


# the counter ---------------------------------------------------------------------------


def test_a_count_that_is_lost_is_booked_and_stops_nobody_twice(tmp_path):
    length = [100]
    counter = Rollback(tmp_path, lambda: length[0])
    assert not counter.seen(100)
    counter.check()
    length[0] = 40
    assert counter.seen(100)
    with pytest.raises(Refused, match=LINE):
        counter.check()
    length[0] = 200  # what is written meanwhile does not hide it
    assert counter.seen(100)
    with pytest.raises(Refused, match=LINE):
        counter.check()
    length[0] = 40
    assert rollback.accept(tmp_path, "a new disk") == 60
    counter.check()
    assert (counter.count(), counter.seen(100)) == (100, False)
    with pytest.raises(InputError, match="has seen nothing that this state lacks"):
        rollback.accept(tmp_path, "again")


@pytest.mark.parametrize("told", [None, "9", True, -1, 1.5, 1 << 60])
def test_what_is_no_count_stops_no_node(tmp_path, told):
    assert not Rollback(tmp_path, lambda: 0).seen(told)
    assert not (tmp_path / "older.json").exists()


def test_the_coordinator_remembers_the_highest_count_over_restarts(tmp_path):
    said = []
    path = tmp_path / "sites.json"
    parties = Parties({}, said.append, path)
    assert [parties.heard("north", {"count": n}) for n in (5, 9, 9)] == [None, 5, 9]
    parties = Parties({}, said.append, path)
    assert parties.heard("north", {"count": 7}) == 9
    assert parties.heard("north", {"count": 7}) == 9
    assert len(said) == 1
    assert "north: its state is older than what it told before" in said[0]
    assert parties.heard("north", {"count": 9}) == 9
    assert parties.facts()["north"]["older"] is False
    path.write_text("[")
    assert Parties({}, said.append, path).heard("north", {"count": 1}) is None


def test_a_study_waits_for_the_first_greeting(hall, monkeypatch):
    monkeypatch.setattr("fedcohort.network.node.node.GREETING", 0.05)
    hall.begin("north")
    node: Node = hall.nodes["north"]
    node.greeted = threading.Event()
    body = requests.offer(hall.offer().to_bytes())
    assert "greeting was not answered yet" in requests.standing(asked(hall, body)).reason
    node.greeted.set()
    assert requests.standing(asked(hall, body)).state == "approved"


def asked(hall, body):
    """Return north's answer to the coordinator."""
    kit = hall.kit("coordinator")
    peer = kit.trust().verify(kit.certificate.read_bytes())
    return hall.nodes["north"].handle(peer, body)


def test_what_studies_spent_since_the_backup_is_booked(tmp_path, capsys):
    limits = {"privacy_budget": "{ epsilon = 3.0, delta = 1e-5 }"}
    with Hall(tmp_path / "hall", policy={"north": limits}) as hall:
        hall.begin("north")
        state, toml = hall.nodes["north"].state, hall.folder / "north" / "node.toml"
        (state / "config.json").write_text(json.dumps({"path": str(toml)}))
        assert hall.nodes["north"].rollback.seen(1 << 20)
        kit = str(hall.kit("north").folder)
        words = ["node", "restored", kit, "--reason", "x", "--epsilon", "1.5", "--delta", "1e-6"]
        app(words, standalone_mode=False)
        assert "Booked as spent: epsilon 1.5, delta 1e-06." in capsys.readouterr().out
        read = Config.read(toml)
        account = Budget(state / "budget.sqlite", read.data.name, read.policy.budget).account()
        assert float(account.spent.epsilon) == 1.5
        assert float(account.left.epsilon) == 1.5


def test_a_record_of_a_later_version_is_read_without_what_is_not_known(tmp_path):
    run = Run(tmp_path / "r", "ab", "s", "lead", 1.0, {"north": Standing("approved")})
    run.save()
    path = tmp_path / "r" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"colour": "blue"}))
    assert runs.read(tmp_path / "r") == run


# real processes ------------------------------------------------------------------------

STUDY = {
    "study": "backup", "task": "survival", "seed": 3,
    "data": {"source": "sample:gbsg2", "outcome": {"time": "time", "event": "cens"}},
    "arms": [{"method": "cox", "scale": "none"}],
    "evaluate": {"test_fraction": 0.25, "repeats": 1},
}  # fmt: skip


@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ["flare", "flower"])
def test_backup_restore_and_upgrade_of_one_party_at_a_time_with_real_processes(tmp_path, engine):
    with Network(tmp_path / "n", engine=engine) as net:
        north, state = net.nodes["north"], net.kit("north") / "state"

        def restart(party, **more):
            party.interrupt()
            party.wait(20)
            party.lines.clear()
            party.start(**more)

        def study(seed):
            return net.write(f"s{seed}.yaml", {**STUDY, "seed": seed})

        net.start()
        north.interrupt()
        north.wait(20)
        shutil.copytree(state, backup := tmp_path / "state")
        north.lines.clear()
        north.start()
        net.ready(["north"])
        net.run(study(1), tmp_path / "one")
        restart(north)  # its greeting tells the coordinator how much has left
        net.ready(["north"])

        # a node that is restored from an older backup
        north.interrupt()
        north.wait(20)
        shutil.rmtree(state)
        shutil.copytree(backup, state)
        north.lines.clear()
        north.start()
        north.says("RESTORED. its state is older")
        waiting = net.submit(study(2), tmp_path / "two")
        waiting.says("north: cannot take part now: site 'north': its state is older")
        assert "STATE IS OLDER" in net.do("coordinator", "status", net.kit("coordinator"))
        net.do("node", "restored", net.kit("north"), "--reason", "a new disk")
        assert waiting.wait(120) == 0, waiting.text

        # one site at a time gets a version that fits
        for name in net.names:
            restart(net.nodes[name], FEDCOHORT_TEST_VERSION="0.1.9")
            net.ready([name])
            if name == net.names[0]:
                net.run(study(3), tmp_path / "three")
        assert "north: connected, fedcohort 0.1.9" in net.do(
            "coordinator", "status", net.kit("coordinator")
        )

        # and one of a version that does not
        restart(north, FEDCOHORT_TEST_VERSION="0.2.0")
        assert north.wait(60) == 1
        assert "fedcohort 0.1.0 runs there, and 0.2.0 here" in north.text
        assert "IT of the coordinator has to upgrade" in north.text

        def status():
            return net.do("coordinator", "status", net.kit("coordinator"))

        # an engine notices after some seconds that a site is gone
        until(lambda: "north: not connected, fedcohort 0.2.0" in status(), 60, "a site that left")
        assert "IT of the coordinator has to upgrade" in status()
        north.lines.clear()
        north.start()
        net.ready(["north"])

        # a coordinator that is restored: earlier results are there, sites take part at once
        net.coordinator.interrupt()
        net.coordinator.wait(20)
        shutil.copytree(net.kit("coordinator"), kept := tmp_path / "coordinator")
        shutil.rmtree(net.kit("coordinator"))
        shutil.copytree(kept, net.kit("coordinator"))
        net.coordinator.lines.clear()
        net.coordinator.start()
        net.coordinator.says("connected: north, south, west")
        net.run(study(9), tmp_path / "four")
        assert "done" in net.do("coordinator", "runs", net.kit("coordinator"))
        assert not [p for p in net.everyone if "Traceback" in p.text], net.report()
