"""A consortium of simulated hospitals gets through init, data check, run and predict."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "consortium"))

from hospitals import hospitals
from run import path

from in_process import command


def test_ten_hospitals_of_which_four_are_tiny_or_without_events_get_through(tmp_path, monkeypatch):
    """In one process, with one way to train and no page: pages have tests of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedcohort.report.write", lambda *_, **__: None)

    def call(_, *words):
        code, out, said = command(*words)
        return code, out + said

    tables = hospitals(10, labs=3, flags=2)
    edit = ["--set", "evaluate.repeats=1", "--set", "arms=[{method: cox}]"]
    edit += ["--set", "bounds={isolated: {l2: 0.01, scale: standard}}"]
    assert path(tmp_path, tables, odd=True, call=call, edit=edit, least=0.5, most=0.1) == []
