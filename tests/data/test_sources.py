"""Samples, files, frames and a file for each site are read; what cannot be is one clear line."""

from __future__ import annotations

import gzip
import sqlite3
import sys
import zipfile
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lifelines.datasets import load_gbsg2
from pandas.testing import assert_frame_equal

from fedcohort.data.check.checks import check_table
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.outcome import Survival
from fedcohort.data.read.canonical import plain
from fedcohort.data.read.sources import SAMPLES, in_memory, load, read_csv
from fedcohort.protocol import DataError


def test_the_packaged_gbsg2_equals_that_of_lifelines():
    source = load("sample:gbsg2", Path())
    assert_frame_equal(source.frames, load_gbsg2(), check_dtype=False)
    assert source.outcome == Survival("time", "cens")
    assert list(source.dictionary.variables) == list(source.frames.columns)
    assert source.dictionary["tgrade"].levels == ("I", "II", "III")
    assert "Schumacher" in source.description
    assert "MIT" in source.licence


@pytest.mark.parametrize(
    ("name", "shape"),
    [("gbsg2", (686, 10)), ("breast_cancer", (569, 31)), ("diabetes", (442, 11)),
     ("digits", (1797, 65)), ("multiview", (400, 34))],
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
        ("wide.csv", "rows with more cells than its header names: row 1 is the first."),
        ("other.csv", "is neither UTF-8, UTF-16 nor Windows-1252 text"),
        ("{site}.txt", "no file matches, so there are no sites"),
        ("twice.csv", "columns 1 and 2 have the same name"),
        ("half.csv.gz", "Is the file whole?"),
        ("text.csv.gz", "Is the file whole?"),
        ("text.parquet", "cannot be read as Parquet"),
        ("book.xlsx", "is a spreadsheet. Save it as CSV in UTF-8."),
        ("memory", "give the table in Python"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(tmp_path, source, message):
    (tmp_path / "abc.csv").write_text("x\n1\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "ragged.csv").write_text("x,y\n1,2\n1,2,Jane\n")
    (tmp_path / "wide.csv").write_text("x,y\n1,2,3\n4,5,Jane\n")
    (tmp_path / "twice.csv").write_text("x, x\n1,Jane\n")
    (tmp_path / "half.csv.gz").write_bytes(gzip.compress(b"x\n" + b"Jane\n" * 999)[:-20])
    for name in ("text.csv.gz", "text.parquet", "book.xlsx"):
        (tmp_path / name).write_text("x\nJane\n")
    (tmp_path / "other.csv").write_bytes(b"x\n\x81\n")
    with pytest.raises(DataError) as error:
        load(source, tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "Jane" not in str(error.value)


def test_the_form_of_a_column_is_that_of_the_dictionary(tmp_path):
    (tmp_path / "t.csv").write_text("id,x,g,d\n007,-9,None,2020-01-31\n010,1.5,NA,\n")
    spec = {
        "id": {"type": "integer", "identifier": True},
        "x": {"type": "number", "missing": [-9]},
        "g": {"type": "category", "levels": ["None", "mild"]},
        "d": "date",
    }
    frame = load("t.csv", tmp_path, dictionary=Dictionary.from_dict(spec)).frames
    expected = {
        "id": ["007", "010"],
        "x": [np.nan, 1.5],
        "g": ["None", np.nan],
        "d": np.array(["2020-01-31", "NaT"], "datetime64[us]"),
    }
    assert_frame_equal(frame, pd.DataFrame(expected))


def test_without_a_dictionary_codes_and_the_columns_named_stay_text(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n007,1,12345678901234567\n8,2,\n")
    frame = load("t.csv", tmp_path, texts=("b",)).frames
    assert frame.a.tolist() == ["007", "8"]
    assert frame.c.tolist() == ["12345678901234567", np.nan]
    assert read_csv(tmp_path / "t.csv", texts=("b",)).b.tolist() == ["1", "2"]


def test_a_word_among_numbers_stays_and_the_other_cells_are_numbers(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,2\nJane,3\n")
    known = Dictionary.from_dict({"x": "number", "y": "number"})
    frame = load("t.csv", tmp_path, dictionary=known).frames
    assert frame.x.tolist() == [1.0, "Jane"]
    assert frame.y.dtype == float


@pytest.mark.parametrize("digits", [6, 10, 15, 17])
def test_every_number_is_the_nearest_float(tmp_path, digits):
    """Against Python's own float(), which rounds correctly."""
    rng = np.random.default_rng(digits)
    numbers = rng.normal(size=20_000) * 10.0 ** rng.integers(-3, 5, 20_000)
    texts = [f"{x:.{digits}g}" for x in numbers]
    (tmp_path / "t.csv").write_text("x\n" + "\n".join(texts) + "\n")
    found = load("t.csv", tmp_path).frames.x.to_numpy()
    np.testing.assert_array_equal(found, np.array([float(t) for t in texts]))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_a_file_may_be_compressed_or_parquet(tmp_path, name):
    frame = pd.DataFrame({"x": [0.1 + 0.2, np.nan], "g": ["007", None]})
    if name.endswith("parquet"):
        frame.to_parquet(tmp_path / name)
    else:
        frame.to_csv(tmp_path / name, index=False)
    assert_frame_equal(load(name, tmp_path).frames, frame.fillna({"g": np.nan}))


def test_parquet_keeps_whole_numbers_exact_and_drops_the_index_of_pandas(tmp_path):
    column = pd.Series([2**60 + 1, None], dtype="Int64", index=[5, 6])
    folder = tmp_path / "year=2020"
    folder.mkdir()
    pd.DataFrame({"id": column}).to_parquet(folder / "north.parquet")
    known = Dictionary.from_dict({"id": {"type": "integer", "identifier": True}})
    frames = load("year=2020/{site}.parquet", tmp_path, dictionary=known).frames
    assert frames["north"].to_dict("list") == {"id": ["1152921504606846977", np.nan]}


def test_polars_frames_and_arrow_tables_are_as_pandas(tmp_path):
    frame = pd.DataFrame({"x": [1, 2], "d": pd.to_datetime(["2020-01-01", "2020-01-02"])})
    table = pa.Table.from_pandas(frame)
    for data in (frame, pl.from_pandas(frame), table):
        assert_frame_equal(in_memory(data).frames, plain(frame))
        assert_frame_equal(in_memory({"n": data}).frames["n"], plain(frame))
    with pytest.raises(DataError, match="a pandas or Polars frame is expected, not list"):
        in_memory([1, 2])


def test_a_missing_package_is_named_with_what_to_install(tmp_path, monkeypatch):
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r'pip install "fedcohort\[parquet\]"'):
        load("t.parquet", tmp_path)


def test_two_files_for_one_site_are_refused(tmp_path):
    for year in (1, 2):
        (tmp_path / f"a_{year}.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match="two files match for site 'a'"):
        load("{site}_*.csv", tmp_path)


EUROPEAN = "site;name;crp;hb\na;Jörg;3,5;12,1\na;Zoë;0,123;9,75\nb;Müller;1.234,5;10\n"


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("semicolons.csv", str.encode),
        ("tabs.tsv", lambda t: t.replace(";", "\t").encode()),
        ("bars.txt", lambda t: t.replace(";", "|").encode()),
        ("windows.csv", lambda t: t.encode("cp1252")),
        ("latin.csv", lambda t: t.encode("latin-1")),
        ("marked.csv", lambda t: t.encode("utf-8-sig")),
        ("utf16.csv", lambda t: t.encode("utf-16")),
        ("utf16_bare.csv", lambda t: t.encode("utf-16-le")),
        ("utf16_big.csv", lambda t: t.encode("utf-16-be")),
        ("excel.csv", lambda t: f"sep=;\r\n{t}".encode("cp1252")),
        ("packed.csv.gz", lambda t: gzip.compress(t.encode("latin-1"))),
        ("commas.csv", lambda t: "\n".join(
            ",".join(f'"{c}"' if "," in c else c for c in line.split(";"))
            for line in t.splitlines()
        ).encode()),
    ],
)  # fmt: skip
def test_a_table_is_the_same_in_whatever_form_it_is_written(tmp_path, name, form):
    (tmp_path / name).write_bytes(form(EUROPEAN))
    spec = {"name": "text", "crp": "number", "hb": "number"}
    wanted = pd.DataFrame(
        {"site": ["a", "a", "b"], "name": ["Jörg", "Zoë", "Müller"], "crp": [3.5, 0.123, 1234.5],
         "hb": [12.1, 9.75, 10.0]}
    )  # fmt: skip
    for known in (None, Dictionary.from_dict(spec)):
        found = load(name, tmp_path, dictionary=known).frames
        assert_frame_equal(found, wanted.astype({"site": object, "name": object}))


@pytest.mark.parametrize(
    "cells",
    [
        ["1,234", "2,500"],  # decimals, or thousands
        ["3,5", "2.5"],  # two marks for decimals
        ["3,5", "1.234"],  # 1.234, or 1234
        ["1,234,567", "3,5"],  # two meanings of a comma
        ["1,234.5", "12"],
        ["12,5", "<0,1"],  # one cell is no number
    ],
)
def test_commas_that_leave_doubt_stay_for_the_checks_to_name(tmp_path, cells):
    pd.DataFrame({"x": cells}).to_csv(tmp_path / "t.csv", index=False)
    known = Dictionary.from_dict({"x": "number"})
    for dictionary in (None, known):
        found = load("t.csv", tmp_path, dictionary=dictionary).frames.x
        assert found.dtype == object
    assert any(isinstance(cell, str) for cell in found)


@given(
    st.lists(
        st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 2)), min_size=2, max_size=9
    )
)
def test_a_column_of_two_decimals_is_the_same_with_commas(values):
    cells = [f"{x:.2f}" for x in values]
    assert plain(pd.DataFrame({"x": [c.replace(".", ",") for c in cells]})).x.tolist() == [
        float(c) for c in cells
    ]


def test_a_quoted_semicolon_in_a_header_divides_nothing(tmp_path):
    (tmp_path / "t.csv").write_text('"a;b",c\n1,2\n3,4\n')
    assert list(read_csv(tmp_path / "t.csv").columns) == ["a;b", "c"]


def test_a_row_that_is_longer_is_named(tmp_path):
    rows = "".join(f"{i},2\n" for i in range(70))
    (tmp_path / "t.csv").write_text(f"x,y\n{rows}3,5,2,5\n")
    with pytest.raises(DataError, match="line 72, does not fit the header"):
        read_csv(tmp_path / "t.csv")


def test_a_folder_or_an_asterisk_is_told_how_files_of_sites_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("exports").mkdir()
    for name in ("north", "south"):
        Path(f"exports/{name}.csv").write_text("x\n1\n")
    for source in ("exports", "exports/*.csv"):
        with pytest.raises(DataError, match=r"Give 'exports/\{site\}\.csv' in quotes"):
            load(source, Path())


def test_the_first_bytes_tell_what_a_file_with_a_wrong_suffix_is(tmp_path):
    with sqlite3.connect(tmp_path / "lite.csv") as lite:
        lite.execute("create table t (x)")
    lite.close()
    duckdb.connect(str(tmp_path / "duck.csv")).close()
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "parquet.csv")
    with zipfile.ZipFile(tmp_path / "sheet.csv", "w") as file:
        file.writestr("a.xml", "")
    for name, said in (
        ("lite", r"is an SQLite database\. Give sqlite:///"),
        ("duck", r"is a DuckDB database\. Give duckdb:///"),
        ("parquet", r"is a Parquet file\. Let its name end in \.parquet"),
        ("sheet", r"is a spreadsheet or a zip archive\. Save it as CSV"),
    ):
        with pytest.raises(DataError, match=said):
            load(f"{name}.csv", tmp_path)
    (tmp_path / "text.csv").write_text("PAR1,patientsDUCK\n1,2\n")
    assert load("text.csv", tmp_path).frames.shape == (1, 2)
