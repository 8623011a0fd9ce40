"""A study of clusters over a network: the files of one process, and what a steward reads of it."""

from __future__ import annotations

import json

import pytest

from fedcohort.network import lead
from fedcohort.network.words import in_words
from network.hall import Hall
from network.reference import differing, in_process, plain

CLUSTERS = {
    "task": "clustering",
    "arms": [
        {"method": "kmeans", "restarts": 3},
        {"method": "kmeans", "name": "two", "n_clusters": 2, "restarts": 3, "seeding": "sites"},
    ],
    "evaluate": {"repeats": 1},
}


@pytest.fixture
def hall(tmp_path):
    with Hall(tmp_path / "hall") as hall:
        yield hall


def test_clusters_over_a_network_are_those_of_one_process_and_judged_by_the_outcome(hall, tmp_path):
    hall.start()
    office = hall.office()
    status = lead.submit(office, hall.offer(**CLUSTERS), wait=None, timeout=5.0, resume=False)
    done = hall.until(office, status, "done")
    out = tmp_path / "out"
    (out / lead.WORK).mkdir(parents=True)
    lead.fetch(office, done.run, out)
    found = json.loads((out / "results.json").read_text())
    assert {a["status"] for a in found["arms"]} == {"done"}
    assert found["missing"] == []
    whole = [a for a in found["arms"] if a["site"] is None and a["arm"] != "isolated"]
    assert all(v is not None for a in whole for v in a["metrics"].values()), whole
    assert {r["arm"] for r in found["cluster_curves"]} == {"kmeans", "two"}
    assert not differing(plain(out), in_process(hall.folder / "study.yaml", tmp_path / "here"))


def test_a_steward_reads_that_groups_are_sought_and_what_judges_them(hall):
    text = " ".join(" ".join(in_words(hall.terms(**CLUSTERS), "lead")).split())
    assert "sought groups of patients who are alike; nothing is predicted." in text
    assert "Groups are judged by the time until an event: 'time'" in text
    assert "8 columns to group by" in text
    own, sums = text.partition("SHOWN FOR YOUR SITE ALONE:")[2].split("Shown as a sum over all")
    assert "tell sizes" in own
    assert "sum scatter" in sums
    assert "sum brier" not in text
