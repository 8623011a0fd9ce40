"""Regressions of several classes over a masked network, from the study file to the report."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
import yaml
from numpy.testing import assert_allclose

import several
from algorithms.multinomial_cases import with_mnlogit, with_ordered_model
from deployed_cases import MaskedSites, results_of
from fedcohort import report
from fedcohort.data.tables import LabelledTable
from fedcohort.protocol import Refused, Task, registry
from fedcohort.protocol.host import Arguments, Call
from fedcohort.study.at_site.bounds import Bounds
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.run.runner import run_over
from fedcohort.study.sites.sites import LocalSites

STUDY = """\
study: grades
task: classification
data: {dictionary: d.yaml, outcome: {y: grade, type: ordinal}}
arms: [{method: multinomial, reference: mid}, {method: ordinal}]
bounds: []
evaluate: {repeats: 1}
final: true
"""


def written(folder, study=STUDY, rows=180):
    """Return the terms and the tables of a study, of which a site lacks a class."""
    (folder / "d.yaml").write_text(yaml.safe_dump({"variables": several.DICTIONARY}))
    (folder / "s.yaml").write_text(study)
    terms = Terms.of(folder / "s.yaml")
    frame = several.patients(rows)
    frame.loc[(frame.site == "east") & (frame.grade == "high"), "site"] = "south"  # lacks a class
    tables = [
        SiteTable.of(terms, str(s), rows.drop(columns="site").reset_index(drop=True))
        for s, rows in frame.groupby("site")
    ]
    return terms, frame, tables


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the terms, the whole table, the results and the folder of a masked run."""
    folder = tmp_path_factory.mktemp("multinomial")
    terms, frame, tables = written(folder)
    run_over(terms, MaskedSites(terms, tables, folder), folder / "out", debug=True)
    return terms, frame, results_of(folder / "out"), folder / "out"


def pooled(frame):
    grade = frame["grade"].map({name: k for k, name in enumerate(several.LEVELS)})
    return LabelledTable(frame[["a", "b"]].to_numpy(), grade.to_numpy())


def test_final_fits_are_those_of_statsmodels_on_all_rows(run):
    _, frame, found, _ = run
    final = {f["arm"]: f for f in found["final"]}
    beta, covariance, _ = with_mnlogit(pooled(frame))
    turn = np.kron([[-1.0, 0.0], [-1.0, 1.0]], np.eye(3))  # against "mid", of "low" and "high"
    errors = np.sqrt(np.diag(turn @ covariance @ turn.T)).reshape(2, 3)[:, 1:]
    rows = final["multinomial"]["coefficients"]
    assert [(r["class"], r["covariate"]) for r in rows] == [
        ("low", "a"), ("low", "b"), ("high", "a"), ("high", "b"),
    ]  # fmt: skip
    expected = (turn @ beta.ravel()).reshape(2, 3)[:, 1:]
    assert_allclose([r["coefficient"] for r in rows], expected.ravel(), rtol=1e-6)
    assert_allclose([r["standard_error"] for r in rows], errors.ravel(), rtol=1e-6)
    thresholds, slopes, _, _ = with_ordered_model(pooled(frame))
    own = final["ordinal"]
    assert_allclose([r["coefficient"] for r in own["coefficients"]], slopes, rtol=1e-6)
    assert_allclose([r["value"] for r in own["parameters"]], thresholds, rtol=1e-6)
    assert [r["covariate"] for r in own["proportional_odds"]] == ["a", "b", "global"]


def test_the_report_and_the_model_card_show_effects_by_class_and_the_test(run):
    *_, out = run
    page = report.write(out).read_text("utf-8")
    assert "Coefficients by class, each compared with mid" in page
    assert "Relative-risk ratio: by how much the probability of a class" in page
    assert "by how much the odds of a higher class are multiplied" in page
    assert "Is the effect of a covariate the same between all classes?" in page
    assert "Proportional odds were tested" in page
    card = (out / "models" / "multinomial" / "card.md").read_text("utf-8")
    assert "| high against mid: a |" in card
    card = (out / "models" / "ordinal" / "card.md").read_text("utf-8")
    assert "threshold, low \\| mid" in card


def test_only_sums_left_the_sites(run):
    *_, out = run
    lines = [json.loads(line) for line in (out / "ledger.jsonl").read_text().splitlines()]
    verbs = {line["step"]: line["verb"] for line in lines if "step" in line}
    assert {verbs[step] for step in ("isolation", "tally", "slopes", "freed")} == {"sum"}


@pytest.mark.parametrize("arm", ["multinomial", "ordinal"])
@pytest.mark.parametrize("name", ["isolation", "differences", "tally", "slopes"])
def test_a_site_refuses_another_number_of_classes_and_another_law(run, arm, name):
    terms = run[0]
    own = next(a for a in terms.plan.arms if a.name == arm)
    (step,) = (s for s in registry.find(arm).steps if s.name == name)
    bounds = Bounds(terms, "fit", own)
    call = Call(0, step, "sum", None, Arguments({}, ("a", "b")))
    asked = "n_classes" if name in ("isolation", "differences") else "classes"
    bounds.check(call, {asked: 3})
    for classes in (0, 2, 4, 1000):
        with pytest.raises(Refused, match=f"classes of {name} differs"):
            bounds.check(call, {asked: classes})
    if name == "slopes":
        bounds.check(call, {"law": arm})
        with pytest.raises(Refused, match="law of slopes differs"):
            bounds.check(call, {"law": "another"})


ONE_SITE = """\
[{method: personal, user: south, rounds: 3}, {method: weight_erosion, user: south, rounds: 3},
 {method: influence, user: south}, {method: ndoye, user: south, k: 1}]
"""


def test_models_of_several_classes_for_one_site_are_fitted_and_judged_over_a_network(tmp_path):
    arms = STUDY[STUDY.index("arms") : STUDY.index("bounds")]
    study = STUDY.replace(arms, f"arms: {ONE_SITE}").replace("final: true\n", "")
    terms, _, tables = written(tmp_path, study, 360)
    run_over(terms, LocalSites(terms, tables), tmp_path / "out", debug=True)
    found = results_of(tmp_path / "out")
    assert {a["status"] for a in found["arms"]} == {"done"}
    for arm in ("personal", "weight_erosion", "influence", "ndoye"):
        rows = [r for r in found["coefficients"] if r["arm"] == arm]
        assert [(r["class"], r["covariate"]) for r in rows] == [
            (level, name) for level in several.LEVELS[1:] for name in "ab"
        ]
        assert {r["reference"] for r in rows} == {"low"}


@pytest.mark.parametrize("method", ["influence", "personal", "weight_erosion"])
def test_a_site_refuses_a_number_of_classes_that_is_not_the_studys(tmp_path, method):
    arms = STUDY[STUDY.index("arms") : STUDY.index("bounds")]
    arm = f"arms: [{{method: {method}, user: south}}]\n"
    terms, *_ = written(tmp_path, STUDY.replace(arms, arm))
    held = Bounds(terms, "fit", terms.plan.arms[0], seed=7)
    name = {"influence": "own_sums", "personal": "train_here"}.get(method, "tell_slope")
    step = next(s for s in registry.find(method).steps if s.name == name)
    call = Call(0, step, step.verb, None, Arguments({}, ()), among=("east", "south", "west"))
    task = Task(kind="classification", features=(), outcome="ordinal", levels=several.LEVELS)
    config = registry.find(method).configure(terms.plan.arms[0].configured())
    bounds = registry.find(method).bounds(config, task)
    known = {k: v[0] for k, v in bounds.items() if k in inspect.signature(step.run).parameters}
    held.check(call, known)
    wrong = {"classes": 4} if method == "influence" else {"plan": known["plan"].replace("3", "4")}
    with pytest.raises(Refused, match="more than the approved study"):
        held.check(call, {**known, **wrong})
