"""Whatever ends a run, it says so on one line, and `--resume` gives the files of a whole run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import in_process
from command_line import COMMAND, RUN, running, without_times, workers_of
from fedcohort.study.run.folder import claim, locked

TUNED = """\
study: tuned
data: {source: sample:gbsg2, sites: {split: by-outcome, n: 3}}
arms:
  - {method: deepcox, strategy: sequential, internal_epochs: 1}
  - {method: deepcox, strategy: ensemble, internal_epochs: 1}
  - {method: cox, scale: standard}
bounds: {isolated: {rounds: 2}}
evaluate: {repeats: 1, draws: 10, metrics: [c_index]}
tune:
  by: row-kfold
  arms: {sequential: {rounds: [2, 4]}, ensemble: {by: centre-kfold, rounds: [2, 3]}}
  trials: 3
  space: {l2: [0.001, 1.0, log]}
"""


def whole(folder: Path, *more: str) -> None:
    """Run to the end, in this process, which spares it the imports."""
    with contextlib.chdir(folder):
        code, _, said = in_process.command(*RUN[len(COMMAND) :], *more)
    assert code == 0, said


def until(holds: Callable[[], object], process: subprocess.Popen[str]) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < 60
        assert process.poll() is None, "finished too early"
        time.sleep(0.002)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "s.yaml").write_text(TUNED)
    whole(folder, "--workers", "1")
    return folder


def test_every_arm_is_tuned_with_what_its_method_has(tuned):
    tuning = json.loads((tuned / "out" / "results.json").read_text())["tuning"]
    tried = {t["arm"]: [set(x["settings"]) for x in t["tried"]] for t in tuning}
    assert tried["sequential"] == tried["ensemble"] == [{"rounds"}] * 2
    assert tried["cox"] == tried["isolated"] == [{"l2"}] * 3


@pytest.mark.parametrize("arm", [3, 1])
def test_a_run_killed_in_the_middle_of_tuning_resumes_to_the_same_files(tuned, tmp_path, arm):
    (tmp_path / "s.yaml").write_text(TUNED)
    scratch = tmp_path / "out" / ".work" / "scratch" / f"tune-s00-r0000-a{arm:02d}"
    with running(tmp_path, "--workers", "1") as process:
        until(lambda: any(scratch.glob("tune-00002.journal")), process)
    whole(tmp_path, "--workers", "1", "--resume")
    assert without_times(tmp_path / "out") == without_times(tuned / "out")


def test_workers_end_with_the_process_that_started_them(tuned, tmp_path):
    (tmp_path / "s.yaml").write_text(TUNED)
    scratch = tmp_path / "out" / ".work" / "scratch"
    with running(tmp_path, "--workers", "2") as process:
        until(lambda: any(scratch.glob("*/*.journal")), process)
        process.kill()
        process.communicate()
        began = time.monotonic()
        with pytest.raises(ProcessLookupError):
            while time.monotonic() - began < 10:
                os.killpg(process.pid, 0)
                time.sleep(0.02)
    whole(tmp_path, "--workers", "1", "--resume")
    assert without_times(tmp_path / "out") == without_times(tuned / "out")


def test_a_killed_worker_is_one_line_and_the_run_can_go_on(tuned, tmp_path):
    (tmp_path / "s.yaml").write_text(TUNED)
    scratch = tmp_path / "out" / ".work" / "scratch"
    with running(tmp_path, "--workers", "2") as process:
        until(lambda: any(scratch.glob("*/*.journal")), process)
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "a worker process died" in said
    assert "--resume" in said
    assert "Traceback" not in said
    whole(tmp_path, "--workers", "1", "--resume")
    assert without_times(tmp_path / "out") == without_times(tuned / "out")


def test_a_folder_that_is_locked_is_refused_on_one_line(tmp_path):
    (tmp_path / "s.yaml").write_text(TUNED)
    (tmp_path / "out" / ".work").mkdir(parents=True)
    claim(tmp_path / "out").write_text("")
    with locked(tmp_path / "out" / ".work" / "lock"), contextlib.chdir(tmp_path):
        code, _, said = in_process.command(*RUN[len(COMMAND) :], "--resume")
    assert code == 2
    assert "another process is running a study there" in said
    assert len(said.splitlines()) == 1


def test_two_processes_cannot_run_in_one_folder(tmp_path):
    (tmp_path / "s.yaml").write_text(TUNED)
    with running(tmp_path, "--workers", "1") as process:
        until(lambda: any((tmp_path / "out" / ".work").glob("scratch/*/*.journal")), process)
        os.killpg(process.pid, signal.SIGSTOP)
        second = subprocess.run(
            [*RUN, "--resume"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
    assert second.returncode == 2
    assert "another process is running a study there" in second.stderr
    assert len(second.stderr.splitlines()) == 1
