"""Fits of a study side by side, in processes."""

from __future__ import annotations

import fedcohort as fc
from command_line import without_times

STUDY = """\
study: side by side
data: {source: sample:gbsg2, sites: {split: iid, n: 3}}
arms: [{method: cox, scale: standard}]
bounds: []
final: false
evaluate: {repeats: 2, draws: 10, metrics: [c_index]}
"""


def test_two_processes_leave_the_files_of_one(tmp_path):
    (tmp_path / "s.yaml").write_text(STUDY)
    study = fc.Study.from_file(tmp_path / "s.yaml")
    for workers in (1, 2):
        study.run(tmp_path / str(workers), workers=workers)
    assert without_times(tmp_path / "1") == without_times(tmp_path / "2")
    assert not (tmp_path / "2" / ".work").exists()
