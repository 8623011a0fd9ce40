"""What is wrong with a study is said on one line, with file, line and key, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcohort.protocol import StudyError
from fedcohort.study import plan, yamlfile

GOOD = """\
study: small
data:
  source: sample:gbsg2
  outcome: {time: time, event: cens}
  sites: {split: iid, n: 4}
arms:
  - {method: cox}
"""


def check(text: str) -> plan.Plan:
    return plan.check(yamlfile.parse(text, "s.yaml"), Path())


def problem(text: str) -> str:
    with pytest.raises(StudyError) as caught:
        check(text)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_smallest_study_gets_every_default():
    p = check(GOOD)
    assert (p.study, p.task, p.seed, p.repeats, p.test_fraction) == (
        "small",
        "survival",
        0,
        5,
        0.25,
    )
    assert [s.name for s in p.scenarios] == ["iid"]
    assert [(a.name, a.scope) for a in p.arms] == [("cox", "sites")]
    assert p.min_cell == 5
    assert p.quorum == 1.0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("arms:", "armz:", "s.yaml, line 6, armz: unknown key 'armz'; did you mean 'arms'?"),
        ("method: cox", "method: coxx", "line 7, arms.0.method: there is no method 'coxx'; did you mean 'cox'?"),
        ("{method: cox}", "{method: cox, tyes: efron}", "arms.0: method 'cox' has no setting 'tyes'; did you mean 'ties'?"),
        ("{method: cox}", "{method: cox, ties: exactly}", "arms.0: setting 'ties'"),
        ("{method: cox}", "{method: cox, l2: small}", "setting 'l2' of method 'cox' is 'small'; it must be of type float"),
        ("{method: cox}", "{name: x}", "arms.0: expected a mapping with at least 'method'."),
        ("{method: cox}", "{method: cox, scale: minmx}", "arms.0.scale: 'minmx' is not possible; did you mean 'minmax'?"),
        ("n: 4", "n: 0", "data.sites.n: expected a whole number of at least 1."),
        ("n: 4", "n: many", "data.sites.n: expected a whole number of at least 1."),
        (", n: 4", "", "data.sites: the key 'n' is missing"),
        ("split: iid", "split: idd", "line 5, data.sites.split: 'idd' is not possible; did you mean 'iid'?"),
        ("split: iid, n: 4", "column: hospital, split: iid", "expected either 'column' (natural sites) or 'split' and 'n'."),
        ("  sites: {split: iid, n: 4}\n", "", "data: the key 'sites' is missing"),
        ("  source: sample:gbsg2\n", "", "data: the key 'source' is missing."),
        ("event: cens", "evnt: cens", "data.outcome.evnt: unknown key 'evnt'; did you mean 'event'?"),
        ("study: small", "study: a/b", "study: expected a name that can be a folder's"),
        ("study: small", "study: small\ntask: survivl", "task: 'survivl' is not possible; did you mean 'survival'?"),
        ("study: small", "study: small\nseed: -1", "seed: expected a whole number of at least 0."),
        ("study: small", "study: small\nquorum: 1.5", "quorum: expected a number between 0 and 1."),
        ("study: small", "study: small\nscenarios: []", "scenarios: expected a list"),
        ("study: small", "study: small\nscenarios: [iid, iid]", "scenarios.1: the scenario 'iid' stands twice."),
        ("study: small", "study: small\nscenarios: [natural]", "scenarios.0: 'natural' is not possible"),
        ("study: small", "study: small\nbounds: [isolatd]", "bounds.0: 'isolatd' is not possible; did you mean 'isolated'?"),
        ("study: small", "study: small\nevaluate: {repeats: 0}", "evaluate.repeats: expected a whole number of at least 1."),
        ("study: small", "study: small\nevaluate: {test_fraction: 1}", "evaluate.test_fraction: expected a number between 0 and 1."),
        ("study: small", "study: small\nevaluate: {metrics: [auc]}", "evaluate.metrics.0: 'auc' is not possible"),
        ("study: small", "study: small\nprivacy: {secure_aggregation: true}", "privacy.secure_aggregation: this version cannot do that"),
        ("study: small", "study: small\nprivacy: {dp: {epsilon: 3}}", "privacy.dp: this version cannot do that"),
        ("study: small", "study: small\ntune: {trials: 3}", "tune: 'trials' and 'space' belong together"),
        ("study: small", "study: small\ntune: {arms: {nobody: {l2: [1]}}}", "tune.arms.nobody: unknown key 'nobody'"),
        ("study: small", "study: small\ntune: {arms: {cox: {ll2: [1]}}}", "tune.arms.cox.ll2: unknown setting; did you mean 'l2'?"),
        ("study: small", "study: small\ntune: {grid: {l2: 1}}", "tune.grid.l2: expected a list of values to try."),
        ("study: small", "study: small\nstudy: again", "s.yaml, line 2: key 'study' stands twice."),
        ("study: small", "study: [small", "this is no YAML"),
        ("  - {method: cox}", "  - {method: cox}\n  - {method: cox}", "two arms are called 'cox'"),
    ],
)  # fmt: skip
def test_a_broken_study_is_named_by_file_line_and_key(old, new, said):
    text = GOOD.replace(old, new)
    assert text != GOOD
    assert said in problem(text)


def test_bounds_inherit_the_first_arm_and_stand_around_the_arms():
    p = check(
        GOOD.replace("{method: cox}", "{method: cox, l2: 0.5}")
        + "bounds: {isolated: {l2: 1}, centralised: }\n"
    )
    assert [(a.name, a.scope) for a in p.arms] == [
        ("isolated", "isolated"),
        ("cox", "sites"),
        ("centralised", "centralised"),
    ]
    assert [dict(a.settings)["l2"] for a in p.arms] == [1, 0.5, 0.5]


def test_overrides_reach_lists_and_new_keys():
    doc = yamlfile.parse(GOOD, "s.yaml")
    for assignment in ("arms.0.l2=0.25", "evaluate.repeats=3", "data.sites.n=6"):
        yamlfile.override(doc.content, assignment)
    p = plan.check(doc, Path())
    assert (p.arms[0].settings["l2"], p.repeats, p.n_sites) == (0.25, 3, 6)


@pytest.mark.parametrize("bad", ["l2", "=3", "arms.7.l2=1", "study.name=1", "arms.x=1", "seed=[1"])
def test_an_impossible_override_is_named(bad):
    doc = yamlfile.parse(GOOD, "s.yaml")
    with pytest.raises(StudyError, match="--set"):
        yamlfile.override(doc.content, bad)


def test_a_missing_study_file_is_one_line(tmp_path):
    with pytest.raises(StudyError, match="cannot read the file"):
        yamlfile.read(tmp_path / "nowhere.yaml")
