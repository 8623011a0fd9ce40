"""What stands open in a report, and what is folded: of arms, settings, hospitals, covariates."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from fedcohort.report.page import SECTIONS, render
from fedcohort.report.run import Run, read
from fedcohort.report.sections import calibration, discrimination, hospitals, model, replies
from fedcohort.report.verdict import leading
from report import depth, synthetic


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return read(synthetic.make(tmp_path_factory.mktemp("run"), repeats=2))


def tree(made):
    return ET.fromstring(made.body)


def open_figures(made):
    """Return the anchors of the figures that nothing folds."""
    root = tree(made)
    folded = {f.get("id") for d in root.iter("details") for f in d.iter("figure")}
    return [f.get("id") for f in root.iter("figure") if f.get("id") not in folded]


def every_figure(made):
    return [f.get("id") for f in tree(made).iter("figure")]


@pytest.mark.parametrize("part", [model.risk_groups, model.importance, hospitals.centres])
def test_the_leading_arm_stands_open_and_the_others_are_folded(run, part):
    made = part(run)
    lead = leading(run)
    shown = open_figures(made)
    assert len(shown) == 1
    if any(lead.name in f for f in every_figure(made)):
        assert lead.name in shown[0]
    assert len(every_figure(made)) > len(shown)


def test_columns_that_are_shuffled_together_are_said_to_be(run):
    alone = model.importance(run)
    assert "neighbours" not in alone.intro
    assert "without each column" in str(alone.body)
    rows = [{**r, "feature": "p1 to p6", "columns": 6} for r in run.rows("importance")]
    made = model.importance(Run({**run.results, "importance": rows}, run.folder))
    assert "up to 6 neighbours" in made.intro
    assert "without each group of columns" in str(made.body)


def test_splits_of_trees_are_of_the_final_fit_and_name_the_first(run):
    arm = run.arms[0]
    rows = [
        {"arm": arm.name, "scenario": next(iter(run.scenarios)), "repeat": 0, "covariate": f"x{i}",
         "share": s, "weight": 2, "gain": 1.0, "cover": 9.0, "total_gain": 2.0, "total_cover": 18.0}
        for i, s in enumerate([0.5, 0.3, *[0.2 / 18] * 18])
    ]  # fmt: skip
    assert model.splits(run) is None
    made = str(model.splits(Run({**run.results, "splits": rows}, run.folder)).body)
    assert "gains most by x0: 0.500" in made
    assert "first repeat" in made and "the first 15 of 20" in made
    final = [{"arm": arm.name, "status": "done", "splits": rows[1:2]}]
    made = str(model.splits(Run({**run.results, "splits": rows, "final": final}, run.folder)).body)
    assert "gains most by x1" in made and "final fit, all rows" in made


JUDGED = (
    calibration.calibration, discrimination.discrimination, calibration.decision, hospitals.sites,
)  # fmt: skip


@pytest.mark.parametrize("part", JUDGED)
def test_the_first_setting_stands_open_and_the_others_are_folded(run, part):
    made = part(run)
    first = next(iter(run.scenarios))
    assert [f for f in open_figures(made) if "roc" not in f] == [
        f for f in every_figure(made) if f.endswith(f"-{first}")
    ]
    others = list(run.scenarios)[1:]
    assert all(any(f.endswith(f"-{c}") for f in every_figure(made)) for c in others)


def test_settings_that_give_the_same_curves_are_drawn_once(run):
    rows = [r for r in run.rows("risk_groups") if r["arm"] == "cox"]
    same = [{**rows[0], "scenario": r["scenario"]} for r in rows]
    made = model.risk_groups(Run({**run.results, "risk_groups": same}, run.folder))
    assert len(every_figure(made)) == 1
    text = "".join(tree(made).itertext())
    assert "give the same curves" in text
    titles = [t.text for t in tree(made).iter("text") if t.text in run.scenarios.values()]
    assert titles == []


def test_of_forty_hospitals_the_worst_stand_open_and_all_are_there(tmp_path):
    many = [f"site-{i}" for i in range(1, 41)]
    folder = synthetic.make(tmp_path, scenarios=["iid"], arms=["isolated", "cox", "centralised"],
                            repeats=2, n_sites=40)  # fmt: skip
    run = read(folder)
    rows = depth.by_centre(
        np.random.default_rng(1),
        {"arm": "cox", "scenario": "iid", "repeat": 0}, many,
    )  # fmt: skip
    run = Run({**run.results, "by_centre": rows}, folder)
    made = hospitals.centres(run)
    figures = {f.get("id"): f for f in tree(made).iter("figure")}
    (shown,) = open_figures(made)
    drawn = {t.text for t in figures[shown].iter("text")}
    known = sorted((r for r in rows if r["value"] is not None), key=lambda r: r["value"])
    worst = {r["site"] for r in known[: hospitals.WORST]}
    assert worst <= drawn
    assert not {r["site"] for r in rows} - worst & drawn
    inside = {t.text for f in figures if f != shown for t in figures[f].iter("text")}
    assert {r["site"] for r in rows} <= inside


def test_of_many_covariates_those_in_doubt_stand_open(run):
    tested = [
        {"arm": "cox", "scenario": "iid", "repeat": 0, "covariate": name, "chi2": 1.0, "df": 1,
         "p": p}
        for name, p in [*((f"x{i}", 0.5) for i in range(40)), ("y", 0.001), ("global", 0.2)]
    ]  # fmt: skip
    made = model.hazards(Run({**run.results, "proportional_hazards": tested}, run.folder))
    first, every = tree(made).iter("table")
    assert [r[0].text or r[0][0].text for r in first.find("tbody")] == ["all together", "y"]
    assert len(every.find("tbody")) == 42


def test_every_kind_of_reply_is_one_click_away(run):
    made = replies.left(run)
    assert next(c.text for c in tree(made).iter("caption")) == "What one hospital sends"
    folded = [d.find("summary").text for d in tree(made).iter("details")]
    assert folded[0] == "Every kind of reply"


def test_the_contents_name_every_section_of_the_page(run):
    found = [s for make in SECTIONS if (s := make(run)) is not None]
    assert len({s.key for s in found}) == len(found)
    contents = ET.fromstring(re.search("<nav.*?</nav>", render(run), re.DOTALL)[0])
    assert [(a.get("href"), a.text) for a in contents] == [(f"#{s.key}", s.short) for s in found]


# decision curves --------------------------------------------------------------------------


def decided(run, **rows):
    return Run({**run.results, **rows}, run.folder)


def test_a_decision_curve_stands_beside_treating_everybody_and_nobody(run):
    made = calibration.decision(run)
    text = "".join(tree(made).itertext())
    assert "everybody is treated" in text
    assert "the dotted line at 0 is that nobody is treated" in text
    assert "of the event by 702 days" in str(made.intro)


def test_treating_everybody_ends_where_it_does_harm_and_is_not_drawn_along_the_edge():
    line = [(0.0, 0.4), (0.3, 0.1), (0.5, -0.3), (0.7, -1.0)]
    got = calibration._above(line, -0.1)
    assert got[:2] == line[:2]
    assert len(got) == 3
    x, y = got[-1]
    assert y == -0.1
    assert math.isclose(x, 0.4)


def test_without_a_decision_curve_there_is_no_section(run):
    assert calibration.decision(decided(run, decision=[])) is None
    assert calibration.decision(Run({"schema": 1}, Path())) is None


def test_calibration_has_the_band_of_the_leading_arm_and_every_interval_in_its_table(run):
    made = calibration.calibration(run)
    text = "".join(tree(made).itertext())
    assert f"the band of “{leading(run).title}” is the pointwise 95 % interval" in text
    (table,) = tree(made).iter("table")
    heads = [c.text for c in table.find("thead")[0]]
    assert heads[5] == "95 % interval"
    assert all("–" in row[5].text for row in table.find("tbody"))
