"""A study whose sites come and go: who misses what is drawn, told, and the same again."""

from __future__ import annotations

import json

import pytest

import fedcohort as fc
from command_line import without_times
from fedcohort.protocol import NotSupported, StudyError
from fedcohort.report import write

STUDY = """\
study: away
data: {{source: sample:gbsg2, sites: {{split: iid, n: 4}}}}
quorum: 0.5
availability: {availability}
arms:
  - {{method: deepcox, strategy: fedavg, rounds: 12, internal_epochs: 1}}
  - {{method: deepcox, strategy: sequential, rounds: 12, internal_epochs: 1}}
  - {{method: cox, scale: standard}}
bounds: [isolated, centralised]
evaluate: {{repeats: 2, draws: 10, metrics: [c_index]}}
"""


def study_of(folder, availability="{away: 0.4, rounds: 2}", change=lambda text: text):
    path = folder / "s.yaml"
    path.write_text(change(STUDY.format(availability=availability)))
    return fc.Study.from_file(path)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("away")
    study_of(folder).run(folder / "out", workers=1)
    return folder / "out"


def test_sites_miss_rounds_after_the_first_and_the_results_tell_which(ran):
    results = json.loads((ran / "results.json").read_text())
    assert results["availability"] == {"away": 0.4, "rounds": 2}
    by_arm = {row["arm"] for row in results["missing"]}
    assert by_arm >= {"fedavg", "sequential"}
    assert not by_arm & {"isolated", "centralised"}
    assert {row["repeat"] for row in results["missing"]} == {0, 1, "final"}
    lines = [json.loads(line) for line in (ran / "ledger.jsonl").read_text().splitlines()]
    asked = [("fedavg", "train_here", r, 0) for r in range(12)]
    of = [(ln["arm"], ln["step"], ln["round"], ln["repeat"]) for ln in lines]
    heard = [{ln["site"] for ln, one in zip(lines, of, strict=True) if one == a} for a in asked]
    assert len(heard[0]) == 4
    assert {len(sites) for sites in heard} > {2, 4}
    assert min(len(sites) for sites in heard) == 2


def test_a_repeated_run_and_one_with_workers_leave_the_same_files(ran, tmp_path):
    study_of(tmp_path).run(tmp_path / "out", workers=2)
    assert without_times(tmp_path / "out") == without_times(ran)


def test_an_arm_that_needs_the_same_sites_in_every_sum_waits_and_ends_as_if_none_were_away(
    ran, tmp_path
):
    def cox(folder):
        rows = json.loads((folder / "results.json").read_text())["arms"]
        return [(a["repeat"], a["metrics"], a["rounds"]) for a in rows if a["arm"] == "cox"]

    study_of(tmp_path, change=lambda t: t.replace("availability:", "#")).run(tmp_path / "out")
    assert cox(ran) == cox(tmp_path / "out")
    one, other = (f / "models" / "cox" / "model.safetensors" for f in (ran, tmp_path / "out"))
    assert one.read_bytes() == other.read_bytes()
    results = json.loads((ran / "results.json").read_text())
    assert {a["status"] for a in results["arms"]} == {"done"}
    assert "cox" not in {row["arm"] for row in results["missing"]}
    waits = [row for row in results["waited"] if row["arm"] == "cox"]
    assert [(w["repeat"], w["phase"], w["rounds"] > 0) for w in waits] == [
        (0, "fit", True), (1, "fit", True), ("final", "final", True),
    ]  # fmt: skip


def test_patience_with_sites_that_do_not_come_back_is_a_setting(tmp_path):
    study = study_of(tmp_path, "{away: 0.4, rounds: 2, wait: 0}")
    study.run(tmp_path / "out")
    arms = json.loads((tmp_path / "out" / "results.json").read_text())["arms"]
    assert all("left during the fit" in a["status"] for a in arms if a["arm"] == "cox")
    assert {a["status"] for a in arms if a["arm"] == "fedavg"} == {"done"}


def test_the_report_says_it_in_one_sentence(ran):
    page = write(ran).read_text("utf-8")
    assert "each hospital was away from 40 % of rounds" in page
    results = json.loads((ran / "results.json").read_text())
    waits = sum(row["rounds"] for row in results["waited"] if row["arm"] == "cox")
    assert f"waited {waits} rounds in all for hospitals to be back" in page
    assert "did not answer" not in page


@pytest.mark.parametrize(
    ("availability", "change", "said"),
    [
        ("{away: 0.4}", lambda t: t.replace("quorum: 0.5\n", ""), "'quorum' must be below 1"),
        ("{rounds: 2}", str, "one of the keys 'away'"),
        ("{away: 0.4, here: 1}", str, "here"),
        ("{away: 0.9, rounds: 2}", str, "9 of them at a time"),
        ("{away: 0.4, always: [x]}", str, "no site 'x'"),
        ("{away: 0.4, rounds: .inf}", str, "mean length"),
        ("{away: 0.4, wait: -1}", str, "wait"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_computed(
    tmp_path, availability, change, said
):
    with pytest.raises(fc.FedcohortError, match=said):
        study_of(tmp_path, availability, change).run(tmp_path / "out")
    assert not (tmp_path / "out" / "results.json").exists()


def brief(text):
    """Return a study of one arm and one repeat."""
    head, _ = text.split("  - {method: deepcox, strategy: sequential")
    return head + "bounds: []\nevaluate: {repeats: 1, draws: 2, metrics: [c_index]}\n"


def statuses(folder, availability, more):
    study = study_of(
        folder, availability, lambda t: brief(t).replace("rounds: 12", "rounds: 3") + more
    )
    study.run(folder / "out")
    results = json.loads((folder / "out" / "results.json").read_text())
    return results["missing"], {a["status"] for a in results["arms"]}


def test_a_site_that_is_always_there_is_left_out_by_tuning_as_others_are(tmp_path):
    more = "tune: {by: centre-kfold, grid: {learning_rate: [0.01, 0.1]}}\n"
    missing, status = statuses(tmp_path, "{away: 0.4, always: [site-1]}", more)
    assert status == {"done"}
    assert "site-1" not in {row["site"] for row in missing}


def test_masked_sums_have_the_sites_that_they_need(tmp_path):
    """Of 4 sites 3; the quorum alone is 2."""
    missing, status = statuses(tmp_path, "{away: 0.8}", "privacy: {secure_aggregation: true}\n")
    assert status == {"done"}
    assert missing


def test_another_runtime_refuses_it(tmp_path):
    with pytest.raises(NotSupported, match="flower-sim"):
        study_of(tmp_path).run(tmp_path / "out", runtime="flower-sim")


def test_a_network_refuses_it(tmp_path):
    from fedcohort.study.file.terms import Terms

    path = tmp_path / "s.yaml"
    path.write_text(STUDY.format(availability="{away: 0.4}"))
    with pytest.raises(StudyError, match="leave this key out"):
        Terms.of(path)
