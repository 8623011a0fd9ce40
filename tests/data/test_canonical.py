"""A column has one form, whatever it came as; a cell that cannot have it stays, to be named."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas._libs.parsers import STR_NA_VALUES
from pandas.testing import assert_frame_equal

from fedcohort.data.dictionary import Dictionary
from fedcohort.data.read.canonical import MISSING, canonical, plain
from fedcohort.protocol import DataError

D = Dictionary.from_dict(
    {
        "x": {"type": "number", "missing": [-9]},
        "b": "binary",
        "g": {"type": "category", "levels": ["007", 2, "None"], "missing": ["?"]},
        "d": {"type": "date", "missing": ["1900-01-01"]},
        "i": {"type": "integer", "identifier": True},
        "t": "text",
    }
)
NAN = np.nan


def formed(name, cells, dtype=None):
    """Return the cells of one column in form, and the form."""
    column = cells if dtype is None else pd.Series(cells, dtype=dtype)
    out = canonical(pd.DataFrame({name: column}), D)[name]
    return [None if pd.isna(v) else v for v in out], out.dtype


def test_the_missing_texts_are_those_of_the_csv_reader_of_pandas():
    assert MISSING == STR_NA_VALUES


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        ([1, 2.5, None, None], None),
        (["1", " 2.50 ", "NA", "-9.0"], None),
        ([decimal.Decimal("1.0"), decimal.Decimal("2.5"), None, -9], object),
        (["1", "2.5", None, "-9"], "category"),
        ([1, 2.5, None, -9], "Float64"),
        ([1, 2.5, None, -9], "float32"),
        (pd.Series(pa.array([1, 2.5, None, -9]), dtype=pd.ArrowDtype(pa.float64())), None),
        (["1e0", "25e-1", "", "-9"], "string"),
    ],
)
def test_numbers_become_floats_and_their_missing_codes_missing(cells, dtype):
    assert formed("x", cells, dtype) == ([1.0, 2.5, None, None], np.float64)


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        ([True, False, None], object),
        ([True, False, None], "boolean"),
        (["True", "false", "n/a"], None),
        (["1", "0", " "], None),
        ([1, 0, None], "Int64"),
    ],
)
def test_true_and_false_are_1_and_0(cells, dtype):
    assert formed("b", cells, dtype) == ([1.0, 0.0, None], np.float64)


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (["007", "2.0", "None", "?"], None),
        (["007", 2, "None", None], object),
        ([" 007", 2.0, "None ", "NA"], object),
        (["007", "2", "None", "?"], "category"),
    ],
)
def test_levels_become_text_and_a_level_is_never_missing(cells, dtype):
    assert formed("g", cells, dtype) == (["007", "2", "None", None], object)


@pytest.mark.parametrize(
    "cells",
    [
        ["2020-02-29", "2020-02-29 10:30:00", "", "1900-01-01"],
        [datetime.date(2020, 2, 29), datetime.datetime(2020, 2, 29, 10, 30), None, "NaN"],
        pd.to_datetime(["2020-02-29 00:00", "2020-02-29 10:30", None, "1900-01-01 00:00"]),
        pd.to_datetime(["2020-02-29 02:00", "2020-02-29 12:30", None, None]).tz_localize("+02:00"),
        ["2020-02-29T02:00:00+02:00", "2020-02-29 10:30Z", "NA", None],
    ],
)
def test_dates_become_datetimes_without_a_zone(cells):
    day = pd.Timestamp(2020, 2, 29)
    found = [day, day + pd.Timedelta(hours=10.5), None, None]
    assert formed("d", cells) == (found, np.dtype("datetime64[us]"))


def test_a_date_beyond_2262_is_one():
    assert formed("d", ["9999-12-31"])[0] == [pd.Timestamp("9999-12-31").as_unit("us")]


def test_identifiers_are_exact_texts():
    cells = pd.Series([2**60 + 1, None, 7], dtype="Int64")
    assert formed("i", cells) == (["1152921504606846977", None, "7"], object)
    assert formed("i", ["007", "7.0", "A-1"]) == (["007", "7", "A-1"], object)


@pytest.mark.parametrize(
    ("name", "cells", "kept"),
    [
        ("x", ["1", "1,500", True, None], [1.0, "1,500", True, None]),
        ("x", ["1_000", "0x10", "Jane"], ["1_000", "0x10", "Jane"]),
        ("b", ["yes", 1], ["yes", 1.0]),
        ("d", ["2020-02-30", "01/02/2020", 43831], ["2020-02-30", "01/02/2020", 43831]),
        ("d", ["2020-02-29", "x"], [pd.Timestamp(2020, 2, 29), "x"]),
        ("g", ["2", "two"], ["2", "two"]),
    ],
)
def test_a_cell_that_cannot_become_what_it_should_stays(name, cells, kept):
    assert formed(name, cells, object) == (kept, object)


def test_an_infinite_number_is_left_to_the_checks():
    assert formed("x", ["inf", "-Infinity", 10**400], object)[0] == [np.inf, -np.inf, np.inf]


def test_columns_that_are_in_form_are_not_copied():
    cells = {"x": [1.0, NAN], "g": ["2", NAN], "d": ["2020-01-01", None], "t": ["a", "b"]}
    frame = canonical(pd.DataFrame(cells), D)
    assert canonical(frame, D) is frame
    wide = pd.DataFrame(np.zeros((5, 3)), columns=["x", "y", "z"]).assign(b=True)
    out = canonical(wide, D)
    assert all(np.shares_memory(out[c], wide[c]) for c in "xyz")
    assert wide.b.dtype == bool


def test_the_header_is_text_without_spaces_and_the_table_given_is_not_changed():
    frame = pd.DataFrame([["1", "a"]], columns=[" x", 7])
    before = frame.copy()
    assert list(canonical(frame, D).columns) == ["x", "7"]
    assert_frame_equal(frame, before)


def test_lists_in_cells_are_refused_with_their_column():
    with pytest.raises(DataError, match="column 't' holds lists or other objects"):
        canonical(pd.DataFrame({"t": [[1], [2]]}), D)


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (["1", "2.5", "NA"], float),
        (["True", "false", None], float),
        ([True, False, True], float),
        ([None, None, ""], float),
        (["2020-01-01", None, "2020-05-01 10:00"], "datetime64[us]"),
        ([datetime.date(2020, 1, 1)] * 3, "datetime64[us]"),
        (["007", "008", None], object),
        (["12345678901234567", "1", "2"], object),
        ([2**60, 1, 2], object),
        (["1", "x", "2020-01-01"], object),
    ],
)
def test_without_a_dictionary_the_cells_decide(cells, dtype):
    out = plain(pd.DataFrame({"c": cells}))
    assert out.c.dtype == dtype
    assert plain(out) is out


CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.dates(),
    st.datetimes(), st.decimals(allow_nan=False, places=3), st.sampled_from(["NA", " 7", "7.0"]),
)  # fmt: skip


@given(cells=st.lists(CELLS, min_size=1, max_size=6))
def test_any_cells_can_be_brought_into_form_and_stay_there(cells):
    column = pd.Series(cells, dtype=object)
    frame = pd.DataFrame(dict.fromkeys([*D.variables, "unknown"], column))
    once = canonical(frame, D)
    assert len(once) == len(cells)
    assert_frame_equal(canonical(once, D), once)
