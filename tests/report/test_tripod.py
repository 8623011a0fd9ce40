import re
from pathlib import Path

import pytest

from fedcohort.report.hidden_counts import HIDDEN, count_in, holes
from fedcohort.report.page import SECTIONS
from fedcohort.report.run import Run, read
from fedcohort.report.sections import settings as section
from fedcohort.report.tripod.items import FILLED, ITEMS, PART, WRITE, checklist
from report import depth, synthetic

#: The parts of Collins et al. 2024, table 2: 27 items, 52 with their parts.
PARTS = {3: "abc", 5: "ab", 6: "abc", 8: "abc", 9: "abc", 12: "abcdefg", 18: "abcdef", 20: "abc",
         23: "ab", 27: "abc"}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return read(synthetic.make(tmp_path_factory.mktemp("run"), scenarios=["iid"], repeats=2))


def states(run):
    return {line.number: line.state for line in checklist(run)}


def without(run, *keys):
    return Run({k: v for k, v in run.results.items() if k not in keys}, run.folder)


def test_the_list_has_the_27_items_and_52_parts_of_the_statement():
    expected = [f"{i}{p}" for i in range(1, 28) for p in PARTS.get(i, [""])]
    assert len(expected) == 52
    assert [i.number for i in ITEMS] == expected


def test_an_empty_run_fills_nothing():
    assert set(states(Run({"schema": 1}, Path())).values()) == {WRITE}


def test_what_only_a_person_knows_is_never_filled(run):
    found = states(run)
    for number in ("2", "3a", "3b", "3c", "5b", "6c", "8b", "8c", "9c", "14", "17", "18a", "18b",
                   "18c", "18d", "18e", "19", "24", "25", "27b", "27c"):  # fmt: skip
        assert found[number] == WRITE


def test_arms_that_fill_or_weigh_rows_in_their_own_way_are_named(run):
    def answer(number, **settings):
        declared = [
            {"arm": "a", "title": "Cox", "method": "cox", "settings": {"impute": "median"}},
            {"arm": "b", "title": "Trees", "method": "boosting", "settings": settings},
        ]
        kind = {"task": "classification", "outcome": {"kind": "classification"}}
        changed = Run({**run.results, **kind, "declared": declared}, run.folder)
        return next(line.text for line in checklist(changed) if line.number == number)

    assert "imputation: median (Cox), none (Trees), fitted" in answer("11", impute="none")
    assert "imputation: median, fitted" in answer("11", impute="median")
    assert "all classes count alike: Trees." in answer("13", class_weight="balanced")
    assert answer("13", class_weight="none") == "None was used."
    said = "fills missing values as in the fit"
    assert answer("27a", impute="none").endswith(f"{said}; Trees takes them as missing.")
    assert answer("27a", impute="median").endswith(f"{said}.")


def test_missing_values_that_every_model_takes_are_not_said_to_be_filled(run):
    trees = {"arm": "b", "title": "Trees", "method": "boosting", "settings": {"impute": "none"}}
    changed = Run({**run.results, "declared": [trees]}, run.folder)
    (said,) = (line.text for line in checklist(changed) if line.number == "27a")
    assert "fills" not in said
    assert said.endswith("leaves missing values to the model, as in the fit.")


@pytest.mark.parametrize(
    ("key", "numbers"),
    [
        ("cohort", ["11", "20a", "20b"]),
        ("evaluate", ["12a", "16", "20c"]),
        ("heterogeneity", ["23b"]),
        ("data", ["21"]),
        ("task", ["15"]),
        ("command", ["18f"]),
        ("versions", ["18f"]),
    ],
)
def test_no_item_is_filled_when_what_it_rests_on_is_absent(run, key, numbers):
    assert {states(run)[n] for n in numbers} == {FILLED}
    assert not [n for n in numbers if states(without(run, key))[n] == FILLED]


@pytest.mark.parametrize("key", sorted(synthetic.KEYS))
def test_without_a_key_no_more_is_filled_than_with_it_and_no_answer_is_broken(run, key):
    full, fewer = states(run), states(without(run, key))
    rank = {WRITE: 0, PART: 1, FILLED: 2}
    assert not [n for n in full if rank[fewer[n]] > rank[full[n]]]
    for line in checklist(without(run, key)):
        assert "None" not in line.text.replace("None was used", "").replace("None: both", "")
        assert "nan" not in line.text.split()


def told_missing(run, **counts):
    """Return item 11 of a run whose columns have these missing values over all sites."""
    described = depth.cohort(["a", "b"])
    for v in described["variables"]:
        if v["name"] in counts:
            v["missing"] = counts[v["name"]] if v["site"] is None else None
    found = Run({**run.results, "cohort": described}, run.folder)
    (line,) = (x for x in checklist(found) if x.number == "11")
    return line.text


def test_a_hidden_number_of_missing_values_is_never_counted_as_missing(run):
    said = told_missing(run, age=None)
    assert said.startswith("3 of 6 columns have missing values; for 1 more the count is hidden (T")
    assert "Left out: excluded: outcome is missing: rows of hidden number." in said


def test_a_column_has_missing_values_where_one_site_shows_some_and_the_total_is_hidden(run):
    described = depth.cohort(["a", "b"])
    shown = holes(described["variables"])
    for v in described["variables"]:
        if v["site"] is None:
            v["missing"] = None
    assert holes(described["variables"]) == (shown.some, 0, shown.columns - shown.some)


def test_where_all_counts_are_hidden_no_column_is_said_to_have_missing_values(run):
    names = {v["name"] for v in depth.cohort(["a"])["variables"]}
    said = told_missing(run, **dict.fromkeys(names))
    assert said.startswith("How many values are missing is hidden in all of 6 columns (Table 1)")


@pytest.mark.parametrize(
    "read", [lambda n: n > 0, lambda n: n + 1, lambda n: sum([n]), bool, int, lambda n: n or 0]
)
def test_a_hidden_count_cannot_be_taken_for_a_number(read):
    with pytest.raises(TypeError):
        read(count_in({"missing": None}, "missing"))


def test_a_count_that_the_file_does_not_have_is_not_a_hidden_one():
    assert count_in({}, "missing") is None
    assert count_in({"missing": 0}, "missing") == 0
    assert count_in({"missing": None}, "missing") is HIDDEN


def test_the_section_counts_its_states(run):
    made = section.tripod(run)
    found = list(states(run).values())
    n = {s: found.count(s) for s in (FILLED, PART, WRITE)}
    assert f"fills {n[FILLED]} and begins {n[PART]}; {n[WRITE]} are a person's" in made.intro
    assert made.body.count("<tr>") == 53


def test_sections_that_the_list_points_to_stand_in_the_page_by_that_name(run):
    named = {s.short for make in SECTIONS if (s := make(run)) is not None}
    said = " ".join(line.text for line in checklist(run))
    pointed = [w for part in re.findall(r"[Ss]ections? ([A-Z][^.;]*?)(?:, with|[.;])", said)
               for w in re.split(r", | and ", part)]  # fmt: skip
    assert {"The gap", "Discrimination", "Calibration", "Coefficients", "Cohort"} <= {*pointed}
    assert {*pointed} <= named


def test_a_study_of_values_promises_no_follow_up(run):
    values = Run({**run.results, "task": "regression"}, run.folder)
    (line,) = (x for x in checklist(values) if x.number == "20a")
    assert line.text == "Section Cohort; the outcome in Table 1."
    assert "follow-up" in next(x for x in checklist(run) if x.number == "20a").text
