"""How sites differ, and feedback to each, over a network: who is told what, and where it lies."""

from __future__ import annotations

import json
import stat
import time
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

from fedcohort.apps import steward
from fedcohort.network.coordinator import lead
from fedcohort.network.state import replay_guard
from fedcohort.network.state.replay_guard import OnDisk
from fedcohort.protocol.wire import decode
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.run.runner import run_over as run
from fedcohort.study.sites.sites import LocalSites
from network.hall import Hall
from network.parties import shares
from network.reference import differing, plain

STUDY = {
    "shift": True, "feedback": True, "bounds": [], "evaluate": {"repeats": 1},
    "units": "accepted",  # else the study stops before feedback can tell of them
}  # fmt: skip


@pytest.fixture
def hall(tmp_path):
    with Hall(tmp_path / "hall") as hall:
        place = hall.folder / "west" / "patients.csv"
        spoilt(pd.read_csv(place)).to_csv(place, index=False)
        yield hall


def spoilt(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose age is in months."""
    return table.assign(age=table["age"] * 12)


def test_each_node_keeps_its_own_findings_and_all_else_is_as_in_one_process(hall, tmp_path):
    hall.start()
    office = hall.office()
    first = lead.submit(office, hall.offer(**STUDY), wait=None, timeout=5.0, resume=False)
    done = hall.until(office, first, "done", seconds=240)
    out = tmp_path / "out"
    (out / lead.WORK).mkdir(parents=True)
    lead.fetch(office, done.run, out)
    terms, heard = hall.terms(**STUDY), {}
    tables = shares(hall.names)
    tables["west"] = spoilt(tables["west"])
    sites = LocalSites(
        terms, [SiteTable.of(terms, *t) for t in tables.items()],
        heard=lambda site, lines: heard.update({site: lines}),
    )  # fmt: skip
    run(terms, sites, tmp_path / "here")
    assert not differing(plain(out), plain(tmp_path / "here"))
    found = json.loads((out / "results.json").read_text())
    assert found["feedback"]["sites"] == ["north", "south", "west"]
    assert found["feedback"]["remarks"] == []
    assert found["shift"]["n_clear"] > 0
    assert "age is about 12 times" in " ".join(heard["west"])
    for name in hall.names:
        (text,) = (hall.nodes[name].state / "feedback").glob("*.txt")
        assert text.stem == done.run[:12]
        assert stat.S_IMODE(text.stat().st_mode) == 0o600
        said = " ".join(text.read_text().split())
        assert all(" ".join(line.split()) in said for line in heard[name])
        assert ("age is about 12 times" in said) == (name == "west")
        log = (hall.nodes[name].state / "log.txt").read_text()
        assert f"feedback/{done.run[:12]}.txt" in log
        assert "12 times" not in log
        kit = hall.network.kit(name)
        listed = steward.studies(kit, hall.folder / name / "node.toml", done.run[:12], check=False)
        assert any(line.endswith(str(text.relative_to(kit))) for line in listed)
        left = " ".join(" ".join(steward.ledger(kit, None)).split())
        assert "keep findings: 1 time, 1 number each (few); TOLD AS THIS SITE'S OWN: Comp" in left
    told = [p for p in hall.home.rglob("*") if p.is_file()] + list(out.rglob("*.json"))
    assert not [p for p in told if b"12 times" in p.read_bytes()]


def test_a_node_whose_policy_does_not_name_feedback_takes_no_part(hall):
    hall.begin()
    hall.end("south")
    toml = hall.folder / "south" / "node.toml"
    toml.write_text(toml.read_text().replace('methods = "all"', 'methods = ["cox", "shift"]'))
    hall.begin("south")
    made = hall.offer(**STUDY)
    _, told = decode(hall.nodes["south"]._offered({}, {"offer": made.to_bytes().decode()}))
    assert told["state"] == "refused"
    assert "asks for method 'feedback'; this site allows 'cox', 'shift'" in told["reason"]


def test_what_a_comparison_was_asked_with_outlasts_a_node(tmp_path):
    first = OnDisk(tmp_path, "a" * 64, "b" * 64, "shift")
    assert first("count_cells", "1", 1)
    again = OnDisk(tmp_path, "a" * 64, "b" * 64, "shift")
    assert again("count_cells", "1", 1)
    assert not again("count_cells", "2", 1)
    assert again("count_cells", "2", 2)  # of an attempt that was begun anew
    assert again("pull_here", "2", 1)
    assert OnDisk(tmp_path, "a" * 64, "c" * 64, "shift")("count_cells", "2", 1)  # another table
    assert OnDisk(tmp_path, "a" * 64, "b" * 64, "fit")("count_cells", "2", 1)  # another session


def test_of_two_calls_at_once_one_is_answered(tmp_path, monkeypatch):
    write = replay_guard.write

    def slow(*given):
        time.sleep(0.1)
        write(*given)

    monkeypatch.setattr(replay_guard, "write", slow)
    with ThreadPoolExecutor(2) as pool:
        asked = OnDisk(tmp_path, "a" * 64, "b" * 64, "shift")
        found = list(pool.map(lambda digest: asked("count_cells", digest, 1), "12"))
    assert sorted(found) == [False, True]
