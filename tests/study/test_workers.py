"""Workers of a study: forked once for all stages, at one thread, with the study's variables."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedcohort.protocol import FedcohortError, registry
from fedcohort.study.run import workers
from fedcohort.study.run.pieces import Cell


class Told:
    """Fits that write down where they are done."""

    workers = 0

    def __init__(self, folder: Path):
        self.folder = folder

    def do(self, cell: Cell, on_progress: Any) -> None:
        on_progress(1, 2)
        if cell.arm == 9:
            os._exit(1)
        found = os.getpid(), self.workers, os.environ["OMP_NUM_THREADS"], os.environ["OF_THE_STUDY"]
        (self.folder / cell.name).write_text(" ".join(map(str, found)))


def test_all_stages_have_the_same_worker_at_one_thread_and_a_lost_one_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("OF_THE_STUDY", "yes")
    with workers.Workers(1, partial(Told, tmp_path), ["cox", "no such"], tmp_path) as pool:
        for stage in (0, 1):
            found = list(pool.do([("a", Cell("fit", stage, 0, 0))], 3))
            assert found[-1] == ("a", None)
        with pytest.raises(FedcohortError, match="a worker process died"):
            list(pool.do([("b", Cell("fit", 0, 0, 9))], 1))
    one, other = (path.read_text() for path in sorted(tmp_path.iterdir()))
    assert one == other
    pid, *rest = one.split()
    assert rest == ["3", "1", "yes"]
    assert int(pid) != os.getpid()
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_modules_of_methods_are_found_without_loading_one():
    assert registry.modules(["cox", "no such method", "cox"]) == ("fedcohort.algorithms.cox",)


def test_a_study_file_that_cannot_be_read_starts_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(workers, "warm", None)
    (tmp_path / "s.yaml").write_text("arms: [")
    workers.warm_for(tmp_path / "s.yaml")
    workers.warm_for(tmp_path / "none.yaml")
