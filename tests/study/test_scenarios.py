"""Scenarios that make training rows worse: every arm sees the same, and blind rows stay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

import fedcohort as fc
from fedcohort.data.read.sources import load
from fedcohort.protocol import StudyError
from fedcohort.study.file.terms import Terms
from fedcohort.study.results.scenarios import given_row
from fedcohort.study.run.pieces import FINAL
from fedcohort.study.sites.counts import count
from fedcohort.study.sites.layout import lay_out

STUDY = """\
study: worse
task: classification
data: {source: sample:breast_cancer, sites: {split: iid, n: 5}}
preprocess: {impute: median}
scenarios:
  - iid
  - name: bad nodes
    split: iid
    degrade:
      - {sites: [site-2], rows: 40, missing: 0.3}
      - {sites: 1, flip: 0.2, units: {mean radius: 10}}
  - {name: swapped, split: iid, swap_outcome: 0.2}
  - {name: few, split: unbalanced, degrade: {sites: [site-1], rows: 3}}
arms: [{method: lda}]
bounds: [isolated, centralised]
evaluate: {repeats: 1, draws: 2, metrics: [auc]}
"""


def study_of(folder, change=lambda text: text):
    path = folder / "s.yaml"
    path.write_text(change(STUDY))
    return fc.Study.from_file(path)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return study_of(tmp_path_factory.mktemp("worse"))


@pytest.fixture(scope="module")
def results(study, tmp_path_factory):
    out = tmp_path_factory.mktemp("ran") / "out"
    study.run(out)
    return json.loads((out / "results.json").read_text())


def laid(study, i, repeat=0):
    return lay_out(study.plan, study.table, study.plan.scenarios[i], repeat)


def tables(study, i):
    return {s: f.reset_index(drop=True) for s, f in laid(study, i).problem.frames.items()}


def test_blind_rows_are_those_that_were_read_in_every_scenario_and_repeat(study):
    read = load("sample:breast_cancer", study.plan.base).frames
    for repeat in (0, 1):
        for i in range(4):
            one = laid(study, i, repeat)
            assert_frame_equal(one.test, read.iloc[one.test_rows].reset_index(drop=True))
            assert (one.test_rows == laid(study, 0, repeat).test_rows).all()


def test_what_results_tell_of_each_site_is_what_the_tables_show(study, results):
    clean, bad = tables(study, 0), tables(study, 1)
    told = {g["site"]: g for g in results["scenarios"][1]["given"]}
    drawn = [s for s, g in told.items() if g["degraded"] and s != "site-2"]
    assert len(drawn) == 1
    for site, frame in bad.items():
        was, known = clean[site], clean[site].notna()
        assert told[site]["laid"] == len(was)
        assert told[site]["rows"] == len(frame) == (40 if site == "site-2" else len(was))
        lost = int(frame.drop(columns="target").isna().to_numpy().sum())
        assert told[site]["removed"] == lost == (360 if site == "site-2" else 0)  # 0.3 · 40 · 30
        assert told[site]["known"] == int(known.to_numpy().sum())
    assert told["site-2"]["intact"] == 40 * 31 - 360
    flipped = (bad[drawn[0]]["target"] != clean[drawn[0]]["target"]).sum()
    n = len(clean[drawn[0]])
    assert flipped == told[drawn[0]]["flipped"] == round(0.2 * n)
    assert np.allclose(bad[drawn[0]]["mean radius"], 10 * clean[drawn[0]]["mean radius"])
    assert told[drawn[0]]["intact"] == 31 * n - n - flipped
    assert "given" not in results["scenarios"][0]


def test_a_fifth_of_each_sites_outcomes_is_permuted(study, results):
    clean, swapped = tables(study, 0), tables(study, 2)
    for g in results["scenarios"][2]["given"]:
        was, now = clean[g["site"]], swapped[g["site"]]
        assert g["swapped"] == round(0.2 * len(was))
        assert sorted(was["target"]) == sorted(now["target"])
        assert 0 < (was["target"] != now["target"]).sum() <= g["swapped"]
        assert_frame_equal(was.drop(columns="target"), now.drop(columns="target"))


def test_counts_of_a_site_with_few_rows_are_hidden_and_no_count_follows(results):
    few = {g["site"]: g for g in results["scenarios"][3]["given"]}["site-1"]
    assert few["degraded"]
    assert few["rows"] is few["laid"] is few["removed"] is few["intact"] is None


def test_the_same_draws_twice_other_draws_in_another_repeat_and_sites_that_stay_the_same(study):
    one, again, other = laid(study, 1), laid(study, 1), laid(study, 1, 1)
    for site, frame in one.problem.frames.items():
        assert_frame_equal(frame, again.problem.frames[site])
    assert not one.problem.frames["site-2"].equals(other.problem.frames["site-2"])
    which = [{s for s, g in found.given.items() if g.degraded} for found in (one, other)]
    assert which[0] == which[1]
    scenario = replace(study.plan.scenarios[1], name="other")
    assert {s for s, g in lay_out(study.plan, study.table, scenario, FINAL).given.items()
            if g.degraded} == which[0]  # fmt: skip


def test_the_bounds_and_every_arm_see_the_worse_rows(study, results):
    """Each bound and arm, fitted by hand to the tables of `lay_out`, has the study's AUC."""
    from sklearn.metrics import roc_auc_score

    for i, name in enumerate(("iid", "bad nodes", "swapped")):
        one = laid(study, i)
        frames, y = one.problem.frames, one.test["target"]
        outcome = fc.Binary("target")

        found = {
            (a["arm"], a["site"]): a["metrics"]["auc"]
            for a in results["arms"]
            if (a["scenario"], a["repeat"]) == (name, 0)
        }
        fit = fc.fit("lda", fc.simulate(frames, outcome=outcome), impute="median")
        expected = roc_auc_score(y, fit.predict(one.test))
        assert found["lda", None] == pytest.approx(expected, abs=1e-9)
        pooled = fc.simulate({"pooled": pd.concat(list(frames.values()))}, outcome=outcome)
        fit = fc.fit("lda", pooled, impute="median", strategy="centralised")
        expected = roc_auc_score(y, fit.predict(one.test))
        assert found["centralised", None] == pytest.approx(expected, abs=1e-9)
    pooled = {(a["scenario"], a["repeat"]): a["metrics"]["auc"] for a in results["arms"]
              if a["arm"] == "centralised"}  # fmt: skip
    assert pooled["iid", 0] != pooled["swapped", 0]


def test_no_model_for_use_is_fitted_to_worse_rows(tmp_path, results):
    assert results["final"]  # the first scenario is as read

    def worse(text):
        return text.replace("scenarios:\n", "swap_outcome: 0.1\nscenarios:\n")

    study = study_of(tmp_path, worse)
    assert not study.plan.final
    assert all(s.swap_outcome for s in study.plan.scenarios)  # the study's holds for all
    with pytest.raises(StudyError, match="makes training rows worse"):
        study_of(tmp_path, lambda text: worse(text) + "final: true\n")


def test_a_scenarios_own_keys_stand_in_place_of_the_studys(tmp_path):
    def change(text):
        more = "degrade: {sites: 3, noise: 1}\nscenarios:\n  - {name: clean, split: iid, "
        return text.replace("scenarios:\n", more + "degrade: false}\n")

    plan = study_of(tmp_path, change).plan
    assert [bool(s.degrade) for s in plan.scenarios] == [False, True, True, True, True]
    assert [s.degrade[0].noise for s in plan.scenarios[1:]] == [1.0, 0.0, 1.0, 0.0]
    assert [plan.pooled_in(i) for i in range(5)] == [0, 1, 2, 3, 4]


def test_undegraded_scenarios_share_one_pooled_bound(study):
    assert [study.plan.pooled_in(i) for i in range(4)] == [0, 1, 2, 3]
    same = replace(study.plan.scenarios[0], name="again", rule="by-outcome")
    plan = replace(study.plan, scenarios=(study.plan.scenarios[1], *[same] * 2))
    assert [plan.pooled_in(i) for i in range(3)] == [0, 1, 1]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("flip: 0.2", "flipp: 0.2", r"line 11, scenarios.1.degrade.1.flipp.*did you mean 'flip'"),
        ("rows: 40", "rows: 1", "rows of at least 2, or a share"),
        ("missing: 0.3", "missing: {share: 0.3, by: chance}", "'chance' is not possible"),
        ("missing: 0.3", "missing: 1.3", "between 0 and 1"),
        ("sites: [site-2]", "sites: [site-9]", r"scenarios.1.*no site 'site-9'"),
        ("{sites: 1, flip: 0.2, units: {mean radius: 10}}", "{sites: 1}", "say what is done"),
        ("mean radius: 10", "radius: 10", "no column 'radius'"),
        ("swap_outcome: 0.2", "swap_outcome: 2", "between 0 and 1"),
        ("{name: swapped, split: iid, swap_outcome: 0.2}", "{split: overlap, group: target}",
         "'k' is missing"),
        ("{name: swapped, split: iid, swap_outcome: 0.2}", "overlap", "'group' is missing"),
        ("{name: swapped, split: iid, swap_outcome: 0.2}",
         "{split: overlap, group: target, k: 3}", "give k from 1 to 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_computed(tmp_path, old, new, said):
    assert old in STUDY
    with pytest.raises(StudyError, match=said):
        study_of(tmp_path, lambda text: text.replace(old, new))


@pytest.mark.parametrize("key", ["degrade: {sites: 1, rows: 5}", "swap_outcome: 0.2"])
def test_a_network_refuses_it(tmp_path, key):
    path = tmp_path / "s.yaml"
    path.write_text(STUDY + key + "\n")
    with pytest.raises(StudyError, match="over a network no site's rows are made worse"):
        Terms.of(path)


@pytest.mark.parametrize("key", ["degrade: {sites: 1, flip: 0.5}", "swap_outcome: 0.2"])
def test_an_outcome_that_no_fit_sees_is_not_changed(tmp_path, key):
    path = tmp_path / "s.yaml"
    path.write_text(
        f"study: s\ntask: clustering\ndata: {{source: sample:gbsg2, sites: {{split: iid, n: 3}}}}\n"
        f"arms: [{{method: kmeans}}]\n{key}\n"
    )
    with pytest.raises(StudyError, match="sees the outcome"):
        fc.Study.from_file(path)


NATURAL = """\
study: all at once
data: {source: memory, outcome: {time: time, event: cens}, sites: {column: ward}}
quorum: 0.5
degrade: {sites: [w2], rows: 0.5, missing: {share: 0.25, by: column}, flip: 0.1, replace: 0.1}
swap_outcome: 0.2
availability: {by_site: {w0: 0.5}, fraction: 0.75}
arms: [{method: deepcox, strategy: fedavg, rounds: 6, internal_epochs: 1}]
bounds: [isolated]
evaluate: {repeats: 1, draws: 2, metrics: [c_index]}
"""


def test_natural_sites_and_all_keys_at_once(tmp_path):
    frame = load("sample:gbsg2", tmp_path).frames
    frame = frame.assign(ward=[f"w{i % 4}" for i in range(len(frame))])
    path = tmp_path / "s.yaml"
    path.write_text(NATURAL)
    study = fc.Study.from_file(path, data=frame)
    results = study.run(tmp_path / "out").content
    assert {a["status"] for a in results["arms"]} == {"done"}
    (natural,) = results["scenarios"]
    bad = {g["site"]: g for g in natural["given"]}["w2"]
    assert bad["rows"] == np.floor(bad["laid"] / 2 + 0.5)
    assert len(bad["columns"]) == 2  # a quarter of 8
    rows = {s["site"]: s["rows"] for s in natural["sites"]}
    assert rows["w2"] == bad["rows"]
    assert {s["events"] for s in natural["sites"]} == {None}
    asked = {r["site"]: r for r in natural["rounds"]}
    assert asked["w0"]["away"] == 0.5
    assert asked["w1"]["away"] == 0
    heard = np.array([r["rounds"] for r in natural["rounds"]])
    assert (heard[:, 0] == 2).all()
    assert ((heard[:, 1:] == 2).sum(axis=0) == 3).all()  # three quarters of 4
    missed = {m["site"] for m in results["missing"]}
    assert "w0" in missed
    card = (tmp_path / "out" / "models" / "fedavg" / "card.md").read_text()
    assert "rows made worse on purpose: not for use" in card


def test_groups_of_each_site_are_told_without_counts(tmp_path):
    def change(text):
        own = "{name: swapped, split: iid, swap_outcome: 0.2}"
        return text.replace(own, "{split: overlap, group: target, k: 1, swap_outcome: 0.5}")

    study = study_of(tmp_path, change)
    shown = count(study.plan, study.table).settings[2]
    told = given_row(study.plan, study.table, study.plan.scenarios[2], shown)["groups"]
    assert (told["column"], told["names"]) == ("target", ["0", "1"])
    held = {g["site"]: g["groups"] for g in told["sites"]}
    for site, frame in tables(study, 2).items():
        assert held[site] == [str(int(v)) for v in sorted(frame["target"].unique())]
        assert len(held[site]) == 1


STUDIES = Path(__file__).parents[2] / "studies"


@pytest.mark.parametrize("name", ["bad-nodes", "swapped", "overlap", "away"])
def test_the_example_studies_pass_all_checks(name):
    plan = fc.Study.from_file(STUDIES / f"{name}.yaml").plan
    assert plan.study == name
    assert plan.availability or any(s.changed or s.rule == "overlap" for s in plan.scenarios)
