"""Models of a fit for all sites: each is judged on its own site's blind rows, as all arms are."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
import yaml
from numpy.testing import assert_array_equal
from sklearn.metrics import brier_score_loss, roc_auc_score

import fedcohort as fc
from deployed_cases import results_of, run_local
from fedcohort.data.read import sources
from fedcohort.protocol import StudyError, VerbRefused, registry
from fedcohort.report.run import Run, read
from fedcohort.report.sections import bounds, headline, own_models
from fedcohort.study.at_site.judging import Own
from fedcohort.study.at_site.keeping import TriedRows
from fedcohort.study.at_site.sessions import open_session
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.terms import Terms
from fedcohort.study.results.own_models import OwnModels
from fedcohort.study.run.engine import fit_once
from fedcohort.study.run.tune import Tuner, folds_of
from fedcohort.study.sites.few_sites import check_named
from fedcohort.study.sites.layout import lay_out, seed_of
from turned import frames

SIZES = {"oslo": 120, "bergen": 140, "bodø": 130, "moss": 150}
OWN = {"method": "personal", "name": "own", "user": "all", "way": "ditto", "rounds": 3}
COMMON = {"method": "personal", "name": "common", "user": "oslo", "way": "global", "rounds": 3}
STUDY = {
    "study": "each", "task": "classification", "seed": 2,
    "data": {"source": "{site}.csv", "dictionary": "dictionary.yaml", "outcome": {"y": "yes"}},
    "arms": [COMMON, OWN], "bounds": ["isolated", "centralised"],
    "evaluate": {"repeats": 1, "draws": 2, "metrics": ["auc", "brier"]},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("each")
    tables = {s: f[["a", "b", "yes"]] for s, f in frames(SIZES, {"moss", "bodø"}).items()}
    for name, frame in tables.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    known = fc.simulate(tables, outcome=fc.Binary("yes")).dictionary.to_dict()
    (folder / "dictionary.yaml").write_text(yaml.safe_dump(known))
    (folder / "s.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False))
    return folder


@pytest.fixture(scope="module")
def study(folder):
    return fc.Study.from_file(folder / "s.yaml")


@pytest.fixture(scope="module")
def out(study, folder):
    study.run(folder / "out")
    return folder / "out"


def metrics_of(out):
    return {(r["arm"], r["site"]): r["metrics"] for r in results_of(out)["arms"]}


def blind_of(study):
    laid = lay_out(study.plan, study.table, study.plan.scenarios[0], 0)
    return {s: laid.test[laid.test_site == s] for s in SIZES}


def within(said):
    """Return the share of concordant pairs of one site, over all sites; and the Brier score."""
    pairs = {s: y.sum() * (1 - y).sum() for s, (y, _) in said.items()}
    right = sum(pairs[s] * roc_auc_score(y, p) for s, (y, p) in said.items())
    y, p = (np.concatenate(part) for part in zip(*said.values(), strict=True))
    return {"auc": right / sum(pairs.values()), "brier": brier_score_loss(y, p)}


def test_every_arm_is_judged_on_each_sites_own_rows_by_its_model_for_that_site(study, out):
    blind = blind_of(study)
    models, found = out / "models", metrics_of(out)
    label = {s: (rows["yes"].astype(str) == "1").to_numpy(float) for s, rows in blind.items()}
    common = fc.load(models / "common" / "first-repeat")
    by_arm = {
        "own": {s: fc.load(models / "own" / "first-repeat" / "sites" / s) for s in SIZES},
        "common": dict.fromkeys(SIZES, common),
    }
    for arm, fits in by_arm.items():
        said = {s: (label[s], fits[s].predict(blind[s])) for s in SIZES}
        for metric, value in within(said).items():
            assert found[arm, None][metric] == pytest.approx(value, abs=1e-9), (arm, metric)
        for site, (y, p) in said.items():
            assert found[arm, site]["auc_own"] == pytest.approx(roc_auc_score(y, p), abs=1e-9)
    own = [found["isolated", s]["auc_own"] for s in SIZES]
    assert min(own) <= found["isolated", None]["auc"] <= max(own)
    assert found["own", None]["auc"] > found["common", None]["auc"] + 0.1


def test_a_rehearsal_of_the_deployed_study_gives_the_same_numbers(folder, out, tmp_path):
    terms = Terms.of(folder / "s.yaml")
    read = {s: sources.load(f"{s}.csv", folder, dictionary=terms.dictionary) for s in SIZES}
    tables = [SiteTable.of(terms, s, found.frames) for s, found in read.items()]
    run_local(terms, tables, tmp_path / "out")
    here, there = metrics_of(out), metrics_of(tmp_path / "out")
    for arm in ("isolated", "own", "common"):
        for metric in ("auc", "brier"):
            assert there[arm, None][metric] == pytest.approx(here[arm, None][metric], abs=1e-12)
    assert not (tmp_path / "out" / "models" / "own" / "sites").exists()
    for site in SIZES:
        node = tmp_path / "out-states" / "models" / site.encode().hex() / "own"
        theta = fc.load(out / "models" / "own" / "sites" / site).model.theta
        assert_array_equal(fc.load(node).model.theta, theta)


def test_the_final_models_of_sites_stand_beside_those_of_the_first_repeat(out):
    for site in SIZES:
        fit = fc.load(out / "models" / "own" / "sites" / site)
        assert fit.model.user == site
        assert fit.parts.notes["site"] == site
        assert fit.parts.notes["trained_on"] == "all rows"


def test_the_report_has_each_hospital_by_arm_and_says_how_ranks_are_compared(out):
    run = read(out)
    (arm,) = [a for a in run.arms if a.every]
    assert arm.name == "own"
    text = " ".join(ET.fromstring(own_models.section(run).body).itertext())
    found = metrics_of(out)
    for site in SIZES:
        for name in ("isolated", "common", "own", "centralised"):
            assert f"{found[name, site]['auc_own']:.3f}" in text
    assert "All hospitals" in text
    assert "own less common" in text
    assert "ranks of every arm compare patients of one hospital" in str(bounds.section(run).intro)
    said = " ".join(headline.caveats(run, arm))
    assert "“own” has a model for each hospital, judged on that hospital's patients" in said
    assert "“common” is a model for oslo" in said


def test_sites_of_a_split_are_judged_on_all_rows_or_with_local_tests_on_their_own(folder):
    for local in (False, True):
        whole = pd.concat([pd.read_csv(folder / f"{s}.csv") for s in SIZES])
        (folder / "one").mkdir(exist_ok=True)
        whole.to_csv(folder / "one" / "rows.csv", index=False)
        split = {
            **STUDY,
            "data": {**STUDY["data"], "source": "one/rows.csv", "sites": {"split": "iid", "n": 3}},
            "arms": [OWN], "bounds": ["isolated"],
            "evaluate": {**STUDY["evaluate"], "local": local},
        }  # fmt: skip
        (folder / "split.yaml").write_text(yaml.safe_dump(split, sort_keys=False))
        fc.Study.from_file(folder / "split.yaml").run(folder / f"split-{local}")
        found = metrics_of(folder / f"split-{local}")
        own = {s: m for (arm, s), m in found.items() if arm == "own" and s is not None}
        assert len(own) == 3
        if local:
            assert all(m["auc_own"] is not None for m in own.values())
            mean = np.mean([m["auc"] for m in own.values()])  # of each model on all rows
            assert found["own", None]["auc_all"] == pytest.approx(mean, abs=1e-12)
            assert found["own", None]["auc"] != found["own", None]["auc_all"]
            alone = [m["auc"] for (a, s), m in found.items() if a == "isolated" and s is not None]
            assert found["isolated", None]["auc_all"] == pytest.approx(np.mean(alone), abs=1e-12)
        else:
            mean = np.mean([m["auc"] for m in own.values()])
            assert found["own", None]["auc"] == pytest.approx(mean, abs=1e-12)
        text = ET.fromstring(own_models.section(read(folder / f"split-{local}")).body).itertext()
        assert ("own test patients" in " ".join(text)) == local


def test_where_no_site_can_be_judged_by_itself_the_report_says_so_and_of_whom_patients_are(
    out, tmp_path
):
    """Led by a metric that sites do not publish, it said that patients belonged to no hospital."""
    run = read(out)
    arms = [{**a, "metrics": {**a["metrics"], "auc_own": None}} for a in run.rows("arms")]
    hidden = Run({**run.results, "arms": arms}, out)
    text = " ".join(ET.fromstring(own_models.section(hidden).body).itertext())
    assert "shaded band" in bounds.section(run).intro
    rows = {k: [a for a in run.rows(k) if a["arm"] != "centralised"] for k in ("declared", "arms")}
    assert "shaded band" not in bounds.section(Run({**run.results, **rows}, out)).intro
    assert "the hospital's own test patients" in own_models.section(hidden).intro
    assert "No hospital has enough test patients to be judged by itself." in text


def test_a_site_named_all_is_refused_before_anything_is_written(study):
    check_named(study.plan, {"natural": ["oslo", "moss"]})
    with pytest.raises(StudyError, match=r"of arm 'own' is 'all', .* Rename the site"):
        check_named(study.plan, {"natural": ["oslo", "all"]})


TUNED = {
    **STUDY, "arms": [{**OWN, "rounds": 2}], "bounds": [],
    "tune": {"grid": {"pull": [0.01, 1.0], "rounds": [1, 2]}},
}  # fmt: skip


def auc_pairs(y, risk):
    """Return concordant pairs and all pairs of a yes and a no."""
    apart = risk[y == 1][:, None] - risk[y == 0][None]
    return np.sum(apart > 0) + np.sum(apart == 0) / 2, apart.size


def test_such_an_arm_is_tuned_by_left_out_rows_that_each_sites_own_model_predicts(folder, tmp_path):
    arm = {**OWN, "rounds": 1}
    (folder / "tuned.yaml").write_text(yaml.safe_dump({**TUNED, "arms": [arm]}))
    study = fc.Study.from_file(folder / "tuned.yaml")
    [arm] = study.plan.arms
    assert arm.folds == "row-kfold" and arm.grid
    problem = lay_out(study.plan, study.table, study.plan.scenarios[0], 0).problem
    method, seed, right, pairs = registry.find("personal"), seed_of(study.plan, 0), 0.0, 0
    fold = {s: folds_of(f, problem.dictionary, seed) for s, f in problem.frames.items()}
    for k in range(5):
        kept = {
            s: f[fold[s] != k].reset_index(drop=True) for s, f in sorted(problem.frames.items())
        }
        for site, frame in problem.frames.items():
            given = {"user": site, "way": "ditto", "rounds": 1, "pull": 1.0}
            run = fit_once(problem.on(kept), method, given, dict(method.preprocess), seed)
            rows = frame[fold[site] == k]
            one = auc_pairs(
                rows["yes"].astype(int).to_numpy(), run.model.predict(run.design.matrix(rows))
            )
            right, pairs = right + one[0], pairs + one[1]
    tuner = Tuner(problem, arm, seed, tmp_path, lambda done, of: None)
    assert not tuner.keeps_rounds
    assert tuner.scores({"pull": 1.0}, ()) == pytest.approx([right / pairs], rel=1e-12)


def test_over_a_network_it_is_tuned_by_the_same_scores_and_no_tried_model_stays(folder, tmp_path):
    (folder / "tuned.yaml").write_text(yaml.safe_dump(TUNED))
    fc.Study.from_file(folder / "tuned.yaml").run(tmp_path / "simulated")
    terms = Terms.of(folder / "tuned.yaml")
    read = {s: sources.load(f"{s}.csv", folder, dictionary=terms.dictionary) for s in SIZES}
    tables = [SiteTable.of(terms, s, found.frames) for s, found in read.items()]
    run_local(terms, tables, tmp_path / "out")
    both = [results_of(tmp_path / name)["tuning"][0] for name in ("out", "simulated")]
    assert both[0]["chosen"] == both[1]["chosen"]
    for one, other in zip(both[0]["tried"], both[1]["tried"], strict=True):
        assert one["settings"] == other["settings"]
        assert one["score"] == pytest.approx(other["score"], rel=1e-12)
    left = {p.parent.name for p in (tmp_path / "out-states" / "models").rglob("model.json")}
    assert left == {"own", "first-repeat"}
    lines = [json.loads(x) for x in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    tried = [x for x in lines if x["phase"] == "tune"]
    assert {x["step"] for x in tried} >= {"keep_personal", "hold", "tell_held"}
    assert {x["verb"] for x in tried} == {"sum"}


def test_leaving_a_site_out_of_such_an_arms_folds_is_refused_and_a_fit_that_was_not_kept(folder):
    text = {**TUNED, "tune": {"arms": {"own": {"by": "centre-kfold", "pull": [0.01, 1.0]}}}}
    (folder / "tuned.yaml").write_text(yaml.safe_dump(text))
    with pytest.raises(StudyError, match="a model for each site, and centre-kfold leaves that"):
        fc.Study.from_file(folder / "tuned.yaml")
    (folder / "tuned.yaml").write_text(yaml.safe_dump(TUNED))
    terms = Terms.of(folder / "tuned.yaml")
    found = sources.load("oslo.csv", folder, dictionary=terms.dictionary)
    halves = SiteTable.of(terms, "oslo", found.frames).halves(0)
    rows = TriedRows(
        halves, terms.outcome, terms.dictionary, "personal", 5, arm="own", models=OwnModels()
    )
    with pytest.raises(fc.DataError, match="this site keeps no model of fit 3 in tuning"):
        Own(fit=3)(rows)
    assert Own.from_spec(Own(fit=3).spec) == Own(fit=3)
    assert "fit" not in Own().spec
    for fit in ("-2", "true", '"a"'):
        with pytest.raises(fc.DataError, match="no such number of a fit"):
            Own.from_spec(Own(fit=3).spec.replace("3", fit))


def test_a_deployed_study_that_is_killed_in_its_fit_or_its_evaluation_has_the_same_models(
    folder, tmp_path
):
    terms = Terms.of(folder / "s.yaml")
    read = {s: sources.load(f"{s}.csv", folder, dictionary=terms.dictionary) for s in SIZES}
    tables = [SiteTable.of(terms, s, found.frames) for s, found in read.items()]
    files: dict[str, bytes] = {}
    for name, dies in (("whole", ""), ("fit", "fit-r0000-a02"), ("judged", "alone-r0000-a02")):
        seen: list[str] = []

        def tell(event, dies=dies, seen=seen):
            seen.append(event.session)
            if dies and event.session == dies and seen.count(dies) == 4:
                raise KeyboardInterrupt

        out = tmp_path / name
        if dies:
            with pytest.raises(KeyboardInterrupt):
                run_local(terms, tables, out, tell=tell)
        run_local(terms, tables, out, resume=bool(dies))
        place = tmp_path / f"{name}-states" / "models"
        found = {
            p.relative_to(place).as_posix(): p.read_bytes() for p in sorted(place.rglob("model.*"))
        }
        found["results"] = str(metrics_of(out)).encode()
        assert len(found) == 4 * 2 * 2 + 1  # four sites, the first repeat's and the final model
        assert found == (files := files or found)


def test_a_session_of_the_study_knows_no_step_that_tells_a_model(folder):
    terms = Terms.of(folder / "s.yaml")
    found = sources.load("oslo.csv", folder, dictionary=terms.dictionary)
    table = SiteTable.of(terms, "oslo", found.frames)
    fit = open_session(terms, table, "fit-r0000-a02", 5, models=OwnModels())
    for step in ("tell_personal", "tell_alone", "tell_side", "sum_risks"):
        with pytest.raises(VerbRefused, match="does not know the step"):
            fit.step(step)
    assert fit.step("keep_personal").verb == "sum"
    with pytest.raises(VerbRefused, match="the study has no session of that name"):
        open_session(terms, table, "judge-r0000-a02", 5)  # which would take a sent model
    with pytest.raises(fc.DataError, match="site 'oslo' keeps no model of arm 'own'"):
        open_session(terms, table, "alone-r0000-a02", 5, models=OwnModels())
