"""Rows without an outcome are errors, or they are left out and counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc

STUDY = """\
study: own
data:
  source: t.csv
  outcome: {time: time, event: event}
  sites: {column: site}
arms: [{method: cox}]
evaluate: {repeats: 1}
"""
EXCLUDE = "  exclude: [time not above 0, missing outcome]\n  sites"


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 60
    frame = pd.DataFrame(
        {"x": rng.normal(size=n), "time": rng.integers(1, 99, n) * 1.0, "event": 1.0, "site": "n"}
    )
    frame.loc[30:, "site"] = "s"
    frame.loc[[0, 1, 40], "time"] = [np.nan, 0, -3]
    frame.loc[[1, 2], "event"] = np.nan
    return frame


def study(folder: Path, frame: pd.DataFrame, text: str) -> fc.Study:
    (folder / "s.yaml").write_text(text)
    return fc.Study.from_file(folder / "s.yaml", data=frame)


def test_rows_are_counted_by_reason_and_site_each_once(tmp_path):
    found = study(tmp_path, table(), STUDY.replace("  sites", EXCLUDE)).table
    assert found.flow == (
        ("read", None, 60, ""), ("read", "n", 30, ""), ("read", "s", 30, ""),
        ("excluded: missing outcome", None, 3, "data.exclude"),
        ("excluded: missing outcome", "n", 3, "data.exclude"),
        ("excluded: missing outcome", "s", 0, "data.exclude"),
        ("excluded: time not above 0", None, 1, "data.exclude"),
        ("excluded: time not above 0", "n", 0, "data.exclude"),
        ("excluded: time not above 0", "s", 1, "data.exclude"),
        ("analysed", None, 56, ""), ("analysed", "n", 27, ""), ("analysed", "s", 29, ""),
    )  # fmt: skip
    kept = table().drop(index=[0, 1, 2, 40]).reset_index(drop=True)
    assert found.site is not None
    rows = found.frame.assign(site=found.site).sort_values("x", ignore_index=True)
    names = ["site", "x", "time", "event"]
    pd.testing.assert_frame_equal(
        rows[names], kept.sort_values("x", ignore_index=True)[names], check_dtype=False
    )


def test_without_the_key_they_are_errors(tmp_path):
    with pytest.raises(fc.DataError, match="column 'time'"):
        study(tmp_path, table(), STUDY)


def test_nothing_to_exclude_leaves_two_stages(tmp_path):
    whole = table().drop(index=[0, 1, 2, 40])
    found = study(tmp_path, whole, STUDY.replace("{column: site}", "{split: iid, n: 2}"))
    assert found.table.flow == (("read", None, 56, ""), ("analysed", None, 56, ""))


def test_a_site_without_a_row_that_is_left_does_not_take_part(tmp_path):
    frame = table().assign(time=lambda f: f.time.where(f.site == "n"))
    found = study(tmp_path, frame, STUDY.replace("  sites", EXCLUDE)).table
    assert {s: f.why for s, f in found.fates.items()} == {"s": "fewer than 5 rows"}
    assert set(found.site) == {"n"}


def test_errors_count_rows_as_they_were_read_also_after_exclusion(tmp_path):
    frame = table().assign(event=lambda f: f.event.replace(1.0, 2.0).where(f.index > 5, f.event))
    with pytest.raises(fc.DataError) as caught:
        study(tmp_path, frame, STUDY.replace("  sites", EXCLUDE))
    said = "column 'event' is neither 0 nor 1 in rows 7, 8, 9, 10, 11, … (53 rows)."
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("task", "reason", "said"),
    [
        ("survival", "missing time", "line 5, data.exclude.0: 'missing time' is not possible"),
        ("classification", "time not above 0", "'time not above 0' is not possible"),
    ],
)
def test_an_unknown_reason_is_named_with_its_place(tmp_path, task, reason, said):
    text = STUDY.replace("  sites", f"  exclude: [{reason}]\n  sites")
    outcome = "{y: event}" if task == "classification" else "{time: time, event: event}"
    text = f"{text}task: {task}\n".replace("{time: time, event: event}", outcome)
    if task == "classification":
        text = text.replace("cox", "logistic")  # the arm is no second error of the file
    with pytest.raises(fc.StudyError) as caught:
        study(tmp_path, table(), text)
    assert said in str(caught.value)
