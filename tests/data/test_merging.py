"""One dictionary of several sites' drafts: what agrees is kept, conflicts name column and sites."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.outcome import Survival
from fedcohort.data.read.merging import marked, merge

OUTCOME = Survival("os_days", "dead")
ENDS = {"os_days": {"type": "time", "unit": "days"}, "dead": "event"}


def merged(*columns, outcome=OUTCOME):
    """Merge drafts of sites a, b, c … that say this of a column x, and agree on the outcome."""
    drafts = {
        site: Dictionary.from_dict(({} if spec is None else {"x": spec}) | ENDS)
        for site, spec in zip("abcdef", columns, strict=False)
    }
    found = merge(drafts, outcome)
    return found.dictionary["x"], found.notes["x"], list(found.conflicts)


@pytest.mark.parametrize(
    ("columns", "kind", "note"),
    [
        (("integer", "number"), "number", "integer at a; number at b"),
        (("binary", "integer", "binary"), "integer", "binary at a, c; integer at b"),
        (("binary", "number"), "number", "binary at a; number at b"),
        (({"type": "number", "description": "no values"}, "date"), "date", "empty at a"),
    ],
)
def test_types_that_go_together_are_reconciled(columns, kind, note):
    v, said, conflicts = merged(*columns)
    assert v.type == kind
    assert note in said
    assert not conflicts


@pytest.mark.parametrize(
    ("columns", "kind", "conflict"),
    [
        (("number", "text", "number"), "number", "it is number at a, c; text at b"),
        (("date", "text"), "date", "it is date at a; text at b"),
        (({"type": "category", "levels": ["1", "2"]}, "integer"), "integer",
         "it is category at a; integer at b"),
        (("binary", {"type": "binary", "levels": ["no", "yes"]}), "category",
         "levels are '0' and '1' at a; 'no' and 'yes' at b"),
        (({"type": "number", "unit": "g/dL"}, {"type": "number", "unit": "mmol/L"},
          {"type": "number", "unit": "g/dl"}), "number",
         "unit is g/dL at a; mmol/L at b; g/dl at c"),
        (({"type": "number", "range": [0, 1]}, {"type": "number", "range": [20, 60]}), "number",
         "range is 0 to 1 at a; 20 to 60 at b: other units?"),
        (({"type": "date", "since": "2015-01-31"}, {"type": "date", "since": "2016-01-31"}), "date",
         "since is 2015-01-31 at a; 2016-01-31 at b"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_a_conflict_with_its_sites(columns, kind, conflict):
    v, said, conflicts = merged(*columns)
    assert v.type == kind
    assert conflicts == [f"column 'x': {conflict}"]
    assert said.startswith(f"check: {conflict}")


def test_levels_of_all_sites_are_taken_and_those_of_one_alone_asked_about():
    v, said, conflicts = merged(
        {"type": "category", "levels": ["I", "II"]},
        {"type": "category", "levels": ["I", "II", "III"]},
        {"type": "category", "levels": ["I", "ii"]},
    )
    assert v.levels == ("I", "II", "III", "ii")
    assert "'III' only at b; 'ii' only at c; 'II' and 'ii' differ in capitals" in said
    assert not conflicts


def test_an_order_that_a_site_gave_is_kept_and_a_missing_code_is_no_level():
    v, said, _ = merged(
        {"type": "category", "levels": ["low", "high"], "missing": ["unknown"]},
        {"type": "category", "levels": ["high", "low", "unknown"]},
    )
    assert v.levels == ("low", "high")
    assert v.missing == ("unknown",)
    assert "the levels' order; 'unknown': a missing code, or a level?" in said
    assert "'unknown' stands for a missing value at a alone" in said


def test_ranges_are_the_widest_and_units_that_one_site_lacks_are_asked_about():
    v, said, conflicts = merged(
        {"type": "number", "range": [0, 20], "unit": "g/dL"},
        {"type": "number", "range": [3, None], "unit": "g/dL"},
        "number",
    )
    assert (v.range, v.unit) == ((0.0, None), "g/dL")
    assert "no unit at c" in said
    assert not conflicts


def test_a_column_that_a_site_lacks_or_that_is_known_late_is_no_feature():
    v, said, _ = merged("number", None, "number")
    assert (v.feature, said) == (False, "check: not at b")
    assert not merged({"type": "number", "feature": False}, "number")[0].feature
    found = merge({s: Dictionary.from_dict({"hsct_day": "integer"} | ENDS) for s in "ab"}, OUTCOME)
    assert not found.dictionary["hsct_day"].feature
    assert found.notes["hsct_day"] == "check: is it the time of something later?"


def test_a_header_that_is_spelt_otherwise_stays_and_is_asked_about():
    drafts = {s: Dictionary.from_dict({"creatinine": "number"} | ENDS) for s in "abc"}
    drafts["c"] = Dictionary.from_dict({"creatinin": "number"} | ENDS)
    found = merge(drafts, OUTCOME)
    assert found.notes["creatinine"] == "check: not at c; is it 'creatinin' there?"
    assert found.conflicts[0] == "column 'creatinine': not at c; is it 'creatinin' there?"
    assert found.dictionary["creatinine"].feature


def test_outcomes_that_differ_are_a_conflict_and_most_drafts_decide():
    other = {"time": "time", "event": "event"}
    drafts = {s: Dictionary.from_dict({**ENDS, "age": "integer"}) for s in "ab"}
    drafts["c"] = Dictionary.from_dict({**other, "age": "integer"})
    assert marked(drafts.values()) == OUTCOME
    found = merge(drafts, OUTCOME)
    assert found.conflicts == (
        "the outcome is 'os_days' and 'dead' at a, b; 'time' and 'event' at c",
    )
    assert found.dictionary.outcome() == OUTCOME
    assert [v.name for v in found.dictionary.features(OUTCOME)] == ["age"]


VARIABLES = st.one_of(
    st.sampled_from([Variable("x", kind) for kind in ("number", "integer", "binary", "text",
                                                      "date")]),
    st.lists(st.sampled_from("abcd01"), min_size=1, unique=True).map(
        lambda levels: Variable("x", "category", tuple(levels))
    ),
    st.sampled_from([("0", "1"), ("n", "y"), ("b", "a")]).map(
        lambda levels: Variable("x", "binary", levels)
    ),
    st.builds(
        lambda kind, unit, ends, codes, flag: Variable(
            "x", kind, unit=unit, range=ends, missing=tuple(codes), identifier=flag
        ),
        st.sampled_from(["number", "integer"]),
        st.sampled_from(["", "g/dL", "mmol/L"]),
        st.sampled_from([(None, None), (0.0, None), (0.0, 1.0), (5.0, 9.0)]),
        st.lists(st.sampled_from(["-9", "unknown", "0", "a"]), unique=True),
        st.booleans(),
    ),
)  # fmt: skip


@given(st.lists(VARIABLES, min_size=1, max_size=5))
def test_whatever_sites_say_the_dictionary_loads_and_alike_drafts_are_kept(variables):
    drafts = {str(i): Dictionary({"x": v}) for i, v in enumerate(variables)}
    found = merge(drafts)
    assert Dictionary.from_dict(found.dictionary.to_dict()) == found.dictionary
    same = merge({site: Dictionary({"x": variables[0]}) for site in "ab"})
    assert same.dictionary["x"] == variables[0]
    assert not same.conflicts
    levels = {level for v in variables for level in v.levels}
    if (x := found.dictionary["x"]).levels:
        assert levels - {*x.missing} <= {*x.levels}
