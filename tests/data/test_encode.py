"""Columns become numbers and codes, and what cannot is named by column and row, never by value."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from fedcohort.data.dictionary import Variable
from fedcohort.data.encode import Encoding
from fedcohort.protocol import DataError


def encode(column, **variable):
    out = Encoding((Variable("v", **variable),))(pd.DataFrame({"v": column}))
    return (out.codes if variable.get("levels") else out.numbers)[0]


@pytest.mark.parametrize(
    "column",
    [
        [1, 0, None],
        pd.array([1, 0, None], "Int64"),
        pd.array([True, False, None], "boolean"),
        [True, False, None],
        ["1", "0", None],
    ],
)
def test_numbers_are_read_from_every_pandas_type(column):
    assert_array_equal(encode(column, type="binary"), [1, 0, np.nan])


@pytest.mark.parametrize(
    "column",
    [[2, 1, None], ["2", "1", None], [2.0, 1.0, np.nan], pd.Categorical(["2", "1", None])],
)
def test_levels_are_read_as_text_whatever_their_type(column):
    assert_array_equal(encode(column, type="category", levels=("1", "2")), [1, 0, -1])


@pytest.mark.parametrize(
    ("column", "variable", "message"),
    [
        (["1", "Jane Doe", "2"], {}, "column 'v' holds no number in row 2."),
        ([1.0, np.inf], {}, "column 'v' is infinite in row 2."),
        ([0, 1, 7], {"type": "binary"}, "neither 0 nor 1 in row 3."),
        (pd.to_datetime(["1950-01-01"]), {}, "column 'v' holds dates."),
        (
            ["a", "Jane Doe"] * 6,
            {"type": "category", "levels": ("a", "b")},
            "a level outside the 2 that the dictionary knows, in rows 2, 4, 6, 8, 10, … (6 rows)",
        ),
    ],
)
def test_what_cannot_be_read_is_named_without_its_value(column, variable, message):
    with pytest.raises(DataError) as error:
        encode(column, **variable)
    assert message in str(error.value)
    for value in ("Jane", "1950", "inf,", "7"):
        assert value not in str(error.value)


def test_a_missing_column_names_the_nearest():
    with pytest.raises(DataError, match=r"no column 'age' among 1 columns\. Did you mean 'agee'"):
        Encoding((Variable("age"),))(pd.DataFrame({"agee": [1]}))


def test_two_columns_of_one_name_are_refused():
    frame = pd.DataFrame([[1, 2]], columns=["v", "v"])
    with pytest.raises(DataError, match="2 columns are called 'v'"):
        Encoding((Variable("v"),))(frame)
