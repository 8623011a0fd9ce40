"""A consortium of simulated hospitals gets through init, data check, run and predict."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "consortium"))

from hospitals import hospitals
from run import path


def test_ten_hospitals_of_which_four_are_tiny_or_without_events_get_through(tmp_path):
    tables = hospitals(10, labs=3, flags=2)
    tables = {k: f.drop(columns="height_m") for k, f in tables.items()}  # data check refuses it
    assert path(tmp_path, tables, odd=False, least=0.5, most=0.1) == []
