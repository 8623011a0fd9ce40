"""A study of clusters over a network: the files of one process, and what a steward reads of it."""

from __future__ import annotations

import json
import sys

import pytest
import yaml

from fedcohort.network.coordinator import lead
from fedcohort.network.steward.details import as_lines
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
#: Methods of levels; networks, whose models are summed or seen; a number of clusters by the gap.
OTHERS = {
    "levels": [
        {"method": "kmodes", "n_clusters": 2, "restarts": 2},
        {"method": "hdp", "iterations": 5},
    ],
    "networks": [
        {"name": "summed", "centroids": "lloyd", "n_clusters": 3},
        {"name": "seen", "aggregation": "median", "centroids": "double_kmeans", "n_clusters": 3},
    ],
    "a number": [
        {"method": "kmeans", "n_clusters": "auto", "k_range": [1, 2], "restarts": 1},
    ],
}
SMALL = {"method": "deep_clustering", "rounds": 2, "cluster_rounds": 1, "restarts": 2}


@pytest.fixture
def hall(tmp_path):
    with Hall(tmp_path / "hall") as hall:
        yield hall


def study(hall, kind):
    """Return a study of arms of `OTHERS`; of levels with a dictionary of these alone."""
    arms = OTHERS[kind]
    if kind == "a number":
        return {**CLUSTERS, "arms": arms, "bounds": []}
    if kind == "networks":
        arms = [{**SMALL, "architecture": [6, 2], **arm} for arm in arms]
        return {**CLUSTERS, "arms": arms, "bounds": []}
    path = hall.folder / "dictionary.yaml"
    content = yaml.safe_load(path.read_text())
    taken = ("age", "tsize", "pnodes", "progrec", "estrec")
    content["variables"] = {k: v for k, v in content["variables"].items() if k not in taken}
    path.write_text(yaml.safe_dump(content))
    return {**CLUSTERS, "arms": arms, "bounds": ["isolated"]}


def ran(hall, tmp_path, given):
    """Return the folder of a study that was run over the network, and its results."""
    hall.start()
    office = hall.office()
    status = lead.submit(office, hall.offer(**given), wait=None, timeout=5.0, resume=False)
    done = hall.until(office, status, "done")
    out = tmp_path / "out"
    (out / lead.WORK).mkdir(parents=True)
    lead.fetch(office, done.run, out)
    return out, json.loads((out / "results.json").read_text())


def test_clusters_over_a_network_are_those_of_one_process_and_judged_by_the_outcome(hall, tmp_path):
    out, found = ran(hall, tmp_path, CLUSTERS)
    assert {a["status"] for a in found["arms"]} == {"done"}
    assert found["missing"] == []
    whole = [a for a in found["arms"] if a["site"] is None and a["arm"] != "isolated"]
    assert all(v is not None for a in whole for v in a["metrics"].values()), whole
    assert {r["arm"] for r in found["cluster_curves"]} == {"kmeans", "two"}
    assert not differing(plain(out), in_process(hall.folder / "study.yaml", tmp_path / "here"))


@pytest.mark.parametrize("kind", OTHERS)
def test_other_methods_find_over_a_network_what_they_find_in_one_process(hall, tmp_path, kind):
    if kind == "levels":
        pytest.importorskip("tomotopy")
    out, found = ran(hall, tmp_path, study(hall, kind))
    assert {a["status"] for a in found["arms"]} == {"done"}
    assert found["missing"] == []
    shares = {a["arm"]: a["metrics"]["smallest_share"] for a in found["arms"] if a["site"] is None}
    assert len(shares) == len(OTHERS[kind]) + (kind == "levels")
    assert all(0 < share <= 1 for arm, share in shares.items() if arm != "isolated")
    assert not differing(plain(out), in_process(hall.folder / "study.yaml", tmp_path / "here"))


def test_a_site_without_the_package_of_a_method_refuses_the_study_before_anything_runs(
    hall, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tomotopy", None)
    hall.start()
    office, offer = hall.office(), hall.offer(**study(hall, "levels"))
    first = lead.submit(office, offer, wait=None, timeout=5.0, resume=False)
    status = hall.until(office, first, "refused")
    assert "needs the package tomotopy: pip install 'fedcohort[hdp]'" in status.reason
    assert "\n" not in status.reason
    assert not (hall.home / "runs" / status.run / "out").exists()


def test_a_steward_reads_that_groups_are_sought_and_what_judges_them(hall):
    text = " ".join(" ".join(as_lines(hall.terms(**CLUSTERS))).split())
    assert "sought groups of patients who are alike; nothing is predicted." in text
    assert "Groups are judged by the time until an event: 'time'" in text
    assert "8 columns to group by" in text
    own, sums = text.partition("SHOWN FOR YOUR SITE ALONE:")[2].split("Shown as a sum over all")
    assert "tell sizes" in own
    assert "sum scatter" in sums
    assert "sum brier" not in text


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        ("levels", {"own topics"}),
        ("networks", {"own centroids", "rebuild seen"}),
        ("a number", set()),
    ],
)
def test_a_steward_reads_which_replies_of_other_methods_are_seen_for_the_site_alone(
    hall, kind, seen
):
    text = " ".join(" ".join(as_lines(hall.terms(**study(hall, kind)))).split())
    own, sums = text.partition("SHOWN FOR YOUR SITE ALONE:")[2].split("Shown as a sum over all")
    assert all(name in own for name in seen)
    assert "sum points (rows, drift, squares and fractions)" in sums
    assert ("multiply sums" in sums) == (kind == "a number")
