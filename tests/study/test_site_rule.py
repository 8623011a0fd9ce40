"""Sites of few rows, or without events, do not stop a study: they are left out, or joined."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.apps.checking import check
from fedcohort.data.read.drafting import guesses
from fedcohort.study.sites.cohort import cohort
from fedcohort.study.sites.counts import count

STUDY = """\
study: own
data:
  source: t.csv
  outcome: {time: time, event: event}
  sites: {column: hospital}
arms: [{method: cox, l2: 0.1}]
bounds: [isolated]
evaluate: {repeats: 1, draws: 2}
"""
SIZES = {"Ash": 60, "Birch": 40, "Cedar": 3, "Dogwood": 1, "Elm": 12, "Fir": 4}


def table() -> pd.DataFrame:
    """Return hospitals of which Cedar, Dogwood and Fir are tiny, and Elm has no event."""
    rng = np.random.default_rng(1)
    hospital = np.repeat(list(SIZES), list(SIZES.values()))
    n = len(hospital)
    event = (rng.random(n) < 0.6) * (hospital != "Elm")
    event[hospital == "Fir"] = 1
    return pd.DataFrame(
        {"x": rng.normal(size=n), "time": rng.integers(1, 99, n), "event": event * 1.0,
         "hospital": hospital}
    )  # fmt: skip


def study(folder: Path, sites: str = "", exclude: str = "", frame=None) -> fc.Study:
    text = STUDY.replace("hospital}", f"hospital{sites}}}")
    text = text.replace("  sites", f"  exclude: [{exclude}]\n  sites") if exclude else text
    (folder / "s.yaml").write_text(text)
    (table() if frame is None else frame).to_csv(folder / "t.csv", index=False)
    return fc.Study.from_file(folder / "s.yaml")


def fates(found: fc.Study) -> dict[str, tuple[str | None, str]]:
    return {s: (f.to, f.why) for s, f in found.table.fates.items()}


def test_by_default_sites_below_min_cell_or_without_events_are_left_out(tmp_path):
    found = study(tmp_path)
    assert fates(found) == {
        "Cedar": (None, "fewer than 5 rows"), "Dogwood": (None, "fewer than 5 rows"),
        "Elm": (None, "no event"), "Fir": (None, "fewer than 5 rows"),
    }  # fmt: skip
    assert set(found.table.site) == {"Ash", "Birch"}
    stages = {(stage, site): n for stage, site, n, _ in found.table.flow}
    assert stages["excluded: small sites", None] == 20
    assert (stages["read", None], stages["analysed", None]) == (120, 100)


def test_joined_sites_are_one_and_keep_their_rows(tmp_path):
    found = study(tmp_path, ", small: join")
    assert {to for to, _ in fates(found).values()} == {"small hospitals"}
    assert (found.table.site == "small hospitals").sum() == 20
    assert len(found.table.frame) == 120


def test_table_1_of_joined_sites_hides_no_more_than_of_as_large_a_site_of_any_name(tmp_path):
    frame = pd.concat([table()] * 3, ignore_index=True)
    tiny = [f"T{i}" for i in range(45)]
    sites = np.r_[np.repeat(tiny, 4), np.repeat(["Ash", "Birch", "Elm", "Fir"], 45)]
    found = study(tmp_path, ", small: join", frame=frame.assign(hospital=sites))
    shown = {}
    for name in ("small hospitals", "Oak"):
        site = np.where(found.table.site == "small hospitals", name, found.table.site)
        moved = replace(found.table, site=site)
        lines = cohort(found.plan, moved, count(found.plan, moved))[0]["variables"]
        shown[name] = [(v["name"], v["missing"], v["counts"]) for v in lines]
    assert shown["small hospitals"] == shown["Oak"]
    assert all(None not in (n, *counts.values()) for _, n, counts in shown["Oak"])


def test_sites_too_small_even_together_are_left_out(tmp_path):
    found = study(tmp_path, ", small: join, min_rows: 30, min_events: 0")
    assert {to for to, _ in fates(found).values()} == {None}


def test_a_limit_above_the_default_is_heeded(tmp_path):
    assert "Birch" in fates(study(tmp_path, ", min_rows: 41"))


def test_files_are_joined_and_left_out_as_rows_of_a_column_are(tmp_path):
    frame = table()
    for name, rows in frame.groupby("hospital"):
        rows.drop(columns="hospital").to_csv(tmp_path / f"{name}.csv", index=False)
    text = STUDY.replace("t.csv", "'{site}.csv'")
    for sites, of in (("{small: join}", "small: join"), ("{min_rows: 5}", "")):
        (tmp_path / "f.yaml").write_text(text.replace("{column: hospital}", sites))
        by_file = fc.Study.from_file(tmp_path / "f.yaml")
        by_column = study(tmp_path, of and f", {of}")
        (tmp_path / "t.csv").unlink()
        assert fates(by_file) == fates(by_column)
        assert by_file.table.flow == by_column.table.flow


def test_exclude_takes_sites_by_the_site_column(tmp_path):
    found = study(tmp_path, exclude="missing outcome, {hospital: [Birch, Elm]}")
    assert fates(found)["Birch"] == (None, "a name in data.exclude")
    assert ("excluded: sites left out", None, 52, "data.exclude") in found.table.flow


@pytest.mark.parametrize(
    ("sites", "exclude", "said"),
    [
        ("", "{hospital: Birke}", "names the site 'Birke', which has no row"),
        ("", "{clinic: Birch}", "'clinic' is not possible; rows are left out by the site column"),
        (", min_rows: 1", "", "data.sites.min_rows: expected a whole number of at least 2"),
        (", small: joyn", "", "did you mean 'join'?"),
        (", min_rws: 3", "", "unknown key 'min_rws'; did you mean 'min_rows'?"),
        (", min_rows: 99", "", "no site is left of 6"),
    ],
)
def test_what_cannot_be_is_said_with_its_place(tmp_path, sites, exclude, said):
    with pytest.raises(fc.FedcohortError) as caught:
        study(tmp_path, sites, exclude)
    assert said in str(caught.value)


def test_a_site_whose_events_are_coded_otherwise_is_an_error_and_not_left_out(tmp_path):
    frame = table()
    frame.loc[frame.hospital == "Birch", "event"] += 1
    with pytest.raises(fc.DataError, match="neither 0 nor 1"):
        study(tmp_path, frame=frame)


def test_who_is_left_out_is_told_wherever_patients_are_counted(tmp_path):
    study(tmp_path).run(tmp_path / "out")
    results = json.loads((tmp_path / "out/results.json").read_text())
    left = {r["site"] for r in results["data"]["sites_left_out"]}
    assert left == {"Cedar", "Dogwood", "Elm", "Fir"}
    stages = {(f["stage"], f["site"]): f["rows"] for f in results["cohort"]["flow"]}
    assert all(stages["excluded: small sites", s] is None for s in ("Cedar", "Dogwood", "Fir"))
    named = "(fewer than 5 rows); 'Elm' (no event)"
    assert named in (tmp_path / "out/models/cox/card.md").read_text()
    page = (tmp_path / "out/report.html").read_text()
    assert html.unescape(page).count(named) >= 2, "in the cohort, and in the checklist"


def test_data_check_names_them_as_a_warning(tmp_path):
    study(tmp_path)
    (found,) = [f for f in check([str(tmp_path / "s.yaml")], None).findings
                if f.rule == "small sites"]  # fmt: skip
    assert "4 sites" in found.line
    assert "'Elm' (no event)" in found.line


def test_simulate_leaves_a_single_row_out_and_warns():
    frame = table()
    with pytest.warns(UserWarning, match=r"sites left out: 'Dogwood' \(1 row\)"):
        fed = fc.simulate(frame, sites="hospital", outcome=fc.Survival("time", "event"))
    assert fed.sites == ("Ash", "Birch", "Cedar", "Elm", "Fir")


def test_a_column_that_no_model_uses_may_be_absent_at_a_site(tmp_path):
    frame = table().assign(lab=1.5)
    for name, rows in frame.groupby("hospital"):
        gone = ["hospital", "lab"] if name == "Birch" else ["hospital"]
        rows.drop(columns=gone).to_csv(tmp_path / f"{name}.csv", index=False)
    columns = "{x: number, time: time, event: event, lab: {type: number, feature: %s}}"
    text = STUDY.replace("t.csv", "'{site}.csv'\n  dictionary: d.yaml")
    (tmp_path / "s.yaml").write_text(text.replace("  sites: {column: hospital}\n", ""))
    (tmp_path / "d.yaml").write_text(f"variables: {columns % 'false'}")
    fc.Study.from_file(tmp_path / "s.yaml")
    (tmp_path / "d.yaml").write_text(f"variables: {columns % 'true'}")
    with pytest.raises(fc.DataError, match="no column 'lab'"):
        fc.Study.from_file(tmp_path / "s.yaml")


def test_init_drafts_a_column_that_some_hospitals_lack_as_no_feature(tmp_path):
    frame = table().assign(lab=1.5)
    frames = {"a": frame[:60], "b": frame[60:].drop(columns="lab")}
    found = {g.variable.name: g.variable.feature for g in guesses(frames, everywhere=True)}
    assert found == {"x": True, "time": True, "event": True, "hospital": True, "lab": False}
