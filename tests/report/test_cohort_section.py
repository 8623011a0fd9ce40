import base64
import csv
import io
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from fedcohort.report.run import Run
from fedcohort.report.sections import cohort, hospitals, model
from report import depth

SITES = [f"site-{i}" for i in range(1, 5)]


def run_with(described, **more):
    return Run({"schema": 1, "cohort": described, **more}, Path())


def tables(made):
    """Return each table as rows of texts."""
    return [
        [["".join(c.itertext()) for c in row] for row in table.iter("tr")]
        for table in ET.fromstring(made.body).iter("table")
    ]


def row(table, name, nth=0):
    return [r for r in table if r[0].strip() == name][nth][1:]


def variable(**known):
    blank = {
        "name": "x", "type": "number", "unit": "", "levels": [], "site": None, "n": 100,
        "missing": 0, "mean": None, "sd": None, "quartiles": None, "counts": {},
    }  # fmt: skip
    return blank | known


@pytest.fixture(scope="module")
def made():
    return cohort.section(run_with(depth.cohort(SITES)))


def test_the_flow_has_a_stage_a_row_and_a_site_a_column(made):
    flow, _ = tables(made)
    assert flow[0] == ["", "All hospitals", *SITES]
    assert [r[0] for r in flow[1:]] == [
        "Read", "Excluded: outcome is missing", "Analysed", "Training (first repeat)",
        "Test (first repeat)",
    ]  # fmt: skip
    assert row(flow, "Analysed") == ["344", "86", "86", "86", "86"]
    assert row(flow, "Test (first repeat)") == ["86", "–", "–", "–", "–"]


def test_what_a_site_hides_is_called_hidden_and_no_other_cell_says_more(made):
    flow, described = tables(made)
    assert row(flow, "Read") == ["hidden", "hidden", "92", "92", "92"]
    assert row(flow, "Excluded: outcome is missing") == ["hidden", "hidden", "6", "6", "6"]
    # 86 rows a site, 8 of them missing: 78 in two levels
    assert row(described, "yes") == ["hidden", "hidden", "39 (50 %)", "39 (50 %)", "39 (50 %)"]
    assert row(described, "missing") == ["hidden", "hidden", "8 (9 %)", "8 (9 %)", "8 (9 %)"]


def test_hidden_numbers_give_no_share():
    known = {"levels": ["a", "b"], "counts": {"a": 60, "b": None}, "missing": None}
    found = tables(cohort.section(run_with({"variables": [variable(**known)]})))[0]
    assert row(found, "a") == ["60"]
    assert row(found, "b") == row(found, "missing") == ["hidden"]


def test_shares_are_of_those_whose_level_is_known():
    known = {"levels": ["a", "b"], "counts": {"a": 60, "b": 20}, "missing": 20}
    found = tables(cohort.section(run_with({"variables": [variable(**known)]})))[0]
    assert row(found, "a") == ["60 (75 %)"]
    assert row(found, "missing") == ["20 (20 %)"]


@pytest.mark.parametrize(
    ("mean", "sd", "quartiles", "shown"),
    [
        (53.5, 9.4, [47.4, 54.4, 60.5], "53.5 (9.4)54.4 [47.4, 60.5]"),
        (1120.0, 640.0, [610.0, 1050.0, 1610.0], "1120 (640)1050 [610, 1610]"),
        (0.61, 0.81, [0.0, 0.0, 1.0], "0.61 (0.81)0.00 [0.00, 1.00]"),
        (0.0, 0.0, [0.0, 0.0, 0.0], "0 (0)0 [0, 0]"),
        (1.5, None, None, "1.5"),
        (-3.0e-9, 2.0e-9, None, "0.000000 (0.000000)"),
        (None, None, None, "hidden"),
    ],
)
def test_numbers_have_the_two_digits_of_their_spread_that_a_site_gave(mean, sd, quartiles, shown):
    one = variable(mean=mean, sd=sd, quartiles=quartiles)
    assert row(tables(cohort.section(run_with({"variables": [one]})))[0], "x") == [shown]


def test_thirty_sites_stand_in_one_column_for_all_of_them():
    found = tables(cohort.section(run_with(depth.cohort([f"s{i}" for i in range(30)]))))
    assert {len(r) for t in found for r in t} == {2}


def test_two_hundred_variables_open_on_a_click_after_the_first():
    many = [(f"gene_{i}", "number", "", ()) for i in range(200)]
    made = cohort.section(run_with(depth.cohort(["a"], many)))
    root = ET.fromstring(made.body)
    assert root.find("details/summary").text == f"{200 - cohort.SHOWN} further columns"
    assert sum(len(list(t.iter("b"))) for t in root.iter("table")) == 200


def test_columns_beyond_those_of_a_page_are_counted_with_where_they_are():
    many = [(f"gene_{i}", "number", "", ()) for i in range(cohort.MOST + 30)]
    made = cohort.section(run_with(depth.cohort(["a"], many)))
    root = ET.fromstring(made.body)
    assert sum(len(list(t.iter("b"))) for t in root.iter("table")) == cohort.MOST
    assert "30 more columns of Table 1 are not on this page. They are in results.json" in made.body


def test_of_many_columns_those_without_any_statistic_are_named_below_the_table():
    shown = {"mean": 3.0, "sd": 1.0, "missing": 0, "n": 90}
    empty = {"mean": None, "sd": None, "quartiles": None, "missing": 0, "n": 90}
    few = [variable(name="seen", **shown), variable(name="p_0", **empty)]
    assert "p 0" in str(tables(cohort.section(run_with({"variables": few}))))
    more = [variable(name=f"p_{j}", **empty) for j in range(cohort.SHOWN)]
    missing = variable(name="holes", **empty | {"missing": 7})
    made = cohort.section(run_with({"variables": [*more, missing, few[0]]}))
    root = ET.fromstring(made.body)
    (title,) = root.findall("details/summary")
    assert title.text == f"{cohort.SHOWN} columns without a line: all statistics are hidden"
    assert [b.text for t in root.iter("table") for b in t.iter("b")] == ["holes", "seen"]
    assert "p 0, p 1, p 2" in made.body


def test_without_a_cohort_there_is_no_section():
    assert cohort.section(run_with({})) is None
    assert cohort.section(run_with({"flow": [], "variables": [], "note": "nothing"})) is None


def files(made):
    """Return every CSV of a section as rows."""
    root = ET.fromstring(made.body)
    links = (a.get("href") for a in root.iter("a") if a.get("download", "").endswith(".csv"))
    texts = (base64.b64decode(x.partition("base64,")[2]).decode("utf-8-sig") for x in links)
    return [list(csv.DictReader(io.StringIO(t))) for t in texts]


HEAD = {"arm": "cox", "scenario": "natural", "repeat": 0}
NATURAL = [
    {"scenario": "natural", "sites": [{"site": "a", "rows": 40, "events": None},
                                      {"site": "b", "rows": None, "events": None}]}
]  # fmt: skip


def test_centres_and_their_files_leave_hidden_events_out():
    found = [
        {
            **HEAD,
            "metric": "c_index",
            "site": s,
            "value": v,
            "low": v,
            "high": v,
            "n": 31,
            "events": e,
        }
        for s, v, e in (("a", 0.7, 9), ("b", 0.6, None), ("c", None, None))
    ]
    declared = [{"arm": "cox", "title": "Cox", "role": "arm"}]
    run = run_with({}, by_centre=found, declared=declared, scenarios=NATURAL)
    made = hospitals.centres(run)
    (table,) = files(made)
    assert [r["events"] for r in table] == ["9", "", ""]
    texts = [
        "".join(t.itertext()) for t in ET.fromstring(made.body).find("figure/div/svg").iter("text")
    ]
    assert texts.count("31 patients, 9 events") == 1
    assert texts.count("31 patients") == 2
    assert texts.count("too few patients") == 1


def test_hospitals_of_which_none_can_be_judged_are_said_in_a_sentence_and_not_drawn():
    few = {
        "value": None,
        "low": None,
        "high": None,
        "n": 31,
        "note": "fewer than 5 rows of a class",
    }
    found = [{**HEAD, **few, "metric": "auc", "site": s} for s in "abc"]
    declared = [{"arm": "cox", "title": "Cox", "role": "arm", "every": True}]
    run = run_with({}, by_centre=found, declared=declared, scenarios=NATURAL)
    made = hospitals.centres(run)
    assert "None of 3 hospitals has enough blind patients for its own AUC" in made.intro
    assert "fewer than 5 rows of a class" in made.intro
    assert "svg" not in made.body


def test_numbers_at_risk_that_are_hidden_are_a_dash_and_in_no_file():
    groups = [
        {"group": g, "label": g, "n": 20, "curve": [[0, 1, 1, 1], [9, 0.5, 0.4, 0.6]],
         "at_risk": [[0, 20], [5, None]]}
        for g in ("low risk", "high risk")
    ]  # fmt: skip
    declared = [{"arm": "cox", "title": "Cox", "role": "arm"}]
    found = [{**HEAD, "groups": groups, "log_rank": {"chi2": None, "df": 1, "p": None}}]
    made = model.risk_groups(run_with({}, risk_groups=found, declared=declared, scenarios=NATURAL))
    (table,) = files(made)
    assert set(table[0]) == {"setting", "group", "time", "survival", "low", "high"}
    texts = [
        "".join(t.itertext()) for t in ET.fromstring(made.body).find("figure/div/svg").iter("text")
    ]
    assert texts.count("–") == texts.count("20") == 2
    assert "Log-rank tests: none." in "".join(ET.fromstring(made.body).itertext())
