"""A run that goes on on another kind of processor says so, and mixes the two in no piece."""

from __future__ import annotations

import contextlib
import json
import shutil
import time

import pytest

import in_process
from command_line import running, without_times
from fedcohort.study.run import arithmetic

STUDY = """\
study: small
data: {source: sample:gbsg2, sites: {split: iid, n: 3}}
arms:
  - {method: cox, name: first}
  - {method: deepcox, strategy: fedavg, rounds: 25, internal_epochs: 2}
evaluate: {repeats: 1, draws: 10}
"""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return a folder with a run whose first piece is done and whose second one is under way."""
    folder = tmp_path_factory.mktemp("stopped")
    (folder / "s.yaml").write_text(STUDY)
    work = folder / "out" / ".work"
    with running(folder, "--workers", "1") as process:
        began = time.monotonic()
        while not any(j.stat().st_size > 8_000 for j in work.glob("scratch/*a01/*.journal")):
            assert time.monotonic() - began < 60
            assert process.poll() is None, "finished before it could be stopped"
            time.sleep(0.002)
    assert len(list(work.glob("cells/*.json"))) == 1
    return folder


def resumed(stopped, folder) -> str:
    """Go on with the run; return what was said."""
    with contextlib.chdir(folder):
        code, _, said = in_process.command(
            "run", "s.yaml", "--out", "out", "--workers", "1", "--resume"
        )
    assert code == 0, said
    return said


def test_on_another_processor_pieces_under_way_begin_anew_and_the_run_says_so(
    stopped, tmp_path, monkeypatch, caplog
):
    folder = shutil.copytree(stopped, tmp_path / "run")
    note = folder / "out" / ".work" / arithmetic.NOTE
    (known,) = json.loads(note.read_text())
    other = known | {"instructions": ["another"]}
    note.write_text(json.dumps([other]))
    journal = next((folder / "out" / ".work").glob("scratch/*a01/*.journal"))
    journal.write_bytes(b"what no version could read")  # it is not looked at
    resumed(stopped, folder)
    (line,) = (r.getMessage() for r in caplog.records if "processor" in r.getMessage())
    assert "Finished pieces are kept; unfinished ones begin anew" in line
    environment = json.loads((folder / "out" / "environment.json").read_text())
    assert environment["arithmetic"] == [other, known]
    results = json.loads((folder / "out" / "results.json").read_text())
    assert {arm["status"] for arm in results["arms"]} == {"done"}


def test_on_the_same_processor_the_journal_is_used_and_nothing_is_said(stopped, tmp_path, caplog):
    folder = shutil.copytree(stopped, tmp_path / "run")
    (folder / "whole").mkdir()
    resumed(stopped, folder)
    assert not [r for r in caplog.records if "processor" in r.getMessage()]
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "s.yaml").write_text(STUDY)
    with contextlib.chdir(whole):
        code, _, said = in_process.command("run", "s.yaml", "--out", "out", "--workers", "1")
    assert code == 0, said
    assert without_times(whole / "out") == without_times(folder / "out")


def test_what_computes_is_told_by_what_decides_last_digits(monkeypatch, tmp_path):
    here = arithmetic.here({"numpy": "1"})
    assert here == arithmetic.here({"numpy": "1"})
    assert here != arithmetic.here({"numpy": "2"})
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "another")
    assert here != arithmetic.here({"numpy": "1"})
    assert not arithmetic.note(tmp_path, here)
    assert not arithmetic.note(tmp_path, here)
    assert arithmetic.note(tmp_path, {**here, "blas": ["another"]})
    assert len(arithmetic.seen(tmp_path)) == 2


def test_libraries_that_are_loaded_later_do_not_change_what_computes(monkeypatch):
    """SciPy's own OpenBLAS may know a processor by another name than that of NumPy."""
    found = arithmetic.threadpool_info()
    here = arithmetic.here({})
    assert len(here["blas"]) <= 1
    later = {
        "internal_api": "openblas", "architecture": "Zen",
        "filepath": "/site-packages/scipy.libs/libscipy_openblas.so",
    }  # fmt: skip
    monkeypatch.setattr(arithmetic, "threadpool_info", lambda: [later, *found])
    assert arithmetic.here({}) == here
