"""Conditions on rows: pandas evaluates the same texts, and errors name what is wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.data.condition import DEEPEST, Condition
from fedcohort.data.dictionary import Dictionary
from fedcohort.protocol import SettingError

KNOWN = Dictionary.from_dict(
    {
        "age": {"type": "integer", "range": [0, 120]},
        "hb": "number",
        "sex": {"type": "category", "levels": ["f", "m", "not known"]},
        "two words": "number",
        "seen": {"type": "date"},
    }
)
RNG = np.random.default_rng(5)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(0, 9, 200).astype(float),
        "hb": np.where(RNG.random(200) < 0.2, np.nan, RNG.integers(0, 9, 200)),
        "sex": RNG.choice(["f", "m", "not known"], 200),
        "two words": RNG.normal(size=200),
        "seen": RNG.choice(["2015-01-31", "2016-07-01"], 200),
    }
)


def holds(text: str) -> np.ndarray:
    return Condition.parse(text, KNOWN).holds(FRAME)


def comparison() -> st.SearchStrategy[str]:
    number = st.builds(
        "{} {} {}".format, st.sampled_from(["age", "hb"]),
        st.sampled_from(["<", "<=", ">", ">=", "=="]), st.integers(0, 8),
    )  # fmt: skip
    level = st.builds("sex {} '{}'".format, st.sampled_from(["==", "!="]),
                      st.sampled_from(["f", "m", "not known"]))  # fmt: skip
    return number | level


TEXTS = st.recursive(
    comparison(),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("{} {} {}".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("not ({})".format, inner)
    ),
    max_leaves=6,
)


@given(TEXTS)
def test_a_condition_holds_in_the_rows_that_pandas_finds(text):
    np.testing.assert_array_equal(holds(text), FRAME.eval(text, engine="python").to_numpy(bool))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            'sex in (f, "not known") and age = 3',
            FRAME.sex.isin(["f", "not known"]) & (FRAME.age == 3),
        ),
        ("hb is missing or hb > 7", FRAME.hb.isna() | (FRAME.hb > 7)),
        ("hb is known AND `two words` < -.5", FRAME.hb.notna() & (FRAME["two words"] < -0.5)),
        ("seen > 2015-12-31", FRAME.seen == "2016-07-01"),
        ("age in (1,2, 3)", FRAME.age.isin([1, 2, 3])),
        ("not hb < 4", ~(FRAME.hb < 4)),
    ],
)
def test_lists_missing_values_and_dates_are_compared(text, rows):
    np.testing.assert_array_equal(holds(text), rows.to_numpy())


def test_a_row_without_a_value_satisfies_no_comparison():
    assert not holds("hb = 3 or hb != 3")[FRAME.hb.isna().to_numpy()].any()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a column at the end"),
        ("age >", "expected a value at the end"),
        ("age 70", "expected one of = != < <= > >=, 'in' or 'is' at character 5"),
        ("agee > 70", "no column 'agee'. Did you mean 'age'?"),
        ("sex = female", "column 'sex' has no level 'female'"),
        ("sex > f", "column 'sex' has levels, compared by = or !="),
        ("age > seventy", "column 'age' is compared with a number"),
        ("age > nan", "column 'age' is compared with a number"),
        ("seen > 2015", "column 'seen' is compared with a day such as 2015-01-31"),
        ("(age > 1", "expected ')' at the end"),
        ("age > 1 sex = f", "expected 'and', 'or' or the end at character 9"),
        ("age in (1 2)", "expected ',' or ')' at character 11"),
        ("age is old", "expected 'missing' or 'known'"),
        ("age > 'x", "cannot read the text from character 6 on"),
        ("(" * (DEEPEST + 2) + "age > 1", f"more than {DEEPEST} conditions in each other"),
        ("not " * (DEEPEST + 2) + "age > 1", f"more than {DEEPEST} conditions in each other"),
        ("age > 1 or " * 300 + "age > 1", "more than 2000 characters"),
        ("__import__('os').system('true')", "no column '__import__'"),
    ],
)
def test_a_text_that_is_no_condition_is_named_with_its_place(text, said):
    with pytest.raises(SettingError) as error:
        Condition.parse(text, KNOWN)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
