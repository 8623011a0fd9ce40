"""Services: one process a kit, found and ended by its own id; a node knows when to stop."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import typer

from command_line import COMMAND
from fedcohort.apps import node_service, serving
from fedcohort.apps.node_service import Watch
from fedcohort.apps.serving import Aloud
from fedcohort.network import service
from fedcohort.network.coordinator.lead import Away
from fedcohort.network.kits.make import Kit, Network
from fedcohort.network.service import Service
from fedcohort.protocol.errors import InputError, Refused
from network.wires import free_port

SERVE = """
import sys, time
from pathlib import Path
from fedcohort.network.service import Service, leave
with Service(Path(sys.argv[1]), "node") as one:
    one.tell(connected=True)
    print("ready", flush=True)
    while not one.wait(0.5):
        pass
    print("stopped", flush=True)
leave(0)
"""


@pytest.fixture
def started(tmp_path):
    """Return a function that starts a service as a process; all are ended."""
    processes = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(tmp_path)], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            process.wait(20)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=20)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_ends_within_two_seconds_of_a_signal_and_leaves_no_note(
    started, tmp_path, number
):
    process = started()
    assert service.read(tmp_path).alive
    began = time.monotonic()
    process.send_signal(number)
    assert process.wait(20) == 0
    assert time.monotonic() - began < 2
    assert service.read(tmp_path) is None


def test_a_kit_serves_one_process(started, tmp_path):
    first = started()
    second = started()
    assert second.returncode == 1
    assert f"process {first.pid}" in second.stderr.read()
    assert service.read(tmp_path).pid == first.pid


def test_stop_ends_the_very_process(started, tmp_path):
    process = started()
    assert service.stop(tmp_path)
    assert process.wait(20) == 0
    assert not service.stop(tmp_path)


def test_stop_never_touches_a_process_that_has_the_number_of_an_old_one(started, tmp_path):
    process = started()
    process.kill()
    process.wait(20)
    note = tmp_path / "state" / "service.json"
    told = json.loads(note.read_text())
    note.write_text(json.dumps(told | {"pid": os.getpid()}))  # the number was given out again
    assert not service.read(tmp_path).alive
    assert not service.stop(tmp_path)
    with Service(tmp_path, "node"):  # and the kit is free
        assert service.read(tmp_path).pid == os.getpid()


def test_a_killed_service_counts_as_not_running(started, tmp_path):
    process = started()
    process.kill()
    process.wait(20)
    assert not service.read(tmp_path).alive


def test_a_note_of_before_the_computer_was_started_again_is_of_no_running_process(
    tmp_path, monkeypatch
):
    with Service(tmp_path, "node") as one:
        one.tell()
        assert service.read(tmp_path).alive
        monkeypatch.setattr(service, "_boot", lambda: "another ")
        assert not service.read(tmp_path).alive


def test_a_note_that_cannot_be_read_is_none(tmp_path):
    (tmp_path / "state").mkdir()
    for text in ("", "{}", "[1]", '{"pid": "x"}'):
        (tmp_path / "state" / "service.json").write_text(text)
        assert service.read(tmp_path) is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "state").write_text("a file")
    with pytest.raises(InputError, match="state"), Service(tmp_path, "node"):
        pass


def fedcohort(*words):
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=60)


# commands ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    return Network.new(tmp_path_factory.mktemp("net") / "net", sites=["north"])


@pytest.mark.parametrize("command", ["coordinator", "node"])
def test_status_and_stop_of_what_does_not_run_say_so(net, command):
    kit = str(net.kit("coordinator" if command == "coordinator" else "north"))
    found = fedcohort(command, "status", kit)
    assert found.returncode == 1
    assert f"not running; start it: fedcohort {command} start {kit}" in found.stdout
    found = fedcohort(command, "stop", kit)
    assert found.returncode == 0
    assert f"no {command} runs" in found.stdout


def test_another_partys_kit_is_named_with_its_command(net):
    found = fedcohort("coordinator", "start", str(net.kit("north")))
    assert found.returncode == 2
    assert "kit of a site" in found.stderr
    assert "fedcohort node" in found.stderr
    found = fedcohort("node", "status", str(net.folder))
    assert found.returncode == 2
    assert "name a kit in it" in found.stderr


def test_a_run_with_another_partys_kit_names_the_leads(net, tmp_path):
    study = tmp_path / "s.yaml"
    study.write_text("study: x\n")
    words = ("run", str(study), "--runtime", "flare", "--network", str(net.kit("north")))
    found = fedcohort(*words)
    assert found.returncode == 2
    assert "people/lead" in found.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--runtime", "flar"], "did you mean 'flare'"),
        (["--runtime", "flare"], "--network KIT"),
        (["--network", "x"], "--network goes with --runtime flare"),
        (["--wait", "3"], "--wait goes with"),
        (["--timeout", "3"], "--timeout goes with"),
        (["--cancel"], "--cancel goes with"),
    ],
)
def test_options_that_do_not_go_together_are_named(options, said):
    found = fedcohort("run", "studies/quickstart.yaml", *options)
    assert found.returncode == 2
    assert said in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_a_coordinator_behind_a_router_listens_on_an_address_of_its_own(tmp_path):
    made = Network.new(
        tmp_path / "net", sites=["north"], address=f"no.such.host:{(port := free_port())}"
    )
    kit = str(made.kit("coordinator"))
    found = fedcohort("coordinator", "start", kit)
    assert found.returncode == 2
    assert "--listen HOST" in found.stderr
    words = [*COMMAND, "coordinator", "start", kit, "--listen", "127.0.0.1"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        assert f"listening on 127.0.0.1:{port}, which parties reach as no.such.host" in said
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
    finally:
        process.terminate()
        assert process.wait(20) == 0


def test_a_node_whose_data_file_is_missing_says_so_at_its_start(net, tmp_path):
    toml = tmp_path / "node.toml"
    toml.write_text(
        '[data]\nsource = "here.csv"\n[policy]\nmethods = "all"\ncolumns = "all"\n'
        'submitters = "all"\n'
    )
    words = [*COMMAND, "node", "start", str(net.kit("north")), "--config", str(toml)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        assert f"there is no file {tmp_path / 'here.csv'} yet" in said
        assert "[data] source in node.toml" in said
    finally:
        process.terminate()
        process.wait(20)


def test_a_node_says_what_studies_do_there_once_each(net):
    said = []
    tidings = node_service.Tidings(Kit.open(net.kit("north")), said.append)
    quiet = {"waiting": [], "running": [], "error": ""}
    for facts in (
        quiet, {**quiet, "waiting": ["s (ab12)"]}, {**quiet, "waiting": ["s (ab12)"]},
        {**quiet, "running": ["s (ab12)"]}, quiet, {**quiet, "error": "no"},
        {**quiet, "error": "no"},
    ):  # fmt: skip
        tidings.look(facts)
    assert len(said) == 4
    assert f"fedcohort node studies ab12 --node {net.kit('north')}" in said[0]
    assert said[1:] == ["s (ab12) runs here", "s (ab12) is over here", "refused: no"]


def test_runs_of_a_new_coordinator_are_none(net):
    assert "no study" in fedcohort("coordinator", "runs", str(net.kit("coordinator"))).stdout


# a node's connection -------------------------------------------------------------------


class Engine:
    """A spoke that is connected when a test says so."""

    def __init__(self):
        self.connected = False
        self.started = 0

    def start(self):
        self.started += 1

    def stop(self):
        pass

    def ask(self, blob, timeout):
        raise AssertionError


class StudyStore:
    """A coordinator that answers a hello as a test says."""

    def __init__(self):
        self.error = None
        self.hellos = 0
        self.preflight = lambda: None
        self.ahead = 0.0
        self.told = []

    def ask(self, kind, patience, **meta):
        assert kind == "hello"
        self.hellos += 1
        self.told.append(meta)
        if self.error is not None:
            raise self.error
        return {}, {"version": "0.1.0", "clock": time.time() - self.ahead}


@pytest.fixture
def watch(net, monkeypatch):
    for name in ("TRY", "PROBE"):
        monkeypatch.setattr(f"fedcohort.apps.node_service.{name}", 0.0)
    said = []
    engine, store = Engine(), StudyStore()
    found = Watch(Kit.read(net.kit("north")), engine, store, lambda: store.preflight(), said.append)
    return found, engine, store, said


def test_a_node_says_once_that_it_waits_then_that_it_is_connected_then_that_it_lost(watch):
    found, engine, _, said = watch
    for _ in range(5):
        found.look()
    assert len(said) == 1
    assert "cannot be reached" in said[0]
    assert found.facts()["connected"] is False
    engine.connected = True
    for _ in range(5):
        found.look()
    assert len(said) == 2
    assert "connected to the coordinator of net" in said[1]
    assert found.facts()["connected"] is True
    assert "error" not in found.facts()
    engine.connected = False
    for _ in range(5):
        found.look()
    assert len(said) == 3
    assert "lost the coordinator" in said[2]


def test_a_node_that_lost_the_coordinator_has_that_as_its_last_error(watch):
    found, engine, _, _ = watch
    engine.connected = True
    found.look()
    engine.connected = False
    found.look()
    assert re.search(r"lost the coordinator at \S+ at \d\d:\d\d:\d\d", found.facts()["error"])


def test_a_node_that_never_reached_the_coordinator_notes_why(watch):
    found, _, store, _ = watch
    answers = iter(["nothing listens there", None])
    store.preflight = lambda: next(answers)
    noted = []
    found.begin(lambda: False, lambda: noted.append(found.facts()))
    assert [(n["connected"], "nothing listens there" in n["error"]) for n in noted] == [
        (False, True)
    ]


def test_a_coordinator_that_does_not_answer_any_more_is_an_error_though_the_line_stands(
    watch, monkeypatch
):
    monkeypatch.setattr(node_service, "PULSE", 0.0)
    found, engine, store, _ = watch
    engine.connected = True
    found.look()
    assert found.facts()["connected"] is True
    store.error = Away("no answer within 10 s.")
    beat(found)
    assert (found.facts()["connected"], found.facts()["error"]) == (False, "no answer within 10 s")
    store.error = None
    beat(found)
    assert found.facts()["connected"] is True


def beat(found):
    """Let a node greet the coordinator once more."""
    found.look()
    found._pulse.join(5)


@pytest.mark.parametrize(
    ("ahead", "said"), [(3 * 3600, "3 h 0 min ahead of"), (-2 * 365 * 86400, "730 days behind")]
)
def test_a_clock_that_is_off_is_told_once_with_who_has_to_act(watch, monkeypatch, ahead, said):
    monkeypatch.setattr(node_service, "PULSE", 0.0)
    found, engine, store, lines = watch
    engine.connected, store.ahead = True, ahead
    found.look()
    for _ in range(3):
        beat(found)
    told = [line for line in lines if "clock" in line]
    assert len(told) == 1
    assert f"this computer's clock is {said} the coordinator's" in told[0]
    assert "IT of this computer" in told[0]
    assert store.told[0]["offset"] is None
    assert abs(store.told[-1]["offset"][0] - ahead) < 1
    store.ahead = 0.0
    beat(found)
    found.look()
    assert "agrees with the coordinator's again" in lines[-1]


def test_the_note_of_a_node_that_was_turned_away_says_why_it_ended(net, capsys):
    kit = Kit.open(net.kit("north"))
    with Service(kit.folder, "node") as one:
        one.last("the coordinator at x refuses the certificate of 'north': it has expired.")
    note = service.read(kit.folder)
    assert note is not None
    gone = replace(note, pid=2**22 + 1)
    with pytest.raises(typer.Exit):
        serving.running(kit, gone)
    said = capsys.readouterr().out
    assert "ended on" in said
    assert "last error: the coordinator at x refuses the certificate of 'north'" in said
    (kit.folder / "state" / "service.json").unlink()


def test_status_says_where_a_service_cannot_note_anything(net, capsys):
    kit = Kit.open(net.kit("north"))
    serving.health(kit, service.Note(1, "", 0.0, {"offset": [10800.0, 0.01]}, age=120.0))
    said = capsys.readouterr().out
    assert "clock: 3 h 0 min ahead of the coordinator's (±0.01 s)" in said
    assert "nothing was noted for 2 min" in said
    assert "state cannot be written" in said


def test_status_says_why_a_note_is_late_where_it_cannot_be_written_by_anyone(
    net, capsys, monkeypatch
):
    kit = Kit.open(net.kit("north"))
    monkeypatch.setattr(serving, "unwritable", lambda state: "No space left on device")
    serving.health(kit, service.Note(1, "", 0.0, {}, age=5.0))
    assert "state cannot be written (No space left on device)" in capsys.readouterr().out
    serving.health(kit, service.Note(1, "", 0.0, {}, age=1.0))
    assert "last error: none" in capsys.readouterr().out


def test_the_age_of_a_note_is_by_the_clock_of_its_process_and_not_of_a_file_server(tmp_path):
    with Service(tmp_path, "node"):
        note = tmp_path / "state" / "service.json"
        os.utime(note, (time.time() - 10_800, time.time() - 10_800))
        found = service.read(tmp_path)
        assert found is not None and found.age < 60


def test_a_disk_fault_is_said_once_when_it_comes_and_when_it_goes(net):
    said = []
    disk = serving.Disk(Kit.open(net.kit("north")), "studies wait here", said.append)
    for fault in ("", "No space left on device", "No space left on device", "", ""):
        disk.look(fault)
    assert len(said) == 2
    assert "cannot be written (No space left on device): studies wait here until" in said[0]
    assert "can be written again" in said[1]


FULL = """
import resource, sys, tempfile
from pathlib import Path
from fedcohort.network.service import Service, unwritable
with Service(Path(sys.argv[1]), "node") as one:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    one.tell(connected=True)
    print(tempfile.gettempdir(), "|", one.fault, "|", unwritable(Path(sys.argv[1]) / "state"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of a file's size")
def test_on_a_full_disk_a_service_lives_says_so_and_has_its_folder_for_temporary_files(tmp_path):
    # PyTorch asks for that folder while it loads; a failure there poisoned the whole process
    found = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stderr
    folder, fault, now = found.stdout.strip().split(" | ")
    assert os.path.isdir(folder)
    assert fault == now == "File too large"


@pytest.mark.parametrize(
    "code", ["untrusted", "expired", "revoked", "unknown site", "version", "name", "role"]
)
def test_a_node_ends_where_another_try_cannot_help(watch, code):
    found, engine, store, _ = watch
    engine.connected, store.error = True, Refused(code, "why")
    with pytest.raises(Refused, match="why"):
        found.look()


@pytest.mark.parametrize("error", [Refused("busy", "busy"), Away("gone")])
def test_a_node_tries_again_where_it_can_help(watch, error):
    found, engine, store, _ = watch
    engine.connected, store.error = True, error
    found.look()
    store.error = None
    found.look()
    assert found.facts()["connected"] is True


def test_a_node_starts_its_engine_only_when_the_coordinator_can_be_reached(watch):
    found, engine, store, said = watch
    answers = iter(["no route", "no route", None])
    store.preflight = lambda: next(answers)
    found.begin(lambda: False)
    assert engine.started == 1
    assert len(said) == 1
    assert "no route" in said[0]


def test_a_node_that_is_refused_before_it_connects_never_starts_its_engine(watch):
    found, engine, store, _ = watch
    store.preflight = refused("expired")
    with pytest.raises(Refused, match="expired"):
        found.begin(lambda: False)
    assert engine.started == 0


def test_a_node_that_is_refused_while_it_is_cut_off_ends(watch):
    found, _, store, _ = watch
    store.preflight = refused("taken")  # its own new connection
    found.look()
    store.preflight = refused("revoked")
    with pytest.raises(Refused, match="revoked"):
        found.look()


def refused(code):
    def preflight():
        raise Refused(code, f"it is {code}")

    return preflight


def test_a_flood_of_warnings_is_cut_short():
    said = []
    handler = Aloud(said.append)
    for i in range(100):
        handler.emit(logging.makeLogRecord({"msg": "refused %d", "args": (i,)}))
    assert 20 <= len(said) <= 42  # a minute may end in between
    assert said[0] == "refused 0"
