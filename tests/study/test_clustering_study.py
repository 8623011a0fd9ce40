"""A study of clusters, from file to report: judged with and without an outcome that no fit sees."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines.statistics import multivariate_logrank_test
from lifelines.utils import concordance_index
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import metrics as reference

import fedcohort as fc
from fedcohort.apps.predictions import predict
from fedcohort.audit.linkage import linkage, published
from fedcohort.data.outcome import Binary, Category, Continuous, Outcome, Survival
from fedcohort.data.read import sources
from fedcohort.protocol import NotSupported, StudyError, registry
from fedcohort.study.judge import evaluate
from fedcohort.study.judge.pooled import clusters as judging
from fedcohort.study.judge.pooled.clusters import Clusters
from fedcohort.study.judge.shown.clusters import KEYS
from fedcohort.study.run.engine import Problem, Run, fit_once
from grouping import METHOD, registered

STUDY = """\
study: groups
task: clustering
data:
  source: sample:gbsg2
  outcome: {outcome}
  sites: {{split: iid, n: 3}}
arms: [{{method: groups}}, {{method: groups, name: two, groups: 2}}]
bounds: [isolated, centralised]
evaluate: {{repeats: 2, draws: 10}}
"""
SURVIVAL, GRADE = "{time: time, event: cens}", "{y: tgrade, type: category}"
INTERNAL = {
    "silhouette", "calinski_harabasz", "cycle_accuracy", "reconstruction", "smallest_share",
    "agreement",
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def catalogue() -> Iterator[None]:
    with registered(METHOD):
        yield


def study(folder: Path, outcome: str = "null", more: str = "") -> Path:
    path = folder / "study.yaml"
    path.write_text(STUDY.format(outcome=outcome) + more)
    return path


@pytest.fixture(scope="module", params=["null", SURVIVAL, GRADE])
def done(request, tmp_path_factory) -> tuple[str, fc.Results]:
    folder = tmp_path_factory.mktemp("groups")
    path = study(folder, request.param)
    return request.param, fc.Study.from_file(path).run(folder / "out", debug=True)


def test_metrics_are_those_of_the_outcome_and_of_clusters_by_themselves(done):
    outcome, results = done
    of = {"null": set(), SURVIVAL: {"c_index", "log_rank_p"}, GRADE: {"accuracy", "ari", "nmi"}}
    assert not results.failures
    assert set(results.summary["metric"]) == INTERNAL | of[outcome]
    whole = results.metrics[results.metrics["site"].isna()]
    pooled = (whole["arm"] == "centralised") & (whole["metric"] == "agreement")
    assert whole["value"].notna()[~pooled].all()


def test_sums_over_sites_find_the_pooled_groups_and_say_so(done):
    found = done[1].summary.query("metric == 'agreement'").set_index("arm")["mean"]
    assert found["groups"] == 1.0
    assert 0.0 < found["isolated"] < 1.0
    assert 0.0 < found["two"] < 1.0
    assert "centralised" not in found
    drawn = done[1].summary.query("metric == 'agreement'").set_index("arm")[["low", "high"]]
    assert drawn.loc["groups"].tolist() == [1.0, 1.0]
    assert (drawn["low"] <= found).all()
    assert (drawn["high"] >= found).all()
    assert drawn.loc["two", "low"] < found["two"] < drawn.loc["two", "high"]


def test_the_report_is_written_and_every_list_has_its_arms(done):
    outcome, results = done
    assert results.report().stat().st_size > 10_000
    empty = {"cluster_confusion", "cluster_curves", "cluster_log_rank"}
    empty -= {GRADE: {"cluster_confusion"}, SURVIVAL: empty - {"cluster_confusion"}}.get(
        outcome, set()
    )
    empty |= {"cluster_umap"}  # a study has to ask for it
    for key in KEYS:
        arms = {row["arm"] for row in results.content[key]}
        assert arms == (set() if key in empty else {"groups", "two", "centralised"}), key


def test_a_saved_model_gives_clusters_of_a_table_without_the_outcome(done, tmp_path):
    outcome, results = done
    frame = shuffled(()).drop(columns=["time", "cens"])
    model = results.folder / "models" / "groups"
    found = fc.load(model).predict(frame)
    assert set(found) == {0, 1, 2}
    frame.to_csv(tmp_path / "t.csv", index=False)
    told = predict(model, str(tmp_path / "t.csv")).table
    assert told["cluster"].tolist() == found.tolist()
    said = "no fit has seen it" in (results.folder / "models" / "groups" / "card.md").read_text()
    assert said == (outcome != "null")


def test_nothing_of_few_patients_is_shown(done):
    content = done[1].content
    for key in ("clusters", "cluster_sites", "cluster_confusion", "cluster_map"):
        counts = [row["n"] for row in content[key] if row["n"] is not None]
        assert not [n for n in counts if 0 < n < 5], key
    risk = [r["at_risk"] for r in content["cluster_curves"] if r["at_risk"]]
    assert all(n >= 5 for n in risk)
    assert all(row["n"] >= 10 for row in content["cluster_map"])
    labels = json.dumps(content)
    assert '"labels"' not in labels


def test_no_curve_of_a_cluster_singles_a_patient_out(done):
    outcome, results = done
    found = linkage(results.content)
    arms = {arm for arm, *_ in (c.name.split(",") for c in published(results.content))}
    assert arms == ({"groups", "two", "centralised"} if outcome == SURVIVAL else set())
    assert not found.alarm, found.lines


# the outcome ------------------------------------------------------------------------------


def shuffled(outcome: tuple[str, ...], seed: int = 3) -> pd.DataFrame:
    frame = sources.load("sample:gbsg2", Path()).frames.copy()
    rows = np.random.default_rng(seed).permutation(len(frame))
    for name in outcome:
        frame[name] = frame[name].to_numpy()[rows]
    return frame


@pytest.mark.parametrize(("outcome", "named"), [(SURVIVAL, ("time", "cens")), (GRADE, ("tgrade",))])
def test_clusters_are_the_same_whatever_the_outcome_is(tmp_path, outcome, named):
    dictionary = sources.load("sample:gbsg2", Path()).dictionary
    (tmp_path / "d.yaml").write_text(dictionary.to_json())
    text = STUDY.format(outcome=outcome).replace("{split: iid", "{split: unbalanced")
    text = text.replace("  outcome", "  dictionary: d.yaml\n  outcome")
    found = []
    for i, frame in enumerate((shuffled(()), shuffled(named))):
        (tmp_path / "study.yaml").write_text(text)
        one = fc.Study.from_file(tmp_path / "study.yaml", data=frame).run(tmp_path / f"out-{i}")
        assert not one.failures
        found.append(one)
    kept = ("clusters", "cluster_sites", "cluster_features", "cluster_map", "cluster_images")
    assert all(found[0].content[key] == found[1].content[key] for key in kept)
    same = [f.metrics[f.metrics["metric"].isin(INTERNAL)] for f in found]
    assert same[0].equals(same[1])
    assert not found[0].metrics.equals(found[1].metrics)


def test_an_outcome_is_no_feature_whether_it_is_named_or_not(tmp_path):
    for outcome in ("null", SURVIVAL):
        made = fc.Study.from_file(study(tmp_path, outcome))
        names = {v.name for v in made.table.dictionary.features(made.table.outcome)}
        assert names == {
            "horTh", "age", "menostat", "tsize", "tgrade", "pnodes", "progrec", "estrec",
        }  # fmt: skip


@pytest.mark.parametrize("outcome", [None, Survival("time", "cens"), Continuous("age")])
def test_fit_makes_clusters_with_or_without_an_outcome_and_never_of_it(outcome):
    frame = shuffled(())
    fed = fc.simulate({"a": frame[:300], "b": frame[300:]}, outcome=outcome)
    made = fc.fit("groups", fed)
    taken = set() if outcome is None else set(outcome.columns)
    assert taken.isdisjoint(made.model.meta()["seen"])
    assert (taken or {"time"}).isdisjoint(made.model.meta()["seen"]) == bool(taken)
    member = made.memberships(frame)
    assert_array_equal(member.argmax(axis=1), made.predict(frame))
    assert_allclose(member.sum(axis=1), 1.0)
    assert made.reconstruct(frame).columns.tolist() == made.model.meta()["seen"]


def test_a_fit_without_memberships_says_which_methods_have_them():
    fed = fc.simulate({"a": shuffled(())}, outcome=Survival("time", "cens"))
    made = fc.fit("cox", fed)
    for what in ("memberships", "reconstruct"):
        with pytest.raises(NotSupported, match=rf"'cox' has no {what}; .*groups"):
            getattr(made, what)(shuffled(()))


# metrics by others' programs --------------------------------------------------------------


def problem(outcome: Outcome | None) -> tuple[Problem, pd.DataFrame]:
    sample = sources.load("sample:gbsg2", Path())
    frame = sample.frames
    frames = {f"s{i}": frame[i:450:3].reset_index(drop=True) for i in range(3)}
    dictionary = sample.dictionary
    found = Problem(frames, dictionary, outcome).aside_of("clustering")
    if outcome is None:
        found = Problem(frames, dictionary, Survival("time", "cens")).aside_of("clustering")
    return found, frame[450:].reset_index(drop=True)


def fitted(part: Problem, **settings) -> Run:
    return fit_once(part, registry.find("groups"), settings, {"scale": "minmax"}, 1)


def test_clusters_by_themselves_are_judged_as_scikit_learn_does():
    given, test = problem(None)
    run, judge = fitted(given), evaluate.judge_of(given, test)
    wanted = tuple(INTERNAL)
    found = judge.metrics(judge.predicted(run, wanted), wanted)
    x = run.design.matrix(test)
    labels = run.model.predict(x)
    assert_allclose(found["silhouette"], reference.silhouette_score(x, labels))
    assert_allclose(found["calinski_harabasz"], reference.calinski_harabasz_score(x, labels))
    back = run.model.reconstruct(x)
    assert_allclose(found["reconstruction"], reference.mean_squared_error(x, back))
    again = run.model.predict(back)
    assert_allclose(found["cycle_accuracy"], reference.accuracy_score(labels, again))
    own = np.bincount(run.model.predict(run.design.matrix(given.pooled().frames["pooled"])))
    assert_allclose(found["smallest_share"], own.min() / own.sum())


def test_rows_of_zeros_and_ones_are_compared_by_the_cosine():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 2, (200, 6)), columns=[f"g{i}" for i in range(6)])
    fed = fc.simulate({"a": frame[:70], "b": frame[70:140]})
    given = Problem(fed.frames, fed.dictionary, None).aside_of("clustering")
    test = frame[140:].reset_index(drop=True)
    run, judge = fitted(given), evaluate.judge_of(given, test)
    found = judge.metrics(judge.predicted(run, ()), ("silhouette",))
    x = run.design.matrix(test)
    want = reference.silhouette_score(x, run.model.predict(x), metric="cosine")
    assert_allclose(found["silhouette"], want)


def test_rows_with_missing_entries_are_judged_with_means_there_and_by_their_known_entries():
    """Of `dgd`, which takes them as they are; the mean of a standardised column is 0."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 3)) + 4.0 * rng.integers(2, size=(90, 1))
    x[rng.random(x.shape) < 0.1] = np.nan
    frame = pd.DataFrame(x, columns=["u", "v", "w"])
    fed = fc.simulate({"a": frame[:30], "b": frame[30:60]})
    given = Problem(fed.frames, fed.dictionary, None).aside_of("clustering")
    test = frame[60:].reset_index(drop=True)
    small = {"q": 1, "n_clusters": 2, "hidden": (), "rounds": 2, "cluster_rounds": 1}
    method, small = registry.find("dgd"), {**small, "search_steps": 5, "swaps": 0}
    run = fit_once(given, method, small, dict(method.preprocess), 1)
    judge, wanted = evaluate.judge_of(given, test), ("silhouette", "reconstruction")
    found = judge.metrics(judge.predicted(run, wanted), wanted)
    rows = run.design.matrix(test)
    full, label = np.nan_to_num(rows), run.model.predict(rows)
    assert np.isnan(rows).any()
    assert_allclose(found["silhouette"], reference.silhouette_score(full, label), atol=1e-9)
    error = np.nanmean((run.model.reconstruct(rows) - rows) ** 2, axis=1).mean()
    assert_allclose(found["reconstruction"], error)


def test_survival_by_cluster_is_judged_as_lifelines_does():
    given, test = problem(Survival("time", "cens"))
    run, judge = fitted(given), evaluate.judge_of(given, test)
    wanted = ("c_index", "log_rank_p")
    found = judge.metrics(judge.predicted(run, wanted), wanted)
    labels = run.model.predict(run.design.matrix(test))
    want = multivariate_logrank_test(test["time"], labels, test["cens"])
    assert_allclose(found["log_rank_p"], want.p_value, rtol=1e-8)
    train = given.pooled().frames["pooled"]
    own = pd.Series(run.model.predict(run.design.matrix(train)))
    rates = train["cens"].groupby(own).sum() / train["time"].groupby(own).sum()
    want = concordance_index(test["time"], -rates.to_numpy()[labels], test["cens"])
    assert_allclose(found["c_index"], want)


@pytest.mark.parametrize("outcome", [Category("tgrade"), Binary("horTh")])
def test_classes_by_cluster_are_judged_as_scikit_learn_does(outcome):
    given, test = problem(outcome)
    run, judge = fitted(given), evaluate.judge_of(given, test)
    assert isinstance(judge, Clusters)
    wanted = ("accuracy", "ari", "nmi")
    said = judge.predicted(run, wanted)
    found = judge.metrics(said, wanted)
    labels, y = run.model.predict(run.design.matrix(test)), test[outcome.y].astype(str)
    assert_allclose(found["ari"], reference.adjusted_rand_score(y, labels), atol=1e-12)
    assert_allclose(found["nmi"], reference.normalized_mutual_info_score(y, labels), atol=1e-12)
    weights = np.random.default_rng(1).multinomial(len(test), np.full(len(test), 1 / len(test)), 6)
    drawn = judge.draws(said, weights, wanted)
    for i, w in enumerate(weights):
        rows = np.repeat(np.arange(len(test)), w)
        want = reference.adjusted_rand_score(y.iloc[rows], labels[rows])
        assert_allclose(drawn["ari"][i], want, atol=1e-12)


def test_a_site_alone_is_judged_by_its_own_hazards():
    given, test = problem(Survival("time", "cens"))
    alone = given.on({"s0": given.frames["s0"]})
    run = fitted(alone)
    judge = evaluate.judge_of(given, test).taught(alone)
    assert isinstance(judge, Clusters)
    found = judge.metrics(judge.predicted(run, ("c_index",)), ("c_index",))
    train, labels = given.frames["s0"], run.model.predict(run.design.matrix(test))
    own = pd.Series(run.model.predict(run.design.matrix(train)))
    rates = train["cens"].groupby(own).sum() / train["time"].groupby(own).sum()
    want = concordance_index(test["time"], -rates.to_numpy()[labels], test["cens"])
    assert_allclose(found["c_index"], want)


def test_of_many_rows_the_silhouette_is_of_drawn_ones_the_same_for_every_arm(monkeypatch):
    monkeypatch.setattr(judging, "MOST", 60)
    given, test = problem(None)
    runs = [fitted(given), fitted(given, groups=2)]
    judges = [evaluate.judge_of(given, test, seed) for seed in (7, 7, 8)]
    ask = ("silhouette",)
    x = runs[0].design.matrix(test)
    rows = np.sort(np.random.default_rng((7, 0x73696C68)).choice(len(x), 60, replace=False))
    for run in runs:
        found = [j.metrics(j.predicted(run, ask), ask)["silhouette"] for j in judges]
        want = reference.silhouette_score(x[rows], run.model.predict(x)[rows])
        assert_allclose(found[0], want)
        assert found[0] == found[1] != found[2]


# what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "outcome", "said"),
    [
        ("", "{y: age, type: count}", "'count' is not possible"),
        ("", "{time: time}", "'event' is missing"),
        ("", "{time: time, event: cens, entry: age}", "unknown key 'entry'"),
    ],
)
def test_what_clusters_cannot_do_is_said_in_one_line(tmp_path, more, outcome, said):
    with pytest.raises(StudyError) as told:
        fc.Study.from_file(study(tmp_path, outcome, more))
    assert "\n" not in str(told.value)
    assert said in str(told.value)


def test_a_hospital_too_small_for_so_many_groups_counts_as_one_that_sees_a_single_group(tmp_path):
    text = STUDY.format(outcome=SURVIVAL).replace("split: iid", "split: unbalanced, hub: 0.9")
    text = text.replace("n: 3", "n: 4").replace("method: groups", "method: kmeans")
    text = text.replace("repeats: 2", "repeats: 1")
    text = text.replace("name: two, groups: 2", "name: two, n_clusters: 2")
    text = text.replace("[{method: kmeans}", "[{method: kmeans, n_clusters: 20}")
    (tmp_path / "study.yaml").write_text(text)
    found = fc.Study.from_file(tmp_path / "study.yaml").run(tmp_path / "out", debug=True)
    assert not found.failures
    alone = found.metrics.query("arm == 'isolated' and metric == 'c_index' and repeat == 0")
    sites = alone.dropna(subset="site").set_index("site")["value"]
    assert sites["site-1"] != 0.5
    assert (sites[["site-2", "site-3", "site-4"]] == 0.5).all()
    text = text.replace("n_clusters: 20", "n_clusters: 600")
    (tmp_path / "study.yaml").write_text(text)
    found = fc.Study.from_file(tmp_path / "study.yaml").run(tmp_path / "out-2", debug=True)
    assert any("isolated" in line and "600" in line for line in found.failures)


@pytest.mark.parametrize("metric", ["c_index", "ari", "auc"])
def test_a_metric_without_its_outcome_is_refused(tmp_path, metric):
    text = STUDY.format(outcome="null").replace("draws: 10", f"draws: 10, metrics: [{metric}]")
    (tmp_path / "study.yaml").write_text(text)
    with pytest.raises(StudyError, match=metric):
        fc.Study.from_file(tmp_path / "study.yaml")
