"""The scorecard is whole: each row can be run, and the page says what was measured, and no more."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "scorecard"
SCRIPTS = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem not in ("sheet", "run"))


def loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run = loaded("scorecard_run", FOLDER / "run.py")


def script(*words: str | Path, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Run Python beside the rows."""
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=FOLDER, capture_output=True, text=True,
        timeout=seconds, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


# rows and page ------------------------------------------------------------------------------


def test_every_script_is_a_row_and_no_row_stands_twice():
    assert set(SCRIPTS) <= set(run.ROWS)
    assert len(set(run.ROWS)) == len(run.ROWS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_row_has_an_item_a_target_and_a_measure_and_ends_by_telling_them(name):
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    assert ast.get_docstring(tree)
    names = {
        t.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for t in node.targets
        if isinstance(t, ast.Name)
    }
    assert {"ITEM", "TARGET"} <= names
    assert "measure" in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    last = ast.unparse(tree.body[-1])
    assert "main(__file__, ITEM, TARGET, measure" in last


def results() -> list[dict[str, Any]]:
    return json.loads(run.RESULTS.read_text(encoding="utf-8"))


def test_the_page_shows_what_was_measured_and_nothing_else():
    text = run.PAGE.read_text(encoding="utf-8")
    assert run.page(text, results()) == text


def test_the_results_are_of_the_rows_that_there_are_with_their_own_targets(monkeypatch):
    order = [row["row"] for row in results()]
    assert order == [name for name in run.ROWS if name in order]
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    for row in results():
        file = FOLDER / f"{row['row']}.py"
        own = {
            ast.unparse(node.targets[0]): node.value
            for node in ast.parse(file.read_text("utf-8")).body
            if isinstance(node, ast.Assign)
        }
        try:
            said = [ast.literal_eval(own[name]) for name in ("ITEM", "TARGET")]
        except ValueError:  # made of other names
            made = runpy.run_path(str(file), {}, f"row_{row['row']}")
            said = [made["ITEM"], made["TARGET"]]
        assert said == [row["item"], row["target"]]
        assert row["command"] == f"python benchmarks/scorecard/{row['row']}.py"
        assert type(row["met"]) is bool


def test_a_table_says_no_where_a_target_is_missed_and_keeps_its_columns():
    row = {
        "row": "x", "item": "a|b", "target": "t", "measured": "m", "met": False, "command": "c",
        "seconds": 1.2, "on": "here", "date": "2026-01-01",
    }  # fmt: skip
    lines = run.table([row, {**row, "met": True}]).splitlines()
    assert lines[2] == "| a\\|b | t | m | **no** | `c` (1 s) |"
    assert lines[-1].startswith("1 of 2 rows")


def test_a_page_without_marks_is_not_written():
    with pytest.raises(ValueError, match="scorecard"):
        run.page("no marks", [])


# a row as a command ---------------------------------------------------------------------------

ROW = """
from sheet import main
def measure(size=3): return f"size {size}", size >= 3
main("row.py", "an item", "3 or more, in 100 %", measure, size=3)
"""


@pytest.mark.parametrize(
    ("words", "code", "command"), [((), 0, "row.py"), (("--size", "2"), 1, "row.py --size 2")]
)
def test_a_row_tells_its_result_and_with_which_sizes(tmp_path, words, code, command):
    done = script("-c", ROW, "--json", tmp_path / "x.json", *words)
    assert done.returncode == code, done.stderr
    row = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert row["met"] is (code == 0)
    assert row["command"] == f"python benchmarks/scorecard/{command}"


# short forms of the rows, and that each would notice ------------------------------------------


PRINTED = """\
fault                        study           sums   seconds  what happened
kill node before             survival        masked    49.2  finished; bit-equal
disk node during             survival        masked    40.6  aborted (no space), resumed; bit-equal
lost node during             quorum          plain     39.7  {last}
{good} of 3 faults: every run ended bit-equal; 2 of them with masked sums
"""


@pytest.mark.parametrize(
    ("last", "good", "met"), [("finished; bit-equal", 3, True), ("finished; OTHER FILES", 2, False)]
)
def test_the_row_of_chaos_reads_what_the_benchmark_prints(monkeypatch, last, good, met):
    monkeypatch.syspath_prepend(FOLDER)
    chaos = loaded("scorecard_chaos", FOLDER / "chaos.py")
    monkeypatch.setattr(chaos, "FAULTS", 3)
    text, said = chaos.told([chaos.read(PRINTED.format(last=last, good=good))], 3)
    assert text.startswith(f"{good} of 3 faults (of 3) ended bit-equal, 2 with masked sums")
    assert said is met
    assert chaos.told([chaos.read("Traceback")], 3)[1] is False


def test_twenty_thousand_hostile_inputs_crash_no_reader():
    done = script("decoder_fuzz.py", "--inputs", "20000", "--seed", "2")
    assert "refused): 0 crashes, memory grew by " in done.stdout, done.stdout + done.stderr


def test_the_fuzz_notices_a_reader_that_lets_an_error_through(tmp_path):
    code = (
        "import decoder_fuzz, pathlib, sys; decoder_fuzz.head = lambda b: b[40];"
        "found = decoder_fuzz.fuzz(2000, 1, pathlib.Path(sys.argv[1]));"
        "print(len(found.crashes), found.crashes[0][:34])"
    )
    done = script("-c", code, tmp_path)
    assert "head of a record: IndexError" in done.stdout, done.stdout + done.stderr


def test_hostile_studies_and_bundles_are_refused_before_they_are_unpacked():
    done = script("hostile_studies.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_watch_over_hostile_studies_sees_code_files_and_processes(tmp_path):
    code = (
        "import hostile_studies as h, pathlib, pickle, subprocess, sys\n"
        "sys.addaudithook(h._hook)\n"
        "with h.watched(pathlib.Path(sys.argv[1]) / 'inside') as seen:\n"
        "    pickle.loads(pickle.dumps(h.Evil()))\n"
        "    subprocess.run(['true'])\n"
        "    (pathlib.Path(sys.argv[1]) / 'outside').write_text('x')\n"
        "print(sorted(set(seen)))"
    )
    done = script("-c", code, tmp_path)
    for what in ("pickle.find_class", "exec", "subprocess.Popen", "open of 'outside'"):
        assert what in done.stdout, done.stdout + done.stderr


def test_interleavings_with_kills_keep_the_budget():
    done = script("budget_store.py", "--interleavings", "4", "--seed", "3")
    assert "answers that left: 0 wrong" in done.stdout, done.stdout + done.stderr


def test_the_interleavings_notice_a_store_that_forgets_a_reservation():
    code = (
        "import budget_store as b\n"
        "real = b.Budget.reserve\n"
        "def forgets(self, study, part, *amount):\n"
        "    return None if part == '1' else real(self, study, part, *amount)\n"
        "b.Budget.reserve = forgets\n"
        "print(b.measure(3, 1))"
    )
    done = script("-c", code)
    assert "is counted" in done.stdout, done.stdout + done.stderr


def test_the_search_for_planted_strings_finds_one_in_any_case_and_encoding():
    code = (
        "import planted_strings as p\n"
        "plants = p.Plants(); a, b = plants.some(2)\n"
        "places = {'x': b'.' + a.upper().encode(), 'y': b.encode('utf-16-le'), 'z': b'Doe'}\n"
        "print(p.search(places, plants) == [f'{a} in x', f'{b} in y'])"
    )
    done = script("-c", code)
    assert done.stdout.split() == ["True"], done.stdout + done.stderr
