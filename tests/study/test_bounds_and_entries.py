"""Bounds are like the first arm that tells patients apart; late entry needs arms that heed it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcohort as fc
from fedcohort.data.check import Sheet, errors, examine, with_outcome
from fedcohort.protocol import StudyError
from fedcohort.study.file import plan, yamlfile

STUDY = """\
study: small
data:
  source: t.csv
  outcome: {{time: time, event: event{entry}}}
  sites: {{split: iid, n: 3}}
arms:
{arms}
bounds: [isolated, centralised]
evaluate: {{repeats: 1, draws: 5}}
"""


def text(*arms: str, entry: str = "") -> str:
    return STUDY.format(arms="\n".join(f"  - {arm}" for arm in arms), entry=entry)


def checked(*arms: str, entry: str = "") -> plan.Plan:
    return plan.check(yamlfile.parse(text(*arms, entry=entry), "s.yaml"), Path())


@pytest.mark.parametrize(
    ("arms", "expected"),
    [
        (["{method: kaplan_meier}", "{method: cox, l2: 0.5}"], ("cox", 0.5)),
        (["{method: cox, l2: 0.5}", "{method: kaplan_meier}"], ("cox", 0.5)),
        (["{method: kaplan_meier, by: arm}", "{method: cox}"], ("kaplan_meier", None)),
        (["{method: nelson_aalen}", "{method: kaplan_meier}"], ("nelson_aalen", None)),
    ],
)
def test_bounds_follow_the_first_arm_whose_predictions_can_differ(arms, expected):
    bounds = [a for a in checked(*arms).arms if a.scope != "sites"]
    assert [a.scope for a in bounds] == ["isolated", "centralised"]
    assert {(a.method, a.settings.get("l2")) for a in bounds} == {expected}


def test_entries_are_read_and_arms_that_do_not_heed_them_are_named():
    found = checked("{method: cox}", entry=", entry: enrolled")
    assert found.outcome == fc.Survival("time", "event", "enrolled")
    with pytest.raises(StudyError) as caught:
        checked("{method: cox}", "{method: deepcox, rounds: 2}", entry=", entry: enrolled")
    assert "s.yaml, line 8, arms.1.method: 'deepcox' does not support entry times" in str(
        caught.value
    )
    assert "data.outcome.entry ('enrolled'). Use bayes_cox or cox" in str(caught.value)


def late(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    x, entry = rng.normal(0, 1, n).round(3), rng.uniform(0, 2, n).round(3)
    time = (entry + rng.exponential(5 * np.exp(-0.5 * x), n) + 0.01).round(3)
    event = rng.integers(0, 2, n)
    return pd.DataFrame({"x": x, "flat": 1, "entry": entry, "time": time, "event": event})


def test_a_study_of_late_entries_fits_what_python_fits_and_says_so(tmp_path):
    late(240).to_csv(tmp_path / "t.csv", index=False)
    arm = "{method: cox, baseline: stratified}"
    (tmp_path / "s.yaml").write_text(text(arm, entry=", entry: entry"))
    fc.Study.from_file(tmp_path / "s.yaml").run(out=tmp_path / "out", workers=1)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["outcome"]["entry"] == "entry"
    assert results["data"]["features"] == ["x", "flat"]
    assert {(d["column"], d["reason"]) for d in results["dropped"]} == {("flat", "constant")}
    model = fc.load(tmp_path / "out" / "models" / "cox")
    assert model.parts.design.outcome == fc.Survival("time", "event", "entry")
    card = (tmp_path / "out" / "models" / "cox" / "card.md").read_text()
    assert "- Outcome: time, event, entry (when observation began)" in card
    assert "- In particular: a baseline hazard for each site" in card
    assert "Left out: flat (constant)." in card
    report = (tmp_path / "out" / "report.html").read_text()
    assert "Columns left out of the models: flat (constant)." in report


def test_an_entry_that_is_not_before_the_time_is_named_by_its_row():
    table, outcome = late(30), fc.Survival("time", "event", "entry")
    table.loc[3, "entry"] = table.loc[3, "time"]
    found = errors(examine([Sheet(table, "t.csv")], with_outcome(None, outcome), outcome))
    (line,) = [f.line for f in found if f.column == "entry"]
    assert "column 'entry' is not below column 'time' in row 4" in line


@pytest.mark.parametrize(
    ("arm", "absent"),
    [
        ("{method: ridge, penalty: 0.1}", True),
        ("{method: ridge, penalty: 0.1, solver: admm}", False),
    ],
)
def test_settings_of_a_solver_that_was_not_chosen_are_left_out_of_the_results(arm, absent):
    from fedcohort.protocol import registry
    from fedcohort.study.results import files as results

    head = (
        "study: s\ntask: regression\ndata: {source: sample:diabetes, sites: {split: iid, n: 3}}\n"
    )
    found = plan.check(yamlfile.parse(f"{head}arms:\n  - {arm}\n", "s.yaml"), Path())
    told = results._settings(found, found.arms[0], registry.find("ridge"))
    assert ("rho" not in told) == absent
    assert told["penalty"] == 0.1
