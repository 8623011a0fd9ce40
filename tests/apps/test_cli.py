"""The command line as a user meets it: one line for an error, exit codes, nothing written."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import typer

import fedcohort
import in_process
from command_line import COMMAND, running, without_times, workers_of
from fedcohort.apps import catalogue
from fedcohort.apps.cli import app
from fedcohort.data.read import sources

STUDY = """\
study: small
question: Does the command line keep its word?
task: survival
seed: 3
data:
  source: sample:gbsg2
  outcome: {time: time, event: cens}
  sites: {split: iid, n: 3}
scenarios: [iid, by-outcome]
arms:
  - {method: deepcox, strategy: fedavg, rounds: 3, internal_epochs: 2}
  - {method: cox}
bounds: {isolated: {rounds: 3}, centralised: {rounds: 3}}
evaluate: {test_fraction: 0.25, repeats: 2}
"""


def process(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a process of its own."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def cli(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which spares it the imports."""
    with contextlib.chdir(cwd):
        return subprocess.CompletedProcess(arguments, *in_process.command(*arguments))


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "s.yaml").write_text(STUDY)
    sources.load("sample:gbsg2", Path()).frames.head(7).to_csv(folder / "t.csv", index=False)
    done = cli("run", "s.yaml", "--out", "out", "--workers", 1, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_a_run_leaves_every_file_of_the_contract(finished):
    folder, done = finished
    out = folder / "out"
    names = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    wanted = {
        "results.json", "metrics.csv", "history.csv", "ledger.jsonl", "report.html", "study.yaml",
        "environment.json", "models/fedavg/model.safetensors", "models/fedavg/model.json",
        "models/fedavg/card.md", "models/cox/model.safetensors", "models/cox/card.md",
    }  # fmt: skip
    assert wanted <= names
    assert not any(n.startswith(("models/isolated", "models/centralised")) for n in names)
    assert not any(".work" in n for n in names)
    assert "report.html" in done.stdout
    assert "fedavg" in done.stdout


def test_results_hold_every_arm_scenario_repeat_and_site(finished):
    results = json.loads((finished[0] / "out" / "results.json").read_text())
    assert {r["status"] for r in results["arms"]} == {"done"}
    pooled = [r for r in results["arms"] if r["site"] is None]
    assert len(pooled) == 4 * 2 * 2
    alone = [r for r in results["arms"] if r["arm"] == "isolated" and r["site"]]
    assert len(alone) == 3 * 2 * 2
    top = [r for r in pooled if r["arm"] == "centralised"]
    assert top[0]["metrics"] == top[2]["metrics"], "the upper bound is the same in each scenario"
    for row in pooled:
        assert 0 < row["metrics"]["c_index"] < 1
        assert row["bytes_up"] == 0 if row["arm"] == "isolated" else row["bytes_up"] > 0


def test_the_ledger_says_what_left_each_site_and_nothing_for_isolated(finished):
    lines = [json.loads(s) for s in (finished[0] / "out" / "ledger.jsonl").read_text().splitlines()]
    assert {line["site"] for line in lines} == {"site-1", "site-2", "site-3"}
    described = [line for line in lines if line["phase"] == "describe"]
    assert {(line["arm"], line["verb"]) for line in described} == {("", "gather"), ("", "sum")}
    lines = lines[len(described) :]
    assert {line["arm"] for line in lines} == {"fedavg", "cox"}
    assert {line["phase"] for line in lines} == {"preprocess", "fit"}
    assert {line["verb"] for line in lines} == {"sum"}


def test_two_workers_give_the_same_files_as_one(finished, tmp_path):
    (tmp_path / "s.yaml").write_text(STUDY)
    done = process("run", "s.yaml", "--out", "out", "--workers", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert without_times(tmp_path / "out") == without_times(finished[0] / "out")


def under_way(work: Path, pieces: int) -> bool:
    """Whether so many pieces are finished and the journal of the next one has begun."""
    try:
        sizes = [p.stat().st_size for p in (work / "scratch").glob("*/*.journal")]
    except FileNotFoundError:  # the piece ended between the listing and the look
        return False
    return len(list((work / "cells").glob("*.json"))) >= pieces and any(sizes)


@pytest.mark.parametrize("pieces", [3, 0, 8])
def test_a_run_killed_at_any_moment_resumes_to_the_same_files(finished, tmp_path, pieces):
    (tmp_path / "s.yaml").write_text(STUDY)
    process = subprocess.Popen(
        [*COMMAND, "run", "s.yaml", "--out", "out", "--workers", "1"],
        cwd=tmp_path, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        began = time.monotonic()
        while not under_way(tmp_path / "out" / ".work", pieces):
            assert time.monotonic() - began < 60
            assert process.poll() is None, "finished before it could be killed"
            time.sleep(0.001)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    done = cli("run", "s.yaml", "--out", "out", "--workers", 1, "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert without_times(tmp_path / "out") == without_times(finished[0] / "out")


def test_a_saved_model_predicts_from_the_command_line(finished, tmp_path):
    sources.load("sample:gbsg2", Path()).frames.head(7).to_csv(tmp_path / "t.csv", index=False)
    model = finished[0] / "out" / "models" / "cox"
    done = cli("predict", model, "t.csv", "--out", "p.csv", "--times", "365,1000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "p.csv")
    assert list(table.columns)[:3] == ["row", "risk", "median survival time (days)"]
    assert list(table.columns)[3:] == [
        "survival at 365 days (1 year)",
        "survival at 1000 days (2.7 years)",
    ]
    assert len(table) == 7
    assert (table.iloc[:, 3] >= table.iloc[:, 4]).all()
    for out, said in (("t.csv", "it is an input"), ("p.csv", "it exists")):
        assert said in one_line(cli("predict", model, "t.csv", "--out", out, cwd=tmp_path), 2)


def test_the_ledger_and_report_commands_read_a_finished_run(finished):
    folder = finished[0]
    told = cli("ledger", "out", cwd=folder)
    assert told.returncode == 0
    assert "site-1" in told.stdout
    before = (folder / "out" / "report.html").read_bytes()
    done = cli("report", "out", cwd=folder)
    assert done.returncode == 0
    assert (folder / "out" / "report.html").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("study: small", "study: small\nquorom: 1"),
            "unknown key 'quorom'; did you mean 'quorum'?",
        ),
        (("sample:gbsg2", "sample:gbsg3"), "gbsg3"),
        (("sample:gbsg2", "nowhere.csv"), "there is no file"),
        (("time: time", "time: tme"), "no column 'tme'"),
        (("n: 3", "n: 600"), "too few for 600 sites"),
        (("rounds: 3, internal_epochs", "rounds: -4, internal_epochs"), "rounds"),
        (("{method: cox}", "{method: cox, time_grid: 0}"), "time_grid"),
    ],
)
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(change, said, tmp_path):
    (tmp_path / "s.yaml").write_text(STUDY.replace(*change))
    assert said in one_line(cli("run", "s.yaml", "--out", "out", cwd=tmp_path), 2)
    assert [p.name for p in tmp_path.iterdir()] == ["s.yaml"]


TABLE = "x,time,event,site\n" + "".join(
    f"{i % 5},{10 + i},{i % 2},{'ab'[i % 2 == i % 4]}\n" for i in range(40)
)
OWN = """\
study: own
data: {source: t.csv, outcome: {time: time, event: event}, sites: {column: site}}
arms: [{method: cox}]
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.replace("\n3,13,", "\n3,0,"), "row"),
        (lambda s: s.replace("\n3,13,", "\n3,-2,"), "row"),
        (lambda s: s.replace("\n3,13,1", "\n3,13,7"), "row"),
        (lambda s: s.replace("\n3,13,", "\n3,soon,"), "row"),
        (lambda s: s.replace("time", "tiem"), "no column 'time'"),
        (lambda s: s.replace("site", "centre"), "no column 'site'"),
        (lambda s: s.splitlines()[0] + "\n", "no rows"),
        (lambda s: "\n".join(s.splitlines()[:2]) + "\n", "no site is left of 1"),
    ],
)
def test_a_bad_table_is_one_line_exit_code_2_and_nothing_written(change, said, tmp_path):
    (tmp_path / "s.yaml").write_text(OWN)
    (tmp_path / "t.csv").write_text(change(TABLE))
    message = one_line(cli("run", "s.yaml", "--out", "out", cwd=tmp_path), 2)
    assert said in message
    assert "soon" not in message
    assert "out" not in [p.name for p in tmp_path.iterdir()]


def test_unknown_commands_options_and_folders_are_one_line(tmp_path):
    assert "runn" in one_line(process("runn", cwd=tmp_path), 2)
    assert "--nonsense" in one_line(cli("run", "s.yaml", "--nonsense", cwd=tmp_path), 2)
    assert "no results.json" in one_line(cli("report", "nowhere", cwd=tmp_path), 2)
    assert "model.json" in one_line(cli("predict", "nowhere", "t.csv", cwd=tmp_path), 2)
    assert "coxx" in one_line(cli("methods", "coxx", cwd=tmp_path), 2)


def test_a_folder_that_holds_a_run_is_not_overwritten(finished):
    folder = finished[0]
    assert "not empty" in one_line(cli("run", "s.yaml", "--out", "out", cwd=folder), 2)
    assert "finished" in one_line(cli("run", "s.yaml", "--out", "out", "--resume", cwd=folder), 2)


def test_the_catalogue_shows_a_methods_own_settings_before_those_of_its_solver():
    text = catalogue.one("lasso")
    names = [line.split()[0] for line in text.splitlines() if line.startswith("  ") and "[" in line]
    assert names[:2] == ["penalty", "rule"]
    assert names.index("solver") < names.index("rho") < names.index("scale")
    assert "or by consensus ADMM. One of exact, admm." in text


def test_the_catalogue_shows_every_setting_with_its_default(tmp_path):
    text = cli("methods", "cox", cwd=tmp_path).stdout
    for word in ("ties [efron]", "l2 [0.0]", "time_grid [protected]", "reveals", "source"):
        assert word in text


def test_help_starts_fast_and_loads_no_numeric_library(tmp_path):
    code = (
        "import sys; sys.argv=['fedcohort','--help']\n"
        "from fedcohort.apps.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print({'scipy','pandas','torch','altair'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().endswith("set()")


def test_a_lead_s_a_node_s_and_a_study_s_process_load_what_they_use_alone(tmp_path):
    code = (
        "import sys\n"
        "import fedcohort.apps.deploying, fedcohort.network.coordinator.coordinator\n"
        "import fedcohort.network.node.node\n"
        "import fedcohort.study.run.runner\n"
        "slow = {'sklearn', 'scipy.stats', 'scipy.optimize', 'scipy.sparse', 'torch', 'altair'}\n"
        "print(slow & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_a_first_cox_fit_loads_no_package_that_it_does_not_use():
    code = (
        "import sys, numpy as np, pandas as pd, fedcohort as fc\n"
        "t = np.arange(1.0, 41.0)\n"
        "f = pd.DataFrame({'t': t, 'e': 1, 'x': np.sin(t)})\n"
        "fc.fit('cox', fc.simulate({'a': f[:20], 'b': f[20:]}, outcome=fc.Survival('t', 'e')))\n"
        "print({'torch', 'sklearn', 'scipy.stats', 'rich', 'jinja2', 'numba'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_deep_fits_load_torch_without_what_is_slow_to_load_beside_it():
    code = (
        "import sys\n"
        "from fedcohort.protocol import registry\n"
        "from fedcohort.models.network import Mlp, initial\n"
        "registry.find('deepcox')\n"
        "initial(Mlp(inputs=3).spec, 0)\n"
        "print({'scipy.stats', 'sympy', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def gone(group: int, patience: float = 5.0) -> bool:
    """Whether every process of a group ends within `patience` seconds."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("when", ["as workers start", "under way"])
def test_ctrl_c_ends_the_workers_says_how_to_go_on_and_leaves_a_resumable_run(
    finished, tmp_path, when
):
    (tmp_path / "s.yaml").write_text(STUDY)
    with running(tmp_path, "--workers", "2") as process:
        began = time.monotonic()
        while not (under_way(tmp_path / "out" / ".work", 1) if when == "under way" else
                   len(workers_of(process.pid)) == 2):  # fmt: skip
            assert time.monotonic() - began < 60
            assert process.poll() is None, "finished before it could be stopped"
            time.sleep(0.001)
        if when != "under way":
            assert all(deaf(pid) for pid in workers_of(process.pid))
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert gone(process.pid), "a worker is still there"
    assert process.returncode == 130
    assert said.endswith("stopped; run the same command with --resume to go on.\n")
    assert "Traceback" not in said
    done = cli("run", "s.yaml", "--out", "out", "--workers", 1, "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert without_times(tmp_path / "out") == without_times(finished[0] / "out")


def deaf(pid: int) -> bool:
    """Whether Ctrl-C does not end a process: blocked from its start, ignored later."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = (int(line.split()[1], 16) for line in status if line.startswith(("SigBlk", "SigIgn")))
    return any(mask >> (signal.SIGINT - 1) & 1 for mask in masks)


def test_a_failed_arm_is_named_with_its_reason_and_the_others_are_kept(tmp_path):
    twice = "\n".join(
        f"{line},{'twice' if i == 0 else 2 * int(line[0])}" for i, line in enumerate(TABLE.split())
    )
    (tmp_path / "t.csv").write_text(twice)
    ridge = "{method: cox, name: ridge, l2: 0.1, scale: standard}"
    (tmp_path / "s.yaml").write_text(
        OWN.replace("[{method: cox}]", "[{method: cox}, " + ridge + "]")
    )
    done = cli("run", "s.yaml", "--out", "out", "--workers", 1, cwd=tmp_path)
    assert done.returncode == 1
    assert "failed: cox (natural): covariates" in done.stderr
    assert "twice" in done.stderr
    assert "Traceback" not in done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {r["arm"] for r in results["arms"] if r["status"] == "done"} == {"ridge"}
    assert "collinear" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("file", "content", "command", "said"),
    [
        ("results.json", b'{"schema": 1, "st', "report", "results.json is not JSON"),
        ("results.json", b"[]", "report", "schema None"),
        ("results.json", b"\xff", "ledger", "results.json is not JSON"),
        ("results.json", None, "ledger", "no results.json"),
        ("ledger.jsonl", None, "ledger", "its ledger.jsonl is missing"),
        ("ledger.jsonl", b'{"arm": ', "ledger", "ledger.jsonl, line 1"),
        ("models/cox/model.json", b"[]", "predict", "model format None"),
        (
            "models/cox/model.json",
            b'{"format": 3}',
            "predict",
            "is not the file that model.json was",
        ),
        ("models/cox/model.safetensors", b"abc", "predict", "is not the file that model.json was"),
    ],
)
def test_a_damaged_folder_is_named_on_one_line(finished, tmp_path, file, content, command, said):
    out = shutil.copytree(finished[0] / "out", tmp_path / "out")
    (out / file).unlink()
    if content is not None:
        (out / file).write_bytes(content)
    (tmp_path / "t.csv").write_text("age\n1\n")
    given = [out / "models" / "cox", "t.csv"] if command == "predict" else [out]
    assert said in one_line(cli(command, *given, cwd=tmp_path), 2)


def test_a_table_that_a_model_cannot_read_is_named_without_its_values(finished, tmp_path):
    model = finished[0] / "out" / "models" / "cox"
    frame = pd.read_csv(finished[0] / "t.csv")
    for change, said in (
        (frame.drop(columns=["age"]), "t.csv: there is no column 'age'"),
        (frame.assign(tgrade="SECRET"), "t.csv: column 'tgrade' has a level outside the 3"),
        (frame.assign(age="SECRET"), "t.csv: column 'age' holds no number in rows 1, 2"),
    ):
        change.to_csv(tmp_path / "t.csv", index=False)
        message = one_line(cli("predict", model, "t.csv", cwd=tmp_path), 2)
        assert said in message
        assert "SECRET" not in message
    frame.head(0).to_csv(tmp_path / "t.csv", index=False)
    head = cli("predict", model, "t.csv", cwd=tmp_path).stdout
    assert head.startswith("row,risk,median survival time (days),survival at")
    assert head.count("\n") == 1
    frame.to_csv(tmp_path / "t.csv", index=False)
    done = cli("predict", model, "t.csv", "--out", ".", cwd=tmp_path)
    assert (done.returncode, "cannot write" in done.stderr.splitlines()[-1]) == (2, True)


def test_the_version_is_said_and_nothing_else(tmp_path):
    done = cli("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"fedcohort {fedcohort.__version__}\n")


def _commands(group, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_help_shows_defaults_in_plain_brackets_and_says_what_each_argument_is(tmp_path):
    shown = {}
    for path, command in _commands(typer.main.get_command(app)):
        shown[path] = cli(*path, "--help", cwd=tmp_path).stdout
        assert "\\[" not in shown[path], path
        for param in command.params:
            if param.param_type_name == "argument" and not param.hidden:
                assert shown[path].count(param.help[:30]) == 1, (path, param.name)
    assert "[default: survival]" in shown["init",]
