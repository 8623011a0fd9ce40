"""`fedcohort data check study.yaml` tells what a method would refuse, as the run then does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedcohort.study.run import rehearsal
from fedcohort.study.study import Study
from in_process import command

STUDY = """\
study: s
task: {task}
seed: 1
data: {{source: t.csv, dictionary: d.yaml, {outcome}sites: {{column: site}}}}
arms: [{arms}]
evaluate: {{test_fraction: 0.25, repeats: 1}}
"""


@pytest.fixture(autouse=True)
def _inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def patients(n=300, seed=0):
    rng = np.random.default_rng(seed)
    age, hb = rng.normal(60, 9, n).round(), rng.normal(12, 2, n).round(1)
    time = np.ceil(rng.exponential(500 * np.exp(-(age - 60) / 20)))
    end = np.ceil(rng.uniform(100, 1500, n))
    return pd.DataFrame(
        {"site": np.array(["a", "b", "c"])[np.arange(n) % 3], "age": age, "hb": hb,
         "sex": rng.choice(["f", "m"], n), "days": np.minimum(time, end) + 1,
         "event": (time <= end).astype(int)}
    )  # fmt: skip


def write(frame, arms="{method: cox}", task="survival", outcome="", **more):
    known = {"age": "number", "hb": "number", "sex": {"type": "category", "levels": ["f", "m"]}}
    known |= {"days": {"type": "time", "unit": "days"}, "event": "event", **more}
    variables = {k: v for k, v in known.items() if k in frame}
    Path("d.yaml").write_text(json.dumps({"variables": variables}))
    frame.to_csv("t.csv", index=False)
    Path("s.yaml").write_text(STUDY.format(task=task, arms=arms, outcome=outcome))


def findings(severity=None):
    """Return the findings of `data check` that are about fits."""
    code, text, err = command("data", "check", "s.yaml", "--json")
    assert err == ""
    said = [f for f in json.loads(text)["findings"] if f["file"] == "s.yaml"]
    assert code == (2 if any(f["severity"] == "error" for f in said) else 0)
    return [f["message"] for f in said if severity in (None, f["severity"])]


def test_a_sound_study_has_nothing_to_tell():
    write(patients(), "{method: cox}, {method: deepcox, rounds: 500}")
    assert findings() == []


def near(frame):
    return frame["age"] + np.random.default_rng(1).normal(0, 1e-7, len(frame))


@pytest.mark.parametrize(
    ("columns", "kinds", "arm", "said"),
    [
        ({"again": near}, {"again": "number"}, "cox", "covariates 'age', 'again' are collinear"),
        ({"sum": lambda f: f["age"] + f["hb"]}, {"sum": "number"}, "cox",
         "covariates 'age', 'hb', 'sum' are collinear"),
        ({"male": lambda f: (f["sex"] == "m") * 1}, {"male": "binary"}, "cox",
         "covariates 'sex=m', 'male' are collinear"),
    ],
)  # fmt: skip
def test_collinear_columns_are_told_as_the_run_tells_them(columns, kinds, arm, said):
    write(patients().assign(**columns), f"{{method: {arm}}}", **kinds)
    (message,) = findings("error")
    assert message.startswith(f"arm '{arm}' cannot be fitted: {said}")
    assert "Drop one of them, or refit with a ridge penalty (l2 > 0)." in message
    code, _, err = command("run", "s.yaml", "--workers", 1)
    assert code == 1
    assert said in err


def test_classes_that_a_line_divides_are_told():
    frame = patients().assign(y=lambda t: (t["age"] > 60) * 1).drop(columns=["days", "event"])
    write(frame, "{method: logistic}", "classification", "outcome: {y: y}, ", y="binary")
    (message,) = findings("error")
    assert message.startswith("arm 'logistic' cannot be fitted:")
    code, _, err = command("run", "s.yaml", "--workers", 1)
    assert (code, message.partition(": ")[2][:60] in err) == (1, True)


def test_arms_and_bounds_of_one_fault_are_told_together_and_a_tuned_arm_as_a_warning():
    write(patients().assign(again=near), "{method: cox}, {method: cox, name: two}", again="number")
    text = Path("s.yaml").read_text() + "bounds: [isolated, centralised]\n"
    Path("s.yaml").write_text(text)
    (message,) = findings("error")
    assert message.startswith("arms 'cox', 'two' and 'centralised' cannot be fitted: covariates")
    write(patients().assign(again=near), again="number")
    Path("s.yaml").write_text(Path("s.yaml").read_text() + "tune: {grid: {l2: [0, 0.1]}}\n")
    assert findings("error") == []
    assert findings("warning")[0].startswith("arm 'cox' cannot be fitted: covariates")


def test_few_events_for_each_coefficient_are_a_warning_and_a_penalty_stills_it():
    write(patients(40))
    (message,) = findings()
    assert "arm 'cox' has 3 coefficients, and about" in message
    assert (
        "events to train on: fewer than 10 for each. Leave columns out, or set a ridge" in message
    )
    write(patients(40), "{method: cox, l2: 0.1}")
    assert findings() == []


def test_values_that_are_filled_in_are_told_with_their_share():
    frame = patients()
    frame.loc[np.arange(300) % 25 < 13, "hb"] = np.nan
    write(frame)
    (message,) = findings("warning")
    assert "missing values are filled in (impute: median) in many rows of 'hb' (5" in message
    code, printed, _ = command("run", "s.yaml", "--out", "out", "--workers", 1)
    (row,) = json.loads(Path("out/results.json").read_text())["filled"]
    assert (code, row["column"], row["impute"]) == (0, "hb", "median")
    train = 1 - frame["hb"].count() / len(frame)
    assert abs(row["share"] - train) < 0.05
    assert f"filled in, of all rows: hb {row['share']:.0%}\n" in printed
    page = Path("out/report.html").read_text()
    assert "Many values were missing and were filled in before the fit: hb (5" in page


def test_a_fit_that_takes_long_is_named_and_gone_on_from(monkeypatch):
    write(patients(), "{method: cox}, {method: kaplan_meier}")
    monkeypatch.setattr(rehearsal, "SECONDS", 0.0)
    study = Study.from_file("s.yaml")
    tried = list(rehearsal.rehearsed(study.plan, study.table, seconds=0.0))
    assert [(t.run, t.refused) for t in tried] == [(None, "")] * 2
    report = command("data", "check", "s.yaml")[1]
    assert "nothing found" in report


def test_what_a_fit_of_one_round_of_many_ended_as_is_not_told():
    arm = "{method: personal, name: p, user: a, way: cluster, rounds: 6}"
    write(patients(), arm)
    study = Study.from_file("s.yaml")
    (one,) = rehearsal.rehearsed(study.plan, study.table)
    assert any("not split" in caution for caution in one.run.model.cautions())
    assert findings() == []


def test_too_few_rounds_for_so_many_sites_are_said_before_the_run():
    """With 3 sites and a damping of 1/3, (2/3)^2 = 44 % of the start is left after 2 rounds."""
    net = "{method: bayes_net, hidden: [2], rounds: %d, internal_epochs: 1, samples: 2}"
    write(patients(), net % 2)
    (said,) = [one for one in findings("warning") if "rounds are too few" in one]
    assert said.startswith("arm 'bayes_net': with 3 sites, 2 rounds are too few: 44%")
    write(patients(), net % 6)  # (2/3)^6 is 9 %
    assert not [one for one in findings("warning") if "rounds are too few" in one]
