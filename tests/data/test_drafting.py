"""A draft guesses what a careful reader of the table would, and asks where it cannot know."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedcohort.data.dictionary import Variable
from fedcohort.data.outcome import Binary, Survival
from fedcohort.data.read import drafting, hints
from fedcohort.protocol import DataError

N = 200


def guess(values, name="x", **more):
    (found,) = drafting.guesses(pd.DataFrame({name: values}), **more)
    return found


def ages():
    return np.random.default_rng(0).normal(65, 8, N).round()


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("age_years", "years"), ("ageYears", "years"), ("age", "years"), ("os_days", "days"),
        ("hb_g_dl", "g/dL"), ("hb (g/dL)", "g/dL"), ("crea [µmol/L]", "µmol/L"), ("blast_pct", "%"),
        ("weight.kg", "kg"), ("bp_mmHg", "mmHg"), ("grade", ""), ("mystage", ""), ("!", ""),
    ],
)  # fmt: skip
def test_units_are_read_from_names(name, unit):
    assert hints.unit(name) == unit


def test_ranges_come_from_units_and_never_from_the_table():
    assert guess(ages(), "age").variable.range == (0.0, 120.0)
    assert guess(np.linspace(3.7, 88, N), "blast_pct").variable.range == (0.0, 100.0)
    assert guess(np.linspace(3.7, 188, N), "blast_pct").variable.range == (None, None)
    assert guess(np.linspace(3.7, 18, N), "hb_g_dl").variable.range == (None, None)


@pytest.mark.parametrize("code", [-9.0, -99.0, 0.0, 999.0, 9999.0])
def test_codes_far_from_the_others_are_asked_about_and_not_applied(code):
    found = guess(np.append(ages(), code), "age")
    assert found.variable.missing == ()
    assert f"missing values? then missing: [{code:g}]" in found.comment


def test_numbers_that_belong_to_the_others_are_not_taken_for_codes():
    counts = np.random.default_rng(1).poisson(3, N).astype(float)
    for values in (counts, ages() - 60, np.arange(N) * 1.0, ages() * 100 - 5000):
        assert "missing values" not in guess(values).comment


def test_words_among_numbers_become_missing_codes():
    found = guess([*map(str, ages()), "unknown", "?"])
    assert found.variable == Variable("x", "integer", missing=("?", "unknown"))


def test_a_column_mostly_of_numbers_is_one_and_its_faults_are_left_to_the_check():
    found = guess([*map(str, ages()), "14 mm"])
    assert found.variable == Variable("x", "integer")
    assert "14" not in found.comment


def test_few_whole_numbers_may_be_codes():
    found = guess(np.tile([1.0, 2.0, 3.0, 4.0], 50))
    assert found.variable.type == "integer"
    assert found.comment == "check: codes? then {type: category, levels: [1, 2, 3, 4]}"


@pytest.mark.parametrize(
    ("values", "variable", "comment"),
    [
        (["2015-01-31", "2016-02-01"] * 9, Variable("x", "date"), "since: another date"),
        (["31.1.2015", "1.2.2016"] * 9, Variable("x", "text"), "write them as 2015-01-31"),
        ([f"p{i}" for i in range(N)], Variable("x", "text", identifier=True), "names a person"),
        (["a", "b"] * 9, Variable("x", "category", ("a", "b")), ""),
        (["a", "b", "."] * 9, Variable("x", "category", ("a", "b"), missing=(".",)), ""),
        (["a", "unknown"] * 9, Variable("x", "category", ("a", "unknown")), "move to missing"),
        (["a"] * 9 + ["b"], Variable("x", "category", ("a", "b")), "fewer than 5 rows"),
        (["01", "02"] * 9, Variable("x", "category", ("01", "02")), ""),
        ([True, False] * 9, Variable("x", "binary"), ""),
        ([None] * 9, Variable("x", "number", description="no values"), "it is empty"),
        (
            ["train", "test"] * 9,
            Variable("x", "category", ("test", "train"), feature=False),
            "divi",
        ),
        ([1.5] + [None] * 9, Variable("x", "number"), "empty in about 90% of the rows"),
    ],
)
def test_types_and_what_to_check(values, variable, comment):
    found = guess(values)
    assert found.variable == variable
    assert comment in found.comment
    assert comment or not found.comment


def test_row_numbers_and_parts_of_identifiers_are_no_features():
    for name in ("Unnamed: 0", "id_batch"):
        assert not guess(np.arange(N) % 50, name).variable.usable
    assert guess(np.arange(N), "patient_id").variable.identifier


@pytest.mark.parametrize("name", ["patient", "patient_id", "pid", "MRN", "subject", "case_no"])
def test_a_number_that_stands_twice_still_names_a_patient(name):
    texts = [f"p{i}" for i in [*range(N), 3]]
    for cells in ([*np.arange(N), 33], [*(7 * np.arange(N)), 7], texts):
        found = guess(cells, name)
        assert found.variable.identifier, cells[-1]
        assert found.comment == "check: names a person or a record, so it never enters a model"


def test_sites_may_all_count_their_patients_from_one():
    tables = [pd.DataFrame({"patient": np.arange(1, 41)}) for _ in range(5)]
    assert drafting.guesses(tables)[0].variable.identifier


def test_whatever_the_name_what_hardly_repeats_is_an_identifier_if_text_or_counted():
    twice = [*range(N), 5]
    assert guess(twice).variable.identifier
    assert guess([f"p{i}" for i in twice]).variable.identifier
    assert not guess([f"p{i // 2}" for i in twice]).variable.identifier
    far = guess(np.random.default_rng(3).permutation(N) * 37)
    assert not far.variable.identifier
    assert "hardly any value repeats: a person's number?" in far.comment


def test_measurements_and_groups_are_no_identifiers_whatever_they_are_called():
    rng = np.random.default_rng(4)
    assert not guess(rng.integers(20, 400, N), "platelets").variable.identifier
    assert not guess(rng.integers(30, 30_000, N), "nt_probnp").variable.identifier
    assert not guess(rng.integers(0, 9, N), "case").variable.identifier
    assert not guess(["a", "b"] * N, "patient").variable.identifier


def test_a_column_that_some_sites_lack_is_asked_about_with_the_name_that_they_may_use():
    common, west = pd.DataFrame({"creatinine": ages()}), pd.DataFrame({"creatinin": ages()})
    tables = {"north": common, "south": common.assign(stage=ages()), "west": west}
    said = {g.variable.name: g.comment for g in drafting.guesses(tables)}
    assert said == {
        "creatinine": "check: not at west; is it 'creatinin' there?",
        "creatinin": "check: only at west; did they mean 'creatinine'?",
        "stage": "check: only at south",
    }
    many = {f"h{i}": west if i < 9 else common for i in range(20)}
    assert drafting.guesses(many)[0].comment.startswith("check: only at h0, h1, h2 and 6 more; did")


def test_levels_that_differ_in_spelling_alone_are_named():
    found = guess(["II", "ii", "III", "no stage", "No  stage"] * 9)
    assert found.variable.levels == ("II", "III", "No  stage", "ii", "no stage")
    assert found.comment == (
        "check: 'II' and 'ii', 'No  stage' and 'no stage' differ in capitals or blanks alone"
    )


def survival_table():
    rng = np.random.default_rng(2)
    ends = {f"{k}_{c}": rng.exponential(3, N) + 0.01 if c == "years" else rng.integers(0, 2, N)
            for k in ("aml", "os") for c in ("years", "event")}  # fmt: skip
    return pd.DataFrame(
        {"age_years": ages(), "smoker": rng.integers(0, 2, N), "time_to_transplant": ages(), **ends}
    )


def test_a_survival_outcome_is_found_by_name_and_content():
    table = survival_table()
    assert drafting.survival_outcome([table]) == Survival("os_years", "os_event")
    assert drafting.survival_outcome([table[["age_years", "smoker"]]]) is None
    renamed = table.rename(columns={"os_years": "days", "os_event": "died"})
    pair = drafting.survival_outcome([renamed.drop(columns=["aml_years", "aml_event"])])
    assert pair == Survival("days", "died")


def test_what_is_known_too_late_is_no_feature():
    found = drafting.guesses(survival_table(), Survival("os_years", "os_event"))
    assert [g.variable.type for g in found[-2:]] == ["time", "event"]
    kept = [g.variable.name for g in found if g.variable.usable]
    assert kept == ["age_years", "smoker"]
    assert found[4].comment == "check: is it another outcome?"


def test_a_column_that_decides_the_class_is_no_feature():
    y = np.arange(N) % 2
    table = pd.DataFrame({"grade": np.where(y, 3.0, np.arange(N) // 2 % 2), "age": ages(), "y": y})
    assert drafting.class_column([table]) == "y"
    found = drafting.guesses(table, Binary("y"))
    assert [g.variable.feature for g in found] == [False, True, True]


def test_the_column_of_the_hospitals_is_found():
    table = pd.DataFrame({"x": np.arange(60), "hospital_id": np.arange(60) % 3, "site": "one"})
    assert drafting.site_column(table) == "hospital_id"
    assert drafting.site_column(table[["x", "site"]]) is None


def test_two_columns_of_one_name_are_an_error():
    with pytest.raises(DataError, match="several columns are called 'a'"):
        drafting.guesses(pd.DataFrame([[1, 2]], columns=["a", "a"]))


@pytest.mark.parametrize("names", [12, 20])
def test_texts_that_stand_once_are_remarks_and_not_levels_that_travel(names):
    said = [f"Jane Doe {i}, sister of the mayor" for i in range(names)]
    few = guess([*said, *[None] * (N - names)], "remark").variable
    assert (few.type, few.levels) == ("text", ())
    assert guess(said, "who").variable.levels == ()


def test_numbers_with_commas_limits_or_infinities_are_no_free_text():
    decimals = [f"{x:.1f}".replace(".", ",") for x in np.linspace(8, 16, N)]
    assert guess(decimals).variable.type == "number"
    assert guess(decimals).comment == ""
    doubtful = guess([f"{x:,}" for x in range(1001, 1001 + N)])
    assert doubtful.variable.type == "number"
    said = "check: do its commas mark decimals or thousands? write decimals with a point"
    assert doubtful.comment == said
    numbers = [f"{x:.2f}" for x in np.linspace(0.1, 9, N - 60)]
    limits = guess([*numbers, *["<0.1"] * 50, *["inf"] * 10])
    assert limits.variable.type == "number"
    assert limits.comment.endswith(
        "some cells hold no number; fedcohort data check names their rows"
    )
    assert guess(["1A", "2B", "3"] * 20).variable.type == "category"


NAMES = ("os_days", "dead", "hsct_day", "hsct", "cr_day", "cr", "crp_day", "crp", "transplant",
         "time_to_transplant_days")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *((n, "is it the time of something later") for n in (
            "hsct_day", "cr_day", "crp_day", "day_of_hsct", "hsctDate", "relapse months", "crDate",
        )),
        ("hsct", "is it known only later, as 'hsct_day' is"),
        ("cr", "is it known only later, as 'cr_day' is"),
        ("transplant", "is it known only later, as 'time_to_transplant_days' is"),
        *((n, "") for n in (
            "crp", "age_years", "symptom_days", "birth_day", "dose_mg_day", "packs_per_day",
            "day_of_week", "day", "date", "hb_day_1", "time_since_hsct", "prior_hsct_date",
            "admission_day", "date_of_admission", "cr_level", "transplant_age", "response",
        )),
    ],
)  # fmt: skip
def test_the_time_of_what_happens_later_is_asked_about_and_so_is_whether_it_did(name, said):
    for outcome in (Survival("os_days", "dead"), Binary("y")):
        assert hints.late(name, outcome, NAMES) == said


def test_a_draft_takes_no_feature_from_after_the_start():
    rng = np.random.default_rng(3)
    hsct = rng.random(N) < 0.4
    table = pd.DataFrame({"age": ages(), "hsct": hsct * 1.0, "os_days": rng.integers(9, 999, N),
                          "hsct_day": np.where(hsct, rng.integers(1, 99, N), np.nan),
                          "dead": rng.random(N) < 0.5})  # fmt: skip
    table["dead"] *= 1
    found = {g.variable.name: g for g in drafting.guesses(table, Survival("os_days", "dead"))}
    assert [n for n, g in found.items() if g.variable.usable] == ["age"]
    assert "the time of something later?" in found["hsct_day"].comment
