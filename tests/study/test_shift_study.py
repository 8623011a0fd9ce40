"""A study that asks how different its sites are is told, and its page shows it."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
import yaml

from fedcohort.algorithms.shift import ShiftModel
from fedcohort.data.describe.shown_number import HIDDEN
from fedcohort.protocol import StudyError
from fedcohort.report import page
from fedcohort.report import run as report_run
from fedcohort.report.sections import differences as section
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.study.run.extras import published_shift as told
from fedcohort.study.sites.counts import Shown
from fedcohort.study.study import Study


def table(*, few=(), rare=()) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    parts = []
    for i in range(4):
        n = 3 if i in few else 120 + 10 * i
        u = rng.normal(3.0 * (i == 1), 1, n)
        p = 1 / (1 + np.exp(-u * (-1.0 if i == 2 else 1.0)))
        y = (rng.random(n) < p).astype(int) if i not in rare else (np.arange(n) < 2).astype(int)
        parts.append(pd.DataFrame({"u": u.round(2), "v": rng.normal(size=n).round(2), "y": y}))
    return pd.concat([f.assign(site=f"s{i}") for i, f in enumerate(parts)], ignore_index=True)


def study(folder, frame=None, **more):
    (table() if frame is None else frame).to_csv(folder / "t.csv", index=False)
    content = {
        "study": "apart", "task": "classification",
        "data": {
            "source": "t.csv", "outcome": {"y": "y"}, "sites": {"column": "site", "min_rows": 2},
        },
        "arms": [{"method": "logistic"}], "evaluate": {"repeats": 1, "draws": 20}, "bounds": [],
        **more,
    }  # fmt: skip
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(content))
    return Study.from_file(str(path))


def results(folder, *given, **more):
    study(folder, *given, shift=True, **more).run(folder / "out")
    return json.loads((folder / "out" / "results.json").read_text())["shift"]


def test_differences_are_told_once_and_the_page_and_the_ledger_say_so(tmp_path):
    found = results(tmp_path)
    assert found["sites"] == ["s0", "s1", "s2", "s3"]
    assert [k["kind"] for k in found["kinds"]] == ["feature", "label", "conditional", "gradient"]
    assert {"s1"} <= {v for r in found["clear"][:3] for v in (r["site"], r["other"])}
    assert any(
        r["kind"] == "conditional" and "s2" in (r["site"], r["other"]) for r in found["clear"]
    )
    for one in found["kinds"]:
        for value in np.array(one["matrix"], float).ravel().tolist():
            assert float(f"{value:.3g}") == value
    html = page.render(report_run.read(tmp_path / "out"))
    assert "How different are the hospitals?" in html
    assert f"{found['n_clear']} of {found['compared']} comparisons show a clear difference" in html
    assert "figure-shift-pairs" in html
    assert "figure-shift-map" in html
    lines = [json.loads(x) for x in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    asked = {(x["step"], x["verb"]) for x in lines if x["phase"] == "shift"}
    assert asked == {
        ("describe_columns", "gather"), ("count_cells", "gather"), ("pull_here", "gather"),
    }  # fmt: skip


def test_a_study_that_does_not_ask_has_none(tmp_path):
    study(tmp_path).run(tmp_path / "out")
    assert "shift" not in json.loads((tmp_path / "out" / "results.json").read_text())
    assert "How different are the hospitals?" not in page.render(report_run.read(tmp_path / "out"))


def test_what_table_1_hides_is_not_told_by_what_it_differs_from(tmp_path):
    """Of a site with two events a divergence from a site that shows its own would tell them."""
    found = results(tmp_path, table(rare=(3,)))
    assert "s3" in found["outcome_hidden"]
    names = found["sites"]
    for one in found["kinds"]:
        matrix = np.array(one["matrix"], float)
        off = [matrix[names.index(s)][j] for s in found["outcome_hidden"]
               for j in range(4) if names[j] != s]  # fmt: skip
        if one["kind"] == "feature":
            assert np.isfinite(off).all()
        else:
            assert np.isnan(off).all()
    html = page.render(report_run.read(tmp_path / "out"))
    assert "Not compared by outcome, whose counts are hidden there: s0" in html


def test_a_count_that_a_site_hides_beside_another_is_told_by_neither(tmp_path, monkeypatch):
    """Of one site's 3 IV the sum with another's was told, and `shift` told the other's alone."""
    frame = table()
    rng = np.random.default_rng(3)
    frame["grade"] = rng.choice(np.array(["I", "II", "III", "IV"], object), len(frame))
    first = frame["site"] == "s0"
    frame.loc[first, "grade"] = np.repeat(["I", "II", "III", "IV"], [40, 40, 37, 3])
    said = {}
    gather = Coordinator.gather

    def heard(self, step, /, *args, **asked):
        replies = gather(self, step, *args, **asked)
        said.setdefault(step.name, []).append(replies)
        return replies

    monkeypatch.setattr(Coordinator, "gather", heard)
    results(tmp_path, frame)
    one, again = said["describe_columns"]
    assert one.keys() == again.keys()
    beside = 0
    for site, cells in said["count_cells"][0].items():
        np.testing.assert_array_equal(one[site].levels, again[site].levels)
        secret = np.c_[one[site].missing[2:], one[site].levels] == HIDDEN
        for j, line in enumerate(secret):  # the codes come after the two numbers
            at = np.flatnonzero(line)
            assert (cells.cells[2 + j][at] == HIDDEN).all()
            assert (cells.crossed[2 + j][at] == HIDDEN).all()
            beside += int(site != "s0") * len(at)
    assert beside  # another site hides with s0


def test_p_values_are_adjusted_for_what_is_published_alone():
    """An adjusted value is the largest of those before it: one that is hidden would show there."""

    def row(site, kind, p):
        same = {"variable": "v", "other": "z", "value": 0.1, "expected": 0.0}
        return {"kind": kind, "site": site, "p": p, **same}

    rows = [row("a", "feature", 0.004), row("b", "label", 0.003), row("b", "feature", 0.01)]
    model = ShiftModel.of(("a", "b", "z"), rows, 0.05, {})
    shown = Shown({}, {}, frozenset({"b"}))
    found = told(model, ShiftModel, shown)
    assert [r["p_adjusted"] for r in found["clear"]] == [0.008, 0.01]
    assert found["compared"] == 2


def test_a_site_whose_rows_are_hidden_has_no_part(tmp_path):
    found = results(tmp_path, table(few=(0,)))
    assert "s0" in found["left_out"]
    assert "s0" not in found["sites"]


def test_where_nothing_can_be_compared_the_study_goes_on_and_says_why(tmp_path):
    frame = table()
    found = results(tmp_path, frame[frame.site == "s1"])
    assert "a shift needs two" in found["note"]
    html = page.render(report_run.read(tmp_path / "out"))
    assert "Nothing was compared: 1 sites" in html


def test_simulated_sites_are_those_of_the_first_scenario(tmp_path):
    frame = table().drop(columns="site")
    data = {"source": "t.csv", "outcome": {"y": "y"}, "sites": {"split": "iid", "n": 3}}
    found = results(tmp_path, frame, data=data, scenarios=["by-outcome", "iid"])
    assert len(found["sites"]) == 3
    assert any(r["kind"] == "label" for r in found["clear"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"shift": "yes"}, "expected true or false"),
        ({"shift": True, "privacy": {"dp": {"epsilon": 3.0}}}, "this study is private"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused_when_the_study_is_read(tmp_path, more, said):
    with pytest.raises(StudyError, match=said):
        study(tmp_path, **more)


# the page -------------------------------------------------------------------------------


def made(sites, kinds=("feature", "gradient")):
    """Return results of so many sites."""
    s = len(sites)
    rng = np.random.default_rng(0)
    half = rng.uniform(0, 1, (s, s))
    matrix = ((half + half.T) / 2).round(3)
    np.fill_diagonal(matrix, 0)
    one = {
        "matrix": matrix.tolist(), "expected": (matrix / 10).tolist(),
        "map": {"sites": sites, "x": matrix[0].tolist(), "y": matrix[1].tolist(), "share": 0.8},
    }  # fmt: skip
    return {
        "sites": sites, "kinds": [{"kind": k, **one} for k in kinds], "clear": [], "n_clear": 0,
        "compared": 9, "note": "", "left_out": {},
    }  # fmt: skip


def drawn(tmp_path, found):
    return str(section.shift(report_run.Run({"shift": found}, tmp_path)).body)


def test_names_are_text_whatever_is_in_them(tmp_path):
    html = drawn(tmp_path, made(["<b>a</b>", "=1+1", "x" * 60]))
    assert "<b>a</b>" not in html
    assert "&lt;b&gt;a&lt;/b&gt;" in html


def test_names_that_the_figure_cuts_off_are_told_by_their_numbers(tmp_path):
    alike = [f"Hospital of the northern region, house {i}" for i in range(3)]
    assert "2 Hospital of the northern region, house 1;" in drawn(tmp_path, made(alike))
    assert "2 s1;" not in drawn(tmp_path, made(["s0", "s1", "s2"]))


def test_parts_are_counted_over_all_clear_differences_listed_or_not(tmp_path):
    rows = [
        {"kind": "feature", "variable": f"v{i}", "site": "a", "other": "z" if i else "b",
         "value": 0.1, "expected": 0.0, "p": 1e-9}
        for i in range(80)
    ]  # fmt: skip
    model = ShiftModel.of(("a", "b", "z"), rows, 0.05, {})
    found = told(model, ShiftModel, Shown({}, {}, frozenset()))
    assert len(found["clear"]) == 60
    assert found["parts"] == {"a": 80, "b": 1, "z": 79}
    html = drawn(tmp_path, {**made(["a", "b", "z"]), **found, "note": "", "left_out": {}})
    assert "a has a part in 80 of them" in html


@pytest.mark.parametrize("sites", [2, 9, 24, 30])
def test_pages_of_few_and_of_many_sites(tmp_path, sites):
    html = drawn(tmp_path, made([f"s{i}" for i in range(sites)]))
    assert ("figure-shift-pairs" in html) == (sites <= 24)
    assert ("figure-shift-map" in html) == (sites > 2)
    assert len(re.findall("<svg", html)) <= 30
    assert len(html) < 1_500_000
