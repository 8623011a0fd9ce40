"""Recovery by real processes: whatever is killed, stopped or cut, the result is the known one.

What is compared with is the same study over sites in this process, in which a site misses just the
calls that the result names. (`make chaos` places single faults at exact moments; here, many come
in one run, and people's own commands are among what ends.)
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest

from network.parties import SAMPLES, SITES, Parties, Party
from network.reference import differing, in_process, plain
from network.viewed import VIEWS, name_views
from network.wires import UP, until

STUDY = {
    "study": "recovery",
    "task": "survival",
    "seed": 5,
    "quorum": 0.6,
    "data": {"source": "sample:gbsg2", "outcome": {"time": "time", "event": "cens"}},
    "preprocess": {"impute": "median", "scale": "minmax"},
    "arms": [{"method": "deepcox", "strategy": "fedavg", "rounds": 100, "internal_epochs": 1}],
    "evaluate": {"test_fraction": 0.25, "repeats": 1},
}
#: A method whose calls leave a state at each site.
STATES = {
    **STUDY,
    "study": "recovery-states",
    "task": "classification",
    "data": {"source": "sample:gbsg2", "outcome": {"y": "cens"}},
    "arms": [{"method": "logistic", "solver": "admm", "l2": 0.01}],
}
#: A method that goes on from what sites told once, and from the round before.
VIEWED = {
    **STUDY,
    "study": "recovery-views",
    "task": "latent",
    "data": {"source": "patients.csv", "dictionary": "views.yaml"},
    "preprocess": {},
    "arms": [
        {"method": "multiview_ppca", "q": "auto", "q_range": [1, 3], "rounds": 30, "draws": 20}
    ],
}
LAG = 0.02  # seconds each way, so that a run lasts


FOUR = (*SITES, "east")


def started(folder: Path, names: Sequence[str] = SITES) -> Generator[Parties]:
    with Parties(folder, names, wires=True) as net:
        for wire in net.wires.values():
            wire.lag = LAG
        net.start()
        yield net
    assert net.survivors == []
    for party in net.everyone:
        assert "Traceback" not in party.text, party.text


@pytest.fixture
def net(tmp_path):
    yield from started(tmp_path / "n")


@pytest.fixture
def four(tmp_path):
    yield from started(tmp_path / "n", FOUR)


def kept(net: Parties) -> int:
    """Return the bytes of all journals at the coordinator."""
    size = 0
    for path in (net.kit("coordinator") / "runs").rglob("*.journal"):
        try:
            size += path.stat().st_size
        except FileNotFoundError:  # a session has just ended
            continue
    return size


def under_way(net: Parties, beyond: int = 3000) -> None:
    """Wait until calls were answered."""
    until(lambda: kept(net) > beyond, 60, f"the study is under way\n{net.report()}")


def moved(net: Parties, lead: Party, before: int) -> Callable[[], bool]:
    """Return what says whether the journals are others than before, or the run has ended."""
    return lambda: kept(net) != before or not lead.alive


def ends_well(net: Parties, lead: Party, seconds: float = 120) -> dict[str, bytes]:
    """Wait for the lead's command; return its files."""
    code = lead.wait(seconds)
    assert code == 0, f"exit {code}\n{lead.text}\n{net.report()}"
    return plain(net.folder / "out")


def test_a_site_that_was_away_answers_again_in_the_same_run(four, tmp_path):
    """Of four sites three hide one another in a masked sum; of three, none may be away."""
    net = four
    net.write("study.yaml", STUDY)
    lead = net.submit("study.yaml", "out", "--timeout", "10")

    def trains(site: str) -> None:
        ledger = net.kit(site) / "state" / "ledger.jsonl"
        before = ledger.read_text().count("train_here") if ledger.exists() else 0

        def grown() -> bool:
            now = ledger.read_text().count("train_here") if ledger.exists() else 0
            return now > before + 2 or not lead.alive

        until(grown, 90, f"{site} trains")
        assert lead.alive, net.report()

    trains("south")
    net.wires["south"].cut()
    lead.says(r"south: silent")
    trains("north")  # without the other
    net.wires["south"].mend()
    lead.says(r"(?s)south: silent.*south: approved")
    trains("south")
    net.nodes["south"].stop()
    lead.says(r"(?s)south: silent.*south: approved.*south: silent")
    trains("north")
    net.nodes["south"].go_on()
    found = ends_well(net, lead)
    missing = json.loads(found["results.json"])["missing"]
    assert {row["site"] for row in missing} == {"south"}
    assert len(missing) >= 2, missing  # it was away, answered, was away again
    expected = in_process(net.folder / "study.yaml", tmp_path / "local", missing, FOUR)
    assert differing(found, expected) == []
    assert "taken" not in net.coordinator.text


def test_ten_kills_of_nodes_and_coordinator_in_one_run_change_nothing(net, tmp_path):
    net.write("study.yaml", {**STATES, "evaluate": {"test_fraction": 0.25, "repeats": 5}})
    lead = net.submit("study.yaml", "out")
    under_way(net)
    draw = random.Random(14)
    killed: list[str] = []
    while len(killed) < 10:
        parties = draw.sample([net.coordinator, *net.nodes.values()], draw.choice([1, 1, 2]))
        before = kept(net)
        for party in parties:
            party.kill()
            killed.append(party.name)
        time.sleep(draw.uniform(0.0, 0.5))
        for party in parties:
            party.start()
        until(moved(net, lead, before), 60, f"it goes on\n{net.report()}")
        assert lead.alive, f"{killed}\n{net.report()}"
        time.sleep(draw.uniform(0.0, 0.8))
    assert set(killed) == {"coordinator", *net.names}
    found = ends_well(net, lead)
    expected = in_process(net.folder / "study.yaml", tmp_path / "local")
    assert differing(found, expected) == []


def test_a_stopped_coordinator_and_a_killed_node_are_resumed_to_the_same_bytes(net, tmp_path):
    net.write("study.yaml", STATES)
    lead = net.submit("study.yaml", "out")
    under_way(net)
    net.coordinator.interrupt()
    net.nodes["north"].kill()
    lead.kill()
    assert net.coordinator.wait(5) == 0
    net.coordinator.start()
    net.nodes["north"].start()
    found = ends_well(net, net.submit("study.yaml", "out", "--resume"))
    expected = in_process(net.folder / "study.yaml", tmp_path / "local")
    assert differing(found, expected) == []


def test_a_latent_study_killed_at_three_moments_and_resumed_ends_in_the_same_bytes(net, tmp_path):
    (net.folder / "views.yaml").write_text((SAMPLES / "gbsg2.yaml").read_text())
    name_views(net.folder / "views.yaml")
    net.write("study.yaml", VIEWED)
    lead = net.submit("study.yaml", "out")
    for beyond, victim in ((3000, "north"), (6000, "coordinator"), (12000, "lead")):
        under_way(net, beyond)
        assert lead.alive, f"it ended before {victim} was killed\n{net.report()}"
        party = {"lead": lead, "coordinator": net.coordinator}.get(victim) or net.nodes[victim]
        party.kill()
        if party is not lead:
            party.start()
    found = ends_well(net, net.submit("study.yaml", "out", "--resume"))
    results = json.loads(found["results.json"])
    assert results["missing"] == []
    assert {row["view"] for row in results["latent_views"]} >= {*VIEWS}
    expected = in_process(net.folder / "study.yaml", tmp_path / "local")
    assert differing(found, expected) == []


def test_where_the_lead_s_machine_is_gone_another_folder_fetches_the_results(net, tmp_path):
    net.write("study.yaml", STATES)
    lead = net.submit("study.yaml", "out")
    under_way(net)
    lead.kill()
    net.coordinator.kill()
    refused = net.submit("study.yaml", "other", "--resume")  # asked while nobody is there
    time.sleep(1.0)
    net.coordinator.start()
    code = refused.wait(120)
    said = f"{refused.text}\n{net.report()}"
    assert code == 0, said
    expected = in_process(net.folder / "study.yaml", tmp_path / "local")
    assert differing(plain(net.folder / "other"), expected) == []


def test_studies_in_the_queue_outlive_the_coordinator(net, tmp_path):
    net.write("study.yaml", {**STATES, "evaluate": {"test_fraction": 0.25, "repeats": 5}})
    net.write("second.yaml", {**STATES, "study": "recovery-second", "seed": 6})
    leads = [net.submit("study.yaml", "out")]
    under_way(net)
    leads.append(net.submit("second.yaml", "second"))
    leads[1].says("next in the queue|1 before it")
    net.coordinator.kill()
    net.coordinator.start()
    for lead in leads:
        assert lead.wait(120) == 0, f"{lead.text}\n{net.report()}"
    for study, out in (("study.yaml", "out"), ("second.yaml", "second")):
        expected = in_process(net.folder / study, tmp_path / out)
        assert differing(plain(net.folder / out), expected) == []


def test_stop_in_the_middle_of_a_call_leaves_nothing_within_two_seconds(net):
    for i, who in enumerate(("coordinator", "node")):
        net.write("study.yaml", {**STATES, "seed": i})
        stopped_in_the_middle(net, who, net.submit("study.yaml", f"out{i}"))


def stopped_in_the_middle(net: Parties, who: str, lead: Party) -> None:
    """Let one party stop while a call is under way; check what is left, and that the run ends."""
    under_way(net, kept(net) + 6000)  # among calls that leave a state
    for wire in net.wires.values():
        wire.hold(UP)
    until(lambda: all(w.waiting[UP] > 400 for w in net.wires.values()), 30, "a call is under way")
    party, kit = (
        (net.coordinator, "coordinator") if who == "coordinator" else (net.nodes["south"], "south")
    )
    began = time.monotonic()
    os.kill(party.pid, signal.SIGTERM)  # as `fedcohort coordinator stop` does
    assert party.wait(2.0) == 0
    assert time.monotonic() - began < 2.0
    assert not party.survives
    for wire in net.wires.values():
        wire.release()
    assert net.do(who, "stop", net.kit(kit)).startswith(f"no {who} runs")
    party.start()
    code = lead.wait(120)
    assert code == 0, f"exit {code}\n{lead.text}\n{net.report()}"
