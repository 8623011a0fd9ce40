"""`consent: after-ranking` in one process: who withdraws, what is left, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file
from sklearn.metrics import r2_score

import fedcohort as fc
from fedcohort.protocol import FedcohortError, StudyError
from fedcohort.report.run import read
from fedcohort.report.sections import consent as section
from fedcohort.study.at_site.ranked import in_words, text_of
from fedcohort.study.at_site.table import SiteTable
from fedcohort.study.file.second_consent import SecondConsent, check_left
from fedcohort.study.file.terms import Terms
from fedcohort.study.run.runner import run_over
from fedcohort.study.sites.sites import LocalSites

NAMES = tuple(f"h{i}" for i in range(5))
STUDY = """
study: again
task: {task}
seed: 2
data: {{source: d.csv, dictionary: dict.yaml, outcome: {{y: y}}, sites: {{column: hospital}}}}
arms:
- {{method: {method}}}
- {{method: ridge}}
bounds: []
quorum: 0.4
evaluate: {{repeats: 1, draws: 2, metrics: [rmse]}}
"""
NDOYE = "ndoye, user: h0, threshold: 100"


def made(folder, more="", method=NDOYE, task="regression"):
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(1)
    n = 400
    x, site = rng.normal(size=(n, 3)), rng.integers(0, 5, n)
    y = x @ [1.2, -1, 0.5] + rng.normal(size=n)
    y[site == 3] *= -1
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})
    table["hospital"] = [f"h{i}" for i in site]
    table.to_csv(folder / "d.csv", index=False)
    (folder / "dict.yaml").write_text(
        "variables:\n" + "".join(f"  {c}: {{type: number}}\n" for c in "abcy")
    )
    (folder / "s.yaml").write_text(STUDY.format(method=method, task=task) + more)
    return folder / "s.yaml", table


def results(out):
    return json.loads((out / "results.json").read_text())


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return the folder of a study in which h3, with the signs turned, and h4 withdraw."""
    folder = tmp_path_factory.mktemp("ran")
    path, table = made(folder, "consent: {ask: after-ranking, withdraw: [h3, h4]}\n")
    fc.Study.from_file(path).run(out=folder / "out")
    return folder / "out", table


def test_each_scenario_stands_twice_and_the_second_is_the_study_without_the_withdrawn(
    ran, tmp_path
):
    out, _ = ran
    found = results(out)
    sites = {s["scenario"]: [r["site"] for r in s["sites"]] for s in found["scenarios"]}
    assert sites == {"natural": list(NAMES), "natural-consented": list(NAMES[:3])}
    values = {
        (r["arm"], r["scenario"]): r["metrics"]["rmse"] for r in found["arms"] if not r["site"]
    }
    # independent: the same training rows fitted by fc.fit without these sites, on the same rows
    from fedcohort.study.sites.layout import lay_out, load, seed_of

    plan = fc.Study.from_file(out.parent / "s.yaml").plan
    laid = lay_out(plan, load(plan), plan.scenarios[0], 0)
    for names, scenario in ((NAMES, "natural"), (NAMES[:3], "natural-consented")):
        rows = {s: laid.problem.frames[s] for s in names}
        fed = fc.simulate(rows, outcome=fc.Continuous("y"), seed=seed_of(plan, 0))
        for arm, settings in (
            ("ndoye", {"user": "h0", "threshold": 100}), ("ridge", {}),
        ):  # fmt: skip
            fit = fc.fit(arm, fed, **settings)
            rmse = float(np.sqrt(np.mean((fit.predict(laid.test) - laid.test["y"]) ** 2)))
            assert values[arm, scenario] == pytest.approx(rmse, rel=1e-9)


def test_what_a_site_is_told_is_its_own_place_in_the_ranking_of_the_first_repeats_training_rows(
    ran,
):
    from fedcohort.study.sites.layout import lay_out, load, seed_of

    out, _ = ran
    plan = fc.Study.from_file(out.parent / "s.yaml").plan
    rows = lay_out(plan, load(plan), plan.scenarios[0], 0).problem.frames
    fed = fc.simulate(rows, outcome=fc.Continuous("y"), seed=seed_of(plan, 0))
    model = fc.fit("ndoye", fed, user="h0", train=False).model
    (row,) = results(out)["consent"]["scenarios"]
    places = {p["site"]: p for p in row["places"]}
    for r in model.ranking:
        told = places[r["site"]]
        assert (told["rank"], told["of"]) == (r["rank"], 4)
        for key, exact in (
            ("value", r["transfer_loss"]), ("loss_with", r["loss_on_user"]),
            ("loss_without", model.user_loss),
        ):  # fmt: skip
            assert told[key] == float(f"{exact:.3g}"), "three significant digits, no more"
    assert places["h0"]["user"]
    lines = [json.loads(x) for x in (out / "ledger.jsonl").read_text().splitlines()]
    ranked = [x for x in lines if x["phase"] == "rank"]
    assert {x["step"] for x in ranked} == {"own_model", "judge_here"}, "nothing is trained together"
    assert {x["scenario"] for x in ranked} == {"natural"}
    text = text_of("0" * 64, "h1", [places["h1"]])
    assert not any(f'"{name}"' in text for name in NAMES if name != "h1")
    lines = "\n".join(in_words(places["h3"], "Ndoye", "h0"))
    assert "rank 4 of 4" in lines
    assert "no gain" in lines


def test_the_report_shows_who_withdrew_and_what_it_cost(ran):
    out, _ = ran
    body = str(section.section(read(out)).body)
    assert "h3 (the study file says so) and h4" in body
    assert "What the withdrawal cost" in body
    assert body.count("<td>withdrew</td>") == 2


def test_by_the_rule_the_site_with_turned_signs_withdraws(tmp_path):
    place = {"loss_with": 0.9, "loss_without": 1.0, "user": False}
    rule = SecondConsent(no_gain=True)
    told = {
        "user": [place | {"user": True, "loss_with": None}], "good": [place],
        "same": [place | {"loss_with": 1.0}], "unranked": [place | {"loss_with": None}],
        "once": [place, place | {"loss_with": 2.0}],
    }  # fmt: skip
    assert [*rule.withdrawn(told)] == ["same", "unranked"]
    assert SecondConsent(("good", "elsewhere")).withdrawn(told) == {
        "good": "the study file says so"
    }


@pytest.mark.parametrize(
    ("more", "method", "said"),
    [
        ("consent: after-ranking\n", "lasso", "no arm ranks the sites"),
        ("consent: after_ranking\n", NDOYE, "after-ranking"),
        ("consent: {ask: once, withdraw: [h3]}\n", NDOYE, "nobody is asked again"),
        ("consent: {withdraw: many}\n", NDOYE, "expected a list of sites, or no-gain"),
        ("consent: {withdrew: [h3]}\n", NDOYE, "withdraw"),
        ("consent: {withdraw: [h3, h9]}\n", NDOYE, "consent.withdraw: there is no site 'h9'"),
        (
            "",
            "ndoye, user: h9",
            "setting 'user' of arm 'ndoye': there is no site 'h9'",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, more, method, said):
    path, _ = made(tmp_path, more, method)
    with pytest.raises(StudyError, match=said):
        fc.Study.from_file(path)


def test_over_a_network_nobody_says_beforehand_who_withdraws(tmp_path):
    path, _ = made(tmp_path, "consent: {ask: after-ranking, withdraw: [h3]}\n")
    with pytest.raises(StudyError, match="the people at each site answer"):
        Terms.of(path)


@pytest.mark.parametrize(
    ("gone", "quorum", "secure", "said"),
    [
        (["h3"], 1.0, "false", "4 of 5 sites consent after the ranking, and 5 are needed"),
        (["h1", "h2", "h3"], 0.4, "auto", "a masked sum needs 3"),
        (["h1", "h2", "h3"], 0.4, "false", ""),
        (["h0"], 0.2, "false", "for the patients of h0, which withdrew"),
    ],
)
def test_too_few_or_no_user_ends_the_run_with_one_line(tmp_path, gone, quorum, secure, said):
    plan = fc.Study.from_file(made(tmp_path)[0]).plan
    if said:
        with pytest.raises(FedcohortError, match=said) as error:
            check_left(plan.arms, NAMES, dict.fromkeys(gone, "why."), quorum, secure)
        assert "Nothing was trained" in str(error.value)
    else:
        check_left(plan.arms, NAMES, dict.fromkeys(gone, "why."), quorum, secure)


def test_over_sites_the_second_part_has_the_arrays_of_a_study_without_the_withdrawn(tmp_path):
    _, table = made(tmp_path / "again", "consent: after-ranking\n")
    tables = {}
    for name, more in (("again", "consent: after-ranking\n"), ("once", "")):
        terms = Terms.of(made(tmp_path / name, more)[0])
        left = NAMES if name == "again" else NAMES[:4]
        tables[name] = [
            SiteTable.of(terms, s, table[table.hospital == s].drop(columns="hospital"))
            for s in left
        ]
        gone = {"h4": "it would not say"} if name == "again" else None
        run_over(terms, LocalSites(terms, tables[name], withdraw=gone), tmp_path / name / "out")
    one, other = (tmp_path / n / "out" / "models" for n in ("again", "once"))
    for arm in ("ndoye", "ridge"):
        a, b = (load_file(p / arm / "model.safetensors") for p in (one, other))
        assert a.keys() == b.keys()
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])
    found = results(tmp_path / "again" / "out")
    assert found["network"]["absent"] == {"h4": "it would not say"}
    assert found["consent"]["scenarios"][0]["withdrew"] == {"h4": "it would not say"}
    assert len(found["consent"]["scenarios"][0]["places"]) == 5
    body = str(section.section(read(tmp_path / "again" / "out")).body)
    assert "What the withdrawal cost" not in body


#: Beside the ranking a model for every site.
EVERY = f"{NDOYE}}}\n- {{method: personal, name: own, user: all, way: finetune, rounds: 2"


def test_of_models_for_all_sites_only_those_who_consent_have_one(tmp_path):
    from fedcohort.study.sites.layout import lay_out, load, seed_of

    more = "consent: {ask: after-ranking, withdraw: [h3, h4]}\n"
    path, _ = made(tmp_path, more, EVERY)
    fc.Study.from_file(path).run(out=tmp_path / "out")
    plan = fc.Study.from_file(path).plan
    laid = lay_out(plan, load(plan), plan.scenarios[0], 0)
    for names, scenario in ((NAMES, "natural"), (NAMES[:3], "natural-consented")):
        rows = {s: laid.problem.frames[s] for s in names}
        fed = fc.simulate(rows, outcome=fc.Continuous("y"), seed=seed_of(plan, 0))
        fit = fc.fit("personal", fed, user="all", way="finetune", rounds=2)
        test = {s: laid.test[laid.test_site == s] for s in names}
        missed = {s: fit.of(s).predict(t) - t["y"] for s, t in test.items()}
        wanted = {s: r2_score(t["y"], fit.of(s).predict(t)) for s, t in test.items()}
        found = {
            r["site"]: r["metrics"] for r in results(tmp_path / "out")["arms"]
            if (r["arm"], r["scenario"]) == ("own", scenario)
        }  # fmt: skip
        assert {s for s, m in found.items() if s and m["r2_own"] is not None} == set(names)
        for site in names:
            assert found[site]["r2_own"] == pytest.approx(wanted[site], rel=1e-9)
        whole = np.sqrt(np.mean(np.concatenate([*missed.values()]) ** 2))
        assert found[None]["rmse"] == pytest.approx(whole, rel=1e-9)


def test_over_sites_who_withdraws_keeps_no_model_and_the_others_those_of_a_study_without_it(
    tmp_path,
):
    kept = {}
    for name, more in (("again", "consent: after-ranking\n"), ("once", "")):
        path, table = made(tmp_path / name, more, EVERY)
        terms, left = Terms.of(path), NAMES if more else NAMES[:4]
        tables = [
            SiteTable.of(terms, s, table[table.hospital == s].drop(columns="hospital"))
            for s in left
        ]
        gone = {"h4": "it would not say"} if more else None
        sites = LocalSites(terms, tables, withdraw=gone)
        run_over(terms, sites, tmp_path / name / "out")
        kept[name] = {s: sites.models(s).find("own") for s in left}
    assert kept["again"].pop("h4") is None
    for site, parts in kept["once"].items():
        again = kept["again"][site].model
        np.testing.assert_array_equal(again.theta, parts.model.theta)
        assert again.user == site


def test_an_arm_for_a_site_that_withdrew_ends_the_run_and_one_for_all_sites_does_not(tmp_path):
    arm = EVERY.replace("user: all", "user: h3")
    for method, ends in ((EVERY, False), (arm, True)):
        plan = fc.Study.from_file(made(tmp_path, "", method)[0]).plan
        if not ends:
            check_left(plan.arms, NAMES, {"h3": "why."}, 0.4, "auto")
            continue
        with pytest.raises(FedcohortError, match="'own' is for the patients of h3, which withdrew"):
            check_left(plan.arms, NAMES, {"h3": "why."}, 0.4, "auto")


SCENARIOS = "scenarios: [natural, {name: dealt, split: iid}]\n"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("availability: {away: 0.2, always: [h0]}\n", "availability: scenario 'dealt' has none"),
        ("availability: {away: 0.2, always: [h0, x]}\n", "availability: there is no site 'x'"),
        ("availability: {by_site: {h0: 0.2, site-1: 0.1}}\n", ""),
        ("consent: {withdraw: [h1]}\n", "consent.withdraw: scenario 'dealt' has none of the sites"),
        ("consent: {withdraw: [h1, site-2]}\n", ""),
    ],
)
def test_a_scenario_may_lack_some_named_sites_and_not_all(tmp_path, more, said):
    path, _ = made(tmp_path, SCENARIOS + more, "ndoye, user: h0")
    if said:
        with pytest.raises(StudyError, match=said):
            fc.Study.from_file(path)
        return
    from fedcohort.study.sites.layout import lay_out

    study = fc.Study.from_file(path)
    laws = [
        lay_out(study.plan, study.table, s, 0).problem.availability for s in study.plan.scenarios
    ]
    assert [law and sorted(law.by_site) for law in laws[:2]] == (
        [["h0"], ["site-1"]] if "avail" in more else [None, None]
    )
