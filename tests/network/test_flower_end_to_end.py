"""A network on Flower by the real commands: the local result, and what a kill does to it: nothing.

Slow: `make chaos` runs it. The conformance suite has every method over Flower's messages with TLS.
The arms are quickstart's of `deepcox` (fedavg) and `cox`, of fewer rounds than in the test on
FLARE: a call takes ten times as long. `benchmarks/network/run.py --engine flower` has the others.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from command_line import without_times
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.run.runner import run_over as run_deployed
from fedcohort.study.sites.sites import LocalSites
from network.parties import SITES, Parties, shares
from network.wires import until

STUDY = {
    "study": "flower",
    "task": "survival",
    "seed": 2026,
    "data": {"source": "sample:gbsg2", "outcome": {"time": "time", "event": "cens"}},
    "preprocess": {"impute": "median", "scale": "minmax"},
    "arms": [
        {"method": "deepcox", "strategy": "fedavg", "rounds": 2, "internal_epochs": 2},
        {"method": "cox", "scale": "none"},
    ],
    "bounds": [],
    "evaluate": {"test_fraction": 0.25, "repeats": 1},
}
#: A study whose sites remember something between calls.
STATEFUL = {
    "study": "stateful",
    "task": "classification",
    "seed": 12,
    "data": {"source": "sample:gbsg2", "outcome": {"y": "cens"}},
    "preprocess": {"impute": "median", "scale": "standard"},
    "arms": [{"method": "logistic", "solver": "admm", "l2": 0.01}],
    "evaluate": {"test_fraction": 0.25, "repeats": 1},
}


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    with Parties(tmp_path_factory.mktemp("flower") / "n", engine="flower") as net:
        net.start()
        yield net
    assert net.survivors == []
    for party in net.everyone:
        assert "Traceback" not in party.text, party.text


def files(out: Path) -> dict[str, bytes]:
    """Return a run's files, but for seconds and the command."""
    found = without_times(out)
    results = json.loads(found["results.json"])
    results.pop("command")
    return {**found, "results.json": json.dumps(results).encode()}


def in_process(study: dict, folder: Path) -> Path:
    """Run a study over the same sites in this process; return its folder."""
    (folder / "study.yaml").write_text(json.dumps(study))
    terms = Terms.of(folder / "study.yaml")
    tables = [SiteTable.of(terms, name, rows) for name, rows in shares(SITES).items()]
    run_deployed(terms, LocalSites(terms, tables), folder / "local")
    return folder / "local"


def same(found: Path, expected: Path) -> None:
    """Two runs left the same files."""
    there, here = files(found), files(expected)
    assert there.keys() == here.keys()
    assert any(name.startswith("models/") for name in here)
    for name, body in here.items():
        assert there[name] == body, name


def replies(net: Parties, site: str) -> int:
    """Return how many replies have left a site, by its own ledger."""
    path = net.kit(site) / "state" / "ledger.jsonl"
    return sum(1 for _ in path.open()) if path.exists() else 0


def test_a_network_on_flower_leaves_the_files_of_the_local_run(net, tmp_path):
    net.write("study.yaml", STUDY)
    net.run("study.yaml", "out", seconds=200)
    same(net.folder / "out", in_process(STUDY, tmp_path))


def test_a_killed_node_and_a_killed_coordinator_leave_the_files_of_a_whole_run(net, tmp_path):
    local = in_process(STATEFUL, tmp_path)
    ledger = (local / "ledger.jsonl").read_text().splitlines()
    calls = sum(json.loads(line)["site"] == "south" for line in ledger)
    before = replies(net, "south")
    net.write("stateful.yaml", STATEFUL)
    lead = net.submit("stateful.yaml", "killed")
    for share, party, sites in ((0.3, net.nodes["south"], SITES), (0.6, net.coordinator, ())):
        wanted = before + share * calls
        until(lambda n=wanted: replies(net, "south") >= n, 100, "the study is on its way")
        party.kill()
        assert replies(net, "south") < before + calls
        party.start()
        net.ready(sites)
    if lead.wait(200):
        assert "--resume" in lead.text.splitlines()[-1], lead.text
        net.run("stateful.yaml", "killed", "--resume", seconds=200)
    same(net.folder / "killed", local)
