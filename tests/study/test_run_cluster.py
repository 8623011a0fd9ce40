"""The pieces of a study as tasks, done in this process: what a worker does, and what the client."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
import in_process
from command_line import without_times
from fedcohort.protocol import FedcohortError, InputError, NotSupported
from fedcohort.protocol.host import Host
from fedcohort.study.run import cluster
from fedcohort.study.run.cluster import at_worker, dask_tasks
from fedcohort.study.run.pieces import Cell

STUDY = """\
study: tasks
task: regression
data: {source: table.csv, dictionary: dictionary.yaml, outcome: {y: y}, sites: {split: iid, n: 3}}
arms: [{method: ridge}, {method: regressor, rounds: 8, title: a network}]
bounds: []
tune: {by: row-kfold, trials: 2, space: {l2: [0.001, 1.0, log]}}
evaluate: {repeats: 2, draws: 5}
"""
DICTIONARY = """\
variables:
  y: {type: number}
  x: {type: number}
  z: {type: number}
"""


Doing = Callable[[Cell, Callable[[], str]], str]


class Here:
    """Does tasks in this process.

    Parameters
    ----------
    around : called with a piece and the function that does it, which returns the piece's text.
    change : other values in the order that workers get.
    """

    def __init__(
        self, around: Doing = lambda cell, do: do(), change: Mapping[str, object] | None = None
    ):
        self._around, self._change = around, change or {}
        self._open: list[tuple[str, Cell]] = []

    def check(self, order: str) -> None:
        if why := at_worker.check(json.dumps(json.loads(order) | self._change)):
            raise NotSupported(why)

    def begin(self, order: str, cells: Sequence[Cell]) -> None:
        order = json.dumps(json.loads(order) | self._change)
        self._open = [(order, cell) for cell in cells]

    def ended(self) -> list[tuple[Cell, str]]:
        order, cell = self._open.pop(0)
        numbers = dataclasses.astuple(cell)
        return [(cell, self._around(cell, lambda: at_worker.piece(order, *numbers)))]

    def close(self) -> None:
        self._open.clear()


def start(folder: Path, there: Here | None = None, **more: object) -> dict[str, bytes]:
    """Run the study of a folder, as tasks if there is something to do them; return its files."""
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setattr(cluster, "opened", lambda address, out, jobs: there)
        more |= {"cluster": "tcp://here:1"} if there else {}
        fc.Study.from_file("s.yaml").run("out", **more)  # pyright: ignore[reportArgumentType]
    return without_times(folder / "out")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a study that one machine has run."""
    folder = tmp_path_factory.mktemp("whole")
    random = np.random.default_rng(3)
    x, z, noise = random.normal(size=(3, 90)).round(3)
    table = pd.DataFrame({"x": x, "z": z, "y": (x - z + noise).round(3)})
    table.to_csv(folder / "table.csv", index=False)
    (folder / "dictionary.yaml").write_text(DICTIONARY)
    (folder / "s.yaml").write_text(STUDY)
    start(folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """Return the same study in a folder where it was not run."""
    for name in ("s.yaml", "table.csv", "dictionary.yaml"):
        shutil.copy(whole / name, tmp_path)
    return tmp_path


def test_pieces_done_as_tasks_leave_the_files_of_one_machine(whole, folder):
    kinds = set[str]()

    def around(cell: Cell, do: Callable[[], str]) -> str:
        kinds.add(cell.kind)
        return do()

    assert start(folder, Here(around)) == without_times(whole / "out")
    assert kinds == {"tune", "fit", "final"}
    assert not (folder / "out" / ".work").exists()


def test_a_worker_that_was_given_up_and_still_works_changes_no_file(whole, folder):
    def around(cell: Cell, do: Callable[[], str]) -> str:
        first, second = do(), do()
        assert first != second
        late = folder / "out" / ".work" / "attempts" / json.loads(first)["attempt"]
        for path in late.rglob("*"):
            if path.is_file():
                path.write_text("not yet complete")
        return second

    assert start(folder, Here(around)) == without_times(whole / "out")


class Killed(BaseException):
    """In place of a signal."""


def test_another_attempt_goes_on_with_the_journals_of_a_killed_one(whole, folder, monkeypatch):
    """It replays the first one's calls, so that sites compute only the others."""
    asked, now = dict.fromkeys(("other", "like it", "killed", "again"), 0), ["other"]
    agreed = Host.agreed

    def counted(host, *arguments, **more):
        asked[now[0]] += 1
        if now[0] == "killed" and asked["killed"] > 20:
            raise Killed
        return agreed(host, *arguments, **more)

    def around(cell: Cell, do: Callable[[], str]) -> str:
        now[0] = {Cell("fit", 0, 0, 1): "like it", Cell("fit", 0, 1, 1): "killed"}.get(
            cell, "other"
        )
        if now[0] == "killed":
            with pytest.raises(Killed):
                do()
            now[0] = "again"
        return do()

    monkeypatch.setattr(Host, "agreed", counted)
    assert start(folder, Here(around)) == without_times(whole / "out")
    assert asked["again"] <= asked["like it"] - 15


def test_journals_that_change_while_they_are_copied_are_not_used(tmp_path, monkeypatch):
    old, new = tmp_path / "fit-1.a", tmp_path / "fit-1.b"
    (old / ".work" / "scratch").mkdir(parents=True)
    journal = old / ".work" / "scratch" / "journal"
    journal.write_text("one")
    new.mkdir()
    at_worker._adopt(new)
    assert (new / ".work" / "scratch" / "journal").read_text() == "one"
    copytree = shutil.copytree

    def changing(*paths):
        copytree(*paths)
        journal.write_text("one and two")

    shutil.rmtree(new / ".work")
    monkeypatch.setattr(shutil, "copytree", changing)
    at_worker._adopt(new)
    assert not (new / ".work" / "scratch").exists()


def test_an_attempt_stops_when_its_client_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(at_worker, "EVERY", 0.0)
    note = at_worker._noted(tmp_path, tmp_path / "client")
    (tmp_path / "client").touch()
    note(1, 8)
    assert (tmp_path / "rounds").read_text() == "1 8"
    (tmp_path / "client").unlink()
    with pytest.raises(at_worker.GivenUp):
        note(2, 8)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"versions": {"fedcohort": "0.0.1"}}, "has fedcohort 0.1.0, and the study was"),
        ({"versions": {"python": "3.9.1"}}, "started with 3.9.1; install the same"),
        ({"code": "older"}, "runs another code of fedcohort 0.1.0; install the same code"),
        ({"out": "nowhere/out"}, "does not see the folder nowhere/out of this run; put"),
        ({"files": ["nowhere/table.csv"]}, "does not see nowhere/table.csv; put it on"),
        ({"mark": 1}, "reads other data from 'table.csv' than"),
        ({"unknown": 1}, "runs another code of fedcohort"),
        ({"base": "nowhere"}, "there is no dictionary file nowhere/dictionary.yaml"),
    ],
)  # fmt: skip
def test_a_worker_that_cannot_do_the_study_is_one_line(folder, change, said):
    with pytest.raises(FedcohortError) as error:
        start(folder, Here(change=change))
    text = str(error.value)
    assert said in text
    assert "worker process" in text
    assert socket.gethostname() in text
    assert "\n" not in text
    assert (folder / "out" / ".work" / "claim.json").exists()  # of a run that can go on


def test_a_full_disk_at_a_worker_ends_the_run_which_can_go_on(folder, whole):
    def around(cell: Cell, do: Callable[[], str]) -> str:
        with pytest.MonkeyPatch.context() as patch:
            if cell.kind == "final":
                patch.setattr(at_worker.LocalFits, "do", full)
            return do()

    def full(*arguments):
        raise OSError(28, "No space left on device", "models/x")

    with pytest.raises(FedcohortError, match="models/x: No space left on device; finished pieces"):
        start(folder, Here(around))
    assert start(folder, Here(), resume=True) == without_times(whole / "out")


def test_an_unexpected_error_at_a_worker_is_told_without_its_text(folder):
    def failing(*arguments):
        raise ValueError("a patient of 93 years")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at_worker, "_attempt", failing)
        with pytest.raises(FedcohortError, match="unexpected ValueError in study/run/cl") as error:
            start(folder, Here())
    assert "93" not in str(error.value)


# the command line -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--cluster", "scheduler"],
            "give the address of a Dask scheduler, such as tcp://scheduler",
        ),
        (["--cluster", "tcp://scheduler"], "give the address of a Dask scheduler"),
        (["--cluster", "tcp://scheduler:x"], "give the address of a Dask scheduler"),
        (["--cluster", "slurm", "--runtime", "flower-sim"], "--cluster goes with --runtime local"),
    ],
)
def test_options_that_make_no_cluster_are_one_line(folder, words, said):
    with contextlib.chdir(folder):
        code, _, told = in_process.command("run", "s.yaml", "--out", "out", *words)
    assert (code, len(told.splitlines())) == (2, 1)
    assert said in told
    assert not (folder / "out").exists()


def test_a_scheduler_that_is_not_there_is_one_line_and_nothing_is_written(folder, monkeypatch):
    monkeypatch.setattr(dask_tasks, "CONNECT", 0.2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with contextlib.chdir(folder):
        code, _, told = in_process.command("run", "s.yaml", "--out", "out", "--cluster", address)
    assert (code, len(told.splitlines())) == (1, 1)
    assert f"--cluster {address}: no Dask scheduler answers there" in told
    assert not (folder / "out").exists()


def test_without_its_packages_a_cluster_says_what_to_install(folder, monkeypatch):
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with contextlib.chdir(folder), pytest.raises(InputError, match=r"fedcohort\[cluster\]"):
        fc.Study.from_file("s.yaml").run("out", cluster="slurm")


def test_without_slurm_it_says_so(folder, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    with contextlib.chdir(folder), pytest.raises(FedcohortError, match="no sbatch or srun"):
        fc.Study.from_file("s.yaml").run("out", cluster="slurm")


def test_tables_in_memory_and_measured_energy_are_refused(folder):
    table = pd.read_csv(folder / "table.csv")
    with contextlib.chdir(folder):
        held = fc.Study.from_file("s.yaml", data=table)
        with pytest.raises(NotSupported, match=r"in this process's memory\."):
            held.run("out", cluster="tcp://here:1")
    carbon = dataclasses.replace(held.plan, carbon="FRA", source="table.csv")
    with pytest.raises(NotSupported, match="energy of this machine only"):
        cluster.check_study(carbon, "local")
