"""What is wrong with a study is said on one line, with file, line and key, before anything runs."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fedcohort as fc
from examples import examples
from fedcohort.protocol import StudyError
from fedcohort.study.file import plan, yamlfile

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


@pytest.mark.parametrize("kind", ["category", "ordinal"])
def test_a_method_that_does_not_learn_the_outcome_is_refused_at_its_line(kind):
    text = GOOD.replace("study: small", "study: small\ntask: classification")
    text = text.replace("{time: time, event: cens}", f"{{y: tgrade, type: {kind}}}")
    said = problem(text.replace("method: cox", "method: logistic"))
    assert f"arms.0.method: method 'logistic' learns no outcome of type {kind};" in said


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
        ("study: small", "study: a/b", "study: expected a valid folder name"),
        ("study: small", "study: small\ntask: survivl", "task: 'survivl' is not possible; did you mean 'survival'?"),
        ("study: small", "study: small\nseed: -1", "seed: expected a whole number of at least 0."),
        ("study: small", "study: small\nquorum: 1.5", "quorum: expected a number between 0 and 1."),
        ("study: small", "study: small\nscenarios: []", "scenarios: expected a list"),
        ("study: small", "study: small\nscenarios: [iid, iid]", "scenarios.1: the scenario 'iid' stands twice."),
        ("study: small", "study: small\nscenarios: [natural]", "scenarios.0: 'natural' is not possible"),
        ("study: small", "study: small\nbounds: [isolatd]", "bounds.0: 'isolatd' is not possible; did you mean 'isolated'?"),
        ("study: small", "study: small\nevaluate: {repeats: 0}", "evaluate.repeats: expected a whole number from 1 to 1000."),
        ("study: small", "study: small\nevaluate: {test_fraction: 1}", "evaluate.test_fraction: expected a number between 0 and 1."),
        ("study: small", "study: small\nevaluate: {metrics: [auc]}", "evaluate.metrics.0: 'auc' is not possible"),
        ("study: small", "study: small\nprivacy: {secure_aggregation: maybe}", "privacy.secure_aggregation: expected auto, true or false."),
        ("study: small", "study: small\nprivacy: {dp: {delta: 1e-5}}", "the key 'epsilon' is missing"),
        ("study: small", "study: small\nprivacy: {dp: {epsilon: 0}}", "privacy.dp.epsilon: expected a number above 0."),
        ("study: small", "study: small\nprivacy: {dp: {epsilon: 1, delta: 1}}", "privacy.dp.delta: expected a number between 0 and 1."),
        ("study: small", "study: small\nprivacy: {dp: {epsilon: 1, unit: hospital}}", "privacy.dp.unit: 'hospital' is not possible"),
        ("study: small", "study: small\nprivacy: {dp: {epsilon: 1, clip: -1}}", "privacy.dp.clip: expected a number above 0."),
        ("study: small", "study: small\ntune: {trials: 3}", "tune: 'trials' and 'space' belong together"),
        ("study: small", "study: small\ntune: {arms: {nobody: {l2: [1]}}}", "tune.arms.nobody: unknown key 'nobody'"),
        ("study: small", "study: small\ntune: {arms: {cox: {ll2: [1]}}}", "tune.arms.cox.ll2: unknown setting; did you mean 'l2'?"),
        ("study: small", "study: small\ntune: {grid: {l2: 1}}", "tune.grid.l2: expected a list of values to try."),
        ("study: small", "study: small\nstudy: again", "s.yaml, line 2: key 'study' stands twice."),
        ("study: small", "study: [small", "this is no plain YAML"),
        ("study: small", "study: small\n1: x", "s.yaml, line 2: '1' as a key is no text; put it in quotes."),
        ("study: small", "study: small\ntrue: x", "s.yaml, line 2: 'true' as a key is no text"),
        ("study: small", "study: small\nquestion: &a [*a]", "s.yaml: this is nested too deeply, or within itself."),
        ("study: small", "study: small\nquestion: !!python/object:os.system x", "s.yaml, line 2: this is no plain YAML"),
        ("study: small", "study: small\nseed: !!int x", "a value is not of the type that its tag (!!) says"),
        ("study: small", "study: small\nseed: 2020-99-99", "seed: expected a whole number of at least 0."),
        ("study: small", 'study: "a\\nb"', "study: expected a valid folder name"),
        ("study: small", "study: ' '", "study: expected a valid folder name"),
        ("study: small", "study: [a]", "study: expected text."),
        ("sample:gbsg2", '"a\\0b"', "data.source: the character NUL may not occur."),
        ("{split: iid, n: 4}", "hospital", "data.sites: expected a mapping with keys column"),
        ("{split: iid, n: 4}", "{column: hospital, n: 4}", "data.sites.n: unknown key 'n'; known are column, min_events, min_rows, small."),
        ("split: iid, n: 4", "split: iid, hub: 0.3, n: 4", "data.sites.hub: this is no option of split 'iid'; it has none."),
        ("split: iid, n: 4", "split: unbalanced, hub: 1.5, n: 4", "data.sites.hub: expected a number between 0 and 1."),
        ("split: iid, n: 4", "split: groups, n: 4", "data.sites: the key 'group' is missing"),
        ("study: small", "study: small\nscenarios: [{split: dirichlet, alpha: -1}]", "s.yaml, line 2, scenarios.0.alpha: expected a number between 0 and 1e+06."),
        ("study: small", "study: small\nscenarios: [{split: dirichlet, hub: 0.5}]", "this is no option of split 'dirichlet'; its options are alpha."),
        ("study: small", "study: small\nscenarios: [{hub: 0.5}]", "scenarios.0.split: None is not possible"),
        ("study: small", "study: small\nbounds: [isolated]\nquorum: []", "quorum: expected a number between 0 and 1."),
        ("study: small", "study: small\nbounds: isolated", "bounds: expected a list with some of isolated, centralised."),
        ("study: small", "study: small\nbounds: 0", "bounds: expected a list with some of isolated, centralised."),
        ("study: small", "study: small\nbounds: {isolated: 3}", "bounds.isolated: expected a mapping of settings, or nothing."),
        ("study: small", "study: small\nbounds: {isolated: {strategy: exact}}", "bounds.isolated.strategy: a bound has no 'strategy' of its own."),
        ("{method: cox}", "{method: cox, name: isolated}", "arms.0.name: 'isolated' is the name of a bound."),
        ("{method: cox}", "{method: cox, strategy: isolated}\nbounds: [isolated]", "bounds: an arm is called 'isolated' as well; give it another 'name'."),
        ("{method: cox}", "{method: cox, name: [a]}", "arms.0.name: expected text."),
        ("{method: cox}", "{method: cox, name: ../x}", "arms.0.name: expected a valid folder name"),
        ("{method: cox}", "{method: cox, title: {a: b}}", "arms.0.title: expected text."),
        ("{method: cox}", "{method: cox}\ntask: classification", "data.outcome.time: unknown key 'time'"),
        ("study: small", "study: small\nevaluate: {metrics: c_index}", "evaluate.metrics: expected a list with some of c_index"),
        ("study: small", "study: small\nevaluate: {repeats: 999999999999999999999}", "evaluate.repeats: expected a whole number from 1 to 1000."),
        ("study: small", "study: small\nevaluate: {draws: true}", "evaluate.draws: expected a whole number from 2 to 10000."),
        ("study: small", "study: small\nprivacy: {dp: 0}", "privacy.dp: expected a mapping with keys epsilon, delta, unit, clip"),
        ("study: small", "study: small\ntune: {trials: 0, space: {l2: [1, 2]}}", "tune.trials: expected a whole number from 1 to 10000."),
        ("study: small", "study: small\ntune: {trials: null, space: {l2: [1, 2]}}", "tune: 'trials' and 'space' belong together"),
        ("study: small", "study: small\ntune: {trials: 3, space: l2}", "tune.space: expected a mapping from settings."),
        ("study: small", "study: small\ntune: {trials: 3, space: {l2: 0.1 to 1}}", "tune.space.l2: tune.space.l2 must be [low, high]"),
        ("study: small", "study: small\ntune: {trials: 3, space: {l2: [.nan, 1]}}", "must be [low, high]"),
        ("study: small", "study: small\ntune: {trials: 3, space: {l2: [-1, 1]}}", "tune.space.l2: setting 'l2' of method 'cox'"),
        ("study: small", "study: small\ntune: {trials: 3, space: {l3: [0, 1]}}", "tune.space.l3: no arm has this setting; did you mean 'l2'?"),
        ("study: small", "study: small\ntune: {grid: {ll2: [1]}}", "tune.grid.ll2: no arm has this setting; did you mean 'l2'?"),
        ("study: small", "study: small\ntune: {grid: {cox: {l2: [1]}}}", "tune.grid.cox: 'cox' is no setting; give values for the arm 'cox' alone as tune.arms: {cox: {SETTING: [VALUE, …]}}."),
        ("{method: cox}", "{method: cox, name: small}\ntune: {grid: {cox: {l2: [1]}}}", "tune.grid.cox: 'cox' is no setting; give values for the arm 'small' alone as tune.arms: {small:"),
        ("{method: cox}", "{method: forest}\ntune: {grid: {n_estimators: [1]}}", "tune.grid.n_estimators: no arm has this setting; did you mean 'trees'?"),
        ("{method: cox}", "{method: boosting}\ntune: {arms: {boosting: {eta: [1]}}}", "tune.arms.boosting.eta: unknown setting; did you mean 'learning_rate'?"),
        ("study: small", "study: small\ntune: {arms: [cox]}", "tune.arms: expected a mapping from arms."),
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


def test_a_bound_of_another_method_takes_over_only_what_that_method_has():
    """`hidden` of the first arm was refused in a bound that never had it."""
    arms = "{method: deepcox, l2: 0.5, hidden: [4], scale: minmax}"
    p = check(GOOD.replace("{method: cox}", arms) + "bounds: {isolated: {method: cox}}\n")
    (alone,) = (a for a in p.arms if a.scope == "isolated")
    assert (alone.method, dict(alone.settings)) == ("cox", {"l2": 0.5})
    assert alone.preprocess["scale"] == "minmax"


def test_overrides_reach_lists_and_new_keys():
    doc = yamlfile.parse(GOOD, "s.yaml")
    for assignment in ("arms.0.l2=0.25", "evaluate.repeats=3", "data.sites.n=6"):
        doc = doc.with_override(assignment)
    p = plan.check(doc, Path())
    assert (p.arms[0].settings["l2"], p.repeats, p.n_sites) == (0.25, 3, 6)


@pytest.mark.parametrize(
    "bad",
    [
        "l2",
        "=3",
        "arms..l2=1",
        "arms.7.l2=1",
        "arms.-1.l2=1",
        "study.name=1",
        "arms.x=1",
        "seed=[1",
        "seed={a: 1, a: 2}",
    ],
)
def test_an_impossible_override_is_named(bad):
    doc = yamlfile.parse(GOOD, "s.yaml")
    with pytest.raises(StudyError, match="--set"):
        doc.with_override(bad)


def test_a_path_that_begins_with_the_site_needs_no_inner_quotes():
    """A shell takes the quotes away; in a file the error says which to write."""
    doc = yamlfile.parse(GOOD, "s.yaml").with_override("data.source={site}/table.csv")
    assert doc.content["data"]["source"] == "{site}/table.csv"
    quoted = yamlfile.parse(GOOD, "s.yaml").with_override('data.source="{site}/table.csv"')
    assert quoted.content == doc.content
    with pytest.raises(StudyError, match=r"line 2: .* in quotes: '\{site\}/table\.csv'"):
        yamlfile.parse("data:\n  source: {site}/table.csv\n", "s.yaml")


def test_a_missing_study_file_is_one_line(tmp_path):
    with pytest.raises(StudyError, match="cannot read the file"):
        yamlfile.read(tmp_path / "nowhere.yaml")


def test_what_is_wrong_with_an_override_is_said_of_the_override():
    doc = yamlfile.parse(GOOD, "s.yaml").with_override("data.sites={split: iid, n: 0}")
    with pytest.raises(StudyError, match=r"^s\.yaml, given by --set, data\.sites\.n: expected"):
        plan.check(doc, Path())


def test_an_override_leaves_the_document_as_it_was_and_fills_empty_keys():
    doc = yamlfile.parse(GOOD + "bounds: {isolated: }\n", "s.yaml")
    p = plan.check(doc.with_override("bounds.isolated.l2=0.5"), Path())
    assert p.arms[0].settings == {"l2": 0.5}
    assert doc.content["bounds"] == {"isolated": None}


def test_anchors_merge_and_dates_are_text():
    arms = "arms:\n  - &a {method: cox, name: 2020-01-01, l2: 1}\n  - {<<: *a, name: second}\n"
    p = check(GOOD.partition("arms:")[0] + arms)
    assert [(a.name, a.settings["l2"]) for a in p.arms] == [("2020-01-01", 1), ("second", 1)]


def test_a_file_that_repeats_itself_without_end_is_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    assert "more than 20000 keys and items" in problem("\n".join(lines))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)  # fmt: skip
FULL = yaml.safe_load(
    GOOD.replace("{method: cox}", "{method: cox, name: a, title: b, l2: 1, scale: minmax}")
    + """\
scenarios: [iid, {name: hub, split: unbalanced, hub: 0.5}]
bounds: {isolated: {l2: 1}}
evaluate: {test_fraction: 0.25, repeats: 2, draws: 10, metrics: [c_index]}
tune: {by: row-kfold, grid: {l2: [1]}, arms: {a: {l2: [2]}}, trials: 2, space: {l2: [1, 2]}}
privacy: {min_cell: 5, dp: false}
quorum: 0.5
"""
)


def test_folds_of_rows_for_one_arm_leave_it_the_grid_of_all():
    more = "tune: {grid: {l2: [1, 2]}, arms: {a: {by: row-kfold}}}\n"
    arm = check(GOOD.replace("{method: cox}", "{method: cox, name: a}") + more).arms[0]
    assert arm.grid == {"l2": [1, 2]}
    assert arm.folds == "row-kfold"


def places(value: object, at: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [at, *(p for k, v in inner for p in places(v, (*at, k)))]  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(where=st.sampled_from(places(FULL)[1:]), junk=JUNK)
@example(where=("data",), junk={"\x1e": None})
@example(where=("arms", 0, "name"), junk="a\u2028b\x1b[2J")
def test_whatever_stands_at_any_place_is_taken_or_refused_on_one_line(where, junk):
    content = copy.deepcopy(FULL)
    inside = content
    for part in where[:-1]:
        inside = inside[part]
    inside[where[-1]] = junk
    try:
        plan.check(yamlfile.Document(content, "s.yaml"), Path())
    except StudyError as error:
        assert str(error).startswith("s.yaml")
        assert len(str(error).splitlines()) == 1


GOVERNED = GOOD + "governance: {purpose: a score, ethics: EK 2026-114, recipients: [Bern, Basel]}\n"


def test_what_a_data_protection_officer_asks_is_read_as_lines_of_text():
    assert check(GOOD).governance == {}
    assert check(GOVERNED).governance == {
        "purpose": "a score", "ethics": "EK 2026-114", "recipients": "Bern, Basel",
    }  # fmt: skip
    assert "'legal_basis'" in problem(GOVERNED.replace("purpose", "legal_basi"))
    for bad in ('"\\e[2J"', "[]", "{a: 1}", "true", f"'{'x' * 401}'", "''"):
        assert "governance.purpose" in problem(GOVERNED.replace("a score", bad))


def test_an_image_whose_pixels_are_not_the_columns_is_refused_before_anything_is_written(tmp_path):
    """The study wrote a folder with a failed arm."""
    text = """\
study: digits
task: classification
data: {source: "sample:digits", outcome: {y: target, type: category}, sites: {split: iid, n: 3}}
arms: [{method: classifier, image: [8, 9]}]
"""
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(StudyError, match="8 × 9, which is 72 pixels, but the fit has 64 columns"):
        fc.Study.from_file(tmp_path / "s.yaml")
    (tmp_path / "s.yaml").write_text(text.replace("[8, 9]", "[8, 8]"))
    assert fc.Study.from_file(tmp_path / "s.yaml").plan.arms[0].name == "classifier"
