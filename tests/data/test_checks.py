"""Bad tables are refused on one line that names place, column, rule and rows, never a value."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from data_cases import mixed
from fedcohort.data.check.checks import check_column, check_sites, check_table
from fedcohort.data.outcome import Binary, Category, Continuous, Count, Survival
from fedcohort.data.read.drafting import draft
from fedcohort.protocol import DataError

OUTCOME = Survival("time", "event")


def refusal(check, *args, **options):
    with pytest.raises(DataError) as error:
        check(*args, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def changed(column, rows, value):
    frame = mixed(20, 0).astype({column: object})
    frame.loc[[r - 1 for r in rows], column] = value
    return frame


@pytest.mark.parametrize(
    ("column", "rows", "value", "expected"),
    [
        ("time", [3], 0, "column 'time' is not above 0 in row 3."),
        ("time", [3, 7], -41.5, "column 'time' is not above 0 in rows 3, 7."),
        ("time", [1], np.nan, "column 'time' is missing in row 1."),
        ("time", [2], "41 days", "column 'time' holds no number in row 2."),
        ("time", [2], np.inf, "column 'time' is infinite in row 2."),
        ("event", range(1, 9), 41, "neither 0 nor 1 in rows 1, 2, 3, 4, 5, … (8 rows)."),
        ("event", [4], None, "column 'event' is missing in row 4."),
        ("event", [4], "yes", "column 'event' holds no number in row 4."),
    ],
)
def test_impossible_outcomes_are_named_by_row(column, rows, value, expected):
    said = refusal(check_table, changed(column, rows, value), OUTCOME, "north.csv")
    assert said.startswith("north.csv: ")
    assert expected in said
    assert "41" not in said


def test_a_sound_table_passes_with_events_as_bool_too():
    frame = mixed(20, 0)
    check_table(frame, OUTCOME, "a", draft(frame, OUTCOME))
    check_table(frame.assign(event=frame["event"] == 1), OUTCOME, "a")
    check_table(frame, None, "a")


def test_a_missing_column_names_the_nearest():
    frame = mixed(20, 0).rename(columns={"time": "tiem"})
    assert "no column 'time' among 7 columns. Did you mean 'tiem'?" in refusal(
        check_table, frame, OUTCOME, "a.csv"
    )
    assert refusal(check_column, frame, "time", "a.csv").startswith("a.csv: there is no column")


def test_columns_of_the_dictionary_are_checked_too():
    frame = mixed(20, 0)
    dictionary = draft(frame, OUTCOME)
    said = refusal(check_table, frame.drop(columns="age"), OUTCOME, "a", dictionary)
    assert "no column 'age'" in said
    said = refusal(check_table, changed("grade", [5], "Jane"), OUTCOME, "a", dictionary)
    assert "column 'grade' has a level outside the 3" in said
    assert "Jane" not in said


def test_an_empty_table_is_refused():
    assert "a: there are no rows" in refusal(check_table, mixed(3, 0).iloc[:0], OUTCOME, "a")


@pytest.mark.parametrize(
    ("outcome", "values", "expected"),
    [
        (Binary("y"), [1, 2, 3], "column 'y' has more than two levels; a binary outcome has two"),
        (Binary("y"), [1, None, 2], "column 'y' is missing in row 2"),
        (Category("y"), ["a", "b", None], "column 'y' is missing in row 3"),
        (Continuous("y"), [1.0, np.inf, 2], "column 'y' is infinite in row 2"),
        (Count("y"), [1, 2, -3], "column 'y' is no count in row 3"),
        (Count("y"), [1, 2.5, 3], "column 'y' is no count in row 2"),
    ],
)
def test_targets_of_every_kind_are_checked(outcome, values, expected):
    assert expected in refusal(check_table, pd.DataFrame({"y": values}), outcome, "a")


def test_no_sites_are_refused():
    assert refusal(check_sites, {}, OUTCOME).startswith("there are no sites")


def test_a_natural_site_needs_two_rows_and_an_event():
    frame = mixed(20, 0)
    one = {"north": frame, "south": frame.iloc[:1]}
    assert "site 'south' has 1 row" in refusal(check_sites, one, OUTCOME)
    calm = {"north": frame, "south": frame.assign(event=0)}
    assert "site 'south' has no event in column 'event' among 20 rows" in refusal(
        check_sites, calm, OUTCOME
    )


def test_a_made_site_may_be_small_but_somebody_must_have_an_event():
    frame = mixed(20, 0)
    check_sites(
        {"a": frame, "b": frame.iloc[:1], "c": frame.assign(event=0)}, OUTCOME, strict=False
    )
    calm = {"a": frame.assign(event=0)}
    assert "no site has an event" in refusal(check_sites, calm, OUTCOME, strict=False)
