"""What the report says of a model: what tuning chose, columns with a role, its penalty."""

import pytest

from fedcohort.report import words
from fedcohort.report.modelling import particulars, tuned
from fedcohort.report.run import Run, read
from fedcohort.report.sections import coefficients, paper, settings
from report import synthetic


def rows(*values, name="penalty"):
    return [{"arm": "ridge", "chosen": {name: v}} for v in values]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (rows(0.1, 0.1), {"penalty": "0.1 (tuned)"}),
        (
            rows(0.1, 0.01, 0.1, 1.0, 0.1),
            {"penalty": "0.1 (tuned; in 3 of 5 choices, which go from 0.01 to 1)"},
        ),
        (
            rows("efron", "efron", "breslow", name="ties"),
            {"ties": "efron (tuned; in 2 of 3 choices, the others being breslow)"},
        ),
        ([*rows(0.1), {"arm": "ridge", "chosen": None}], {"penalty": "0.1 (tuned)"}),
        ([], {}),
    ],
)  # fmt: skip
def test_a_tuned_setting_shows_what_was_chosen_most_and_the_range(chosen, expected):
    assert tuned(chosen) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"offset": "", "weights": "", "l2": 0.0, "penalty": None}, []),
        ({"offset": "log_days", "weights": "w"}, ["offset log_days", "rows weighted by w"]),
        ({"strata": "centre"}, ["a baseline hazard for each level of centre"]),
        ({"baseline": "stratified", "l2": 0.01}, ["a baseline hazard for each site", "l2 0.01"]),
        (
            {"penalty": "auto", "rule": "bic"},
            ["penalty chosen by the Bayesian information criterion"],
        ),
        (
            {"penalty": "auto", "folds": "rows"},
            ["penalty chosen by cross-validation over folds of rows"],
        ),
        ({"penalty": "auto", "l1": 0.1, "l2": 0.0}, ["l1 0.1"]),
        (
            {"objective": "weibull", "rounds": 60, "learning_rate": 0.1, "max_depth": 3, "l2": 1.0,
             "increasing": ["age", "nodes"], "decreasing": [], "class_weight": "balanced"},
            ["objective weibull", "rounds 60", "learning rate 0.1", "max depth 3", "l2 1",
             "never falling in age and nodes", "classes weighted alike"],
        ),
        (
            {"strategy": "sums", "trees": 100, "depth": 10, "candidates": None},
            ["strategy sums", "trees 100", "depth 10"],
        ),
        ({"rounds": 30, "learning_rate": 0.01, "refined": "none"}, []),
        (
            {"refined": "sums"},
            ["columns placed as an image by REFINED (Bazgir et al. 2020; distances from sums)"],
        ),
    ],
)  # fmt: skip
def test_what_is_particular_about_a_model_is_named(given, expected):
    assert particulars(given, {}) == expected


def test_sizes_of_trees_that_were_tuned_are_named_once():
    given = {"objective": "auto", "rounds": 60, "learning_rate": 0.1, "max_depth": 3}
    found = particulars(given, {"max_depth": "2 (tuned)"})
    assert found == ["rounds 60", "learning rate 0.1", "max depth 2 (tuned)"]


def test_a_penalty_that_was_tuned_is_not_named_by_its_default():
    assert particulars({"penalty": 0.5}, {"penalty": "0.1 (tuned)"}) == ["penalty 0.1 (tuned)"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return read(synthetic.make(tmp_path_factory.mktemp("run"), scenarios=["iid"], repeats=2))


def changed(run, **change):
    return Run({**run.results, **change}, run.folder)


def declared(**given):
    return [{"arm": "cox", "title": "cox", "method": "cox", "role": "arm", "settings": given}]


def test_settings_show_the_choice_and_not_what_tuning_began_from(run):
    found = changed(
        run,
        declared=declared(l2=0.0, offset=""),
        tuning=[{"arm": "cox", "scenario": "iid", "repeat": 0, "chosen": {"l2": 0.25}}],
    )
    body = settings.settings(found).body
    assert "<dt>l2</dt><dd>0.25 (tuned)</dd>" in body
    assert "<dt>l2</dt><dd>0</dd>" not in body
    assert "<dt>offset</dt><dd>none</dd>" in body


def test_settings_name_the_columns_that_no_model_used(run):
    dropped = [
        {"arm": a, "scenario": "iid", "repeat": 0, "column": "flat", "reason": "constant"}
        for a in ("cox", "exact")
    ]
    expected = "Columns left out of the models: flat (constant)."
    assert expected in settings.settings(changed(run, dropped=dropped)).body
    assert "left out of the models" not in settings.settings(run).body
    many = [{**dropped[0], "column": f"p{j}", "reason": "no values"} for j in range(40)]
    body = settings.settings(changed(run, dropped=dropped + many)).body
    assert "Columns left out of the models: 40 (no values), 1 (constant)</summary>" in body
    assert "flat (constant), p0 (no values), p1 (no values)" in body


def test_a_study_without_events_says_nothing_of_them(run):
    data = {**run.results["data"], "events": None}
    assert (
        "<dt>events</dt>" not in settings.settings(changed(run, task="regression", data=data)).body
    )
    assert "<dt>events</dt><dd>hidden" in settings.settings(changed(run, data=data)).body


def test_the_methods_text_names_offset_strata_entry_and_penalty(run):
    given = {"offset": "log_days", "strata": "grade", "penalty": "auto"}
    outcome = {**run.results["outcome"], "entry": "enrolled"}
    body = paper.section(changed(run, declared=declared(**given), outcome=outcome, arms=[])).body
    assert (
        "cox (offset log_days, a baseline hazard for each level of grade, penalty chosen by "
        "cross-validation over folds of sites, or of rows where these are few)" in body
    )
    assert "at risk from when they came under observation (enrolled)" in body


def test_bars_are_said_to_be_intervals_only_where_there_are_some(run):
    whole = [c for c in run.results["coefficients"] if c["scenario"] == "iid"]
    bare = [{**c, "arm": "exact", "low": None, "high": None} for c in whole]
    assert "Bars are 95 % intervals" in coefficients.section(run).intro
    mixed = coefficients.section(changed(run, coefficients=[*whole, *bare]))
    assert "Bars, of arms that have them, are 95 % intervals" in mixed.intro
    assert mixed.body.count("this method gives no intervals") == 1
    assert "95 %" not in coefficients.section(changed(run, coefficients=bare)).intro


def test_empty_text_is_none():
    assert words.value("") == "none"
    assert words.value([]) == "none"
