"""What hospitals were given: figures hold the results' numbers, and a page without has none."""

from __future__ import annotations

import base64
import csv
import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from fedcohort.data.degrade import Given
from fedcohort.report.run import read
from fedcohort.report.sections import given, headline
from report import synthetic

SITES = [f"site-{i + 1}" for i in range(8)]
BAD = Given(
    laid=80, rows=20, known=880, intact=110, entries=160, removed=80, replaced=16, noise=0.5,
    flipped=4, swapped=4, how="value", columns=("age",), units={"tsize": 10.0}, degraded=True,
)  # fmt: skip
HIDDEN = {"laid": None, "rows": None, "known": None, "intact": None, "removed": None}


def told(site):
    one = Given(laid=80, rows=80, known=880, intact=880)
    if site == "site-3":
        one = BAD
    return {"site": site, **one.to_dict(), **(HIDDEN if site == "site-5" else {})}


def rounds(site):
    return {"site": site, "away": 0.25, "rounds": [2, 0, 1, 2]}


CHANGED = [
    {"scenario": "iid", "title": "As read", "sites": []},
    {"scenario": "unbalanced", "title": "Bad nodes", "sites": [], "given": [*map(told, SITES)],
     "rounds": [*map(rounds, SITES)]},
    {"scenario": "by-outcome", "title": "Overlap", "sites": [], "groups": {
        "column": "ward", "names": ["A", "B", "C"],
        "sites": [{"site": s, "groups": ["A", "C"] if s == "site-2" else ["B"]} for s in SITES]}},
]  # fmt: skip


def made(folder, scenarios=CHANGED, **more):
    return read(synthetic.make(folder, repeats=2, change={"scenarios": scenarios, **more}))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def root(run):
    return ET.fromstring(given.section(run).body)


def table_of(root, key):
    """Return the rows of a figure's CSV file."""
    (one,) = (f for f in root.iter("figure") if f.get("id") == f"figure-{key}")
    (link,) = (a for a in one.iter("a") if "text/csv" in a.get("href"))
    text = base64.b64decode(link.get("href").partition(",")[2]).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text)))


def test_a_study_that_changes_nothing_has_no_such_section(tmp_path):
    assert given.section(read(synthetic.make(tmp_path, repeats=1))) is None


def test_the_table_says_what_was_done_to_each_hospital_and_the_figure_how_much_is_left(root):
    text = " ".join(" ".join(root.itertext()).split())
    assert "20 of 80 rows left out; outcomes of 4 rows mixed up; 4 labels flipped" in text
    assert "noise of 0.5 standard deviations; 10 % of values replaced by noise" in text
    assert "50 % of values missing, large ones more often; no values of age; tsize × 10" in text
    (figure,) = (f for f in root.iter("figure") if f.get("id") == "figure-given")
    drawn = " ".join(figure.itertext())
    assert "12 %" in drawn or "13 %" in drawn  # 110 of 880
    assert "Blank: hidden" in drawn
    rows = {r["site"]: r for r in table_of(root, "given")}
    assert rows["site-3"]["removed"] == "80"
    assert rows["site-5"]["rows"] == ""


def test_good_and_bad_hospitals_are_means_of_what_each_reached_alone(run, root):
    rows = {r["scenario"]: r for r in table_of(root, "good-and-bad")}
    alone = [a for a in run.rows("arms") if a["arm"] == "isolated" and a["site"]]
    for scenario, bad in (("unbalanced", {"site-3"}), ("iid", set())):
        here = [a for a in alone if a["scenario"] == scenario]
        for key, some in (("degraded_alone", bad), ("others_alone", {*SITES} - bad)):
            values = [a["metrics"]["c_index"] for a in here if a["site"] in some]
            if values:
                assert float(rows[scenario][key]) == pytest.approx(np.mean(values), abs=1e-6)
            else:
                assert not rows[scenario][key]
        fedavg = [
            a["metrics"]["c_index"]
            for a in run.rows("arms")
            if (a["arm"], a["scenario"], a["site"]) == ("fedavg", scenario, None)
        ]
        assert float(rows[scenario]["fedavg"]) == pytest.approx(np.mean(fedavg), abs=1e-6)


def test_groups_and_rounds_are_drawn_from_the_results(root):
    held = {(r["site"], r["group"]) for r in table_of(root, "groups-by-outcome")
            if r["has"].lower() in ("true", "1")}  # fmt: skip
    assert held == {("site-2", "A"), ("site-2", "C")} | {(s, "B") for s in SITES if s != "site-2"}
    asked = [r["round"] for r in table_of(root, "rounds")
             if r["site"] == "site-1" and r["asked"].lower() in ("true", "1")]  # fmt: skip
    assert asked == ["1", "4"]


def test_many_hospitals_are_folded_in_pages(tmp_path):
    many = [{**told("site-1"), "site": f"h{i}"} for i in range(80)]
    scenarios = [{"scenario": "iid", "title": "x", "sites": [], "given": many}]
    root = ET.fromstring(given.section(made(tmp_path, scenarios)).body)
    folded = {f.get("id") for d in root.iter("details") for f in d.iter("figure")}
    assert {"figure-given-2", "figure-given-3"} <= folded
    assert "figure-given-1" not in folded


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"away": 0.3}, "each hospital was away from 30 % of rounds, drawn at random:"),
        ({"by_site": {"b": 0.5}}, "hospitals were away from shares of rounds: b 50 %, drawn"),
        ({"away": 0.1, "by_site": {"b": 0.5, "c": 0}}, "of rounds, but b 50 % and c 0 %, drawn"),
        ({"fraction": 0.5}, "50 % of the hospitals were asked in a round, drawn among"),
        ({"away": 0.1, "fraction": 0.5}, "drawn at random; 50 % of the hospitals"),
    ],
)
def test_the_headline_says_who_was_away(tmp_path, asked, said):
    run = made(tmp_path, availability=asked, waited=[])
    assert said in re.sub(r"\s+", " ", str(headline.top(run)))
