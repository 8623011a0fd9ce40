"""A table read in batches is the table read at once, and lies in a scratch file."""

from __future__ import annotations

import sqlite3
import warnings
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from fedcohort import mapped
from fedcohort.data import on_disk
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.read import frames, large, sources
from fedcohort.protocol import DataError

ROWS = 2500
KNOWN = Dictionary.from_dict(
    {
        "variables": {
            "age": {"type": "number", "missing": ["-9"]},
            "sex": {"type": "binary"},
            "grade": {"type": "category", "levels": ["1", "2", "3"]},
            "seen": {"type": "date"},
            "who": {"type": "category", "identifier": True},
        }
    }
)
QUERY = "select age, sex, grade, seen, who, more from t order by who"
SOURCES = ("t.parquet", "sqlite:///t.db", "duckdb:///t.duckdb")


def made() -> pd.DataFrame:
    """Return rows with missing values, codes for them, and a column that nobody knows."""
    rng = np.random.default_rng(4)
    seen = pd.Timestamp("2020-01-31") + pd.to_timedelta(rng.integers(0, 900, ROWS), unit="D")
    frame = pd.DataFrame(
        {
            "age": rng.choice([-9.0, 40.5, 61.25], ROWS),
            "sex": rng.integers(0, 2, ROWS),
            "grade": rng.integers(1, 4, ROWS),
            "seen": seen.astype("datetime64[us]"),
            "who": np.arange(ROWS) + 10**6,
            "more": rng.random(ROWS),
        }
    )
    frame.loc[rng.random(ROWS) < 0.1, ["age", "seen"]] = None
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Hold the rows as Parquet, and in SQLite and DuckDB."""
    folder, frame = tmp_path_factory.mktemp("large"), made()
    frame.to_parquet(folder / "t.parquet", row_group_size=700)
    with duckdb.connect(str(folder / "t.duckdb")) as duck:
        duck.execute(f"create table t as select * from '{folder}/t.parquet'")
    with sqlite3.connect(folder / "t.db") as lite:
        frame.assign(seen=frame.seen.dt.strftime("%Y-%m-%d")).to_sql("t", lite, index=False)
    lite.close()
    return folder


@pytest.fixture
def small(monkeypatch):
    """Let no table fit, and make blocks small."""
    monkeypatch.setenv(mapped.SETTING, "0")
    monkeypatch.setattr(mapped, "block_rows", lambda _: 600)


@pytest.mark.parametrize("source", SOURCES)
def test_batches_give_the_rows_that_are_read_at_once(folder, source, monkeypatch, small):
    found = sources.load(source, folder, query=QUERY, dictionary=KNOWN).frames
    monkeypatch.setenv(mapped.SETTING, "1TB")
    expected = sources.load(source, folder, query=QUERY, dictionary=KNOWN).frames
    assert on_disk.on_disk(found)
    assert not on_disk.on_disk(expected)
    plain = found.astype({"grade": object, "who": object})
    assert_frame_equal(plain, expected[list(KNOWN.variables)], check_column_type=False)


def test_a_column_of_sites_is_kept_as_text(folder, small):
    found = sources.load("t.parquet", folder, dictionary=KNOWN, texts=["more"]).frames
    assert found["more"].astype(str).tolist() == made()["more"].map(str).tolist()


def test_a_batch_larger_than_memory_is_read_again_in_smaller_ones(folder, monkeypatch, small):
    real = frames._batches

    def tight(path, names, rows):
        if rows > 200:
            raise MemoryError
        return real(path, names, rows)

    monkeypatch.setattr(large, "LEAST", 100)
    monkeypatch.setattr(frames, "_batches", tight)
    with pytest.warns(UserWarning, match="batch of rows") as said:
        found = frames.read_parquet(folder / "t.parquet", KNOWN)
    assert len(found) == ROWS
    assert [str(w.message).partition(": ")[2] for w in said if w.category is UserWarning] == [
        f"a batch of rows does not fit into memory; the table is read again in batches of {n} rows."
        for n in (300, 150)
    ]


def test_without_memory_for_the_smallest_batch_one_line_says_so(folder, monkeypatch, small):
    def tight(*_):
        raise MemoryError

    monkeypatch.setattr(frames, "_batches", tight)
    with (
        warnings.catch_warnings(),
        pytest.raises(DataError, match="not enough memory for 256 rows"),
    ):
        warnings.simplefilter("ignore")
        frames.read_parquet(folder / "t.parquet", KNOWN)


def test_a_cell_that_breaks_the_dictionary_is_named_by_its_row(tmp_path, small):
    frame = made()[["age", "sex"]].astype({"age": object})
    frame.loc[1999, "age"] = "unknown"
    frame["age"] = frame["age"].map(lambda v: None if v is None else str(v))
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"column 'age' holds no number.*row 2000") as error:
        sources.load("t.parquet", tmp_path, dictionary=KNOWN)
    assert "unknown" not in str(error.value)


def test_a_table_without_a_dictionary_is_not_read_in_batches(folder, small):
    with pytest.raises(DataError, match="only a table with a dictionary is read in batches"):
        sources.load("t.parquet", folder)


def test_rows_that_come_and_go_during_reading_are_an_error(folder, small):
    real = frames._batches
    for rows in (ROWS - 1, ROWS + 1):
        table = large.Table(
            "t", rows, ("age",), lambda names, n: real(folder / "t.parquet", names, n)
        )
        with pytest.raises(DataError, match="t: the number of rows changed during reading"):
            large.read(table, KNOWN, ())


def test_a_full_disk_is_one_line(folder, monkeypatch, small):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mapped.os, "pwrite", full)
    with pytest.raises(DataError, match=r"scratch file \(No space left on device\). Set TMPDIR"):
        sources.load("t.parquet", folder, dictionary=KNOWN)


def test_rows_and_columns_are_taken_as_from_memory_and_stay_on_disk(folder, monkeypatch, small):
    found = sources.load("t.parquet", folder, dictionary=KNOWN).frames
    expected = found.copy()
    rng = np.random.default_rng(0)
    mask, order = rng.random(ROWS) < 0.4, rng.permutation(ROWS)
    pairs = [
        (on_disk.taken(found, mask), expected[mask].reset_index(drop=True)),
        (on_disk.taken(found, order), expected.iloc[order].reset_index(drop=True)),
        (on_disk.selected(found, ["seen", "age"]), expected[["seen", "age"]]),
        (on_disk.without(found, ["age"]), expected.drop(columns=["age"])),
        (
            on_disk.stacked([found, on_disk.without(found, ["age"])]),
            pd.concat([expected, expected.drop(columns=["age"])], ignore_index=True),
        ),
        (on_disk.numbered(found), expected),
    ]
    for one, other in pairs:
        assert on_disk.on_disk(one)
        assert_frame_equal(one, other, check_column_type=False)
