"""Clusters of rows that stay at their sites: the models and metrics of one process, from sums."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from lifelines.statistics import multivariate_logrank_test
from lifelines.utils import concordance_index
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import metrics as reference
from sklearn.decomposition import PCA

import fedcohort as fc
from cluster_studies import GRADE, SURVIVAL, Done, study
from deployed_cases import files_of, run_local
from fedcohort.metrics.clusters import accuracy, contingency
from fedcohort.protocol import DataError, StudyError
from fedcohort.study.file.terms import Terms
from fedcohort.study.sites.layout import seed_of


@pytest.fixture(scope="module", params=["", SURVIVAL, GRADE], ids=["none", "survival", "classes"])
def done(request, tmp_path_factory):
    return request.param, Done(tmp_path_factory.mktemp("clusters"), request.param)


def test_a_run_ends_well_and_says_what_it_leaves_out(done):
    outcome, run = done
    assert {a["status"] for a in run.results["arms"]} == {"done"}
    assert [x["arm"] for x in run.results["left_out"] if "arm" in x] == ["centralised"]
    assert {"silhouette", "agreement"} <= {x.get("part") for x in run.results["left_out"]}
    known = {"simplified_silhouette", "calinski_harabasz", "smallest_share"}
    more = {SURVIVAL: {"c_index", "log_rank_p"}, GRADE: {"accuracy", "ari", "nmi"}}
    assert set(run.results["evaluate"]["metrics"]) == known | more.get(outcome, set())
    assert all(run.metric(m) is not None for m in run.results["evaluate"]["metrics"])


def test_the_model_is_that_of_one_process_bit_for_bit_and_knows_no_outcome(done):
    outcome, run = done
    taken = {SURVIVAL: ["time", "cens"], GRADE: ["tgrade"]}.get(outcome, [])
    frames = {t.site: t.halves(0).train.drop(columns=taken) for t in run.tables}
    fed = fc.simulate(frames, outcome=None, dictionary=run.terms.seen)
    arm = run.terms.plan.arms[1]
    settings = {**arm.configured(), **arm.preprocess}
    fit = fc.fit("kmeans", fed, seed=seed_of(run.terms.plan, 0), **settings)
    ours, want = run.saved.model.arrays(), fit.model.arrays()
    assert ours.keys() == want.keys()
    for name, array in ours.items():
        assert_array_equal(array, want[name], err_msg=name)
    assert run.saved.design.to_json() == fit.parts.design.to_json()
    assert_array_equal(fit.model.predict(fit.parts.design.matrix(run.blind)), run.labels)
    assert not set(taken) & {f.split("=")[0] for f in run.saved.model.features}


def test_metrics_of_clusters_by_themselves_are_those_of_the_pooled_rows(done):
    _, run = done
    want = reference.calinski_harabasz_score(run.x, run.labels)
    assert_allclose(run.metric("calinski_harabasz"), want, rtol=1e-10)
    assert run.metric("smallest_share") == np.bincount(run.own).min() / len(run.own)
    means = np.array([run.x[run.labels == c].mean(axis=0) for c in range(3)])
    to = np.linalg.norm(run.x[:, None] - means, axis=2)
    own = to[np.arange(len(to)), run.labels]
    to[np.arange(len(to)), run.labels] = np.inf
    s = (to.min(axis=1) - own) / np.maximum(to.min(axis=1), own)
    assert_allclose(run.metric("simplified_silhouette"), s.mean(), rtol=1e-10)


def test_each_sites_silhouette_is_of_its_own_blind_rows_rounded_to_what_few_change(done):
    _, run = done
    found = {r["site"]: r["metrics"] for r in run.results["arms"] if r["arm"] == "kmeans"}
    for table in run.tables:
        x = run.saved.design.matrix(table.halves(0).blind)
        want = reference.silhouette_score(x, run.saved.model.predict(x))
        step = table.terms.plan.min_cell / (2 * len(x))
        assert_allclose(found[table.site]["silhouette_own"], step * round(want / step), rtol=1e-9)


def test_metrics_of_an_outcome_are_those_of_the_pooled_rows_or_near(done):
    outcome, run = done
    if outcome == GRADE:
        grade = run.blind["tgrade"].astype(str)
        assert run.metric("ari") == pytest.approx(
            reference.adjusted_rand_score(grade, run.labels), abs=1e-12
        )
        nmi = reference.normalized_mutual_info_score(grade, run.labels)
        assert run.metric("nmi") == pytest.approx(nmi, abs=1e-12)
        table = contingency(run.labels, pd.factorize(grade, sort=True)[0])
        assert run.metric("accuracy") == accuracy(table)
    if outcome == SURVIVAL:
        train = run.train.assign(c=run.own).groupby("c")[["cens", "time"]].sum()
        hazard = (train["cens"] / train["time"]).to_numpy()
        want = concordance_index(run.blind["time"], -hazard[run.labels], run.blind["cens"])
        assert run.metric("c_index") == pytest.approx(want, abs=0.01)
        test = multivariate_logrank_test(run.blind["time"], run.labels, run.blind["cens"])
        (row,) = run.results["cluster_log_rank"]
        assert row["chi2"] == pytest.approx(test.test_statistic, rel=0.15, abs=2.5)
        assert row["p"] == run.metric("log_rank_p")


def test_sizes_are_those_of_the_training_rows_and_no_small_one_follows(done):
    _, run = done
    sizes = np.bincount(run.own, minlength=3)
    assert [r["n"] for r in run.results["clusters"]] == sizes.tolist()
    labels = {t.site: run.saved.model.predict(_train(run, t)) for t in run.tables}
    for row in run.results["cluster_sites"]:
        n = int((labels[row["site"]] == row["cluster"]).sum())
        assert row["n"] in (n, None)
        assert row["n"] is None or not 0 < row["n"] < 5
    assert len(run.results["cluster_sites"]) == 9


def _train(run, table):
    return run.saved.design.matrix(table.halves(0).train)


def test_features_are_counted_among_the_blind_rows(done):
    _, run = done
    found = {(r["cluster"], r["feature"]): r for r in run.results["cluster_features"]}
    assert {r["kind"] for r in found.values()} == {"share", "mean"}
    told = 0
    for c in range(3):
        mine = run.labels == c
        post = (run.blind["menostat"] == "Post").to_numpy()
        row = found[c, "menostat=Post"]
        if row["share"] is not None:
            told += 1
            assert row["share"] == pytest.approx(post[mine].mean())
            assert row["rest"] == pytest.approx(post[~mine].mean())
        row, age = found[c, "age"], run.blind["age"].to_numpy(float)
        if row["share"] is not None:
            told += 1
            assert row["share"] == pytest.approx(age[mine].mean(), abs=age[mine].std() / 4)
            n, r = mine.sum(), (~mine).sum()
            s2 = ((n - 1) * age[mine].var(ddof=1) + (r - 1) * age[~mine].var(ddof=1)) / (n + r - 2)
            want = (age[mine].mean() - age[~mine].mean()) / np.sqrt(s2)
            assert row["difference"] == pytest.approx(want, abs=0.0051)
    assert told >= 3


def test_the_map_has_each_cluster_and_no_ellipse_of_few(done):
    _, run = done
    whole = [r for r in run.results["cluster_map"] if r["site"] is None]
    assert len({r["cluster"] for r in whole}) == len(whole) >= 2
    assert all(r["n"] >= 10 for r in run.results["cluster_map"])
    z = run.saved.model.transform(run.x)
    pca = PCA(2)
    at = pca.fit_transform(z)  # the sign of an axis is free
    (told,) = {r["explained"] for r in whole}
    assert told == pytest.approx(pca.explained_variance_ratio_.sum(), abs=0.0051)
    for row in whole:
        mine = at[run.labels == row["cluster"]]
        assert row["n"] == len(mine)
        for axis, name in enumerate(("x", "y")):
            error = mine[:, axis].std() / np.sqrt(len(mine))
            assert abs(row[name]) == pytest.approx(abs(mine[:, axis].mean()), abs=0.5 * error)
            d = np.sort((mine[:, axis] - mine[:, axis].mean()) ** 2)
            assert d[:-4].sum() >= 0.1 * d[-4:].sum()
        short, long = np.sqrt(np.linalg.eigvalsh(np.cov(mine.T)))
        assert (row["sx"], row["sy"]) == (
            pytest.approx(long, rel=0.06),
            pytest.approx(short, rel=0.06),
        )


def test_curves_and_tables_of_the_outcome_are_those_of_the_blind_rows(done):
    outcome, run = done
    curves, table = run.results["cluster_curves"], run.results["cluster_confusion"]
    assert bool(curves) == (outcome == SURVIVAL)
    assert bool(table) == (outcome == GRADE)
    for c in {r["cluster"] for r in curves}:
        mine = run.blind[run.labels == c]
        for row in (r for r in curves if r["cluster"] == c and r["time"] > 0):
            later = fc_kaplan_meier(mine, row["time"])
            assert row["survival"] == pytest.approx(later, abs=0.04)
    for row in table:
        n = int(((run.labels == row["cluster"]) & (run.blind["tgrade"] == row["reference"])).sum())
        assert row["n"] in (n, None)
        assert row["n"] is None or not 0 < row["n"] < 5


def fc_kaplan_meier(rows, at):
    """Return the product-limit estimate at a time, from its definition."""
    survival = 1.0
    for t in np.unique(rows["time"][(rows["cens"] == 1) & (rows["time"] <= at)]):
        died = int(((rows["time"] == t) & (rows["cens"] == 1)).sum())
        survival *= 1 - died / int((rows["time"] >= t).sum())
    return survival


def test_the_lower_bound_is_the_mean_of_what_hospitals_find_by_themselves(done):
    _, run = done
    rows = [r for r in run.results["arms"] if r["arm"] == "isolated"]
    assert {r["site"] for r in rows} == {None, *(t.site for t in run.tables)}
    assert run.metric("smallest_share", "isolated") is None
    ours = next(r for r in rows if r["site"] is None)
    assert 0 < ours["metrics"]["simplified_silhouette"] < 1
    assert ours["within"] == {k: v for k, v in ours["metrics"].items() if v is not None}
    compared = {(r["metric"], r.get("pairs")) for r in run.results["comparisons"]}
    assert ("calinski_harabasz", "within") in compared


class Kill(BaseException):
    """A process that ends in the middle."""


def test_a_run_that_was_killed_while_it_judged_goes_on_to_the_same_bytes(tmp_path):
    run = Done(tmp_path / "whole", GRADE)

    def tell(event):
        if event.session.startswith("judge") and event.call and event.call.call == 6:
            raise Kill

    with pytest.raises(Kill):
        run_local(run.terms, run.tables, tmp_path / "out", tell=tell)
    run_local(run.terms, run.tables, tmp_path / "out", resume=True)
    assert files_of(tmp_path / "out") == files_of(run.out)


def test_an_outcome_that_only_a_dictionary_marks_travels_to_no_site(tmp_path):
    terms = study(tmp_path)
    assert not {"time", "cens"} & set(terms.dictionary.variables)
    assert Terms.from_json(terms.to_json()).hash == terms.hash
    known = terms.dictionary_content
    marks = {"months": {"type": "time"}, "died": {"type": "event"}}
    marked = {**known, "variables": {**known["variables"], **marks}}
    with pytest.raises(DataError, match="marks an outcome that the study does not name"):
        Terms(terms.content, marked).check()


def test_what_a_network_cannot_judge_clusters_by_is_said_in_one_line(tmp_path):
    with pytest.raises(StudyError, match="rows stay at their sites") as told:
        study(tmp_path, evaluate="{metrics: [agreement]}")
    assert "\n" not in str(told.value)
