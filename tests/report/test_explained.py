"""The section on effects in trees: its figures, and what it says of rows, classes and gaps."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from fedcohort.report.run import Run, read
from fedcohort.report.sections import explained
from report import synthetic


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return read(synthetic.make(tmp_path_factory.mktemp("run"), repeats=1))


def rows(run, *, classes=(None,), gap=True, used=300):
    """Return the rows of one arm: two columns, of which the second is a level."""
    at = {"arm": run.arms[0].name, "scenario": next(iter(run.scenarios)), "repeat": 0}
    found = [
        {"kind": "about", "rows": used, "of": 300, "margin": "log odds", "mean": "probability"}
    ]
    for i, class_ in enumerate(classes):
        one = {"class": class_}
        found += [
            {"kind": "absolute", "covariate": name, "value": value + i, **one}
            for name, value in (("age_at_start", 0.75), ("stage=II", 0.25))
        ]
        for kind in ("shift", "curve"):
            points = [("age_at_start", v, v / 100) for v in (40.0, 50.0, 60.0)]
            points += [("stage=II", 0.0, 0.1), ("stage=II", 1.0, 0.2)]
            points += [("age_at_start", None, 0.333)] * gap
            found += [
                {"kind": kind, "covariate": n, "at": a, "value": v, **one} for n, a, v in points
            ]
    return [at | row for row in found]


def made(run, **results):
    return explained.section(Run({**run.results, **results}, run.folder))


def notes(section):
    return [
        "".join(f.itertext()) for f in ET.fromstring(section.body).iter("figure")
    ]  # fmt: skip


def test_an_arm_has_bars_and_two_rows_of_curves(run):
    assert explained.section(run) is None
    section = made(run, explained=rows(run))
    ids = [f.get("id") for f in ET.fromstring(section.body).iter("figure")]
    name = run.arms[0].name
    assert ids == [f"figure-explained{part}-{name}" for part in ("", "-shift", "-curve")]
    bars, shift, curve = notes(section)
    assert "age at start" in bars and "0.750" in bars and "log odds" in bars
    assert "300 training rows" in bars and "drawn" not in bars
    assert "Shapley value, log odds" in shift and "mean probability" in curve
    for panel in (shift, curve):
        assert "stage=II" in panel and "1 is yes and 0 is no" in panel
        assert "apart on the right is of patients without a value" in panel
    assert "Each hospital sent only sums" in section.intro


def test_gaps_are_named_only_where_there_are_some_and_drawn_rows_are_named(run):
    bars, shift, curve = notes(made(run, explained=rows(run, gap=False, used=120)))
    assert "120 training rows, drawn from 300" in bars
    assert "without a value" not in shift + curve


def test_of_several_classes_bars_are_their_mean_and_curves_one_line_each(run):
    bars, shift, _ = notes(made(run, explained=rows(run, classes=("a", "b", "c"))))
    assert "mean over 3 classes" in bars and "1.750" in bars  # (0.75 + 1.75 + 2.75)/3
    assert all(f"{c}" in shift for c in ("a", "b", "c"))


def test_a_private_fit_is_said_to_ask_for_no_such_sums(run):
    first = run.results["arms"][0]
    arms = [
        {**r, "epsilon": 3.0, "status": "done"} if r["arm"] == first["arm"] else r
        for r in run.results["arms"]
    ]
    declared = [
        {**d, "method": "boosting"} if d.get("name", d.get("arm")) == first["arm"] else d
        for d in run.results["declared"]
    ]
    section = made(run, arms=arms, declared=declared)
    assert "a private fit asks for no such sums" in str(section.body)
