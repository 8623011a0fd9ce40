"""From a notebook, a study file or a network: sites may lack a view, and some methods see that."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedcohort as fc
from fedcohort.apps import catalogue
from fedcohort.apps.predictions import predict
from fedcohort.data.encode import Encoding
from fedcohort.data.read.simulated_views import dictionary_of, multiview
from fedcohort.data.split import partition
from fedcohort.protocol import DataError, Refused, SettingError, StudyError, registry
from fedcohort.study.at_site.consent import Consent
from fedcohort.study.at_site.table import SiteTable, Unfit
from fedcohort.study.file.arms import Arm
from fedcohort.study.file.terms import Terms
from fedcohort.study.run import tune
from fedcohort.study.run.runner import run_over as run
from fedcohort.study.sites import layout
from fedcohort.study.sites.sites import LocalSites
from gappy import installed

FRAME, VIEWS = multiview(240, (3, 4, 2), 2, 120, noise=(0.3, 0.3))
KNOWN = dictionary_of(VIEWS)
SITES = partition(FRAME, "views", 3, 0, views=VIEWS)


@pytest.fixture(autouse=True)
def catalogued():
    with installed():
        yield


def cohort(**more):
    return fc.simulate(SITES, dictionary=KNOWN, **more)


def standardised(table, names):
    """Return columns in standard deviations from the means of all sites' rows, as pandas has."""
    pooled = pd.concat(SITES.values())[names]
    return (table.reindex(columns=names) - pooled.mean()) / pooled.std(ddof=0)


# notebooks ------------------------------------------------------------------------------


def test_a_method_with_gaps_sees_missing_values_and_the_views_of_its_features(tmp_path):
    fit = fc.fit("gappy", cohort())
    assert fit.model.views == ("v1",) * 3 + ("v2",) * 4 + ("v3",) * 2
    fit.save(tmp_path)
    for one in (fit, fc.load(tmp_path)):
        assert_array_equal(one.transform(SITES["site-1"]), np.zeros((80, 1)))
        assert_array_equal(one.transform(SITES["site-2"]), np.full((80, 1), 4.0))
        assert_array_equal(one.transform(SITES["site-3"]), np.full((80, 1), 2.0))
        table = SITES["site-2"]
        filled, names = one.impute(table), list(fit.parts.design.features)
        truth = standardised(table, names).fillna(0.0)  # the mean is 0 up to a scale's rounding
        assert_allclose(standardised(filled, names), truth, atol=5 / (3 * np.sqrt(160)))
        known = filled[table.columns].where(table.notna())
        pd.testing.assert_frame_equal(known[names[:3]], table[names[:3]])


def test_the_same_fit_with_another_impute_has_no_gaps():
    fit = fc.fit("gappy", cohort(), impute="median")
    assert not fit.transform(SITES["site-2"]).any()
    assert len(set(map(tuple, fit.impute(SITES["site-2"])[VIEWS["v2"]].to_numpy()))) == 1


def test_a_method_without_gaps_takes_filled_views_and_refuses_none_by_name():
    fed = cohort(outcome=fc.Binary("group"))
    fit = fc.fit("logistic", fed, l2=0.1)
    assert np.isfinite(fit.predict(SITES["site-3"])).all()
    with pytest.raises(SettingError) as caught:
        fc.fit("logistic", fed, l2=0.1, impute="none")
    assert "impute is 'none', and method 'logistic' takes no missing values" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_views_can_be_given_with_the_tables_and_the_dictionary_is_drafted():
    fed = fc.simulate({s: f.drop(columns="group") for s, f in SITES.items()}, views=VIEWS)
    assert fc.fit("gappy", fed).model.views == fc.fit("gappy", cohort()).model.views
    broken = SITES | {"site-2": SITES["site-2"].drop(columns="v3_01")}
    fed = fc.simulate({s: f.drop(columns="group") for s, f in broken.items()}, views=VIEWS)
    with pytest.raises(DataError, match="no column 'v3_01'"):
        fc.fit("gappy", fed)


def test_a_view_that_is_partly_there_or_nowhere_is_named_before_any_fit():
    with pytest.raises(DataError, match="site 'site-1': there is no column 'v2_03'"):
        fc.simulate(SITES | {"site-1": FRAME.drop(columns="v2_03")}, dictionary=KNOWN)
    nowhere = {s: f.drop(columns=VIEWS["v3"], errors="ignore") for s, f in SITES.items()}
    with pytest.raises(DataError, match=r"all 3 sites: .* view 'v3' \(v3_01, v3_02\)"):
        fc.simulate(nowhere, dictionary=KNOWN)


def test_a_site_alone_does_without_the_view_that_it_lacks():
    fits = fc.fit("gappy", cohort(), strategy="isolated").sites
    assert fits["site-2"].model.views == ("v1",) * 3 + ("v3",) * 2
    assert fits["site-2"].dropped["v2_01"] == "no values"
    pooled = fc.fit("gappy", cohort(), strategy="centralised")
    assert pooled.model.views == fits["site-1"].model.views
    over_sites = fc.fit("gappy", cohort())
    assert_allclose(pooled.model.mean, over_sites.model.mean, atol=1e-12)


def test_predict_takes_a_table_without_a_view_and_names_what_is_missing(tmp_path):
    fc.fit("gappy", cohort()).save(tmp_path / "model")
    FRAME.head(6).drop(columns=VIEWS["v2"]).to_csv(tmp_path / "t.csv", index=False)
    found = predict(tmp_path / "model", str(tmp_path / "t.csv"))
    assert found.table["value"].notna().all()
    assert any("4 columns" in w for w in found.warnings), found.warnings
    FRAME.head(6).drop(columns="v2_02").to_csv(tmp_path / "p.csv", index=False)
    with pytest.raises(DataError, match="no column 'v2_02'"):
        predict(tmp_path / "model", str(tmp_path / "p.csv"))


def test_the_catalogue_offers_none_to_methods_with_gaps_alone():
    assert "iterative, multiple or none" in " ".join(catalogue.one("gappy").split())
    assert "or none" not in " ".join(catalogue.one("ridge").split())


# study files ----------------------------------------------------------------------------

STUDY = """\
study: views
task: regression
data:
  source: sample:multiview
  outcome: {y: v1_01, type: continuous}
  sites: {split: views, n: 3}
scenarios: [iid, views, {name: g, split: by-group, group: group},
            {name: gk, split: views, group: group, lacking: [v3, v1]}]
arms: [{method: gappy}]
evaluate: {repeats: 1, draws: 5}
"""


def written(folder: Path, **changes: str) -> Path:
    text = STUDY
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "s.yaml").write_text(text)
    return folder / "s.yaml"


def test_a_study_lays_views_out_and_blind_rows_keep_all_of_them(tmp_path):
    study = fc.Study.from_file(written(tmp_path))
    names = {"iid": [], "views": ["", "v2", "v3"], "g": [], "gk": ["", "v3", "v1"]}
    whole = list(study.table.frame.columns)
    for scenario in study.plan.scenarios:
        laid = layout.lay_out(study.plan, study.table, scenario, 0)
        assert list(laid.test.columns) == whole
        for lacks, frame in zip(names[scenario.name], laid.problem.frames.values(), strict=False):
            gone = [c for c in whole if lacks and c.startswith(lacks) and c != "v1_01"]
            assert [c for c in whole if c not in frame] == gone


def test_a_study_with_views_runs_and_its_results_say_how_sites_were_made(tmp_path):
    asked = {"evaluate:": "preprocess: {impute: none}\nevaluate:"}
    out = tmp_path / "out"
    made = fc.Study.from_file(written(tmp_path, **asked)).run(out)
    results = json.loads((out / "results.json").read_text())
    assert {a["status"] for a in results["arms"]} == {"done"}
    told = {s["scenario"]: s["options"] for s in results["scenarios"]}
    assert told["gk"] == {"group": "group", "lacking": ["v3", "v1"]}
    made.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Missing values were not imputed." in page
    assert "imputation: none." in page


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("views, n: 3", "views, n: 4", "line 6, data.sites.n: split 'views' makes sites in"),
        ("[v3, v1]", "[v3]", "scenarios.3.lacking: expected a list of two views"),
        ("[v3, v1]", "[v3, v3]", "scenarios.3.lacking: expected a list of two views"),
        ("[v3, v1]", "v3", "scenarios.3.lacking: expected a list of two views"),
        ("[v3, v1]", "[v3, v4]", "no view 'v4'"),
        ("by-group, group: group", "by-group", "the key 'group' is missing"),
        ("split: by-group, group", "split: by-group, lacking", "no option of split 'by-group'"),
        ("group: group}", "group: grop}", "Did you mean 'group'?"),
        (
            "[{method: gappy}]",
            "[{method: ridge, impute: none}]",
            "line 9, arms.0.impute: impute",
        ),
        (
            "arms: [{method: gappy}]",
            "preprocess: {impute: none}\narms: [{method: gappy}, {method: ridge}]",
            "line 9, preprocess.impute: impute is 'none', and method 'ridge' takes no missing",
        ),
    ],
)
def test_what_a_study_cannot_do_with_views_is_one_line(tmp_path, old, new, message):
    with pytest.raises((StudyError, DataError)) as caught:
        fc.Study.from_file(written(tmp_path, **{old: new}))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folds_of_rows_are_the_same_whether_a_view_is_lacking_or_empty():
    fed = cohort(outcome=fc.Continuous("v1_01"))
    levels = {"v2_04": {"type": "category", "levels": ["high", "low"], "view": "v2"}}
    frames = {
        s: f.assign(v2_04=np.where(f["v2_04"] > 0, "high", "low")) if "v2_04" in f else f
        for s, f in fed.frames.items()
    }
    spec = fed.dictionary.to_dict()
    spec["variables"] |= levels
    known = type(fed.dictionary).from_dict(spec)
    problem = tune.Problem(frames, known, fed.outcome)
    by_rows = Arm("a", "a", "gappy", {}, {}, "sites", {}, "row-kfold")
    ((*over_sites,),) = tune._groups(problem, by_rows, 3)
    ((*pooled,),) = tune._groups(problem, replace(by_rows, scope="centralised"), 3)
    for (_, ours), (_, theirs) in zip(over_sites, pooled, strict=True):
        a, b = pd.concat(list(ours.values())), pd.concat(list(theirs.values()))
        assert sorted(a["v1_01"]) == sorted(b["v1_01"])


# a network ------------------------------------------------------------------------------


def terms(folder: Path) -> Terms:
    return Terms.of(written(folder))


def deployed(folder: Path, study: Terms, frames) -> list[dict]:
    tables = [SiteTable.of(study, name, frame) for name, frame in frames.items()]
    sites = LocalSites(study, tables, states=folder / "states")
    run(study, sites, folder / "out", resume=False, tell=None, debug=True)
    return json.loads((folder / "out" / "results.json").read_text())["arms"]


def test_hospitals_of_a_network_may_lack_a_view_and_consent_to_gaps(tmp_path):
    frame, views = multiview()
    sites = partition(frame, "views", 3, 0, views=views)
    arms = deployed(tmp_path, terms(tmp_path), sites)
    assert {a["status"] for a in arms} == {"done"}
    made = fc.load(tmp_path / "out" / "models" / "gappy")
    assert made.model.views == ("v1",) * 14 + ("v2",) * 8 + ("v3",) * 10
    assert_array_equal(made.transform(sites["site-2"]), np.full((len(sites["site-2"]), 1), 8.0))


def test_a_hospital_refuses_a_column_that_is_read_with_another_view(tmp_path):
    study = terms(tmp_path)
    arm = study.plan.arms[0]
    known = study.dictionary["v2_01"]
    for kind in ("fit", "describe"):
        consent = Consent(study, kind, None if kind == "describe" else arm)
        consent._check_view(Encoding((known,)))
        with pytest.raises(Refused, match="column 'v2_01' is read as another type"):
            consent._check_view(Encoding((replace(known, view="v1"),)))


def test_table_1_counts_the_rows_of_a_site_without_a_view_as_missing():
    rows = fc.fit("describe", cohort()).summary.set_index(["variable", "site"])
    missing = rows["missing"].to_dict()
    assert {s: missing["v2_01", s] for s in SITES} == {"site-1": 0, "site-2": 80, "site-3": 0}


def test_a_network_says_which_view_no_hospital_has(tmp_path):
    frame, views = multiview()
    sites = partition(frame.drop(columns=views["v2"]), "iid", 3, 0)
    (status,) = {a["status"] for a in deployed(tmp_path, terms(tmp_path), sites)}
    assert "no site has a value of the view 'v2'" in status


def test_a_hospital_with_a_part_of_a_view_is_refused_with_the_column(tmp_path):
    with pytest.raises(Unfit) as caught:
        SiteTable.of(terms(tmp_path), "north", multiview()[0].drop(columns="v2_03"))
    assert caught.value.faults == [("v2_03", "missing column")]


def test_gaps_are_asked_for_by_the_catalogue_not_by_the_user():
    assert registry.find("gappy").gaps
    assert not any(registry.find(m).gaps for m in ("cox", "ridge", "kmeans", "describe"))
