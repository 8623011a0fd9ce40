"""`kmeans` and `kmodes`: scikit-learn's clusters, an independent loop's modes, and their number."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.metrics import adjusted_rand_score

import fedcohort as fc
from algorithms.cluster_cases import blobs, federation, fit, scattered
from conformance.cases import RUNTIMES
from fedcohort.algorithms.kmeans import KMEANS, KMODES, Clusters
from fedcohort.algorithms.kmeans.levels import first_levels, groups_of, modes_of
from fedcohort.data.tables import FeatureTable
from fedcohort.protocol import DataError, SettingError, Task, registry
from fedcohort.protocol.host import Host
from fedcohort.training.clusters.lloyd import lloyd
from fedcohort.training.clusters.points import Space


def test_on_iris_the_clusters_are_scikit_learns():
    x = load_iris().data
    best = KMeans(3, n_init=25, random_state=0).fit(x)
    found = fit("kmeans", scattered(x, 3), min_cell=1, tol=0.0)
    assert_allclose(found.inertia_, best.inertia_, rtol=1e-3)
    assert adjusted_rand_score(found.predict(x), best.labels_) > 0.97
    held = fit("kmeans", scattered(x, 3))
    assert held.inertia_ <= 1.02 * best.inertia_


@pytest.mark.parametrize("name", ["digits", "binary", "cancer"])
def test_sums_of_squares_are_as_small_as_those_of_scikit_learns_25_starts(name):
    """In 64 and 54 columns, where points drawn at random find little."""
    rng = np.random.default_rng(6)
    if name == "binary":
        often = rng.beta(0.4, 1.2, (3, 54))
        x, k = (rng.random((600, 54)) < often[np.arange(600) % 3]).astype(float), 3
    else:
        x, k = (load_digits().data, 10) if name == "digits" else (load_breast_cancer().data, 4)
        x = x if name == "digits" else (x - x.mean(axis=0)) / x.std(axis=0)
    best = KMeans(k, n_init=25, random_state=0).fit(x).inertia_
    for seed in (3, 6):
        found = fit("kmeans", scattered(x, 4, seed), seed=seed, n_clusters=k, restarts=10)
        assert found.inertia_ <= 1.02 * best


@pytest.mark.parametrize("aggregation", ["max_min", "random", "random_weighted", "double_kmeans"])
def test_sites_own_centroids_lead_to_the_same_clusters(aggregation):
    x, label = blobs(300, 3, 4, 1, apart=8.0)
    found = fit("kmeans", scattered(x, 3), seeding="sites", aggregation=aggregation, min_cell=3)
    # random ones may be of one cluster twice: then rounds end elsewhere
    least = 0.5 if aggregation.startswith("random") else 0.99
    assert adjusted_rand_score(found.predict(x), label) > least


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_gap_statistic_finds_the_planted_number(k, seed):
    x = blobs(240, k, 3, 10 + seed, apart=9.0)[0]
    found = fit("kmeans", scattered(x, 3), seed=seed, n_clusters="auto", k_range=[1, 6], restarts=3)
    assert len(found.centroids) == k
    assert [row["k"] for row in found.numbers] == [1, 2, 3, 4, 5, 6]


def test_the_gap_statistic_of_zeros_and_ones_has_independent_columns_for_a_reference():
    rng = np.random.default_rng(0)
    for k in (1, 3):
        often = rng.beta(0.4, 1.2, (k, 20))
        x = (rng.random((400, 20)) < often[np.arange(400) % k]).astype(float)
        found = fit("kmeans", scattered(x, 3), n_clusters="auto", k_range=[1, 5], restarts=3)
        assert len(found.centroids) == k


@pytest.mark.parametrize("k", [2, 4])
def test_a_consensus_over_sites_finds_clusters_that_all_have(k):
    x = blobs(240, k, 3, 21, apart=10.0)[0]
    found = fit(
        "kmeans", scattered(x, 3), n_clusters="auto", choose="consensus", k_range=[2, 5], restarts=3
    )  # fmt: skip
    assert len(found.centroids) == k
    assert max(row["agreement"] for row in found.numbers) > 0.95
    with pytest.raises(SettingError, match="needs 3 sites; there are 2"):
        KMEANS.configure({"n_clusters": "auto", "choose": "consensus"}).check_sites(2)


def huang(x, modes, rounds=100):
    """k-modes as a plain loop over rows, clusters and columns of codes."""
    n, p = x.shape
    label = None
    for _ in range(rounds):
        apart = [[sum(x[i, a] != mode[a] for a in range(p)) for mode in modes] for i in range(n)]
        now = [row.index(min(row)) for row in apart]
        if now == label:
            break
        label = now
        of = np.array(label)
        for j in range(len(modes)):
            counts = [np.bincount(x[of == j, a], minlength=3).tolist() for a in range(p)]
            modes[j] = [c.index(max(c)) for c in counts]
    return np.array(modes), np.array(label)


@given(seed=st.integers(0, 2**16), sites=st.integers(1, 4))
def test_modes_are_those_of_a_plain_loop(seed, sites):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (60, 4))
    start = codes[rng.choice(60, 2, replace=False)]
    names = tuple(f"v{a}={v}" for a in range(4) for v in (1, 2))
    hot = np.hstack([(codes[:, [a]] == [1, 2]).astype(float) for a in range(4)])
    first = np.hstack([(start[:, [a]] == [1, 2]).astype(float) for a in range(4)])
    modes, label = huang(codes, start.tolist())
    if len(set(label.tolist())) < 2:
        return  # a cluster without rows has no mode
    groups = groups_of(names)
    space = Space(groups=groups)
    found = lloyd(
        federation(scattered(hot, sites, seed)), space.points(first), space, rng=rng, least=1,
        reseeds=0, centre=modes_of(groups),
    )  # fmt: skip
    ours = found.centroids[:, ~first_levels(groups)] * np.sqrt(2)
    theirs = np.hstack([(modes[:, [a]] == [1, 2]).astype(float) for a in range(4)])
    assert_allclose(ours, theirs, atol=1e-12)
    assert_array_equal(found.counts, np.bincount(label, minlength=2))
    assert_allclose(found.inertia, sum((codes[i] != modes[j]).sum() for i, j in enumerate(label)))


def test_kmodes_finds_planted_modes_and_counts_differing_columns():
    rng = np.random.default_rng(2)
    modes = np.array([[0] * 12, [1] * 12, [0, 1] * 6])
    label = np.arange(300) % 3
    x = np.where(rng.random((300, 12)) < 0.1, 1 - modes[label], modes[label]).astype(float)
    found = fit("kmodes", scattered(x, 3))
    assert sorted(map(tuple, found.centroids.astype(int).tolist())) == sorted(
        map(tuple, modes.tolist())
    )
    assert adjusted_rand_score(found.predict(x), label) > 0.97
    apart = (x[:, None, :] != found.centroids).sum(axis=2)
    assert_allclose(found.transform(x), apart, atol=1e-9)
    assert_allclose(found.inertia, apart.min(axis=1).sum(), rtol=0.02)


def test_kmodes_refuses_numbers_and_two_levels_at_once():
    x = blobs()[0]
    with pytest.raises(DataError, match="column 'x0' has other values than 0 and 1"):
        fit("kmodes", scattered(x, 3))
    both = np.ones((60, 2))
    both[:20, 0] = 0.0
    with pytest.raises(DataError, match="rows have two levels of 'g' at once"):
        fit("kmodes", scattered(both, 3), names=("g=a", "g=b"))


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        ("kmeans", {"n_clusters": 0}, "'n_clusters' of method 'kmeans' is 0"),
        ("kmeans", {"k_range": [4, 2]}, "two whole numbers from 1"),
        ("kmeans", {"n_clusters": "auto", "seeding": "sites"}, "starts from candidates"),
        ("kmodes", {"restarts": 0}, "'restarts' of method 'kmodes' is 0"),
        ("kmeans", {"tol": -1.0}, "'tol' of method 'kmeans' is -1.0"),
    ],
)
def test_impossible_settings_are_refused(method, settings, said):
    with pytest.raises(SettingError, match=said):
        registry.find(method).configure(settings)


def test_more_clusters_than_rows_allow_are_refused():
    x = blobs(30)[0]
    with pytest.raises(SettingError, match="is 7, and 30 rows make at most 6 clusters of 5"):
        fit("kmeans", scattered(x, 3), n_clusters=7)
    with pytest.raises(DataError, match="no columns to cluster by"):
        fit("kmeans", [np.zeros((20, 0))] * 2)


def test_fewer_different_rows_than_clusters_give_as_many_as_there_are():
    x = np.repeat([[0.0, 0.0], [5.0, 5.0]], 20, axis=0)
    found = fit("kmeans", scattered(x, 3), n_clusters=4)
    assert_allclose(np.sort(found.centroids[:, 0]), [0.0, 5.0])
    assert found.dropped == 2


def test_clusters_are_numbered_by_size_and_a_saved_model_labels_alike():
    x, _ = blobs(200, 3, 2, 5)
    x = x[np.r_[0:200, 0:200:3]]
    found = fit("kmeans", scattered(x, 2))
    assert (np.diff(found.counts) <= 0).all()
    assert_array_equal(np.bincount(found.predict(x)), found.counts)
    meta = json.loads(json.dumps(found.meta()))
    back = Clusters.restore(found.arrays(), meta)
    assert_array_equal(back.predict(x), found.predict(x))
    assert back.summary() == found.summary()
    assert [row["n"] for row in found.summary()] == found.counts.tolist()


@given(seed=st.integers(0, 2**16), k=st.integers(2, 4))
@pytest.mark.parametrize("method", ["kmeans", "kmodes"])
def test_a_row_as_near_to_two_clusters_is_of_the_same_one_in_the_counts_and_in_predict(
    method, seed, k
):
    """Rows of zeros and ones are often as near to one mode as to another."""
    rng = np.random.default_rng(seed)
    x = (rng.random((rng.integers(60, 120), 5)) < rng.uniform(0.1, 0.9, 5)).astype(float)
    found = fit(method, scattered(x, 3), n_clusters=k)
    assert_array_equal(np.bincount(found.predict(x), minlength=len(found.counts)), found.counts)
    back = Clusters.restore(found.arrays(), json.loads(json.dumps(found.meta())))
    assert_array_equal(back.predict(x), found.predict(x))


def test_what_leaves_is_told_for_the_settings():
    told = KMEANS.revealed(KMEANS.configure({"seeding": "sites"}), None)
    assert "Of each site, once: its own clusters' means" in told
    assert "Of each site" not in KMODES.revealed(KMODES.configure({}), None)
    consensus = KMEANS.configure({"n_clusters": "auto", "choose": "consensus"})
    assert "without each site in turn" in KMEANS.revealed(consensus, None)
    assert consensus.visible == "choose: consensus"
    assert KMEANS.configure({}).visible == ""


def test_a_notebooks_fit_needs_no_outcome_and_fills_missing_values():
    x, label = blobs(300, 3, 2, 7)
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(
        constant=1.0, grade=np.array(["low", "mid", "high"])[label]
    )
    frame.loc[::17, "a"] = np.nan
    parts = {f"h{k}": frame[k::3].reset_index(drop=True) for k in range(3)}
    parts = {name: part.sample(frac=1, random_state=0) for name, part in parts.items()}
    fed = fc.simulate(parts)
    found = fc.fit("kmeans", fed, n_clusters=3)
    assert found.predict(frame).shape == (300,)
    assert list(found.summary["cluster"]) == [0, 1, 2]
    modes = fc.fit("kmodes", fc.simulate({s: p[["grade"]] for s, p in parts.items()}), n_clusters=3)
    assert adjusted_rand_score(modes.predict(frame), label) == 1.0


@pytest.mark.parametrize("runtime", ["remote", "local, masked", "remote, masked"])
@pytest.mark.parametrize("method", ["kmeans", "kmodes", "hdp"])
def test_all_runtimes_give_the_same_bytes(method, runtime):
    x = (np.random.default_rng(0).random((150, 6)) < [0.2, 0.8, 0.5, 0.1, 0.9, 0.5]).astype(float)
    entry = registry.find(method)
    found = []
    for name in ("local", runtime):
        tables = enumerate(scattered(x, 3))
        hosts = [Host(f"site-{k}", FeatureTable(part), entry.steps, 3) for k, part in tables]
        found.append(fit(method, [x], RUNTIMES[name](hosts, None)))
    one, other = (model.arrays() for model in found)
    assert {k: a.tobytes() for k, a in one.items()} == {k: a.tobytes() for k, a in other.items()}
    assert found[0].meta() == found[1].meta()


@pytest.mark.parametrize("seeding", ["candidates", "sites"])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_rows_times_the_mean_of_a_column_of_two_values_is_no_count_of_few(seed, scaled, seeding):
    rng = np.random.default_rng(seed)
    x, label = blobs(240, 4, 2, seed, apart=8.0)
    rare = (rng.random(240) < np.array([0.03, 0.1, 0.97, 0.5])[label]).astype(float)
    low, wide = (-0.3, 2.5) if scaled else (0.0, 1.0)
    parts = scattered(np.column_stack([x, low + wide * rare]), 3)
    pairs = ((np.nan, np.nan),) * 2 + ((low, low + wide),)
    entry = registry.find("kmeans")
    task = Task(kind="clustering", features=("a", "b", "c"), pairs=pairs if scaled else ())
    config = entry.configure({"n_clusters": 4, "seeding": seeding})
    fed = federation(parts, entry.steps)
    heard, gather = [], type(fed).gather
    fed.gather = lambda step, **asked: heard.append(gather(fed, step, **asked)) or heard[-1]
    model = entry.fit(fed, config, task)
    share = (model.centroids[:, 2] - low) / wide
    ones = model.counts * share
    for told in (ones, model.counts - ones):
        assert ((np.abs(told) < 1e-6) | (told > 5 - 1e-6)).all()
    assert_allclose(model.variance[:, 2], wide**2 * share * (1 - share), atol=1e-9)
    true = np.array([rare[model.predict(np.vstack(parts)) == j].sum() for j in range(4)])
    assert len(model.counts) == 4
    for reply in heard:
        for own in reply.values():
            k = own.sizes * (own.centroids[:, 2] - low) / wide
            assert ((np.abs(k) < 1e-6) | (k > 5 - 1e-6)).all()
    assert true.sum() == rare.sum()


def test_spreads_of_modes_tell_no_count_of_few():
    rng = np.random.default_rng(1)
    x = (rng.random((200, 3)) < [0.5, 0.3, 0.02]).astype(float)
    model = fit("kmodes", scattered(x, 3), names=("a", "b", "c"), n_clusters=2)
    rarer = model.counts[:, None] * (1 - np.sqrt(1 - 4 * model.variance)) / 2
    assert ((rarer < 1e-6) | (rarer > 5 - 1e-6)).all()
