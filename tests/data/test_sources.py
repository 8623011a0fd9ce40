"""Samples, CSV files and a file for each site are read; what cannot be is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest
from lifelines.datasets import load_gbsg2
from pandas.testing import assert_frame_equal

from fedcohort.data.checks import check_table
from fedcohort.data.outcome import Survival
from fedcohort.data.sources import SAMPLES, load, read_csv
from fedcohort.protocol import DataError


def test_the_packaged_gbsg2_equals_that_of_lifelines():
    source = load("sample:gbsg2", Path())
    assert_frame_equal(source.frames, load_gbsg2())
    assert source.outcome == Survival("time", "cens")
    assert list(source.dictionary.variables) == list(source.frames.columns)
    assert source.dictionary["tgrade"].levels == ("I", "II", "III")
    assert "Schumacher" in source.description
    assert "MIT" in source.licence


@pytest.mark.parametrize(
    ("name", "shape"),
    [("gbsg2", (686, 10)), ("breast_cancer", (569, 31)), ("diabetes", (442, 11)),
     ("digits", (1797, 65))],
)  # fmt: skip
def test_every_sample_keeps_its_own_dictionary(name, shape):
    source = load(f"sample:{name}", Path())
    assert source.frames.shape == shape
    check_table(source.frames, source.outcome, name, source.dictionary)
    assert source.description
    assert source.licence
    assert name in SAMPLES


def test_a_csv_file_is_read_relative_to_the_study(tmp_path):
    (tmp_path / "a.csv").write_text("x, y\n1,\n2,b\n")
    frame = load("a.csv", tmp_path).frames
    assert list(frame.columns) == ["x", "y"]
    assert frame["y"].isna().tolist() == [True, False]


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [("data/{site}.csv", "data/{}.csv"), ("{site}/visits.csv", "{}/visits.csv"),
     ("d/cohort_{site}_*.csv", "d/cohort_{}_2020.csv")],
)  # fmt: skip
def test_a_pattern_gives_one_table_a_site(tmp_path, pattern, paths):
    for site in ("south", "north"):
        path = tmp_path / paths.format(site)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"x\n{len(site)}\n")
    assert list(load(pattern, tmp_path).frames) == ["north", "south"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("sample:gbsg", "no sample 'gbsg'. Did you mean 'gbsg2'?"),
        ("ab.csv", "there is no file"),
        ("ab.csv", "Did you mean 'abc.csv'?"),
        ("empty.csv", "is empty"),
        ("ragged.csv", "line 3, does not fit the header"),
        ("wide.csv", "rows with more cells than its header names"),
        ("latin.csv", "is not UTF-8 text"),
        ("{site}.txt", "no file matches, so there are no sites"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(tmp_path, source, message):
    (tmp_path / "abc.csv").write_text("x\n1\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "ragged.csv").write_text("x,y\n1,2\n1,2,Jane\n")
    (tmp_path / "wide.csv").write_text("x,y\n1,2,3\n4,5,Jane\n")
    (tmp_path / "latin.csv").write_bytes(b"x\n\xfc\n")
    with pytest.raises(DataError) as error:
        load(source, tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "Jane" not in str(error.value)


def test_two_files_for_one_site_are_refused(tmp_path):
    for year in (1, 2):
        (tmp_path / f"a_{year}.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match="two files match for site 'a'"):
        load("{site}_*.csv", tmp_path)


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_another_separator_is_named(tmp_path, mark):
    (tmp_path / "t.csv").write_text(f"x{mark}time{mark}event\n1{mark}2{mark}1\n")
    with pytest.raises(DataError, match="Save it with commas"):
        read_csv(tmp_path / "t.csv")
