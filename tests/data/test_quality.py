"""Everything that is wrong with a table is found at once, with its rows and what to do."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.data.check import ERROR, WARNING, Sheet, errors, examine, with_outcome
from fedcohort.data.check.cells import number_remedies
from fedcohort.data.check.patients import equal_rows
from fedcohort.data.dictionary import Dictionary
from fedcohort.data.encode import Encoding
from fedcohort.data.outcome import Binary, Category, Ordered, Survival
from fedcohort.data.read.canonical import canonical
from fedcohort.protocol import DataError

DICTIONARY = Dictionary.from_dict(
    {
        "pid": {"type": "text", "identifier": True},
        "age": {"type": "integer", "range": [18, 110], "unit": "years", "missing": ["-9"]},
        "hb": {"type": "number", "unit": "g/dl"},
        "grade": {"type": "category", "levels": ["I", "II", "III"]},
        "birth": "date",
        "seen": {"type": "date", "since": "birth", "unit": "years"},
        "time": "time",
        "event": "event",
    }
)
OUTCOME = Survival("time", "event")


def table(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    birth = pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 9000, n), unit="D")
    seen = birth + pd.to_timedelta(rng.integers(9000, 18000, n), unit="D")
    return pd.DataFrame(
        {
            "pid": [f"p{i}" for i in range(n)],
            "age": rng.integers(20, 90, n).astype(object),
            "hb": np.round(rng.normal(13.5, 1.2, n), 1),
            "grade": rng.choice(["I", "II", "III"], n).astype(object),
            "birth": birth.astype(str).to_numpy(object),
            "seen": seen.astype(str).to_numpy(object),
            "time": np.ceil(rng.exponential(900, n)).astype(object),
            "event": np.arange(n) // 2 % 2,
        }
    )


def changed(**cells: dict[int, object]) -> pd.DataFrame:
    """Return the table with cells changed: column → {row from 1: value}."""
    frame = table()
    for column, rows in cells.items():
        frame[column] = frame[column].astype(object)
        for row, value in rows.items():
            frame.loc[row - 1, column] = value
    return frame


def found(frame, dictionary=DICTIONARY, outcome=OUTCOME, **options):
    about = with_outcome(dictionary, outcome)
    sheets = [Sheet(canonical(frame, about), "t.csv", **options)]
    return examine(sheets, about, outcome)


def rules(findings):
    return [(f.rule, f.column, f.rows, f.severity) for f in findings]


def test_a_sound_table_has_no_findings():
    assert found(table()) == []


@pytest.mark.parametrize(
    ("cells", "rule", "severity"),
    [
        ({"age": {3: "fifty", 9: "x"}}, "number", ERROR),
        ({"age": {3: 40.5}}, "whole", ERROR),
        ({"age": {3: 17, 5: 111}}, "range", ERROR),
        ({"hb": {4: np.inf}}, "finite", ERROR),
        ({"hb": {4: -2e120}}, "finite", ERROR),
        ({"time": {4: 2e120}}, "finite", ERROR),
        ({"grade": {2: "IV"}}, "levels", ERROR),
        ({"birth": {2: "12.03.1950"}}, "date", ERROR),
        ({"birth": {2: "1899-12-31"}}, "past", WARNING),
        ({"seen": {2: "2199-12-31"}}, "future", WARNING),
        ({"time": {2: 0, 3: -1}}, "time", ERROR),
        ({"time": {2: None}}, "missing", ERROR),
        ({"event": {2: 2}}, "event", ERROR),
        ({"event": {2: None}}, "missing", ERROR),
        ({"pid": {7: "p3"}}, "identifier", ERROR),
        ({"pid": {7: None}}, "missing", WARNING),
        ({"hb": dict.fromkeys(range(1, 61))}, "empty", WARNING),
        ({"hb": dict.fromkeys(range(1, 61), 13.0)}, "constant", WARNING),
        ({"hb": {i: 135.0 + i for i in range(5, 11)}}, "mixed units", WARNING),
    ],
)
def test_each_rule_names_its_column_and_rows(cells, rule, severity):
    (column, rows), *_ = cells.items()
    (finding,) = [f for f in found(changed(**cells)) if f.rule != "equal rows"]
    assert (finding.rule, finding.column, finding.severity) == (rule, column, severity)
    wanted = (4, 7) if rule == "identifier" else tuple(rows)
    assert finding.rows == (() if rule in ("empty", "constant") else wanted)
    assert finding.line.startswith("t.csv: column ")


def test_a_column_is_constant_only_where_no_other_table_holds_another_value():
    one, other = changed(hb=dict.fromkeys(range(1, 61), 13.0)), table()
    sheets = [
        Sheet(canonical(frame, DICTIONARY), f"{i}.csv") for i, frame in enumerate([one, other])
    ]
    assert "constant" not in [f.rule for f in examine(sheets, DICTIONARY, OUTCOME)]
    (finding,) = [f for f in examine([sheets[0]] * 2, DICTIONARY, OUTCOME) if f.rule == "constant"]
    assert (finding.file, finding.column) == ("", "hb")


def test_a_date_before_the_one_it_counts_from_is_strange_unless_a_range_allows_it():
    early = changed(seen={5: "1940-01-01"})
    assert [(f.rule, f.rows) for f in found(early)] == [("order", (5,))]
    spec = DICTIONARY.to_dict()["variables"]
    spec["seen"]["range"] = [-50, 60]
    assert found(early, Dictionary.from_dict(spec)) == []
    spec["seen"]["range"] = [0, 60]
    (finding,) = found(early, Dictionary.from_dict(spec))
    assert (finding.rule, finding.rows, finding.severity) == ("range", (5,), ERROR)


def test_dates_are_in_the_future_from_tomorrow():
    today = datetime.date.today()
    assert found(changed(seen={2: str(today)})) == []


@pytest.mark.parametrize(
    ("cell", "remedy"),
    [
        ("12,5", "Write decimals with a point"),
        ("1.234,5", "Write decimals with a point"),
        ("1,234.5", "Write decimals with a point"),
        ("12 g/dl", "Take units out of the cells"),
        ("12.5%", "Take units out of the cells"),
        ("<0.5", "Take the sign of a detection limit out"),
        ("twelve", "Correct or empty them."),
        ("120/80", "Correct or empty them."),
    ],
)
def test_the_remedy_fits_the_form_of_the_cell_which_is_not_repeated(cell, remedy):
    (finding,) = found(changed(hb={3: cell}))
    assert finding.remedy.startswith(remedy)
    assert cell not in finding.line


def test_of_a_column_of_decimal_commas_the_rows_with_a_point_are_named():
    """110 rows were called no numbers, and the one with a point, the fault, was not."""
    cells = pd.Series([f"{i},5" for i in range(9)] + ["61.5", "sixty", "7,25", "62.5"])
    broken = ~np.isin(np.arange(13), [9, 12])
    told = number_remedies(cells, broken, "Correct or empty them.")
    assert [np.flatnonzero(rows).tolist() for rows in told.values()] == [[*range(9), 11], [10]]
    said = "These have decimal commas, and rows 10, 13 a decimal point: write all cells of a"
    assert next(iter(told)).startswith(said)


@pytest.mark.parametrize("cell", ["ii", "I I", "\u00a0iii", "Ⅲ"])
def test_a_level_that_is_spelt_differently_is_told_from_an_unknown_one(cell):
    both = found(changed(grade={3: cell, 4: "V"}))
    assert [(f.rows, "capitals" in f.remedy) for f in both] == [((3,), True), ((4,), False)]


def test_all_findings_come_at_once_in_the_order_of_the_dictionary():
    frame = changed(age={3: "x"}, grade={4: "V"}, time={5: 0}, pid={9: "p0"})
    assert rules(found(frame)) == [
        ("number", "age", (3,), ERROR),
        ("levels", "grade", (4,), ERROR),
        ("time", "time", (5,), ERROR),
        ("identifier", "pid", (1, 9), ERROR),
    ]


def test_headers_are_held_against_the_dictionary():
    frame = table().rename(columns={"age": "aeg"}).assign(gradee=1, other=2, another=3)
    said = [f.line for f in found(frame)]
    assert said[0] == "t.csv: there is no column 'age' among 11 columns. Did you mean 'aeg'?"
    assert "column 'gradee' is not in the dictionary. The nearest name there is 'grade'" in said[1]
    assert (
        "2 columns are not in the dictionary: 'other' (at position 10), 'another' (at position 11)."
    ) in said[2]
    twice = pd.concat([table(), table()[["age"]]], axis=1)
    assert rules(found(twice)) == [("repeated column", "age", (), ERROR)]


def test_a_line_in_which_few_names_are_known_may_be_a_patient_and_is_told_by_positions():
    frame = table()
    frame.columns = ["age", *(f"Jane Doe {i}" for i in range(1, frame.shape[1]))]
    said = [f.line for f in found(frame)]
    assert not any("Jane" in line for line in said), said
    assert any("not in the dictionary: at position 2, at position 3" in x for x in said), said


def test_without_a_header_no_cell_is_taken_for_a_name():
    frame = table()
    frame.columns = frame.iloc[0].astype(str)
    (finding,) = found(frame)
    assert finding.rule == "header"
    assert "none of the 8 columns of the dictionary is among the 8 here" in finding.line


def test_positions_and_rows_are_those_of_the_file():
    frame = table().assign(extra=1)
    frame.insert(2, "hospital", ["n", "s"] * 30)
    about = with_outcome(DICTIONARY, OUTCOME)
    sheet = Sheet.by_column(canonical(frame, about), "t.csv", "hospital", about.variables)
    (finding,) = examine([sheet], about, OUTCOME)
    assert "column 'extra' (at position 10) is not in the dictionary" in finding.line
    late = sheet.only(np.arange(60) >= 20)
    late.frame.loc[4, "time"] = -1.0
    (_, wrong) = examine([late], about, OUTCOME)
    assert wrong.rows == (25,)


def test_identifiers_repeat_within_a_site_not_across_sites_and_groups_may():
    frame = table().assign(pid=[f"p{i // 2}" for i in range(60)])
    assert errors(found(frame, site=np.array(["n", "s"] * 30, object))) == []
    (finding,) = found(frame)
    assert (finding.rule, finding.n_rows) == ("identifier", 60)
    assert found(frame.assign(pid=["a", "b", "c"] * 20)) == []


@given(
    st.integers(1, 40).flatmap(
        lambda n: st.lists(
            st.lists(st.sampled_from([0.0, 1.0, np.nan, "a", "b"]), min_size=n, max_size=n),
            min_size=1, max_size=5,
        )
    )
)  # fmt: skip
def test_equal_rows_are_those_of_pandas(columns):
    frame = pd.DataFrame(dict(enumerate(columns)))
    assert (equal_rows(frame) == frame.duplicated(keep=False)).all()


def test_sites_need_two_rows_and_an_event_and_are_named():
    site = np.array(["north"] * 30 + ["south"] * 25 + ["Ely"] + ["west"] * 4, object)
    frame = table().assign(event=[1] * 30 + [0] * 25 + [1] * 1 + [0] * 4)
    said = [f.line for f in found(frame, site=site)]
    assert [line.partition(";")[0] for line in said] == [
        "t.csv: site 'Ely' has 1 row",
        "t.csv: site 'south' has no event in column 'event' among 25 rows. A model cannot "
        "be fitted there. A study leaves it out, or joins it with other sites (data.sites).",
        "t.csv: site 'west' has no event in column 'event' among 4 rows. A model cannot "
        "be fitted there. A study leaves it out, or joins it with other sites (data.sites).",
    ]


def test_a_level_that_one_site_has_alone_is_told_and_named_where_it_is_not_rare():
    site = np.array(["a", "b", "c"] * 40, object)
    frame = table(120)
    frame["grade"] = np.where(np.arange(120) % 2, "I", "II")
    said = found(frame, site=site)
    assert [f.rule for f in said] == []
    for n, named in ((6, ": 'III'"), (4, "")):
        with_third = frame.assign(
            grade=frame["grade"].where(~((site == "b") & (np.arange(120) < 3 * n)), "III")
        )
        (finding,) = found(with_third, site=site)
        assert finding.rule == "site level"
        assert f"has 1 level at one of 3 sites alone{named}. Its effect" in finding.line


def test_a_site_in_another_unit_is_named():
    site = np.array((["north"] * 3 + ["south"]) * 60, object)
    frame = table(240)
    frame["hb"] *= np.where(site == "south", 10, 1)
    (finding,) = found(frame, site=site)
    assert (finding.rule, finding.site, finding.rows) == ("site units", "south", ())
    assert "'hb' at site 'south' looks like g/l where the other" in finding.line


def test_rows_in_another_unit_are_said_with_their_site():
    site = np.array((["north"] * 3 + ["south"]) * 60, object)
    frame = table(240)
    mixed = (site == "south") & (np.arange(240) % 8 == 7)
    frame["hb"] *= np.where(mixed, 10, 1)
    (finding,) = found(frame, site=site)
    assert "'hb' may be in two units at site 'south': a factor near 10" in finding.line
    alone = found(frame[site == "south"].reset_index(drop=True))[0].line
    assert "may be in two units: a factor" in alone, (
        "the only table has no other name than its file"
    )


@pytest.mark.parametrize(
    ("outcome", "spec", "values", "rule"),
    [
        (Binary("y"), "binary", [0, 1, 2], "binary"),
        (Binary("y"), {"type": "category", "levels": ["a", "b"]}, ["a", "b", "c"], "levels"),
        (Binary("y"), None, ["a", "b", "c"], "classes"),
        (Binary("y"), None, ["a", "b", None], "missing"),
    ],
)
def test_outcomes_of_classes_follow_the_dictionary(outcome, spec, values, rule):
    dictionary = None if spec is None else Dictionary.from_dict({"y": spec})
    assert [f.rule for f in found(pd.DataFrame({"y": values}), dictionary, outcome)] == [rule]


CELLS = st.one_of(
    st.none(), st.floats(), st.integers(-3, 3), st.booleans(), st.text(max_size=3),
    st.sampled_from(["I", "II", "1", "1950-01-01", "nan", "-9"]), st.dates(),
)  # fmt: skip


@given(
    st.sampled_from(["age", "hb", "grade", "birth", "seen", "time"]), st.lists(CELLS, max_size=8)
)
def test_what_has_no_errors_can_be_encoded(column, values):
    frame = changed(**{column: dict(enumerate(values, 1))})
    form = canonical(frame, DICTIONARY)
    wrong = errors(examine([Sheet(form, "t")], DICTIONARY, OUTCOME, warnings=False))
    if not wrong:
        Encoding(DICTIONARY.features(OUTCOME))(form)


def test_a_missing_site_is_an_error_of_its_own():
    frame = table().assign(hospital="n")
    frame.loc[3, "hospital"] = None
    with pytest.raises(DataError, match="no site in column 'hospital', row 4"):
        Sheet.by_column(frame, "t.csv", "hospital", DICTIONARY.variables)


def between(*tables: pd.DataFrame) -> list[tuple[str, str, tuple[int, ...]]]:
    about = with_outcome(DICTIONARY, OUTCOME)
    sheets = [
        Sheet(canonical(t, about), f"{name}.csv", name)
        for name, t in zip("abc", tables, strict=False)
    ]
    found = examine(sheets, about, OUTCOME)
    assert not any("p17" in f.line for f in found), "an identifier is never said"
    return [(f.file, f.rule, f.rows) for f in found if f.rule in ("same patient", "equal tables")]


def test_an_identifier_at_two_sites_is_strange_and_named_by_its_rows_alone():
    one = table()
    other = table().sample(frac=1.0, random_state=1).reset_index(drop=True)
    other["pid"] = [f"q{i}" for i in range(len(other))]
    assert between(one, other) == []
    other.loc[[4, 8], "pid"] = ["p17", "p3"]
    assert between(one, other) == [
        ("a.csv", "same patient", (4, 18)),
        ("b.csv", "same patient", (5, 9)),
    ]
    other["pid"] = one["pid"] = np.resize(["ward 1", "ward 2"], len(one))
    assert between(one, other) == [], "groups of patients may be at any site"


def test_equal_tables_are_strange_and_their_patients_are_not_said_twice():
    assert between(table(), table()[table().columns[::-1]]) == [("b.csv", "equal tables", ())]


STAGES = Dictionary.from_dict(
    {
        "age": {"type": "integer", "unit": "years"},
        "stage": {"type": "category", "levels": ["I", "II", "III", "IV", "V"]},
    }
)


def staged(**counts: tuple[int, ...]) -> list[Sheet]:
    """Return a table a site, with so many rows of each stage."""
    rng = np.random.default_rng(0)
    sheets = []
    for site, n in counts.items():
        stage = np.repeat(np.array(STAGES["stage"].levels, object), n)
        frame = pd.DataFrame({"age": rng.permutation(999)[: len(stage)], "stage": stage})
        sheets.append(Sheet(canonical(frame, STAGES), f"{site}.csv", site))
    return sheets


@pytest.mark.parametrize("outcome", [Category("stage"), Ordered("stage")])
def test_classes_of_few_rows_and_classes_that_a_site_lacks_are_named(outcome):
    sheets = staged(a=(30, 20, 0, 2, 0), b=(30, 20, 0, 1, 0), c=(30, 0, 40, 0, 0))
    said = [f for f in examine(sheets, STAGES, outcome) if f.column == "stage"]
    assert {f.severity for f in said} == {WARNING}
    assert [(f.rule, f.what) for f in said] == [
        ("site class", "class 'II' of column 'stage' has no row at site 'c'"),
        ("site class", "class 'III' of column 'stage' occurs at site 'c' alone"),
        ("class rows", "class 4 of 5 of column 'stage' has 3 rows among 173"),
        ("site class", "class 4 of 5 of column 'stage' has no row at site 'c'"),
        ("class rows", "class 'V' of column 'stage' has no row among 173"),
    ]


def test_classes_with_rows_enough_at_every_site_have_no_finding():
    sheets = staged(a=(30, 20, 20, 20, 20), b=(30, 20, 10, 5, 5))
    assert examine(sheets, STAGES, Category("stage")) == []
    (alone,) = staged(a=(30, 20, 20, 20, 9))
    whole = Sheet(alone.frame, "t.csv")
    (few,) = examine([whole], STAGES, Category("stage"))
    assert (few.rule, few.what) == ("class rows", "class 'V' of column 'stage' has 9 rows among 99")
    assert not examine(sheets, STAGES, None)
