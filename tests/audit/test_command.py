"""`fedcohort audit`: what a user types, sees, and finds in the run's folder."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import in_process
from fedcohort.audit.inversion import invert
from fedcohort.audit.membership import infer
from fedcohort.audit.rebuilt import rebuild
from fedcohort.study.study import Study

STUDY = """\
study: audited
task: survival
seed: 3
data:
  source: sample:gbsg2
  outcome: {time: time, event: cens}
  sites: {split: iid, n: 3}
arms:
  - {method: deepcox, strategy: fedavg, rounds: 2, internal_epochs: 2}
  - {method: cox}
evaluate: {test_fraction: 0.5, repeats: 1, draws: 2, metrics: [c_index]}
"""


def cli(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    with contextlib.chdir(cwd):
        code, out, err = in_process.command("audit", *arguments)
    return subprocess.CompletedProcess(arguments, code, out, err)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stdout + done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("audit")
    (place / "s.yaml").write_text(STUDY)
    Study.from_file(place / "s.yaml").run(place / "run")
    return place


def test_membership_is_shown_kept_and_written(folder):
    done = cli("membership", "run", "--arm", "cox", "--shadows", 4, "--json", "m.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "0.5 is guessing" in " ".join(done.stdout.split())
    found = json.loads((folder / "m.json").read_text())
    assert found["audit"] == "membership"
    assert len(found["lines"]) == 2
    assert all(0 <= x["low"] <= x["auc"] <= x["high"] <= 1 for x in found["lines"])
    assert json.loads((folder / "run" / "audit.json").read_text())["membership"] == found


def test_linkage_counts_the_patients_of_the_curves(folder):
    done = cli("linkage", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    kept = json.loads((folder / "run" / "audit.json").read_text())["linkage"]
    assert kept["lines"][0]["of"] == 343  # half of the 686 women


def test_file_that_exists_is_not_replaced_unasked(folder):
    (folder / "kept.json").write_text("mine")
    said = refused(cli("linkage", "run", "--json", "kept.json", cwd=folder))
    assert "--json kept.json: it exists" in said
    assert (folder / "kept.json").read_text() == "mine"


def test_epsilon_of_a_run_without_a_claim_is_refused(folder):
    assert "no differential privacy" in refused(cli("epsilon", "run", cwd=folder))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("membership", "run", "--arm", "forest"),
            "no arm called 'forest'; there are: fedavg, cox",
        ),
        (
            ("inversion", "run", "--arm", "cox"),
            "no arm of deepcox or classifier or regressor called 'cox'",
        ),
        (("inversion", "run", "--site", "nowhere"), "no site 'nowhere'; there are"),
        (("inversion", "run", "--hidden", "wide"), "--hidden is 'wide'"),
        (("epsilon", "run", "--guesses", "3"), "--guesses is 3"),
        (("membership", "empty"), "empty"),
    ],
)
def test_wrong_input_is_one_line(folder, arguments, said):
    assert said in refused(cli(*arguments, cwd=folder))


def test_deployed_run_is_refused_in_one_line(folder):
    other = folder / "deployed"
    other.mkdir()
    for name in ("study.yaml", "ledger.jsonl", "metrics.csv", "history.csv", "environment.json"):
        (other / name).write_bytes((folder / "run" / name).read_bytes())
    results = json.loads((folder / "run" / "results.json").read_text())
    results["network"] = {"hash": "0", "sites": ["a"], "absent": {}}
    (other / "results.json").write_text(json.dumps(results))
    assert "its rows are at the sites" in refused(cli("membership", "deployed", cwd=folder))


def test_run_whose_data_changed_is_refused(folder):
    other = folder / "changed"
    other.mkdir()
    for path in (folder / "run").iterdir():
        if path.is_file():
            (other / path.name).write_bytes(path.read_bytes())
    results = json.loads((other / "results.json").read_text())
    results["scenarios"][0]["sites"][0]["rows"] += 1
    (other / "results.json").write_text(json.dumps(results))
    assert "holds other rows now" in refused(cli("membership", "changed", cwd=folder))


def test_rows_are_those_that_the_run_was_fitted_on(folder):
    """The saved design was fitted on these very rows: its scale spans them exactly."""
    run = rebuild(folder / "run")
    kept = run.saved(run.arm("fedavg"))
    x = [kept.design(frame).x for frame in run.laid.problem.frames.values()]
    assert max(part.max() for part in x) == pytest.approx(1.0)
    assert min(part.min() for part in x) == pytest.approx(0.0)


def test_strict_leaves_with_one_where_an_attack_succeeds(folder):
    """A site of two records that sends its bare model after one plain step hides neither."""
    plain = "strategy: sequential, rounds: 2, internal_epochs: 1, optimiser: sgd"
    text = STUDY.replace("strategy: fedavg, rounds: 2, internal_epochs: 2", plain)
    (folder / "open.yaml").write_text(text)
    Study.from_file(folder / "open.yaml").run(folder / "open")
    done = cli(
        "inversion", "open", "--records", 2, "--attempts", 2, "--activation", "tanh", "--strict",
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert "recovered 2 of 2 records" in " ".join(done.stderr.split())


def test_audits_are_functions_of_their_seed(folder):
    run = rebuild(folder / "run")
    first, second = (infer(run, arm="cox", shadows=2, seed=2) for _ in range(2))
    assert first.content == second.content
    small = [invert(run, records=2, attempts=1, seed=1).content for _ in range(2)]
    assert small[0] == small[1]


def test_masked_sum_of_the_defaults_gives_no_record_away(folder):
    found = invert(rebuild(folder / "run"), records=8, attempts=4)
    (own,) = [line for line in found.lines if line["study had"]]
    assert own["protection"] == "masked sum"
    assert own["recovered"] == 0
    assert not found.alarm


CLASSES = "{method: classifier, hidden: [4], rounds: 1, internal_epochs: 1}"
IMAGES = "{method: classifier, name: images, image: [2, 2], pool: 1, filters: [2], rounds: 1}"
VALUES = "{method: regressor, hidden: [4], rounds: 1, internal_epochs: 1}"


@pytest.mark.parametrize(
    ("task", "outcome", "arms"),
    [
        ("classification", "{y: stage, type: category}", f"[{CLASSES}, {IMAGES}]"),
        ("regression", "{y: e}", f"[{VALUES}]"),
    ],
)
def test_a_network_of_classes_or_values_is_attacked_as_it_sent_its_first_message(
    tmp_path, task, outcome, arms
):
    """A wide rectified layer gives records away in one site's gradient, and noise hides them."""
    rng = np.random.default_rng(0)
    stage = rng.integers(0, 3, 300)
    table = pd.DataFrame(rng.normal(size=(300, 5)) + stage[:, None], columns=[*"abcde"])
    table = table.drop(columns="e") if task == "classification" else table
    table.assign(stage=np.array([*"xyz"])[stage]).to_csv(tmp_path / "t.csv", index=False)
    text = STUDY.replace("sample:gbsg2", "t.csv").replace(", metrics: [c_index]", "")
    text = text.replace("{time: time, event: cens}", outcome).replace("survival", task)
    before, _, after = text.partition("arms:\n")
    (tmp_path / "s.yaml").write_text(f"{before}arms: {arms}\n{after[after.index('evaluate:') :]}")
    Study.from_file(tmp_path / "s.yaml").run(tmp_path / "run")
    run = rebuild(tmp_path / "run", tmp_path)
    found = invert(run, records=3, attempts=1, hidden=(128,), activation="relu")
    by = {(x["protection"], x["message"]): x for x in found.lines}
    assert by["none", "gradient"]["by algebra"] >= 1
    assert by["differential privacy", "gradient"]["recovered"] == 0
    (own,) = [x for x in found.lines if x["study had"]]
    assert (own["protection"], own["message"]) == ("masked sum", "update")
    assert all(0 <= x["auc"] <= 1 for x in infer(run, shadows=0).lines)
    if "images" in arms:
        told = cli("inversion", "run", "--arm", "images", "--data-dir", ".", cwd=tmp_path)
        assert "learns images by convolutions" in refused(told)
