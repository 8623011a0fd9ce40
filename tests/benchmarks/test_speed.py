"""`make bench` fails where a goal is missed, and judges no seconds on a busy machine."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

SPEED = Path(__file__).parents[2] / "benchmarks" / "speed"


@pytest.fixture(scope="module")
def bench() -> dict[str, Any]:
    """The script's names."""
    kept = list(sys.path)
    try:
        return runpy.run_path(str(SPEED / "bench.py"), run_name="bench")
    finally:
        sys.path[:] = kept


@pytest.fixture
def ended(bench, monkeypatch, capsys):
    """Run `main` over parts that measure nothing; return its exit code and the lines it prints."""

    def run(ratio: float, seconds: float, others: float, *words: str) -> tuple[int, list[str]]:
        line, names = bench["Line"], bench["main"].__globals__
        clocks: list[str] = []

        def part(clock: str) -> tuple[dict[str, float], list[Any]]:
            clocks.append(clock)
            return {"a/b": ratio}, [
                line("a / b", ratio, 2.0, "×", least=True), line("whole", seconds, 15.0, " s")
            ]  # fmt: skip

        class Others:
            took = others

        monkeypatch.setitem(names, "PARTS", {"one": part})
        monkeypatch.setitem(names, "Others", Others)
        monkeypatch.setitem(names, "busy_now", lambda: others)
        monkeypatch.setattr(sys, "argv", [str(SPEED / "bench.py"), *words])
        code = bench["main"]()
        assert clocks == (["wall"] if others < 0.15 else ["path"])
        return code, capsys.readouterr().out.splitlines()

    return run


def test_a_missed_goal_is_named_and_fails(ended):
    code, lines = ended(1.9, 14.0, 0.0)
    assert code == 1
    assert lines[1].split() == ["a", "/", "b", "1.90×", "≥", "2.00×", "MISSED"]
    assert lines[2].split() == ["whole", "14.00", "s", "≤", "15.00", "s", "met"]
    assert lines[-1] == "1 of 2 goals missed."
    assert ended(2.1, 16.0, 0.0)[0] == 1
    assert ended(2.1, 14.0, 0.0)[0] == 0


def test_on_a_busy_machine_ratios_are_judged_and_seconds_are_not(ended):
    code, lines = ended(2.1, 99.0, 1.5)
    assert code == 0
    assert lines[2].endswith("not judged")
    assert "Other programs took up to 1.5 of" in lines[3]
    assert lines[-1] == "0 of 1 goals missed."
    assert ended(1.9, 99.0, 1.5)[0] == 1


def test_figures_are_kept_with_command_commit_date_and_load(ended, tmp_path):
    out = tmp_path / "results.json"
    ended(1.9, 16.0, 0.0, "one", "--out", str(out))
    kept = json.loads(out.read_text())["bench_one"]
    assert kept["a/b"] == 1.9
    assert kept["about"]["command"] == "python benchmarks/speed/bench.py one"
    assert {"commit", "date", "load", "on"} <= set(kept["about"])


def test_other_programs_are_all_that_is_busy_but_this_one(bench, monkeypatch):
    names, at = bench["Others"].__init__.__globals__, {"busy": 100.0, "own": 10.0, "now": 0.0}
    monkeypatch.setitem(names, "busy_seconds", lambda: at["busy"])
    monkeypatch.setitem(names, "own_seconds", lambda: at["own"])
    monkeypatch.setattr("time.perf_counter", lambda: at["now"])
    others = bench["Others"]()
    at.update(busy=116.0, own=18.0, now=10.0)
    assert others.took == pytest.approx(0.8)
    at.update(busy=float("nan"))
    monkeypatch.setattr("os.getloadavg", lambda: (3.0, 2.0, 1.0))
    assert others.took == 3.0


def test_the_page_has_its_tables_as_the_file_of_results_gives_them():
    """Written anew they are the same: nobody has changed a figure by hand, or forgot to."""
    kept = list(sys.path)
    try:
        page = runpy.run_path(str(SPEED / "page.py"), run_name="page")
    finally:
        sys.path[:] = kept
    text = page["PAGE"].read_text("utf-8")
    assert page["filled"](text, json.loads(page["RESULTS"].read_text("utf-8"))) == text
    pictures = {path.stem for path in page["PICTURES"].glob("*.svg")}
    assert pictures == {"rows", "columns", "sites", "rounds", "arms"}
    assert all(f"(images/speed/{name}.svg)" in text for name in pictures)
