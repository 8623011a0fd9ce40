"""R in the report is what history.csv has of looks, cut into laps, with the first alarm."""

from __future__ import annotations

import csv
import re

from fedcohort.report import run as runs
from fedcohort.report import write
from fedcohort.report.sections import training
from fedcohort.report.sections.training import Look, alarm, laps, looks_of
from report import synthetic

#: After so many rounds R, and the level; no look before a lap's second round.
LOOKS = {
    1: (1.1, 9.0),
    2: (1.3, 2.0),
    3: (1.2, 1.5),
    11: (1.2, 4.0),
    12: (1.9, 1.8),
    13: (2.0, 1.5),
}


def watched(folder, arm="fedavg", scale=1.0):
    """Return a made-up run in which an arm was watched, at random hospitals."""
    synthetic.make(folder, scenarios=("iid",), repeats=2)
    with (folder / "history.csv").open("a", newline="") as file:
        out = csv.writer(file)
        for repeat in (0, 1):
            for round_, (r, level) in LOOKS.items():
                r = scale * r if repeat == 0 else 1.0
                out.writerow([arm, "iid", repeat, "", round_, "R", r])
                out.writerow([arm, "iid", repeat, "", round_, "R_alarm", level])
    return folder


def test_looks_are_read_by_repeat_and_cut_into_laps_and_the_first_alarm_is_found(tmp_path):
    found = looks_of(runs.read(watched(tmp_path / "run")))
    assert set(found) == {("fedavg", "iid")}
    first, second = found["fedavg", "iid"].values()
    assert first == [Look(round_, *values) for round_, values in LOOKS.items()]
    assert [[k.round for k in lap] for lap in laps(first)] == [[1, 2, 3], [11, 12, 13]]
    assert alarm(first) == Look(12, 1.9, 1.8)
    assert alarm(second) is None


def test_the_report_tells_how_many_trainings_had_an_alarm_and_when(tmp_path):
    page = write(watched(tmp_path / "run")).read_text("utf-8")
    part = page[page.index('id="mixing"') :]
    table = re.sub(r"<[^>]+>", " ", part[part.index("Alarms") : part.index("</table>")])
    assert "1 of 2 12 2.00" in " ".join(table.split())
    assert "the first alarm after 12" in part


def test_without_a_monitor_there_is_no_such_section_and_curves_never_show_r(tmp_path):
    assert training.mixing(runs.read(synthetic.make(tmp_path / "plain"))) is None
    run = runs.read(watched(tmp_path / "run"))
    seen = training.curves(run)
    assert seen is not None
    assert "R_alarm" not in seen.body
    assert "R alarm" not in seen.body
