"""Own and all test patients: each site's own test rows are its patients', and no site trains on
any."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_absolute_error, r2_score

import fedcohort as fc
from fedcohort.report.run import read
from fedcohort.report.sections import local
from fedcohort.study.sites.layout import lay_out

STUDY = """\
study: local
task: regression
data: {source: t.csv, outcome: {y: y}, sites: {split: iid, n: 4}}
preprocess: {impute: median, scale: none}
scenarios:
  - {name: one each, split: overlap, group: ward, k: 1}
  - iid
arms: [{method: glm}]
bounds: [isolated, centralised]
evaluate: {local: true, repeats: 2, draws: 2, metrics: [r2, mae]}
"""


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    ward = np.repeat(["a", "b", "c", "d"], 70)
    x = rng.normal(size=(280, 2)) + (ward == "d")[:, None]
    slope = np.where(ward == "a", -1.0, 1.0)
    y = slope * x[:, 0] + 0.5 * x[:, 1] + rng.normal(size=280)
    return pd.DataFrame({"x1": x[:, 0], "x2": x[:, 1], "ward": ward, "y": y})


@pytest.fixture(scope="module")
def study(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    table.to_csv(folder / "t.csv", index=False)
    (folder / "s.yaml").write_text(STUDY)
    return fc.Study.from_file(folder / "s.yaml")


@pytest.fixture(scope="module")
def out(study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ran") / "out"
    study.run(folder)
    return folder


def laid(study, i, repeat=0):
    return lay_out(study.plan, study.table, study.plan.scenarios[i], repeat)


def test_a_sites_own_test_rows_are_of_its_patients_and_nobody_trains_on_them(study):
    for repeat in (0, 1):
        rows = []
        for i in (0, 1):
            one = laid(study, i, repeat)
            rows.append(one.test_rows)
            for site, frame in one.problem.frames.items():
                own = one.test[one.own_site == site]
                assert len(own) > 0
                if i == 0:  # of one ward each
                    assert set(own["ward"]) == set(frame["ward"]) and len(set(own["ward"])) == 1
                assert pd.concat([own, frame]).duplicated().sum() == 0
            taught = pd.concat(one.problem.frames.values())
            assert len(taught) + len(one.test) == 280
            assert not taught.merge(one.test, how="inner").shape[0]
        assert (rows[0] == rows[1]).all()


def _x(frame):
    dummies = pd.get_dummies(frame["ward"].astype(pd.CategoricalDtype(list("abcd"))))
    return np.column_stack([frame[["x1", "x2"]], dummies.to_numpy(float)])


def test_metrics_are_those_of_a_model_fitted_and_judged_by_hand(study, out):
    results = json.loads((out / "results.json").read_text())
    found = {
        (r["arm"], r["site"]): r["metrics"]
        for r in results["arms"]
        if r["scenario"] == "one each" and r["repeat"] == 1
    }
    one = laid(study, 0, 1)
    sites = one.problem.frames
    everyone = LinearRegression().fit(
        _x(rows := pd.concat(sites.values())), rows["y"]
    )  # the same model for the arm and the upper bound
    for site, frame in sites.items():
        own = one.test[one.own_site == site]
        alone = LinearRegression().fit(_x(frame)[:, :2], frame["y"])
        expected = {
            ("isolated", "r2_own"): r2_score(own["y"], alone.predict(_x(own)[:, :2])),
            ("isolated", "mae_own"): mean_absolute_error(own["y"], alone.predict(_x(own)[:, :2])),
            ("isolated", "r2"): r2_score(one.test["y"], alone.predict(_x(one.test)[:, :2])),
            ("glm", "r2_own"): r2_score(own["y"], everyone.predict(_x(own))),
            ("glm", "mae_own"): mean_absolute_error(own["y"], everyone.predict(_x(own))),
            ("centralised", "r2_own"): r2_score(own["y"], everyone.predict(_x(own))),
        }
        for (arm, metric), value in expected.items():
            assert found[arm, site][metric] == pytest.approx(value, abs=1e-6), (arm, metric)


def test_the_report_shows_means_over_hospitals_beside_all_patients(out):
    run = read(out)
    arms = {a.name: a for a in run.arms}
    rows = [r for r in run.rows("arms") if r["scenario"] == "one each"]
    for name in ("isolated", "glm"):
        own = [r["metrics"]["r2_own"] for r in rows if r["arm"] == name and r["site"] is not None]
        whole = [r["metrics"]["r2"] for r in rows if r["arm"] == name and r["site"] is None]
        found = local.pair(run, arms[name], "one each", "r2")
        assert found == pytest.approx((np.mean(own), np.mean(whole)))
    text = " ".join(ET.fromstring(local.local(run).body).itertext())
    assert "own test patients" in text.lower() and "Mean absolute error" in text


def test_without_the_key_test_rows_belong_to_no_simulated_site(study, out):
    path = study.plan.base / "plain.yaml"
    path.write_text(STUDY.replace("local: true, ", ""))
    plain = fc.Study.from_file(path)
    one = laid(plain, 0)
    assert one.own_site is None
    assert (one.test_rows == laid(study, 0).test_rows).all()
    content = json.loads((out / "results.json").read_text())
    del content["evaluate"]["local"]
    (out / "results.json").write_text(json.dumps(content))
    assert local.local(read(out)) is None


def test_a_site_without_training_rows_is_refused_before_any_fit(table, tmp_path):
    rare = table.assign(ward=["e", "e", *table["ward"][2:]])
    rare.to_csv(tmp_path / "t.csv", index=False)
    text = STUDY.replace("n: 4", "n: 5").replace("local: true", "local: true, test_fraction: 0.7")
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(fc.StudyError, match="too few rows to train on are left at 'site-"):
        fc.Study.from_file(tmp_path / "s.yaml")
