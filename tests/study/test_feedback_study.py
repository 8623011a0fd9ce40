"""A study that asks for feedback gives it to each site, once, and shows it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import yaml

from fedcohort.protocol import StudyError
from fedcohort.report import page
from fedcohort.report import run as report_run
from fedcohort.study.study import Study


def table(sites: int = 4) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    parts = []
    for i in range(sites):
        n = 90 + 10 * i
        x = rng.normal(0.1 * i, 1, (n, 3))
        death = (rng.random(n) < 1 / (1 + np.exp(-x @ [1.0, 0.5, 0.2]))).astype(int)
        parts.append(pd.DataFrame(x.round(2), columns=list("uvw")).assign(y=death, site=f"s{i}"))
    frame = pd.concat(parts, ignore_index=True)
    frame["u"] += 20.0 * (frame.site == "s1")
    frame.loc[frame.site == "s2", "v"] = np.nan
    return frame


def study(folder, **more):
    table(more.pop("n_sites", 4)).to_csv(folder / "t.csv", index=False)
    content = {
        "study": "told", "task": "classification",
        "data": {"source": "t.csv", "outcome": {"y": "y"}, "sites": {"column": "site"}},
        "arms": [{"method": "logistic"}], "evaluate": {"repeats": 1, "draws": 2}, **more,
    }  # fmt: skip
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(content))
    return Study.from_file(str(path))


def test_each_site_is_told_what_is_off_and_the_report_and_the_ledger_say_so(tmp_path):
    study(tmp_path, feedback=True).run(tmp_path / "out")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    found = results["feedback"]
    assert found["sites"] == ["s0", "s1", "s2", "s3"]
    by_rule = [(r["site"], r["rule"], r["column"]) for r in found["remarks"]]
    assert by_rule == [("s1", "shift", "u"), ("s2", "empty", "v"), ("s2", "unrecorded", "v")]
    html = page.render(report_run.read(tmp_path / "out"))
    assert "What should each hospital look at?" in html
    assert "u lies about 20 above the other sites" in html
    assert "Nothing is off at s0 and s3." in html
    sites = [r for r in results["arms"] if r["arm"] == "logistic" and r["site"]]
    whole = next(r for r in results["arms"] if r["arm"] == "logistic" and not r["site"])
    assert sum(r["bytes_up"] for r in sites) == whole["bytes_up"] > 0
    assert 0 < sum(r["seconds"] for r in sites) <= whole["seconds"]
    assert "By hospital" in html
    lines = [json.loads(x) for x in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    asked = {(x["step"], x["verb"]) for x in lines if x["phase"] == "feedback"}
    assert asked == {
        ("vote_scale", "sum"), ("vote_place", "sum"), ("vote", "sum"), ("compare", "gather"),
    }  # fmt: skip
    assert "Vote on the spread" in results["cohort"]["steps"]["vote_scale"]


def test_where_there_are_too_few_sites_the_study_goes_on_and_says_why(tmp_path):
    study(tmp_path, n_sites=2, feedback=True).run(tmp_path / "out")
    found = json.loads((tmp_path / "out" / "results.json").read_text())["feedback"]
    assert found["remarks"] == []
    assert "compares each site with at least two others" in found["note"]
    html = page.render(report_run.read(tmp_path / "out"))
    assert "There is no feedback: method" in html


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"feedback": "yes"}, "expected true or false"),
        ({"feedback": True, "privacy": {"dp": {"epsilon": 3.0}}}, "this study is private"),
    ],
)
def test_feedback_that_cannot_be_is_refused_when_the_study_is_read(tmp_path, more, said):
    with pytest.raises(StudyError, match=said):
        study(tmp_path, **more)
